"""`python -m flowsim SCENARIO …`."""

import os
import sys
from multiprocessing import util

if __name__ == "__main__":
    # Not above: workers import this module too, and have no use for tables and figures.
    from .cli import main

    code = main()
    if code > 128:  # ended by a signal
        # Gives back the semaphores of workers, which their tracker would complain about, though a thread may hold them.
        util._run_finalizers(0)  # pyright: ignore[reportAttributeAccessIssue]
        # Python's orderly exit would wait for, and can crash in, what the compiler still has running.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
