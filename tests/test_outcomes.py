"""The table of outcomes: which one counts where several conditions hold, wherever a run is decided."""

import itertools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import Outcome, Risk, Stopping
from flowsim.batch import descend_batch
from flowsim.dynamics import decide


def test_the_first_outcome_of_the_table_whose_condition_holds_counts():
    for first, second in itertools.combinations(Outcome, 2):
        assert decide({second: True, first: True}) == first
    codes = decide({Outcome.STEP_LIMIT: True, Outcome.DIVERGED: np.array([True, False])})
    assert codes.tolist() == [Outcome.DIVERGED, Outcome.STEP_LIMIT]
    assert decide({Outcome.CONVERGED: False}) == Outcome.RUNNING


def test_the_documentation_has_every_outcome_in_the_order_of_the_table():
    page = (Path(__file__).parents[1] / "docs/concepts/verdicts.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{one.name}` | {one.condition} |" for one in Outcome if one is not Outcome.RUNNING]


class Power(eqx.Module):
    """a·w^k / k."""

    factor: jax.Array
    exponent: int = eqx.field(static=True)

    def __call__(self, weights):
        return self.factor * weights[0] ** self.exponent / self.exponent


# The risk, start and learning rate; the risk to stop at, and the step at which the first condition comes to hold.
COINCIDENCES = {
    Outcome.RISK_REACHED: (Power(jnp.array(1.0), 2), 1.0, 0.5, 1e-3, 5),
    Outcome.DIVERGED: (Power(jnp.array(1.0), 4), 3.0, 1.0, None, 3),
    Outcome.NO_MINIMIZER: (Power(jnp.array(-1.0), 4), 3.0, 1.0, None, 2),
    Outcome.FIXED_POINT: (Power(jnp.array(1.0), 1), 1e20, 1.0, None, 1),
}


@pytest.mark.parametrize("outcome", COINCIDENCES)
def test_a_run_ends_by_the_same_condition_at_its_last_step_in_the_loop_under_jit_and_in_a_batch(outcome):
    function, start, rate, level, steps = COINCIDENCES[outcome]
    problem, stopping = Risk(function), Stopping(gradient_norm=None, risk=level)

    def end(weights, count):
        return flowsim.descend(weights, problem, learning_rate=rate, steps=count, stopping=stopping, record_steps=[0])

    weights = jnp.array([start])
    assert (end(weights, steps).outcome, int(end(weights, steps).steps)) == (outcome, steps)
    assert steps == 1 or end(weights, steps - 1).outcome == Outcome.STEP_LIMIT
    assert eqx.filter_jit(lambda w: end(w, steps).code)(weights) == outcome
    floor = -np.inf if level is None else level
    batch = descend_batch(weights[None], problem, learning_rates=[rate], steps=max(steps, 64), floors=floor)
    assert batch.outcomes.tolist() == [outcome]
