"""Losses: their curvature, the shapes they compare, and losses of one's own."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

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

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((12, 3))
ONE, THREE = np.sin(X @ np.ones(3)), np.tanh(X)


class OwnHuber(Loss):
    """A loss of a user's own."""

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


def network(outputs):
    return flowsim.Perceptron.gaussian(widths=[3, 4, outputs], scale=0.7, activation="tanh", key=KEY)


@pytest.mark.parametrize("shape", [(), pytest.param((1,), marks=pytest.mark.slow), (2, 2)])
def test_the_curvature_of_the_squared_error_is_that_of_automatic_differentiation(shape):
    prediction, target = jnp.full(shape, 0.3), jnp.full(shape, -1.0)
    found = SquaredError().curvature(prediction, target)
    np.testing.assert_array_equal(found, differentiated_curvature(SquaredError(), prediction, target))
    assert found.dtype == prediction.dtype


@pytest.mark.slow
@pytest.mark.parametrize("targets", [ONE, THREE])
def test_a_loss_of_ones_own_flows_the_same_as_a_kind_and_as_a_function(targets):
    model = network(1 if targets.ndim == 1 else 3)
    kind, function = (flowsim.EmpiricalRisk(X, targets, loss) for loss in (OwnHuber(), huber))
    flows = [flowsim.integrate(model, problem, t1=2.0, ts=[1.0]) for problem in (kind, function)]
    assert flows[0].method == "StiffnessSwitching"
    assert flows[0].risk[-1] < 0.8 * float(kind(model))
    assert eqx.tree_equal(flows[0].network, flows[1].network)
    assert flows[0].steps == flows[1].steps


def test_a_loss_of_ones_own_is_found_by_its_place_and_the_built_in_one_by_its_name():
    assert LOSSES["squared_error"] is SquaredError
    assert LOSSES.name_of(SquaredError) == "squared_error"
    assert LOSSES["flowsim.losses:PointwiseLoss"] is PointwiseLoss
    assert LOSSES.name_of(OwnHuber) == f"{__name__}:OwnHuber"
    with pytest.raises(ValueError, match=r"expected a subclass of flowsim\.losses\.Loss"):
        LOSSES["flowsim.losses:Loss"]


def test_a_loss_says_what_it_is_asked_for():
    with pytest.raises(TypeError, match=r"__call__.*attained.*curvature.*infimum"):
        Loss()
    assert (SquaredError().infimum, SquaredError().attained) == (0, True)
    assert np.isnan(PointwiseLoss(huber).infimum)
    for name, kind in {"cross_entropy": CrossEntropy, "logistic": Logistic, "huber": Huber}.items():
        assert LOSSES[name] is kind
        assert (kind().infimum, kind().attained) == (0, kind is Huber)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (SquaredError, r"the loss is the class SquaredError itself: write SquaredError\(\)"),
        ("squared_error", "the loss is 'squared_error': expected a flowsim.losses.Loss"),
    ],
)
def test_what_is_no_loss_is_refused(loss, message):
    with pytest.raises(TypeError, match=message):
        flowsim.EmpiricalRisk(X, ONE, loss)


@pytest.mark.parametrize("loss", [SquaredError(), OwnHuber(), huber])
@pytest.mark.parametrize(
    ("targets", "outputs", "message"),
    [
        (THREE, 1, r"predicts shape \(\) and y holds shape \(3,\) of float64, which \w+ does not compare"),
        (ONE, 3, r"predicts shape \(3,\) and y holds shape \(\) of float64, which \w+ does not compare"),
        (ONE[:, None], 3, r"predicts shape \(3,\) and y holds shape \(1,\)"),
        (THREE[:, :2], 3, r"predicts shape \(3,\) and y holds shape \(2,\)"),
    ],
)
def test_predictions_and_targets_of_different_shapes_are_refused_rather_than_broadcast(loss, targets, outputs, message):
    problem = flowsim.EmpiricalRisk(X, targets, loss)
    for run in (problem, lambda model: flowsim.integrate(model, problem, t1=1.0)):
        with pytest.raises(ValueError, match=message + ".*: give the network as many outputs as y has columns"):
            run(network(outputs))


