"""Deep linear networks with one output on least squares: two chains of matrix–vector products a step."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..networks import DeepLinear
from ..problems import LinearRegression
from .kernel import Kernel, Move
from .layout import apply, apply_transposed, fold, lanes_first, lanes_for, lanes_last, unchanged
from .registry import register

_CACHE = 1 << 19


@register(dynamics=GradientDescent, network=DeepLinear, problem=LinearRegression)
class DeepLinearKernel(Kernel):
    """∇_{W_k} R = b_k a_{k−1}ᵀ with b_{k−1} = W_kᵀ b_k, b_L = p, and a_k = W_k a_{k−1}, a_0 = 2Σ(b_0 − w*).

    Marion and Chizat (2024), equation 5. Any number of samples costs the same.
    """

    root: Float[Array, "rank d"]
    optimum: Float[Array, " d"]
    width: int = eqx.field(static=True)

    @classmethod
    def of(cls, network: DeepLinear, problem: LinearRegression, dynamics: GradientDescent) -> "DeepLinearKernel | None":
        """Return the kernel for lanes like `network`, `None` for several outputs and features that do not fit."""
        one_output = network.fixed is not None or network.stacks[-1].shape[-2] == 1
        if not (problem.optimum.ndim == 1 and one_output and network.stacks[0].shape[-1] == problem.features):
            return None
        itemsize = network.stacks[0].dtype.itemsize
        size = itemsize * sum(stack.size for stack in network.stacks)
        width = lanes_for(size, itemsize, cache=_CACHE)
        return cls(root=problem.root, optimum=problem.optimum, width=width)

    def start(self, weights: DeepLinear) -> DeepLinear:
        """Return the weights: a step remembers nothing else."""
        return weights

    def end(self, weights: DeepLinear) -> DeepLinear:
        """Return the weights."""
        return weights

    def enter(self, weights: DeepLinear, fixed: DeepLinear) -> tuple[PyTree, PyTree]:
        """Return the stacks, (layers, out, in, lanes), and p, (d_L, lanes)."""
        stacks = lanes_last(weights.stacks)
        if fixed.fixed is not None:
            return stacks, lanes_last(fixed.fixed.value.astype(stacks[0].dtype))
        return stacks, jnp.ones((1, stacks[0].shape[-1]), stacks[0].dtype)

    def leave(self, weights: PyTree) -> PyTree:
        """Return the stacks with the lane axis first."""
        return lanes_first(weights)

    def unchanged(self, before: PyTree, after: PyTree) -> Bool[Array, " lanes"]:
        """Tell for each lane whether all its weights are the same."""
        return unchanged(before, after)

    def evaluate(self, weights: PyTree, fixed: Float[Array, "outputs lanes"]) -> tuple[Float[Array, " lanes"], Move]:
        """Return the excess risks, and the function (rates, moving) ↦ weights after a step."""
        state, above = fixed, []
        for stack in reversed(weights):
            state, entered = fold(lambda b, w: (apply_transposed(w, b), b), state, stack, reverse=True)
            above.append(entered)
        whitened = apply(self.root[:, :, None], state - self.optimum[:, None])

        def move(rates: Array, moving: Array) -> PyTree:
            below = 2 * apply_transposed(self.root[:, :, None], whitened) * rates[None]
            after = []
            for stack, entered in zip(weights, reversed(above), strict=True):
                below, stack_after = fold(_moved(moving), below, (stack, entered))
                after.append(stack_after)
            return tuple(after)

        return jnp.sum(whitened**2, axis=0), move


def _moved(moving: Bool[Array, " lanes"]):
    def move(below: Array, layer: tuple[Array, Array]) -> tuple[Array, Array]:
        weight, above = layer
        after = jnp.where(moving[None, None], weight - above[:, None] * below[None], weight)
        return apply(weight, below), after

    return move
