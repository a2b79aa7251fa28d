"""One flow of a large residual network to its limit: time, and peak memory as a multiple of the weights.

A second table has the memory that XLA plans for a smaller one, solver by solver.
"""

import argparse
import resource
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import options, start, table

import flowsim
from flowsim.data import gaussian_teacher
from flowsim.dynamics import loop
from flowsim.dynamics.loop import Request
from flowsim.dynamics.records import AtTimes, instruments
from flowsim.dynamics.stopping import stopping_for

PLANNED_WIDTH, PLANNED_DEPTH = 200, 20
SOLVERS = {
    "the default, LowRankExtrapolation": None,
    "StabilitySwitching": flowsim.solvers.StabilitySwitching,
    "RungeKuttaChebyshev": flowsim.solvers.RungeKuttaChebyshev,
}


def main() -> None:
    parser = arguments()
    jax.config.update("jax_enable_x64", parser.parse_args().precision == "float64")
    given = start(parser)
    width = 100 if given.quick else given.width
    columns = ("d", "L", "p", "weights, MB", "precision", "method", "outcome", "‖∇R‖", "steps", "rejected")
    columns += ("gradients", "products", "seconds, with compilation", "peak memory / weights", "of the process, GB")
    table("to the limit", columns, [row(width, given.depth, given.precision)])
    # Last: it would raise the peak that the first table starts from.
    title = f"planned for the program of the steps, d = {PLANNED_WIDTH}, L = {PLANNED_DEPTH}, {given.precision}"
    columns = ("solver", "temporary memory / weights")
    table(title, columns, [(name, planned(kind, given.precision)) for name, kind in SOLVERS.items()])


def arguments() -> argparse.ArgumentParser:
    parser = options("large flow: a residual network on 2d samples of a Gaussian teacher, at the default tolerances")
    parser.add_argument("--width", type=int, default=1000, help="features, and rows of every layer (default: 1000)")
    parser.add_argument("--depth", type=int, default=10, help="number of layers (default: 10)")
    parser.add_argument("--precision", choices=["float32", "float64"], default="float32")
    return parser


def planned(kind: type | None, precision: str) -> float:
    """Return what XLA sets aside for the steps, beside arguments and results, in copies of the weights."""
    network, problem = large(PLANNED_WIDTH, PLANNED_DEPTH, precision)
    solver = None if kind is None else kind(jnp.asarray(1e-4), jnp.asarray(1e-7))
    dynamics = flowsim.GradientFlow(solver).checked(network.stacks[0].dtype)
    request = Request(
        network=network,
        problem=problem,
        dynamics=dynamics,
        stopping=stopping_for(None, problem, network.stacks[0].dtype),
        schedule=AtTimes(np.asarray([], network.stacks[0].dtype)),
        instruments=instruments(network, dynamics, None, (), sharpness=False, weights=False),
        t1=np.asarray(np.inf, network.stacks[0].dtype),
        max_steps=np.asarray(1_000_000),
    )
    state = eqx.filter_eval_shape(loop.start_state, request)
    moving, fixed = eqx.partition(state, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    arrays, rest = eqx.partition(request, eqx.is_array)

    def further(state: loop.RunState, arrays: Request, steps: jax.Array) -> loop.RunState:
        # As compiled in a run; the look at second derivatives is a program of its own.
        advanced = loop.advance(eqx.combine(arrays, rest), eqx.combine(state, fixed), steps)
        return eqx.filter(advanced, eqx.is_array)

    memory = jax.jit(further, donate_argnums=0).lower(moving, arrays, jnp.array(1)).compile().memory_analysis()
    return memory.temp_size_in_bytes / sum(stack.nbytes for stack in network.stacks)


def row(width: int, depth: int, precision: str) -> tuple:
    network, problem = large(width, depth, precision)
    jax.block_until_ready((problem, network.stacks))
    weights = sum(stack.nbytes for stack in network.stacks)
    before, began = peak_bytes(), time.perf_counter()
    end = jax.block_until_ready(flowsim.integrate(network, problem, ts=[]))
    seconds, peak = time.perf_counter() - began, peak_bytes()
    size = (width, depth, f"{sum(stack.size for stack in network.stacks):.1e}", weights / 1e6, precision)
    counts = (int(count) for count in (end.steps, end.rejected_steps, end.gradients, end.products))
    known = (end.method, end.outcome.name, float(end.gradient_norm[-1]), *counts)
    return (*size, *known, seconds, (peak - before) / weights, peak / 1e9)


def large(width: int, depth: int, precision: str) -> tuple[flowsim.DeepLinear, flowsim.LinearRegression]:
    rng = np.random.default_rng(0)
    problem = flowsim.LinearRegression(*gaussian_teacher(rng, 2 * width, width))
    projection = rng.standard_normal(width)
    projection /= np.linalg.norm(projection)
    network = flowsim.DeepLinear.residual(
        width=width, depth=depth, scale=0.5, projection=projection, key=jax.random.key(0), dtype=precision
    )
    return network, problem


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