@pytest.mark.slow
def test_targets_with_several_axes_are_compared_with_predictions_of_that_shape():
    class Outer(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return self.weight * x[None]

    problem = flowsim.EmpiricalRisk(X, np.stack([X, 2 * X], 1))
    flow = flowsim.integrate(Outer(jnp.ones((2, 1))), problem)
    assert flow.converged
    np.testing.assert_allclose(flow.network.weight, [[1], [2]], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda X, y: (np.where(np.arange(36).reshape(12, 3) == 7, np.nan, X), y),
            r"X\[2, 1\] is nan: expected",
        ),
        (lambda X, y: (X, np.where(np.arange(12) == 4, -np.inf, y)), r"y\[4\] is -inf: expected finite numbers"),
        (lambda X, y: (jnp.asarray(X).at[0, 2].set(jnp.inf), y), r"X\[0, 2\] is inf"),
    ],
)
def test_samples_that_are_not_finite_are_refused_with_their_place(change, message):
    with pytest.raises(ValueError, match=message):
        flowsim.EmpiricalRisk(*change(X, ONE))


def test_traced_samples_are_taken_as_they_are():
    risks = jax.jit(jax.vmap(lambda y: flowsim.EmpiricalRisk(X, y)(network(1))))(np.stack([ONE, -ONE]))
    np.testing.assert_allclose(risks[1], flowsim.EmpiricalRisk(X, -ONE)(network(1)), rtol=1e-13)


