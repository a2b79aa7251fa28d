"""Where stock explicit steps end: Diffrax's Tsit5 with the same stopping rule, beside flowsim."""

from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, every, residual
from console import begin, table
from plain import PlainProblem, flat, relative_error
from timing import once, warm_seconds

import flowsim

GRADIENT_NORM = 1e-8
STEP_LIMIT = 400_000


def main() -> None:
    quick = begin("stalling: stock Tsit5 with the event ‖∇R‖ ≤ 1e-8, and flowsim with the same rule")
    cases = [residual()] if quick else every()
    columns = ("case", "method", "steps", "stopped", "lowest ‖∇R‖", "median ‖∇R‖, last half")
    columns += ("error", "seconds", "time / flowsim's")
    title = f"explicit steps, at most {STEP_LIMIT}"
    table(title, columns, [row for case in cases for row in stalling_rows(case)])


def stalling_rows(case: Case) -> list[tuple]:
    limit = PlainProblem(case).limit()
    end = flowsim.integrate(case.network, case.problem)
    (own_seconds,) = warm_seconds(lambda: flowsim.integrate(case.network, case.problem))
    rows = [stock_row(case, rtol, limit, own_seconds) for rtol in (1e-6, 1e-9)]
    stopped = "yes" if end.converged else end.outcome.name
    error = relative_error(flat(end.network), limit)
    steps = int(end.steps + end.rejected_steps)
    own = (steps, stopped, float(end.gradient_norm.min()), "", error, own_seconds, 1.0)
    return [*rows, ("", "flowsim 1e-6", *own)]


def stock_row(case: Case, rtol: float, limit: np.ndarray, own_seconds: float) -> tuple:
    solve = stock(case, rtol, saveat=diffrax.SaveAt(steps=True, fn=gradient_norm(case)))
    norms = np.array(solve().ys)
    norms = norms[np.isfinite(norms)]
    solve = stock(case, rtol)
    solution = solve()
    stopped = "yes" if solution.result == diffrax.RESULTS.event_occurred else "never"
    seconds = once(solve)
    error = relative_error(final_weights(solution), limit)
    floor = (float(norms.min()), float(np.median(norms[len(norms) // 2 :])))
    name = f"{case.name} (p = {case.size})" if rtol == 1e-6 else ""
    steps = int(solution.stats["num_steps"])
    return (name, f"stock Tsit5 {rtol:.0e}", steps, stopped, *floor, error, seconds, seconds / own_seconds)


def stock(case: Case, rtol: float, saveat: diffrax.SaveAt | None = None) -> Callable[[], diffrax.Solution]:
    """Return a compiled solve to ‖∇R‖ ≤ 1e-8 as Diffrax's documentation writes it, with atol = rtol/100."""
    size, saveat = gradient_norm(case), diffrax.SaveAt(t1=True) if saveat is None else saveat

    @eqx.filter_jit
    def solve(stacks: tuple, rtol: jax.Array) -> diffrax.Solution:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: jax.tree.map(jnp.negative, gradient(case, y))),
            diffrax.Tsit5(),
            t0=0.0,
            t1=jnp.inf,
            dt0=None,
            y0=stacks,
            saveat=saveat,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
            event=diffrax.Event(lambda t, y, args, **_: size(t, y, args) <= GRADIENT_NORM),
            adjoint=diffrax.ForwardMode(),
            max_steps=STEP_LIMIT,
            throw=False,
        )

    return lambda: jax.block_until_ready(solve(case.network.stacks, jnp.asarray(rtol)))


def gradient(case: Case, stacks: tuple) -> tuple:
    def objective(stacks: tuple) -> jax.Array:
        return case.problem.objective(eqx.tree_at(lambda network: network.stacks, case.network, stacks))

    return jax.grad(objective)(stacks)


def gradient_norm(case: Case) -> Callable[..., jax.Array]:
    return lambda t, y, args: jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient(case, y))))


def final_weights(solution: diffrax.Solution) -> np.ndarray:
    return np.concatenate([np.ravel(leaf[-1]) for leaf in solution.ys])


if __name__ == "__main__":
    main()
