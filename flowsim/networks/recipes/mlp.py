"""The kind of network called mlp: a perceptron, or a deep linear network without activation."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, ClassVar

from jaxtyping import Array
from pydantic import Field
from pydantic_core import PydanticCustomError

from ...kinds.recipes import Named, validation_error
from ...kinds.recipes.values import Count, Depth, Scale
from ..linear import DeepLinear
from ..perceptron import ACTIVATIONS, Perceptron
from .recipe import NETWORKS, Keys, NetworkRecipe

LINEAR = "linear"


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
