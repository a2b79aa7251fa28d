"""The edge flow against what is known of descent in closed form, and against descent itself."""

from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.edge.edge_field import EdgeField, log_factor
from flowsim.edge.oscillation_field import OscillationPoint
from flowsim.networks import split
from flowsim.scenarios import build, read_scenario
from flowsim.solvers import LowRankExtrapolation
from flowsim.solvers.field import gradient_field

FOREVER = flowsim.Stopping(gradient_norm=None)


class LogAmplitude(flowsim.Probe):
    label = flowsim.Label("log_amplitude", "logarithm of the amplitude", r"$\ln r$", logarithmic=False)

    def measure(self, moment):
        return moment.state.point.log_amplitude


AMPLITUDE = LogAmplitude()


def flat(path):
    return np.asarray(jax.vmap(lambda tree: ravel_pytree(tree)[0])(split(path)[0]))


def centres(path):
    """Return the means over one oscillation, and its amplitudes, at the records 1, 2, … of every step."""
    w = flat(path)
    return (w[:-2] + 2 * w[1:-1] + w[2:]) / 4, np.linalg.norm(2 * w[1:-1] - w[:-2] - w[2:], axis=1) / 4


def quartic(sharpness, bend):
    """R = S w²/2 − Q w⁴/4."""
    return flowsim.Risk(lambda w: jnp.sum(sharpness * w["w"] ** 2 / 2 - bend * w["w"] ** 4 / 4))


@pytest.mark.slow
def test_the_amplitude_of_descents_two_cycle_in_a_quartic_is_a_rest_of_the_edge_flow_that_has_not_converged():
    """w ↦ −w under descent where S − Qw² = 2/η: r² = S/Q − 2/(ηQ) (the check of Regis and Chewi 2026).

    At the centre of the two-cycle the gradient is zero and the curvature positive, and descent never gets there.
    """
    eta, sharpness, bend = 0.1, 24.0, 8.0
    amplitude = np.sqrt(sharpness / bend - 2 / (eta * bend))
    network, problem = {"w": jnp.array([0.1])}, quartic(sharpness, bend)
    descent = flowsim.descend(network, problem, learning_rate=eta, steps=400, stopping=FOREVER)
    assert abs(float(descent.network["w"][0])) == pytest.approx(amplitude, rel=1e-9)
    options = {"model": flowsim.EdgeFlow(eta), "probes": [AMPLITUDE]}
    edge = flowsim.integrate(network, problem, t1=40.0, **options)
    assert float(jnp.exp(edge.diagnostics["log_amplitude"][-1])) == pytest.approx(amplitude, rel=1e-5)
    assert float(edge.network["w"][0]) == pytest.approx(0, abs=1e-8)
    edge = flowsim.integrate(network, problem, t1=200.0, **options)
    assert edge.outcome in (flowsim.Outcome.FIXED_POINT, flowsim.Outcome.TIME_LIMIT)
    assert not edge.converged


@pytest.mark.parametrize("exponent", [0.6, 0.9, 1.0, 1.1, 1.5])
@pytest.mark.slow
def test_an_oscillation_of_one_quadratic_mode_grows_at_descents_own_rate(exponent):
    """|w_k| = |1 − ηλ|ᵏ |w_0|, so that d ln r/dt = ln|1 − ηλ|/η exactly."""
    eta = 0.1
    field, weights = gradient_field({"w": jnp.array([0.0])}, quartic((1 + exponent) / eta, 0.0))
    point = OscillationPoint(
        weights, jax.tree.map(jnp.ones_like, weights), jnp.log(jnp.array(0.3)), jnp.array(-jnp.inf)
    )
    rate = EdgeField(field, jnp.array(eta), 2)(None, point, None).log_amplitude
    assert float(rate) == pytest.approx(np.log(exponent) / eta, abs=1e-9)


