"""The edge and the rod flow against their equations in NumPy, closed forms of descent, and descent itself."""

from functools import cache
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import ArrayLike

import flowsim
from flowsim.comparison.centres import Centres
from flowsim.dynamics import StepTimes
from flowsim.edge.edge_flow import EdgeField, log_factor
from flowsim.edge.onset import Beginning, onset
from flowsim.edge.oscillation_flow import OscillationPoint
from flowsim.edge.rod_flow import RodField
from flowsim.networks import split
from flowsim.probes import Oscillation
from flowsim.scenarios import build, parse_overrides, read_scenario
from flowsim.solvers.field import gradient_field

FOREVER = flowsim.Stopping(gradient_norm=None)


# --- the fields -----------------------------------------------------------------------------------------------------

CENTRE = [0.4, 0.7]
STEP = 0.6
DIRECTION = np.array([0.6, -0.8])


def bowl(w):
    return jnp.sin(w[0]) * w[1] ** 2 + jnp.exp(w[0] - w[1]) + w[1] ** 4


def gradient(w):
    e = np.exp(w[0] - w[1])
    return np.array([np.cos(w[0]) * w[1] ** 2 + e, 2 * np.sin(w[0]) * w[1] - e + 4 * w[1] ** 3])


def hessian(w):
    e, across = np.exp(w[0] - w[1]), 2 * np.cos(w[0]) * w[1] - np.exp(w[0] - w[1])
    return np.array([[e - np.sin(w[0]) * w[1] ** 2, across], [across, 2 * np.sin(w[0]) + e + 12 * w[1] ** 2]])


@pytest.fixture(scope="module")
def moved():
    """Return a function that gives what x, u and ln r of the rod flow and of both orders of the edge flow do."""
    field, _ = gradient_field(jnp.zeros(2), flowsim.Risk(bowl))
    eta = jnp.array(STEP)

    @jax.jit
    def derivatives(centre, amplitude):
        point = OscillationPoint(centre, jnp.asarray(DIRECTION), jnp.log(amplitude), jnp.array(-jnp.inf))
        fields = {str(order): EdgeField(field, flowsim.EdgeFlow(eta, order)) for order in (1, 2)}
        fields["rod"] = RodField(field, flowsim.RodFlow(eta))
        slopes = {name: slope(None, point, None) for name, slope in fields.items()}
        return {name: (slope.centre, slope.direction, slope.log_amplitude) for name, slope in slopes.items()}

    return lambda centre, amplitude: derivatives(np.array(centre), np.array(amplitude))


@pytest.mark.parametrize("amplitude", [0.2, 1e-12])
def test_the_rod_moves_by_the_mean_over_its_two_halves(moved, amplitude):
    """Each rod is x ± δ with δ = s ± r u; −½(g₊ + g₋) − (η/8)(H₊ + H₋)(g₊ + g₋) is written out for each."""
    x = np.array(CENTRE)
    half, swing = -STEP / 2 * gradient(x), amplitude * DIRECTION
    expected, image = np.zeros(2), np.zeros(2)
    for rod in (half + swing, half - swing):
        g, h = gradient(x + rod) + gradient(x - rod), hessian(x + rod) + hessian(x - rod)
        expected -= (g / 2 + STEP / 8 * h @ g) / 2
    for end in (half, -half):
        image += (gradient(x + end + swing) - gradient(x + end - swing)) / (4 * amplitude)
    centre, direction, growth = moved(CENTRE, amplitude)["rod"]
    np.testing.assert_allclose(centre, expected, rtol=1e-12)
    if amplitude > 1e-8:
        curvature = DIRECTION @ image
        turn = STEP / 2 * curvature * (image - curvature * DIRECTION)
        np.testing.assert_allclose(direction, turn, rtol=1e-10)
        assert float(growth) == pytest.approx(((STEP * curvature / 2) ** 2 - 1) / STEP, rel=1e-10)


