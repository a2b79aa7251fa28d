"""What the figure and its claims measure: the course of the risk, its stable phase, and the margin at the end."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...dynamics import Outcome
from ...results.recorded import RecordedRun, recorded

MARGIN = "normalized_margin"


@dataclass(frozen=True)
class Course:
    """One run: `times` t (ηk after k steps), the `risk` R there, its normalized `margin` at the end, and how it ended.

    The flow has the `learning_rate` zero.
    """

    name: str
    learning_rate: float
    times: Float[np.ndarray, " records"]
    risk: Float[np.ndarray, " records"]
    margin: float
    outcome: Outcome
    steps: int

    def stable_from(self, samples: int) -> int:
        """Return the first record of the stable phase: from there on R is min(1/η, ln 2/n) at most.

        With a mean below ln 2/n, n the number of `samples`, each of them is on the right side; and the sharpness of a
        logistic risk is R at most, for inputs of norm one, so that below 1/η it is below the edge 2/η. The flow
        has no such bound. It is the number of records where there is no such phase.
        """
        low = self.risk <= np.log(2) / max(samples, self.learning_rate * np.log(2))
        return len(low) - int(np.argmin(low[::-1])) if not low.all() else 0

    def largest_product(self, margin: float, samples: int) -> float:
        """Return the largest γ²·R·η(k − s) of the stable phase, which begins at step s, for a `margin` γ."""
        first = self.stable_from(samples)
        since = self.times[first:] - self.times[min(first, len(self.times) - 1)]
        return float(np.max(margin**2 * self.risk[first:] * since, initial=0.0)) if len(since) else np.inf


def courses_of(trajectories: xarray.Dataset) -> tuple[Course, list[Course]]:
    """Return the course of the flow, and those of gradient descent from the smallest learning rate to the largest."""
    found = recorded(trajectories)
    return _course(found.flow), [_course(run) for run in found.by_rate if run.run.is_descent]


def margin_of(courses: list[Course]) -> float:
    """Return the largest normalized margin that a run ended with.

    It is a lower bound on the margin γ of the best separator, to which it rises as 1/log t falls (Soudry et al. 2018).
    """
    return max(course.margin for course in courses)


def _course(run: RecordedRun) -> Course:
    return Course(
        name=run.run.name,
        learning_rate=run.run.learning_rate or 0.0,
        times=run.along("time").astype(float),
        risk=run.along("risk").astype(float),
        margin=float(run.along(MARGIN)[-1]),
        outcome=run.outcome,
        steps=run.steps,
    )
