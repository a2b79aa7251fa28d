"""Models of the descents of a sweep, measured at the last centre of the descent's oscillation."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

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
from ..comparison.plan import End, RunSpec
from ..comparison.records import RecordBudget
from ..dynamics import Stopping, Trajectory, integrate
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
# Descents run to their last step, and flows to the time of the last centre, whatever criterion would end them earlier.
_TO_THE_END = Stopping(gradient_norm=None)
LABELS = {label.name: label for label in (*COLUMNS, ONSET)}
"""What is measured of descents and their models, by name."""


def run_to_end(network: Any, problem: Problem, spec: RunSpec, runs: Runs) -> Trajectory:
    """Run a descent, or a model of one that is among the `runs`.

    Records are made at some 250 steps, in threes; with very many weights at fewer.
    """
    options: dict[str, Any] = {"in_a_row": 3, "stopping": _TO_THE_END}
    with report_progress(False) as report:
        records = RecordBudget().of_runs(network, 1)
        execute(network, problem, [spec], records=records, report=report, runs=runs, **options)
    return runs[spec]


def centres_of(spec: RunSpec, run: Trajectory) -> Centres:
    """Return the centres of the oscillation of a descent: none for fewer than two steps."""
    return Centres.of(run, spec.step_times)


def measure_descent(
    network: Any, problem: Problem, run: Trajectory, centres: Centres, flow: RunSpec, *, part: float = 0.5
) -> dict[str, float]:
    """Return the measures of a descent from `network` at its last centre, with the distance of the gradient flow.

    The oscillation begins among steps that go back and forth: those of which twice the amplitude is a `part` or more.
    It is all of a step if W_{k+1} = W_{k−1}, and next to nothing along a smooth path.
    """
    end = float(centres.times[-1])
    options: dict[str, Any] = {"model": flow.dynamics, "max_steps": flow.until.steps, "stopping": _TO_THE_END}
    reference = integrate(network, problem, t1=end, ts=np.array([end]), weights=True, **options)
    last = Centres(**{name: jax.tree.map(lambda leaf: leaf[-1:], entry) for name, entry in vars(centres).items()})
    at_centre = eqx.combine(jax.tree.map(lambda leaf: leaf[0], last.weights), split(network)[1])
    path, records = split(run.weights)[0], centres.records
    steps = np.asarray(distances(jax.tree.map(lambda leaf: leaf[records], path), path, records + 1))
    alternating = np.where(2 * centres.amplitude >= part * steps, centres.amplitude, 0.0)
    return {
        DISTANCE.name: float(last.distances(reference)[0]),
        SHARPNESS.name: sharpness_of(at_centre, problem),
        OSCILLATION.name: float(centres.amplitude[-1]),
        MEAN_RISK.name: float(centres.mean_risk[-1]),
        MEAN_EXCESS_RISK.name: float(centres.mean_excess_risk[-1]),
        ONSET.name: _onset(network, centres.times, alternating),
    }


def run_model(
    network: Any, problem: Problem, spec: RunSpec, descent: Trajectory, centres: Centres
) -> tuple[Trajectory, dict[str, float]]:
    """Integrate a model to the last centre of the `descent` that it follows; return the run, and its measures there.

    A run that ended before has only the onset of the oscillation.
    """
    assert spec.follows is not None
    to_last = replace(spec, until=End(float(centres.times[-1]), spec.until.steps))
    run = run_to_end(network, problem, to_last, {spec.follows: descent})
    along = {name: np.asarray(run.diagnostics[name], float) for name in LABELS if name in run.diagnostics}
    measures = {ONSET.name: _onset(network, np.asarray(run.times, float), along[OSCILLATION.name])}
    last = float(centres.distances(run)[-1])
    if np.isfinite(last):
        measures |= {name: float(values[-1]) for name, values in along.items()}
        measures |= {DISTANCE.name: last, SHARPNESS.name: sharpness_of(run.network, problem)}
    return run, measures


def _onset(
    network: Any,
    times: Float[np.ndarray, " records"],
    amplitude: Float[np.ndarray, " records"],
    *,
    part: float = 1e-3,
) -> float:
    """Return when an amplitude first rises to a `part` of ‖W(0)‖, between the records; NaN if it never does.

    Models that begin with half a step of a steep descent fall from there first. An amplitude that never was below has
    the time of the first record.
    """
    level = part * float(norm(split(network)[0]))
    above = amplitude >= level
    rises = np.flatnonzero(above[1:] & ~above[:-1])
    if not rises.size:
        return float(times[0]) if above[0] else np.nan
    around = slice(rises[0], rises[0] + 2)
    return float(np.interp(level, amplitude[around], times[around]))
