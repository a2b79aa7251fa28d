"""Gradient flow of neural networks, integrated to its limit, beside gradient descent and theory.

What it offers stands in `__init__.pyi`, and is imported where it is first asked for.
"""

import importlib

import lazy_loader

from .formatting.presentation import load_views_by as _load_views_by

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_load_views_by(lambda: importlib.import_module(f"{__name__}.report"))
