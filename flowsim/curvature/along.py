"""The largest eigenvalues of the Hessian along a path of weights, each search begun where the last one ended."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..compiling import compiled
from ..networks import records, split
from ..problems import Problem
from . import vectors
from .eigenpair import MANY_WEIGHTS, checked_rtol, default_rtol
from .sharpness import end_pairs, scattered_starts

_BLOCK = 64
# Each network of a block is worked on by itself.
_ALL_BUT_THE_BLOCK = (1, 2, 3)
_DIMENSION, _DIMENSION_OF_MANY = 12, 24
# How much of everything else joins the eigenvector of before: more where the tolerance forgives more.
_LARGE_SHARE, _SMALL_SHARE, _TIGHT = 0.3, 1e-2, 1e-9


def sharpness_along(path: PyTree, problem: Problem, *, rtol: float | None = None) -> Float[np.ndarray, " records"]:
    """Return the sharpness of every network of `path`, as `eigenvalues_along` does the largest eigenvalues."""
    places = np.arange(jax.tree.leaves(split(path)[0])[0].shape[0])
    return eigenvalues_along(path, problem, places, rtol=rtol)[:, 0]


def eigenvalues_along(
    path: PyTree,
    problem: Problem,
    places: Int[np.ndarray, " places"],
    *,
    count: int = 1,
    rtol: float | None = None,
) -> Float[np.ndarray, "places count"]:
    """Return the `count` largest eigenvalues of the Hessian at the `places` among the records of `path`.

    The weights of `path` have a leading axis of records. Lanczos starts from the eigenvectors of the place before, with
    a share of everything else. `rtol` is as in `top_eigenpair`; the last place, where a run ends, has the default. An
    eigenvalue that overtakes another by about sqrt(p)·rtol of its size, for p weights, is seen at once, in a closer
    race perhaps only later. A value is NaN where it could not be certified, as where the weights are not finite.
    """
    weights, rest = split(path)
    dtype = vectors.dtype_of(weights)
    tolerances = np.full(len(places), checked_rtol(rtol, dtype), dtype)
    tolerances[-1:] = default_rtol(dtype)
    start, found = compiled(scattered_starts)(records(weights, np.array(0)), count), []
    for first in range(0, len(places), _BLOCK):
        # Blocks of one length compile once: the last is filled up with places at which nothing is done.
        index = np.arange(first, first + _BLOCK)
        filled = np.minimum(index, len(places) - 1)
        block = records(weights, places[filled])
        start, values = _eigenvalues_of_block(block, rest, problem, start, tolerances[filled], index < len(places))
        found.append(np.asarray(values))
    return np.concatenate(found)[: len(places)]


@partial(compiled, sized_by=_ALL_BUT_THE_BLOCK)
def _eigenvalues_of_block(
    block: PyTree,
    rest: PyTree,
    problem: Problem,
    start: PyTree,
    rtol: Float[Array | np.ndarray, " block"],
    wanted: Bool[Array | np.ndarray, " block"],
) -> tuple[PyTree, Float[Array, "block count"]]:
    size, count = vectors.size_of(records(block, np.array(0))), jax.tree.leaves(start)[0].shape[0]
    dimension = _DIMENSION if size <= MANY_WEIGHTS else _DIMENSION_OF_MANY
    options = {"dimension": dimension if count == 1 else None, "dense": False, "largest": count}

    def next_record(start: PyTree, place: tuple) -> tuple[PyTree, Array]:
        weights, rtol, wanted = place

        def search() -> tuple[PyTree, Array]:
            found = end_pairs(eqx.combine(weights, rest), problem, start=start, rtol=rtol, **options)
            values = jnp.where(found.converged, found.values, jnp.nan)
            return _warm_start(found.vectors, found.converged, rtol), values

        unknown = jnp.full(count, jnp.nan, vectors.dtype_of(start))
        return jax.lax.cond(wanted, search, lambda: (start, unknown))

    return jax.lax.scan(next_record, start, (block, jnp.asarray(rtol), jnp.asarray(wanted)))


def _warm_start(rows: PyTree, converged: Bool[Array, " count"], rtol: Float[Array, ""]) -> PyTree:
    """Return the eigenvectors with a share of everything else, so that what has been at right angles comes into sight.

    Where eigenvalues cross, the eigenvector of before still is one, and is certified at once unless its rival weighs
    more in the start than the tolerance forgives. So the looser the tolerance, the larger the share.
    """
    scattered = scattered_starts(vectors.row(rows, 0), len(converged))
    share = jnp.where(rtol > _TIGHT, _LARGE_SHARE, _SMALL_SHARE)

    def mixed(old: PyTree, new: PyTree, good: Array) -> PyTree:
        new = vectors.scaled(jnp.where(good, share, 1) / vectors.norm(new), new)
        return jax.tree.map(lambda a, b: jnp.where(good, a, 0) + b, old, new)

    return jax.vmap(mixed)(rows, scattered, converged)
