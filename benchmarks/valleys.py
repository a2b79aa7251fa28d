"""Bent valleys with large residuals: flows of Figure 7 with and without what the Gauss–Newton matrix leaves out."""

from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import begin, table
from jax.flatten_util import ravel_pytree
from scipy.integrate import LSODA
from timing import once

import flowsim
from flowsim.kinds.seeds import start_key
from flowsim.scenarios import read_scenario
from flowsim.scenarios.points import points
from flowsim.scenarios.runner import build_network, read_data
from flowsim.solvers.field import gradient_field

jax.config.update("jax_enable_x64", True)

SCENARIO = Path(__file__).parents[1] / "scenarios" / "paper" / "figure7.yaml"
# Scales by number and repetitions: an easy start, the four whose flows did not arrive within 12 000 steps, and two
# that end at minima with a risk above 0.02.
STARTS = [(0, 1), (4, 15), (5, 13), (6, 4), (7, 19), (7, 11), (7, 12)]
FOLLOWED = (0, 4, 8)
RISK = 1e-8
MOST_STEPS, MOST_STEPS_OF_SCIPY = 10_000, 3000


def main() -> None:
    quick = begin(
        "valleys: the flow with `followed` directions, and SciPy's LSODA with the exact Hessian, at rtol 1e-6"
    )
    columns = ("scale, repetition", *(f"followed={number}" for number in FOLLOWED), "LSODA, exact Hessian")
    chosen = STARTS[:2] if quick else STARTS
    title = f"steps, rejected ones too, and seconds to a risk of {RISK}, or to the limit"
    table(title, columns, [(name, *cells(*start)) for name, *start in starts(chosen)])


def starts(chosen: list[tuple[int, int]]) -> Iterator[tuple[str, eqx.Module, flowsim.EmpiricalRisk]]:
    """Yield names, networks and problems of the scenario's sweep."""
    scenario = read_scenario(SCENARIO)
    at = {point.index[0]: point for point in points(scenario)}
    for index, repetition in chosen:
        point = at[index]
        data = read_data(point.scenario, SCENARIO.parent)
        key = start_key(scenario.seed, point.name, repetition)
        network = build_network(point.scenario, data.inputs, data.outputs, key)
        scale = point.coordinates["network.scale"]
        yield f"{scale:.3f}, {repetition}", network, flowsim.EmpiricalRisk(*data.training)


def cells(network: eqx.Module, problem: flowsim.EmpiricalRisk) -> Iterator[str]:
    for followed in FOLLOWED:
        yield ours(network, problem, followed)
    yield scipys(network, problem)


def ours(network: eqx.Module, problem: flowsim.EmpiricalRisk, followed: int) -> str:
    solver = flowsim.solvers.LowRankExtrapolation(followed=followed, overhead=8 + followed)
    stopping = flowsim.Stopping(risk=RISK)

    def run() -> flowsim.Trajectory:
        return flowsim.integrate(network, problem, solver=solver, stopping=stopping, ts=[], max_steps=MOST_STEPS)

    flow = run()
    limit = f", limit of risk {flow.final_risk:.2g}" if flow.converged and flow.final_risk > RISK else ""
    ended = flow.converged or flow.outcome == flowsim.Outcome.RISK_REACHED
    return said(int(flow.steps + flow.rejected_steps), once(run), None if ended else float(flow.time)) + limit


def said(steps: int, seconds: float, under_way: float | None) -> str:
    """Return what a run took, and the time it reached where it has not ended."""
    took = f"{seconds:.2g} s"
    return f"{steps}, {took}" if under_way is None else f"under way at {under_way:.2g}, {took}"


def scipys(network: eqx.Module, problem: flowsim.EmpiricalRisk) -> str:
    field, weights = gradient_field(network, problem)
    start, unravel = ravel_pytree(weights)
    slope = jax.jit(lambda t, y: ravel_pytree(field(t, unravel(y), None))[0])
    slopes = jax.jit(jax.jacfwd(slope, argnums=1))
    risk = jax.jit(lambda y: problem(field.network(unravel(y))))
    jax.block_until_ready((slope(0.0, start), slopes(0.0, start), risk(start)))
    options = {"rtol": 1e-6, "atol": 1e-9, "jac": lambda t, y: np.asarray(slopes(t, y))}
    solver = LSODA(lambda t, y: np.asarray(slope(t, y)), 0.0, np.asarray(start), jnp.inf, **options)
    steps = 0

    def run() -> None:
        nonlocal steps
        while steps < MOST_STEPS_OF_SCIPY and solver.status == "running" and risk(solver.y) > RISK:
            solver.step()
            steps += 1

    seconds = once(run)
    return said(steps, seconds, None if risk(solver.y) <= RISK else solver.t)


if __name__ == "__main__":
    main()
