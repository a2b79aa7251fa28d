"""Write the page of the command line from what the commands say of themselves."""

import os
import subprocess
import sys
from collections.abc import Iterator

from flowsim.cli.command import SUBCOMMANDS

HEAD = """# The command line

`python -m flowsim` and `flowsim` are the same command. What follows is what the commands print with `--help`.
Where results go and what an exit code means: [How to write a scenario](../how_to/scenario.md#running-it).
"""


def helped(*words: str) -> str:
    """Return what the command prints when it is asked for help, in a terminal of 80 columns."""
    command = [sys.executable, "-m", "flowsim", *words, "--help"]
    environment = os.environ | {"COLUMNS": "80", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, encoding="utf-8")
    return done.stdout


def made() -> Iterator[tuple[str, str]]:
    """Yield the page: the command, and every subcommand."""
    parts = [f"## `python -m flowsim`\n\n```text\n{helped()}```\n"]
    parts += [f"## `python -m flowsim {name}`\n\n```text\n{helped(name)}```\n" for name in SUBCOMMANDS]
    yield "reference/command_line.md", "\n".join([HEAD, *parts])
