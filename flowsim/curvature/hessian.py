"""The Hessian of the risk as an operator on the weights."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

Operator = Callable[[Float[Array, " p"]], Float[Array, " p"]]


def hessian_operator(
    objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree
) -> tuple[Operator, Float[Array, " p"]]:
    """Return v ↦ ∇²objective(weights) v on flat vectors, and the weights flattened.

    Forward over reverse; the linearization is done once, so each product costs about one gradient.
    """
    flat, unravel = ravel_pytree(weights)
    gradient = jax.grad(lambda vector: objective(unravel(vector)))
    _, product = jax.linearize(gradient, flat)
    return product, flat


def hessian_product(objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree) -> Callable[[PyTree], PyTree]:
    """Return v ↦ ∇²objective(weights) v on pytrees as the weights, each leaf shaped and sharded as its weights.

    Forward over reverse, linearized once, as `hessian_operator`.
    """
    return jax.linearize(jax.grad(objective), weights)[1]


def dense_hessian(objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree) -> Float[Array, "p p"]:
    """Return the Hessian as a symmetric matrix over the flattened weights, by one product for each weight."""
    rows = hessian_rows(objective, weights)
    return (rows + rows.T) / 2


def hessian_rows(objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree) -> Float[Array, "p p"]:
    """Return the Hessian as computed, row by row: symmetric up to rounding."""
    product, flat = hessian_operator(objective, weights)
    return eqx.filter_vmap(product)(jnp.eye(flat.size, dtype=flat.dtype))


def is_decomposed(weights: PyTree, dense: bool | None = None, *, up_to: int = 256) -> bool:
    """Tell whether to decompose the whole Hessian: as `dense` says; if it is `None`, for at most `up_to` weights.

    Of so few, that finds the ends of the spectrum sooner than Lanczos does.
    """
    return sum(leaf.size for leaf in jax.tree.leaves(weights)) <= up_to if dense is None else dense
