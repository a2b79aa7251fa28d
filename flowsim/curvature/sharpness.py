"""The sharpness: the largest eigenvalue of the Hessian of the risk over all weights together."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..networks import cast, records, split, weight_dtype
from ..problems import Problem
from .eigenpair import Eigenpair, eigenpair_dense, eigenpair_lanczos
from .hessian import dense_hessian, hessian_operator

_DENSE_UP_TO = 256
_BLOCK = 64
_WARM_DIMENSION = 12


def sharpness(network: eqx.Module, problem: Problem) -> float | Float[Array, ""]:
    """Return the sharpness S(W), the largest *algebraic* eigenvalue of the Hessian of the risk.

    A Python float; inside `jax.jit` or `jax.vmap`, a scalar array. Raises `RuntimeError` if the eigenvalue
    could not be certified (outside jit; inside, read `top_eigenpair`, which returns the certificate).
    """
    pair = top_eigenpair(network, problem)
    if isinstance(pair.value, Tracer):
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
    problem: Problem,
    *,
    dense: bool | None = None,
    start: Float[Array, " p"] | None = None,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of the Hessian of the risk, with its residual.

    `dense` chooses between a full decomposition and restarted Lanczos; by default, dense up to 256 weights.
    For Lanczos, `start` is the first vector (p,), by default random, `dimension` that of the Krylov spaces, and
    `rtol` bounds the residual relative to the largest absolute eigenvalue; in float32 expect some 1e-4.
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
    return eigenpair_lanczos(
        product, jnp.asarray(start, flat.dtype), dimension=dimension, rtol=rtol, max_restarts=max_restarts
    )


def sharpness_along(path: eqx.Module, problem: Problem) -> Float[np.ndarray, " records"]:
    """Return the sharpness of every network of `path`, whose weights have a leading axis of records.

    Lanczos starts from the top eigenvector of the record before. A value is NaN where it could not be certified, as
    where the weights are not finite.
    """
    weights, rest = split(path)
    leaves, structure = jax.tree.flatten(weights)
    count = leaves[0].shape[0]
    size = sum(leaf.size // count for leaf in leaves)
    probe = jax.random.normal(jax.random.key(0), (size,), leaves[0].dtype)
    vector, values = probe, []
    for first in range(0, count, _BLOCK):
        # Blocks of one length compile once: the last is filled up with copies of its last record.
        index = np.minimum(np.arange(first, first + _BLOCK), count - 1)
        block = records(jax.tree.unflatten(structure, leaves), index)
        vector, found = _sharpness_of_block(block, rest, problem, vector, probe)
        values.append(np.asarray(found))
    return np.concatenate(values)[:count]


@eqx.filter_jit
def _sharpness_of_block(
    block: eqx.Module, rest: eqx.Module, problem: Problem, start: Array, probe: Array
) -> tuple[Array, Array]:
    def next_record(vector: Array, weights: eqx.Module) -> tuple[Array, Array]:
        pair = top_eigenpair(eqx.combine(weights, rest), problem, dense=False, start=vector, dimension=_WARM_DIMENSION)
        # A little of everything keeps what has been at right angles to the path from staying unseen.
        mixed = pair.vector + 1e-3 * probe / jnp.linalg.norm(probe)
        return jnp.where(pair.converged, mixed, probe), jnp.where(pair.converged, pair.value, jnp.nan)

    return jax.lax.scan(next_record, start, block)