@pytest.mark.parametrize("amplitude", [0.05, 1e-12])
def test_the_centre_of_the_edge_flow_moves_as_descents_maps_say(moved, amplitude):
    """The equations of `flowsim.edge.edge_flow`: in order two r√(ηh − 1) is followed, and ηω is small."""
    x, swing = np.array(CENTRE), amplitude * DIRECTION
    small = amplitude < 1e-8
    plus, minus = gradient(x + swing), gradient(x - swing)
    mean = (plus + minus) / 2
    image = hessian(x) @ DIRECTION if small else (plus - minus) / (2 * amplitude)
    curvature = DIRECTION @ image
    z = STEP * curvature - 1
    assert z > 0.6
    growth, turn = np.log(z) / STEP, (image - curvature * DIRECTION) / z
    for order in (1, 2):
        centre, direction, grown = moved(CENTRE, amplitude)[str(order)]
        np.testing.assert_allclose(direction, turn, rtol=1e-9)
        assert float(grown) == pytest.approx(growth, rel=1e-9)
        if order == 1:
            np.testing.assert_allclose(centre, -mean, rtol=1e-12)
            continue
        bend = np.linalg.norm(mean - gradient(x)) / amplitude * (not small)
        later = z ** (-0.5 / (1 + (2 * STEP * bend) ** 4 / z**2 / 4))
        velocity = amplitude * (growth * DIRECTION + turn)
        second = hessian(x + swing) @ (velocity - mean) - hessian(x - swing) @ (velocity + mean)
        expected = -gradient(x) - later**2 * (mean - gradient(x)) + STEP / 4 * second
        np.testing.assert_allclose(centre, expected, rtol=1e-9)


def test_an_oscillation_of_a_quadratic_mode_grows_at_its_known_rate():
    """|w_k| = |1 − ηλ|ᵏ|w_0| under descent, and dΣ/dt = (η²λ²/2 − 2)Σ/η for a rod (Regis and Chewi 2026)."""
    eta, exponents = 0.1, np.array([0.6, 1.0, 1.5])

    @jax.jit
    @jax.vmap
    def rates(exponent):
        field, weights = gradient_field(jnp.zeros(1), flowsim.Risk(lambda w: (1 + exponent) / eta * jnp.sum(w**2) / 2))
        point = OscillationPoint(weights, jnp.ones(1), jnp.log(jnp.array(0.3)), jnp.array(-jnp.inf))
        fields = (EdgeField(field, flowsim.EdgeFlow(jnp.array(eta))), RodField(field, flowsim.RodFlow(jnp.array(eta))))
        return [field(None, point, None).log_amplitude for field in fields]

    edge, rod = rates(exponents)
    np.testing.assert_allclose(edge, np.log(exponents) / eta, atol=1e-9)
    np.testing.assert_allclose(2 * rod, ((1 + exponents) ** 2 / 2 - 2) / eta, atol=1e-9)


def test_the_logarithm_turns_smoothly_into_a_line_where_descent_would_kill_an_oscillation():
    value, slope = jax.jit(jax.vmap(log_factor))(np.array([-1e3, -1.0, 0.0, 0.5, 0.75]))
    np.testing.assert_allclose(value[3:], np.log([0.5, 0.75]), rtol=1e-14)
    np.testing.assert_allclose(slope[3:], [2, 1 / 0.75], rtol=1e-14)
    # Far below, what the line has beyond the tangent is ln(1 − ½) + ½.
    assert float(value[0]) == pytest.approx(2 * np.log(0.5) + 0.5 - 2 * (0.5 + 1e3), abs=1e-9)
    np.testing.assert_allclose(slope[:3], 2, rtol=0.05)


# --- the onset ------------------------------------------------------------------------------------------------------

ETA = 0.1


@pytest.fixture(scope="module")
def look():
    """Return a function that looks for the onset in a valley that ever steepens, from weights.

    R = ½(S₀ + w₂)w₁² − c w₂: w₂ grows by ηc in each step, up to w₁², and w₁ is multiplied by 1 − ηS.
    """

    @jax.jit
    def compiled(rate, weights, known, most):
        risk = flowsim.Risk(lambda w: (0.5 / ETA + w[1]) * w[0] ** 2 / 2 - rate / ETA**2 * w[1])
        field, weights = gradient_field(weights, risk)
        begun = onset(field, weights, jnp.array([1.0, 0.0]), jnp.array(ETA), known=known, most=most)
        return begun.amplitude, begun.steps

    def look(rate, weights, *, known=False, most=1000):
        amplitude, steps = compiled(np.array(rate), np.array(weights), np.array(known), most)
        return float(amplitude), int(steps)

    return look


