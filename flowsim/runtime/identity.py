"""What tells a function, or a run, from others, in this process and in any later one."""

import builtins
import dataclasses
import dis
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_PACKAGES = ("flowsim", "jax", "jaxlib", "diffrax", "equinox", "optax", "numpy")
_PLAIN = {type(None), bool, int, float, complex, str, bytes, type(...)}
# What a class has besides what its objects do.
_OF_A_CLASS = {"__init__", "__post_init__", "__repr__", "__eq__", "__hash__", "__replace__", "_abc_impl"}
# What a function reaches by these is not found in its code.
_OPAQUE = (eval, exec, globals, locals, vars, getattr, __import__)


def identity_of(request: Any) -> str:
    """Return a SHA-256 of all that determines what `request` computes, as hexadecimal digits.

    Arrays count by their bytes. A user's functions and classes count by their code, by the values that they close over,
    and by the globals that they read; those of installed packages by their names and versions. Raises `ValueError` for
    an object that could not be recognized in another process.
    """
    versions = [(package, _version(package)) for package in _PACKAGES]
    return digest_of([versions, jax.default_backend(), request]).hex()


def digest_of(value: Any) -> bytes:
    """Return a digest of one value as `identity_of` makes it, without versions. Raises as that does."""
    return _Digests().of(value)


def static_function(function: Any) -> Any:
    """Return a function as a `StaticFunction`, so that nothing compiles anew where the same code is defined again.

    A pytree that can be called, such as an Equinox module, is returned as it is: its arrays are arguments of what is
    compiled. So is what cannot be called.
    """
    is_leaf = callable(function) and jax.tree.structure(function) == jax.tree.structure(0)
    return StaticFunction(function) if is_leaf else function


@jax.tree_util.register_static
@dataclasses.dataclass(eq=False)
class StaticFunction:
    """A function as a static part of a pytree, equal to others with the same code that read the same values.

    The values are those at the first comparison or trace. A function is equal to itself alone where it reads something
    mutable besides arrays (a list, an object that is no frozen data class), writes to what it reads, as schedules of
    Optax do, or reaches it by `eval` and the like. Raises `ValueError` where a function is traced again after what it
    reads has changed, as the programs compiled for it hold the values of before.
    """

    function: Callable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's value."""
        alone = not isinstance(self._key, bytes)
        if alone or not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return self.function(*args, **kwargs)
        if "_traced" in vars(self) and self._digest() != self._key:
            name = getattr(self.function, "__qualname__", type(self.function).__name__)
            raise ValueError(
                f"what the function {name} reads, of the variables around it or the global ones, has changed since it "
                "was first used: define it anew, or keep what changes in the fields of an Equinox module with a "
                "method __call__"
            )
        value = self.function(*args, **kwargs)
        self._traced = True
        if self._digest() != self._key:  # it writes to what it reads
            self._key = id(self.function)
        return value

    @functools.cached_property
    def _key(self) -> object:
        return self._digest() or id(self.function)

    def _digest(self) -> bytes | None:
        try:
            return _Digests(immutable=True).of(self.function)
        except Exception:  # whatever a user's objects, or arrays that are being traced, raise when they are looked at
            return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticFunction) and self._key == other._key

    def __hash__(self) -> int:
        return hash(getattr(self.function, "__qualname__", None))  # unlike the key, for good

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticFunction, (self.function,)  # in another process it reads what is there


class _Digests:
    """The digests of objects, each made of those of its parts.

    With `immutable`, raises `ValueError` for what may change unseen, and for arrays of more than `most_bytes`, which
    are too large to be looked through each time that a function is traced.
    """

    def __init__(self, *, immutable: bool = False, most_bytes: int = 2**24):
        self._immutable, self._most_bytes = immutable, most_bytes
        self._known: dict[int, tuple[Any, bytes]] = {}  # by address, so each object is kept
        self._depth = 0

    def of(self, value: Any) -> bytes:
        """Return the digest of a value."""
        if type(value) in _PLAIN:
            return _joined(type(value).__name__, repr(value))
        if id(value) not in self._known:
            self._depth += 1
            self._known[id(value)] = value, _joined("the one around", self._depth)  # as a function that calls itself
            self._known[id(value)] = value, self._of_object(value)
            self._depth -= 1
        return self._known[id(value)][1]

    def _of_object(self, value: Any) -> bytes:
        if self._immutable and any(value is function for function in _OPAQUE):
            raise ValueError("it reads what is not found in its code")
        if place := _installed_place(value):
            return _joined(*place)
        of_numpy = isinstance(value, np.generic) or type(value) is np.ndarray
        if isinstance(value, jax.Array) or (of_numpy and not value.dtype.hasobject):
            return self._of_array(value)
        kind = next((kind for kind in _PARTS if isinstance(value, kind)), object)
        if self._immutable and (kind in _MUTABLE or (kind is object and not _is_frozen(value))):
            raise ValueError("it may change")
        name = kind.__name__ if kind is type(value) else self.of(type(value))
        digests = [self.of(part) for part in _PARTS.get(kind, _parts_of_object)(value)]
        return _joined(name, *(sorted(digests) if kind in _UNORDERED else digests))

    def _of_array(self, value: Any) -> bytes:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return _joined("key", str(jax.random.key_impl(value)), self.of(jax.random.key_data(value)))
        if self._immutable and value.nbytes > self._most_bytes:
            raise ValueError("it is too large")
        weak = isinstance(value, jax.Array) and value.weak_type
        return _joined(str(value.dtype), value.shape, weak, np.asarray(value).tobytes())


