"""The solver that a flow gets when none is asked for."""

import diffrax
import jax
from jaxtyping import Array, Float, PyTree

from ..field import GradientField
from .low_rank import LowRankExtrapolation
from .switching import StabilitySwitching

# Where factorizations of the outputs' matrix cost no more than the gradients of a step.
_LARGEST_RANK = 512
_LARGEST_RANK_IN_CLOSED_FORM = 2048


def default_solver(
    field: GradientField, weights: PyTree, rtol: Float[Array, ""], atol: Float[Array, ""]
) -> diffrax.AbstractAdaptiveSolver:
    """Return the solver for a problem: by the rank of its Gauss–Newton matrix.

    Up to rank 512 it is `LowRankExtrapolation`, whose steps accuracy alone limits; up to 2048 for a linear network,
    where GGᵀ has a closed form. Beyond, and for a problem that does not know its outputs, it is `StabilitySwitching`,
    explicit, which changes its formula with what limits its step.
    """
    rank = field.rank(weights)
    if rank is None or rank > _LARGEST_RANK_IN_CLOSED_FORM or (rank > _LARGEST_RANK and not field.knows_gram(weights)):
        return StabilitySwitching(rtol, atol)
    single = jax.tree.leaves(weights)[0].dtype.itemsize < 8
    # For a linear network that fits its optimum, what a Gauss–Newton matrix leaves out vanishes at the limit; to follow
    # it spared no steps on the way.
    followed = 0 if field.knows_gram(weights) else 8
    return LowRankExtrapolation(
        curvature=field.gauss_newton,
        rtol=rtol,
        atol=atol,
        columns=5 if single else 8,
        followed=followed,
        overhead=5 + rank / 16 + followed,
    )
