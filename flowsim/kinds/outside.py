"""Modules of a user's own: where they are looked for, and what they contain."""

import hashlib
import importlib
import re
import sys
from pathlib import Path

from .registry import OUTSIDE


def look_in(folder: Path) -> None:
    """Have modules found in `folder`, and in the one that the process is in, after all that are installed.

    Processes that are spawned look where this one does.
    """
    for place in (str(folder.resolve()), str(Path.cwd())):
        if place not in sys.path:
            sys.path.append(place)


def source_of(name: str) -> Path | None:
    """Return the file of the module in a name my_module:MyKind; None for a registered kind, or without a file."""
    if not re.fullmatch(OUTSIDE, name):
        return None
    file = getattr(importlib.import_module(name.split(":")[0]), "__file__", None)
    return None if file is None else Path(file)


def shadowed(name: str, folder: Path) -> tuple[Path, Path] | None:
    """Return the module in `folder` that a name my_module:MyKind means, and the one of that name used instead."""
    meant = folder.joinpath(*name.split(":")[0].split(".")).with_suffix(".py")
    used = source_of(name) if meant.is_file() else None
    return None if used is None or meant.resolve() == used.resolve() else (meant, used)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
