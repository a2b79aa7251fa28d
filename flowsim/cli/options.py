"""The options of the command line, and what can be seen of them before JAX is imported."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..runtime.paths import user_path
from ..scenarios import ScenarioError, parse_overrides, read_document

_EPILOG = """\
exit codes: 0 done, 1 no limit reached or a statement fails, 2 bad input,
  128 + n ended by signal n (Ctrl-C: 130)

examples:
  python -m flowsim scenarios/residual.yaml
  python -m flowsim scenarios/residual.yaml --set network.scale=0.3 --overwrite
  python -m flowsim report results/residual   # the results again, not computed
  python -m flowsim new residual              # a residual.yaml to be changed
  python -m flowsim check residual.yaml       # is it right, what will it take?"""


@dataclass(frozen=True)
class Subcommand:
    """Something to do other than to run scenarios, named by the first argument of the command line.

    `usage` is its name, one word, and what may follow; `summary` says in one line what it does. `act` is called with
    the arguments that follow the name, and returns the exit code. Each is entered in `command.SUBCOMMANDS`.
    """

    usage: str
    summary: str
    act: Callable[[Sequence[str]], int]


def parser(subcommands: Iterable[Subcommand]) -> argparse.ArgumentParser:
    """Return the parser of a command line that runs scenarios; its help names the subcommands."""
    width = max(len(one.usage) for one in subcommands)
    named = "\n".join(f"  {one.usage:{width}}  {one.summary}" for one in subcommands)
    made = argparse.ArgumentParser(
        prog="python -m flowsim",
        description="Integrate the gradient flow of neural networks to its limit, beside gradient\n"
        f"descent and theory.\n\nin place of scenarios:\n{named}\n(each has a --help of its own)",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("scenarios", nargs="*", type=user_path, metavar="SCENARIO", help="a scenario file (YAML)")
    add_run_options(made)
    made.add_argument("--schema", action="store_true", help="print the JSON Schema of a scenario, and end")
    return made


def add_run_options(made: argparse.ArgumentParser) -> None:
    """Add the options that say how scenarios are run, and where their results go."""
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace one value in every scenario, for instance --set network.scale=0.3",
    )
    made.add_argument(
        "--out",
        type=user_path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the results (default: results)",
    )
    made.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the results of a different scenario of the same name",
    )
    made.add_argument(
        "--device",
        choices=["cpu", "gpu", "tpu"],
        help="where to compute (default: what JAX finds best); gpu needs pip install 'flowsim[cuda]'",
    )
    workers = made.add_mutually_exclusive_group()
    workers.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="processes that share the work of a sweep (default: the cores; 1: no other process)",
    )
    workers.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="give the work of a sweep to the Dask cluster at this address; needs pip install 'flowsim[dask]'",
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help="sweeps with a tenth of the steps of descents and three repetitions at most, into folders of their own; "
        "flows run to their limits; claims of figures that do not hold there are undecided",
    )


def _positive(text: str) -> int:
    # Each process is some hundred megabytes; the most that a machine has cores for is a thousand.
    if not (text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= 1024):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number from 1 to 1024; write --jobs 2")
    return int(text)


def refuse_unreadable(options: argparse.Namespace) -> None:
    """Raise `ScenarioError` for no scenario, a file that is no YAML, and a value to `--set` that is none."""
    if not options.scenarios:
        raise ScenarioError(
            "no scenario given; write python -m flowsim new residual, then python -m flowsim residual.yaml"
        )
    parse_overrides(options.set)
    for path in dict.fromkeys(options.scenarios):  # a repeated one is refused later, when its results have a name
        read_document(path)
