"""Paths that a user gives."""

import os
from pathlib import Path

from .errors import UserError


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` and `~name` at its beginning replaced by that home folder, where there is such a user.

    A shell does so for `--out ~/x`, and for neither `--out=~/x` nor a path in quotation marks, in Python or in YAML.

    Raises `UserError` for text that is no path: nothing at all, and text with a null character.
    """
    text = os.fspath(path)
    if not text:  # pathlib would take the current folder, where a shell variable without a value meant another one
        raise UserError("the path is empty; expected a file or folder; write . for the current folder")
    if "\0" in text:
        raise UserError(f"{text!r}: found a null character; expected a file or folder; write the path without it")
    return Path(os.path.expanduser(text))
