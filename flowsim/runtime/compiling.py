"""Functions compiled with options of XLA, quickly for small arrays, and compiled programs kept from run to run."""

import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer


def compiled(
    function: Callable,
    *,
    donate: str = "none",
    sized_by: Sequence[int] | None = None,
    few_calls: bool = False,
    few_numbers: int = 2**14,
) -> Callable:
    """Return `equinox.filter_jit(function, donate=donate)`, which compiles quickly for arguments of few numbers.

    That is on a CPU, for arrays of up to `few_numbers` in all, where a loop spends its time between kernels and not in
    them, and not under a transformation of JAX, which compiles once and in its own way. `sized_by` gives the indices of
    the arguments that count, those that the kernels work on; by default all. XLA's MLIR emitters, and LLVM's
    optimizations beyond the first level, are left out: they take 20 to 40 % of the compile time, and flows and descents
    of up to 10 050 weights run as fast without (0.87 to 1.02 of the time). With `few_calls` LLVM
    optimizes nothing: compiling takes less than half of that, and a call two to three times as long: milliseconds.
    """
    quick = {"xla_backend_optimization_level": 0 if few_calls else 1, "xla_cpu_use_fusion_emitters": False}

    @functools.cache
    def program(quickly: bool) -> Callable:
        return with_options(function, quick if quickly else {}, donate=donate)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        counted = (args if sized_by is None else [args[index] for index in sized_by], kwargs)
        known = jax.default_backend() == "cpu" and not is_traced(counted)
        sizes = [leaf.size for leaf in jax.tree.leaves(counted) if isinstance(leaf, jax.Array)] if known else []
        return program(known and sum(sizes) <= few_numbers)(*args, **kwargs)

    return call


def with_options(function: Callable, options: Mapping[str, Any], *, donate: str = "none") -> Callable:
    """Return `equinox.filter_jit(function)` with those of the compiler options that this version of XLA knows."""
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
    # A file that is half written, by a process that was killed or still writes, counts as missing; so does a full disk.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


def is_traced(tree: Any) -> bool:
    """Tell whether `tree` holds tracers, or the caller itself is being traced, as under jit or vmap."""
    # Under a trace the result of an operation on constants is a tracer too.
    return any(isinstance(leaf, Tracer) for leaf in [jnp.negative(0), *jax.tree.leaves(tree)])


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    try:
        jax.jit(jnp.negative, compiler_options={name: value}).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