def test_the_logarithm_goes_on_along_its_tangent_where_descent_would_kill_an_oscillation():
    value, slope = jax.vmap(log_factor)(jnp.array([-1.0, 0.0, 0.5, 0.75]))
    np.testing.assert_allclose(value, [np.log(0.5) - 3, np.log(0.5) - 1, np.log(0.5), np.log(0.75)], rtol=1e-14)
    np.testing.assert_allclose(slope, [2, 2, 2, 1 / 0.75], rtol=1e-14)


@pytest.fixture(scope="module")
def smooth(problem):
    """A start at rest in a valley that is not too steep for any of the learning rates below."""
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=0.6, key=jax.random.key(3))
    return network, problem


@pytest.mark.parametrize(("order", "slope"), [(1, 1), (2, 2)])
@pytest.mark.slow
def test_below_the_edge_descent_is_followed_to_the_order_of_the_flow(smooth, order, slope):
    """Order p leaves a defect of ηᵖ⁺¹ in each of 1/η steps."""
    network, problem = smooth
    rates, distances = 0.02 / 2.0 ** np.arange(4), []
    for eta in rates:
        steps = round(0.4 / eta)
        descent = flowsim.descend(network, problem, learning_rate=eta, steps=steps)
        edge = flowsim.integrate(network, problem, model=flowsim.EdgeFlow(eta, order, rtol=1e-9), t1=0.4, ts=[])
        ends = [ravel_pytree(split(run.network)[0])[0] for run in (descent, edge)]
        distances.append(float(jnp.linalg.norm(ends[0] - ends[1])))
    fitted = np.polyfit(np.log(rates), np.log(distances), 1)[0]
    assert fitted == pytest.approx(slope, abs=0.2)


@pytest.fixture(scope="module")
def at_the_edge(problem):
    """The network of Figure 1c and 1d in the paper, where descent with η = 0.1 is at the edge from t = 1.2 on."""
    file = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
    problem, network, _ = build(read_scenario(file), file.parent)
    return network, problem


@pytest.fixture(scope="module")
def descent_at_the_edge(at_the_edge):
    network, problem = at_the_edge
    run = flowsim.descend(
        network, problem, learning_rate=0.1, steps=401, record_steps=np.arange(402), weights=True, stopping=FOREVER
    )
    return centres(run.weights)


@pytest.mark.slow
def test_at_the_edge_the_centre_of_descent_is_followed_where_the_gradient_flow_leaves_it(
    at_the_edge, descent_at_the_edge
):
    network, problem = at_the_edge
    centre, amplitude = descent_at_the_edge
    ts, places = np.array([20.0, 40.0]), np.array([199, 399])

    def distances(**options):
        run = flowsim.integrate(network, problem, ts=ts, t1=40.0, weights=True, **options)
        return np.linalg.norm(flat(run.weights)[:2] - centre[places], axis=1), run

    plain, _ = distances()
    first, _ = distances(model=flowsim.EdgeFlow(0.1, order=1))
    second, edge = distances(model=flowsim.EdgeFlow(0.1), probes=[AMPLITUDE], sharpness=True)
    assert (first < plain / 7).all()  # measured: 8.0 and 9.0 times closer
    assert (second < plain / 25).all()  # measured: 32 and 36 times closer
    np.testing.assert_allclose(np.exp(edge.diagnostics["log_amplitude"][:2]), amplitude[places], rtol=0.05)
    of_descent = flowsim.sharpness(_with_weights(network, centre[places[1]]), problem)
    assert float(edge.sharpness[1]) == pytest.approx(of_descent, rel=1e-3)
    assert float(edge.sharpness[1]) < 20.0


class Point(flowsim.Probe):
    label = flowsim.Label("point", "centre, direction and amplitude", "point", logarithmic=False)

    def measure(self, moment):
        return ravel_pytree(moment.state.point)[0]


