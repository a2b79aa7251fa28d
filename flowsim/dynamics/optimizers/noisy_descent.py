"""Full-batch descent with the noise of minibatches, made Gaussian, and the stochastic equation that it discretizes."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ...problems import Draw, Minibatches, Problem, WeightedRisk
from ..descent import DESCENTS, DescentState
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .sgd import SGD


class GaussianWeights(Minibatches):
    """All samples, with Gaussian weights of mean 1/n under which a gradient varies as that of a minibatch does.

    With z standard Gaussian and v the variance factor, sample i weighs 1/n + √(mv/n)(z_i − z̄), m = `substeps`:
    the gradient has the mean ∇R, and m times the covariance that those of minibatches have. The z of m draws in a row
    are increments of one Brownian path, times √m: more substeps resolve it further.
    """

    substeps: int = eqx.field(static=True, default=1)

    def samples_in_step(self, count: int) -> int:
        """Return all of them."""
        return count

    def first(self, problem: Problem) -> Draw:
        """Return the draw before the first step."""
        return replace(super().first(problem), order=None)

    def taken(self, problem: Problem, draw: Draw) -> Problem:
        """Return the problem with the weights of the next step."""
        size = (self.variance_factor(problem) * self.substeps / draw.samples) ** 0.5
        noise = self._noise(draw)
        return WeightedRisk(problem, 1 / draw.samples + size * (noise - jnp.mean(noise)))

    def _noise(self, draw: Draw) -> Float[Array, " n"]:
        """Return z for a substep: the increments of a Brownian path, which Lévy's construction cuts in halves."""
        key = jax.random.fold_in(jax.random.key(self.seed), draw.count // self.substeps)
        within, levels = draw.count % self.substeps, self.substeps.bit_length() - 1

        def normal(node: Int[Array, ""] | int) -> Float[Array, " n"]:
            return jax.random.normal(jax.random.fold_in(key, node), (draw.samples,))

        noise = normal(0)
        for level in range(levels):
            half = within >> (levels - 1 - level)  # the number of the half at this level that the substep is in
            side = 1 - 2 * (half % 2)
            noise = (noise + side * normal(2**level + half // 2)) / 2**0.5
        return noise


@DESCENTS.register("noisy_descent")
@DYNAMICS.register("noisy_descent")
class NoisyDescent(SGD):
    """W ← W − η(∇R(W) + ξ), ξ Gaussian with the covariance that ∇R_B has over minibatches B of `batch` samples there.

    With m = `substeps` it is the method of Euler and Maruyama, in m steps of the time η/m, for the stochastic
    differential equation of SGD (Li, Tai and E 2017): dW = −∇R(W) dt + (ηΣ_B(W))^(1/2) dβ, with Σ_B that covariance and
    β a Brownian motion. At m = 1 that is noisy full-batch descent. Its `steps` are those of η/m. A `seed` decides on
    the path of β, which is the same for all m, powers of two: the difference of two estimates the error of the coarser.
    Without `replacement` Σ_B is that of one batch; that the batches of an epoch sum to all samples is not in it. A step
    costs a full gradient. Raises `ValueError` as `SGD`, for substeps that are no power of two, and for several of them
    with momentum, whose equation is another.
    """

    substeps: int = eqx.field(static=True, default=1)
    """m, the number of steps in the time η: 1, 2, 4, …; the larger, the closer to the stochastic equation."""

    def __check_init__(self):
        m = self.substeps
        if not isinstance(m, int) or isinstance(m, bool) or m < 1 or m & (m - 1):
            raise ValueError(f"substeps must be 1, 2, 4 or another power of two, got {m!r}")
        if m > 1 and self.momentum is not None:
            raise ValueError(f"substeps={m} with momentum: expected one of the two; leave substeps or momentum out")

    def minibatches(self) -> Minibatches:
        """Return how the weights of the samples are drawn."""
        return GaussianWeights(self.batch, self.seed, self.replacement, self.substeps)

    def time_of_step(self) -> Scalar:
        """Return η/m, with momentum η/(1 − β)."""
        return super().time_of_step() / self.substeps

    def step(self, weights: PyTree, gradient: PyTree, memory: PyTree | None) -> tuple[PyTree, PyTree | None]:
        """Return W − (η/m)g, or with momentum W − ηv and v."""
        return super().step(weights, jax.tree.map(lambda g: g / self.substeps, gradient), memory)

    def work(self, state: DescentState, steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return one gradient for each step and one for the start, and one for each termination check."""
        _, none = super().work(state, steps)
        epochs = 0 if state.draw is None else (steps + 1) // state.draw.batches
        return steps + 2 + epochs, none
