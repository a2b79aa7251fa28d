"""Any network on any problem, by automatic differentiation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ...problems import Problem
from ..descent import Descent
from .kernel import Kernel, Move

_WIDTH = 16


class AutomaticKernel(Kernel):
    """∇R by `jax.grad` of the problem's objective and any descent's own step, both mapped over the lanes.

    Lanes carry their weights, and what the descent remembers of its steps.
    """

    problem: Problem
    dynamics: Descent
    static: PyTree
    width: int = eqx.field(static=True)

    @classmethod
    def of(cls, network: PyTree, problem: Problem, dynamics: Descent) -> "AutomaticKernel":
        """Return the kernel for lanes like `network` that move as `dynamics` does, each at a rate of its own."""
        static = eqx.partition(network, _is_array)[1]
        return cls(problem=problem, dynamics=dynamics, static=static, width=_WIDTH)

    def start(self, weights: PyTree) -> tuple[PyTree, PyTree]:
        """Return the weights, and what is remembered before the first step."""
        return weights, jax.vmap(self.dynamics.remember)(weights)

    def end(self, weights: tuple[PyTree, PyTree]) -> PyTree:
        """Return the weights alone."""
        return weights[0]

    def enter(self, weights: PyTree, fixed: PyTree) -> tuple[PyTree, PyTree]:
        """Return both as they are, the lane axis first."""
        return weights, fixed

    def leave(self, weights: PyTree) -> PyTree:
        """Return what lanes carry as it is."""
        return weights

    def unchanged(self, before: PyTree, after: PyTree) -> Bool[Array, " lanes"]:
        """Tell for each lane whether all that it carries is the same."""
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        same = [jnp.all((old == new).reshape(old.shape[0], -1), axis=1) for old, new in pairs]
        return jnp.all(jnp.stack(same), axis=0)

    def evaluate(self, weights: tuple[PyTree, PyTree], fixed: PyTree) -> tuple[Float[Array, " lanes"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ what lanes carry after a step."""
        objectives, gradients = jax.vmap(jax.value_and_grad(self._objective))(weights[0], fixed)

        def stepped(rate: Array, moving: Array, carried: tuple[PyTree, PyTree], gradient: PyTree) -> PyTree:
            dynamics = eqx.tree_at(lambda one: one.learning_rate, self.dynamics, rate)
            after = dynamics.step(carried[0], gradient, carried[1])
            return jax.tree.map(lambda new, old: jnp.where(moving, new, old), after, carried)

        return objectives, lambda rates, moving: jax.vmap(stepped)(rates, moving, weights, gradients)

    def _objective(self, weights: PyTree, fixed: PyTree) -> Float[Array, ""]:
        return self.problem.objective(eqx.combine(weights, fixed, self.static))


def _is_array(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
