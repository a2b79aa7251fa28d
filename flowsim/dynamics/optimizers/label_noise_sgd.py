"""SGD whose targets get fresh noise in every step."""

import jax
from jax.core import Tracer

from ...problems import Draw, Minibatches, Problem
from ..descent import DESCENTS
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .sgd import SGD
from .transformed import is_number

# Folded into the seed, so that noise and minibatches are independent: beyond all numbers of steps and epochs.
_NOISE_STREAM = 2**31 + 1


class NoisyLabels(Minibatches):
    """Minibatches whose targets get independent noise N(0, `deviation`²) at each draw."""

    deviation: Scalar = 1.0

    def samples_of(self, problem: Problem) -> int:
        """Return how many samples there are to draw from; `ValueError`, too, for targets that are no numbers."""
        count = super().samples_of(problem)
        if problem.with_label_noise(jax.random.key(0), 0.0) is None:
            raise ValueError(
                f"label noise is added to targets that are numbers, and {type(problem).__name__} has none here: "
                "expected real y and a loss of numbers, such as SquaredError()"
            )
        return count

    def taken(self, problem: Problem, draw: Draw) -> Problem:
        """Return the problem on the next batch, with noise on its targets."""
        key = jax.random.fold_in(jax.random.key(self.seed), _NOISE_STREAM)
        noisy = super().taken(problem, draw).with_label_noise(jax.random.fold_in(key, draw.count), self.deviation)
        assert noisy is not None  # as `samples_of` has looked
        return noisy


@DESCENTS.register("label_noise_sgd")
@DYNAMICS.register("label_noise_sgd")
class LabelNoiseSGD(SGD):
    """SGD whose targets get independent noise N(0, `deviation`²) in every step (Blanc et al. 2020).

    With y + ε for y in a squared error ‖f − y‖², the noise of the gradient is −(2/B) Σ_i ε_i∇f_i: where f fits its
    data, of covariance 2σ²H/B, H = ∇²R and σ the deviation. So with a full batch and without momentum the weights
    fluctuate about a minimum by the variance 2ησ²/(n(2 − ηλ)) in a mode of curvature λ, which is about ησ²/n in all of
    them, and drift down tr H (Damian, Ma and Lee 2021); smaller batches add the noise of their curvatures. Risks in
    records are those without noise. Raises `ValueError` as `SGD`, for a deviation that is not finite or below zero, and
    for targets that are no numbers.
    """

    deviation: float = 1.0
    """σ, the standard deviation of the noise on each target."""

    def __check_init__(self):
        known = isinstance(self.deviation, Tracer) or (is_number(self.deviation) and 0 <= self.deviation < float("inf"))
        if not known:
            raise ValueError(f"deviation must be a finite number, zero or more, got {self.deviation!r}")

    def minibatches(self) -> Minibatches:
        """Return how samples and noise are drawn."""
        return NoisyLabels(self.batch, self.seed, self.replacement, self.deviation)
