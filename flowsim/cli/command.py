"""The command line from its arguments to its exit code; Ctrl-C, SIGTERM and SIGHUP end it alike."""

import argparse
import difflib
import io
import json
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import jax

from ..data import DataError
from ..formatting.terminal import printable
from ..results import StoreError
from ..runtime.memory import is_out_of_memory
from ..scenarios import ScenarioError, scenario_json_schema
from .check import CHECK
from .jobs import Subcommand, choose_device, parser, read_jobs
from .kept_programs import keep_programs
from .new import NEW, shipped_scenarios
from .report import REPORT, Terminal, discard_output
from .run import run_all, worker_pool

SUBCOMMANDS: dict[str, Subcommand] = {one.name: one for one in (REPORT, NEW, CHECK)}

# SIGHUP comes when a terminal is closed, and is unknown to Windows.
ENDING = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(KeyboardInterrupt):
    """A signal, known by its number, which asks the process to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def ending_signals(seconds_of_grace: float = 5.0) -> Iterator[None]:
    """Have the signals that ask the process to end raise `Ended` in the main thread meanwhile.

    Signals that are ignored, as under nohup, stay so. A second signal, of the kind or another, often follows the first,
    and does not disturb what is cleared away meanwhile: it takes effect after `seconds_of_grace`.
    """
    latest = -math.inf

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal latest
        before, latest = latest, time.monotonic()
        if latest - before > seconds_of_grace:
            raise Ended(number)

    in_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    handlers = {number: signal.getsignal(number) for number in ENDING if in_main}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m flowsim` with `arguments` (default: those of the process) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # η has no place in every encoding
    with ending_signals():
        return _main(given)


def _main(arguments: list[str]) -> int:
    try:
        if arguments[:1] and arguments[0] in SUBCOMMANDS:  # a scenario file of that name would be ./report
            return SUBCOMMANDS[arguments[0]].act(arguments[1:])
        _refuse_mistyped(arguments)
        return _run(parser(SUBCOMMANDS.values()).parse_args(arguments))
    except (ScenarioError, DataError, StoreError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt as interrupt:
        ended = interrupt if isinstance(interrupt, Ended) else interrupt.__cause__  # of `Interrupted` of `compare`
        number = ended.number if isinstance(ended, Ended) else signal.SIGINT
        how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        kept = "files written so far are whole, the others are missing"
        again = "run the same again: what is stored of a sweep is not computed again"
        print(f"flowsim: {how}; {kept}; {again}", file=sys.stderr)
        return 128 + number
    except Exception as error:
        if is_out_of_memory(error):
            return _refuse("not enough memory; use fewer samples or features, a smaller network, or precision: float32")
        if not isinstance(error, OSError):
            raise
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}; use another file or folder")


def _run(options: argparse.Namespace) -> int:
    if options.schema:
        _print_schema()
        return 0
    jax.config.update("jax_enable_x64", True)
    choose_device(options.device)
    with Terminal().status("reading what is asked for"):
        jobs = read_jobs(options)
        keep_programs()
    warnings.filterwarnings("ignore", message="the gradient jumps")  # the table says it
    with worker_pool(jobs, options) as pool:
        return run_all(jobs, pool)


def _refuse_mistyped(arguments: Sequence[str]) -> None:
    """Raise `ScenarioError` where the first argument is no file, and was probably meant as another word."""
    first = arguments[0] if arguments else "-"
    if first.startswith("-") or Path(first).suffix or Path(first).exists():
        return
    near = difflib.get_close_matches(first.casefold(), SUBCOMMANDS, n=1)
    if near:
        write = " ".join([near[0], *arguments[1:]])
    elif first in shipped_scenarios():
        write = f"new {first}"
    else:
        return
    expected = f"a scenario file (YAML), or a subcommand: {', '.join(SUBCOMMANDS)}"
    raise ScenarioError(f"{first}: found no such file; expected {expected}; write python -m flowsim {write}")


def _print_schema() -> None:
    try:
        print(json.dumps(scenario_json_schema(), indent=2), flush=True)
    except BrokenPipeError:  # whoever read it has seen enough
        discard_output()


def _refuse(message: str) -> int:
    print(f"flowsim: {printable(message)}", file=sys.stderr)
    return 2
