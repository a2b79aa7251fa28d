"""Models of gradient descent, compared to the descents that they model.

A model follows not the iterates but the centre of the oscillation from one step to the next: the mean
(W_{k−1} + 2W_k + W_{k+1})/4, in which an alternating part cancels up to its change in two steps. The amplitude is the
length of (2W_k − W_{k−1} − W_{k+1})/4.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics import Descent, Trajectory, integrate
from ..edge import MODELS, DescentModel
from ..formatting import ProgressReporter
from ..kinds import got, is_kind_of
from ..networks import split, weight_dtype
from ..probes import Label, MeanExcessRisk, MeanRisk, Oscillation
from ..problems import Problem
from ..results.runs import Edge
from ..runtime.compiling import compiled
from .sharpness_along import SharpnessAlong, with_columns

GRADIENT = "gradient"
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
# What is recorded of descents and models, besides the user's probes.
OSCILLATION, MEAN_RISK, MEAN_EXCESS_RISK = Oscillation().label, MeanRisk().label, MeanExcessRisk().label
COLUMNS = (DISTANCE, SHARPNESS, OSCILLATION, MEAN_RISK, MEAN_EXCESS_RISK)


ModelOfDescent = type[DescentModel] | DescentModel
"""A kind of model with its default options, or a model with options and no learning rate, which each descent sets."""


def check_models(
    entries: object, descents: Sequence[Descent], dtype: jnp.dtype, **tolerances: float | None
) -> dict[str, ModelOfDescent]:
    """Return the models of descent by their names in results, without the gradient flow, which runs in any case.

    `tolerances` are the `rtol` and `atol` of a model that has none. Raises `ValueError` for what is no list of names
    and models, or has one twice, for a model that has a learning rate, or is no model of one of the `descents`, and
    `UnknownKindError`, a `ValueError`, for the name of no model.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ValueError(f'models must be a list of names, as ["gradient", "edge"], got {entries!r}')
    models: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, str):
            name, model = entry, None if entry == GRADIENT else MODELS[entry]
        elif is_kind_of(DescentModel)(entry):
            name, model = MODELS.name_of(entry), entry
        elif isinstance(entry, DescentModel):
            name, model = entry.kind(), entry
            if entry.learning_rate is not None:
                raise ValueError(
                    f"models: {type(entry).__name__} has the learning rate {entry.learning_rate}, but in a comparison "
                    "each descent sets that of its models: leave it out, or write None for it"
                )
        else:
            raise ValueError(
                'models must be a list of names, as ["gradient", "edge"], or of models of descent, as '
                f"[flowsim.EdgeFlow(rtol=1e-9)], got {got(entry, DescentModel)}"
            )
        if name in models:
            raise ValueError(f"models: found {name} twice, which results could not tell apart: write each once")
        models[name] = model
        if model is not None:
            for descent in descents:
                model_of(model, descent, **tolerances).checked(dtype)
    models.pop(GRADIENT, None)
    return models


def model_of(model: ModelOfDescent, descent: Descent, **tolerances: float | None) -> DescentModel:
    """Return the model of one descent, with `rtol` and `atol` where it has none."""
    made = model if isinstance(model, DescentModel) else model.of(descent)
    return made.following(descent, **tolerances)


