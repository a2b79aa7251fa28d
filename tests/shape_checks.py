"""What checks the shapes and types of arrays that flowsim's annotations promise, at every call that a test makes."""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def checked(function: Callable) -> Callable:
    """Check the annotations of a function that speak of arrays, and leave the others to the static type checker.

    Wrong arguments of other types are refused by flowsim itself, in words that tests look at.
    """
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: hint for name, hint in hints.items() if _speaks_of_arrays(hint)}
    return beartype(function)


def _speaks_of_arrays(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_speaks_of_arrays(part) for part in get_args(hint))
