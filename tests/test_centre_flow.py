"""The flow of any descent's centre: against closed forms of two-cycles and of modes, and against the descents."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_edge_flow import FOREVER, TANH, edge_of_stability, end_of

import flowsim
from flowsim.comparison.centres import Centres
from flowsim.dynamics import StepTimes
from flowsim.edge.centre_field import CentreField, CentrePoint
from flowsim.edge.orbit import Position, StepMap
from flowsim.probes import Oscillation, PreconditionedSharpness
from flowsim.solvers.field import gradient_field
from flowsim.tables import model_rows
from flowsim.theory import Verdict

OPTIONS = {"weights": True, "stopping": FOREVER}
ETA, BETA = 0.1, 0.6
CURVATURES = np.array([36.0, 9.0, 1.0])
HALF = flowsim.Risk(lambda w: jnp.sum(jnp.asarray(CURVATURES) * w**2) / 2)


def companion(curvature):
    """Return what a step of the heavy ball does to weight and velocity: v ← βv + λw, w ← w − ηv."""
    return np.array([[1 - ETA * curvature, -ETA * BETA], [curvature, BETA]])


@pytest.fixture(scope="module")
def moved():
    """Return what a position of the heavy ball does, beyond the edge 2(1 + β)/η = 32 in its first mode."""
    field, _ = gradient_field(jnp.ones(3), HALF)
    field = CentreField(StepMap(field, flowsim.HeavyBall(ETA, BETA).checked(jnp.dtype(float))))

    @jax.jit
    def moved(centre, alternating):
        point = CentrePoint(centre, jnp.ones(1), jnp.zeros(1), alternating, jnp.array(-60.0))
        return field.moved(point), field(0.0, point, None).centre

    return moved


def position(weights, velocity):
    """Return a position of the heavy ball, in the form of Optax's state."""
    return Position(np.array(weights), (optax.TraceState(np.array(velocity)), optax.EmptyState()))


def vector(at):
    """Return weights and velocities, mode by mode."""
    return np.stack([np.asarray(at.weights), np.asarray(jax.tree.leaves(at.memory)[0])], axis=1)


def test_modes_of_momentum_move_by_two_of_newtons_differences(moved):
    """τx' = (−½M² + 2M − 3/2)x for the matrix M of a step, and v, in no steady state, the same with −M."""
    start, beside = position([0.3, -0.2, 0.7], [1.0, 0.5, -0.4]), position([1e-3, 0.0, 0.0], [-0.2, 0.1, 0.3])
    onward, derivative = moved(start, beside)
    for one, at, sign in ((onward.centre, start, 1), (onward.alternating, beside, -1)):
        steps = [sign * companion(curvature) for curvature in CURVATURES]
        expected = [(-m @ m / 2 + 2 * m - 1.5 * np.eye(2)) @ z for m, z in zip(steps, vector(at), strict=True)]
        np.testing.assert_allclose(vector(one), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(vector(derivative), vector(onward.centre) * (1 - BETA) / ETA, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-3, 1e-15])
def test_an_oscillation_grows_by_the_logarithm_of_what_multiplies_it(moved, size):
    values, columns = np.linalg.eig(companion(CURVATURES[0]))
    factor, mode = -values.min(), columns[:, values.argmin()]
    mode = size * mode / mode[0]
    assert factor > 1
    onward, _ = moved(position([1.0] * 3, [1.0] * 3), position([mode[0], 0, 0], [mode[1], 0, 0]))
    np.testing.assert_allclose(vector(onward.alternating)[0], np.log(factor) * mode, rtol=1e-6)
    assert float(onward.growth) == pytest.approx(np.log(factor), rel=1e-6)


