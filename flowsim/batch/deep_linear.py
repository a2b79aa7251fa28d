"""Deep linear networks with one output on least squares: two chains of matrix–vector products a step."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..networks import DeepLinear
from ..networks.layers import fold, states
from ..problems import LinearRegression
from .kernel import Kernel, Move, apply, apply_transposed, batch_first, batch_last, register


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
        """Return the kernel for networks like `network`, `None` for several outputs and features that do not fit."""
        one_output = network.fixed is not None or network.stacks[-1].shape[-2] == 1
        if not (problem.optimum.ndim == 1 and one_output and network.stacks[0].shape[-1] == problem.features):
            return None
        itemsize = network.stacks[0].dtype.itemsize
        size = itemsize * sum(stack.size for stack in network.stacks)
        width = _group_width(size, itemsize)
        return cls(root=problem.root, optimum=problem.optimum, width=width)

    def enter(self, weights: DeepLinear, fixed: DeepLinear) -> tuple[PyTree, PyTree]:
        """Return the stacks, (layers, out, in, batch), and p, (d_L, batch)."""
        stacks = batch_last(weights.stacks)
        if fixed.fixed is not None:
            return stacks, batch_last(fixed.fixed.value.astype(stacks[0].dtype))
        return stacks, jnp.ones((1, stacks[0].shape[-1]), stacks[0].dtype)

    def leave(self, weights: PyTree) -> PyTree:
        """Return the stacks with the batch axis first."""
        return batch_first(weights)

    def evaluate(self, weights: PyTree, fixed: Float[Array, "outputs batch"]) -> tuple[Float[Array, " batch"], Move]:
        """Return the excess risks, and the function (rates, moving) ↦ weights after a step."""
        state, above = states(lambda b, weight: apply_transposed(weight, b), fixed, weights, reverse=True)
        whitened = apply(self.root[:, :, None], state - self.optimum[:, None])

        def move(rates: Array, moving: Array) -> PyTree:
            below = 2 * apply_transposed(self.root[:, :, None], whitened) * rates[None]
            after = []
            for stack, entered in zip(weights, above, strict=True):
                below, stack_after = fold(_moved(moving), below, (stack, entered))
                after.append(stack_after)
            return tuple(after)

        return jnp.sum(whitened**2, axis=0), move


def _moved(moving: Bool[Array, " batch"]):
    def move(below: Array, layer: tuple[Array, Array]) -> tuple[Array, Array]:
        weight, above = layer
        after = jnp.where(moving[None, None], weight - above[:, None] * below[None], weight)
        return apply(weight, below), after

    return move


def _group_width(bytes_of_a_run: int, itemsize: int, *, cache: int = 1 << 19, vectors: int = 256) -> int:
    """Return the number of runs of a group: `vectors` bytes for each number, a few whole vectors of the processor.

    There are fewer where a step would touch more than `cache` bytes, what a core has of its own.
    """
    fitting = max(cache // bytes_of_a_run, 1).bit_length() - 1
    return min(max(1 << fitting, 8), vectors // itemsize)