LOGITS = [[0.0, 0.0, 0.0], [1.0, 1.0, -2.0], [0.3, -1.2, 2.0], [50.0, 0.0, 1.0]]
PROBABILITIES = np.array([0.2, 0.3, 0.5])


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.slow
def test_cross_entropy_is_minus_the_logarithm_of_the_softmax_and_so_are_its_derivatives(logits):
    logits, p = np.array(logits), scipy.special.softmax(logits)
    for target, weights in [(jnp.array(k), np.eye(3)[k]) for k in range(3)] + [(PROBABILITIES, PROBABILITIES)]:
        value, gradient = jax.value_and_grad(CrossEntropy())(jnp.array(logits), jnp.asarray(target))
        expected = scipy.special.logsumexp(logits) - logits @ weights
        np.testing.assert_allclose(value, expected, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(gradient, p - weights, atol=1e-15)
    np.testing.assert_allclose(
        CrossEntropy().curvature(jnp.array(logits), jnp.array(0)), np.diag(p) - np.outer(p, p), atol=1e-15
    )


@pytest.mark.slow
def test_small_losses_keep_their_digits():
    for margin in (30.0, 60.0, 300.0):
        tail = np.exp(-margin)
        both = [
            (Logistic(), jnp.array(margin), jnp.array(1)),
            (Logistic(), jnp.array(-margin), jnp.array(-1)),
            (CrossEntropy(), jnp.array([margin, 0.0]), jnp.array(0)),
            (CrossEntropy(), jnp.array([margin, 0.0]), jnp.array([1.0, 0.0])),
        ]
        for loss, prediction, target in both:
            value, gradient = jax.value_and_grad(loss)(prediction, target)
            np.testing.assert_allclose(value, tail, rtol=1e-12)
            np.testing.assert_allclose(np.abs(gradient), tail, rtol=1e-12)
            np.testing.assert_allclose(np.diag(loss.curvature(prediction, target)), tail, rtol=1e-12)
    for loss, prediction, target in both:  # and on the wrong side nothing overflows
        wrong = loss(-1e6 * prediction, target)
        np.testing.assert_allclose(wrong, 3e8, rtol=1e-9)


def test_two_classes_cost_the_same_as_signs_do():
    for f in (-3.0, 0.0, 0.7, 20.0):
        signs = [Logistic()(jnp.array(f), jnp.array(sign)) for sign in (-1, 1)]
        classes = [CrossEntropy()(jnp.array([0.0, f]), jnp.array(number)) for number in (False, True)]
        np.testing.assert_allclose(signs, classes, rtol=1e-14)
        np.testing.assert_allclose(signs, [np.logaddexp(0, f), np.logaddexp(0, -f)], rtol=1e-14)


@pytest.mark.parametrize("delta", ["a", None, True, 0, -1.0, float("nan"), float("inf"), [1.0]])
def test_huber_wants_a_positive_number(delta):
    with pytest.raises(ValueError, match="delta must be positive and finite"):
        Huber(delta)


def test_huber_is_scipys_and_a_large_error_pulls_with_delta():
    errors = np.array([-7.0, -2.0, -0.3, 0.0, 1.9, 2.0, 1e200])
    for delta in (0.5, 2.0):
        values, slopes = jax.vmap(lambda e, d=delta: jax.value_and_grad(Huber(d))(e, jnp.array(0.0)))(jnp.array(errors))
        np.testing.assert_allclose(values, scipy.special.huber(delta, errors), rtol=1e-14)
        np.testing.assert_allclose(slopes, np.clip(errors, -delta, delta), rtol=1e-14)
    curvature = Huber(1.0).curvature(jnp.array([0.5, 3.0]), jnp.zeros(2))
    np.testing.assert_array_equal(curvature, np.diag([1.0, 0.0]))


@pytest.mark.parametrize(
    ("loss", "prediction", "target"),
    [
        (SquaredError(), [0.3, -1.0], [0.0, 1.0]),
        (Huber(0.5), [0.3, -1.0], [0.0, 1.0]),
        (Logistic(), 0.7, -1.0),
        (CrossEntropy(), [0.3, -1.0, 2.0], [0.2, 0.3, 0.5]),
        (CrossEntropy(), [0.3, -1.0, 2.0], 1),
        (OwnHuber(), [0.3, -1.0], [0.0, 1.0]),
    ],
)
@pytest.mark.slow
def test_roots_of_curvatures_are_roots_of_second_derivatives(loss, prediction, target):
    prediction, target = jnp.array(prediction), jnp.array(target)
    root = loss.curvature_root(prediction, target)
    expected = differentiated_curvature(loss, prediction, target)
    np.testing.assert_allclose(loss.curvature(prediction, target), expected, atol=1e-15)
    np.testing.assert_allclose(root @ root.T, expected, atol=1e-14)


def test_no_risk_is_below_the_entropy_of_its_targets():
    probabilities = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    problem = flowsim.EmpiricalRisk(X[:3], probabilities, CrossEntropy())
    entropy = scipy.stats.entropy(probabilities, axis=1)
    np.testing.assert_allclose(problem.lower_bound, entropy.mean(), rtol=1e-14)
    np.testing.assert_allclose(CrossEntropy()(jnp.log(PROBABILITIES), PROBABILITIES), entropy[0], rtol=1e-14)
    assert np.isnan(problem.infimum)
    assert float(flowsim.EmpiricalRisk(X, np.arange(12) % 3, CrossEntropy()).lower_bound) == 0
    with pytest.raises(ValueError, match=r"minimal_risk is 0\.1, but no risk of these targets is below 0\.574"):
        flowsim.EmpiricalRisk(X[:3], probabilities, CrossEntropy(), minimal_risk=0.1)


@pytest.mark.parametrize("minimal_risk", ["0", None, [0.0, 1.0], np.inf])
def test_a_minimal_risk_is_one_number(minimal_risk):
    with pytest.raises(ValueError, match="minimal_risk must be a number, or NaN where it is not known, got"):
        flowsim.EmpiricalRisk(X, X[:, 0], minimal_risk=minimal_risk)


def test_whole_numbers_that_would_come_out_as_others_are_refused():
    y = np.full(12, 3_000_000_000)
    assert flowsim.EmpiricalRisk(X, y).y[0] == y[0]
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ValueError, match=r"y holds .*, beyond int32: write y.astype\(float\)"):
            flowsim.EmpiricalRisk(X, y)
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_probability_however_small_beside_a_class_keeps_the_loss_from_falling_for_ever():
    prediction = jnp.array([3.0, 0.0])
    assert CrossEntropy().decreases_forever(prediction, jnp.array([1.0, 0.0]))
    # Within rounding of a sum of one; the least loss is where p is (1, 1e-7) to rounding, at f = 16.
    beside = jnp.array([1.0, 1e-7])
    assert not CrossEntropy().decreases_forever(prediction, beside)
    losses = [CrossEntropy()(jnp.array([f, 0.0]), beside) for f in (3.0, 16.0, 60.0)]
    assert losses[1] < min(losses[0], losses[2])


CLASSES = np.arange(12) % 3


