"""Runs of closed forms, so that tests of tables, figures and pages compute nothing, and what a folder holds of them."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import xarray

import flowsim
from flowsim import report
from flowsim.columns import FLOW, GRADIENT_DESCENT, GRADIENT_FLOW, RUN, ComparedRun, Run, run_coordinates
from flowsim.comparison import Comparison
from flowsim.dynamics import Outcome, Trajectory
from flowsim.results import ResultFolder

BOUNDS = (4.0, 8.0)


def made_run(times, excess, sharpness, *, rate=None, outcome=Outcome.CONVERGED, steps=50, path=None):
    """Return a trajectory whose excess risk and sharpness at the records are these, and whose minimal risk is 0.5."""
    times, excess, sharpness = (np.array(np.broadcast_to(one, len(times)), float) for one in (times, excess, sharpness))
    along = {"times": times, "time_remainders": 0 * times, "risk": excess + 0.5, "excess_risk": excess}
    along |= {"squared_distance": 2 * excess, "gradient_norm": np.sqrt(2 * excess), "sharpness": sharpness}
    counts = {"steps": steps, "rejected_steps": 2, "gradients": 7 * steps, "products": 3, "count": len(times)}
    ends = {name: np.array(count) for name, count in counts.items()} | {"code": np.array(int(outcome))}
    ends |= {"time": times[-1], "loosened": np.array(1.0), "order": np.array(2.0)}
    known = {name: jnp.asarray(value) for name, value in (along | ends).items()}
    if rate is not None:
        known |= {"learning_rate": jnp.asarray(np.array(rate)), "sharpness_threshold": jnp.asarray(np.array(2 / rate))}
    return Trajectory(
        **{"learning_rate": None, "sharpness_threshold": None} | known,
        diagnostics={} if path is None else {"path": {"weights": jnp.asarray(path)}},
        labels={} if path is None else {"path": flowsim.probes.Path().label},
        weights=None,
        network=np.zeros(2),
        problem=flowsim.Risk(lambda w: w @ w),
        states=None,
        method="Made",
        dynamics=GRADIENT_FLOW if rate is None else GRADIENT_DESCENT,
    )


def _along(times, shift):
    return np.stack([np.exp(-times), (1 + shift) * (1 - np.exp(-times))], axis=1)


def _descent(rate):
    """Return the descent with 0.1, which follows the flow, with 0.4, which meets the edge, or 3, which diverges."""
    times = {0.1: np.linspace(0, 20, 41), 0.4: np.linspace(0, 20, 31), 3.0: 3.0 * np.arange(101)}[rate]
    fallen = 1 - np.exp(-times)
    if rate == 3.0:
        growth = np.exp(np.log(5) * times / 3)
        options = {"outcome": Outcome.DIVERGED, "steps": 100, "path": np.stack([growth, growth], axis=1)}
        return made_run(times, growth**2, np.where(times == 0, 3.0, np.nan), rate=rate, **options), growth - 1
    if rate == 0.1:
        return made_run(
            times, np.exp(-1.02 * times), 3 + 2.9 * fallen, rate=rate, steps=200, path=_along(times, 0.01)
        ), 0.01 * fallen
    sharpness = 3 + 1.9 * fallen + 1.5 * np.exp(-((times - 2) ** 2))
    return made_run(times, np.exp(-1.1 * times), sharpness, rate=rate, path=_along(times, 0.3)), 0.3 * fallen


def _compared(rate):
    run, distance = _descent(rate)
    crossing = {0.1: None, 0.4: 1.13, 3.0: 0.0}[rate]
    last = float(run.times[-1]), float(distance[-1])
    return ComparedRun(Run(GRADIENT_DESCENT, rate), run, distance, last[1], last[0], crossing)


def made_comparison(rates=(0.1, 0.4, 3.0), *, paths=False):
    """Return a flow and those of three descents: one follows it, one meets its edge of stability, and one diverges.

    With `paths` the probe `Path` is among them, of two weights.
    """
    times = np.linspace(0, 20, 41)
    flow = made_run(times, np.exp(-times), 6 - 3 * np.exp(-times), path=_along(times, 0.0))
    made = Comparison(flow, tuple(map(_compared, rates)), BOUNDS)
    return made if paths else with_runs(made, lambda run: replace(run, diagnostics={}, labels={}))


def with_runs(comparison, change):
    """Return a comparison whose runs are those that the function makes of them."""
    descents = (replace(one, trajectory=change(one.trajectory)) for one in comparison.descents)
    return replace(comparison, flow=change(comparison.flow), descents=tuple(descents))


def changed(run, **along):
    """Return a trajectory with other arrays."""
    return replace(run, **{name: jnp.asarray(np.asarray(values)) for name, values in along.items()})


SCALES, RATES, REPETITIONS, DEPTH, SAMPLES, FEATURES = [0.3, 0.6, 0.9], [0.02, 0.06], 3, 4, 20, 3
LOWER, LARGEST_EIGENVALUE = 7.0, 1.5
# Over the scales; descent follows the flow below 2/η = 100 and 33, and stays there beyond.
_INITIAL_SHARPNESS = [2.0, 60.0, 500.0]
_SHARPNESS = [[10.0, 45.0, 200.0], [10.1, 45.5, 97.0], [9.9, 32.0, 31.0]]


def made_sweep():
    """Return three scales by three repetitions of a flow and two descents: two runs diverge, some are on their way."""
    shape = (len(SCALES), REPETITIONS, 1 + len(RATES))
    spread = np.array([0.97, 1.0, 1.02])[:, None]
    outcome = np.full(shape, int(Outcome.CONVERGED))
    outcome[1, 0, 2], outcome[2, :, 1], outcome[2, :2, 2] = Outcome.STEP_LIMIT, Outcome.STEP_LIMIT, Outcome.DIVERGED
    sharpness = np.stack(_SHARPNESS, axis=1)[:, None] * spread
    ends = {"sharpness": sharpness, "risk": 0.1 + 1e-9 * sharpness, "excess_risk": 1e-9 * sharpness}
    ends |= {"squared_distance": 1e-8 * sharpness, "gradient_norm": 1e-6 * sharpness}
    starts = {"risk": [1.2, 1.3, 2.0], "excess_risk": [1.1, 1.2, 1.9], "squared_distance": [1.0, 1.1, 1.5]}
    starts |= {"sharpness": _INITIAL_SHARPNESS}
    measures = {f"final_{name}": np.where(outcome == Outcome.DIVERGED, np.nan, end) for name, end in ends.items()}
    measures |= {f"initial_{name}": np.array(values)[:, None] * spread[:, 0] for name, values in starts.items()}
    measures |= {"outcome": outcome, "steps": np.full(shape, 400)}
    dims = ("scale", "repetition", RUN)
    variables = {name: (dims[: values.ndim], values) for name, values in measures.items()}
    bounds = {"largest_eigenvalue": LARGEST_EIGENVALUE, "sharpness_lower_bound": LOWER, "sharpness_upper_bound": 9.0}
    variables |= {name: ("scale", np.full(len(SCALES), value)) for name, value in bounds.items()}
    coordinates = {"scale": SCALES, "repetition": np.arange(REPETITIONS), **coordinates_of(RATES)}
    return xarray.Dataset(variables, coordinates, {"scenario": scenario_of("mlp")})


def scenario_of(kind):
    network, data = {"kind": kind, "depth": DEPTH}, {"samples": SAMPLES, "features": FEATURES}
    return json.dumps({"network": network, "data": data})


def coordinates_of(rates):
    return run_coordinates([FLOW, *(Run(GRADIENT_DESCENT, rate) for rate in rates)])


def write_without_figures(dataset, folder, name="trajectories.nc"):
    """Write a data set and its page; figures take long."""
    ResultFolder(folder).write_dataset(dataset, name)
    document = report.document(flowsim.open_results(folder), folder.name)
    replace(document, draw=dict).write(ResultFolder(folder))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in a folder and in those below."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
