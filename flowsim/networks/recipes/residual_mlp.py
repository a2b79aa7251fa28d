"""The kind of network called residual_mlp: a residual network with an activation."""

from typing import Annotated, ClassVar

from jaxtyping import Array
from pydantic import Field

from ...kinds.recipes import Named
from ...kinds.recipes.values import Count, Depth, Scale
from ..perceptron import ACTIVATIONS
from ..residual_perceptron import ResidualPerceptron
from .recipe import NETWORKS, Inputs, Keys, NetworkRecipe


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
