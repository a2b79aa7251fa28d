"""Classes that a network separates, with margins and directions; and classes that it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from numpy.testing import assert_allclose

import flowsim
from flowsim import DeepLinear, EmpiricalRisk, Outcome, Perceptron, Stopping
from flowsim.dynamics import stopping_for
from flowsim.losses import CrossEntropy, Logistic, SquaredError
from flowsim.networks.weights import angle_between
from flowsim.probes import Accuracy, Alignment, Angle, Margin, NormalizedMargin
from flowsim.theory import max_margin

X = np.random.default_rng(1).standard_normal((20, 2))
SIGNS = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1, -1)
MIXED = np.where(np.arange(20) < 4, -SIGNS, SIGNS)


def line():
    return DeepLinear([np.array([[0.4, -0.3]])])


def of_signs(labels=SIGNS):
    return EmpiricalRisk(X, labels, Logistic())


def test_classes_that_overlap_have_the_minimizer_that_scipy_finds():
    def risk(w):
        return np.mean(np.logaddexp(0, -MIXED * (X @ w)))

    def gradient(w):
        return -X.T @ (MIXED * scipy.special.expit(-MIXED * (X @ w))) / len(X)

    best = scipy.optimize.minimize(risk, np.zeros(2), jac=gradient, method="BFGS", options={"gtol": 1e-12}).x

    @jax.jit
    def looked_at(weights):
        problem, network = of_signs(MIXED), DeepLinear([weights[None]])
        slope = jax.grad(lambda w: problem(DeepLinear([w[None]])))(weights)
        return problem(network), slope, problem.margins(network), problem.decreases_forever(network)

    for weights in (best, np.array([0.4, -0.3])):
        value, slope, margins, endless = looked_at(weights)
        assert_allclose(value, risk(weights), rtol=1e-13)
        assert_allclose(slope, gradient(weights), atol=1e-14)
        assert_allclose(margins, MIXED * (X @ weights), rtol=1e-13)
        assert not endless
    assert np.linalg.norm(looked_at(best)[1]) < 1e-10


@pytest.mark.slow
def test_a_flow_on_classes_that_overlap_ends_at_the_minimizer():
    flow = flowsim.integrate(line(), of_signs(MIXED), ts=[], stopping=Stopping(gradient_norm=1e-12, remaining=1e-11))
    assert flow.outcome is Outcome.CONVERGED
    w = np.asarray(flow.network.regressor())
    assert_allclose(X.T @ (MIXED * scipy.special.expit(-MIXED * (X @ w))), 0, atol=1e-10)


@pytest.mark.slow
def test_weights_grow_for_ever_in_one_direction_only():
    """The first three samples overlap, and have a best weight, log 2; the others are separable, and have none."""
    X = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [0.3, 1]])
    problem = EmpiricalRisk(X, np.array([1, 1, -1, 1, 1]), Logistic())
    flow = flowsim.integrate(line(), problem, ts=[], max_steps=1000)
    assert flow.outcome is Outcome.NO_MINIMIZER
    assert_allclose(flow.network.regressor()[0], np.log(2), rtol=1e-6)


@pytest.mark.slow
def test_weights_far_out_from_which_all_samples_come_to_the_right_side_are_not_at_a_minimizer():
    """As large steps throw them: the way to where the risk is next to nothing is short beside such weights."""
    problem = of_signs()
    far = DeepLinear([3e3 * np.array([[0.97, 0.2425]])])
    assert not bool(problem.decreases_forever(far))
    flow = flowsim.integrate(far, problem, ts=[], stopping=Stopping(gradient_norm=1e-2))
    assert bool(problem.decreases_forever(flow.network))
    assert flow.outcome is Outcome.NO_MINIMIZER


@pytest.mark.slow
def test_along_a_logistic_flow_the_risk_falls_like_one_over_time_and_the_angle_to_the_separator_like_one_over_its_log():
    problem = of_signs()
    separator = max_margin(problem)
    to_separator = Angle(separator.direction, of=DeepLinear.regressor)
    probes = [to_separator, Alignment(), Margin(), NormalizedMargin(), Accuracy()]
    options = {"ts": 10.0 ** np.arange(2, 13), "t1": 1e12, "stopping": Stopping(gradient_norm=None)}
    flow = flowsim.integrate(line(), problem, probes=probes, **options)
    angle, normalized = flow.diagnostics["angle"], flow.diagnostics["normalized_margin"]
    # Soudry et al. (2018): w = ŵ log t + ρ(t), where ρ has a limit; what is left falls like 1/log t.
    products = np.asarray(angle * jnp.log(flow.times))[5:]  # from t = 1e7 on
    assert np.polyfit(1 / np.log(flow.times[5:]), products, 1)[1] > 0
    assert np.ptp(products) < 0.15 * products.mean()
    assert (np.diff(products) < 0).all()
    # d(1/R)/dt = ‖∇R‖²/R² is γ² in the direction of the separator, and more in any other, of which 1/t is left.
    products = np.asarray(separator.margin**2 * flow.risk * flow.times)
    assert (np.diff(products) > 0).all()
    assert 0.99 < products[-1] < 1
    w = np.asarray(flow.network.regressor())
    least = (SIGNS * (X @ w)).min()
    assert_allclose(flow.diagnostics["margin"][-1], least, rtol=1e-12)
    assert_allclose(normalized[-1], least / np.linalg.norm(w), rtol=1e-12)
    assert 0.98 * separator.margin < normalized[-1] < separator.margin
    assert (flow.diagnostics["accuracy"] == 1).all()
    assert (np.diff(normalized) > 0).all()
    # At the end the gradient points as the weights do.
    assert_allclose(flow.diagnostics["alignment"][-1], angle[-1], rtol=0.2)


def test_the_separator_is_that_of_the_quadratic_program():
    separator = max_margin(of_signs())
    shortest = scipy.optimize.minimize(
        lambda w: w @ w / 2,
        [5.0, 5.0],
        jac=lambda w: w,
        constraints={"type": "ineq", "fun": lambda w: SIGNS * (X @ w) - 1, "jac": lambda w: SIGNS[:, None] * X},
        method="SLSQP",
        options={"ftol": 1e-15},
    ).x
    assert_allclose(separator.direction, shortest / np.linalg.norm(shortest), rtol=1e-8)
    assert separator.margin == pytest.approx(1 / np.linalg.norm(shortest), rel=1e-8)
    margins = SIGNS * (X @ separator.direction)
    assert_allclose(margins[separator.support], separator.margin, rtol=1e-10)


@pytest.mark.slow
def test_two_classes_have_the_separator_of_signs_in_opposite_columns():
    signs = max_margin(of_signs())
    expected = np.stack([-signs.direction, signs.direction], 1) / 2**0.5
    for targets in (SIGNS > 0, np.stack([SIGNS < 0, SIGNS > 0], 1).astype(float)):
        assert_allclose(max_margin(EmpiricalRisk(X, targets, CrossEntropy())).direction, expected, atol=1e-10)


def test_descent_stops_where_the_least_margin_is_what_was_asked_for():
    run = flowsim.descend(line(), of_signs(), learning_rate=1.0, steps=5000, stopping=Stopping(margin=1.0))
    assert run.outcome is Outcome.MARGIN_REACHED
    assert 1 <= (SIGNS * (X @ np.asarray(run.network.regressor()))).min() < 1.1


@pytest.mark.slow
def test_a_run_stops_at_a_margin_and_at_a_direction_and_not_at_weights_that_start_at_zero():
    network, problem = line(), of_signs()
    flow = flowsim.integrate(network, problem, ts=[], stopping=Stopping(margin=4.0))
    assert flow.outcome is Outcome.MARGIN_REACHED
    assert flow.outcome.as_asked
    assert not flow.converged
    assert 4 <= float(jnp.min(problem.margins(flow.network))) < 8
    flow = flowsim.integrate(network, problem, ts=[], stopping=Stopping(direction=0.02))
    assert flow.outcome is Outcome.DIRECTION_REACHED
    gradient = jax.grad(problem)(flow.network)
    assert float(angle_between(flow.network, jax.tree.map(jnp.negative, gradient))) <= 0.02
    zero = jax.tree.map(jnp.zeros_like, network)
    flow = flowsim.integrate(zero, problem, ts=[], t1=1e-3, stopping=Stopping(direction=0.1))
    assert flow.outcome is Outcome.TIME_LIMIT


def test_a_criterion_of_margins_has_the_gradient_norm_of_the_precision_beside_it():
    for dtype, gradient_norm in (("float32", np.float32(1e-4)), ("float64", 1e-8)):
        assert stopping_for(Stopping(margin=2.0), of_signs(), jnp.dtype(dtype)).gradient_norm == gradient_norm


def measured(*probes_networks_problems):
    """Return what probes measure of networks, in one program."""
    nothing = np.array(np.nan)

    def measure():
        for probe, network, problem in probes_networks_problems:
            yield probe.measure(flowsim.Moment(network, problem, None, nothing, nothing))

    return np.array(jax.jit(lambda: list(measure()))())


def until(problem, **criterion):
    return flowsim.integrate(line(), problem, stopping=Stopping(**criterion))


def towards(direction):
    return measured((Angle(direction, of=DeepLinear.regressor), line(), of_signs()))


OTHER_SHAPE = r"the direction of an Angle holds .*, and the network \[\(2,\)\]"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: max_margin(of_signs(MIXED)), "no linear network has all samples on the right side"),
        (lambda: max_margin(EmpiricalRisk(X, X[:, 0])), "SquaredError knows no margins of these targets"),
        (lambda: max_margin(flowsim.LinearRegression(X, SIGNS)), "got LinearRegression"),
        (lambda: until(EmpiricalRisk(X, X[:, 0]), margin=1.0), "margin is about samples of classes"),
        (lambda: until(EmpiricalRisk(X, X[:, 0]), direction=0.1), "direction is about samples of classes"),
        (lambda: until(flowsim.LinearRegression(X, X[:, 0]), margin=1.0), "of which LinearRegression knows none"),
        (lambda: until(EmpiricalRisk(X, SIGNS), direction=0.1), "the infimum of this loss is attained"),
        (lambda: towards(np.ones((2, 1))), OTHER_SHAPE),  # and not broadcast
        (lambda: towards([1.0, 0.3]), OTHER_SHAPE),
        (lambda: NormalizedMargin(degree="two"), "degree must be a number, or None to find it by itself"),
        (lambda: NormalizedMargin(degree=True), "degree must be a number, or None to find it by itself"),
    ],
)
def test_separators_margins_and_directions_are_asked_where_there_are_some(ask, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ask()


def test_an_angle_keeps_its_digits_where_it_is_small_and_is_unknown_to_zero():
    one, angle = {"a": np.array([2.0, 0.0]), "b": np.array(0.0)}, jax.jit(angle_between)
    for small in (1.0, 1e-9):
        other = {"a": np.array([3.0, 0.0]), "b": np.array(3 * small)}
        assert_allclose(angle(one, other), np.arctan(small), rtol=1e-14)
    assert np.isnan(angle(one, jax.tree.map(np.zeros_like, one)))


def test_margins_are_those_of_the_largest_output_and_normalized_by_the_degree_of_a_homogeneous_network():
    wide = DeepLinear([np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])])
    labels = np.arange(20) % 3
    rows = np.eye(3)[labels]
    predictions = X @ np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    right = (predictions.argmax(1) == labels).mean()
    others = np.where(rows > 0, -np.inf, predictions).max(1)
    least = (predictions[np.arange(20), labels] - others).min()
    classes, ones, none = EmpiricalRisk(X, labels, CrossEntropy()), EmpiricalRisk(X, rows), EmpiricalRisk(X, rows + 0.1)
    assert none.has_margins() is False
    assert EmpiricalRisk(X, SIGNS, SquaredError()).has_margins()

    first, second = np.array([[1.0, -0.5], [0.3, 0.8]]), np.array([[0.7, -0.2]])
    margin = (SIGNS * (X @ (second @ first)[0])).min()
    squares = np.sum(first**2) + np.sum(second**2)
    deep, smooth = DeepLinear([first, second]), Perceptron([first, second], activation="tanh")
    bent = (SIGNS * (np.tanh(X @ first.T) @ second[0])).min()
    numbers = measured(
        *((probe, wide, problem) for problem in (classes, ones) for probe in (Accuracy(), Margin())),
        (Accuracy(), wide, none),
        (Accuracy(), DeepLinear([np.zeros((3, 2))]), classes),  # a tie is no decision
        (NormalizedMargin(), deep, of_signs()),
        (NormalizedMargin(), smooth, of_signs()),
        (NormalizedMargin(degree=3), smooth, of_signs()),
    )
    expected = [right, least, right, least, np.nan, 0, margin / squares, np.nan, bent / squares**1.5]
    assert_allclose(numbers, expected, rtol=1e-10)
