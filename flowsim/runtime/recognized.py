"""Functions that are known again when the same code is written anew, so that nothing compiles twice for it."""

import dis
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .identity import PLAIN, digest_of, globals_read, home_of, installed_place, is_installed, names_of_class

# Arrays beyond so many bytes are not looked through at each definition: what holds one is known by itself alone.
_MOST_BYTES = 2**24
# What code reaches by these names cannot be read off it.
_OPAQUE = {"eval", "exec", "globals", "locals", "vars", "getattr", "__import__"}
_COMPILED = type(jax.jit(lambda: None))
_WRITING = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "STORE_ATTR", "STORE_SUBSCR"}


def recognized(function: Any) -> Any:
    """Return a function so wrapped that another with the same code, constants and closures is equal to it.

    A pytree that can be called, such as an Equinox module, is returned as it is: its arrays are arguments of what is
    compiled. So is what cannot be called.
    """
    is_leaf = callable(function) and jax.tree.structure(function) == jax.tree.structure(0)
    return Recognized(function) if is_leaf else function


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Recognized:
    """A function, equal to all others of which the code, and all that it reads, are the same.

    What it reads is looked at when it is first traced or compared. Where that may change unseen (a list, an object
    that is no frozen data class), where the function writes to it, or where no look at the code finds it, the function
    is equal to itself alone. Raises `ValueError` where it is traced after what it reads has changed, as the programs
    that were compiled before are known by what it read then.
    """

    function: Callable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's value."""
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            self._check_unchanged()
        return self.function(*args, **kwargs)

    def _check_unchanged(self) -> None:
        if "_key" not in vars(self):
            hash(self)  # from now on it goes by what it reads now
        elif isinstance(self._key, bytes) and _digest(self.function) != self._key:
            name = getattr(self.function, "__qualname__", type(self.function).__name__)
            raise ValueError(
                f"what the function {name} reads, of the variables around it or the global ones, has changed since it "
                "was first used: define it anew, or keep what changes in the fields of an Equinox module with a "
                "method __call__"
            )

    @functools.cached_property
    def _key(self) -> bytes | int:
        # Arrays that are being traced have no content; and whatever else hides has none that could be told.
        return _digest(self.function) or id(self.function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recognized) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Recognized, (self.function,)  # in another process it goes by what it reads there


class _DoubtError(Exception):
    """What is looked at may be more than a look at it says."""


def _digest(function: Callable) -> bytes | None:
    """Return what tells a function from others, `None` where that cannot be said for certain."""
    # A compiled one knows its line in a file, too.
    inner: Any = vars(function)["__wrapped__"] if type(function) is _COMPILED else function
    try:
        _check(inner, {})
        return digest_of(inner)
    except Exception:  # a doubt, or whatever objects of a user's own do when they are looked at
        return None


def _check(value: Any, seen: dict[int, Any]) -> None:
    """Raise `_DoubtError` unless a digest of `value` says all that it is, and nothing in it changes unseen.

    `seen` holds by address what has been looked at, or is being looked at further out.
    """
    if id(value) in seen or type(value) in PLAIN or isinstance(value, np.dtype) or installed_place(value) is not None:
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        more = isinstance(value, np.ndarray) and type(value) is not np.ndarray  # a mask, or another product
        if more or isinstance(value, Tracer) or value.dtype.hasobject or value.nbytes > _MOST_BYTES:
            raise _DoubtError
        return
    for part in _parts(value, seen):
        _check(part, seen)


def _parts(value: Any, seen: dict[int, Any]) -> Iterable[Any]:
    """Return what a value consists of. Raises `_DoubtError` for kinds of which that is not all."""
    kind = next((known for known in _PARTS if isinstance(value, known)), None)
    if kind is not None:
        return _PARTS[kind](value)
    if _is_frozen(value):
        return _parts_of_instance(value, seen)
    if type(value).__module__.partition(".")[0] in {"jax", "jaxlib"} and hasattr(value, "__wrapped__"):
        held = {name: entry for name, entry in vars(value).items() if not name.startswith("_")}
        return [value.__wrapped__, *held.values()]
    raise _DoubtError


def _is_frozen(value: Any) -> bool:
    options = vars(type(value)).get("__dataclass_params__")
    return is_dataclass(value) and options is not None and options.frozen


def _parts_of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from function.__closure__ or ()
    if is_installed(home_of(function)):
        if _writes_outside(function.__code__, set(function.__code__.co_freevars)):
            raise _DoubtError
        return
    yield from vars(function).values()
    _check_code(function.__code__, set(function.__code__.co_freevars))
    for name, value in globals_read(function.__code__, function.__globals__):
        if not isinstance(value, types.ModuleType):
            yield value
        elif "." in name and not is_installed(value.__name__):  # of what is read of this one nothing is known
            raise _DoubtError


def _writes_outside(code: types.CodeType, outer: set[str]) -> bool:
    """Tell whether code writes to the variables around it, as `optax.cosine_decay_schedule` does when it is called."""
    return any(
        instruction.opname in {"STORE_DEREF", "DELETE_DEREF"} and instruction.argval in outer
        for instruction in (dis.get_instructions(code) if outer else ())
    )


def _check_code(code: types.CodeType, outer: set[str]) -> None:
    """Raise `_DoubtError` for code that writes to what it reads, or reads what only running it would tell."""
    for instruction in dis.get_instructions(code):
        named, argument = instruction.opname, instruction.argval
        writes = named in _WRITING and (not named.endswith("_DEREF") or argument in outer)
        imports = named == "IMPORT_NAME" and not is_installed(argument)
        if writes or imports or (named.startswith("LOAD") and argument in _OPAQUE):
            raise _DoubtError
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _check_code(constant, outer)


def _parts_of_instance(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """Yield the fields of a frozen data class, and what its class and those above it hold."""
    for kind in type(value).__mro__:
        if not is_installed(kind.__module__):
            seen[id(kind)] = kind  # which methods refer to; what makes objects of it is not among its parts
            yield from (vars(kind)[name] for name in names_of_class(kind))
    yield from (getattr(value, part.name, None) for part in fields(value))


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not filled yet
        raise _DoubtError from None


_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.FunctionType: _parts_of_function,
    types.MethodType: lambda method: (method.__func__, method.__self__),
    types.CellType: _content,
    Recognized: lambda held: [held.function],
    tuple: list,
    frozenset: list,
    staticmethod: lambda held: [held.__func__],
    classmethod: lambda held: [held.__func__],
    property: lambda held: (held.fget, held.fset, held.fdel),
    functools.partial: lambda held: (held.func, held.args, *held.keywords.values()),
}
