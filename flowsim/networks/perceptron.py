"""Perceptrons, the activations by name, and the kind of network called mlp."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from pydantic import Field
from pydantic_core import PydanticCustomError

from ..kinds import Named, Registry, validation_error
from ..kinds.values import Count, Depth, Scale
from . import layers
from .linear import DeepLinear
from .numbered_layers import Layered
from .recipe import NETWORKS, Keys, NetworkRecipe

LINEAR = "linear"

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
        self.bias_stacks = None if biases is None else _stack_biases(biases, self.stacks)
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
        hidden, last = _without_last(self._layers())
        state = layers.scan_layers(lambda s, layer: self.activation(_affine(layer, s)), x, hidden)
        output = _affine(last, state)
        return output[0] if output.shape == (1,) else output

    def _layers(self) -> tuple:
        if self.bias_stacks is None:
            return tuple((stack, None) for stack in self.stacks)
        return tuple(zip(self.stacks, self.bias_stacks, strict=True))


def _affine(layer: tuple[Array, Array | None], state: Array) -> Array:
    weight, bias = layer
    return weight @ state if bias is None else weight @ state + bias


def _without_last(stacks: tuple) -> tuple[tuple, tuple]:
    last = jax.tree.map(lambda array: array[-1], stacks[-1])
    if stacks[-1][0].shape[0] == 1:
        return stacks[:-1], last
    return (*stacks[:-1], jax.tree.map(lambda array: array[:-1], stacks[-1])), last


def _stack_biases(biases: Sequence[ArrayLike], stacks: layers.Stacks) -> tuple[Array, ...]:
    rows = [row for bias in biases for row in jnp.atleast_2d(jnp.asarray(bias, stacks[0].dtype))]
    expected = [stack.shape[1] for stack in stacks for _ in range(stack.shape[0])]
    found = [row.shape[0] for row in rows]
    if found != expected:
        raise ValueError(f"biases must have lengths {expected}, one for each layer; got {found}")
    remaining = iter(rows)
    return tuple(jnp.stack([next(remaining) for _ in range(stack.shape[0])]) for stack in stacks)


def activation_of(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return an activation as it is, or the one of this name. Raises `TypeError` for anything else."""
    if not callable(activation) and not isinstance(activation, str):
        raise TypeError(f"activation must be a smooth function on arrays, or the name of one, got {activation!r}")
    return activation if callable(activation) else ACTIVATIONS[activation]


@NETWORKS.register("mlp")
class PerceptronNetwork(NetworkRecipe):
    """A multi-layer perceptron with independent N(0, scale²) weights, and no biases unless they are asked for."""

    start_options: ClassVar[frozenset[str]] = frozenset({"scale"})
    varied: ClassVar[frozenset[str]] = frozenset({"depth"})
    linear_if: ClassVar[str] = f"activation: {LINEAR}"

    depth: Depth
    """Number of weight matrices L."""
    scale: Scale
    """Standard deviation of every weight at the start; from depth 2 on 0 is a saddle: no flow."""
    width: Count | None = Field(default=None, examples=[20])
    """Width of the hidden layers; null: as many as there are features."""
    widths: tuple[Count, ...] = Field(default=(), examples=[[64, 32]])
    """Width of each hidden layer, one fewer than the depth; []: all are as `width` says."""
    activation: Annotated[str, Named(ACTIVATIONS, LINEAR)] = Field(default=LINEAR, examples=["gelu"])
    """What stands between the weight matrices: linear, or a function by name, or as my_module:my_function."""
    biases: bool = Field(default=False, examples=[True])
    """Whether every layer adds a bias, which starts at 0. Not for activation linear."""
    fan_in: bool = Field(default=False, examples=[True])
    """Whether the standard deviation of a weight is scale/√(inputs of its layer), in place of scale."""
    zero_layer: Count | None = Field(default=None, examples=[2])
    """The weight matrix that starts at zero, counted from 1; null: none. Only for activation linear."""

    def build(self, inputs: int, outputs: int, *, key: Array, shared: Keys) -> DeepLinear | Perceptron:
        """Return the network, a deep linear one without activation."""
        hidden = list(self.widths) or [self.width or inputs] * (self.depth - 1)
        drawn = {"widths": [inputs, *hidden, outputs], "scale": self.scale, "fan_in": self.fan_in}
        if self.activation != LINEAR:
            return Perceptron.gaussian(**drawn, activation=self.activation, biases=self.biases, key=key)
        network = DeepLinear.gaussian(**drawn, key=key)
        return network if self.zero_layer is None else network.with_zero_layer(self.zero_layer)

    def is_linear(self) -> bool:
        """Return whether there is no activation."""
        return self.activation == LINEAR

    def count_matrices(self) -> int:
        """Return the depth L."""
        return self.depth

    def count_weights(self, inputs: int | None, outputs: int | None) -> int:
        """Count the weights of all layers, at least."""
        inputs, outputs = inputs or 1, outputs or 1
        if self.widths:
            layers = pairwise([inputs, *self.widths, outputs])
            return sum(above * (below + self.biases) for below, above in layers)
        width = self.width or inputs
        biases = self.biases * ((self.depth - 1) * width + outputs)
        matrices = inputs * outputs if self.depth == 1 else width * (inputs + outputs + (self.depth - 2) * width)
        return matrices + biases

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that widths do not go with the depth, and that a linear network has no biases.

        And that the layer to be zero is none of the network, or one between activations.
        """
        if self.widths and (len(self.widths) != self.depth - 1 or self.width is not None):
            both = self.width is not None
            yield validation_error(
                found=f"{len(self.widths)} of them beside {f'width {self.width}' if both else f'depth {self.depth}'}",
                expected="one width for each hidden layer, one fewer than the depth, and no other",
                write="width: null" if both else f"depth: {len(self.widths) + 1}",
                at=("widths",),
            )
        if self.biases and self.is_linear():
            wording = {"expected": "false for a linear network", "write": "biases: false, or activation: tanh"}
            yield validation_error(found="true", **wording, at=("biases",))
        if self.zero_layer is None:
            return
        wording = {"found": f"{self.zero_layer}", "at": ("zero_layer",)}
        if self.zero_layer > self.depth:
            yield validation_error(
                expected=f"one of the {self.depth} layers", write=f"zero_layer: {self.depth}", **wording
            )
        if not self.is_linear():
            yield validation_error(expected="null for a nonlinear network", write=f"activation: {LINEAR}", **wording)
