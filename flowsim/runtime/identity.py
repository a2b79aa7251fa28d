"""What tells one run from another, in this process and in any later one."""

import dataclasses
import dis
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PACKAGES = ("flowsim", "jax", "jaxlib", "diffrax", "equinox", "optax", "numpy")
_HERE = Path(__file__).parents[1]
PLAIN = {type(None), bool, int, float, complex, str, bytes, type(...)}
# How an object is made is of no account once it is: what it holds is.
_OF_THE_MAKING = {"__init__", "__post_init__", "__repr__", "__eq__", "__hash__", "__replace__"}
_ITERATORS = {3, 4}  # among the parts of `__reduce_ex__`: of the entries of a list, and of a mapping
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def identity_of(request: Any) -> str:
    """Return a SHA-256 of all that determines what `request` computes, as hexadecimal digits.

    Arrays count by their bytes. Functions and classes of a user's own count by their code, by the values that they
    close over, and by the globals that they read; those of installed packages by their names and versions. Raises
    `ValueError` for an object that could not be known again in another process.
    """
    versions = [(package, _version(package)) for package in _PACKAGES]
    return _Digests().of([versions, jax.default_backend(), request]).hex()


def digest_of(value: Any) -> bytes:
    """Return a digest of one value as `identity_of` makes it, without versions. Raises as that does."""
    return _Digests().of(value)


