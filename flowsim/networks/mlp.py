"""The kind of network called mlp."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from jaxtyping import Array
from pydantic import Field
from pydantic_core import PydanticCustomError

from ..kinds import Named, refusal
from ..kinds.values import Count, Depth, Scale
from .linear import DeepLinear
from .perceptron import ACTIVATIONS, Perceptron
from .recipe import NETWORKS, Keys, NetworkRecipe

LINEAR = "linear"


@NETWORKS.register("mlp")
class PerceptronNetwork(NetworkRecipe):
    """A multi-layer perceptron with independent N(0, scale²) weights and no biases."""

    start_options: ClassVar[frozenset[str]] = frozenset({"scale"})
    varied: ClassVar[frozenset[str]] = frozenset({"depth"})
    linear_if: ClassVar[str] = f"activation: {LINEAR}"

    depth: Depth
    """Number of weight matrices L."""
    scale: Scale
    """Standard deviation of every weight at the start; from depth 2 on 0 is a saddle: no flow."""
    width: Count | None = Field(default=None, examples=[20])
    """Width of the hidden layers; null: as many as there are features."""
    activation: Annotated[str, Named(ACTIVATIONS, LINEAR)] = Field(default=LINEAR, examples=["gelu"])
    """What stands between the weight matrices: linear, or a smooth function by name, or as my_module:my_function."""
    zero_layer: Count | None = Field(default=None, examples=[2])
    """The weight matrix that starts at zero, counted from 1; null: none. Only for activation linear."""

    def build(self, inputs: int, outputs: int, *, key: Array, shared: Keys) -> DeepLinear | Perceptron:
        """Return the network, a deep linear one without activation."""
        widths = [inputs] + [self.width or inputs] * (self.depth - 1) + [outputs]
        if self.activation != LINEAR:
            return Perceptron.gaussian(widths=widths, scale=self.scale, activation=self.activation, key=key)
        network = DeepLinear.gaussian(widths=widths, scale=self.scale, key=key)
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
        width = self.width or inputs
        return inputs * outputs if self.depth == 1 else width * (inputs + outputs + (self.depth - 2) * width)

    def refusals(self) -> Iterator[PydanticCustomError]:
        """Yield that the layer to be zero is none of the network, or one between activations."""
        if self.zero_layer is None:
            return
        wording = {"found": f"{self.zero_layer}", "at": ("zero_layer",)}
        if self.zero_layer > self.depth:
            yield refusal(expected=f"one of the {self.depth} layers", write=f"zero_layer: {self.depth}", **wording)
        if not self.is_linear():
            yield refusal(expected="null for a nonlinear network", write=f"activation: {LINEAR}", **wording)
