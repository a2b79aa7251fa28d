"""Nesterov's accelerated gradient with constant momentum."""

from typing import TYPE_CHECKING, ClassVar

from ..descent import DESCENTS
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .transformed import Transformed, check_decay

if TYPE_CHECKING:
    import optax


@DESCENTS.register("nesterov")
@DYNAMICS.register("nesterov")
class Nesterov(Transformed):
    """v ← βv + ∇R(W), W ← W − η(∇R(W) + βv): `optax.sgd(η, momentum=β, nesterov=True)`.

    W is the point at which the gradient is taken, Nesterov's extrapolated one (Sutskever et al. 2013, appendix A.1). As
    η → 0 at fixed β a step takes the time η/(1 − β) of the gradient flow, as that of the heavy ball does. Raises
    `ValueError` for a momentum that is not in [0, 1).
    """

    momentum: float = 0.9
    """β, the part of the velocity that a step keeps: at least 0, less than 1."""

    shapes_count: ClassVar[bool] = False

    def __check_init__(self):
        check_decay("momentum", self.momentum)

    def transformation(self) -> "optax.GradientTransformation":
        """Return Optax's momentum in the form of Nesterov."""
        import optax

        return optax.sgd(self.learning_rate, momentum=self.momentum, nesterov=True)

    def time_of_step(self) -> Scalar:
        """Return η/(1 − β)."""
        return self.learning_rate / (1 - self.momentum)

    def stability_threshold(self) -> Scalar:
        """Return (2 + 2β)/((1 + 2β)η).

        A mode of curvature λ has the characteristic polynomial z² − (1 + β)(1 − ηλ)z + β(1 − ηλ), a root of which
        leaves the unit disk at −1 there (Cohen et al. 2021, appendix B).
        """
        return (2 + 2 * self.momentum) / ((1 + 2 * self.momentum) * self.learning_rate)
