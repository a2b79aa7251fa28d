"""The sharpness of each layer: the largest eigenvalue of its diagonal block of the Hessian."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..networks import NumberedLayers, numbered_layers, warn_of_single_precision, weight_dtype
from ..problems import Problem, check_weights
from ..runtime.compiling import compiled, with_standard_options
from . import vectors
from .eigenpair import Eigenpairs, eigenpairs_dense, eigenpairs_lanczos, resolve_rtol
from .finiteness import check_result
from .hessian import dense_hessian, hessian_product, is_decomposed, objective_of, scattered_starts


@with_standard_options
def layer_sharpness(
    network: PyTree,
    problem: Problem,
    *,
    dense: bool | None = None,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Float[Array, " layers"]:
    """Return the sharpness of each layer: the largest eigenvalue of the Hessian in the weights of that layer alone.

    The layers are those of `flowsim.networks.numbered_layers`. None is larger than the sharpness, and gradient descent
    that moves one layer and keeps the others is stable below 2/η of its own. Every layer takes a search of its own, one
    after the other, in one compiled program, whose products cost what those of the whole Hessian do.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        dense: Whether the whole Hessian is decomposed, or Lanczos searches; by default, dense up to 256 weights.
        rtol: A bound on the residuals, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        The sharpness of each layer, certified by its residual, and NaN where it could not be.

    Raises:
        ValueError: For an `rtol` that the precision of the weights cannot meet, and as `flowsim.sharpness` for weights
            at which the gradient is not finite.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w["first"] ** 2 + 3 * w["second"] ** 2)
        >>> weights = {"first": jnp.array(1.0), "second": jnp.array(1.0)}
        >>> print(flowsim.curvature.layer_sharpness(weights, bowl).round(3))
        [2. 6.]
    """
    resolve_rtol(rtol, weight_dtype(network))
    warn_of_single_precision(network)
    network = check_weights(network, problem)
    found = _layer_sharpness(network, problem, dense, rtol, max_restarts)
    check_result(found, network, problem)
    return found


@compiled
def _layer_sharpness(
    network: PyTree, problem: Problem, dense: bool | None, rtol: float | None, max_restarts: int
) -> Float[Array, " layers"]:
    objective, weights = objective_of(network, problem)
    layers = numbered_layers(network)
    options = {"rtol": rtol, "max_restarts": max_restarts}
    if is_decomposed(weights, dense):
        hessian = dense_hessian(objective, weights)

        def found(layer: Array) -> Eigenpairs:
            inside = ravel_pytree(layers.restricted(jax.tree.map(jnp.ones_like, weights), layer))[0]
            # Outside stands a number that is no larger than what is sought.
            below = jnp.max(jnp.where(inside > 0, jnp.diag(hessian), -jnp.inf))
            return eigenpairs_dense(hessian * jnp.outer(inside, inside) + jnp.diag(below * (1 - inside)), rtol=rtol)

    else:
        product = hessian_product(objective, weights)
        scattered = vectors.row(scattered_starts(weights, 1), 0)

        def found(layer: Array) -> Eigenpairs:
            return _of_block(product, layers, layer, scattered, **options)

    pairs = jax.lax.map(lambda layer: _numbers(found(layer)), jnp.arange(len(layers.names)))
    return jnp.where(pairs[1], pairs[0], jnp.nan)


def _numbers(pairs: Eigenpairs) -> tuple[Array, Array]:
    return pairs.values[0], pairs.converged[0]


def _of_block(product, layers: NumberedLayers, layer: Array, scattered: PyTree, **options) -> Eigenpairs:
    """Return the largest eigenpair of a block by Lanczos.

    The operator is PHP + ρ(1 − P), P the projection onto the block and ρ the Rayleigh quotient of a vector within it:
    that is no larger than what is sought, so that random directions which Lanczos takes up outside do no harm.
    """
    start = layers.restricted(scattered, layer)
    start = vectors.divided(start, vectors.length(start))
    quotient = vectors.inner_product(start, product(start))

    def block(vector: PyTree) -> PyTree:
        image = layers.restricted(product(layers.restricted(vector, layer)), layer)
        outside = vectors.difference(vector, layers.restricted(vector, layer))
        return jax.tree.map(lambda inner, outer: inner + quotient.astype(outer.dtype) * outer, image, outside)

    return eigenpairs_lanczos(block, jax.tree.map(lambda leaf: leaf[None], start), **options)
