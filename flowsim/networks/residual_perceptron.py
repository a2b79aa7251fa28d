"""Residual networks with an activation, and the kind of network called residual_mlp."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from pydantic import Field

from ..kinds import Named
from ..kinds.values import Count, Depth, Scale
from .numbered_layers import Layered
from .perceptron import ACTIVATIONS, activation_of
from .recipe import NETWORKS, Inputs, Keys, NetworkRecipe
from .weights import Fixed, standard_normal


class ResidualPerceptron(Layered):
    """x ↦ C h_L with h_k = h_{k−1} + s V_k φ(W_k h_{k−1} + b_k) and h_0 = A x, depth costing no compile time.

    It maps (features,) to a scalar, or to (outputs,); `ResidualPerceptron.gaussian` draws one.
    """

    first: Float[Array, "width features"]
    """A."""
    inner: Float[Array, "depth hidden width"]
    """All W_k."""
    biases: Float[Array, "depth hidden"]
    """All b_k."""
    outer: Float[Array, "depth width hidden"]
    """All V_k."""
    last: Float[Array, "outputs width"]
    """C."""
    scale: Fixed
    """s, which the flow does not move."""
    activation: Callable[[Array], Array] = eqx.field(static=True)
    """φ, a function on arrays."""

    @classmethod
    def gaussian(
        cls,
        *,
        features: int,
        width: int,
        depth: int,
        hidden: int,
        outputs: int = 1,
        scale: float,
        activation: str | Callable[[Array], Array] = "gelu",
        key: Array,
        dtype: jnp.dtype | None = None,
    ) -> "ResidualPerceptron":
        """Draw every matrix with independent N(0, 1/fan-in) entries; biases start at 0.

        Args:
            features: How many numbers a sample has.
            width: That of what runs through the blocks.
            depth: The number of blocks L.
            hidden: The number of activations in a block.
            outputs: How many numbers are predicted.
            scale: s, what every block is multiplied with.
            activation: Its name, or a function, as in `Perceptron`.
            key: A key of `jax.random`.
            dtype: The type of the weights; by default JAX's own for floats.

        Returns:
            The network.
        """
        dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
        shapes = [(width, features), (depth, hidden, width), (depth, width, hidden), (outputs, width)]
        first, inner, outer, last = (
            jnp.asarray(standard_normal(key, number, shape, dtype) / shape[-1] ** 0.5, dtype)
            for number, shape in enumerate(shapes)
        )
        biases = jnp.zeros((depth, hidden), dtype)
        fixed = Fixed(jnp.asarray(scale, dtype))
        return cls(first, inner, biases, outer, last, fixed, activation_of(activation))

    def layer_numbers(self) -> list[Int[np.ndarray, "..."]]:
        """Return to which layer, from zero, each array belongs: A, the blocks and C."""
        depth = len(self.inner)
        blocks = np.arange(1, depth + 1)
        return [np.asarray(0), blocks, blocks, blocks, np.asarray(depth + 1)]

    def __call__(self, x: Float[Array | np.ndarray, " features"]) -> Float[Array, "*outputs"]:
        """Return the output for one sample: a scalar if there is one, else (outputs,)."""

        def block(state: Array, layer: tuple[Array, Array, Array]) -> tuple[Array, None]:
            inner, bias, outer = layer
            return state + self.scale.value * (outer @ self.activation(inner @ state + bias)), None

        state, _ = jax.lax.scan(block, self.first @ x, (self.inner, self.biases, self.outer))
        output = self.last @ state
        return output[0] if output.shape == (1,) else output


@NETWORKS.register("residual_mlp")
class ResidualPerceptronNetwork(NetworkRecipe):
    """A residual network with an activation: h ↦ h + scale·V φ(W h + b) in each block, between two dense layers."""

    start_options: ClassVar[frozenset[str]] = frozenset({"scale"})

    depth: Depth
    """Number of blocks L."""
    scale: Scale
    """What every block is multiplied with, such as 1/√L or 1/L: it stays as it is."""
    width: Count = Field(default=32, examples=[32])
    """Width of what runs through the blocks."""
    hidden: Count | None = Field(default=None, examples=[32])
    """Number of activations in a block; null: as many as the width."""
    activation: Annotated[str, Named(ACTIVATIONS)] = Field(default="gelu", examples=["tanh"])
    """A function by name, or as my_module:my_function."""

    def build(self, inputs: Inputs, outputs: int, *, key: Array, shared: Keys) -> ResidualPerceptron:
        """Return the network."""
        assert isinstance(inputs, int)  # as it does not keep the shape
        return ResidualPerceptron.gaussian(
            features=inputs,
            width=self.width,
            depth=self.depth,
            hidden=self.hidden or self.width,
            outputs=outputs,
            scale=self.scale,
            activation=self.activation,
            key=key,
        )

    def count_weights(self, inputs: Inputs | None, outputs: int | None) -> int:
        """Count the weights, at least."""
        sides = (inputs if isinstance(inputs, int) else 1) + (outputs or 1)
        hidden = self.hidden or self.width
        return self.width * sides + self.depth * hidden * (2 * self.width + 1)
