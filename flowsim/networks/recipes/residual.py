"""The kind of network called residual: a deep linear one that starts near the identity."""

from collections.abc import Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array
from pydantic_core import PydanticCustomError

from ...kinds.recipes import validation_error
from ...kinds.recipes.values import Depth, Scale
from ..linear import DeepLinear
from .recipe import NETWORKS, Keys, NetworkRecipe


@NETWORKS.register("residual")
class ResidualNetwork(NetworkRecipe):
    """A deep linear residual network: W_k = I + scale/√(depth·features)·N_k with N_k standard Gaussian."""

    start_options: ClassVar[frozenset[str]] = frozenset({"scale"})
    varied: ClassVar[frozenset[str]] = frozenset({"depth"})

    depth: Depth
    """Number of weight matrices L."""
    scale: Scale
    """Standard deviation s of the initialization, times 1/√(depth·features); 0 is the identity."""

    def build(self, inputs: int, outputs: int, *, key: Array, shared: Keys) -> DeepLinear:
        """Return the network, as wide as there are features, with a projection if there is one output."""
        direction = jax.random.normal(shared("projection"), (inputs,))
        projection = direction / jnp.linalg.norm(direction) if outputs == 1 else None
        return DeepLinear.residual(width=inputs, depth=self.depth, scale=self.scale, projection=projection, key=key)

    def is_linear(self) -> bool:
        """Return that it is."""
        return True

    def starts_near_identity(self) -> bool:
        """Return that it does."""
        return True

    def count_matrices(self) -> int:
        """Return the depth L."""
        return self.depth

    def count_weights(self, inputs: int | None, outputs: int | None) -> int:
        """Count the weights, at least; the projection onto one output is not one of them."""
        return self.depth * (inputs or 1) ** 2

    def shape_errors(self, inputs: int | None, outputs: int | None) -> Iterator[PydanticCustomError]:
        """Yield that there are several outputs, but not as many as features."""
        several = outputs is not None and outputs > 1
        if several and inputs is not None and inputs != outputs:
            yield validation_error(
                found=f"a residual network for {inputs} features and {outputs} outputs",
                expected="one output, or as many outputs as features",
                write="kind: mlp",
                at=("kind",),
            )
