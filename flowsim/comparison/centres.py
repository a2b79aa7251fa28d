"""The centre of descent's oscillation, which models of descent follow.

That is not an iterate but the mean (W_{k−1} + 2W_k + W_{k+1})/4, in which an alternating part cancels up to its change
in two steps. The amplitude is the length of (2W_k − W_{k−1} − W_{k+1})/4.
"""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics import StepTimes, Trajectory
from ..formatting import ProgressReporter
from ..networks import split
from ..probes import Label, MeanExcessRisk, MeanRisk, Oscillation
from ..runtime.compiling import compiled
from .measure import Measure, Runs, SharpnessAlong, with_columns
from .plan import RunSpec

TIME_ROUNDING = 1e-5
"""Times of two runs that are meant to be the same differ by less, relative to themselves: ηk has been rounded."""
DISTANCE = Label(
    "centre_distance",
    "distance from the centre of descent's oscillation; in the row of a descent, that of the gradient flow",
    "distance from the centre",
)
SHARPNESS = Label(
    "centre_sharpness",
    "sharpness at the centre of descent's oscillation, and of its models",
    r"sharpness $S$ at the centre",
    logarithmic=False,
)
# What is recorded of descents and models, beside the user's probes.
OSCILLATION, MEAN_RISK, MEAN_EXCESS_RISK = Oscillation().label, MeanRisk().label, MeanExcessRisk().label
COLUMNS = (DISTANCE, SHARPNESS, OSCILLATION, MEAN_RISK, MEAN_EXCESS_RISK)


def records_at(
    times: Float[np.ndarray, " records"], wanted: Float[np.ndarray, " wanted"], *, stays: bool
) -> tuple[Int[np.ndarray, " wanted"], Bool[np.ndarray, " wanted"]]:
    """Return the number of a run's record at each `wanted` time, and whether it has one.

    Of a run that `stays` where it ended, that is the last one at all later times.
    """
    index = np.minimum(np.searchsorted(times, wanted * (1 - TIME_ROUNDING)), len(times) - 1)
    recorded = np.abs(times[index] - wanted) <= TIME_ROUNDING * wanted
    return index, recorded | ((wanted > times[-1]) & stays)


def centre_records(times: Float[np.ndarray, " records"], step_times: StepTimes) -> Int[np.ndarray, " centres"]:
    """Return the records of a descent at `times` whose neighbours are one step off on both sides."""
    steps = step_times.nearest(times)
    return 1 + np.flatnonzero((steps[2:] - steps[1:-1] == 1) & (steps[1:-1] - steps[:-2] == 1))


@dataclasses.dataclass(frozen=True)
class Centres:
    """The centres of a descent's oscillation, at those of its records whose neighbours are one step off on both sides.

    `records` are their numbers; `weights` have a leading axis, one entry for each.
    """

    records: Int[np.ndarray, " centres"]
    times: Float[np.ndarray, " centres"]
    weights: PyTree
    amplitude: Float[np.ndarray, " centres"]
    mean_risk: Float[np.ndarray, " centres"]
    mean_excess_risk: Float[np.ndarray, " centres"]

    @classmethod
    def of(cls, descent: Trajectory, step_times: StepTimes) -> "Centres":
        """Return the centres along a descent that kept its weights."""
        times = np.asarray(descent.times, float)
        records = centre_records(times, step_times)
        weights, amplitude = _means(split(descent.weights)[0], records)
        means = (
            (risk[records - 1] + 2 * risk[records] + risk[records + 1]) / 4
            for risk in (np.asarray(descent.risk), np.asarray(descent.excess_risk))
        )
        return cls(records, times[records], weights, np.asarray(amplitude), *means)

    def distances(self, run: Trajectory) -> Float[np.ndarray, " centres"]:
        """Return the distance of a run that kept its weights from each centre; NaN where it has no record then."""
        times = np.asarray(run.times, float)
        index, known = records_at(times, self.times, stays=run.outcome.stays)
        at_index = np.asarray(distances(self.weights, split(run.weights)[0], index))
        return np.where(known, at_index, np.nan)


@compiled
def _means(path: PyTree, records: Int[Array | np.ndarray, " centres"]) -> tuple[PyTree, Float[Array, " centres"]]:
    def at(shift: int) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[records + shift], path)

    centre = jax.tree.map(lambda a, b, c: (a + 2 * b + c) / 4, at(-1), at(0), at(1))
    return centre, _norms(jax.tree.map(jnp.subtract, at(0), centre))


@partial(compiled, few_calls=True, few_numbers=2**20)
def distances(ours: PyTree, theirs: PyTree, index: Int[Array | np.ndarray, " n"]) -> Float[Array, " n"]:
    """Return the Euclidean distances of weights with a leading axis to those at `index` along another such axis."""
    return _norms(jax.tree.map(lambda a, b: a - b[index], ours, theirs))


def _norms(rows: PyTree) -> Float[Array, " centres"]:
    squares = [jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(rows)]
    return jnp.sqrt(sum(squares))


@dataclasses.dataclass(frozen=True)
class CentreDistance(Measure):
    """The distance of models and of the gradient flow from the centres of the descents that models follow.

    With it come the amplitude, the mean risks, and, as `along` has it, the sharpness at the centres.
    """

    along: SharpnessAlong

    def of_runs(self, runs: Runs, report: ProgressReporter) -> Runs:
        """Return the runs with these columns: models, and the descents that they follow."""
        (flow,) = (run for spec, run in runs.items() if spec.is_flow)
        centres: dict[RunSpec, Centres] = {}
        measured: Runs = {}
        for spec in dict.fromkeys(model.follows for model in runs if model.follows is not None):
            descent = runs[spec]
            centres[spec] = centre = Centres.of(descent, spec.step_times)
            values = {
                OSCILLATION: centre.amplitude,
                MEAN_RISK: centre.mean_risk,
                MEAN_EXCESS_RISK: centre.mean_excess_risk,
                DISTANCE: centre.distances(flow),
            }
            if not self.along.at_the_end_alone and len(centre.records):
                path = eqx.combine(centre.weights, split(descent.network)[1])
                values[SHARPNESS] = self.along.eigenvalues(path, centre.times, descent)[:, 0]
            columns = {}
            for label, of_centres in values.items():
                columns[label] = np.full(len(descent.times), np.nan, np.asarray(descent.risk).dtype)
                columns[label][centre.records] = of_centres
            measured[spec] = with_columns(descent, columns)
        for spec, run in runs.items():
            if spec.follows is None:
                continue
            # The first records of a model are at the times of the centres.
            centre, times = centres[spec.follows], np.asarray(run.times)
            known, count = centre.distances(run), min(len(centre.times), len(times))
            column = np.full(len(times), np.nan, known.dtype)
            column[:count] = np.where(times[:count] == centre.times[:count].astype(times.dtype), known[:count], np.nan)
            measured[spec] = with_columns(run, {DISTANCE: column})
        return runs | measured
