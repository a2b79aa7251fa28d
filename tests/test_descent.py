import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim import Outcome
from flowsim.dynamics import default_record_steps
from flowsim.networks import cast, split
from flowsim.solvers.field import gradient_field


def flat(network):
    return np.asarray(ravel_pytree(split(network)[0])[0])


@pytest.mark.parametrize("name", ["residual", pytest.param("mlp", marks=pytest.mark.slow)])
def test_descent_with_step_eta_is_euler_at_dt_eta(name, problem, request):
    network, eta, steps = request.getfixturevalue(name), 1 / 64, 50
    gd = flowsim.descend(network, problem, learning_rate=eta, steps=steps)
    field, weights = gradient_field(network, problem)
    euler = _euler(field, weights, eta, steps)
    np.testing.assert_allclose(ravel_pytree(euler)[0], flat(gd.network), rtol=1e-13, atol=1e-14)


def _euler(field, weights, eta, steps):
    # Diffrax changes dt0 a little unless it divides the time exactly: η is a power of two here.
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Euler(), t0=0.0, t1=steps * eta, dt0=eta, y0=weights, max_steps=steps
    )
    return jax.tree.map(lambda leaf: leaf[0], solution.ys)


@pytest.mark.slow
def test_distance_to_the_flow_is_of_first_order_in_eta(residual, problem):
    etas, time = 0.005 * 0.5 ** np.arange(5), 0.32
    flow = flat(flowsim.integrate(residual, problem, t1=time, rtol=1e-10).network)
    distances = [
        np.linalg.norm(
            flat(
                flowsim.descend(residual, problem, learning_rate=eta, steps=round(time / eta), record_steps=[0]).network
            )
            - flow
        )
        for eta in etas
    ]
    slope = np.polyfit(np.log(etas), np.log(distances), 1)[0]
    assert abs(slope - 1) < 0.05


@pytest.mark.slow
def test_balancedness_drifts_with_order_eta(mlp, problem):
    def drift(eta):
        end = flowsim.descend(mlp, problem, learning_rate=eta, steps=round(2 / eta), record_steps=[0]).network
        pairs = zip(mlp.weights, mlp.weights[1:], end.weights, end.weights[1:], strict=False)
        return max(np.linalg.norm((b.T @ b - a @ a.T) - (v.T @ v - u @ u.T)) for a, b, u, v in pairs)

    etas = 0.02 * 0.5 ** np.arange(4)
    slope = np.polyfit(np.log(etas), np.log([drift(eta) for eta in etas]), 1)[0]
    assert abs(slope - 1) < 0.1


@pytest.mark.slow
def test_convergence_is_reported_at_the_step_where_it_happened(residual, problem):
    gd = flowsim.descend(residual, problem, learning_rate=0.02, steps=4000)
    assert gd.outcome is Outcome.CONVERGED
    assert int(gd.steps) < 4000
    assert float(gd.time) == pytest.approx(0.02 * int(gd.steps))
    assert float(gd.gradient_norm[-1]) <= 1e-8 < float(gd.gradient_norm[-2])
    assert gd.final_sharpness < 2 / 0.02


@pytest.mark.slow
def test_divergence_ends_the_run_at_its_step_and_is_no_error(residual, problem):
    gd = flowsim.descend(residual, problem, learning_rate=0.5, steps=4000)
    assert gd.outcome is Outcome.DIVERGED
    assert not gd.converged
    assert int(gd.steps) < 50
    assert np.isnan(gd.final_sharpness)
    again = flowsim.descend(residual, problem, learning_rate=0.5, steps=int(gd.steps) - 1, record_steps=[0])
    assert again.outcome is Outcome.STEP_LIMIT


def test_slow_divergence_is_seen_before_the_numbers_overflow(problem):
    """One layer with η above 2/S grows like a power, and is called diverged when the start is lost to rounding."""
    network = flowsim.DeepLinear([np.ones((1, 5))])
    eta = 1.02 / float(problem.largest_eigenvalue)
    gd = flowsim.descend(network, problem, learning_rate=eta, steps=100_000)
    assert gd.outcome is Outcome.DIVERGED
    assert np.isfinite(gd.risk).all()