@pytest.mark.parametrize(
    ("targets", "loss", "message"),
    [
        (
            CLASSES.astype(float),
            CrossEntropy(),
            r"y holds float64, one number for each .* write y\.astype\(int\)",
        ),
        (CLASSES - 1, CrossEntropy(), r"y holds the class -1: .* write y - y\.min\(\)"),
        (np.eye(3)[CLASSES] - 1 / 3, CrossEntropy(), r"y\[0\] sums to .*: CrossEntropy expects probabilities"),
        (2 * np.eye(3)[CLASSES], CrossEntropy(), r"y\[0\] sums to 2, .*write y / y\.sum\(1, keepdims=True\)"),
        (CLASSES > 1, Logistic(), r"y holds False, True: Logistic expects the labels -1 and 1; write 2 \* y - 1"),
        ((CLASSES > 1) * 1.0, Logistic(), r"y holds 0\.0, 1\.0: .* write 2 \* y - 1"),
        (CLASSES, Logistic(), r"y holds 0, 1, 2: .*CrossEntropy\(\) for several classes"),
        (ONE - ONE.mean(), Logistic(), "neither centred nor rescaled"),
    ],
)
def test_targets_of_the_wrong_kind_are_refused_before_anything_runs(targets, loss, message):
    with pytest.raises(ValueError, match=message):
        flowsim.EmpiricalRisk(X, targets, loss)


@pytest.mark.parametrize(
    ("targets", "loss", "outputs", "message"),
    [
        (
            CLASSES,
            SquaredError(),
            3,
            r"numbers of classes write flowsim\.losses\.CrossEntropy\(\), or np",
        ),
        (CLASSES, lambda p, t: jnp.sum((p - t) ** 2), 3, "does not compare: for labels .*CrossEntropy"),
        (CLASSES, lambda p, t: jnp.mean(jnp.abs(p - t)), 3, "write flowsim.losses.CrossEntropy"),
        (CLASSES, lambda p, t: (p - t) ** 2, 3, r"the loss returns shape \(3,\).*; write jnp\.sum"),
        (THREE, lambda p, t: (p - t) ** 2, 3, r"the loss returns shape \(3,\).*; write jnp\.sum"),
        (CLASSES, CrossEntropy(), 1, "give the network one output for each class, two or more"),
        (CLASSES, CrossEntropy(), 2, "y holds the class 2 and the network predicts 2 .*: give it 3 outputs"),
        (CLASSES[:, None], CrossEntropy(), 3, r"write one class for each sample: y\[:, 0\] of one column"),
        (np.eye(3)[CLASSES], CrossEntropy(), 4, "give the network as many outputs as y has columns, which are prob"),
        (1 - CLASSES % 2 * 2, Logistic(), 2, "give the network one output, and y one column"),
    ],
)
def test_targets_that_do_not_go_with_the_predictions_are_refused_in_words(targets, loss, outputs, message):
    problem = flowsim.EmpiricalRisk(X, targets, loss)
    with pytest.raises(ValueError, match=message):
        problem(network(outputs))
    with pytest.raises(ValueError, match=message):
        eqx.filter_jit(problem)(network(outputs))


@pytest.mark.slow
def test_functions_that_take_a_class_for_what_it_is_are_losses():
    def named(prediction, label):
        return -jax.nn.log_softmax(prediction)[label]

    def hinge(prediction, label):
        return jnp.max(jax.nn.relu(1 + prediction - prediction[label]))

    declared = flowsim.EmpiricalRisk(X, CLASSES, CrossEntropy())(network(3))
    np.testing.assert_allclose(flowsim.EmpiricalRisk(X, CLASSES, named)(network(3)), declared, rtol=1e-13)
    assert float(flowsim.EmpiricalRisk(X, CLASSES, hinge)(network(3))) > 0


def test_more_outputs_than_classes_are_no_fault():
    assert float(flowsim.EmpiricalRisk(X, CLASSES, CrossEntropy())(network(4))) > 0


def test_a_class_beyond_the_outputs_that_is_seen_too_late_makes_no_number():
    assert np.isnan(CrossEntropy()(jnp.zeros(3), jnp.array(7)))
    traced = jax.jit(lambda y: flowsim.EmpiricalRisk(X, y, CrossEntropy())(network(3)))
    assert np.isnan(traced(CLASSES + 1))
    assert np.isfinite(traced(CLASSES))


def test_a_threshold_that_is_none_is_refused():
    with pytest.raises(ValueError, match="delta must be positive and finite, got 0"):
        Huber(0.0)
