"""Residual networks with an activation."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .layered import Layered
from .perceptron import activation_of
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
