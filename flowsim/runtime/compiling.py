"""Functions compiled for what they compute on, small arrays sooner, and programs that are kept from run to run."""

import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

# Numbers in all arguments that count together. A loop over so few spends its time between kernels, not in them.
_FEW = 2**14
# What XLA adds to the code of a kernel by its MLIR emitters and beyond LLVM's first level costs 20 to 40 % of the
# compile time. On few numbers flows and descents take as long without: 0.87 to 1.02 of the time, up to 10 050 weights.
_QUICKLY = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
# Without LLVM's optimizations that is less than half again, and a call takes two to three times as long: milliseconds.
_FOR_FEW_CALLS = _QUICKLY | {"xla_backend_optimization_level": 0}


def compiled(
    function: Callable, *, donate: str = "none", sized_by: Sequence[int] | None = None, few_calls: bool = False
) -> Callable:
    """Return `equinox.filter_jit(function, donate=donate)`, which compiles quickly where the arguments are few numbers.

    That is on a CPU, and not under a transformation of JAX, which compiles once and in its own way. `sized_by` says
    which of the arguments count, those that the kernels work on: all of them unless told. `few_calls` says that the
    program does little work in all, so that its compilation counts for more than its speed.
    """

    @functools.cache
    def program(quickly: bool) -> Callable:
        options = _FOR_FEW_CALLS if few_calls else _QUICKLY
        return with_options(function, options if quickly else {}, donate=donate)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        counted = args if sized_by is None else [args[index] for index in sized_by]
        return program(_are_few(counted, kwargs))(*args, **kwargs)

    return call


def with_options(function: Callable, options: Mapping[str, Any], *, donate: str = "none") -> Callable:
    """Return `equinox.filter_jit(function)` with those of XLA's compiler options that its version knows."""
    known = {name: value for name, value in options.items() if _is_known(name, value)}
    chosen = {"compiler_options": known} if known else {}
    return eqx.filter_jit(function, donate=donate, **chosen)  # pyright: ignore[reportCallIssue, reportArgumentType]


def programs_folder() -> str | None:
    """Return the folder in which JAX keeps the programs that this process compiles, `None` where it has none."""
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]  (set at run time)


def keep_programs_in(folder: str | os.PathLike) -> None:
    """Have JAX keep every program that this process compiles from now on in a folder, and look there first."""
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # What is half written, by a process that was killed or that writes at this moment, is compiled as if it were not
    # there; and so it goes on where the disk is full.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


def is_traced(tree: Any) -> bool:
    """Tell whether a transformation of JAX, such as jit or vmap, is looking at `tree`, or at all that happens here."""
    # Where a program is being traced, every result is a part of it, that of constants too.
    return any(isinstance(leaf, Tracer) for leaf in [jnp.negative(0), *jax.tree.leaves(tree)])


def _are_few(*arguments: Any) -> bool:
    """Tell whether the arrays are known, on a CPU, and small."""
    if jax.default_backend() != "cpu" or is_traced(arguments):
        return False
    return sum(leaf.size for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array)) <= _FEW


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    try:
        jax.jit(jnp.negative, compiler_options={name: value}).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
