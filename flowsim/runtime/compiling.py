"""Functions compiled with options of XLA, quickly for small arrays, kept from run to run, in few threads of BLAS."""

import difflib
import functools
import importlib
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from threadpoolctl import ThreadpoolController

Function = TypeVar("Function", bound=Callable[..., Any])

QUICK_OPTIONS = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
"""The options of XLA for programs of few numbers, as `compiled` explains."""
MOST_PROGRAMS = 24
"""How many programs of a function, one for each shape of its arguments, a process holds at most.

For each shape a flow takes some 20 MB and 200 memory maps, a comparison 55 MB and 680. Linux allows 65 530 maps.
"""


def compiled(
    function: Callable,
    *,
    donate: str = "none",
    sized_by: Sequence[int] | None = None,
    few_calls: bool = False,
    few_numbers: int = 2**14,
    options: Mapping[str, Any] | None = None,
) -> Callable:
    """Return `equinox.filter_jit(function, donate=donate)`, which compiles quickly for arguments of few numbers.

    That is on a CPU, for arrays of up to `few_numbers` in all, where a loop spends its time between kernels and not in
    them, and not under a transformation of JAX, which compiles once and in its own way. `sized_by` gives the indices of
    the arguments that count, those that the kernels work on; by default all. XLA's MLIR emitters, and LLVM's
    optimizations beyond the first level, are left out: they take 20 to 40 % of the compile time, and flows and descents
    of up to 10 050 weights run as fast without (0.87 to 1.02 of the time). With `few_calls` LLVM
    optimizes nothing: compiling takes less than half of that, and a call two to three times as long: milliseconds. With
    `options`, XLA compiles with these for all arguments; those that this version of XLA does not know are left out.

    With `donate="all-except-first"` the memory of JAX's arrays in all arguments but the first is used again.
    """
    programs: dict[tuple[bool, int], Any] = {}  # the last used last

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays: list[Any] = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        others = tuple(leaf if array is None else None for leaf, array in zip(leaves, arrays, strict=True))
        few = False
        if options is None and jax.default_backend() == "cpu" and not is_traced(leaves):
            counted = arrays if sized_by is None else jax.tree.leaves([args[index] for index in sized_by])
            few = sum(leaf.size for leaf in counted if eqx.is_array(leaf)) <= few_numbers
        try:
            key = hash((others, structure, *((array.shape, array.dtype) for array in arrays if array is not None)))
        except TypeError:  # JAX refuses what has no hash
            key = 0
        program = programs.pop((few, key), None)
        if program is None:
            quick = QUICK_OPTIONS | ({"xla_backend_optimization_level": 0} if few_calls else {})
            program = _program(function, quick if few else options or {})
            if len(programs) >= MOST_PROGRAMS:
                programs.pop(next(iter(programs))).clear_cache()
        programs[few, key] = program
        donated: list[Any] = [None] * len(arrays)
        if donate == "all-except-first":
            for place in range(structure.children()[0].children()[0].num_leaves, len(arrays)):
                if isinstance(arrays[place], jax.Array):
                    arrays[place], donated[place] = None, arrays[place]
        with standard_options():
            made, rest = program(arrays, donated, others, structure)
        return _joined(rest.structure, rest.leaves, made)

    return call


def _program(function: Callable, options: Mapping[str, Any]) -> Any:
    """Return a function of the leaves of its arguments, and of how they go together, jitted with compiler options."""
    names = _supported(tuple((name, type(value)()) for name, value in options.items()))
    supported = {name: value for name, value in options.items() if name in names}

    def flat(kept: list, donated: list, others: tuple, structure: Any) -> tuple[list, _Others]:  # once for each program
        if (tell := _callback.get()) is not None:
            with jax.ensure_compile_time_eval():  # what it computes is no part of the program
                tell()
        args, kwargs = _joined(structure, others, kept, donated)
        with in_full_precision():
            leaves, structure = jax.tree.flatten(function(*args, **kwargs))
        arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        rest = tuple(leaf if array is None else None for leaf, array in zip(leaves, arrays, strict=True))
        return arrays, _Others(rest, structure)

    flat.__name__ = getattr(function, "__name__", flat.__name__)
    return jax.jit(flat, static_argnums=(2, 3), donate_argnums=1, compiler_options=supported or None)


def with_standard_options(function: Function) -> Function:
    """Return a function that runs under `standard_options`, also outside of compiled programs.

    An unknown keyword argument is refused with those that there are.
    """
    parameters = inspect.signature(function).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [name for name, one in parameters.items() if one.kind in named and name != "self"]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for unknown in () if takes_any else kwargs.keys() - set(names):
            initials = [name for name in names if "".join(word[:1] for word in name.split("_")) == unknown]
            near = initials or difflib.get_close_matches(unknown, names, n=1)
            remedy = f"write {near[0]}" if near else f"expected one of {', '.join(names)}"
            raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {unknown!r}: {remedy}")
        with standard_options():
            return function(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]  (of the same signature)


