"""What the figure and its claims measure: descents at the centres of their oscillation, and models at those times."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...comparison.models import DISTANCE, SHARPNESS
from ...probes import Oscillation
from ...results.recorded import RecordedRun, recorded

AMPLITUDE = Oscillation().label.name
_LAST = 2 / 3
Course = Float[np.ndarray, " centres"]


@dataclass(frozen=True)
class Model:
    """What one model says at the times of the centres: NaN where it did not get there.

    `distance` is how far it is from the centre, `amplitude` that of the oscillation that it predicts.
    """

    name: str
    sharpness: Course
    amplitude: Course
    distance: Course


@dataclass(frozen=True)
class Followed:
    """One descent at the centres (W_{k−1} + 2W_k + W_{k+1})/4 of its oscillation, at `times` t = ηk, with its models.

    `amplitude` is the length of (2W_k − W_{k−1} − W_{k+1})/4, `step` that of W_{k+1} − W_k, and `flow_distance` how far
    the gradient flow is from the centre.
    """

    name: str
    learning_rate: float
    times: Course
    sharpness: Course
    amplitude: Course
    step: Course
    flow_distance: Course
    models: tuple[Model, ...]

    @property
    def over_threshold(self) -> Course:
        """S·η/2 at the centres: one at the edge."""
        return self.sharpness * self.learning_rate / 2

    @property
    def period_two(self) -> Course:
        """Twice the amplitude over the length of a step: one where W_{k+1} = W_{k−1}, near zero in a smooth descent."""
        return 2 * self.amplitude / self.step

    @property
    def late(self) -> np.ndarray:
        """Which centres are in the last third of the time."""
        return self.times >= _LAST * self.times[-1]

    @property
    def reaches_edge(self) -> bool:
        """Whether the sharpness at a centre was ever 2/η or more."""
        return bool(np.nanmax(self.over_threshold) >= 1)


def followed_of(trajectories: xarray.Dataset) -> list[Followed]:
    """Return every descent that has centres, from the smallest learning rate to the largest."""
    runs = recorded(trajectories).by_rate
    descents = [run for run in runs if run.run.is_descent and np.isfinite(run.along(SHARPNESS.name)).any()]
    return [_followed(one, [run for run in runs if _models(run, one)]) for one in descents]


def _models(run: RecordedRun, descent: RecordedRun) -> bool:
    return not run.run.is_descent and run.run.learning_rate == descent.run.learning_rate


def _followed(descent: RecordedRun, models: list[RecordedRun]) -> Followed:
    rate = descent.run.learning_rate or np.nan
    centres = np.isfinite(descent.along(SHARPNESS.name))
    along = {
        name: descent.along(name)[centres].astype(float)
        for name in ("time", SHARPNESS.name, AMPLITUDE, "gradient_norm", DISTANCE.name)
    }
    return Followed(
        name=descent.run.name,
        learning_rate=rate,
        times=along["time"],
        sharpness=along[SHARPNESS.name],
        amplitude=along[AMPLITUDE],
        step=rate * along["gradient_norm"],
        flow_distance=along[DISTANCE.name],
        models=tuple(_at(run, along["time"]) for run in models),
    )


def _at(run: RecordedRun, times: Course) -> Model:
    """Return what a model says at these times, which are among its records up to where it ended."""
    recorded_at = run.along("time").astype(float)
    index = np.minimum(np.searchsorted(recorded_at, times * (1 - 1e-9)), len(recorded_at) - 1)
    there = np.isclose(recorded_at[index], times, rtol=1e-6, atol=0)
    found = {name: np.where(there, run.along(name)[index], np.nan) for name in ("sharpness", AMPLITUDE, DISTANCE.name)}
    return Model(run.run.method, found["sharpness"], found[AMPLITUDE], found[DISTANCE.name])
