"""The command line from its arguments to its exit code.

JAX is imported where there is something to compute: so help and errors of usage take no second.
"""

import difflib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..runtime.errors import UserError, discard, print_error
from ..runtime.signals import ending_at_once, exit_code, interrupt_behind
from ..scenarios import ScenarioError
from .check import CHECK
from .new import NEW, shipped_scenarios
from .options import Subcommand, parser, refuse_unreadable
from .report import REPORT

SUBCOMMANDS: dict[str, Subcommand] = {one.usage.split()[0]: one for one in (REPORT, NEW, CHECK)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m flowsim` with `arguments` (default: those of the process) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # η has no place in every encoding
    return exit_code(lambda: _main(given))


def _main(arguments: list[str]) -> int:
    try:
        if arguments[:1] and arguments[0] in SUBCOMMANDS:  # a scenario file of that name would be ./report
            return SUBCOMMANDS[arguments[0]].act(arguments[1:])
        _refuse_mistyped(arguments)
        options = parser(SUBCOMMANDS.values()).parse_args(arguments)
        if options.schema:
            _print_schema()
            return 0
        refuse_unreadable(options)
        with ending_at_once():
            from .run import run_scenarios  # not above: it brings JAX

        return run_scenarios(options)
    except Exception as error:
        if interrupt_behind(error) is not None:
            raise
        if isinstance(error, UserError):
            return _refuse(str(error))
        from ..runtime.memory import is_out_of_memory

        if is_out_of_memory(error):
            return _refuse("not enough memory; use fewer samples or features, a smaller network, or precision: float32")
        if not isinstance(error, OSError):
            raise
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}; use another file or folder")


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
    with ending_at_once():
        from ..scenarios import scenario_json_schema

    try:
        print(json.dumps(scenario_json_schema(), indent=2), flush=True)
    except BrokenPipeError:  # whoever read it has seen enough
        discard(sys.stdout)


def _refuse(message: str) -> int:
    from ..formatting.terminal import printable

    print_error(f"flowsim: {printable(message)}")
    return 2