def test_descent_oscillates_about_the_floor_of_a_valley_where_a_step_goes_beyond_it():
    """In R = 4y² + x descent steps beyond y = 0 where 8η > 1."""

    @jax.jit
    def begin(rate):
        field, weights = gradient_field(np.array([0.1, 0.3]), flowsim.Risk(lambda w: 4 * w[1] ** 2 + w[0]))
        return Beginning.at(field, weights, rate)

    beyond, short = begin(np.array(1.5 / 8)), begin(np.array(0.9 / 8))
    np.testing.assert_allclose(beyond.centre, [0.1, 0.0], atol=1e-12)
    np.testing.assert_allclose(beyond.amplitude, 0.3, rtol=1e-12)
    np.testing.assert_array_equal(short.centre, [0.1, 0.3])
    assert short.amplitude == short.least < 1e-6


@pytest.mark.parametrize("rate", [0.03, 0.12])
def test_what_is_left_of_a_start_is_the_product_of_the_factors_of_descent(look, rate):
    begin = 1e-3
    amplitude, steps = look(rate, [begin, 0.0])
    exponents = 0.5 + rate * np.arange(steps)
    crossed = int(np.argmax(exponents > 2))
    assert steps == crossed + 4
    left = begin * np.prod(np.abs(1 - exponents[:crossed]))
    # The differences weight the neighbours, where there is more.
    assert left < amplitude < 1.5 * left


def test_where_rounding_alone_is_left_or_no_edge_is_met_nothing_is_found(look):
    assert look(1e-3, [1e-3, 0.0], most=2000)[0] < 1e-18
    assert look(0.0, [1e-3, 0.0], most=50) == (0, 50)
    assert look(0.06, [1e-3, 0.0], known=True)[1] == 0
    amplitude, steps = look(0.06, [1.0, -10.0])  # down a slope that steepens: descent diverges
    assert amplitude == 0
    assert steps < 50
    assert look(0.06, [1e-3, 0.0], most=27) == (0, 27)


# --- runs -----------------------------------------------------------------------------------------------------------


def flat(path):
    return np.asarray(jax.vmap(lambda tree: ravel_pytree(tree)[0])(split(path)[0]))


def end_of(run):
    return np.asarray(ravel_pytree(split(run.network)[0])[0])


@cache
def edge_of_stability(*changes):
    """Return the network and the problem of Figure 1c and 1d in the paper, with changes of the scenario.

    Without them descent with η = 0.1 is at the edge from t = 1.2 on.
    """
    file = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
    problem, network, _ = build(read_scenario(file, parse_overrides(changes)), file.parent)
    return network, problem


TANH = ["network.activation=tanh", "network.scale=1", "network.width=10", "network.depth=3"]
TANH += ["network.biases=true", "network.fan_in=true"]


class Line(flowsim.Problem):
    """The risk S w²/2 − Q w⁴/4 + C sin w."""

    sharpness: ArrayLike
    quartic: ArrayLike = 0.0
    wave: ArrayLike = 0.0

    def __call__(self, w):
        return jnp.sum(self.sharpness * w**2 / 2 - self.quartic * w**4 / 4 + self.wave * jnp.sin(w))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "within"), [(flowsim.EdgeFlow, 1e-5), (flowsim.RodFlow, 1e-9)])
def test_the_two_cycle_of_descent_in_a_quartic_is_a_rest_that_has_not_converged(model, within, compiled_quickly):
    """On R = S w²/2 − Q w⁴/4, w ↦ −w under descent where S − Qw² = 2/η: r² = S/Q − 2/(ηQ) (Regis and Chewi 2026).

    At the centre of the two-cycle the gradient is zero and the curvature positive, and descent never gets there.
    """

    @compiled_quickly
    @jax.vmap
    def runs(rate):
        options = {"t1": 200.0, "ts": [40.0, 200.0], "probes": [Oscillation()]}
        run = flowsim.integrate(jnp.array([0.1]), Line(24.0, 8.0), model=model(rate), **options)
        return run.diagnostics["oscillation"][0], run.network[0], run.converged

    rates = np.array([ETA, 0.09])
    oscillation, end, converged = runs(rates)
    np.testing.assert_allclose(oscillation, np.sqrt(24 / 8 - 2 / (8 * rates)), rtol=within)
    np.testing.assert_allclose(end, 0, atol=1e-8)
    assert not converged.any()


