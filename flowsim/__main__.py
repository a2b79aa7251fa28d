"""`python -m flowsim SCENARIO …`."""

import gc
import os
import sys

from .runtime.errors import discard, print_error
from .runtime.signals import exit_code


def run() -> None:
    """Run the command line and end the process with its exit code."""
    # Traces of programs are millions of objects that stay: to look them through again and again takes a tenth of a run.
    gc.set_threshold(100_000, 50, 100)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # else the next file that is opened has its number, and receives what is printed
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # open until the process ends
    try:
        code = exit_code(_main)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError as error:  # Python would change the exit code to 120
                discard(stream)
                if not isinstance(error, BrokenPipeError):  # else nobody reads it
                    print_error(f"flowsim: output: {error.strerror}; use another file or folder")
                    code = 2
    if code > 128:  # ended by a signal
        from multiprocessing import util

        # Python's own exit would wait for threads, and crashes (SIGSEGV) in what XLA is still compiling. Of all that it
        # does, only the semaphores of workers have to be given back.
        util._run_finalizers(0)  # pyright: ignore[reportAttributeAccessIssue]
        os._exit(code)
    sys.exit(code)


def _main() -> int:
    from .cli import main  # not above: an interrupt may come before it is imported

    return main()


if __name__ == "__main__":
    run()