class _Digests:
    """The digests of objects, each made of those of its parts."""

    def __init__(self):
        self._under_way: list[Any] = []
        self._known: dict[int, tuple[Any, bytes]] = {}  # by address, so each object is kept

    def of(self, value: Any) -> bytes:
        """Return the digest of a value."""
        if type(value) in PLAIN:
            return _joined([type(value).__name__, repr(value)])
        if id(value) in self._known:
            return self._known[id(value)][1]
        for distance, other in enumerate(reversed(self._under_way)):
            if other is value:  # a function that calls itself, say
                return _joined(["the one around", distance])
        self._under_way.append(value)
        digest = self._of_parts(value)
        self._under_way.pop()
        self._known[id(value)] = (value, digest)
        return digest

    def _of_parts(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            return self._of_array(value)
        if place := installed_place(value):
            return _joined(place)
        kind = next((known for known in _PARTS if isinstance(value, known)), None)
        parts = _parts_of_object(value) if kind is None else _PARTS[kind](value)
        name = type(value).__name__ if type(value) is kind else self.of(type(value))
        digests = [self.of(part) for part in parts]
        return _joined([name, *(sorted(digests) if kind in _UNORDERED else digests)])

    def _of_array(self, value: Any) -> bytes:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return _joined(["key", str(jax.random.key_impl(value)), self.of(jax.random.key_data(value))])
        array = np.asarray(value)
        content = self.of(array.tolist()) if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
        weak = isinstance(value, jax.Array) and value.weak_type
        return _joined([str(array.dtype), array.shape, weak, content])


def _joined(parts: Iterable[Any]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


def _parts_of_function(function: types.FunctionType) -> Iterator[Any]:
    yield _module_of(function), function.__qualname__
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__, function.__closure__)
    if not is_installed(home_of(function)):
        yield dict(globals_read(function.__code__, function.__globals__))
        yield vars(function)  # which it may read as `function.name`


def _module_of(thing: Any) -> str:
    """Return the module of a function or class: that of a script goes by another name in processes that it spawns."""
    return "__main__" if thing.__module__ == "__mp_main__" else thing.__module__


def home_of(function: types.FunctionType) -> str:
    """Return the module whose code it is: a function that wraps another one, as `jax.grad`'s, goes by its module."""
    home = function.__globals__.get("__name__")
    return home if isinstance(home, str) else function.__module__


def globals_read(code: types.CodeType, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that some code reads, and of a module of the user's own what the code may read of it."""
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in known:
            yield name, known[name]
            if isinstance(known[name], types.ModuleType) and not is_installed(known[name].__name__):
                module = vars(known[name])
                yield from ((f"{name}.{entry}", module[entry]) for entry in code.co_names if entry in module)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from globals_read(constant, known)


def _parts_of_code(code: types.CodeType) -> Iterator[Any]:
    yield from (code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    yield from (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    yield code.co_exceptiontable


def _parts_of_class(kind: type) -> Iterator[Any]:
    yield from (_module_of(kind), kind.__qualname__, kind.__bases__)
    yield from ((name, vars(kind)[name]) for name in names_of_class(kind))


def names_of_class(kind: type) -> Iterator[str]:
    """Yield the names in a class of what its objects do, in order."""
    for name, value in sorted(vars(kind).items()):
        hidden = name.startswith("__") and not callable(value)
        if not hidden and name not in _OF_THE_MAKING | {"_abc_impl"} and not isinstance(value, _DESCRIPTORS):
            yield name


def _parts_of_cell(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not filled yet
        return []


def _parts_of_object(value: Any) -> Iterable[Any]:
    """Return the fields of a data class, such as a module of Equinox, else what a copy would be made of."""
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    if hasattr(value, "__wrapped__"):  # a function that is compiled, or has a derivative of its own
        held = {name: entry for name, entry in vars(value).items() if not name.startswith("__")}
        return [value.__wrapped__, held]
    try:
        made = value.__reduce_ex__(4)
    except Exception:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ValueError(
            f"a checkpoint has to know its run again in another process, and cannot tell one {kind} from another: "
            "leave it out of the network, the problem and the options, or run without a checkpoint"
        ) from None
    if isinstance(made, str):
        return [made]
    return [list(part or ()) if place in _ITERATORS else part for place, part in enumerate(made)]


_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.FunctionType: _parts_of_function,
    types.MethodType: lambda method: (method.__func__, method.__self__),
    types.CodeType: _parts_of_code,
    types.CellType: _parts_of_cell,
    types.ModuleType: lambda module: [module.__name__],
    type: _parts_of_class,
    staticmethod: lambda held: [held.__func__],
    classmethod: lambda held: [held.__func__],
    property: lambda held: (held.fget, held.fset, held.fdel),
    functools.cached_property: lambda held: [held.func],
    functools.partial: lambda held: (held.func, held.args, held.keywords),
    list: list,
    tuple: list,
    dict: lambda held: held.items(),
    types.MappingProxyType: lambda held: held.items(),
    set: list,
    frozenset: list,
    jax.Device: lambda device: (device.platform, device.device_kind, device.id),
    jax.tree_util.PyTreeDef: lambda structure: (structure.node_data(), structure.children()),
}
_UNORDERED = {dict, types.MappingProxyType, set, frozenset}


def installed_place(value: Any) -> tuple[str, ...] | None:
    """Return the module, the name and the version of what an installed package calls by a name, else `None`."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if isinstance(value, types.ModuleType):
        module, name = value.__name__, ""
    if not isinstance(module, str) or not isinstance(name, str) or not is_installed(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    return (module, name, _version(module.partition(".")[0])) if found is value else None


@functools.cache
def is_installed(module: str) -> bool:
    """Tell whether a module is Python's, flowsim's or an installed package's, so that its version tells what it is."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    files = [getattr(sys.modules.get(name), "__file__", None) for name in (module, top)]  # one in C may have none
    if not any(files):
        return False
    place = Path(next(filter(None, files))).resolve()
    folders = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
    return any(place.is_relative_to(folder) for folder in (_HERE, *folders, *_folder_of_distribution(top)))


def _folder_of_distribution(name: str) -> list[Path]:
    """Return the folder into which a package was installed, wherever that is: on clusters, elsewhere."""
    try:
        return [Path(str(metadata.distribution(name).locate_file(name))).resolve()]
    except metadata.PackageNotFoundError:
        return []


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