def _joined(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


def _items(mapping: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((mapping or {}).items(), key=lambda item: item[0]))


def _parts_of_function(function: types.FunctionType) -> Iterator[Any]:
    yield function.__qualname__
    yield from (function.__code__, function.__defaults__, _items(function.__kwdefaults__), function.__closure__)
    # Where its code stands: a function that wraps another one, as `jax.grad`'s, says that it is of the other's module.
    if not _is_installed(function.__globals__.get("__name__") or function.__module__):
        yield from (tuple(_variables_read(function)), _items(vars(function)))  # which it may read as `function.name`


def _variables_read(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function closes over, the globals that it reads, and of a user's own modules what it may read.

    `co_names` alone would not do: it has the names of attributes too, and a global of such a name may be any object.
    """
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    names = {name for code in codes for name in code.co_names}
    loads = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME")
    instructions = [instruction for code in codes for instruction in dis.get_instructions(code)]
    loaded = {instruction.argval for instruction in instructions if instruction.opname in loads}

    def read(namespace: Mapping[str, Any], wanted: set[str], place: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name in sorted(wanted & namespace.keys()):
            value = namespace[name]
            yield ".".join([*place, name]), value
            if isinstance(value, types.ModuleType) and not _is_installed(value.__name__) and name not in place:
                yield from read(vars(value), names, (*place, name))

    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed_over = {name: content for name, cell in cells for content in _content(cell)}
    namespace = sys.modules | vars(builtins) | function.__globals__ | closed_over
    return read(namespace, loaded | closed_over.keys(), ())


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not filled yet
        return []


def _parts_of_class(kind: type) -> Iterator[Any]:
    yield from (kind.__qualname__, kind.__bases__)
    for name, value in _items(vars(kind)):
        hidden = name in _OF_A_CLASS or (name.startswith("__") and not callable(value))
        if not hidden and not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            yield name, value


def _is_frozen(value: Any) -> bool:
    options = vars(type(value)).get("__dataclass_params__")  # of the class itself: one below may have more than fields
    if options is None or not options.frozen:
        return False
    known = {field.name for field in dataclasses.fields(value)}
    attributes = [item for kind in type(value).__mro__ for item in vars(kind).items()]
    cached = {name for name, attribute in attributes if isinstance(attribute, functools.cached_property)}
    return set(getattr(value, "__dict__", ())) <= known | cached


def _parts_of_object(value: Any) -> Iterable[Any]:
    """Return the fields of a data class, such as a module of Equinox, else what a copy would be made of."""
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    try:
        made = value.__reduce_ex__(4)
    except Exception:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ValueError(
            f"a checkpoint has to know its run again in another process, and cannot tell one {kind} from another: "
            "leave it out of the network, the problem and the options, or run without a checkpoint"
        ) from None
    # The fourth and the fifth are iterators, over the entries of a list and of a dict.
    return [made] if isinstance(made, str) else [*made[:3], *(list(part or ()) for part in made[3:])]


_OF_CODE = "code consts names varnames freevars cellvars argcount posonlyargcount kwonlyargcount flags exceptiontable"
_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.FunctionType: _parts_of_function,
    types.CodeType: lambda code: [getattr(code, f"co_{name}") for name in _OF_CODE.split()],
    types.CellType: _content,
    types.MethodType: lambda method: (method.__func__, method.__self__),
    types.ModuleType: lambda module: [module.__name__],
    type: _parts_of_class,
    staticmethod: lambda held: [held.__func__],
    classmethod: lambda held: [held.__func__],
    property: lambda held: (held.fget, held.fset, held.fdel),
    functools.cached_property: lambda held: [held.func],
    functools.partial: lambda held: (held.func, held.args, _items(held.keywords)),
    type(jax.jit(lambda: None)): lambda held: [held.__wrapped__],
    jax.custom_jvp: lambda held: [item for item in _items(vars(held)) if not item[0].startswith("__")],
    jax.custom_vjp: lambda held: [item for item in _items(vars(held)) if not item[0].startswith("__")],
    StaticFunction: lambda held: [held.function],
    np.dtype: lambda dtype: [str(dtype)],
    jax.Device: lambda device: (device.platform, device.device_kind, device.id),
    slice: lambda held: (held.start, held.stop, held.step),
    tuple: tuple,
    frozenset: list,
    list: list,
    set: list,
    dict: lambda held: held.items(),
    types.MappingProxyType: lambda held: held.items(),
}
_MUTABLE = {list, set, dict, types.MappingProxyType, jax.Device}
_UNORDERED = {frozenset, set, dict, types.MappingProxyType}


def _installed_place(value: Any) -> tuple[str, ...] | None:
    """Return the module, the name and the version of what an installed package calls by a name, else `None`."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if isinstance(value, types.ModuleType):
        module, name = value.__name__, ""
    if not isinstance(module, str) or not isinstance(name, str) or not _is_installed(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    return (module, name, _version(module.partition(".")[0])) if found is value else None


@functools.cache
def _is_installed(module: str) -> bool:
    """Tell whether a module is Python's, flowsim's or an installed package's, so that its version tells what it is."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "flowsim":
        return True
    files = [getattr(sys.modules.get(name), "__file__", None) for name in (module, top)]  # one in C may have none
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if _version(top):  # wherever it was installed: on clusters, elsewhere
        folders.append(str(metadata.distribution(top).locate_file(top)))
    place = next((Path(file).resolve() for file in files if file), Path())
    return any(place.is_relative_to(Path(folder).resolve()) for folder in folders)


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
