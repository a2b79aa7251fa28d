"""Perceptrons without biases and with one output on squared errors, forward and backward written out."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics.gradient_descent import GradientDescent
from ..losses import SquaredError
from ..networks import Perceptron
from ..networks.layers import fold
from ..problems import EmpiricalRisk
from .kernel import (
    Kernel,
    Move,
    apply,
    apply_transposed,
    batch_first,
    batch_last,
    moved,
    register,
    sum_over_samples,
)


def gelu(z: Array) -> tuple[Array, Array]:
    """Return z (1 + t)/2, t = tanh u, u = √(2/π)(z + 0.044715 z³), and its derivative (1 + t)(1 + z (1 − t) u′)/2."""
    root, cubic, square = (2 / jnp.pi) ** 0.5, 0.044715, z * z
    t = jnp.tanh(z * (root + (root * cubic) * square))
    gate = 0.5 + 0.5 * t
    return z * gate, gate * (1 + z * (1 - t) * (root + (3 * root * cubic) * square))


def tanh(z: Array) -> tuple[Array, Array]:
    """Return tanh z and 1 − tanh² z."""
    value = jnp.tanh(z)
    return value, 1 - value * value


def softplus(z: Array) -> tuple[Array, Array]:
    """Return log(1 + eᶻ) and σ(z)."""
    small = jnp.exp(-jnp.abs(z))
    return jnp.maximum(z, 0) + jnp.log1p(small), jnp.where(z >= 0, 1, small) / (1 + small)


WITH_SLOPE: dict[Callable, Callable[[Array], tuple[Array, Array]]] = {
    jax.nn.gelu: gelu,
    jnp.tanh: tanh,
    jax.nn.softplus: softplus,
}


@register(dynamics=GradientDescent, network=Perceptron, problem=EmpiricalRisk)
class PerceptronKernel(Kernel):
    """The chain rule of R = (1/n) Σ_i (f(x_i) − y_i)² by hand, each activation and its slope computed together."""

    X: Float[Array, "n d"]
    y: Float[Array, " n"]
    activation: Callable = eqx.field(static=True)
    width: int = eqx.field(static=True, default=8)
    """One vector of the widest kind for each number: wider groups were measured to be slower, in either precision, as
    the states of all samples in all layers are kept besides the weights."""

    @classmethod
    def of(cls, network: Perceptron, problem: EmpiricalRisk, dynamics: GradientDescent) -> "PerceptronKernel | None":
        """Return the kernel for networks like `network`, `None` for another loss or activation, biases or outputs."""
        plain = network.bias_stacks is None and network.activation in WITH_SLOPE
        one_output = network.stacks[-1].shape[-2] == 1 and problem.y.size == problem.X.shape[0]
        floating = jnp.issubdtype(problem.y.dtype, jnp.floating)
        same_features = problem.X.shape[1:] == network.stacks[0].shape[-1:]
        if not (plain and one_output and floating and same_features and problem.loss == SquaredError()):
            return None
        return cls(X=problem.X, y=problem.y.reshape(-1), activation=network.activation)

    def enter(self, weights: Perceptron, fixed: Perceptron) -> tuple[PyTree, PyTree]:
        """Return the hidden stacks, (layers, out, in, batch), the last matrix, (in, batch), and memory; and nothing.

        The memory is for what a step keeps of every layer: its inputs, (layers, in, n, batch), and its slopes.
        """
        *stacks, last = batch_last(weights.stacks)
        hidden = [*stacks, last[:-1]] if last.shape[0] > 1 else stacks
        memory = tuple(self._memory(stack, first=number == 0) for number, stack in enumerate(hidden))
        return (tuple(hidden), last[-1, 0], memory), None

    def leave(self, weights: PyTree) -> PyTree:
        """Return the stacks as the network holds them, with the batch axis first."""
        hidden, last, _ = weights
        last = last[None, None]
        if hidden and hidden[-1].shape[1:] == last.shape[1:]:
            hidden, last = hidden[:-1], jnp.concatenate([hidden[-1], last])
        return batch_first((*hidden, last))

    def moves(self, weights: PyTree) -> PyTree:
        """Tell that the memory is no weights."""
        hidden, last, memory = weights
        return (*jax.tree.map(lambda _: True, (hidden, last)), jax.tree.map(lambda _: False, memory))

    def evaluate(self, weights: PyTree, fixed: None) -> tuple[Float[Array, " batch"], Move]:
        """Return the risks, and the function (rates, moving) ↦ weights after a step."""
        hidden, last, memory = weights
        state, entered = self._inputs(last.shape[-1]), []
        for number, (stack, kept) in enumerate(zip(hidden, memory, strict=True)):
            state, kept = _forward(self.activation, stack, state, kept, first=number == 0)
            entered.append(kept)
        errors = jnp.sum(last[:, None] * state, axis=0) - self.y[:, None]

        def move(rates: Array, moving: Array) -> PyTree:
            slope = errors * (2 / self.y.size)
            last_after = moved(last, rates, sum_over_samples(slope[None], state)[0], moving)
            backward, after = last[:, None] * slope[None], []
            for stack, kept in zip(reversed(hidden), reversed(entered), strict=True):
                layers = (stack, jnp.arange(stack.shape[0]))
                backward, stack_after = fold(_backward(rates, moving, *kept), backward, layers, reverse=True)
                after.append(stack_after)
            return tuple(reversed(after)), last_after, tuple(entered)

        return jnp.mean(errors**2, axis=0), move

    def _inputs(self, batch: int) -> Float[Array, "d n batch"]:
        return jnp.broadcast_to(self.X.T[:, :, None], (*self.X.T.shape, batch))

    def _memory(self, stack: Float[Array, "layers d_out d_in batch"], *, first: bool) -> tuple[Array, Array]:
        count, above, below, batch = stack.shape
        shape = (above, self.y.size, batch)
        start = self._inputs(batch) if first else jnp.zeros((below, *shape[1:]), stack.dtype)
        states = start[None] if count == 1 else jnp.concatenate([start[None], jnp.zeros((count, *shape), stack.dtype)])
        return states, jnp.zeros((count, *shape), stack.dtype)


def _forward(activation: Callable, stack: Array, state: Array, memory: tuple[Array, Array], *, first: bool) -> tuple:
    """Return the state above a stack, and the memory: the states below each layer and above, and the slopes."""
    both = WITH_SLOPE[activation]
    if stack.shape[0] == 1:
        above, slope = both(apply(stack[0, :, :, None], state))
        return above, (state[None], slope[None])
    put = jax.lax.dynamic_update_index_in_dim
    states, slopes = memory

    def layer(number: Array, memory: tuple[Array, Array]) -> tuple[Array, Array]:
        above, slope = both(apply(stack[number][:, :, None], memory[0][number]))
        return put(memory[0], above, number + 1, axis=0), put(memory[1], slope, number, axis=0)

    memory = (states if first else put(states, state, 0, axis=0)), slopes
    states, slopes = jax.lax.fori_loop(0, stack.shape[0], layer, memory)
    return states[-1], (states, slopes)


def _backward(rates: Array, moving: Array, states: Array, slopes: Array) -> Callable:
    def back(backward: Float[Array, "d_out n batch"], layer: tuple[Array, Array]) -> tuple[Array, Array]:
        weight, number = layer
        inner = backward * slopes[number]
        gradient = sum_over_samples(inner, states[number])
        return apply_transposed(weight[:, :, None], inner), moved(weight, rates, gradient, moving)

    return back
