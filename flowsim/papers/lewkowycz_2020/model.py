"""The model that can be solved: one sample with label zero, and a product of two layers."""

from pathlib import Path
from typing import Annotated

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from ...data import Data, DataSource


class OneSample(DataSource):
    """One sample x = 1 with label 0: the risk of a network is f(1)², twice the ½f² of the paper."""

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Return X = (1), (1, 1), and y = (0), (1,)."""
        return Data((np.ones((1, 1)), np.zeros(1)))

    def dimensions(self) -> tuple[int, int]:
        """Return that there is one number and one label."""
        return 1, 1

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return samples, inputs and outputs."""
        return 1, 1, 1


_Width = Annotated[int, Field(description="Width n of the hidden layer.")]
_Scale = Annotated[float, Field(description="Standard deviation of every weight at the start.")]


class TwoLayers(eqx.Module):
    """f(x) = vᵀUx/√n with `width` n, entries of U (n, d) and v (n,) drawn from N(0, scale²).

    The kernel of one sample x = 1, λ = (‖U‖² + ‖v‖²)/n, is about 2·scale², and f about scale², at any width: at
    scale 0.5 the sharpness of f², λ + √(λ² + 12f²/n), begins at about one. Raises `ValueError` for a width below one.
    """

    first: Float[Array, "n d"]
    last: Float[Array, " n"]

    def __init__(self, in_size: int, width: _Width = 1024, scale: _Scale = 0.5, *, key: Array):
        if width < 1:
            raise ValueError(f"width is {width}: expected one or more")
        one, two = jax.random.split(key)
        self.first = scale * jax.random.normal(one, (width, in_size))
        self.last = scale * jax.random.normal(two, (width,))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the prediction for one sample, a number."""
        return self.last @ (self.first @ x) / self.last.size**0.5