@pytest.mark.slow
def test_below_the_edge_a_mode_of_momentum_that_turns_does_not_grow():
    """Its roots are complex there, and the weight passes zero twice in each turn: what it gains then is no growth."""
    import scipy.integrate

    curvatures, angles = np.meshgrid([15.0, 37.0], np.linspace(0, np.pi, 5))
    for curvature in curvatures[0]:
        assert (np.linalg.eigvals([[1 - 0.1 * curvature, -0.09], [curvature, 0.9]]).imag != 0).all()

    @jax.jit
    @jax.vmap
    def slopes(curvature, mode):
        field, _ = gradient_field(jnp.ones(1), flowsim.Risk(lambda w: curvature * jnp.sum(w**2) / 2))
        field = CentreField(StepMap(field, flowsim.HeavyBall(0.1, 0.9).checked(jnp.dtype(float))))
        beside = Position(mode[:1], (optax.TraceState(mode[1:]), optax.EmptyState()))
        point = CentrePoint(jax.tree.map(jnp.zeros_like, beside), jnp.ones(1), jnp.zeros(1), beside, jnp.array(-60.0))
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(field.moved(point).alternating)])

    def slope(t, modes):
        return np.asarray(slopes(curvatures.ravel(), modes.reshape(-1, 2))).ravel()

    units = np.array([1e-3, 2e-2])
    start = units * np.stack([np.cos(angles.ravel()), np.sin(angles.ravel())], axis=1)
    run = scipy.integrate.solve_ivp(slope, (0, 80), start.ravel(), rtol=1e-6, atol=1e-12)
    assert (np.linalg.norm(run.y[:, -1].reshape(-1, 2) / units, axis=1) < 0.5).all()


TWO_CYCLES = {
    "momentum": (flowsim.HeavyBall(ETA, BETA), np.sqrt((34 - 2 * (1 + BETA) / ETA) / 8)),
    "RMSProp": (flowsim.RMSProp(ETA), ETA / 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_CYCLES)
def test_the_two_cycle_of_a_quartic_is_a_rest(name):
    """On R = S w²/2 − Q w⁴/4, S = 34, Q = 8, S − Qr² is the threshold; RMSProp steps by η to and fro."""
    optimizer, amplitude = TWO_CYCLES[name]
    problem = flowsim.Risk(lambda w: jnp.sum(17 * w**2 - 2 * w**4))
    options = {"t1": 300 * float(optimizer.time_of_step()), "probes": [Oscillation()], "stopping": FOREVER}
    run = flowsim.integrate(jnp.array([1e-3]), problem, model=flowsim.CentreFlow(optimizer, rtol=1e-8), **options)
    assert float(run.diagnostics["oscillation"][-1]) == pytest.approx(amplitude, rel=1e-5)
    assert abs(float(run.network[0])) < 1e-6
    assert not run.converged


LAYERS = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2 + (w[0] - 1) ** 2 / 4)
START = jnp.array([2.0, -0.3])


def flow_to(model, time, start=START):
    """Return a run with one record, at its end: all of a kind of model and of descent are one program."""
    return flowsim.integrate(start, LAYERS, model=model, ts=[time], t1=time, **OPTIONS)


@pytest.mark.slow
def test_below_the_edge_it_is_of_order_two_and_the_stable_flow_of_order_one():
    """At one time, with half and half again of the learning rate."""
    distances = []
    for share in (1, 0.5, 0.25):
        optimizer, steps = flowsim.HeavyBall(share * 0.04, 0.5), round(120 / share)
        records = [steps - 1, steps, steps + 1]
        descent = flowsim.descend(START, LAYERS, optimizer=optimizer, steps=steps + 1, record_steps=records, **OPTIONS)
        centre = Centres.of(descent, StepTimes(optimizer))
        models = (flowsim.StableFlow(optimizer, rtol=1e-7), flowsim.CentreFlow(optimizer, rtol=1e-7))
        distances.append([centre.distances(flow_to(model, float(centre.times[-1])))[-1] for model in models])
    orders = np.log2(np.array(distances)[:-1] / np.array(distances)[1:])
    assert (orders[:, 0] > 0.7).all()
    assert orders[-1, 0] < 1.4
    assert (orders[:, 1] > 1.5).all()


