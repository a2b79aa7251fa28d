"""A convolution of images by slices and one matrix product."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .weights import standard_normal


class Convolution(eqx.Module):
    """Image ↦ Σ weight · shifted image + bias: what `equinox.nn.Conv2d` computes (a cross-correlation), to rounding.

    It maps an image (channels, height, width). On CPUs, XLA's own convolution leaves its threaded kernel behind inside
    the loops that integrate a flow; a product of matrices does not. Raises `ValueError` for a weight or bias of another
    shape, and for an image that does not fit.
    """

    weight: Float[Array, "out channels size size"]
    """The kernels, (out, channels, size, size)."""
    bias: Float[Array, " out"]
    """What is added to each channel, (out,)."""
    stride: int = eqx.field(static=True, default=1)
    """From one place of a kernel to the next."""
    padding: int = eqx.field(static=True, default=0)
    """How many zeros are put on every side of the image."""

    axes: ClassVar[str] = "(channels, height, width)"

    def __check_init__(self):
        if self.weight.ndim != 4 or self.weight.shape[2] != self.weight.shape[3]:
            raise ValueError(f"weight has shape {self.weight.shape}: expected (out, channels, size, size)")
        if self.bias.shape != self.weight.shape[:1]:
            raise ValueError(f"bias has shape {self.bias.shape}: expected {self.weight.shape[:1]}, one for each output")
        if self.stride < 1 or self.padding < 0:
            raise ValueError(f"stride is {self.stride} and padding {self.padding}: expected 1 or more, and 0 or more")

    @classmethod
    def gaussian(
        cls,
        channels: int,
        out: int,
        size: int,
        *,
        scale: float = 1.0,
        stride: int = 1,
        padding: int = 0,
        key: Array,
        dtype: jnp.dtype | None = None,
    ) -> "Convolution":
        """Draw independent N(0, scale²/(channels·size²)) weights; biases start at 0.

        Args:
            channels: The channels of the image.
            out: The channels that are made.
            size: The side of a kernel.
            scale: The standard deviation, times one over the root of the inputs of a unit.
            stride: From one place of a kernel to the next.
            padding: How many zeros are put on every side of the image.
            key: A key of `jax.random`.
            dtype: The type of the weights; by default JAX's own for floats.

        Returns:
            The convolution.
        """
        dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
        drawn = standard_normal(key, 0, (out, channels, size, size), dtype)
        weight = jnp.asarray(scale / (channels * size**2) ** 0.5 * drawn, dtype)
        return cls(weight, jnp.zeros(out, dtype), stride, padding)

    def __call__(self, image: Float[Array, "channels height width"]) -> Float[Array, "out rows columns"]:
        """Return the convolved image."""
        out, channels, size, _ = self.weight.shape
        if image.ndim != 3 or image.shape[0] != channels or min(image.shape[1:]) + 2 * self.padding < size:
            raise ValueError(
                f"an image of shape {image.shape}, with padding {self.padding}, for a weight of shape "
                f"{self.weight.shape}: expected {self.axes}, {channels} channels, and no side shorter than {size}"
            )
        patches = self._patches(jnp.transpose(image, (1, 2, 0)))
        rows, columns, length = patches.shape
        matrix = jnp.transpose(self.weight, (2, 3, 1, 0)).reshape(length, out)
        made = patches.reshape(rows * columns, length) @ matrix
        return jnp.transpose(made).reshape(out, rows, columns) + self.bias[:, None, None]

    def _patches(self, image: Float[Array, "height width channels"]) -> Float[Array, "rows columns length"]:
        """Return what each place of the output looks at; with the channels last, slices stay whole in memory."""
        size, step, around = self.weight.shape[2], self.stride, (self.padding, self.padding)
        padded = jnp.pad(image, (around, around, (0, 0)))
        height, width, channels = padded.shape
        last = (step * ((height - size) // step) + 1, step * ((width - size) // step) + 1)
        slices = [
            jax.lax.slice(padded, (i, j, 0), (i + last[0], j + last[1], channels), (step, step, 1))
            for i in range(size)
            for j in range(size)
        ]
        return jnp.concatenate(slices, axis=2)


class _Sliced(eqx.nn.Conv2d):
    """An Equinox convolution, with all that it says of itself, computed as `Convolution` does."""

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Return the convolved image."""
        bias = jnp.zeros(self.out_channels, x.dtype) if self.bias is None else self.bias.ravel()
        padding = _zeros_around(self)
        assert padding is not None  # as this stands for no other
        return Convolution(self.weight, bias, self.stride[0], padding)(x)


def with_slices(network: PyTree) -> PyTree:
    """Return a network in which a CPU computes the `equinox.nn.Conv2d` by slices and products, where that is the same.

    So it is without dilation or groups, with as many zeros on every side, and with squares and strides of equal sides.
    """
    if jax.default_backend() != "cpu":
        return network
    return jax.tree.map(lambda part: _sliced(part) if _can_be_sliced(part) else part, network, is_leaf=_can_be_sliced)


def _can_be_sliced(part: Any) -> bool:
    # A subclass may compute something else.
    if type(part) is not eqx.nn.Conv2d or _zeros_around(part) is None:
        return False
    equal = len(set(part.kernel_size)) == len(set(part.stride)) == 1
    return equal and set(part.dilation) == {1} and part.groups == 1


def _zeros_around(part: eqx.nn.Conv2d) -> int | None:
    """Return how many zeros a convolution puts on every side, `None` where they are not as many or no zeros."""
    if part.padding_mode != "ZEROS":
        return None
    if part.padding == "VALID":
        return 0
    if isinstance(part.padding, str):  # "SAME" or "SAME_LOWER": even where every pixel is the centre of a window
        return part.kernel_size[0] // 2 if part.stride[0] == part.kernel_size[0] % 2 == 1 else None
    sides = {int(count) for both in part.padding for count in both}
    return sides.pop() if len(sides) == 1 else None


def _sliced(part: eqx.nn.Conv2d) -> _Sliced:
    made = object.__new__(_Sliced)
    for each in dataclasses.fields(part):
        object.__setattr__(made, each.name, getattr(part, each.name))
    return made


def average_pooling(image: Float[Array, "channels height width"], size: int) -> Float[Array, "channels rows columns"]:
    """Return the means over squares of `size` by `size`; what is left over at the right and below is dropped."""
    channels, height, width = image.shape
    rows, columns = height // size, width // size
    squares = image[:, : rows * size, : columns * size].reshape(channels, rows, size, columns, size)
    return jnp.mean(squares, axis=(2, 4))
