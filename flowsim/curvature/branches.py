"""Which eigenvalue continues which: curves through crossings, by the overlap of eigenvectors."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float, Int

# A vector that has less than half of its length squared in common with another may have more so with a third.
_LEAST_SHARE = 0.5


def branches_of(
    values: Float[np.ndarray, "places count"],
    residuals: Float[np.ndarray, "places count"],
    converged: Bool[np.ndarray, "places count"],
    overlaps: Float[np.ndarray, "steps count count"],
) -> Int[np.ndarray, "places count"]:
    """Return the number of the branch of every eigenvalue, for certified values in decreasing order at each place.

    `overlaps[t]` holds ⟨u_i, v_j⟩ of the vectors u of place t + 1 with those of place t, v. Pairs are matched so that
    their squared overlaps add up to the most (Kuhn 1955), and what shares less than half with its match, or was not
    certified on either side, begins a branch. Vectors of eigenvalues that are equal within their residuals, as at a
    crossing, are any basis of their space: there the basis goes on that is nearest to the one before.
    """
    from scipy.optimize import linear_sum_assignment  # takes a moment to import, and is rarely needed

    branches = np.tile(np.arange(values.shape[1]), (len(values), 1))
    fresh, basis = values.shape[1], np.eye(values.shape[1])
    for place, overlap in enumerate(overlaps, 1):
        towards = np.nan_to_num(overlap) @ basis.T
        basis = _nearest_basis(towards, values[place], residuals[place])
        share = (basis @ towards) ** 2
        share[~converged[place]] = 0
        share[:, ~converged[place - 1]] = 0
        later, before = linear_sum_assignment(share, maximize=True)
        goes_on = share[later, before] >= _LEAST_SHARE
        numbers = np.arange(fresh, fresh + np.count_nonzero(~goes_on))
        branches[place, later[goes_on]] = branches[place - 1, before[goes_on]]
        branches[place, later[~goes_on]] = numbers
        fresh += len(numbers)
    return branches


def _nearest_basis(
    towards: Float[np.ndarray, "count count"],
    values: Float[np.ndarray, " count"],
    residuals: Float[np.ndarray, " count"],
) -> Float[np.ndarray, "count count"]:
    """Return the rotation of vectors of equal eigenvalues that brings them nearest to those before (Schönemann 1966).

    `towards` are the overlaps of the vectors with those before.
    """
    basis = np.eye(len(values))
    for equal in _equals(values, residuals):
        chosen = np.sort(np.argsort(-np.sum(towards[equal] ** 2, axis=0))[: len(equal)])
        left, _, right = np.linalg.svd(towards[np.ix_(equal, chosen)])
        basis[np.ix_(equal, equal)] = (left @ right).T
    return basis


def _equals(
    values: Float[np.ndarray, " count"], residuals: Float[np.ndarray, " count"]
) -> Iterator[Int[np.ndarray, " equal"]]:
    """Yield the places of two or more eigenvalues, one after the other, that are equal within their residuals."""
    apart = ~(values[:-1] - values[1:] <= residuals[:-1] + residuals[1:])
    for equal in np.split(np.arange(len(values)), np.flatnonzero(apart) + 1):
        if len(equal) > 1:
            yield equal
