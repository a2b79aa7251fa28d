"""Paths that a user gives."""

import os
from pathlib import Path


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` and `~name` at its beginning replaced by that home folder, where there is such a user.

    A shell does so for `--out ~/x`, and for neither `--out=~/x` nor a path in quotation marks, in Python or in YAML.
    """
    return Path(os.path.expanduser(path))
