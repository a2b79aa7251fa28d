"""How the errors of every flow that models a descent fall with its tolerance.

    python benchmarks/model_tolerances.py [--quick] [--save]

`scenarios/edge_of_stability.yaml` to where descent has been at its edge for a while: errors of the weights at the end,
relative, against the same flow at rtol 1e-9, or where that ends before at 1e-8, and the gradients and products with the
Hessian that it took. The network is linear, so that no error is of a gradient that jumps.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from console import begin, table
from edge_cost import FOREVER, distance, weights_of

import flowsim
from flowsim.scenarios import build, read_scenario

SCENARIO = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
TOLERANCES, REFERENCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7), (1e-9, 1e-8)
# Each with a time until which its descent oscillates, or comes near its edge.
MODELS = {
    "gradient flow": (flowsim.GradientFlow, 40.0),
    "central, order 1": (lambda **to: flowsim.CentralFlow(0.1, order=1, **to), 40.0),
    "central, order 2": (lambda **to: flowsim.CentralFlow(0.1, order=2, **to), 40.0),
    "edge, order 1": (lambda **to: flowsim.EdgeFlow(0.1, order=1, **to), 40.0),
    "edge, order 2": (lambda **to: flowsim.EdgeFlow(0.1, **to), 40.0),
    "rod": (lambda **to: flowsim.RodFlow(0.1, **to), 40.0),
    "centre of gradient descent": (lambda **to: flowsim.CentreFlow(flowsim.GradientDescent(0.1), **to), 40.0),
    "centre of heavy ball": (lambda **to: flowsim.CentreFlow(flowsim.HeavyBall(0.15, momentum=0.5), **to), 40.0),
    "centre of RMSProp": (lambda **to: flowsim.CentreFlow(flowsim.RMSProp(1e-3), **to), 0.1),
    "centre of Adam": (lambda **to: flowsim.CentreFlow(flowsim.Adam(1e-3), **to), 0.1),
    "stable flow of Adam": (lambda **to: flowsim.StableFlow(flowsim.Adam(1e-3), **to), 0.1),
}
COLUMNS = ("flow", "to t", "rtol", "ends", "steps", "gradients", "products")
COLUMNS += ("error", "against", "error / rtol", "order")


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    quick = begin("how errors of models fall with their tolerance")
    problem, network, _ = build(read_scenario(SCENARIO), SCENARIO.parent)
    rows = []
    for name, (make, t1) in itertools.islice(MODELS.items(), 3 if quick else None):
        rows += rows_of(name, make, t1, network, problem)
    table("edge_of_stability.yaml", COLUMNS, rows)


def rows_of(name: str, make: Any, t1: float, network: eqx.Module, problem: flowsim.Problem) -> Iterator[tuple]:
    """Yield a row for each tolerance; the order is that of the error in it, from one tolerance to the next."""

    def run(rtol: float) -> flowsim.Trajectory:
        # An absolute tolerance of its own would hold back what rtol asks for.
        return flowsim.integrate(
            network, problem, model=make(rtol=rtol, atol=1e-3 * rtol), t1=t1, ts=[], stopping=FOREVER
        )

    ended = ((rtol, run(rtol)) for rtol in REFERENCES)
    finest, best = next(one for one in ended if one[1].outcome == flowsim.Outcome.TIME_LIMIT)
    reference, before = weights_of(best), None
    for rtol in TOLERANCES:
        found = run(rtol)
        error = distance(weights_of(found), reference)
        order = "–" if before is None else float(np.log10(before / error))
        counts = int(found.steps), int(found.gradients), int(found.products)
        yield name, t1, f"{rtol:g}", str(found.outcome), *counts, error, f"{finest:g}", error / rtol, order
        before = error
    jax.clear_caches()


if __name__ == "__main__":
    main()
