"""Models of the descents of a sweep, measured where the centre of the descent's oscillation is last known."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from ..comparison.centres import (
    COLUMNS,
    DISTANCE,
    MEAN_EXCESS_RISK,
    MEAN_RISK,
    OSCILLATION,
    SHARPNESS,
    Centres,
    distances,
)
from ..comparison.execute import execute
from ..comparison.measure import Runs
from ..comparison.models import ModelOfDescent
from ..comparison.plan import End, RunSpec, plan_models
from ..comparison.records import RecordBudget, times_of
from ..dynamics import Descent, Stopping, Trajectory, integrate
from ..formatting import report_progress
from ..networks import split
from ..networks.weights import norm
from ..probes import Label
from ..problems import Problem
from .measures import sharpness_of

ONSET = Label(
    "oscillation_onset",
    "time at which the amplitude of the oscillation first rises to 0.001 of the norm of the initial weights",
    r"onset of the oscillation $t$",
    logarithmic=False,
)
_TO_THE_END = Stopping(gradient_norm=None)
LABELS = {label.name: label for label in (*COLUMNS, ONSET)}
"""What is measured of descents and their models, by name."""


@dataclass(frozen=True)
class ModelledDescent:
    """A descent of so many `steps`, whose models are compared to it; `flow` holds the arguments of `integrate`.

    It is taken to its last step, and all flows to the time of its last centre, one step before, whatever criterion
    would end them earlier. A descent of fewer than two steps has no centre, and nothing can be measured of it.
    """

    network: Any
    problem: Problem
    descent: Descent
    learning_rate: float
    steps: int
    flow: Mapping[str, Any]

    @cached_property
    def spec(self) -> RunSpec:
        """The descent in a plan."""
        return RunSpec(self.descent, self.learning_rate, End(steps=self.steps))

    @cached_property
    def run(self) -> Trajectory:
        """The descent, recorded at some 250 steps in threes; with very many weights at fewer."""
        return self._executed([self.spec], {})[self.spec]

    @cached_property
    def centres(self) -> Centres:
        """The centres of its oscillation."""
        return Centres.of(self.run, times_of(self.spec, self.run))

    def measured(self) -> dict[str, float]:
        """Return what is known of the descent at its last centre; the distance is that of the gradient flow."""
        centres = self.centres
        return {
            DISTANCE.name: self._flow_distance(),
            SHARPNESS.name: sharpness_of(self._last_network(), self.problem),
            OSCILLATION.name: float(centres.amplitude[-1]),
            MEAN_RISK.name: float(centres.mean_risk[-1]),
            MEAN_EXCESS_RISK.name: float(centres.mean_excess_risk[-1]),
            ONSET.name: self._onset(centres.times, np.where(self._alternates(), centres.amplitude, 0.0)),
        }

    def model(self, name: str, model: ModelOfDescent) -> tuple[Trajectory, dict[str, float]]:
        """Integrate a model, by its name, to the last centre; return the run, and what it says of the descent there.

        NaN for what it does not, as it ended before.
        """
        until = End(float(self.centres.times[-1]), self.flow["max_steps"])
        tolerances = {option: self.flow[option] for option in ("rtol", "atol")}
        (spec,) = plan_models({name: model}, [self.spec], until, **tolerances)
        run = self._executed([spec], {self.spec: self.run})[spec]
        along = {name: np.asarray(run.diagnostics[name], float) for name in LABELS if name in run.diagnostics}
        onset = self._onset(np.asarray(run.times, float), along[OSCILLATION.name])
        last = float(self.centres.distances(run)[-1])
        if not np.isfinite(last):
            return run, {ONSET.name: onset}
        ends = {name: float(values[-1]) for name, values in along.items()} | {DISTANCE.name: last, ONSET.name: onset}
        return run, ends | {SHARPNESS.name: sharpness_of(run.network, self.problem)}

    @property
    def _records(self) -> int:
        return RecordBudget().of_runs(self.network, 1)

    def _executed(self, plan: list[RunSpec], runs: Runs) -> Runs:
        with report_progress(False) as report:
            execute(
                self.network,
                self.problem,
                plan,
                records=self._records,
                report=report,
                runs=runs,
                in_a_row=3,
                stopping=_TO_THE_END,
            )
        return runs

    @property
    def _end(self) -> float:
        return float(self.centres.times[-1])

    def _last_network(self) -> Any:
        weights = jax.tree.map(lambda leaf: leaf[-1], self.centres.weights)
        return eqx.combine(weights, split(self.network)[1])

    def _flow_distance(self) -> float:
        """Return how far the gradient flow is from the last centre at that time."""
        options = {**self.flow, "stopping": _TO_THE_END, "t1": self._end, "ts": np.array([self._end]), "weights": True}
        flow = integrate(self.network, self.problem, **options)
        parts = {name: jax.tree.map(lambda leaf: leaf[-1:], part) for name, part in vars(self.centres).items()}
        return float(Centres(**parts).distances(flow)[0])

    def _alternates(self, *, share: float = 0.5) -> Bool[np.ndarray, " centres"]:
        """Tell of the centres at which the steps go back and forth: twice the amplitude is a `share` of a step or more.

        It is all of it where W_{k+1} = W_{k−1}, and next to nothing along a smooth path.
        """
        path, records = split(self.run.weights)[0], self.centres.records
        steps = np.asarray(distances(jax.tree.map(lambda leaf: leaf[records], path), path, records + 1))
        return 2 * self.centres.amplitude >= share * steps

    def _onset(
        self, times: Float[np.ndarray, " records"], amplitude: Float[np.ndarray, " records"], *, share: float = 1e-3
    ) -> float:
        """Return when an amplitude first rises to a `share` of ‖W(0)‖, between the records; NaN if it never does.

        Models that begin with half a step of a steep descent fall from there first. One that never was below has the
        first record.
        """
        level = share * float(norm(split(self.network)[0]))
        above = amplitude >= level
        rises = np.flatnonzero(above[1:] & ~above[:-1])
        if not rises.size:
            return float(times[0]) if above[0] else np.nan
        around = slice(rises[0], rises[0] + 2)
        return float(np.interp(level, amplitude[around], times[around]))
