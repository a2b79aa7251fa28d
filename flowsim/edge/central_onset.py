"""When the central flow holds an eigenvalue: as soon as descent's oscillation has grown to what it takes.

Where the sharpness passes 2/η descent does not turn: its oscillation is as small there as `flowsim.edge.onset` says,
and has to grow first, r'/r = ln|ηS − 1|/η. It turns the flow along the edge once r² has the size σ² of the covariance
that would keep S where it is. Until then the gradient flow goes on, and S with it.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Growth(eqx.Module):
    """The logarithm of the amplitude r of an oscillation, no less than `log_least`, and ηS − 1 there, the `factor`.

    By the `slope` the factor changes in a step of descent. `missing` is ln σ − ln r, by how much the oscillation is too
    small to hold the sharpness.
    """

    log_amplitude: Float[Array, ""]
    log_least: Float[Array, ""]
    factor: Float[Array, ""]
    slope: Float[Array, ""]
    missing: Float[Array, ""]

    @classmethod
    def unknown(cls, like: Float[Array, ""]) -> "Growth":
        """Return that of an oscillation of which nothing is known."""
        far = jnp.full_like(like, jnp.inf)
        return cls(-far, -far, jnp.ones_like(like), jnp.zeros_like(like), far)

    def after(
        self, steps: Float[Array, ""], factor: Float[Array, ""], slope: Float[Array, ""], *, pieces: int = 32
    ) -> "Growth":
        """Return it after the time of so many `steps` of descent, at the `factor` and `slope` there.

        In between the factor is the cubic polynomial that these determine.
        """
        at = jnp.linspace(0, 1, 2 * pieces + 1, dtype=factor.dtype)
        rise = factor - self.factor
        bend = at * (1 - at) * ((1 - at) * (steps * self.slope - rise) - at * (steps * slope - rise))
        factors = self.factor + at * rise + bend
        begin, middle, end = factors[:-1:2], factors[1::2], factors[2::2]
        # In a straight line, and what a parabola has beside that.
        change = end - begin
        straight = jnp.abs(change) > 1e-6 * jnp.abs(end)
        run = jnp.where(straight, change, 1)
        grown = jnp.where(straight, (_integral(end) - _integral(begin)) / run, _logarithm(end))
        above = 2 / 3 * (middle - (begin + end) / 2)
        grown = grown + jnp.where(jnp.abs(middle) > jnp.abs(above), above / jnp.where(middle == 0, 1, middle), 0)
        # An amplitude that has fallen to the least goes on from there.
        turns = (begin < 1) & (end > 1)
        lowest = jnp.where(turns, (_integral(jnp.ones_like(begin)) - _integral(begin)) / run, jnp.minimum(grown, 0))
        before = jnp.cumsum(grown) - grown
        lowest = self.log_amplitude + steps / pieces * jnp.min(before + lowest)
        found = self.log_amplitude + steps / pieces * jnp.sum(grown) + jnp.maximum(self.log_least - lowest, 0)
        known = jnp.isfinite(self.log_amplitude)
        return Growth(jnp.where(known, found, self.log_amplitude), self.log_least, factor, slope, self.missing)

    def turning(
        self, rate: Float[Array, ""], beyond: Float[Array, ""], eta: Float[Array, ""], *, most_grown: float = 1e4
    ) -> Float[Array, ""]:
        """Return the rate at which an oscillation lets S fall, σ²‖T‖²/2, as it takes over; zero where it decays.

        It is max(rate, 0) + q exp(−most_grown · rate/q), where q = γ(S − 2/η), S is `beyond` the edge by S − 2/η, and
        γ = ln(ηS − 1)/η. Where S rises, that is its `rate`. Where S is at rest, or falls by itself, it is q: an
        oscillation that grows as e^{γt} has taken S half of the way down to the edge when it lets S fall as fast. While
        S rises steadily, rate/q is 1/(2 ln(r/r₀)), far above 1/most_grown, for an amplitude that grew from r₀ to r
        since S passed the edge. ‖T‖² stands for ⟨T, M T⟩.
        """
        falls = jnp.log(jnp.maximum(self.factor, 1)) / eta * jnp.maximum(beyond, 0)
        share = jnp.maximum(rate, 0) / jnp.where(falls > 0, falls, 1)
        wanted = jnp.maximum(rate, 0) + falls * jnp.exp(-most_grown * share)
        return jnp.where(self.factor > 1, wanted, 0)

    def beside(self, variance: Float[Array, ""], *, most: float = 50.0) -> "Growth":
        """Return it beside the σ² that would hold the sharpness: none that is needed where that is not positive.

        What is missing is cut off at `most`, with either sign.
        """
        wanted = jnp.log(jnp.where(variance > 0, variance, 1)) / 2
        missing = jnp.where(variance > 0, jnp.clip(wanted - self.log_amplitude, -most, most), most)
        return dataclasses.replace(self, missing=missing.astype(self.factor.dtype))


def _logarithm(x: Float[Array, " n"]) -> Float[Array, " n"]:
    return jnp.log(jnp.where(x == 0, 1, jnp.abs(x)))


def _integral(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return that of ln|x|."""
    return x * _logarithm(x) - x
