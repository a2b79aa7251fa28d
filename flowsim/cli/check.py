"""`python -m flowsim check SCENARIO …`: whether scenarios are right, and roughly what they take; nothing is run."""

import argparse
from collections.abc import Sequence

from ..runtime.paths import user_path
from ..runtime.signals import ending_at_once
from .options import Subcommand, add_run_options, refuse_unreadable


def check(arguments: Sequence[str]) -> int:
    """Read and check the scenarios as a run would, and print about what each takes; return the exit code.

    Raises as `read_jobs` does.
    """
    options = _parser().parse_args(arguments)
    refuse_unreadable(options)
    with ending_at_once():
        from .estimate import print_estimates  # not above: it brings JAX

    print_estimates(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim check",
        description="Read and check scenarios as a run with the same options would, and say about what they will take: "
        "what is run, roughly how long, in how much memory, and where the results go. Nothing is run or written.",
        epilog="Exit codes: 0 all are right, 2 bad input.",
    )
    made.add_argument("scenarios", nargs="+", type=user_path, metavar="SCENARIO", help="a scenario file (YAML)")
    add_run_options(made)
    return made


CHECK = Subcommand("check SCENARIO ...", "is it right, and what will it take? nothing is run", check)