@pytest.mark.slow
def test_below_the_edge_descent_is_followed_to_the_order_of_the_flow(problem):
    """Order p leaves a defect of ηᵖ⁺¹ in each of 1/η steps."""
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.6, key=jax.random.key(3))
    rates, distances = np.array([0.02, 0.005]), []
    for eta in rates:
        steps = round(0.4 / eta)
        descent = flowsim.descend(network, problem, learning_rate=eta, steps=steps, record_steps=[steps])
        for order in (1, 2):
            edge = flowsim.integrate(network, problem, model=flowsim.EdgeFlow(eta, order, rtol=1e-9), t1=0.4, ts=[])
            distances.append(np.linalg.norm(end_of(descent) - end_of(edge)))
    orders = np.polyfit(np.log(rates), np.log(np.reshape(distances, (2, 2))), 1)[0]
    np.testing.assert_allclose(orders, [1, 2], atol=0.2)


@cache
def edge_run(rtol=None, ts=(20.0, 40.0), t1=40.0):
    """Return a run of the edge flow on that network, with records at two times: all of them are one program."""
    options = {"ts": ts, "t1": t1, "weights": True, "probes": [Oscillation()]}
    return flowsim.integrate(*edge_of_stability(), model=flowsim.EdgeFlow(0.1, rtol=rtol), **options)


@pytest.mark.slow
def test_at_the_edge_the_centre_of_descent_is_followed_where_the_gradient_flow_leaves_it():
    network, problem = edge_of_stability()
    options, steps = {"weights": True, "stopping": FOREVER}, [199, 200, 201, 399, 400, 401]
    descent = flowsim.descend(network, problem, learning_rate=0.1, steps=401, record_steps=steps, **options)
    centre = Centres.of(descent, StepTimes(flowsim.GradientDescent(0.1)))
    places = np.flatnonzero(np.isin(centre.records, [1, 4]))
    np.testing.assert_allclose(centre.times[places], [20, 40])
    at = flat(centre.weights)[places]
    plain = flowsim.integrate(network, problem, ts=[20.0, 40.0], t1=40.0, weights=True)
    edge = edge_run()
    distances, of_flow = (np.linalg.norm(flat(run.weights)[:2] - at, axis=1) for run in (edge, plain))
    assert (distances < of_flow / 25).all()  # measured: 32 and 36 times closer
    np.testing.assert_allclose(edge.diagnostics["oscillation"][:2], centre.amplitude[places], rtol=0.05)
    unravel = ravel_pytree(split(network)[0])[1]
    networks = (eqx.combine(unravel(jnp.asarray(w)), split(network)[1]) for w in (at[1], flat(edge.weights)[1]))
    sharpness = [float(flowsim.sharpness(moved, problem)) for moved in networks]
    assert sharpness[1] == pytest.approx(sharpness[0], rel=1e-3)
    assert sharpness[1] < 20.0


@pytest.mark.slow
def test_at_the_edge_tighter_tolerances_lead_to_one_trajectory():
    reference, *ends = (end_of(edge_run(rtol, (5.0, 10.0), 10.0)) for rtol in (1e-9, 1e-3, 1e-5, 1e-7))
    errors = [np.linalg.norm(end - reference) / np.linalg.norm(reference) for end in ends]
    assert (np.array(errors) < [3e-3, 3e-5, 3e-7]).all()


@pytest.mark.slow
@pytest.mark.parametrize("start", [(2.5, 1.6), (4.0, 0.1), (3.5, 0.3)])
def test_after_a_catapult_the_errors_of_the_edge_flow_are_of_the_size_of_rtol(start):
    """Steps went over kinks of the field, where ηS = 3/2 and H = −1/η along ∇R, with errors up to 10⁴ rtol."""
    risk = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2)

    def end(rtol):
        run = flowsim.integrate(jnp.array(start), risk, model=flowsim.EdgeFlow(0.25, rtol=rtol), t1=3.0, ts=[])
        return np.asarray(run.network)

    # At 3e-9 a kink lies in the last substep of a step, where no row of the extrapolation evaluates the field.
    tolerances = np.array([1e-4, 1e-6, 1e-8, 3e-9, 1e-9])
    reference, *ends = (end(rtol) for rtol in (1e-12, *tolerances))
    errors = np.array([np.linalg.norm(other - reference) for other in ends])
    assert (errors < 30 * tolerances).all()