def standard_options() -> AbstractContextManager:
    """Return a context in which JAX's options for debugging are off, as flowsim's programs need it.

    They mark slots without a record by NaN and take infinite bounds (`jax_debug_nans`, `jax_debug_infs`), add whole
    numbers to floating-point ones (`jax_numpy_dtype_promotion`), take numbers of Python as arguments
    (`jax_transfer_guard`), and are nothing but compiled loops (`jax_disable_jit`).
    """
    contexts = [
        context(value) for name, (context, value) in _STANDARD.items() if getattr(jax.config, name) not in (value, None)
    ]
    if not contexts:
        return nullcontext()
    stack = ExitStack()
    for context in contexts:
        stack.enter_context(context)
    return stack


_STANDARD: dict[str, tuple[Callable[[Any], AbstractContextManager], Any]] = {
    "jax_debug_nans": (jax.debug_nans, False),
    "jax_debug_infs": (jax.debug_infs, False),
    "jax_numpy_dtype_promotion": (jax.numpy_dtype_promotion, "standard"),
    "jax_transfer_guard": (jax.transfer_guard, "allow"),
    "jax_transfer_guard_host_to_device": (jax.transfer_guard_host_to_device, "allow"),
    "jax_transfer_guard_device_to_device": (jax.transfer_guard_device_to_device, "allow"),
    "jax_transfer_guard_device_to_host": (jax.transfer_guard_device_to_host, "allow"),
    "jax_disable_jit": (jax.disable_jit, False),
}


@contextmanager
def on_compilation(tell: Callable[[], object] | None) -> Iterator[None]:
    """Have `tell` called whenever JAX begins to trace a program of flowsim, to compile it or load what was kept of it.

    That is in this thread, until the call of the program returns.
    """
    token = _callback.set(tell)
    try:
        yield
    finally:
        _callback.reset(token)


_callback: ContextVar[Callable[[], object] | None] = ContextVar("callback", default=None)


def in_full_precision() -> AbstractContextManager:
    """Multiply matrices in the precision of their entries, unless `jax_default_matmul_precision` says otherwise.

    By default JAX rounds those of float32 to eleven significant bits on many GPUs ("TensorFloat-32"), and to eight on
    TPUs: an error of 10⁻³ in a gradient, where a flow in float32 asks for 10⁻⁴.
    """
    chosen = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]  (set at run time)
    return nullcontext() if chosen else jax.default_matmul_precision("highest")


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Others:
    """What a program returns besides arrays, and how these go together with them."""

    leaves: tuple
    structure: Any


def _joined(structure: Any, *parts: Sequence) -> Any:
    """Return the pytree whose leaves are those of several parts, of which only one is not `None`."""
    leaves = [next((leaf for leaf in same if leaf is not None), None) for same in zip(*parts, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def programs_folder() -> str | None:
    """Return the folder in which JAX keeps the programs that this process compiles, `None` where it has none."""
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]  (set at run time)


def keep_programs_in(folder: str | os.PathLike) -> None:
    """Have JAX keep every program that this process compiles from now on in a folder, and look there first."""
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # A file that is half written, by a process that was killed or still writes, counts as missing; so does a full disk.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


def is_traced(tree: Any) -> bool:
    """Tell whether `tree` holds tracers, or the caller itself is being traced, as under jit or vmap."""
    # Under a trace a constant becomes a tracer too; elsewhere nothing is compiled for it.
    return any(isinstance(leaf, Tracer) for leaf in (*jax.tree.leaves(tree), jnp.asarray(0)))


@functools.cache
def _supported(options: tuple[tuple[str, Any], ...]) -> list[str]:
    """Return the names of those options, each with some value, that this version of XLA knows; at best by one trial."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except jax.errors.JaxRuntimeError:
        return [option[0] for option in options if _supported((option,))] if len(options) > 1 else []
    return [name for name, _ in options]


def knows_lapack() -> bool:
    """Tell whether the BLAS that JAX calls on a CPU is loaded: SciPy's, with the first program that needs it."""
    return _LAPACK in sys.modules


@contextmanager
def few_blas_threads(rows: int, *, lapack: bool = True, many_rows: int = 500) -> Iterator[None]:
    """Have BLAS compute in one thread meanwhile, for matrices of fewer than `many_rows` rows on a CPU.

    Where other programs keep the cores busy, a factorization of some hundred rows takes many times as long in two
    threads as in one, as they wait for one another; where the cores are idle, it takes 0.85 of the time with 300 rows,
    and 0.74 with 500 (`benchmarks/threads.py`). The limit is that of the whole process, and belongs to the thread of
    Python that asked first: others leave it as it is. What is computed has to be waited for inside. A library that is
    loaded meanwhile is not limited: LAPACK is loaded first, unless `lapack` says that it may not be needed.
    """
    wanted = rows < many_rows and jax.default_backend() == "cpu"
    if not (wanted and _LIMITED.acquire(blocking=False)):
        yield
        return
    try:
        if lapack:
            importlib.import_module(_LAPACK)
        with _blas(knows_lapack()).limit(limits=1, user_api="blas"):
            yield
    finally:
        _LIMITED.release()


_LAPACK = "scipy.linalg.cython_lapack"
_LIMITED = threading.Lock()


@functools.cache
def _blas(with_lapack: bool) -> ThreadpoolController:
    """Return the controller of the libraries that are loaded; to find them takes some milliseconds."""
    return ThreadpoolController()
