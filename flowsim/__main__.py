"""`python -m flowsim SCENARIO …`."""

import gc
import os
import sys

from .cli import INTERRUPTED, main

if __name__ == "__main__":
    code = main()
    if code == INTERRUPTED:
        gc.collect()  # gives back the semaphores of workers, which their tracker would complain about
        # Python's orderly exit would wait for, and can crash in, what the compiler still has running.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
