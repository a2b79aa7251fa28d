import jax.numpy as jnp
import numpy as np
import pytest
from test_solvers import flat

import flowsim
from flowsim import Outcome
from flowsim.dynamics import default_record_steps
from flowsim.networks import cast

NEVER = flowsim.Stopping(gradient_norm=None)


@pytest.fixture(scope="module")
def network():
    return flowsim.DeepLinear([np.array([[0.3, 0.1], [-0.1, 0.4]]), np.array([[0.3, -0.2]])])


@pytest.fixture(scope="module")
def regression():
    X = np.random.default_rng(0).standard_normal((12, 2))
    return flowsim.LinearRegression(X, X @ np.array([1.5, -1.0]))


def test_descent_with_step_eta_is_euler_at_dt_eta(network, regression):
    """Records are made at the steps asked for, and at the last."""
    eta, steps, marks = 1 / 64, 50, [0, 1, 10, 49, 500]
    options = {"learning_rate": eta, "steps": steps, "record_steps": marks, "weights": True}
    run = flowsim.descend(network, regression, **options)
    first, second = (np.asarray(stack[0]) for stack in network.stacks)
    path = [(first, second)]
    for _ in range(steps):
        pull = 2 * (second @ first - np.asarray(regression.optimum)) @ np.asarray(regression.covariance)
        first, second = first - eta * second.T @ pull, second - eta * pull @ first.T
        path.append((first, second))
    made = [0, 1, 10, 49, 50]
    for layer, stack in enumerate(run.weights.stacks):
        np.testing.assert_allclose(stack[:, 0], [path[k][layer] for k in made], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(run.times, eta * np.array(made), rtol=1e-15)
    assert run.outcome is Outcome.STEP_LIMIT
    assert int(run.gradients) == 51


@pytest.mark.slow
def test_convergence_and_divergence_end_a_run_at_the_step_where_they_happen(network, regression):
    gd = flowsim.descend(network, regression, learning_rate=0.05, steps=4000)
    assert gd.outcome is Outcome.CONVERGED
    assert int(gd.steps) < 4000
    assert float(gd.time) == pytest.approx(0.05 * int(gd.steps))
    assert float(gd.gradient_norm[-1]) <= 1e-8 < float(gd.gradient_norm[-2])
    assert gd.final_sharpness < 2 / 0.05
    gd = flowsim.descend(network, regression, learning_rate=2.0, steps=4000)
    assert gd.outcome is Outcome.DIVERGED
    assert not gd.converged
    assert int(gd.steps) < 50
    assert np.isnan(gd.final_sharpness)
    again = flowsim.descend(network, regression, learning_rate=2.0, steps=int(gd.steps) - 1, record_steps=[0])
    assert again.outcome is Outcome.STEP_LIMIT


def test_slow_divergence_is_seen_before_the_numbers_overflow(problem):
    """One layer with η above 2/S grows like a power, and is called diverged when the start is lost to rounding."""
    network = flowsim.DeepLinear([np.ones((1, 5))])
    eta = 1.02 / float(problem.largest_eigenvalue)
    gd = flowsim.descend(network, problem, learning_rate=eta, steps=100_000)
    assert gd.outcome is Outcome.DIVERGED
    assert np.isfinite(gd.risk).all()


@pytest.mark.slow
def test_a_fixed_point_of_floating_point_ends_the_run_early_and_is_named():
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    network = flowsim.DeepLinear([np.full((1, 1), 0.8), np.full((1, 1), 0.7)])
    gd = flowsim.descend(network, problem, learning_rate=0.02, steps=100_000, stopping=NEVER, record_steps=[0])
    assert gd.outcome is Outcome.FIXED_POINT
    assert float(gd.excess_risk[-1]) < 1e-28
    longer = flowsim.descend(gd.network, problem, learning_rate=0.02, steps=10, stopping=NEVER, record_steps=[0])
    np.testing.assert_array_equal(flat(gd.network), flat(longer.network))


def test_default_records_start_at_zero_and_end_at_the_last_step():
    marks = default_record_steps(4000)
    assert marks[0] == 0
    assert marks[-1] == 4000
    assert 200 <= len(marks) <= 250
    np.testing.assert_array_equal(default_record_steps(1), [0, 1])


@pytest.mark.parametrize("rate", [1e60, 1e-60])
def test_a_learning_rate_that_single_precision_has_no_number_for_is_refused(rate, network, regression):
    with pytest.raises(ValueError, match="positive finite number of float32"):
        flowsim.descend(cast(network, jnp.float32), regression, learning_rate=rate, steps=5)


@pytest.mark.parametrize(
    ("rate", "t1", "outcome", "steps"),
    [
        (0.1, 0.0, Outcome.TIME_LIMIT, 0),
        (0.1, 0.25, Outcome.TIME_LIMIT, 3),
        (0.1, 0.3, Outcome.TIME_LIMIT, 3),
        (1 / 49, 1.0, Outcome.TIME_LIMIT, 49),  # whose time is rounded to less than one
        (1 / 49, 2.0, Outcome.STEP_LIMIT, 50),
    ],
)
def test_a_descent_ends_with_the_first_step_that_reaches_its_time(rate, t1, outcome, steps, network, regression):
    run = flowsim.descend(network, regression, learning_rate=rate, steps=50, t1=t1)
    assert (run.outcome, int(run.steps)) == (outcome, steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": -0.1, "steps": 10}, "learning_rate"),
        ({"learning_rate": 0.1, "steps": 10, "t1": "1"}, "t1 must be a number, zero or more"),
        ({"learning_rate": float("inf"), "steps": 10}, "learning_rate"),
        ({"learning_rate": 0.1, "steps": 0}, "steps"),
        ({"learning_rate": 0.1, "steps": 2.5}, "steps"),
        ({"learning_rate": 0.1, "steps": 9, "record_steps": [2, 1]}, "increasing whole numbers"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused(options, message, network, regression):
    with pytest.raises(ValueError, match=message):
        flowsim.descend(network, regression, **options)