@pytest.mark.slow
def test_descent_from_a_minimum_that_it_cannot_keep_leaves_it_and_finds_a_flatter_one(mlp_flow, problem):
    eta = 2.5 / mlp_flow.final_sharpness
    tight = flowsim.Stopping(gradient_norm=1e-12)
    gd = flowsim.descend(mlp_flow.network, problem, learning_rate=eta, steps=3000, stopping=tight, weights=True)
    assert gd.outcome is Outcome.STEP_LIMIT
    assert float(gd.excess_risk.max()) > 1e-2
    assert gd.final_sharpness < mlp_flow.final_sharpness
    assert gd.weights.weights[0].shape == (len(gd.times), 5, 5)


@pytest.mark.slow
def test_a_fixed_point_of_floating_point_ends_the_run_early_and_is_named():
    never = flowsim.Stopping(gradient_norm=None)
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    network = flowsim.DeepLinear([np.full((1, 1), 0.8), np.full((1, 1), 0.7)])
    gd = flowsim.descend(network, problem, learning_rate=0.02, steps=100_000, stopping=never, record_steps=[0])
    assert gd.outcome is Outcome.FIXED_POINT
    assert float(gd.excess_risk[-1]) < 1e-28
    longer = flowsim.descend(gd.network, problem, learning_rate=0.02, steps=10, stopping=never, record_steps=[0])
    np.testing.assert_array_equal(flat(gd.network), flat(longer.network))


@pytest.mark.slow
def test_records_are_made_at_the_steps_asked_for(mlp, problem):
    gd = flowsim.descend(mlp, problem, learning_rate=0.02, steps=100, record_steps=[0, 1, 10, 99, 500], weights=True)
    np.testing.assert_allclose(gd.times, 0.02 * np.array([0, 1, 10, 99, 100]), rtol=1e-15)
    partial = flowsim.descend(mlp, problem, learning_rate=0.02, steps=10, record_steps=[0])
    np.testing.assert_array_equal(gd.weights.stacks[0][2], partial.network.stacks[0])


def test_default_records_start_at_zero_and_end_at_the_last_step():
    marks = default_record_steps(4000)
    assert marks[0] == 0
    assert marks[-1] == 4000
    assert 200 <= len(marks) <= 250
    np.testing.assert_array_equal(default_record_steps(1), [0, 1])


@pytest.mark.slow
def test_learning_rates_can_be_mapped_over(mlp, problem):
    rates = jnp.array([0.005, 0.02])
    batch = eqx.filter_vmap(lambda eta: flowsim.descend(mlp, problem, learning_rate=eta, steps=60))(rates)
    for lane, eta in enumerate(rates):
        alone = flowsim.descend(mlp, problem, learning_rate=float(eta), steps=60)
        np.testing.assert_allclose(batch.network.stacks[0][lane], alone.network.stacks[0], rtol=1e-12)


@pytest.mark.parametrize("rate", [1e60, 1e-60])
def test_a_learning_rate_that_single_precision_has_no_number_for_is_refused(rate, mlp, problem):
    with pytest.raises(ValueError, match="positive finite number of float32"):
        flowsim.descend(cast(mlp, jnp.float32), problem, learning_rate=rate, steps=5)


@pytest.mark.slow
def test_single_precision_stays_single(mlp, problem):
    gd = flowsim.descend(cast(mlp, jnp.float32), problem, learning_rate=0.02, steps=50)
    assert gd.network.stacks[0].dtype == gd.times.dtype == jnp.float32


@pytest.mark.slow
def test_another_learning_rate_does_not_compile(mlp, problem, compiled):
    flowsim.descend(mlp, problem, learning_rate=0.011, steps=300)
    before = compiled()
    flowsim.descend(mlp, problem, learning_rate=0.012, steps=300)
    assert compiled() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0, "steps": 10}, "learning_rate"),
        ({"learning_rate": -0.1, "steps": 10}, "learning_rate"),
        ({"learning_rate": float("inf"), "steps": 10}, "learning_rate"),
        ({"learning_rate": 0.1, "steps": 0}, "steps"),
        ({"learning_rate": 0.1, "steps": 2.5}, "steps"),
        ({"learning_rate": 0.1, "steps": 9, "record_steps": [2, 1]}, "increasing whole numbers"),
        ({"learning_rate": 0.1, "steps": 9, "record_steps": [0.5]}, "increasing whole numbers"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused(options, message, mlp, problem):
    with pytest.raises(ValueError, match=message):
        flowsim.descend(mlp, problem, **options)
