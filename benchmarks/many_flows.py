"""The 200 flows of Figure 1b (Marion and Chizat 2024): ten scales, 20 repetitions, each to ‖∇R‖ ≤ 1e-8.

The default solver against Tsit5 with its step limited by the sharpness, on two threads; sharpness of the limits up to
some 10⁵.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import diffrax
import jax
import numpy as np
from cases import Case, perceptron
from console import begin, table
from timing import once

import flowsim

_SCALES = np.linspace(0.25, 0.6, 10)
_REPETITIONS = 20
_THREADS = 2


@dataclass(frozen=True)
class Method:
    """A way to integrate one flow, and how many of the flows it is given."""

    name: str
    solver: diffrax.AbstractAdaptiveSolver | None
    flows: int

    def run(self, cases: list[Case]) -> list[flowsim.Trajectory]:
        """Integrate the flows of the first cases, and wait for all of them."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._limit, cases[: self.flows]))

    def _limit(self, case: Case) -> flowsim.Trajectory:
        flow = flowsim.integrate(case.network, case.problem, solver=self.solver, ts=[], max_steps=200_000)
        return jax.block_until_ready(flow)


def main() -> None:
    """Print the time of all flows, how many converged, and what they took."""
    quick = begin("The 200 flows of Figure 1b to ‖∇R‖ ≤ 1e-8, on two threads")
    share = 20 if quick else len(_SCALES) * _REPETITIONS
    seeds = range(share // len(_SCALES))
    cases = [perceptron(float(scale), seed=seed) for seed in seeds for scale in _SCALES]
    methods = [Method("default", None, share), Method("Tsit5, limited by the sharpness", diffrax.Tsit5(), share // 10)]
    columns = ["method", "converged", "seconds", "ms each", "gradients: median", "most", "largest sharpness"]
    table("Warm; the limited method runs on a tenth of the flows", columns, [_row(method, cases) for method in methods])


def _row(method: Method, cases: list[Case]) -> list[object]:
    method.run(cases)
    seconds = min(once(lambda: method.run(cases)) for _ in range(3))
    flows = method.run(cases)
    gradients = np.array([flow.gradients for flow in flows])
    converged = f"{sum(map(bool, (flow.converged for flow in flows)))} of {len(flows)}"
    sharpest = max(flow.final_sharpness for flow in flows)
    each = 1e3 * seconds / len(flows)
    return [method.name, converged, seconds, each, int(np.median(gradients)), int(gradients.max()), sharpest]


if __name__ == "__main__":
    main()
