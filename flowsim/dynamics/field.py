"""The one vector field that is integrated as gradient flow and discretized as gradient descent."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from ..networks import cast, split, weight_dtype
from ..problems import Problem


class GradientField(eqx.Module):
    """The field W ↦ −∇R(W) of a network on a problem, over the weights of the network alone.

    It is called as `field(t, weights, args)`, the form that Diffrax asks of a vector field.
    """

    problem: Problem
    rest: eqx.Module

    def __call__(self, t: object, weights: PyTree, args: object) -> PyTree:
        """Return −∇R at `weights`; it depends on neither `t` nor `args`."""
        return jax.tree.map(jnp.negative, jax.grad(self.objective)(weights))

    def objective(self, weights: PyTree) -> Float[Array, ""]:
        """Return the risk up to a constant."""
        return self.problem.objective(self.network(weights))

    def network(self, weights: PyTree) -> eqx.Module:
        """Return the network that has these weights."""
        return eqx.combine(weights, self.rest)


def gradient_field(network: eqx.Module, problem: Problem) -> tuple[GradientField, PyTree]:
    """Return the gradient field of `network` on `problem`, in the precision of the weights, and the weights.

    Raises `ValueError` if the weights are not finite or have several types.
    """
    dtype = weight_dtype(network)
    weights, rest = split(network)
    field = GradientField(cast(problem, dtype), rest)
    if not all(_finite(leaf) for leaf in jax.tree.leaves(weights)):
        raise ValueError("the network has weights that are not finite (NaN or infinity) before its first step")
    return field, weights


def _finite(leaf: Array) -> bool:
    if isinstance(leaf, Tracer):
        return True
    with jax.ensure_compile_time_eval():  # a constant inside jit can be looked at too
        return bool(jnp.isfinite(leaf).all())


def norm(tree: PyTree) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries of a pytree together."""
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))
