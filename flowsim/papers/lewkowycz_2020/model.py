"""The solvable model: one sample with label zero, a product of two layers, and the recursion that descent obeys."""

from dataclasses import dataclass
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


Numbers = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class Start:
    """The starts of some descents on R = f²: `product` is 2ηλ, which is ηS where f = 0, and `move` is φ² = 4η²f²/n."""

    product: Numbers
    move: Numbers

    @classmethod
    def of(cls, risk: Numbers, gradient_norm: Numbers, width: Numbers | int, learning_rate: Numbers | float) -> "Start":
        """Return the starts of descents from what is stored of them, as R = f² and ‖∇R‖² = 4f²λ."""
        product = learning_rate * gradient_norm**2 / (2 * risk)
        return cls(product, np.broadcast_to(4 * learning_rate**2 * risk / width, product.shape))


@dataclass(frozen=True)
class End:
    """Where descents are after some steps, in parts of where they began: `kernel` is λ/λ₀, and `peak` the largest R/R₀.

    `kernel` is NaN and `peak` infinite for those that diverged.
    """

    kernel: Numbers
    peak: Numbers

    @property
    def diverged(self) -> np.ndarray:
        """Which descents diverged."""
        return np.isnan(self.kernel)


def ends(start: Start, steps: int | np.ndarray) -> End:
    """Return where descents are after so many `steps`, one number for all or one for each.

    With a = 2ηλ and φ² = 4η²f²/n, a step is φ' = φ(1 − a + φ²), a' = a + φ²(a − 4): the exact recursion of Lewkowycz et
    al. (2020), f' = f(1 − ηλ + η²f²/n), λ' = λ + (ηf²/n)(ηλ − 4) for ½f², at their η, twice ours.
    """
    a, phi = np.array(start.product, float), np.sqrt(start.move)
    largest, lost = np.abs(phi), np.zeros(a.shape, bool)
    for step in range(int(np.max(steps, initial=0))):
        moving = (step < np.asarray(steps)) & ~lost
        a, phi = (
            np.where(moving, a + phi**2 * (a - 4), a),
            np.where(moving, phi * (1 - a + phi**2), phi),
        )
        lost |= np.abs(phi) > 1e6  # φ² can only fall where ηλ < 2, and grows like its cube where it is above 4
        largest = np.maximum(largest, np.abs(phi))
    return End(np.where(lost, np.nan, a / start.product), np.where(lost, np.inf, largest**2 / start.move))