@pytest.mark.slow
def test_a_run_begins_with_the_steps_of_the_descent_and_lines_between_them():
    optimizer = flowsim.Adam(0.002, 0.5, 0.5)
    tau = float(optimizer.time_of_step())
    descent = flowsim.descend(START, LAYERS, optimizer=optimizer, steps=4, record_steps=[1, 2, 3, 4], **OPTIONS)
    ts = tau * np.array([1, 1.5, 2, 3, 4])
    run = flowsim.integrate(START, LAYERS, model=flowsim.CentreFlow(optimizer), ts=ts, t1=4 * tau, **OPTIONS)
    steps = np.asarray(descent.weights)[:4]
    expected = np.insert(steps, 1, (steps[0] + steps[1]) / 2, axis=0)
    np.testing.assert_allclose(run.weights[:5], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_in_single_precision_it_goes_where_it_goes_in_double():
    model = flowsim.CentreFlow(flowsim.HeavyBall(0.02, 0.5))
    single, double = (end_of(flow_to(model, 2.0, START.astype(dtype))) for dtype in (jnp.float32, jnp.float64))
    assert single.dtype == jnp.float32
    assert np.linalg.norm(single - double) < 1e-3 * np.linalg.norm(double)


@pytest.mark.slow
def test_a_descent_that_diverges_at_once_is_said_to():
    for kind in (flowsim.CentreFlow, flowsim.StableFlow):
        assert flow_to(kind(flowsim.HeavyBall(5.0, 0.5)), 1000.0).outcome is flowsim.Outcome.DIVERGED


def flow_at_edge(kind, time, rtol=None):
    """Follow RMSProp of a tanh network that comes to its edge within 200 steps, with one record."""
    options = {"ts": [time], "t1": time, "probes": [PreconditionedSharpness(), Oscillation()], **OPTIONS}
    return flowsim.integrate(*edge_of_stability(*TANH), model=kind(flowsim.RMSProp(0.001), rtol=rtol), **options)


@pytest.mark.slow
def test_it_holds_the_preconditioned_sharpness_where_the_stable_flow_lets_it_rise():
    optimizer, steps = flowsim.RMSProp(0.001), 300
    records = range(steps - 40, steps + 2)
    options = {"record_steps": list(records), "probes": [PreconditionedSharpness()], **OPTIONS}
    descent = flowsim.descend(*edge_of_stability(*TANH), optimizer=optimizer, steps=steps + 1, **options)
    centre = Centres.of(descent, StepTimes(optimizer))
    stable, flow = (flow_at_edge(kind, float(centre.times[-1])) for kind in (flowsim.StableFlow, flowsim.CentreFlow))
    assert centre.distances(stable)[-1] > 10 * centre.distances(flow)[-1]
    threshold = optimizer.stability_threshold()
    # That of descent itself swings between 1.1 and 1.35 times the threshold, in some 30 steps, and rounding decides at
    # which phase of a swing a step is: only the mean over a whole one is known.
    measured = float(np.mean(descent.diagnostics["preconditioned_sharpness"][-len(records) :]))
    assert measured == pytest.approx(1.2 * threshold, rel=0.05)
    assert float(flow.diagnostics["preconditioned_sharpness"][-1]) == pytest.approx(measured, rel=0.25)
    assert float(stable.diagnostics["preconditioned_sharpness"][-1]) > 5 * threshold
    assert float(flow.diagnostics["oscillation"][-1]) == pytest.approx(float(np.mean(centre.amplitude)), rel=0.3)


@pytest.mark.slow
def test_tighter_tolerances_lead_to_one_trajectory():
    """Where RMSProp oscillates, after 240 steps."""
    ends = [end_of(flow_at_edge(flowsim.CentreFlow, 0.24, rtol)) for rtol in (1e-3, 1e-4, 1e-5, 1e-6)]
    errors = [np.linalg.norm(end - ends[-1]) / np.linalg.norm(ends[-1]) for end in ends[:-1]]
    assert (np.array(errors) < [1e-2, 1e-3, 1e-5]).all()


@pytest.mark.slow
def test_compare_puts_it_beside_descents_of_other_kinds():
    """In a valley that ever steepens."""
    valley = flowsim.Risk(lambda w: (8 + w["x"]) * w["y"] ** 2 / 2 - w["x"])
    options = {"models": ["centre"], "probes": [PreconditionedSharpness()], "sharpness": False}
    start, optimizer = {"x": jnp.array(0.0), "y": jnp.array(0.5)}, flowsim.RMSProp
    compared = flowsim.compare(start, valley, [0.04], steps=200, t1=8.0, optimizer=optimizer, **options)
    dataset, rows = compared.to_dataset(), model_rows(compared.to_dataset())
    assert [row["method"] for row in rows] == ["rmsprop", "GF", "centre"]
    assert rows[2]["distance"] < rows[1]["distance"]
    (model,) = compared.models
    assert (model.models, model.edge) == ("rmsprop", compared.descents[0].edge)
    statements = {one.name: one.verdict for one in compared.statements[-1].statements}
    assert statements["distance from the centre"] is Verdict.HOLDS
    assert list(dataset["models"].values) == ["", "", "rmsprop"]
