"""The sharpness: the largest eigenvalue of the Hessian of the risk over all weights together."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..networks import cast, split, weight_dtype
from .eigenpair import Eigenpair, eigenpair_dense, eigenpair_lanczos
from .hessian import dense_hessian, hessian_operator

_DENSE_UP_TO = 256


def sharpness(network: eqx.Module, problem: eqx.Module) -> float | Float[Array, ""]:
    """Return the sharpness S(W), the largest *algebraic* eigenvalue of the Hessian of the risk.

    A Python float; inside `jax.jit` or `jax.vmap`, a scalar array. Raises `RuntimeError` if the eigenvalue
    could not be certified (outside jit; inside, read `top_eigenpair`, which returns the certificate).
    """
    pair = top_eigenpair(network, problem)
    if isinstance(pair.value, jax.core.Tracer):
        return pair.value
    if not bool(pair.converged):
        raise RuntimeError(
            f"the sharpness is not certified: best value {float(pair.value):.6g} with residual "
            f"{float(pair.residual):.2g} after {int(pair.products)} Hessian-vector products. Are the weights finite? "
            "flowsim.curvature.top_eigenpair(..., max_restarts=...) takes more rounds"
        )
    return float(pair.value)


@eqx.filter_jit
def top_eigenpair(
    network: eqx.Module,
    problem: eqx.Module,
    *,
    dense: bool | None = None,
    start: Float[Array, " p"] | None = None,
    rtol: float | None = None,
    max_restarts: int = 100,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of the Hessian of the risk, with its residual.

    `dense` chooses between a full decomposition and restarted Lanczos; by default, dense up to 256 weights.
    For Lanczos, `start` is the first vector (p,), by default random, and `rtol` bounds the residual relative
    to the largest absolute eigenvalue; in float32 expect some 1e-4.
    """
    weights, rest = split(network)
    problem = cast(problem, weight_dtype(network))

    def objective(moving: eqx.Module) -> Array:
        return problem.objective(eqx.combine(moving, rest))

    size = sum(leaf.size for leaf in jax.tree.leaves(weights))
    if dense is None:
        dense = size <= _DENSE_UP_TO
    if dense:
        return eigenpair_dense(dense_hessian(objective, weights))
    product, flat = hessian_operator(objective, weights)
    if start is None:
        start = jax.random.normal(jax.random.key(0), flat.shape, flat.dtype)
    return eigenpair_lanczos(product, jnp.asarray(start, flat.dtype), rtol=rtol, max_restarts=max_restarts)
