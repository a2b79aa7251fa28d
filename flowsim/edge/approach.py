"""How steps are shortened until one ends where an event is, by the secant method."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Approach(eqx.Module):
    """The last step from here that went past an event: its `length`, the `signals` at its end, and which try it was.

    `ordinary` is the length of steps before they were shortened, zero where they were not.
    """

    length: Float[Array, ""]
    signals: Float[Array, " events"]
    tries: Int[Array, ""]
    ordinary: Float[Array, ""]

    @classmethod
    def none(cls, begin: Float[Array, " events"], ordinary: Float[Array, ""]) -> "Approach":
        """Return that no step went too far."""
        far = jnp.full_like(ordinary, jnp.inf)
        return cls(far, jnp.full_like(begin, jnp.inf), jnp.array(0), ordinary)

    def passed(
        self, end: Float[Array, " events"], met: Float[Array, " events"], *, most_tries: int = 12
    ) -> Bool[Array, ""]:
        """Tell whether a step that ends with these signals went past an event by more than is `met`.

        For one event a step is shortened up to `most_tries` times; what jumps past it is not met.
        """
        return jnp.any(end > met) & (self.tries < most_tries)

    def shortened(
        self, h: Float[Array, ""], begin: Float[Array, " events"], end: Float[Array, " events"]
    ) -> tuple[Float[Array, ""], "Approach"]:
        """Return the length at which, by a secant, the first signal is zero, and what is known then."""
        again = jnp.isfinite(self.length) & jnp.isfinite(self.signals) & (self.signals != end)
        length, value = jnp.where(again, self.length, 0), jnp.where(again, self.signals, begin)
        guess = h - end * (h - length) / jnp.where(end > value, end - value, jnp.where(end < value, end - value, 1))
        guess = jnp.where((guess > 0) & (guess < h), guess, h / 2)
        first = jnp.min(jnp.where(end > 0, guess, h))
        return first, Approach(h, end, self.tries + 1, jnp.maximum(self.ordinary, h))

    def onward(
        self, h: Float[Array, ""], end: Float[Array, " events"], met: Float[Array, " events"]
    ) -> tuple[Float[Array, ""], "Approach"]:
        """Return the length of the step after one that is kept, zero where the solver is free, and what is known then.

        At an event steps are as long again as they were; just before it, the next one leads there.
        """
        there = jnp.any(jnp.abs(end) <= met)
        rate = (self.signals - end) / (self.length - h)
        ahead = jnp.isfinite(self.signals) & (self.signals > 0) & (rate > 0) & (end < 0)
        left = jnp.min(jnp.where(ahead, -end / jnp.where(ahead, rate, 1), jnp.inf))
        left = jnp.where(jnp.isfinite(self.length) & jnp.isfinite(left), left, 0)
        length = jnp.where(there, self.ordinary, left)
        return length, Approach.none(end, jnp.where(there, 0, self.ordinary))
