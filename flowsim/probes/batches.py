"""Means over all minibatches of a size: exact where they can be listed, else with an interval of confidence."""

import itertools
import math
from collections import Counter
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..networks.weights import weight_count
from ..problems import Minibatches, Problem, on_samples
from .probe import Moment, Probe

BLOCK = 64
"""So many minibatches are drawn before it is asked whether their mean is precise."""


class BatchProbe(Probe):
    """A probe of the minibatches of `batch` samples. Raises `ValueError` for a batch that cannot be."""

    batch: int = eqx.field(static=True)
    """Number of samples in one minibatch."""
    replacement: bool = eqx.field(static=True, default=False, kw_only=True)
    """Whether the samples of a minibatch are drawn with replacement."""

    def __check_init__(self):
        self.sampler()

    def sampler(self) -> Minibatches:
        """Return how minibatches are drawn."""
        return Minibatches(self.batch, 0, self.replacement)

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a problem that holds no samples, or fewer than a batch."""
        self.sampler().samples_of(problem)


class SampledProbe(BatchProbe):
    """A mean over all minibatches: exact where it takes at most `draws`, else from random ones, until it is precise.

    Raises `ValueError`, too, for `draws` or `rtol` that cannot be.
    """

    draws: int = eqx.field(static=True, default=1024, kw_only=True)
    """Up to so many minibatches are listed, or drawn."""
    rtol: float = eqx.field(static=True, default=0.01, kw_only=True)
    """Half width of the 95 % interval relative to the mean, at which no more minibatches are drawn."""

    def __check_init__(self):
        if not isinstance(self.draws, int | np.integer) or isinstance(self.draws, bool) or self.draws < BLOCK:
            raise ValueError(f"draws must be a whole number, {BLOCK} or more, got {self.draws!r}")
        if not isinstance(self.rtol, int | float | np.number) or not 0 < self.rtol < 1:
            raise ValueError(f"rtol must be a number between 0 and 1, got {self.rtol!r}")

    def is_precise(self, value: Float[Array, ""], half_width: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a mean is known to `rtol`."""
        return half_width <= self.rtol * jnp.abs(value)