@pytest.mark.slow
def test_at_the_edge_steps_have_the_order_of_their_columns(at_the_edge):
    """From t = 20, where r = 0.03: the limit for short steps, of which the shortest here are a fiftieth of η."""
    network, problem = at_the_edge
    options = {"model": flowsim.EdgeFlow(0.1, rtol=1e-9), "t1": 20.0, "ts": [20.0], "stopping": FOREVER}
    known = flowsim.integrate(network, problem, probes=[Point()], **options).diagnostics["point"][-1]
    field, weights = gradient_field(network, problem)
    model = flowsim.EdgeFlow(0.1).checked(jnp.dtype(float))
    over = model.vector_field(field)
    start = ravel_pytree(jax.jit(lambda w: model.first_point(field, w))(weights))[1](jnp.asarray(known))
    assert float(over.amplitude(start)) == pytest.approx(0.03056, rel=5e-3)  # descent's own
    exact = _fixed_steps(over, start, 8)(256)
    assert float(jnp.linalg.norm(exact - known)) > 1e-2
    for columns in (2, 3, 4):
        run = _fixed_steps(over, start, columns)
        errors = [float(jnp.linalg.norm(run(count) - exact)) for count in (64, 128, 256)]
        slopes = np.log2(np.array(errors[:-1]) / errors[1:])
        assert slopes[0] < slopes[1] < columns + 0.1  # measured: 1.84, 1.91; 2.69, 2.83; 3.53, 3.74
        assert slopes[1] > columns - 0.3


def _fixed_steps(field, start, columns, length=0.5):
    """Return a function of a number of equal steps, which use all of so many columns, to where they end."""
    never = jnp.asarray(1e-30)
    solver = LowRankExtrapolation(columns=columns, followed=0, frozen_up_to=float("inf")).fill_in(field, never, never)
    term = diffrax.ODETerm(field)

    @jax.jit
    def run(count):
        def step(i, carry):
            y, _, _, state, _ = solver.step(term, 0.0, length / count, carry[0], None, carry[1], False)
            return y, state

        begin = solver.init(term, 0.0, length, start, None)
        return ravel_pytree(jax.lax.fori_loop(0, count, step, (start, begin))[0])[0]

    return run


def _with_weights(network, vector):
    weights, rest = split(network)
    return eqx.combine(ravel_pytree(weights)[1](jnp.asarray(vector)), rest)


@pytest.mark.slow
def test_at_the_edge_tighter_tolerances_lead_to_one_trajectory_with_fewer_gradients_than_descent(at_the_edge):
    network, problem = at_the_edge

    def end(rtol, t1=40.0):
        run = flowsim.integrate(network, problem, model=flowsim.EdgeFlow(0.1, rtol=rtol), t1=t1, ts=[])
        return np.asarray(ravel_pytree(split(run.network)[0])[0])

    reference = end(1e-9)
    errors = [np.linalg.norm(end(rtol) - reference) / np.linalg.norm(reference) for rtol in (1e-3, 1e-5, 1e-7)]
    assert errors[0] < 3e-3
    assert errors[1] < 3e-5
    assert errors[2] < 3e-7


@pytest.mark.slow
def test_the_linearly_implicit_solver_agrees_with_an_explicit_one_of_diffrax(at_the_edge):
    """Dopri8 at its own step control, on the same field from the same point, through the onset of the oscillation."""
    network, problem = at_the_edge
    model = flowsim.EdgeFlow(0.1, rtol=1e-8)
    run = flowsim.integrate(network, problem, model=model, t1=3.0, ts=[])
    field, weights = gradient_field(network, problem)
    field, weights = field.flattened(weights)
    start = jax.jit(lambda w: model.checked(jnp.dtype(float)).start(field, w).point)(weights)
    solved = diffrax.diffeqsolve(
        diffrax.ODETerm(EdgeField(field, jnp.array(0.1), 2)),
        diffrax.Dopri8(),
        0.0,
        3.0,
        1e-3,
        start,
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-11),
        max_steps=100_000,
    )
    end = ravel_pytree(split(run.network)[0])[0]
    explicit = ravel_pytree(jax.tree.map(lambda leaf: leaf[-1], solved.ys.centre))[0]
    assert float(jnp.linalg.norm(explicit - end)) < 1e-6 * float(jnp.linalg.norm(end))


