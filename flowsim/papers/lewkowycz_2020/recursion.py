"""What descent does with two layers on one sample, without the layers: a recursion of two numbers."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# φ² below ηλ < 2 can only fall; above 4 it grows like the cube of itself, and is lost at once.
_LOST = 1e6

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
        lost |= np.abs(phi) > _LOST
        largest = np.maximum(largest, np.abs(phi))
    return End(np.where(lost, np.nan, a / start.product), np.where(lost, np.inf, largest**2 / start.move))
