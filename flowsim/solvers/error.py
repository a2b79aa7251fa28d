"""The size of an error in units of the tolerance, how it falls with the step, and what it says of the next step."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from ..networks.weights import norm


def scaled_norm(error: PyTree, y0: PyTree, y1: PyTree, rtol: Any, atol: Any) -> Float[Array, ""]:
    """Return the root mean square of error / (atol + rtol max(|y0|, |y1|)), as Diffrax's PIDController does.

    It is infinite where the error is not finite. Raises `ValueError` without tolerances.
    """
    if rtol is None or atol is None:
        raise ValueError("this solver chooses its steps by rtol and atol: give it those of the step-size controller")

    def square(e: Array, a: Array, b: Array) -> Array:
        # A candidate that is not finite is measured by where it came from.
        unit = atol + rtol * jnp.maximum(jnp.abs(a), jnp.where(jnp.isfinite(b), jnp.abs(b), 0))
        return jnp.sum((e / unit) ** 2)

    squares = jax.tree.leaves(jax.tree.map(square, error, y0, y1))
    size = jnp.sqrt(sum(squares) / sum(leaf.size for leaf in jax.tree.leaves(y0)))
    return jnp.where(jnp.isfinite(size), size, jnp.inf)


def growth(size: Float[Array, "..."], order: Any, *, safety: float = 0.8, largest: float = 10.0) -> Float[Array, "..."]:
    """Return the factor to the step at which an error of scaled norm `size`, of this order in h, is just allowed.

    It is multiplied by `safety` and cut at `largest`, the usual values (Hairer, Nørsett and Wanner, II.4).
    """
    return jnp.minimum(safety * jnp.maximum(size, 1e-30) ** (-1 / order), largest)


def size_beside_increment(error: PyTree, increment: PyTree, y0: PyTree, *, share: float = 0.1) -> Float[Array, ""]:
    """Return the size of an error in units of a `share` of the increment of the step, or of the rounding of y0.

    Near a limit, steps as long as the tolerance allows may circle it with errors as large as the tolerance. A step
    whose error is a small part of its increment comes closer each time.
    """
    rounding = 100 * jnp.finfo(jax.tree.leaves(y0)[0].dtype).eps * norm(y0)
    return norm(error) / (share * norm(increment) + rounding)


def first_length(
    y0: PyTree, slope: PyTree, rtol: Any, atol: Any, *, share: float = 0.01, at_zero: float = 1e-6
) -> Float[Array, ""]:
    """Return a length for the first step: what moves y0 by a hundredth of itself (Hairer, Nørsett and Wanner, II.4).

    Where all weights are zero, it moves them by a hundredth; where the field is zero, it is `at_zero`.
    """
    ones = jax.tree.map(jnp.ones_like, y0)
    own, unit, speed = (scaled_norm(vector, y0, y0, rtol, atol) for vector in (y0, ones, slope))
    known = (speed > 0) & jnp.isfinite(speed)
    return jnp.where(known, share * jnp.where(own > 0, own, unit) / jnp.where(known, speed, 1), at_zero)


class Smoothness(eqx.Module):
    """By how much the tolerance is loosened as the field jumps, as the gradient of a ReLU network does.

    At a jump the error of a step falls like its length, whatever the order of the method: an adaptive method grinds its
    steps to the tolerance and gains nothing. One sign of it is a step that is tried again, shorter, with an error that
    fell so slowly; another a step that its solver calls rough: with many jumps ahead, or in a valley along one that the
    steps cross one after the other, errors stay the same. Where signs accumulate, the tolerance is multiplied by a
    `slack` that rises until they end, up to a relative tolerance of 3·10⁻⁴, and falls slowly in between; `most` is the
    largest so far, one for a smooth field.
    `size` and `length` are those of the attempt before if it was rejected, else zero.
    """

    slack: Float[Array, ""]
    most: Float[Array, ""]
    signs: Float[Array, ""]
    size: Float[Array, ""]
    length: Float[Array, ""]
    coarsest: float = eqx.field(static=True, default=3e-4)
    """The relative tolerance up to which it is loosened."""
    looser: float = eqx.field(static=True, default=4.0)
    tighter: float = eqx.field(static=True, default=0.995)
    """The factors to the slack at a jump and after a smooth step."""
    lowest_order: float = eqx.field(static=True, default=1.5)
    """An error that falls more slowly is that of a jump, of order one; the methods here are of order two at least."""
    too_many: float = eqx.field(static=True, default=1.5)
    kept: float = eqx.field(static=True, default=0.9)
    """More signs than `too_many` loosen the tolerance; each is forgotten over some ten steps."""
    slow_counts: float = eqx.field(static=True, default=0.25)
    rough_counts: float = eqx.field(static=True, default=0.4)
    """A step that is only slow counts little, as with the Huber loss the derivative of f alone may jump."""

    @classmethod
    def unknown(cls, dtype: jnp.dtype) -> "Smoothness":
        """Return what is known before the first step."""
        one, zero = jnp.ones((), dtype), jnp.zeros((), dtype)
        return cls(one, one, zero, zero, zero)

    def after(
        self,
        size: Float[Array, ""],
        length: Float[Array, ""],
        distance: Float[Array, ""],
        kept: Bool[Array, ""],
        rtol: Float[Array, ""],
        *,
        rough: ArrayLike,
    ) -> "Smoothness":
        """Return what is known after an attempt with an error of a `size` in units of the tolerance.

        `distance` is how far the step goes, relative to the weights. Where that is less than the tolerance, near a
        limit, rounding may make up what is taken for its error.
        """
        again = (distance > rtol) & (self.length > length) & jnp.isfinite(size) & jnp.isfinite(self.size)
        fall, shortening = self.size / size, self.length / length
        slow, rough = again & (fall < shortening**self.lowest_order), (distance > rtol) & rough
        sign = slow | rough
        weight = jnp.where(slow, jnp.where(rough, 1, self.slow_counts), jnp.where(rough, self.rough_counts, 0))
        signs = jnp.where(kept, self.kept, 1) * self.signs + weight
        looser = jnp.minimum(self.looser * self.slack, jnp.maximum(self.coarsest / rtol, 1))
        slack = jnp.where(sign & (signs > self.too_many), looser, jnp.where(kept, self.tighter, 1) * self.slack)
        slack = jnp.maximum(slack, 1)
        size, length = (jnp.where(kept, 0, number).astype(slack.dtype) for number in (size, length))
        return replace(self, slack=slack, most=jnp.maximum(self.most, slack), signs=signs, size=size, length=length)
