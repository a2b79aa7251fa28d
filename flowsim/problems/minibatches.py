"""Which samples each step of a stochastic descent takes, by a seed and the number of the step, or how they weigh."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from .problem import Problem, on_samples


class Draw(eqx.Module):
    """Where a sequence of minibatches is."""

    count: Int[Array, ""]
    """The number of the next one, counted from 0."""
    order: Integer[Array, " n"] | None
    """The permutation of all samples of this epoch, `None` where none is drawn."""
    largest: Float[Array, ""]
    """The largest norm of a gradient of its batches so far."""
    samples: int = eqx.field(static=True)
    """The number of all samples."""
    batches: int = eqx.field(static=True)
    """How many batches an epoch has."""

    @property
    def ends_epoch(self) -> Bool[Array, ""]:
        """Whether the next batch is the last of its epoch."""
        return (self.count + 1) % self.batches == 0

    def seen(self, gradient_norm: Float[Array, ""]) -> "Draw":
        """Return the draw with the norm of the gradient of the next batch."""
        before = jnp.where(self.count % self.batches == 0, 0, self.largest).astype(gradient_norm.dtype)
        return replace(self, largest=jnp.maximum(before, gradient_norm))


def as_seed(seed: int) -> Any:
    """Return a seed as an array, so that another one needs no new compilation; `ValueError` for what is none."""
    number = seed if isinstance(seed, jax.Array) else np.asarray(seed)
    if number.ndim or number.dtype.kind not in "iu" or (isinstance(number, np.ndarray) and not 0 <= number < 2**32):
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}")
    return number.astype(np.uint32)


class Minibatches(eqx.Module):
    """Minibatches of a fixed number of samples.

    Without replacement every epoch has a new order of all n samples, cut into ⌊n/size⌋ batches; the n mod size samples
    at its end sit it out. With it every batch is independent, and ⌊n/size⌋ of them count as an epoch. Batch k is the
    same in every process, under `jax.jit` and `jax.vmap`, and after a checkpoint. Raises `ValueError` for a size or
    seed that cannot be.
    """

    size: int = eqx.field(static=True)
    """The number of samples in one."""
    seed: Any = eqx.field(converter=as_seed)  # a scalar of uint32, from whatever was given
    """What they are drawn by: a number or a scalar array, which becomes one of uint32."""
    replacement: bool = eqx.field(static=True, default=False)
    """Whether samples are drawn with replacement."""

    def __check_init__(self):
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 1:
            raise ValueError(f"batch must be a number of samples, one or more, got {self.size!r}")
        if not isinstance(self.replacement, bool):
            raise ValueError(f"replacement must be True or False, got {self.replacement!r}")

    def variance_factor(self, problem: Problem) -> float:
        """Return the variance of the mean over a batch of B samples relative to that of one sample: 1/B.

        Without `replacement` it is (n − B)/(B(n − 1)), zero for a batch of all n (Cochran 1977, theorem 2.2).
        """
        count = self.samples_of(problem)
        left = 1.0 if self.replacement else (count - self.size) / max(count - 1, 1)
        return left / self.size

    def samples_in_step(self, count: int) -> int:
        """Return on how many of `count` samples a step works."""
        return self.size

    def first(self, problem: Problem) -> Draw:
        """Return the draw before the first step. Raises as `samples_of`."""
        count = self.samples_of(problem)
        start, order = jnp.array(0, jnp.int32), None if self.replacement else self._order(jnp.array(0), count)
        return Draw(start, order, jnp.zeros(()), count, count // self.size)

    def samples_of(self, problem: Problem) -> int:
        """Return how many samples there are to draw from.

        Raises `ValueError` for a problem that holds none, or fewer than a batch.
        """
        count = problem.sample_count()
        if count is None:
            raise ValueError(
                f"minibatches are drawn from samples, and {type(problem).__name__} holds none: expected a "
                "flowsim.EmpiricalRisk(X, y, loss), a flowsim.LinearRegression(X, y, keep_samples=True), or a problem "
                "of your own with sample_count() and subsample(chosen)"
            )
        if count < self.size:
            raise ValueError(f"batch={self.size} is more than the {count} samples: write {count} or fewer")
        return count

    def next(self, draw: Draw) -> Draw:
        """Return the draw after one more batch."""
        count = draw.count + 1
        if draw.order is None:
            return replace(draw, count=count)
        fresh = partial(self._order, count // draw.batches, draw.samples)
        return replace(draw, count=count, order=jax.lax.cond(count % draw.batches == 0, fresh, lambda: draw.order))

    def taken(self, problem: Problem, draw: Draw) -> Problem:
        """Return the problem on the next batch, its samples in their order among all, so that they add up alike."""
        if draw.order is None:
            key = jax.random.fold_in(jax.random.key(self.seed), draw.count)
            chosen = jax.random.randint(key, (self.size,), 0, draw.samples, jnp.int32)
        else:
            first = (draw.count % draw.batches) * self.size
            chosen = jax.lax.dynamic_slice_in_dim(draw.order, first, self.size)
        return on_samples(problem, jnp.sort(chosen))

    def _order(self, epoch: Int[Array, ""], count: int) -> Integer[Array, " n"]:
        key = jax.random.fold_in(jax.random.key(self.seed), epoch)
        return jax.random.permutation(key, jnp.arange(count, dtype=jnp.int32))


class WeightedRisk(Problem):
    """Σ_i c_i R_i, with R_i the risk of a problem on its sample i. With c_i = 1/n it is the risk of the problem.

    Raises `ValueError` for another number of weights than of samples.
    """

    problem: Problem
    """The problem."""
    weights: Float[Array, " n"]
    """c_i, which may be negative."""

    def __check_init__(self):
        count = self.problem.sample_count()
        if eqx.is_array(self.weights) and self.weights.shape != (count,):
            raise ValueError(f"the weights have shape {self.weights.shape}: expected ({count},), one for each sample")

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return the weighted sum."""
        risks = self.problem.sample_risks(network)
        return jnp.sum(self.weights.astype(risks.dtype) * risks)
