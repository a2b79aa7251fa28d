"""Whether the errors of a solver fall with its steps as those of a smooth field do."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

# The tolerance is loosened up to this, and by such factors.
_COARSEST = 3e-4
_LOOSER, _TIGHTER = 4.0, 0.995
# Where a field jumps the error of a step falls like its length; the methods here are of order two at least.
_LOWEST_ORDER = 1.5
# So many signs of a jump, each forgotten over some ten steps, are one too many. A step that is slow alone counts
# little, as the derivative of f may jump there, as with the Huber loss; rough ones count if many of them are.
_SIGNS, _FORGOTTEN, _SLOW_COUNTS, _ROUGH_COUNTS = 1.5, 0.9, 0.25, 0.4


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

    @classmethod
    def unknown(cls, dtype: jnp.dtype) -> "Smoothness":
        """Return what is known before the first step."""
        one, zero = jnp.ones((), dtype), jnp.zeros((), dtype)
        return cls(one, one, zero, zero, zero)

    def after(
        self,
        size: Float[Array, ""],
        length: Float[Array, ""],
        way: Float[Array, ""],
        kept: Bool[Array, ""],
        rtol: Float[Array, ""],
        *,
        rough: ArrayLike,
    ) -> "Smoothness":
        """Return what is known after an attempt with an error of a `size` in units of the tolerance.

        `way` is how far the step goes, relative to the weights. Where that is less than the tolerance, near a limit,
        rounding may make up what is taken for its error.
        """
        again = (way > rtol) & (self.length > length) & jnp.isfinite(size) & jnp.isfinite(self.size)
        fall, shortening = self.size / size, self.length / length
        slow, rough = again & (fall < shortening**_LOWEST_ORDER), (way > rtol) & rough
        sign = slow | rough
        weight = jnp.where(slow, jnp.where(rough, 1, _SLOW_COUNTS), jnp.where(rough, _ROUGH_COUNTS, 0))
        signs = jnp.where(kept, _FORGOTTEN, 1) * self.signs + weight
        looser = jnp.minimum(_LOOSER * self.slack, jnp.maximum(_COARSEST / rtol, 1))
        slack = jnp.where(sign & (signs > _SIGNS), looser, jnp.where(kept, _TIGHTER, 1) * self.slack)
        slack = jnp.maximum(slack, 1)
        size, length = (jnp.where(kept, 0, number).astype(slack.dtype) for number in (size, length))
        return Smoothness(slack, jnp.maximum(self.most, slack), signs, size, length)
