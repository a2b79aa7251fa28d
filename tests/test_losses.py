"""Losses: their values and derivatives, the shapes they compare, and losses that a user writes."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import flowsim
from flowsim.losses import (
    LOSSES,
    CrossEntropy,
    Huber,
    Logistic,
    Loss,
    PointwiseLoss,
    SquaredError,
    differentiated_curvature,
)

X = np.random.default_rng(0).standard_normal((12, 3))
ONE, THREE = np.sin(X @ np.ones(3)), np.tanh(X)
CLASSES = np.arange(12) % 3


class OwnHuber(Loss):
    """A loss that a user writes."""

    delta: float = 0.5

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __call__(self, prediction, target):
        return huber(prediction, target, self.delta)

    def curvature(self, prediction, target):
        return differentiated_curvature(self, prediction, target)


def huber(prediction, target, delta=0.5):
    error = jnp.abs(prediction - target)
    return jnp.sum(jnp.where(error <= delta, error**2 / 2, delta * (error - delta / 2)))


def applied(weights, x):
    return weights @ x


def model(outputs):
    """A linear network, of which the predictions are `predictions(outputs)`."""
    shape = (3,) if outputs == 1 else (outputs, 3)
    return jax.tree_util.Partial(applied, np.linspace(-1.0, 0.7, 3 * outputs).reshape(shape))


def predictions(outputs):
    return X @ model(outputs).args[0].T


def log_softmax(logits):
    return logits - scipy.special.logsumexp(logits, axis=-1, keepdims=True)


def test_losses_are_found_by_their_names_or_their_modules_and_say_their_infimum_and_whether_it_is_attained():
    assert LOSSES.name_of(SquaredError) == "squared_error"
    assert LOSSES["flowsim.losses:PointwiseLoss"] is PointwiseLoss
    assert LOSSES.name_of(OwnHuber) == f"{__name__}:OwnHuber"
    with pytest.raises(ValueError, match=r"expected a subclass of flowsim\.losses\.Loss"):
        LOSSES["flowsim.losses:Loss"]
    with pytest.raises(TypeError, match=r"__call__.*attained.*curvature.*infimum"):
        Loss()
    assert np.isnan(PointwiseLoss(huber).infimum)
    kinds = {"squared_error": SquaredError, "cross_entropy": CrossEntropy, "logistic": Logistic, "huber": Huber}
    for name, kind in kinds.items():
        assert LOSSES[name] is kind
        assert (kind().infimum, kind().attained) == (0, kind in (SquaredError, Huber))


def test_risks_are_means_over_the_samples_of_traced_targets_too():
    def risks(y, classes):
        squared, several = flowsim.EmpiricalRisk(X, y), flowsim.EmpiricalRisk(X, classes, CrossEntropy())
        # A class beyond the outputs, which is seen too late, makes no number.
        beyond = flowsim.EmpiricalRisk(X, classes + 1, CrossEntropy())
        return squared(model(1)), several(model(4)), several(model(3)), beyond(model(3))

    squared, *several, beyond = jax.jit(jax.vmap(risks))(np.stack([ONE, -ONE]), np.stack([CLASSES, CLASSES]))
    np.testing.assert_allclose(squared, [np.mean((predictions(1) - sign * ONE) ** 2) for sign in (1, -1)], rtol=1e-13)
    for outputs, risk in zip((4, 3), several, strict=True):
        expected = -np.mean(log_softmax(predictions(outputs))[np.arange(12), CLASSES])
        np.testing.assert_allclose(risk, expected, rtol=1e-13)
    assert np.isnan(beyond).all()


PROBABILITIES = np.array([0.2, 0.3, 0.5])
LOGITS = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, -2.0], [0.3, -1.2, 2.0], [50.0, 0.0, 1.0]])


def test_cross_entropy_is_minus_the_logarithm_of_the_softmax_and_so_are_its_derivatives():
    loss = CrossEntropy()

    @jax.jit
    @jax.vmap
    def derivatives(logits):
        of = jax.value_and_grad(loss)
        by_class = jax.vmap(of, (None, 0))(logits, jnp.arange(3))
        return by_class, of(logits, PROBABILITIES), loss.curvature(logits, jnp.array(0))

    p = scipy.special.softmax(LOGITS, axis=1)
    (values, gradients), (value, gradient), curvatures = derivatives(LOGITS)
    np.testing.assert_allclose(values, -log_softmax(LOGITS), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(value, -log_softmax(LOGITS) @ PROBABILITIES, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(gradients, p[:, None] - np.eye(3), atol=1e-15)
    np.testing.assert_allclose(gradient, p - PROBABILITIES, atol=1e-15)
    expected = [np.diag(row) - np.outer(row, row) for row in p]
    np.testing.assert_allclose(curvatures, expected, atol=1e-15)


def test_small_losses_keep_their_digits_and_two_classes_cost_the_same_as_signs_do():
    def cases(margin):
        return [
            (Logistic(), margin, jnp.array(1)),
            (Logistic(), -margin, jnp.array(-1)),
            (CrossEntropy(), jnp.stack([margin, jnp.zeros(())]), jnp.array(0)),
            (CrossEntropy(), jnp.stack([jnp.zeros(()), -margin]), jnp.array(False)),
            (CrossEntropy(), jnp.stack([margin, jnp.zeros(())]), jnp.array([1.0, 0.0])),
        ]

    @jax.jit
    @jax.vmap
    def measure(margin):
        measured = [(*jax.value_and_grad(loss)(f, y), loss.curvature(f, y)) for loss, f, y in cases(margin)]
        flat = [(value, jnp.atleast_1d(slope)[0], curvature[0, 0]) for value, slope, curvature in measured]
        return jnp.stack([jnp.stack(numbers) for numbers in flat])

    margins = np.array([30.0, 60.0, 300.0, -3.0, 0.0, 0.7, -1e6])
    sigmoid = scipy.special.expit(-margins)
    slopes = np.outer(sigmoid, [-1, 1, -1, -1, -1])
    numbers = np.asarray(measure(margins))
    np.testing.assert_allclose(numbers[..., 0].T, 5 * [np.logaddexp(0, -margins)], rtol=1e-12)
    np.testing.assert_allclose(numbers[..., 1], slopes, rtol=1e-12)
    np.testing.assert_allclose(numbers[..., 2].T, 5 * [sigmoid * scipy.special.expit(margins)], rtol=1e-12, atol=1e-300)


def test_huber_is_scipys_and_a_large_error_pulls_with_delta():
    errors = np.array([-7.0, -2.0, -0.3, 0.0, 1.9, 2.0, 1e200])

    @jax.jit
    def derivatives(delta):
        return jax.vmap(lambda error: jax.value_and_grad(Huber(delta))(error, jnp.array(0.0)))(errors)

    for delta in (0.5, 2.0):
        values, slopes = derivatives(delta)
        np.testing.assert_allclose(values, scipy.special.huber(delta, errors), rtol=1e-14)
        np.testing.assert_allclose(slopes, np.clip(errors, -delta, delta), rtol=1e-14)


def test_roots_of_curvatures_are_roots_of_second_derivatives():
    cases = [
        (SquaredError(), np.array([[0.3, -1.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 1.0]])),
        (Huber(0.5), np.array([0.3, -1.0]), np.array([0.0, 1.0])),
        (Logistic(), np.array(0.7), np.array(-1.0)),
        (CrossEntropy(), np.array([0.3, -1.0, 2.0]), PROBABILITIES),
        (CrossEntropy(), np.array([0.3, -1.0, 2.0]), np.array(1)),
        (OwnHuber(), np.array([0.3, -1.0]), np.array([0.0, 1.0])),
    ]

    @jax.jit
    def curvatures(arrays):
        return [
            (loss.curvature_root(f, y), loss.curvature(f, y), differentiated_curvature(loss, f, y))
            for (loss, _, _), (f, y) in zip(cases, arrays, strict=True)
        ]

    for root, curvature, expected in curvatures([(jnp.asarray(f), jnp.asarray(y)) for _, f, y in cases]):
        np.testing.assert_allclose(curvature, expected, atol=1e-15)
        np.testing.assert_allclose(root @ root.T, expected, atol=1e-14)


def test_no_risk_is_below_the_entropy_of_its_targets():
    probabilities = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    problem = flowsim.EmpiricalRisk(X[:3], probabilities, CrossEntropy())
    np.testing.assert_allclose(problem.lower_bound, scipy.special.entr(probabilities).sum() / 3, rtol=1e-14)
    assert np.isnan(problem.infimum)
    assert float(flowsim.EmpiricalRisk(X, CLASSES, CrossEntropy()).lower_bound) == 0
    with pytest.raises(ValueError, match=r"minimal_risk is 0\.1, but no risk of these targets is below 0\.574"):
        flowsim.EmpiricalRisk(X[:3], probabilities, CrossEntropy(), minimal_risk=0.1)


def test_whole_numbers_that_would_come_out_as_others_are_refused():
    y = np.full(12, 3_000_000_000)
    assert flowsim.EmpiricalRisk(X, y).y[0] == y[0]
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ValueError, match=r"y holds .*, beyond int32: write y.astype\(float\)"):
            flowsim.EmpiricalRisk(X, y)
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_loss_decreases_for_ever_only_where_the_class_is_certain_and_right():
    cases = [
        (CrossEntropy(), np.array([3.0, 0.0]), np.array([1.0, 0.0]), True),
        # The sum is one up to rounding; yet the least loss is where p is (1, 1e-7) to rounding, at f = 16.
        (CrossEntropy(), np.array([3.0, 0.0]), np.array([1.0, 1e-7]), False),
        (CrossEntropy(), np.array([0.0, 3.0, 1.0]), np.array(1), True),
        (CrossEntropy(), np.array([0.0, 3.0, 1.0]), np.array(2), False),
        (Logistic(), np.array(-0.1), np.array(-1), True),
        (Logistic(), np.array(0.1), np.array(-1), False),
        (SquaredError(), np.array(1.0), np.array(1.0), False),
    ]
    decrease = jax.jit(lambda: [loss.decreases_forever(jnp.asarray(f), jnp.asarray(y)) for loss, f, y, _ in cases])()
    assert list(map(bool, decrease)) == [expected for *_, expected in cases]
    losses = jax.jit(jax.vmap(lambda f: CrossEntropy()(jnp.stack([f, 0 * f]), np.array([1.0, 1e-7]))))
    assert np.argmin(losses(np.array([3.0, 16.0, 60.0]))) == 1


def with_place(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flowsim.EmpiricalRisk(with_place(X, (2, 1), np.nan), ONE), r"X\[2, 1\] is nan: expected"),
        (lambda: flowsim.EmpiricalRisk(X, with_place(ONE, 4, -np.inf)), r"y\[4\] is -inf: expected finite numbers"),
        (
            lambda: flowsim.EmpiricalRisk(X, ONE, SquaredError),
            r"is the class SquaredError itself: write SquaredError\(\)",
        ),
        (
            lambda: flowsim.EmpiricalRisk(X, ONE, "squared_error"),
            "the loss is 'squared_error': expected a flowsim.losses",
        ),
        (lambda: flowsim.EmpiricalRisk(X, ONE, minimal_risk=[0.0, 1.0]), "minimal_risk must be a number, or NaN"),
        (lambda: flowsim.EmpiricalRisk(X, ONE, minimal_risk=np.inf), "minimal_risk must be a number, or NaN"),
        (lambda: Huber(True), "delta must be positive and finite"),
        (lambda: Huber(0), "delta must be positive and finite"),
        (lambda: Huber(float("inf")), "delta must be positive and finite"),
    ],
)
def test_losses_and_risks_that_cannot_be_are_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("targets", "loss", "message"),
    [
        (CLASSES.astype(float), CrossEntropy(), r"y holds float64, one number for each .* write y\.astype\(int\)"),
        (CLASSES - 1, CrossEntropy(), r"y holds the class -1: .* write y - y\.min\(\)"),
        (np.eye(3)[CLASSES] - 1 / 3, CrossEntropy(), r"y\[0\] sums to .*: CrossEntropy expects probabilities"),
        (2 * np.eye(3)[CLASSES], CrossEntropy(), r"y\[0\] sums to 2, .*write y / y\.sum\(1, keepdims=True\)"),
        (CLASSES > 1, Logistic(), r"y holds False, True: Logistic expects the labels -1 and 1; write 2 \* y - 1"),
        (CLASSES, Logistic(), r"y holds 0, 1, 2: .*CrossEntropy\(\) for several classes"),
    ],
)
def test_targets_of_the_wrong_kind_are_refused_before_anything_runs(targets, loss, message):
    with pytest.raises(ValueError, match=message):
        flowsim.EmpiricalRisk(X, targets, loss)


@pytest.mark.parametrize(
    ("targets", "loss", "outputs", "message"),
    [
        (
            THREE,
            SquaredError(),
            1,
            r"predicts shape \(\) and y holds shape \(3,\) of float64, which \w+ does not compare",
        ),
        (ONE, OwnHuber(), 3, r"predicts shape \(3,\) and y holds shape \(\) of float64, which \w+ does not compare"),
        (CLASSES, SquaredError(), 3, r"numbers of classes write flowsim\.losses\.CrossEntropy\(\), or np"),
        (THREE, lambda p, t: (p - t) ** 2, 3, r"the loss returns shape \(3,\).*; write jnp\.sum"),
        (CLASSES, CrossEntropy(), 1, "give the network one output for each class, two or more"),
        (CLASSES, CrossEntropy(), 2, "y holds the class 2 and the network predicts 2 .*: give it 3 outputs"),
        (CLASSES[:, None], CrossEntropy(), 3, r"write one class for each sample: numpy.ravel\(y\) of one column"),
        (np.eye(3)[CLASSES], CrossEntropy(), 4, "give the network as many outputs as y has columns, which are prob"),
        (1 - CLASSES % 2 * 2, Logistic(), 2, "give the network one output, and y one column"),
    ],
)
def test_targets_that_do_not_go_with_the_predictions_are_refused(targets, loss, outputs, message):
    problem = flowsim.EmpiricalRisk(X, targets, loss)
    for risk in (problem, eqx.filter_jit(problem)):
        with pytest.raises(ValueError, match=message):
            risk(model(outputs))
