"""Convolutional networks."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .convolution import Convolution, average_pooling
from .perceptron import Perceptron, activation_of

Shape = tuple[int, int, int]


class Convolutional(eqx.Module):
    """Convolutions, each followed by an activation and by average pooling, and a perceptron on what they make.

    It maps an image (channels, height, width) to a scalar, or to (outputs,). `head` is a perceptron with biases.
    `Convolutional.gaussian` draws one, and raises `ValueError` for an image that the pooling leaves nothing of.
    """

    convolutions: tuple[Convolution, ...]
    """The convolutions, in their order."""
    head: Perceptron
    """What maps what they make to the outputs: a perceptron with biases."""
    activation: Callable[[Array], Array] = eqx.field(static=True)
    """What follows each convolution: a function on arrays."""
    pooling: int = eqx.field(static=True)
    """The side of the squares that are averaged after each."""

    @classmethod
    def gaussian(
        cls,
        shape: Sequence[int],
        channels: Sequence[int],
        outputs: int,
        *,
        size: int = 3,
        stride: int = 1,
        pooling: int = 1,
        dense: Sequence[int] = (),
        scale: float = 1.0,
        activation: str | Callable[[Array], Array] = "gelu",
        key: Array,
        dtype: jnp.dtype | None = None,
    ) -> "Convolutional":
        """Draw a network for images, weights N(0, scale²/fan-in), biases 0.

        Args:
            shape: That of an image: (channels, height, width).
            channels: Those after each convolution.
            outputs: How many numbers are predicted.
            size: The side of the kernels, whose images are padded by (size − 1) // 2 zeros.
            stride: From one place of a kernel to the next.
            pooling: The side of the squares that are averaged after each convolution.
            dense: The widths of hidden layers between the last convolution and the outputs.
            scale: The standard deviation of the weights, times one over the root of the inputs of a unit.
            activation: Its name, or a function, as in `Perceptron`.
            key: A key of `jax.random`.
            dtype: The type of the weights; by default JAX's own for floats.

        Returns:
            The network.

        Raises:
            ValueError: Where an image is too small.
        """
        made = shapes_along(tuple(shape), channels, size, stride, pooling)
        keys = jax.random.split(key, len(channels) + 1)
        draw = {"stride": stride, "padding": (size - 1) // 2, "scale": scale, "dtype": dtype}
        convolutions = tuple(
            Convolution.gaussian(before[0], count, size, key=one, **draw)
            for before, count, one in zip(made, channels, keys, strict=False)
        )
        widths = [int(np.prod(made[-1])), *dense, outputs]
        options = {"scale": scale, "fan_in": True, "biases": True, "activation": activation, "dtype": dtype}
        head = Perceptron.gaussian(widths=widths, key=keys[-1], **options)
        return cls(convolutions, head, activation_of(activation), pooling)

    def __call__(self, image: Float[Array, "channels height width"]) -> Float[Array, "*outputs"]:
        """Return the output for one image."""
        for convolution in self.convolutions:
            image = average_pooling(self.activation(convolution(image)), self.pooling)
        return self.head(image.ravel())


def shapes_along(shape: tuple[int, ...], channels: Sequence[int], size: int, stride: int, pooling: int) -> list[Shape]:
    """Return the shapes of an image before every convolution and behind the last; `ValueError` where one is empty."""
    if len(shape) != 3:
        raise ValueError(f"samples have shape {shape}: expected images {Convolution.axes}")
    _, height, width = shape
    if size > min(height, width):
        raise ValueError(
            f"the kernel {size} is larger than images of shape {shape}: expected {min(height, width)} at most"
        )
    found = [(shape[0], height, width)]
    for number, count in enumerate(channels, start=1):
        padded = 2 * ((size - 1) // 2)
        height, width = (((side + padded - size) // stride + 1) // pooling for side in (height, width))
        if min(height, width) < 1:
            raise ValueError(
                f"convolution {number} makes nothing of an image of shape {found[-1]} (kernel {size}, stride {stride}, "
                f"pooling {pooling}): expected fewer convolutions, or smaller kernels, strides and pooling"
            )
        found.append((count, height, width))
    return found