@pytest.mark.slow
def test_with_a_small_learning_rate_the_edge_flow_is_the_gradient_flow(mlp, problem):
    edge = flowsim.integrate(mlp, problem, model=flowsim.EdgeFlow(1e-7, rtol=1e-7), t1=1.0, ts=[])
    flow = flowsim.integrate(mlp, problem, rtol=1e-9, t1=1.0, ts=[])
    ends = [ravel_pytree(split(run.network)[0])[0] for run in (edge, flow)]
    np.testing.assert_allclose(ends[0], ends[1], atol=3e-6)


@pytest.mark.slow
def test_to_its_limit_the_edge_flow_takes_less_than_half_of_descents_gradients(at_the_edge):
    network, problem = at_the_edge
    edge = flowsim.integrate(network, problem, model=flowsim.EdgeFlow(0.1, rtol=1e-3), ts=[])
    assert edge.converged
    assert 19.9 < edge.final_sharpness < 20.0
    assert float(edge.gradients + edge.products) < float(edge.time) / 0.1 / 2


@pytest.mark.slow
def test_the_edge_flow_runs_in_single_precision_and_under_vmap(at_the_edge, compiled_quickly):
    network, problem = at_the_edge
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network)

    def end(rate):  # the length of a step, which rounding changes, is not to be seen
        return flowsim.integrate(network, problem, model=flowsim.EdgeFlow(rate, rtol=1e-8), t1=5.0, ts=[]).final_risk

    rates = jnp.array([0.06, 0.1])
    alone = [end(0.06), end(0.1)]
    np.testing.assert_allclose(compiled_quickly(jax.vmap(end))(rates), alone, rtol=1e-6)
    run = flowsim.integrate(single, problem, model=flowsim.EdgeFlow(0.1), t1=5.0, ts=[])
    assert run.final_risk == pytest.approx(float(alone[1]), rel=2e-2)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (flowsim.EdgeFlow(-0.1), "learning_rate must be a positive finite number"),
        (flowsim.EdgeFlow(0.1, order=3), "order must be 1 or 2, got 3"),
        (flowsim.EdgeFlow(0.1, rtol=1e-20), "rtol=1e-20 is finer"),
    ],
)
def test_an_edge_flow_that_cannot_be_is_refused(mlp, problem, model, message):
    with pytest.raises(ValueError, match=message):
        flowsim.integrate(mlp, problem, model=model)


@pytest.mark.slow
def test_the_term_of_second_order_does_not_turn_the_field_around():
    """Where H < −2/η the expansion of second order climbs."""
    risk = flowsim.Risk(lambda w: jnp.sin(w[0]))
    run = flowsim.integrate(jnp.array([1.0]), risk, model=flowsim.EdgeFlow(2.5), t1=20.0, ts=[])
    assert float(run.risk[-1]) < -0.9


@pytest.mark.slow
def test_models_end_at_a_minimum_that_is_zero_and_stay_at_none_beyond_the_edge():
    bowl = flowsim.Risk(lambda w: w[0] ** 2 / 2)
    run = flowsim.integrate(jnp.array([1.0]), bowl, model=flowsim.EdgeFlow(0.5), ts=[])
    assert run.outcome is flowsim.Outcome.CONVERGED
    run = flowsim.integrate(jnp.array([0.0]), bowl, model=flowsim.CentralFlow(3.0), ts=[], t1=10.0)
    assert run.outcome is flowsim.Outcome.DIVERGED
    stiff = flowsim.Risk(lambda w: 5e6 * w[0] ** 2 + (w[1] ** 2 - 1) ** 2 / 4)
    for model in (flowsim.EdgeFlow(1e-7), flowsim.CentralFlow(1e-7)):
        run = flowsim.integrate(jnp.array([1.0, 1e-10]), stiff, model=model, ts=[])
        assert not run.converged or float(run.risk[-1]) < 1e-9
