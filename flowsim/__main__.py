"""`python -m flowsim SCENARIO …`."""

import os
import sys
from multiprocessing import util


def run() -> None:
    """Run the command line and end the process with its exit code."""
    from .cli import main  # not above: workers import this module too, and have no use for tables and figures

    code = main()
    if code > 128:  # ended by a signal
        # Python's own exit would wait for threads, and crashes (SIGSEGV) in what XLA is still compiling. Of all that it
        # does, only the semaphores of workers have to be given back.
        util._run_finalizers(0)  # pyright: ignore[reportAttributeAccessIssue]
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
