"""The rod flow against the difference equations of descent's rod, and against what is known of them in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.edge.oscillation_field import OscillationPoint
from flowsim.edge.rod_flow import RodField
from flowsim.networks import split
from flowsim.probes import Oscillation
from flowsim.solvers.field import gradient_field

ETA = 0.1


def point_at(centre, direction, amplitude):
    direction = jnp.asarray(direction) / jnp.linalg.norm(jnp.asarray(direction))
    return OscillationPoint(jnp.asarray(centre), direction, jnp.log(jnp.asarray(amplitude)), jnp.array(-jnp.inf))


@pytest.mark.parametrize("sharpness", [5.0, 19.0, 20.0, 23.0])
@pytest.mark.slow
def test_on_a_quadratic_a_rod_grows_beyond_two_over_the_learning_rate(sharpness):
    """dΣ/dt = (η²S²/2 − 2)Σ/η (Regis and Chewi 2026)."""
    field, weights = gradient_field(jnp.array([0.0]), flowsim.Risk(lambda w: sharpness * jnp.sum(w**2) / 2))
    rate = RodField(field, jnp.array(ETA))(None, point_at(weights, [1.0], 0.3), None).log_amplitude
    assert 2 * float(rate) == pytest.approx(((ETA * sharpness) ** 2 / 2 - 2) / ETA, abs=1e-9)


@pytest.mark.parametrize("amplitude", [0.2, 1e-12])
@pytest.mark.slow
def test_the_midpoint_moves_as_the_mean_over_both_rods_says(amplitude):
    """Each rod is w̄ ± δ with δ = s ± r u; −½(g₊ + g₋) − (η/8)(H₊ + H₋)(g₊ + g₋) is written out for each."""

    def risk(w):
        return jnp.sin(w[0]) * w[1] ** 2 + jnp.exp(w[0] - w[1]) + w[1] ** 4

    field, weights = gradient_field(jnp.array([0.4, 0.7]), flowsim.Risk(risk))
    point = point_at(weights, [0.6, -0.8], amplitude)
    gradient, hessian = jax.grad(risk), jax.hessian(risk)
    half, swing = -ETA / 2 * gradient(weights), amplitude * point.direction
    moved, image = jnp.zeros(2), jnp.zeros(2)
    for rod in (half + swing, half - swing):
        g = gradient(weights + rod) + gradient(weights - rod)
        h = hessian(weights + rod) + hessian(weights - rod)
        moved -= (g / 2 + ETA / 8 * h @ g) / 2
    for end in (half, -half):
        image += (gradient(weights + end + swing) - gradient(weights + end - swing)) / (4 * amplitude)
    found = RodField(field, jnp.array(ETA))(None, point, None)
    np.testing.assert_allclose(found.centre, moved, rtol=1e-12)
    if amplitude > 1e-8:
        curvature = point.direction @ image
        turn = ETA / 2 * curvature * (image - curvature * point.direction)
        np.testing.assert_allclose(found.direction, turn, rtol=1e-10)
        assert float(found.log_amplitude) == pytest.approx(float(((ETA * curvature / 2) ** 2 - 1) / ETA), rel=1e-10)


@pytest.mark.slow
def test_the_two_cycle_of_a_quartic_is_a_rest():
    """R = S w²/2 − Q w⁴/4: Σ = S/Q − 2/(ηQ), where descent alternates, too."""
    sharpness, bend = 24.0, 8.0
    problem = flowsim.Risk(lambda w: jnp.sum(sharpness * w**2 / 2 - bend * w**4 / 4))
    run = flowsim.integrate(
        jnp.array([0.1]), problem, model=flowsim.RodFlow(ETA), t1=40.0, ts=[40.0], probes=[Oscillation()]
    )
    amplitude = np.sqrt(sharpness / bend - 2 / (ETA * bend))
    assert float(run.diagnostics["oscillation"][-1]) == pytest.approx(amplitude, rel=1e-9)
    assert not run.converged


@pytest.mark.slow
def test_tighter_tolerances_lead_to_one_trajectory(problem):
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=0.6, key=jax.random.key(3))

    def end(rtol):
        run = flowsim.integrate(network, problem, model=flowsim.RodFlow(0.06, rtol=rtol), t1=20.0, ts=[])
        return np.asarray(ravel_pytree(split(run.network)[0])[0])

    reference = end(1e-9)
    errors = [np.linalg.norm(end(rtol) - reference) / np.linalg.norm(reference) for rtol in (1e-3, 1e-5, 1e-7)]
    assert errors[0] < 3e-3
    assert errors[1] < 3e-5
    assert errors[2] < 3e-7


def test_a_rod_flow_that_cannot_be_is_refused(problem):
    network = flowsim.DeepLinear.gaussian(widths=[5, 1], scale=0.6, key=jax.random.key(3))
    with pytest.raises(ValueError, match="learning_rate must be a positive finite number"):
        flowsim.integrate(network, problem, model=flowsim.RodFlow(-0.1), t1=1.0)
