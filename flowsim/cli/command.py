"""From the words of a command line to its exit code."""

import argparse
import io
import json
import signal
import sys
import warnings
from collections.abc import Sequence

import jax

from ..data import DataError
from ..formatting import printable
from ..results import StoreError
from ..runtime import signals
from ..runtime.memory import is_out_of_memory
from ..scenarios import ScenarioError, scenario_json_schema
from .closed import silence
from .crew import crew_for
from .device import choose_device
from .jobs import read_jobs
from .kept_programs import keep_programs
from .options import parser
from .run import Terminal, run_all
from .words import WORDS, refuse_mistyped

DONE, BAD_INPUT = 0, 2
_NOT_ENOUGH = "not enough memory; use fewer samples or features, a smaller network, or precision: float32"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m flowsim` with `arguments` (default: those of the process) and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # η has no place in every encoding
    with signals.ending_signals():
        return _main(words)


def _main(words: list[str]) -> int:
    try:
        if words[:1] and words[0] in WORDS:  # a scenario file of that name would be ./report
            return WORDS[words[0]].act(words[1:])
        refuse_mistyped(words)
        return _run(parser(WORDS.values()).parse_args(words))
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
    with crew_for(jobs, options) as crew:
        return run_all(jobs, crew)


def _print_schema() -> None:
    try:
        print(json.dumps(scenario_json_schema(), indent=2), flush=True)
    except BrokenPipeError:  # whoever read it has seen enough
        silence()


def _refuse(message: str) -> int:
    print(f"flowsim: {printable(message)}", file=sys.stderr)
    return BAD_INPUT
