"""Any network on any problem, by automatic differentiation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ...problems import Problem
from .kernel import Kernel, Move

_WIDTH = 16


class AutomaticKernel(Kernel):
    """∇R by `jax.grad` of the problem's objective, mapped over the lanes."""

    problem: Problem
    static: eqx.Module
    width: int = eqx.field(static=True)

    @classmethod
    def of(cls, network: eqx.Module, problem: Problem) -> "AutomaticKernel":
        """Return the kernel for lanes like `network`: there is nothing that does not fit."""
        return cls(problem=problem, static=eqx.partition(network, _is_array)[1], width=_WIDTH)

    def enter(self, weights: PyTree, fixed: PyTree) -> tuple[PyTree, PyTree]:
        """Return both as they are, the lane axis first."""
        return weights, fixed

    def leave(self, weights: PyTree) -> PyTree:
        """Return the weights as they are."""
        return weights

    def unchanged(self, before: PyTree, after: PyTree) -> Bool[Array, " lanes"]:
        """Tell for each lane whether all its weights are the same."""
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        same = [jnp.all((old == new).reshape(old.shape[0], -1), axis=1) for old, new in pairs]
        return jnp.all(jnp.stack(same), axis=0)

    def evaluate(self, weights: PyTree, fixed: PyTree) -> tuple[Float[Array, " lanes"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ weights after a step."""
        objectives, gradients = jax.vmap(jax.value_and_grad(self._objective))(weights, fixed)

        def move(rates: Array, moving: Array) -> PyTree:
            def after(weight: Array, gradient: Array) -> Array:
                lanes = rates.shape + (1,) * (weight.ndim - 1)
                return jnp.where(moving.reshape(lanes), weight - rates.reshape(lanes) * gradient, weight)

            return jax.tree.map(after, weights, gradients)

        return objectives, move

    def _objective(self, weights: PyTree, fixed: PyTree) -> Float[Array, ""]:
        return self.problem.objective(eqx.combine(weights, fixed, self.static))


def _is_array(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
