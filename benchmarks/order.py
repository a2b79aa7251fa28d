"""Is gradient descent the Euler discretization of the flow that is integrated?"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, diabetes, perceptron, residual
from console import begin, table
from plain import PlainProblem, flat, relative_error

import flowsim

EXPONENTS = range(7, 14)
TIME = 0.5
EULER_STEPS = 512


def main() -> None:
    begin("order: GD with learning rate η against the flow at one time, and against Diffrax's Euler at dt0 = η")
    cases = [residual(), perceptron(0.35), diabetes()]
    columns = ("case", *(f"η = 2^-{k}" for k in EXPONENTS), "slope", "flow against SciPy")
    title = f"‖W_GD(t/η) − W_GF(t)‖ / ‖W_GF(t)‖ at t = {TIME} (expected slope: 1)"
    table(title, columns, [distance_row(case) for case in cases])
    columns = ("case", "η", "steps", "ulps, flowsim's field", "of ‖W‖_∞", "ulps, plain field", "of ‖W‖_∞, plain field")
    rows = [euler_row(case, rate) for case in cases for rate in (2.0**-8, 0.005)]
    table("largest difference of a weight between GD and Euler at dt0 = η", columns, rows)


def distance_row(case: Case) -> tuple:
    flow = flowsim.integrate(case.network, case.problem, t1=TIME, rtol=1e-12)
    exact = flat(flow.network)
    plain = PlainProblem(case)
    own_error = relative_error(exact, plain.flow(plain.start, TIME, rtol=1e-13))
    rates = [2.0**-exponent for exponent in EXPONENTS]
    errors = [relative_error(flat(descent(case, rate, round(TIME / rate))), exact) for rate in rates]
    slope = np.polyfit(np.log(rates), np.log(errors), 1)[0]
    return (case.name, *errors, float(slope), own_error)


def descent(case: Case, rate: float, steps: int) -> flowsim.DeepLinear:
    """Return the network after exactly `steps` steps of gradient descent."""
    never = flowsim.Stopping(gradient_norm=None)
    run = flowsim.descend(
        case.network, case.problem, learning_rate=rate, steps=steps, stopping=never, record_steps=[0, steps]
    )
    assert int(run.steps) == steps, f"{case.name}: ended after {run.steps} steps ({run.outcome.name})"
    return run.network


def euler_row(case: Case, rate: float) -> tuple:
    found = flat(descent(case, rate, EULER_STEPS))

    def objective(stacks: tuple) -> jax.Array:
        return case.problem.objective(eqx.tree_at(lambda network: network.stacks, case.network, stacks))

    stacks = euler(objective, case.network.stacks, rate)
    same_field = flat(eqx.tree_at(lambda network: network.stacks, case.network, stacks))
    plain = PlainProblem(case)
    plain_field = np.array(euler(plain.risk, jnp.asarray(plain.start), rate))
    return (
        case.name,
        str(rate),
        EULER_STEPS,
        *difference(found, same_field),
        *difference(found, plain_field),
    )


def euler(objective: object, start: object, rate: float) -> object:
    """Return the end of `EULER_STEPS` steps of Diffrax's Euler on −∇objective."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: jax.tree.map(jnp.negative, jax.grad(objective)(y))),
        diffrax.Euler(),
        t0=0.0,
        t1=EULER_STEPS * rate,
        dt0=rate,
        y0=start,
        max_steps=EULER_STEPS + 1,
    )
    return jax.tree.map(lambda leaf: leaf[-1], solution.ys)


def difference(found: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Return the largest difference in units of the last place of a weight, and relative to ‖W‖_∞."""
    gaps = np.abs(found - expected)
    ulps = (gaps / np.spacing(np.abs(expected))).max()
    return float(ulps), float(gaps.max() / np.abs(expected).max())


if __name__ == "__main__":
    main()
