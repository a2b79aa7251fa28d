"""The largest eigenvalues of the Hessian along a path of weights, each search begun where the last one ended."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..networks import records, split
from ..problems import Problem
from ..runtime.compiling import compiled
from . import vectors
from .branches import branches_of
from .eigenpair import MANY_WEIGHTS, Eigenpairs, checked_rtol, default_rtol
from .ends import end_pairs, scattered_starts
from .line import numbers_of, shape_of

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
    return _along(path, problem, places, count, rtol, keep=_certified_values)


class EigenpairsAlong(eqx.Module):
    """The `count` largest eigenpairs of the Hessian at places along a path, in decreasing order at each.

    `values`, `residuals` and `converged` are (places, count) and as in `Eigenpairs`, `vectors` as the weights with axes
    (places, count) in front. `branches`, (places, count), says which eigenvalue continues which: those of one number
    are one curve, which goes straight through a crossing, as it follows its eigenvector. At the first place they are 0,
    1, …; an eigenvalue gets a number of its own where its vector is none of those before, by overlap (`branches_of`).
    """

    values: Float[np.ndarray, "places count"]
    vectors: PyTree
    residuals: Float[np.ndarray, "places count"]
    converged: Bool[np.ndarray, "places count"]
    branches: Int[np.ndarray, "places count"]

    def __repr__(self) -> str:
        sure = numbers_of(self.converged)
        if sure is None or sure.ndim != 2:
            return f"EigenpairsAlong({shape_of(self.values)})"
        of = f"{sure.shape[1]} eigenvalue{'s' if sure.shape[1] > 1 else ''} at {sure.shape[0]} places"
        return f"EigenpairsAlong({of}, {int(sure.sum())} of {sure.size} certified)"

    def curves(self) -> Float[np.ndarray, "branches places"]:
        """Return the eigenvalues of every branch, NaN where it is not among the largest or was not certified."""
        places = len(self.values)
        curves = np.full((self.branches.max(initial=-1) + 1, places), np.nan, self.values.dtype)
        curves[self.branches, np.arange(places)[:, None]] = np.where(self.converged, self.values, np.nan)
        return curves


def eigenpairs_along(
    path: PyTree,
    problem: Problem,
    places: Int[np.ndarray, " places"],
    *,
    count: int = 1,
    rtol: float | None = None,
) -> EigenpairsAlong:
    """Return the `count` largest eigenpairs of the Hessian at the `places` among the records of `path`.

    Searched for as `eigenvalues_along` does, and as dear; what is held besides is `places` times `count` times the
    weights, in the memory of the host.
    """
    found = _along(path, problem, places, count, rtol, keep=_everything)
    overlaps = np.asarray(_overlaps(found.vectors))
    branches = branches_of(found.values, found.residuals, found.converged, overlaps)
    return EigenpairsAlong(found.values, found.vectors, found.residuals, found.converged, branches)


def _everything(pairs: Eigenpairs) -> Eigenpairs:
    return pairs


def _certified_values(pairs: Eigenpairs) -> Float[Array, " count"]:
    return jnp.where(pairs.converged, pairs.values, jnp.nan)


@compiled
def _overlaps(rows: PyTree) -> Float[Array, "steps count count"]:
    """Return the inner products of the vectors of each place, first axis, with those of the place before."""
    before, after = (jax.tree.map(lambda leaf, cut=cut: leaf[cut], rows) for cut in (slice(-1), slice(1, None)))
    return jax.lax.map(lambda both: vectors.gram(*both), (after, before))


def _along(
    path: PyTree,
    problem: Problem,
    places: Int[np.ndarray, " places"],
    count: int,
    rtol: float | None,
    *,
    keep: Callable[[Eigenpairs], PyTree],
) -> PyTree:
    """Return what `keep` keeps of the eigenpairs at each place, on the host, with a leading axis of places."""
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
        start, kept = _of_block(block, rest, problem, start, tolerances[filled], index < len(places), keep)
        found.append(jax.tree.map(lambda leaf, first=first: np.asarray(leaf)[: len(places) - first], kept))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


@partial(compiled, sized_by=_ALL_BUT_THE_BLOCK)
def _of_block(
    block: PyTree,
    rest: PyTree,
    problem: Problem,
    start: PyTree,
    rtol: Float[Array | np.ndarray, " block"],
    wanted: Bool[Array | np.ndarray, " block"],
    keep: Callable[[Eigenpairs], PyTree],
) -> tuple[PyTree, PyTree]:
    """Return the start of the next block, and what `keep` keeps of every pair of this one; not `wanted`, any zeros."""
    size, count = vectors.size_of(records(block, np.array(0))), jax.tree.leaves(start)[0].shape[0]
    dimension = _DIMENSION if size <= MANY_WEIGHTS else _DIMENSION_OF_MANY
    options = {"dimension": dimension if count == 1 else None, "dense": False, "largest": count}

    def next_record(start: PyTree, place: tuple) -> tuple[PyTree, PyTree]:
        weights, rtol, wanted = place

        def search() -> tuple[PyTree, PyTree]:
            found = end_pairs(eqx.combine(weights, rest), problem, start=start, rtol=rtol, **options)
            return _warm_start(found.vectors, found.converged, rtol), keep(found)

        _, shapes = jax.eval_shape(search)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(wanted, search, lambda: (start, nothing))

    return jax.lax.scan(next_record, start, (block, jnp.asarray(rtol), jnp.asarray(wanted)))


def _warm_start(rows: PyTree, converged: Bool[Array, " count"], rtol: Float[Array, ""]) -> PyTree:
    """Return the eigenvectors with a share of everything else, so that what has been at right angles comes into sight.

    Where eigenvalues cross, the eigenvector of before still is one, and is certified at once unless its rival weighs
    more in the start than the tolerance forgives. So the looser the tolerance, the larger the share.
    """
    # What is no number at one place must not be none at the next.
    rows = jax.vmap(lambda row, good: jax.tree.map(lambda leaf: jnp.where(good, leaf, 0), row))(rows, converged)
    scattered = scattered_starts(vectors.row(rows, 0), len(converged))
    share = jnp.where(rtol > _TIGHT, _LARGE_SHARE, _SMALL_SHARE)

    def mixed(old: PyTree, new: PyTree, good: Array) -> PyTree:
        new = vectors.scaled(jnp.where(good, share, 1) / vectors.norm(new), new)
        return jax.tree.map(jnp.add, old, new)

    return jax.vmap(mixed)(rows, scattered, converged)
