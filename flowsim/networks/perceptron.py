"""Perceptrons, and the activations by name."""

from collections.abc import Callable, Sequence
from itertools import islice

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from ..kinds import Registry
from . import layers
from .layered import Layered

ACTIVATIONS: Registry[Callable[[Array], Array]] = Registry(
    "an activation", accepts=callable, expected="a function on arrays"
)
ACTIVATIONS.register("gelu")(jax.nn.gelu)  # the tanh approximation, as in the experiments of Marion and Chizat (2024)
ACTIVATIONS.register("tanh")(jnp.tanh)
ACTIVATIONS.register("softplus")(jax.nn.softplus)
ACTIVATIONS.register("relu")(jax.nn.relu)  # the one here that is not smooth


class Perceptron(Layered):
    """A multi-layer perceptron x ↦ W_L φ(W_{L−1} ⋯ φ(W_1 x + b_1) ⋯ + b_{L−1}) + b_L with an activation φ.

    Flows are exact where φ is smooth; at a kink, such as that of relu, accuracy is limited.

    Args:
        weights: W_1, …, W_L with W_k of shape (d_k, d_{k−1}).
        biases: b_1, …, b_L with b_k of shape (d_k,); by default there are none.
        activation: One of "gelu", "tanh", "softplus", "relu", the place `my_module:my_function` of another, or any
            function on arrays.

    Raises:
        ValueError: Where shapes do not fit or the name is unknown.
    """

    stacks: layers.Stacks
    bias_stacks: tuple[Float[Array, "*batch _layers _out"], ...] | None
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike] | None = None,
        *,
        activation: str | Callable[[Array], Array] = "gelu",
    ):
        self.stacks = layers.stack(weights)
        self.bias_stacks = None
        if biases is not None:
            rows = [row for bias in biases for row in jnp.atleast_2d(jnp.asarray(bias, self.stacks[0].dtype))]
            expected = [stack.shape[1] for stack in self.stacks for _ in range(stack.shape[0])]
            lengths = [row.shape[0] for row in rows]
            if lengths != expected:
                raise ValueError(f"biases must have lengths {expected}, one for each layer; got {lengths}")
            remaining = iter(rows)
            self.bias_stacks = tuple(jnp.stack(list(islice(remaining, len(stack)))) for stack in self.stacks)
        self.activation = activation_of(activation)

    @classmethod
    def gaussian(
        cls,
        *,
        widths: Sequence[int],
        scale: ArrayLike,
        activation: str | Callable[[Array], Array] = "gelu",
        biases: bool = False,
        fan_in: bool = False,
        key: Array,
        dtype: jnp.dtype | None = None,
    ) -> "Perceptron":
        """Draw weights with independent N(0, scale²) entries.

        Args:
            widths: d_0, …, d_L, from the features of a sample to the outputs.
            scale: The standard deviation of an entry.
            activation: Its name, or a function, as in `Perceptron`.
            biases: Whether every layer has a bias, which starts at 0.
            fan_in: Whether the entries of W_k are N(0, scale²/d_{k−1}) instead.
            key: A key of `jax.random`.
            dtype: The type of the weights; by default JAX's own for floats.

        Returns:
            The network, with layers W_k of shape (d_k, d_{k−1}).

        Raises:
            ValueError: For widths that are no positive whole numbers, and an activation that is unknown.

        Examples:
            >>> import flowsim, jax
            >>> network = flowsim.Perceptron.gaussian(widths=[5, 4, 1], scale=0.5, key=jax.random.key(0))
            >>> [weight.shape for weight in network.weights]
            [(4, 5), (1, 4)]
        """
        stacks = layers.gaussian(widths, scale, key=key, dtype=dtype, fan_in=fan_in)
        zeros = [jnp.zeros(stack.shape[:2], stack.dtype) for stack in stacks] if biases else None
        return cls(stacks, zeros, activation=activation)

    @property
    def weights(self) -> tuple[Float[Array, "*batch _out _in"], ...]:
        """W_1, …, W_L."""
        return layers.unstack(self.stacks)

    @property
    def depth(self) -> int:
        """The number of layers, L."""
        return layers.depth(self.stacks)

    def layer_numbers(self) -> list[Int[np.ndarray, " layers"]]:
        """Return to which layer, from zero, the matrices and then the biases of each stack belong."""
        return layers.numbers(self.stacks) * (1 if self.bias_stacks is None else 2)

    def __call__(self, x: Float[Array | np.ndarray, " features"]) -> Float[Array, "*outputs"]:
        """Return the output for one sample: a scalar if d_L = 1, else (d_L,)."""
        biases = (None,) * len(self.stacks) if self.bias_stacks is None else self.bias_stacks
        *hidden, top = zip(self.stacks, biases, strict=True)
        last = jax.tree.map(lambda array: array[-1], top)  # W_L and b_L, which no activation follows
        if top[0].shape[0] > 1:
            hidden.append(jax.tree.map(lambda array: array[:-1], top))
        state = layers.scan_layers(lambda s, layer: self.activation(_affine(layer, s)), x, tuple(hidden))
        output = _affine(last, state)
        return output[0] if output.shape == (1,) else output


def _affine(layer: tuple[Array, Array | None], state: Array) -> Array:
    weight, bias = layer
    return weight @ state if bias is None else weight @ state + bias


def activation_of(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return an activation as it is, or the one of this name. Raises `TypeError` for anything else."""
    if not callable(activation) and not isinstance(activation, str):
        raise TypeError(f"activation must be a smooth function on arrays, or the name of one, got {activation!r}")
    return activation if callable(activation) else ACTIVATIONS[activation]
