"""The kind of network called convolutional."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from jaxtyping import Array
from pydantic import Field
from pydantic_core import PydanticCustomError

from ...kinds.recipes import Named, validation_error
from ...kinds.recipes.values import Count, Scale
from ..image_network import Convolutional, shapes_along
from ..perceptron import ACTIVATIONS
from .mlp import LINEAR
from .recipe import NETWORKS, Inputs, Keys, NetworkRecipe


@NETWORKS.register("convolutional")
class ConvolutionalNetwork(NetworkRecipe):
    """A convolutional network for images: convolutions with average pooling, then dense layers; biases start at 0.

    The pooling is that of means: with maxima the risk would not be smooth.
    """

    start_options: ClassVar[frozenset[str]] = frozenset({"scale"})

    channels: tuple[Count, ...] = Field(min_length=1, examples=[[16, 32]])
    """The number of channels that each convolution makes."""
    kernel: Count = Field(default=3, examples=[3])
    """The side of the kernels, whose image is padded with zeros so that stride 1 keeps its size (of an odd side)."""
    stride: Count = Field(default=1, examples=[1])
    """From one place of a kernel to the next."""
    pooling: Count = Field(default=2, examples=[2])
    """The side of the squares that are averaged after each convolution; 1: none."""
    dense: tuple[Count, ...] = Field(default=(), examples=[[64]])
    """The widths of hidden layers between the last convolution and the outputs."""
    activation: Annotated[str, Named(ACTIVATIONS, LINEAR)] = Field(default="gelu", examples=["tanh"])
    """What follows every layer but the last: linear, or a function by name, or as my_module:my_function."""
    scale: Scale = 1.0
    """Standard deviation of the weights at the start, times one over the root of the inputs of a unit."""

    def build(self, inputs: Inputs, outputs: int, *, key: Array, shared: Keys) -> Convolutional:
        """Return the network."""
        assert isinstance(inputs, tuple)  # as it keeps the shape
        return Convolutional.gaussian(
            inputs,
            self.channels,
            outputs,
            size=self.kernel,
            stride=self.stride,
            pooling=self.pooling,
            dense=self.dense,
            scale=self.scale,
            activation=self.activation if self.activation != LINEAR else _unchanged,
            key=key,
        )

    def keeps_shape(self) -> bool:
        """Return that it takes images as they are."""
        return True

    def shape_errors(self, inputs: Inputs | None, outputs: int | None) -> Iterator[PydanticCustomError]:
        """Yield that samples are no images, or too small for so many convolutions."""
        if not isinstance(inputs, tuple):
            return
        try:
            shapes_along(inputs, self.channels, self.kernel, self.stride, self.pooling)
        except ValueError as error:
            found, _, expected = str(error).partition(": expected ")
            yield validation_error(
                found=found,
                expected=expected,
                write="data of kind digits, or another network"
                if len(inputs) != 3
                else "fewer channels, or a smaller kernel",
                at=("channels",),
            )


def _unchanged(values: Array) -> Array:
    return values
