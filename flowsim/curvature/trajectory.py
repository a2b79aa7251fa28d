"""The largest eigenvalues of the Hessian along a trajectory: warm-started searches, and curves through crossings."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..networks import records, split
from ..problems import Problem, check_problem
from ..runtime.compiling import compiled, with_standard_options
from . import vectors
from .eigenpair import Eigenpairs, are_products_dear, default_rtol, resolve_rtol
from .hessian import end_pairs, scattered_starts
from .line import numbers_of, shape_of


@with_standard_options
def sharpness_along(path: PyTree, problem: Problem, *, rtol: float | None = None) -> Float[np.ndarray, " records"]:
    """Return the sharpness of every network of a path, as `eigenvalues_along` does the largest eigenvalues.

    Args:
        path: The weights, with a leading axis of records, such as `Trajectory.weights`.
        problem: The risk R.
        rtol: How exact, as in `top_eigenpair`; the last point, where a run ends, has the default.

    Returns:
        The largest eigenvalue of the Hessian at each record, NaN where it could not be certified.

    Raises:
        ValueError: For an `rtol` that the precision of the weights cannot meet.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 4 + w[1] ** 2)
        >>> path = jnp.array([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
        >>> print(flowsim.curvature.sharpness_along(path, bowl).round(3))
        [48. 12.  2.]
    """
    check_problem(problem, path)
    indices = np.arange(jax.tree.leaves(split(path)[0])[0].shape[0])
    return eigenvalues_along(path, problem, indices, rtol=rtol)[:, 0]


@with_standard_options
def eigenvalues_along(
    path: PyTree,
    problem: Problem,
    indices: Int[np.ndarray, " points"],
    *,
    count: int = 1,
    rtol: float | None = None,
) -> Float[np.ndarray, "points count"]:
    """Return the largest eigenvalues of the Hessian at some records of a path.

    Lanczos starts from the eigenvectors of the point before, with a share of everything else. An eigenvalue that
    overtakes another by about sqrt(p)·rtol of its size, for p weights, is seen at once, in a closer race perhaps only
    later. At the last point it starts anew, so that the value there depends on nothing but the weights.

    Args:
        path: The network with a leading axis of records in every weight, as `weights=True` records it.
        problem: The risk R.
        indices: The numbers of the records to look at.
        count: How many eigenvalues of each.
        rtol: A bound on the residuals, as in `top_eigenpair`; the last point, where a run ends, has the default.

    Returns:
        The eigenvalues in decreasing order, of shape (points, count): NaN where one could not be certified, as where
        the weights are not finite.
    """
    return _search_along(path, problem, indices, count, rtol, keep=_certified_values)


class EigenpairsAlong(eqx.Module):
    """The largest eigenpairs of the Hessian at points along a path, in decreasing order at each."""

    values: Float[np.ndarray, "points count"]
    """The eigenvalues."""
    vectors: PyTree
    """Their vectors: the weights with axes (points, count) in front."""
    residuals: Float[np.ndarray, "points count"]
    """As in `Eigenpairs`."""
    converged: Bool[np.ndarray, "points count"]
    """Whether each residual is below the tolerance asked for."""
    branches: Int[np.ndarray, "points count"]
    """Which eigenvalue continues which: those of one number are one curve, which goes straight through a crossing, as
    it follows its eigenvector. At the first point they are 0, 1, …; an eigenvalue gets a number of its own where its
    vector is none of those before, by overlap (`branches_of`)."""

    def __repr__(self) -> str:
        sure = numbers_of(self.converged)
        if sure is None or sure.ndim != 2:
            return f"EigenpairsAlong({shape_of(self.values)})"
        of = f"{sure.shape[1]} eigenvalue{'s' if sure.shape[1] > 1 else ''} at {sure.shape[0]} points"
        return f"EigenpairsAlong({of}, {int(sure.sum())} of {sure.size} certified)"

    def curves(self) -> Float[np.ndarray, "branches points"]:
        """Return the eigenvalues of every branch, NaN where it is not among the largest or was not certified."""
        points = len(self.values)
        curves = np.full((self.branches.max(initial=-1) + 1, points), np.nan, self.values.dtype)
        curves[self.branches, np.arange(points)[:, None]] = np.where(self.converged, self.values, np.nan)
        return curves


@with_standard_options
def eigenpairs_along(
    path: PyTree,
    problem: Problem,
    indices: Int[np.ndarray, " points"],
    *,
    count: int = 1,
    rtol: float | None = None,
) -> EigenpairsAlong:
    """Return the largest eigenpairs of the Hessian at some records of a path.

    The search and its cost are those of `eigenvalues_along`; it also stores `count` vectors for each of the indices, as
    weights, in the memory of the host.

    Args:
        path: The network with a leading axis of records in every weight, as `weights=True` records it.
        problem: The risk R.
        indices: The numbers of the records to look at.
        count: How many eigenpairs of each.
        rtol: A bound on the residuals, as in `eigenvalues_along`.

    Returns:
        Values, vectors and residuals at the points, and which eigenvalue continues which.
    """
    pairs = _search_along(path, problem, indices, count, rtol, keep=_everything)
    overlaps = np.asarray(_overlaps(pairs.vectors))
    branches = branches_of(pairs.values, pairs.residuals, pairs.converged, overlaps)
    return EigenpairsAlong(pairs.values, pairs.vectors, pairs.residuals, pairs.converged, branches)


def _everything(pairs: Eigenpairs) -> Eigenpairs:
    return pairs


def _certified_values(pairs: Eigenpairs) -> Float[Array, " count"]:
    return jnp.where(pairs.converged, pairs.values, jnp.nan)


@compiled
def _overlaps(rows: PyTree) -> Float[Array, "steps count count"]:
    """Return the inner products of the vectors of each point, first axis, with those of the point before."""
    before, after = (jax.tree.map(lambda leaf, cut=cut: leaf[cut], rows) for cut in (slice(-1), slice(1, None)))
    return jax.lax.map(lambda both: vectors.gram(*both), (after, before))


_first_starts = compiled(scattered_starts, few_calls=True)


def _search_along(
    path: PyTree,
    problem: Problem,
    indices: Int[np.ndarray, " points"],
    count: int,
    rtol: float | None,
    *,
    keep: Callable[[Eigenpairs], PyTree],
    block: int = 64,
) -> PyTree:
    """Return what `keep` keeps of the eigenpairs at each point, on the host, with a leading axis of points.

    One compiled program searches at `block` points, one after the other.
    """
    check_problem(problem, path)
    weights, rest = split(path)
    dtype = vectors.dtype_of(weights)
    tolerances = np.full(len(indices), resolve_rtol(rtol, dtype), dtype)
    tolerances[-1:] = default_rtol(dtype)
    first_start, blocks = _first_starts(records(weights, np.array(0)), count), []
    start, last = first_start, len(indices) - 1
    for first in range(0, len(indices), block):
        # Blocks of one length compile once: the last is filled up with points at which nothing is done.
        numbers = np.arange(first, first + block)
        filled = np.minimum(numbers, last)
        points = records(weights, indices[filled]), tolerances[filled], numbers <= last, numbers == last
        start, kept = _search_block(points, rest, problem, start, first_start, keep)
        blocks.append(jax.tree.map(lambda leaf, first=first: np.asarray(leaf)[: len(indices) - first], kept))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *blocks)


@partial(compiled, sized_by=(1, 2, 3))  # not by the points, whose networks are worked on one at a time
def _search_block(
    points: tuple,
    rest: PyTree,
    problem: Problem,
    start: PyTree,
    first_start: PyTree,
    keep: Callable[[Eigenpairs], PyTree],
) -> tuple[PyTree, PyTree]:
    """Return the start of the next block, and what `keep` keeps of every pair of this one.

    A point is its weights, its tolerance, whether it is wanted, without which all is zero, and whether the search there
    is from `first_start`.
    """
    size, count = vectors.size_of(vectors.row(start, 0)), jax.tree.leaves(start)[0].shape[0]
    # From a warm start a space of half the usual dimension will do, unless products cost the most.
    dimension = 24 if are_products_dear(size) else 12
    options = {"dimension": dimension if count == 1 else None, "dense": False, "largest": count}

    def next_record(start: PyTree, point: tuple) -> tuple[PyTree, PyTree]:
        weights, rtol, wanted, anew = point
        start = jax.tree.map(lambda new, old: jnp.where(anew, new, old), first_start, start)

        def search() -> tuple[PyTree, PyTree]:
            pairs = end_pairs(eqx.combine(weights, rest), problem, start=start, rtol=rtol, **options)
            return _warm_start(pairs.vectors, pairs.converged, rtol), keep(pairs)

        _, shapes = jax.eval_shape(search)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(wanted, search, lambda: (start, nothing))

    return jax.lax.scan(next_record, start, jax.tree.map(jnp.asarray, points))


def _warm_start(
    rows: PyTree,
    converged: Bool[Array, " count"],
    rtol: Float[Array, ""],
    *,
    small_share: float = 1e-2,
    large_share: float = 0.3,
    tight: float = 1e-9,
) -> PyTree:
    """Return the eigenvectors plus a share of a random vector, so that directions orthogonal to them can be found.

    Where eigenvalues cross, the previous eigenvector still is one, and is certified at once unless its rival has a
    larger component in the start than the tolerance allows. So the share is `small_share` up to the tolerance `tight`,
    and `large_share` above it.
    """
    # A search that ended in NaN must not spoil the next one.
    rows = jax.vmap(lambda row, good: jax.tree.map(lambda leaf: jnp.where(good, leaf, 0), row))(rows, converged)
    scattered = scattered_starts(vectors.row(rows, 0), len(converged))
    share = jnp.where(rtol > tight, large_share, small_share)

    def mixed(old: PyTree, new: PyTree, good: Array) -> PyTree:
        new = vectors.scaled(jnp.where(good, share, 1) / vectors.norm(new), new)
        return jax.tree.map(jnp.add, old, new)

    return jax.vmap(mixed)(rows, scattered, converged)


def branches_of(
    values: Float[np.ndarray, "points count"],
    residuals: Float[np.ndarray, "points count"],
    converged: Bool[np.ndarray, "points count"],
    overlaps: Float[np.ndarray, "steps count count"],
    *,
    least_share: float = 0.5,
) -> Int[np.ndarray, "points count"]:
    """Return the number of the branch of every eigenvalue, for certified values in decreasing order at each point.

    `overlaps[t]` holds ⟨u_i, v_j⟩ of the vectors u of point t + 1 with those of point t, v. Pairs are matched so that
    their squared overlaps add up to the most (Kuhn 1955). A vector that shares less than `least_share` of its squared
    length with its match begins a branch, as it may share more with a third one; so does one that is not certified on
    either side. Vectors of eigenvalues that are equal within their residuals, as at a crossing, are any basis of their
    space: the basis nearest to the one before is taken.
    """
    from scipy.optimize import linear_sum_assignment  # takes a moment to import, and is rarely needed

    branches = np.tile(np.arange(values.shape[1]), (len(values), 1))
    fresh, basis = values.shape[1], np.eye(values.shape[1])
    for point, overlap in enumerate(overlaps, 1):
        towards = np.nan_to_num(overlap) @ basis.T
        basis = _nearest_basis(towards, values[point], residuals[point])
        share = (basis @ towards) ** 2
        share[~converged[point]] = 0
        share[:, ~converged[point - 1]] = 0
        later, before = linear_sum_assignment(share, maximize=True)
        goes_on = share[later, before] >= least_share
        numbers = np.arange(fresh, fresh + np.count_nonzero(~goes_on))
        branches[point, later[goes_on]] = branches[point - 1, before[goes_on]]
        branches[point, later[~goes_on]] = numbers
        fresh += len(numbers)
    return branches


def _nearest_basis(
    towards: Float[np.ndarray, "count count"],
    values: Float[np.ndarray, " count"],
    residuals: Float[np.ndarray, " count"],
) -> Float[np.ndarray, "count count"]:
    """Return the rotation of vectors of equal eigenvalues that brings them nearest to those before (Schönemann 1966).

    Equal are neighbours that differ by no more than their residuals. `towards` are the overlaps of the vectors with
    those before.
    """
    basis = np.eye(len(values))
    apart = ~(values[:-1] - values[1:] <= residuals[:-1] + residuals[1:])
    for equal in np.split(np.arange(len(values)), np.flatnonzero(apart) + 1):
        if len(equal) == 1:
            continue
        chosen = np.sort(np.argsort(-np.sum(towards[equal] ** 2, axis=0))[: len(equal)])
        left, _, right = np.linalg.svd(towards[np.ix_(equal, chosen)])
        basis[np.ix_(equal, equal)] = (left @ right).T
    return basis
