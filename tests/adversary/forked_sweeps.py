"""Runs of the command line that begin at once, each a process with workers of its own, to be killed many times.

They are forked from processes that have made the imports, and have drawn a figure, which would be most of the time of a
run, and have not begun to compute, after which nobody may fork. Reads a line of JSON for each run, the words of a
command line, and answers with the run's process, and, once that has ended, with its exit code.
"""

import io
import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
from importlib import import_module

from matplotlib.figure import Figure

from flowsim import cli

# Which a run imports when it needs them.
for _name in ("flowsim.report.page", "h5netcdf", "xarray.backends.h5netcdf_", "distributed"):
    import_module(_name)

# Not by its name, which is that of a function too.
WORKERS = import_module("flowsim.sweeps.workers")


class Forked:
    """Stands for `multiprocessing` where workers are begun."""

    parent_process = staticmethod(multiprocessing.parent_process)

    @staticmethod
    def get_context(method):
        return multiprocessing.get_context("forkserver")


def prepare():
    """Have the process begun from which all runs will have their workers."""
    multiprocessing.set_forkserver_preload(["flowsim.sweeps.compute"])
    multiprocessing.forkserver.ensure_running()
    # The runs are no parents of it, and could not ask the system whether it lives.
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None
    WORKERS.multiprocessing = Forked
    # Fonts are looked for, and formulas read, more quickly the second time.
    figure = Figure()
    figure.subplots().set(xlabel="$10^{-1}$", xscale="log", yscale="log")
    for suffix in ("png", "pdf"):
        figure.savefig(io.BytesIO(), format=suffix)


def run(words):
    """Be the run, and end as `python -m flowsim` does."""
    with open(words[-1], "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os._exit(cli.main(words[:-1]))


if __name__ == "__main__":
    # Which are ignored, SIGHUP under nohup, is inherited, and flowsim leaves what is ignored so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    prepare()
    for line in sys.stdin:
        pid = os.fork() or run(json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