@pytest.mark.slow
def test_the_linearly_implicit_solver_agrees_with_an_explicit_one_of_diffrax():
    """Dopri8 at its own step control, on the same field from the same point, through the onset of the oscillation."""
    network, problem = edge_of_stability()
    run = edge_run(1e-8, (1.5, 3.0), 3.0)
    field, weights = gradient_field(network, problem)
    field, weights = field.flattened(weights)
    model = flowsim.EdgeFlow(0.1, rtol=1e-8)
    start = jax.jit(lambda w: model.checked(jnp.dtype(float)).start(field, w).point)(weights)
    solved = diffrax.diffeqsolve(
        diffrax.ODETerm(EdgeField(field, flowsim.EdgeFlow(jnp.array(0.1)))),
        diffrax.Dopri8(),
        0.0,
        3.0,
        1e-3,
        start,
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-11),
        max_steps=100_000,
    )
    explicit = ravel_pytree(jax.tree.map(lambda leaf: leaf[-1], solved.ys.centre))[0]
    assert np.linalg.norm(explicit - end_of(run)) < 1e-6 * np.linalg.norm(end_of(run))


@pytest.mark.slow
def test_to_its_limit_the_edge_flow_takes_less_than_half_of_descents_gradients():
    edge = edge_run(1e-3, t1=float("inf"))
    assert edge.converged
    assert 19.9 < edge.final_sharpness < 20.0
    assert float(edge.gradients + edge.products) < float(edge.time) / 0.1 / 2


@pytest.mark.slow
def test_an_oscillation_is_noticed_when_descents_is():
    """A tanh network that has just passed its edge: with a larger amplitude a model oscillates before descent does."""
    network, problem = edge_of_stability("seed=1", *TANH)
    time = 80.0
    flow = flowsim.integrate(network, problem, t1=time, ts=[], stopping=FOREVER)
    steps = int(time * float(flowsim.sharpness(flow.network, problem)) / 2.2)
    eta, records = time / steps, [steps - 1, steps, steps + 1]
    options = {"steps": steps + 1, "record_steps": records, "weights": True, "stopping": FOREVER}
    descent = flowsim.descend(network, problem, learning_rate=eta, **options)
    (centre,) = flat(Centres.of(descent, StepTimes(flowsim.GradientDescent(eta))).weights)
    edge = flowsim.integrate(network, problem, model=flowsim.EdgeFlow(eta), t1=time, ts=[], stopping=FOREVER)
    # Oscillating too early, the edge flow was 1.6 times as far.
    assert np.linalg.norm(end_of(edge) - centre) < np.linalg.norm(end_of(flow) - centre) / 10


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (flowsim.EdgeFlow(-0.1), ValueError, "learning_rate"),
        (flowsim.EdgeFlow(0.1, order=3), ValueError, "order must be 1 or 2"),
        (flowsim.RodFlow(0.1, rtol=1e-20), ValueError, "rtol=1e-20 is finer"),
        (flowsim.CentralFlow(-0.1), ValueError, "learning_rate"),
        (flowsim.CentralFlow(0.1, most=0), ValueError, "most must be a whole number"),
        (flowsim.CentralFlow(0.1, order=3), ValueError, "order must be 1 or 2"),
        (flowsim.CentralFlow(0.1, rtol=1e-20), ValueError, "rtol=1e-20 is finer"),
        (flowsim.CentreFlow(flowsim.SGD(0.1, 5)), ValueError, "SGD draws minibatches"),
        (flowsim.CentreFlow(flowsim.Optax(optax.lion(1e-3))), ValueError, "becomes unstable"),
        (flowsim.CentreFlow(0.1), TypeError, "optimizer must be a flowsim.Descent"),
        (flowsim.CentreFlow(flowsim.Adam(-0.1)), ValueError, "learning_rate"),
        (flowsim.StableFlow(flowsim.Adam(0.1), rtol=1e-20), ValueError, "rtol=1e-20 is finer"),
    ],
)
def test_a_model_of_descent_that_cannot_be_is_refused(model, error, message):
    with pytest.raises(error, match=message):
        model.checked(jnp.dtype(float))


@pytest.mark.slow
def test_models_end_at_minima_and_stay_at_none_beyond_the_edge():
    def end(start, problem, model):
        return flowsim.integrate(jnp.array([start]), jax.tree.map(jnp.asarray, problem), model=model, t1=50.0, ts=[])

    assert end(1.0, Line(1.0), flowsim.EdgeFlow(0.5)).outcome is flowsim.Outcome.CONVERGED
    # Where H < −2/η the expansion of second order climbs, and the model does not.
    assert float(end(1.0, Line(0.0, wave=1.0), flowsim.EdgeFlow(2.5)).risk[-1]) < -0.9
    assert end(0.0, Line(1.0), flowsim.CentralFlow(3.0)).outcome is flowsim.Outcome.DIVERGED
