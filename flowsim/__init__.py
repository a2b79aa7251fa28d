"""Gradient flow of neural networks, integrated to its limit, beside gradient descent and theory.

What it offers stands in `__init__.pyi`, and is imported where it is first asked for.
"""

import os
import sys

# `python -m flowsim` has Python look for every module in the working directory first. In a folder of results that
# somebody else made, a yaml.py would run. So that place is left out here, before any other import. A scenario's modules
# are found there all the same, after those that are installed (`kinds.registry.look_in`). sys.argv[0] is "-m" until
# Python has found flowsim. If that is itself in the working directory, the processes of sweeps need the place, too.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv) :][:1] in ([__name__], [f"-m{__name__}"])
    and not sys.flags.safe_path
    and sys.path[0] != os.path.dirname(os.path.dirname(__file__))
):
    sys.path.pop(0)

import importlib

import lazy_loader

from .formatting.presentation import load_rooms_by as _load_rooms_by

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_load_rooms_by(
    lambda: importlib.import_module(f"{__name__}.tables"),
    lambda: importlib.import_module(f"{__name__}.report"),
)
