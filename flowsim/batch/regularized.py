"""Weight decay, beside what another kernel computes of the risk alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..networks import DeepLinear, Perceptron
from ..problems import RegularizedRisk
from .kernel import AutomaticKernel, Kernel, Move, kernel_for, register


@register(dynamics=GradientDescent, network=DeepLinear, problem=RegularizedRisk)
@register(dynamics=GradientDescent, network=Perceptron, problem=RegularizedRisk)
class RegularizedKernel(Kernel):
    """R + (λ/2)‖W‖² and W − η∇R − ηλW, where a kernel of the problem itself is known for R and W − η∇R."""

    plain: Kernel
    weight_decay: Float[Array, ""]
    width: int = eqx.field(static=True)

    @classmethod
    def of(
        cls, network: DeepLinear | Perceptron, problem: RegularizedRisk, dynamics: GradientDescent
    ) -> "RegularizedKernel | None":
        """Return the kernel, `None` where R has none but automatic differentiation."""
        plain = kernel_for(network, problem.problem, dynamics)
        if isinstance(plain, AutomaticKernel):
            return None
        return cls(plain=plain, weight_decay=problem.weight_decay, width=plain.width)

    def enter(self, weights: PyTree, fixed: PyTree) -> tuple[PyTree, PyTree]:
        """Return the state as the other kernel takes it."""
        return self.plain.enter(weights, fixed)

    def leave(self, weights: PyTree) -> PyTree:
        """Return the state with the batch axis first."""
        return self.plain.leave(weights)

    def moves(self, weights: PyTree) -> PyTree:
        """Tell which arrays of the state are weights."""
        return self.plain.moves(weights)

    def evaluate(self, weights: PyTree, fixed: PyTree) -> tuple[Float[Array, " batch"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ weights after a step."""
        objectives, move = self.plain.evaluate(weights, fixed)
        own, _ = eqx.partition(weights, self.moves(weights))
        squares = [jnp.sum(leaf**2, axis=tuple(range(leaf.ndim - 1))) for leaf in jax.tree.leaves(own)]
        decay = self.weight_decay.astype(objectives.dtype)

        def with_decay(rates: Array, moving: Bool[Array, " batch"]) -> PyTree:
            share = jnp.where(moving, rates * decay, 0)

            def less(after: Array, before: Array, moves: bool) -> Array:
                return after - share.reshape((1,) * (after.ndim - 1) + share.shape) * before if moves else after

            return jax.tree.map(less, move(rates, moving), weights, self.moves(weights))

        return objectives + decay / 2 * sum(squares, jnp.zeros_like(objectives)), with_decay
