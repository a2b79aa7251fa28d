"""The solver that a flow gets when none is asked for."""

import diffrax
import jax
from jaxtyping import Array, Float, PyTree

from .field import GradientField
from .low_rank import LowRankExtrapolation
from .stiffness import StiffnessSwitching
from .switching import StabilitySwitching

# Where factorizations of the outputs' matrix cost no more than the gradients of a step.
_LARGEST_RANK_IN_CLOSED_FORM = 2048
# Gradients that a step may cost beyond those that it takes: for one output, 512 samples come to as much. Explicit
# stabilized steps have a reach of some 700 for them.
_LARGEST_OVERHEAD = 45


def default_solver(
    field: GradientField, weights: PyTree, rtol: Float[Array, ""], atol: Float[Array, ""]
) -> diffrax.AbstractAdaptiveSolver:
    """Return the solver for a problem: by what its Gauss–Newton matrix costs.

    For a linear network, where GGᵀ has a closed form, up to rank 2048, it is `LowRankExtrapolation`, whose steps
    accuracy alone limits. While the matrix costs less than some 45 gradients for each step, for up to 512 samples and
    one output, 31 samples and ten, it is `StiffnessSwitching`, which turns to that where it pays. Beyond, and for a
    problem that does not know its outputs, it is `StabilitySwitching`, explicit, which changes its formula with what
    limits its step.
    """
    rank, passes = field.rank(weights), field.gauss_newton_passes(weights)
    if rank is None or passes is None:
        return StabilitySwitching(rtol, atol)
    known = field.knows_gram(weights)
    # For a linear network that fits its optimum, what a Gauss–Newton matrix leaves out vanishes at the limit; to follow
    # it spared no steps on the way.
    followed = 0 if known else 8
    # Its Gram matrix takes m² products of rows where a gradient takes one for each sample.
    overhead = 5 + rank / 16 + followed if known else 4 + passes * (1 + rank / 16) + followed
    if rank > _LARGEST_RANK_IN_CLOSED_FORM or (not known and overhead > _LARGEST_OVERHEAD):
        return StabilitySwitching(rtol, atol)
    single = jax.tree.leaves(weights)[0].dtype.itemsize < 8
    low_rank = LowRankExtrapolation(
        curvature=field.gauss_newton,
        rtol=rtol,
        atol=atol,
        columns=5 if single else 8,
        followed=followed,
        overhead=overhead,
    )
    return low_rank if known else StiffnessSwitching(explicit=StabilitySwitching(rtol, atol), low_rank=low_rank)
