"""Heavy ball: gradient descent with momentum."""

from typing import TYPE_CHECKING, ClassVar

from ..descent import DESCENTS
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .transformed import Transformed, check_decay

if TYPE_CHECKING:
    import optax


@DESCENTS.register("heavy_ball")
@DYNAMICS.register("heavy_ball")
class HeavyBall(Transformed):
    """v ← βv + ∇R(W), W ← W − ηv, with the `momentum` β (Polyak 1964): `optax.sgd(η, momentum=β)`.

    As η → 0 at fixed β the velocity is v = ∇R/(1 − β), so a step takes the time η/(1 − β) of the gradient flow
    (the first approximation of Kovachki and Stuart 2021). Raises `ValueError` for a momentum that is not in [0, 1).
    """

    momentum: float = 0.9
    """β, the part of the velocity that a step keeps: at least 0, less than 1."""

    shapes_count: ClassVar[bool] = False

    def __check_init__(self):
        check_decay("momentum", self.momentum)

    def transformation(self) -> "optax.GradientTransformation":
        """Return Optax's momentum."""
        import optax

        return optax.sgd(self.learning_rate, momentum=self.momentum)

    def time_of_step(self) -> Scalar:
        """Return η/(1 − β)."""
        return self.learning_rate / (1 - self.momentum)

    def stability_threshold(self) -> Scalar:
        """Return 2(1 + β)/η.

        A mode of curvature λ has the characteristic polynomial z² − (1 + β − ηλ)z + β, both roots of which are in the
        unit disk just where 0 < ηλ < 2(1 + β) and β < 1 (Cohen et al. 2021, appendix B).
        """
        return 2 * (1 + self.momentum) / self.learning_rate