def records_at(
    times: Float[np.ndarray, " records"], wanted: Float[np.ndarray, " wanted"], *, stays: bool
) -> tuple[Int[np.ndarray, " wanted"], Bool[np.ndarray, " wanted"]]:
    """Return the number of a run's record at each `wanted` time, and whether it has one.

    Of a run that `stays` where it ended, that is the last one at all later times.
    """
    index = np.minimum(np.searchsorted(times, wanted * (1 - TIME_ROUNDING)), len(times) - 1)
    recorded = np.abs(times[index] - wanted) <= TIME_ROUNDING * wanted
    return index, recorded | ((wanted > times[-1]) & stays)


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
    def of(cls, descent: Trajectory, time_of_step: float | Float[np.ndarray, " steps"]) -> "Centres":
        """Return the centres along a descent that kept its weights; its steps take one time each, or end at times."""
        times = np.asarray(descent.times, float)
        of_all = isinstance(time_of_step, np.ndarray)
        steps = _nearest(time_of_step, times) if of_all else np.round(times / time_of_step)
        records = 1 + np.flatnonzero((steps[2:] - steps[1:-1] == 1) & (steps[1:-1] - steps[:-2] == 1))
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
        found = np.asarray(distances(self.weights, split(run.weights)[0], index))
        return np.where(known, found, np.nan)

    def record_on(self, descent: Trajectory, flow: Trajectory, along: SharpnessAlong) -> Trajectory:
        """Return the descent with its oscillation, mean risk, the sharpness at the centres, and the flow's distance.

        That is the distance of the gradient flow from the centre at the same time.
        """
        found = {
            OSCILLATION: self.amplitude,
            MEAN_RISK: self.mean_risk,
            MEAN_EXCESS_RISK: self.mean_excess_risk,
            DISTANCE: self.distances(flow),
        }
        if not along.at_the_end_alone and len(self.records):
            path = eqx.combine(self.weights, split(descent.network)[1])
            found[SHARPNESS] = along.eigenvalues(path, self.times, descent)[:, 0]
        return with_columns(descent, {label: self._spread(descent, values) for label, values in found.items()})

    def distances_along(self, run: Trajectory) -> Float[np.ndarray, " records"]:
        """Return the same over the records of a run, of which the first are at the times of the centres."""
        known, times = self.distances(run), np.asarray(run.times)
        count = min(len(known), len(times))
        distances = np.full(len(times), np.nan, known.dtype)
        distances[:count] = np.where(times[:count] == self.times[:count].astype(times.dtype), known[:count], np.nan)
        return distances

    def _spread(self, descent: Trajectory, values: np.ndarray) -> np.ndarray:
        spread = np.full(len(descent.times), np.nan, np.asarray(descent.risk).dtype)
        spread[self.records] = values
        return spread


@dataclasses.dataclass(frozen=True)
class ModelRun:
    """The run of a model of the descent with this learning rate, and its edge; `models` is the name of its dynamics.

    `held_within` is the part of 2/η within which the model holds the sharpness there, as `DescentModel.held_within`.
    """

    run: Trajectory
    learning_rate: float
    edge: Edge
    models: str
    held_within: float | None


def run_models(
    network: PyTree,
    problem: Problem,
    models: Mapping[str, ModelOfDescent],
    descents: Mapping[float, Descent],
    centres: Sequence[Centres],
    *,
    t1: float,
    probes: Sequence[Any],
    slots: int,
    rtol: float | None = None,
    atol: float | None = None,
    report: ProgressReporter,
    **options: Any,
) -> Iterator[ModelRun]:
    """Integrate each of the models, by their names, of each descent, given by the learning rates, with its `centres`.

    A model's records are at the times of the centres, with its distance from them. These times are padded to `slots`,
    so that all models of a kind share one compiled program. A model runs to its limit, or to `t1`, but where the
    descent does not come to rest only as far as its centres are known. `rtol` and `atol` are those of a model that has
    none, other `options` go to `integrate`.
    """
    probes = (Oscillation(), MeanRisk(), MeanExcessRisk(), *probes)
    for name, entry in models.items():
        for (eta, descent), centre in zip(descents.items(), centres, strict=True):
            model = model_of(entry, descent, rtol=rtol, atol=atol)
            options["progress"] = report.during(f"{name} flow with η = {eta:g}")
            times = np.append(centre.times, np.full(slots - len(centre.times), np.inf))
            end = t1 if descent.comes_to_rest() else min([t1, *centre.times[-1:]])
            run = integrate(network, problem, model=model, ts=times, t1=end, weights=True, probes=probes, **options)
            run = with_columns(run, {DISTANCE: centre.distances_along(run)})
            held_within = model.held_within(weight_dtype(network))
            yield ModelRun(run, eta, Edge.of(descent), descent.kind(), held_within)


def _nearest(values: Float[np.ndarray, " values"], wanted: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the places in increasing values of those that are nearest to others."""
    after = np.clip(np.searchsorted(values, wanted), 1, len(values) - 1)
    return after - (wanted - values[after - 1] < values[after] - wanted)


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
