"""What the parameters of a class mean, in its own words: the text that stands below each field of its body."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any


def meanings(kind: Callable[..., Any]) -> dict[str, str]:
    """Return the text below each field of a class and of those that it is derived from, by the names of the fields.

        class Huber(Loss):
            delta: float = 1.0
            '''Where the loss goes over from a square to a straight line.'''

    A function has none, nor has a class of which Python does not know the text.
    """
    holders = reversed(kind.__mro__) if inspect.isclass(kind) else ()
    return {name: text for holder in holders if holder.__module__ != "builtins" for name, text in _below(holder)}


def _below(holder: type) -> list[tuple[str, str]]:
    if not inspect.get_annotations(holder):
        return []
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(holder))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # typed into a prompt, or made by a program
        return []
    if not isinstance(body, ast.ClassDef):
        return []
    texts = ((field, _text(below)) for field, below in pairwise(body.body) if isinstance(field, ast.AnnAssign))
    return [(field.target.id, text) for field, text in texts if isinstance(field.target, ast.Name) and text]


def _text(statement: ast.stmt) -> str | None:
    """Return what a statement says that is nothing but text."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return inspect.cleandoc(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
