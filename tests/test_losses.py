"""Losses: their curvature, the shapes they compare, and losses of one's own."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.losses import LOSSES, Loss, PointwiseLoss, SquaredError, differentiated_curvature

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((12, 3))
ONE, THREE = np.sin(X @ np.ones(3)), np.tanh(X)


class Huber(Loss):
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
    kind, function = (flowsim.EmpiricalRisk(X, targets, loss) for loss in (Huber(), huber))
    flows = [flowsim.integrate(model, problem, t1=2.0, ts=[1.0]) for problem in (kind, function)]
    assert flows[0].method == "LowRankExtrapolation"
    assert flows[0].risk[-1] < 0.8 * float(kind(model))
    assert eqx.tree_equal(flows[0].network, flows[1].network)
    assert flows[0].steps == flows[1].steps


def test_a_loss_of_ones_own_is_found_by_its_place_and_the_built_in_one_by_its_name():
    assert LOSSES["squared_error"] is SquaredError
    assert LOSSES.name_of(SquaredError) == "squared_error"
    assert LOSSES["flowsim.losses:PointwiseLoss"] is PointwiseLoss
    assert LOSSES.name_of(Huber) == f"{__name__}:Huber"
    with pytest.raises(ValueError, match=r"expected a subclass of flowsim\.losses\.Loss"):
        LOSSES["flowsim.losses:Loss"]


def test_a_loss_says_what_it_is_asked_for():
    with pytest.raises(TypeError, match=r"__call__.*attained.*curvature.*infimum"):
        Loss()
    assert (SquaredError().infimum, SquaredError().attained) == (0, True)
    assert np.isnan(PointwiseLoss(huber).infimum)


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


@pytest.mark.parametrize("loss", [SquaredError(), Huber(), huber])
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
