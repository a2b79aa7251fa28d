"""The search for eigenpairs at the ends of the spectrum of the Hessian of a risk."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from ..networks import Places, cast, split, weight_dtype
from ..problems import Problem, check_problem
from ..runtime.compiling import compiled
from . import vectors
from .eigenpair import Eigenpairs, checked_rtol, eigenpairs_dense, eigenpairs_lanczos
from .hessian import DENSE_UP_TO, hessian_product, hessian_rows

_FIRST_SEED = 2**20


@partial(compiled, few_calls=True)
def end_pairs(
    network: PyTree,
    problem: Problem,
    *,
    largest: int = 1,
    smallest: int = 0,
    block: int = 1,
    dense: bool | None = None,
    start: PyTree = None,
    dimension: int | None = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpairs:
    """Return eigenpairs at the ends of the spectrum of the Hessian, the vectors as weights."""
    check_problem(problem)
    weights, rest = split(network)
    dtype = weight_dtype(network)
    problem = cast(problem, dtype)
    if dtype.itemsize < 4:
        raise ValueError(f"eigenvalues are not found in {dtype}: cast the weights to float32 or float64")
    checked_rtol(rtol, dtype)
    if dimension is not None and dimension < 3:
        raise ValueError(f"dimension={dimension} is too small a Krylov space to restart from: give 3 or more")

    places = Places.of(weights)
    as_tree, as_moved = (lambda tree: tree, lambda tree: tree) if places is None else (places.tree, places.vector)

    def objective(moving: PyTree) -> Array:
        return problem.objective(eqx.combine(as_tree(moving), rest))

    here = as_moved(weights)
    if dense or (dense is None and vectors.size_of(weights) <= DENSE_UP_TO):
        found = _dense_pairs(objective, here, largest, smallest, rtol)
    else:
        start = scattered_starts(here, block) if start is None else jax.vmap(as_moved)(start)
        options = {"dimension": dimension, "rtol": rtol, "max_restarts": max_restarts}
        product = hessian_product(objective, here)
        found = eigenpairs_lanczos(product, start, largest=largest, smallest=smallest, **options)
    return eqx.tree_at(lambda pairs: pairs.vectors, found, replace_fn=jax.vmap(as_tree))


def _dense_pairs(
    objective: Callable[[PyTree], Array], weights: PyTree, largest: int, smallest: int, rtol: float | None
) -> Eigenpairs:
    found = eigenpairs_dense(hessian_rows(objective, weights), largest=largest, smallest=smallest, rtol=rtol)
    unravel = ravel_pytree(weights)[1]
    return eqx.tree_at(lambda pairs: pairs.vectors, found, jax.vmap(unravel)(found.vectors))


def scattered_starts(weights: PyTree, block: int) -> PyTree:
    """Return `block` random vectors as weights with a leading axis, the same ones every time."""
    drawn = [vectors.scattered_like(weights, _FIRST_SEED + number) for number in range(block)]
    return jax.tree.map(lambda *rows: jnp.stack(rows), *drawn)
