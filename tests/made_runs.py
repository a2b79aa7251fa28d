"""Runs of closed forms, so that tests of tables, figures and pages compute nothing."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import flowsim
from flowsim.comparison import Comparison
from flowsim.dynamics import Outcome, Trajectory
from flowsim.results.runs import GRADIENT_DESCENT, GRADIENT_FLOW, Edge
from flowsim.results.trajectories import ComparedRun

BOUNDS = (4.0, 8.0)


def made_run(times, excess, sharpness, *, rate=None, outcome=Outcome.CONVERGED, steps=50, path=None):
    """Return a trajectory whose excess risk and sharpness at the records are these, and whose minimal risk is 0.5."""
    times, excess, sharpness = (np.array(np.broadcast_to(one, len(times)), float) for one in (times, excess, sharpness))
    along = {"times": times, "time_remainders": 0 * times, "risk": excess + 0.5, "excess_risk": excess}
    along |= {"squared_distance": 2 * excess, "gradient_norm": np.sqrt(2 * excess), "sharpness": sharpness}
    counts = {"steps": steps, "rejected_steps": 2, "gradients": 7 * steps, "products": 3, "count": len(times)}
    ends = {name: np.array(count) for name, count in counts.items()} | {"code": np.array(int(outcome))}
    ends |= {"time": times[-1], "loosened": np.array(1.0)}
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
    return ComparedRun(rate, run, distance, last[1], last[0], crossing, Edge.of_gradient_descent(rate))


def made_comparison(rates=(0.1, 0.4, 3.0), *, paths=False):
    """Return a flow and those of three descents: one follows it, one meets its edge of stability, and one diverges.

    With `paths` the probe `Path` is among them, of two weights.
    """
    times = np.linspace(0, 20, 41)
    flow = made_run(times, np.exp(-times), 6 - 3 * np.exp(-times), path=_along(times, 0.0))
    made = Comparison(flow, tuple(map(_compared, rates)), BOUNDS, 2 / BOUNDS[0])
    return made if paths else with_runs(made, lambda run: replace(run, diagnostics={}, labels={}))


def with_runs(comparison, change):
    """Return a comparison whose runs are those that the function makes of them."""
    descents = (replace(one, trajectory=change(one.trajectory)) for one in comparison.descents)
    return replace(comparison, flow=change(comparison.flow), descents=tuple(descents))


def changed(run, **along):
    """Return a trajectory with other arrays."""
    return replace(run, **{name: jnp.asarray(np.asarray(values)) for name, values in along.items()})
