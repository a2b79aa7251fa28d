"""Classes that a network separates: no minimizer, margins and directions; and classes that it does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import flowsim
from flowsim import DeepLinear, EmpiricalRisk, Outcome, Perceptron, Stopping
from flowsim.dynamics import stopping_for
from flowsim.losses import CrossEntropy, Logistic, SquaredError
from flowsim.networks.weights import angle_between
from flowsim.probes import Accuracy, Alignment, Angle, Margin, NormalizedMargin
from flowsim.theory import max_margin

KEY = jax.random.key(0)
RNG = np.random.default_rng(1)
X = RNG.standard_normal((20, 2))
SIGNS = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1, -1)
MIXED = np.where(np.arange(20) < 4, -SIGNS, SIGNS)
LINE = DeepLinear.gaussian(widths=[2, 1], scale=0.5, key=KEY)
PAIR = DeepLinear.gaussian(widths=[2, 2], scale=0.5, key=KEY)
LOOSE = Stopping(gradient_norm=1e-2)
NEVER = Stopping(gradient_norm=None)

SEPARABLE = {
    "logistic": (LINE, EmpiricalRisk(X, SIGNS, Logistic())),
    "cross-entropy": (PAIR, EmpiricalRisk(X, SIGNS > 0, CrossEntropy())),
    "ones and zeros": (PAIR, EmpiricalRisk(X, np.stack([SIGNS < 0, SIGNS > 0], 1).astype(float), CrossEntropy())),
}


def perceptron():
    return Perceptron.gaussian(widths=[2, 5, 1], scale=0.7, activation="tanh", key=jax.random.key(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "cross-entropy"])
def test_separable_classes_have_no_minimizer(name):
    network, problem = SEPARABLE[name]
    flow = flowsim.integrate(network, problem, ts=[])
    assert flow.outcome is Outcome.NO_MINIMIZER
    assert not flow.converged
    assert "no minimizer" in flow.outcome.meaning
    # However loose the tolerance: at a gradient of a hundredth, too, all is still to come.
    assert flowsim.integrate(network, problem, ts=[], stopping=LOOSE).outcome is Outcome.NO_MINIMIZER


@pytest.mark.slow
def test_classes_that_are_separable_in_one_direction_only_have_no_minimizer():
    """The first three samples overlap, and have a best weight, log 2; the others are separable, and have none."""
    X = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [0.3, 1]])
    problem = EmpiricalRisk(X, np.array([1, 1, -1, 1, 1]), Logistic())
    flow = flowsim.integrate(LINE, problem, ts=[], max_steps=1000)
    assert flow.outcome is Outcome.NO_MINIMIZER
    assert_allclose(flow.network.regressor()[0], np.log(2), rtol=1e-6)


@pytest.mark.slow
def test_weights_so_large_that_the_risk_is_zero_in_floats_are_not_at_a_minimizer():
    far = DeepLinear([np.array([[1e6, 3e5]])])
    for minimal_risk in (np.nan, 0.0):
        problem = EmpiricalRisk(X, SIGNS, Logistic(), minimal_risk=minimal_risk)
        assert float(problem(far)) == 0
        assert flowsim.integrate(far, problem, ts=[]).outcome is Outcome.NO_MINIMIZER


@pytest.mark.slow
def test_descent_on_separable_classes_has_no_minimizer_either():
    network, problem = SEPARABLE["logistic"]
    descent = flowsim.descend(network, problem, learning_rate=1.0, steps=2000, record_steps=[0], stopping=LOOSE)
    assert descent.outcome is Outcome.NO_MINIMIZER
    assert descent.steps < 2000


@pytest.mark.slow
def test_weights_far_out_from_which_all_samples_come_to_the_right_side_are_not_at_a_minimizer():
    """As large steps throw them: the way to where the risk is next to nothing is short beside such weights."""
    problem = SEPARABLE["logistic"][1]
    far = DeepLinear([3e3 * np.array([[0.97, 0.2425]])])
    assert not bool(problem.decreases_forever(far))
    flow = flowsim.integrate(far, problem, ts=[], stopping=LOOSE)
    assert bool(problem.decreases_forever(flow.network))
    assert flow.outcome is Outcome.NO_MINIMIZER


@pytest.mark.slow
def test_a_perceptron_that_separates_has_no_minimizer():
    problem = EmpiricalRisk(X, SIGNS, Logistic())
    assert flowsim.integrate(perceptron(), problem, ts=[]).outcome is Outcome.NO_MINIMIZER


def test_classes_that_overlap_have_the_minimizer_that_scipy_finds():
    def risk(w):
        return np.mean(np.logaddexp(0, -MIXED * (X @ w)))

    def gradient(w):
        return -X.T @ (MIXED * scipy.special.expit(-MIXED * (X @ w))) / len(X)

    best = scipy.optimize.minimize(risk, np.zeros(2), jac=gradient, method="BFGS", options={"gtol": 1e-12}).x
    problem = EmpiricalRisk(X, MIXED, Logistic())
    flow = flowsim.integrate(LINE, problem, ts=[], stopping=Stopping(gradient_norm=1e-12, remaining=1e-11))
    assert flow.outcome is Outcome.CONVERGED
    assert_allclose(flow.network.regressor(), best, rtol=1e-9)
    assert flowsim.integrate(LINE, problem, ts=[]).outcome is Outcome.CONVERGED
    assert flowsim.integrate(LINE, problem, ts=[], stopping=LOOSE).outcome is Outcome.CONVERGED


@pytest.mark.slow
def test_probabilities_have_a_minimizer_however_well_the_classes_are_separated():
    smoothed = np.where(SIGNS[:, None] > 0, [0.1, 0.9], [0.9, 0.1])
    problem = EmpiricalRisk(X, smoothed, CrossEntropy())
    flow = flowsim.integrate(PAIR, problem, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert float(flow.risk[-1]) >= float(problem.lower_bound)


class OnTheCircle(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x / jnp.linalg.norm(self.weight)


class Bump(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x / (1 + self.weight @ self.weight)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OnTheCircle, Bump])
def test_predictions_that_cannot_grow_with_the_weights_have_a_minimizer(kind):
    problem = EmpiricalRisk(np.array([[1.0, 0.2], [0.8, -0.3], [1.2, 0.4]]), np.ones(3), Logistic())
    for stopping in (None, LOOSE):
        flow = flowsim.integrate(kind(jnp.array([0.3, 0.2])), problem, ts=[], stopping=stopping)
        assert bool(problem.decreases_forever(flow.network))  # every sample is on the right side
        assert flow.outcome is Outcome.CONVERGED


@pytest.fixture(scope="module")
def long_flow():
    """A logistic flow over ten decades of time, and the separator to which it tends."""
    problem = SEPARABLE["logistic"][1]
    separator = max_margin(problem)
    angle = Angle(separator.direction, of=DeepLinear.regressor)
    probes = [angle, Alignment(), Margin(), NormalizedMargin(), Accuracy()]
    times = 10.0 ** np.arange(2, 13)
    return separator, flowsim.integrate(LINE, problem, ts=times, t1=1e12, stopping=NEVER, probes=probes)


@pytest.mark.slow
def test_the_angle_to_the_separator_falls_like_one_over_log_t(long_flow):
    _, flow = long_flow
    late = slice(5, None)  # from t = 1e7 on
    products = np.asarray(flow.diagnostics["angle"] * jnp.log(flow.times))[late]
    # Soudry et al. (2018): w = ŵ log t + ρ(t), where ρ has a limit; what is left falls like 1/log t.
    slope = np.polyfit(1 / np.log(flow.times[late]), products, 1)
    assert slope[1] > 0
    assert np.ptp(products) < 0.15 * products.mean()
    assert (np.diff(products) < 0).all()


@pytest.mark.slow
def test_the_risk_along_the_flow_falls_like_one_over_time_and_the_margin_squared(long_flow):
    separator, flow = long_flow
    products = np.asarray(separator.margin**2 * flow.risk * flow.times)
    # d(1/R)/dt = ‖∇R‖²/R² is γ² in the direction of the separator, and more in any other, of which 1/t is left.
    assert (np.diff(products) > 0).all()
    assert 0.99 < products[-1] < 1


@pytest.mark.slow
def test_margins_along_the_flow_are_those_of_their_definition(long_flow):
    separator, flow = long_flow
    w = np.asarray(flow.network.regressor())
    least = (SIGNS * (X @ w)).min()
    assert_allclose(flow.diagnostics["margin"][-1], least, rtol=1e-12)
    assert_allclose(flow.diagnostics["normalized_margin"][-1], least / np.linalg.norm(w), rtol=1e-12)
    assert 0.98 * separator.margin < flow.diagnostics["normalized_margin"][-1] < separator.margin
    assert (flow.diagnostics["accuracy"] == 1).all()
    assert (np.diff(flow.diagnostics["normalized_margin"]) > 0).all()


@pytest.mark.slow
def test_at_the_end_the_gradient_points_as_the_weights_do(long_flow):
    _, flow = long_flow
    alignment, angle = flow.diagnostics["alignment"], flow.diagnostics["angle"]
    assert_allclose(alignment[-1], angle[-1], rtol=0.2)


def test_the_separator_is_that_of_the_quadratic_program():
    separator = max_margin(SEPARABLE["logistic"][1])
    found = scipy.optimize.minimize(
        lambda w: w @ w / 2,
        [5.0, 5.0],
        jac=lambda w: w,
        constraints={"type": "ineq", "fun": lambda w: SIGNS * (X @ w) - 1, "jac": lambda w: SIGNS[:, None] * X},
        method="SLSQP",
        options={"ftol": 1e-15},
    ).x
    assert_allclose(separator.direction, found / np.linalg.norm(found), rtol=1e-8)
    assert separator.margin == pytest.approx(1 / np.linalg.norm(found), rel=1e-8)
    margins = SIGNS * (X @ separator.direction)
    assert_allclose(margins[separator.support], separator.margin, rtol=1e-10)


@pytest.mark.slow
def test_two_classes_have_the_separator_of_signs_in_opposite_columns():
    signs, classes = (max_margin(SEPARABLE[name][1]) for name in ("logistic", "cross-entropy"))
    expected = np.stack([-signs.direction, signs.direction], 1) / 2**0.5
    assert_allclose(classes.direction, expected, atol=1e-10)
    assert_allclose(max_margin(SEPARABLE["ones and zeros"][1]).direction, expected, atol=1e-10)


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (EmpiricalRisk(X, MIXED, Logistic()), ValueError, "no linear network has all samples on the right side"),
        (EmpiricalRisk(X, X[:, 0]), ValueError, "SquaredError knows no margins of these targets"),
        (flowsim.LinearRegression(X, SIGNS), TypeError, "got LinearRegression"),
        (EmpiricalRisk(X[:, :, None], SIGNS, Logistic()), ValueError, r"X has shape \(20, 2, 1\)"),
    ],
)
def test_what_has_no_separator_is_refused(problem, error, message):
    with pytest.raises(error, match=message):
        max_margin(problem)


@pytest.mark.slow
def test_a_run_stops_at_a_margin_and_at_a_direction():
    network, problem = SEPARABLE["logistic"]
    flow = flowsim.integrate(network, problem, ts=[], stopping=Stopping(margin=4.0))
    assert flow.outcome is Outcome.MARGIN_REACHED
    assert flow.outcome.as_asked
    assert not flow.converged
    assert 4 <= float(jnp.min(problem.margins(flow.network))) < 8
    flow = flowsim.integrate(network, problem, ts=[], stopping=Stopping(direction=0.02))
    assert flow.outcome is Outcome.DIRECTION_REACHED
    gradient = jax.grad(problem)(flow.network)
    assert float(angle_between(flow.network, jax.tree.map(jnp.negative, gradient))) <= 0.02


@pytest.mark.slow
def test_a_criterion_of_margins_has_the_gradient_norm_of_the_precision_beside_it():
    network, problem = SEPARABLE["logistic"]
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network)
    flow = flowsim.integrate(single, problem, ts=[], stopping=Stopping(margin=2.0))
    assert flow.outcome is Outcome.MARGIN_REACHED
    assert stopping_for(Stopping(margin=2.0), problem, jnp.dtype("float32")).gradient_norm == np.float32(1e-4)
    assert stopping_for(Stopping(margin=2.0), problem, jnp.dtype("float64")).gradient_norm == 1e-8
    with pytest.raises(ValueError, match="gradient_norm=1e-08 is below what float32 resolves"):
        flowsim.integrate(single, problem, ts=[], stopping=Stopping(gradient_norm=1e-8))


@pytest.mark.slow
def test_accuracy_has_the_precision_of_the_run():
    network, problem = SEPARABLE["logistic"]
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network)
    flow = flowsim.integrate(single, problem, ts=[], t1=0.1, probes=[Accuracy()])
    assert flow.diagnostics["accuracy"].dtype == np.float32


@pytest.mark.slow
def test_weights_that_start_at_zero_are_not_taken_for_settled():
    start = jax.tree.map(jnp.zeros_like, LINE)
    flow = flowsim.integrate(start, SEPARABLE["logistic"][1], ts=[], t1=1e-3, stopping=Stopping(direction=0.1))
    assert flow.outcome is Outcome.TIME_LIMIT


@pytest.mark.parametrize(
    ("problem", "stopping", "message"),
    [
        (EmpiricalRisk(X, X[:, 0]), Stopping(margin=1.0), "margin is about samples of classes"),
        (EmpiricalRisk(X, X[:, 0]), Stopping(direction=0.1), "direction is about samples of classes"),
        (flowsim.LinearRegression(X, X[:, 0]), Stopping(margin=1.0), "of which LinearRegression knows none"),
        (EmpiricalRisk(X, SIGNS), Stopping(direction=0.1), "the infimum of this loss is attained"),
    ],
)
def test_margins_and_directions_are_asked_where_there_are_some(problem, stopping, message):
    with pytest.raises(ValueError, match=message):
        flowsim.integrate(LINE, problem, stopping=stopping)


@pytest.mark.slow
def test_accuracy_and_margin_of_ones_and_zeros_are_those_of_the_largest_output():
    network = DeepLinear([np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])])
    labels = np.arange(20) % 3
    predictions = X @ np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    right = (predictions.argmax(1) == labels).mean()
    others = np.where(np.eye(3, dtype=bool)[labels], -np.inf, predictions).max(1)
    least = (predictions[np.arange(20), labels] - others).min()
    for problem in (EmpiricalRisk(X, labels, CrossEntropy()), EmpiricalRisk(X, np.eye(3)[labels])):
        assert measured(Accuracy(), network, problem) == pytest.approx(right, rel=1e-12)
        assert measured(Margin(), network, problem) == pytest.approx(least, rel=1e-12)
    assert np.isnan(measured(Accuracy(), network, EmpiricalRisk(X, np.eye(3)[labels] + 0.1)))
    assert np.isnan(measured(Margin(), network, flowsim.LinearRegression(X, np.eye(3)[labels])))
    assert EmpiricalRisk(X, SIGNS, SquaredError()).has_margins()


def measured(probe, network, problem):
    nothing = jnp.asarray(jnp.nan)
    return float(probe.measure(flowsim.Moment(network, problem, None, nothing, nothing)))


@pytest.mark.slow
def test_the_normalized_margin_knows_the_degree_of_a_homogeneous_network():
    problem = SEPARABLE["logistic"][1]
    for depth in (1, 3):
        network = DeepLinear.gaussian(widths=[2, *[3] * (depth - 1), 1], scale=0.7, key=KEY)
        doubled = jax.tree.map(lambda leaf: 2 * leaf, network)
        expected = measured(Margin(), network, problem) / float(size_of(network)) ** depth
        assert measured(NormalizedMargin(), network, problem) == pytest.approx(expected, rel=1e-10)
        assert measured(NormalizedMargin(), doubled, problem) == pytest.approx(expected, rel=1e-10)
    smooth = perceptron()
    assert np.isnan(measured(NormalizedMargin(), smooth, problem))
    assert np.isfinite(measured(NormalizedMargin(degree=2), smooth, problem))


@pytest.mark.parametrize("direction", [np.ones((2, 1)), np.ones(3), [1.0, 0.3]])
def test_a_direction_of_another_shape_is_refused_and_not_broadcast(direction):
    with pytest.raises(ValueError, match=r"the direction of an Angle holds .*, and the network \[\(2,\)\]"):
        measured(Angle(direction, of=DeepLinear.regressor), LINE, SEPARABLE["logistic"][1])


@pytest.mark.parametrize("degree", ["two", True, np.ones(2)])
def test_a_degree_is_a_number(degree):
    with pytest.raises(ValueError, match="degree must be a number, or None to find it by itself"):
        NormalizedMargin(degree=degree)


def size_of(network):
    return np.sqrt(sum(np.sum(np.asarray(leaf) ** 2) for leaf in jax.tree.leaves(network)))
