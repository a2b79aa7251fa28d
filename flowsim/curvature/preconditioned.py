"""The sharpness that a preconditioned descent sees: the largest eigenvalue of P^(−1/2) H P^(−1/2)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..networks import cast, split, weight_dtype
from ..problems import Problem, check_problem
from .eigenpair import Eigenpair, checked_rtol, eigenpairs_lanczos
from .ends import scattered_starts
from .hessian import hessian_product


def preconditioned_eigenpair(
    network: PyTree,
    problem: Problem,
    preconditioner: PyTree,
    *,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of P^(−1/2) H P^(−1/2), with its residual, by Lanczos.

    H is the Hessian of the risk over all weights together; `preconditioner` holds the diagonal of P, positive numbers,
    as the weights: the floating-point arrays of the network. That is the spectrum of P⁻¹H, and the Hessian in the
    coordinates P^½ W, in which a descent preconditioned by P takes steps along the plain gradient (Cohen et al. 2022,
    arXiv 2207.14484). The vector is one of these coordinates, a pytree. Options are as in `top_eigenpair`. Raises
    `ValueError` for a preconditioner of another structure or shape than the weights, and as `top_eigenpair`.
    """
    check_problem(problem)
    weights, rest = split(network)
    dtype = weight_dtype(network)
    problem = cast(problem, dtype)
    checked_rtol(rtol, dtype)
    _check_alike(preconditioner, weights)
    inverse_root = jax.tree.map(lambda entries: jax.lax.rsqrt(jnp.asarray(entries, dtype)), preconditioner)

    def objective(displacement: PyTree) -> Array:
        moved = jax.tree.map(lambda w, scale, change: w + scale * change, weights, inverse_root, displacement)
        return problem.objective(eqx.combine(moved, rest))

    product = hessian_product(objective, jax.tree.map(jnp.zeros_like, weights))
    start = scattered_starts(weights, 1)
    return eigenpairs_lanczos(product, start, dimension=dimension, rtol=rtol, max_restarts=max_restarts).pair(0)


def _check_alike(preconditioner: PyTree, weights: PyTree) -> None:
    found, expected = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (preconditioner, weights))
    if jax.tree.structure(preconditioner) != jax.tree.structure(weights) or found != expected:
        raise ValueError(
            f"the preconditioner has arrays of shapes {found} and the network has weights of shapes {expected}: "
            "expected one number for each weight, in the structure of flowsim.networks.split(network)[0]"
        )
