"""The command line from its arguments to its exit code."""

import argparse
import difflib
import io
import json
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax

from ..data import DataError
from ..formatting.terminal import printable
from ..results import StoreError
from ..runtime import signals
from ..runtime.memory import is_out_of_memory
from ..scenarios import ScenarioError, scenario_json_schema
from .check import CHECK
from .jobs import choose_device, read_jobs
from .kept_programs import keep_programs
from .new import NEW, shipped_scenarios
from .options import Subcommand, parser
from .report import REPORT
from .run import run_all, worker_pool
from .terminal import Terminal, discard_output

SUBCOMMANDS: dict[str, Subcommand] = {one.name: one for one in (REPORT, NEW, CHECK)}
DONE, BAD_INPUT = 0, 2
_NOT_ENOUGH = "not enough memory; use fewer samples or features, a smaller network, or precision: float32"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m flowsim` with `arguments` (default: those of the process) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # η has no place in every encoding
    with signals.ending_signals():
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
        number = interrupt.number if isinstance(interrupt, signals.Ended) else signal.SIGINT
        print(signals.message_of(number), file=sys.stderr)
        return 128 + number
    except Exception as error:
        if is_out_of_memory(error):
            return _refuse(_NOT_ENOUGH)
        if not isinstance(error, OSError):
            raise
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}; use another file or folder")


def _run(options: argparse.Namespace) -> int:
    if options.schema:
        _print_schema()
        return DONE
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
    return BAD_INPUT