class BatchMean(eqx.Module):
    """The mean of m numbers over all batches, and the covariance of the error of that mean: zero where it is exact."""

    mean: Float[Array, " m"]
    covariance: Float[Array, "m m"]

    @property
    def half_widths(self) -> Float[Array, " m"]:
        """Two standard errors, the half width of an interval of 95 %."""
        return 2 * jnp.sqrt(jnp.diagonal(self.covariance))

    def ratio(self, one: int, other: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the ratio of two of the means, and two standard errors of it, to first order (the delta method)."""
        ratio = self.mean[one] / self.mean[other]
        slope = jnp.zeros_like(self.mean).at[one].set(1 / self.mean[other]).at[other].set(-ratio / self.mean[other])
        return ratio, 2 * jnp.sqrt(jnp.maximum(slope @ self.covariance @ slope, 0))


def mean_over_batches(
    measure: Callable[[Problem], Float[Array, " m"]],
    moment: Moment,
    sampler: Minibatches,
    *,
    most: int,
    is_precise: Callable[[BatchMean], Bool[Array, ""]],
    of_all: bool = False,
    block: int = BLOCK,
    numbers_at_once: int = 2**22,
) -> BatchMean:
    """Return the mean of `measure` over all batches of a `sampler`, each the problem on its samples.

    Exact where there are no more than `most` batches, each listed once; else over random ones, `block` at a time, until
    the mean `is_precise`, or `most` have been drawn. A mean that is looked at until it is precise is so a little early:
    at least one block keeps that small. Draws follow from the time and the gradient of the moment, so that those of two
    records are independent, and those of a run the same again. So many batches are measured at once as keep
    `numbers_at_once` in weights, or in a pass over their samples, `of_all` samples where `measure` takes products with
    the whole Hessian.
    """
    count = sampler.samples_of(moment.problem)
    numbers = (moment.problem.pass_bytes(moment.network) or 0) / 8 * (1 if of_all else sampler.size / count)
    at_once = int(max(1, min(block, numbers_at_once / max(numbers, weight_count(moment.network)))))

    def of_batch(chosen: Int[Array, " batch"]) -> Float[Array, " m"]:
        return measure(on_samples(moment.problem, chosen))

    if (listed := _all_batches(count, sampler, most)) is not None:
        batches, shares = listed
        measured = jax.lax.map(of_batch, jnp.asarray(batches), batch_size=min(at_once, len(batches)))
        mean = jnp.asarray(shares, measured.dtype) @ measured
        return BatchMean(mean, jnp.zeros((mean.size, mean.size), mean.dtype))

    key = jax.random.key(sampler.seed)
    for number in (moment.time, moment.gradient_norm):
        key = jax.random.fold_in(key, jax.lax.bitcast_convert_type(number.astype(jnp.float32), jnp.uint32))

    def drawn(number: Int[Array, ""]) -> Float[Array, " m"]:
        own = jax.random.fold_in(key, number)
        return of_batch(jax.random.choice(own, count, (sampler.size,), replace=sampler.replacement))

    def so_far(drawn: Int[Array, ""], mean: Array, scatter: Array) -> BatchMean:
        return BatchMean(mean, scatter / drawn.astype(mean.dtype) / (drawn - 1).astype(mean.dtype))

    def goes_on(state: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        return (state[0] == 0) | ((state[0] + block <= most) & ~is_precise(so_far(*state)))

    def further(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        before, mean, scatter = state
        found = jax.lax.map(drawn, before + jnp.arange(block), batch_size=at_once)
        middle, after = jnp.mean(found, axis=0), before + block
        off, step = found - middle[None], middle - mean
        share = (block / after).astype(mean.dtype)
        between = before.astype(mean.dtype) * share * jnp.outer(step, step)  # Chan, Golub and LeVeque (1983)
        return after, mean + share * step, scatter + off.T @ off + between

    size = jax.eval_shape(drawn, jnp.array(0))
    nothing = jnp.zeros(size.shape, size.dtype)
    return so_far(*jax.lax.while_loop(goes_on, further, (jnp.array(0), nothing, jnp.outer(nothing, nothing))))


def mean_over_samples(
    measure: Callable[[Problem], Float[Array, " m"]],
    moment: Moment,
    *,
    most: int | None = None,
    is_precise: Callable[[BatchMean], Bool[Array, ""]] = lambda _: jnp.array(True),
    of_all: bool = False,
) -> BatchMean:
    """Return the mean of `measure` over the problem on each sample alone, as that over batches; by default exact."""
    count = moment.problem.sample_count() or 0
    sampler = Minibatches(1, 0, replacement=True)
    most = count if most is None else most
    return mean_over_batches(measure, moment, sampler, most=most, is_precise=is_precise, of_all=of_all)


def _all_batches(count: int, sampler: Minibatches, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return all batches of so many samples, and how often each comes up; `None` for more than `most`.

    Those with replacement that are the same but for their order are one.
    """
    size = sampler.size
    # n over k with k ≤ n/2 is at least 2 to the power of k: beyond that nothing is computed.
    sizes = (count + size - 1, min(size, count - 1)) if sampler.replacement else (count, min(size, count - size))
    if sizes[1] > int(most).bit_length():
        return None
    if (number := math.comb(*sizes)) > most:
        return None
    if not sampler.replacement:
        return np.array(list(itertools.combinations(range(count), size))), np.full(number, 1 / number)
    batches = np.array(list(itertools.combinations_with_replacement(range(count), size)))
    orders = [
        math.factorial(size) // math.prod(map(math.factorial, Counter(batch).values())) for batch in batches.tolist()
    ]
    return batches, np.array([number / count**size for number in orders])
