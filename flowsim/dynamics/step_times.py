"""The times of the steps of a descent: when each ends, how many reach a time, and which a time belongs to."""

import math
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..runtime.compiling import compiled
from .descent import Descent
from .dynamics import Clock


@dataclass(frozen=True)
class StepTimes:
    """When the steps of a descent end, the first of which begins at the time `begin`.

    All steps take the same time, or, where the learning rate changes, each that of the time at which it begins.
    """

    descent: Descent
    """The descent, whose learning rate may change."""
    begin: float = 0.0
    """The time at which the first step begins."""

    @cached_property
    def length(self) -> float | None:
        """The time of each step, `None` where it changes."""
        return None if self.descent.is_scheduled() else float(self.descent.time_of_step())

    def after(self, steps: int | float | np.ndarray) -> Float[np.ndarray, "*steps"]:
        """Return when steps end.

        Args:
            steps: How many steps are made: a number or an array. A fraction is a time within a step, NaN is at NaN.

        Returns:
            The times after so many steps.
        """
        if self.length is not None:
            return np.asarray(self.begin + self.length * np.asarray(steps))
        table = self._table(steps=math.ceil(np.nanmax(steps, initial=0)))
        return np.asarray(np.interp(steps, np.arange(len(table)), table))

    def until(self, t1: float) -> int:
        """Return how many steps reach a time: ⌈(t1 − begin)/τ⌉, up to rounding, where each takes τ.

        Args:
            t1: The time, finite.

        Returns:
            The number of steps.

        Raises:
            ValueError: For more than can be counted, and for more than 10⁷ steps that differ.
        """
        if self.length is None:
            return len(self._table(t1=t1)) - 1
        ratio = _whole_if_close((t1 - self.begin) / self.length, t1 / self.length)
        most = np.iinfo(np.int32).max + 1  # steps are counted in int32
        if not ratio < most:
            raise ValueError(
                f"a descent in steps of time {self.length:g} takes {ratio:.3g} steps to t1 = {t1:g}: expected fewer "
                f"than {most:.3g}; give a shorter t1, or steps"
            )
        return max(1, math.ceil(ratio))

    def within(self, t1: float, steps: int) -> int:
        """Return how many steps end by a time, up to rounding.

        Args:
            t1: The time.
            steps: How many steps there are.

        Returns:
            The number of the steps that end until then.
        """
        if self.length is None:
            by = t1 * (1 + 4 * np.finfo(float).eps)
            return min(steps, int(np.searchsorted(self._table(steps=steps), by, side="right")) - 1)
        ratio = (t1 - self.begin) / self.length
        return steps if ratio >= steps else math.floor(_whole_if_close(ratio, t1 / self.length))

    def nearest(self, times: Float[np.ndarray, "*times"]) -> Float[np.ndarray, "*times"]:
        """Return which step ends nearest to each time.

        Args:
            times: The times.

        Returns:
            The numbers of the steps, NaN or infinite at a time that is so.
        """
        if self.length is not None:
            return np.round((times - self.begin) / self.length)
        there = np.where(np.isfinite(times), times, self.begin)
        # A run may have more steps than one that is planned.
        table = self._table(t1=float(np.max(there, initial=self.begin)), most=np.iinfo(np.int32).max)
        later = np.clip(np.searchsorted(table, there), 1, max(len(table) - 1, 1))
        table = np.append(table, np.inf)  # a run that has made no step has no later time
        return np.where(np.isfinite(times), later - (there - table[later - 1] < table[later] - there), times)

    def _table(
        self, *, steps: int | None = None, t1: float = math.inf, most: int = 10**7
    ) -> Float[np.ndarray, " steps"]:
        """Return `begin` and the time after each step, of so many steps or of those that reach `t1`."""
        descent = self.descent.checked(jnp.result_type(float))
        clock, parts = Clock(jnp.asarray(self.begin, float), jnp.zeros(())), [np.array([self.begin])]
        count = 0
        while count < (most if steps is None else steps) and parts[-1][-1] < t1:
            clock, times = _further_times(descent, clock)
            parts.append(np.asarray(times, float))
            count += len(parts[-1])
        table = np.concatenate(parts)
        if steps is not None:
            return table[: steps + 1]
        if table[-1] < t1:
            raise ValueError(
                f"a descent whose learning rate changes takes more than {most:g} steps to t1 = {t1:g}, and is at t = "
                f"{table[-1]:g} then: expected fewer; give a shorter t1, or steps, or a learning rate that falls less"
            )
        return table[: 1 + np.searchsorted(table, t1 * (1 - 4 * np.finfo(float).eps))]


@partial(compiled, few_calls=True)
def _further_times(descent: Descent, clock: Clock, *, steps: int = 2**14) -> tuple[Clock, Float[Array, " steps"]]:
    def after(clock: Clock, _: None) -> tuple[Clock, Array]:
        later = clock.after(jnp.asarray(descent.at(clock.time).time_of_step()))
        return later, later.time

    return jax.lax.scan(after, jax.tree.map(jnp.asarray, clock), length=steps)


def _whole_if_close(ratio: float, size: float) -> float:
    """Return the whole number that a ratio of differences of rounded numbers misses by no more than the rounding of its
    size, or the ratio itself."""
    near = round(ratio) if math.isfinite(ratio) else ratio
    return near if abs(ratio - near) <= 4 * np.finfo(float).eps * abs(size) else ratio
