"""What a problem must have, and what it may have."""

import re
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import curvature
from flowsim.batch import descend_batch
from flowsim.curvature import gauss_newton
from flowsim.networks import LinearNetwork
from flowsim.solvers.field import gradient_field


class Point(eqx.Module):
    weight: jax.Array


class Quartic(flowsim.Problem):
    """(w − target)⁴/4 for one weight w, and nothing else."""

    target: jax.Array

    def __call__(self, network):
        return (network.weight - self.target) ** 4 / 4


class KnownQuartic(Quartic):
    """The same risk with all that is known about it."""

    @property
    def infimum(self):
        return 0.0

    def curved_outputs(self, network):
        slope = jax.lax.stop_gradient(3**0.5 * (network.weight - self.target))
        return lambda other: (slope * other.weight)[None]


START, TARGET = Point(np.array(3.0)), np.array(1.0)


@pytest.mark.slow
def test_a_risk_alone_is_integrated_and_more_knowledge_gives_the_same_flow():
    ts = np.array([1.0, 4.0])
    expected = 1 + (0.25 + 2 * ts) ** -0.5  # (w − 1)⁻² grows from ¼ at rate 2
    for kind in (Quartic, KnownQuartic):
        flow = flowsim.integrate(START, kind(TARGET), ts=ts, t1=4.0, rtol=1e-9)
        assert flow.method == "StiffnessSwitching"
        # At the times of the records the risk is known; relative errors of w − 1 count four times.
        np.testing.assert_allclose(flow.risk, (expected - 1) ** 4 / 4, rtol=1e-6)
        np.testing.assert_allclose(flow.network.weight, expected[-1], rtol=1e-7)
        assert np.isnan(flow.squared_distance).all()
        assert np.isnan(flow.excess_risk).all() == (kind is Quartic)


def test_a_risk_alone_is_descended():
    weight = 3.0
    for _ in range(20):
        weight -= 0.05 * (weight - 1) ** 3
    descent = flowsim.descend(START, Quartic(TARGET), learning_rate=0.05, steps=20)
    np.testing.assert_allclose(descent.network.weight, weight, rtol=1e-13)
    assert flowsim.sharpness(START, Quartic(TARGET)) == pytest.approx(12.0)


@pytest.mark.slow
def test_a_point_of_no_slope_and_no_curvature_is_a_minimum_where_the_risk_is_not_lower_beside_it():
    at_rest = Point(TARGET)
    assert flowsim.integrate(at_rest, Quartic(TARGET)).outcome is flowsim.Outcome.CONVERGED
    cubic = flowsim.Risk(lambda point: (point.weight - 1) ** 3)
    assert flowsim.integrate(at_rest, cubic).outcome is flowsim.Outcome.STATIONARY
    assert flowsim.integrate(at_rest, KnownQuartic(TARGET)).outcome is flowsim.Outcome.CONVERGED


def test_every_problem_tells_its_risk_by_name():
    network = flowsim.DeepLinear([np.linspace(-1, 1, 15).reshape(3, 5), np.array([[0.3, -0.5, 1.0]])])
    X, y = np.random.default_rng(0).standard_normal((7, 5)), np.arange(7.0)
    mean = np.mean((y - X @ (network.weights[1] @ network.weights[0])[0]) ** 2)
    square = sum(np.sum(np.asarray(weight) ** 2) for weight in network.weights)
    of_samples = flowsim.EmpiricalRisk(X, y)
    regression, decayed = flowsim.LinearRegression(X, y), flowsim.RegularizedRisk(of_samples, 0.3)
    cubes = flowsim.Risk(lambda w: jnp.sum(w**3))
    risks = eqx.filter_jit(
        lambda network: (
            [problem.risk(network) for problem in (regression, of_samples, decayed)],
            [cubes.risk(np.array([2.0, 1.0])), Quartic(TARGET).risk(START)],
        )
    )(network)
    np.testing.assert_allclose(risks[0], [mean, mean, mean + 0.15 * square], rtol=1e-12)
    np.testing.assert_allclose(risks[1], [9, 4], rtol=1e-12)


class Duck:
    """A risk that is no `Problem`."""

    def __call__(self, network):
        return network.weight**2

    objective = __call__


@pytest.mark.parametrize(
    "run",
    [
        lambda problem: flowsim.integrate(START, problem),
        lambda problem: flowsim.descend(START, problem, learning_rate=0.1, steps=3),
        lambda problem: descend_batch(Point(np.ones(2)), problem, learning_rates=[0.1, 0.1], steps=3),
    ],
)
def test_what_is_no_problem_is_refused_with_what_to_subclass(run):
    for problem, given in ((Duck(), "a Duck"), (Quartic, "the class Quartic itself"), (Duck.__call__, "a function")):
        with pytest.raises(TypeError, match=rf"the problem is {given}: expected .* subclasses flowsim.Problem"):
            run(problem)


@pytest.mark.parametrize(
    "asked",
    [
        flowsim.integrate,
        lambda *given: flowsim.descend(*given, learning_rate=0.1, steps=1),
        flowsim.sharpness,
        curvature.top_eigenpair,
        curvature.spectral_bounds,
        curvature.spectrum,
        curvature.layer_sharpness,
        curvature.sharpness_gradient,
        curvature.sharpness_along,
        lambda *given: curvature.contractions(*given, START),
        lambda *given: curvature.preconditioned_eigenpair(*given, START),
        flowsim.theory.minimal_sharpness_bounds_of,
    ],
)
def test_a_problem_in_the_place_of_the_network_is_named(asked):
    with pytest.raises(TypeError, match="the network is a Quartic, which is a problem: write the network first, then"):
        asked(Quartic(TARGET), START)


def test_a_problem_without_outputs_is_refused_by_the_solver_that_needs_them():
    with pytest.raises(TypeError, match="curved_outputs of the problem; Quartic has none: use StabilitySwitching"):
        flowsim.integrate(START, Quartic(TARGET), solver=flowsim.solvers.LowRankExtrapolation())


class Product(LinearNetwork):
    """A linear network with no ability but its regressor: the entrywise product of two vectors."""

    first: jax.Array
    second: jax.Array

    def regressor(self):
        return self.first * self.second

    def __call__(self, x):
        return self.regressor() @ x


@pytest.mark.slow
def test_a_linear_network_needs_its_regressor_only(problem):
    network = Product(jnp.linspace(0.5, 1.5, 5), jnp.linspace(1.0, -1.0, 5))
    field, weights = gradient_field(network, problem)
    assert problem.output_jacobian(field.network, weights) is None
    assert problem.output_gram(network) is None
    outputs = 2**0.5 * np.asarray(problem.root)
    expected = np.hstack([outputs * np.asarray(network.second), outputs * np.asarray(network.first)])
    np.testing.assert_allclose(gauss_newton(weights, problem, field.network).gram, expected @ expected.T, atol=1e-13)
    flow = flowsim.integrate(network, problem)
    assert (flow.converged, flow.method) == (True, "StiffnessSwitching")
    assert float(problem.squared_distance(flow.network)) < 1e-12


def applied(params, x):
    """Return a prediction from parameters and a sample, as `apply` of a model of Flax does."""
    return jnp.tanh(x @ params["first"]["kernel"]) @ params["last"]["kernel"]


PARAMS = {"first": {"kernel": np.ones((3, 2)) / 3}, "last": {"kernel": np.array([1.0, -0.5])}}
MODEL = jax.tree_util.Partial(applied, PARAMS)
SEPARATING = jax.tree_util.Partial(lambda weight, x: weight * x[0], np.array(5.0))
X = np.random.default_rng(0).standard_normal((6, 3))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def of_samples(loss, **options):
    return flowsim.EmpiricalRisk(X, Y, loss, **options)


def of_a_function(loss, **options):
    def risk(network):
        model = network if callable(network) else partial(applied, network)
        return jnp.mean(jax.vmap(lambda x, y: loss(model(x), y))(jnp.asarray(X), jnp.asarray(Y)))

    return flowsim.Risk(risk, **options)


def takes(call):
    try:
        return jax.eval_shape(call).shape == ()
    except TypeError:  # of an argument, or a network, that is not taken
        return False


SQUARED, LOGISTIC = flowsim.losses.SquaredError(), flowsim.losses.Logistic()
# How is found out what a row of the table in docs/how_to/loss.md says.
ABILITIES = {
    "low-rank curvature": lambda make: make(SQUARED).rank(MODEL) is not None,
    "minibatches": lambda make: make(SQUARED).sample_count() is not None,
    "probes of classes": lambda make: make(LOGISTIC).has_margins(),
    "noise on the targets": lambda make: bool(
        jax.eval_shape(lambda: make(SQUARED).with_label_noise(jax.random.key(0), 0.1))
    ),
    "*no minimizer* known from the loss": lambda make: bool(make(LOGISTIC).decreases_forever(SEPARATING)),
    "samples in chunks where memory is short": lambda make: make(SQUARED).pass_bytes(MODEL) is not None,
    "weights of any pytree": lambda make: takes(lambda: make(SQUARED).risk(PARAMS)),
    "a gradient of your own": lambda make: takes(lambda: make(SQUARED, gradient=lambda net: net).risk(MODEL)),
    "weight decay": lambda make: takes(lambda: flowsim.RegularizedRisk(make(SQUARED), 0.1).risk(MODEL)),
}


def test_the_table_of_risks_in_the_documentation_is_what_they_can():
    page = (Path(__file__).parents[1] / "docs" / "how_to" / "loss.md").read_text(encoding="utf-8")
    table = page.split("| | `EmpiricalRisk` | `Risk` |\n|---|---|---|\n")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    promised = {re.split("[:,]", what)[0]: [answer == "yes" for answer in answers] for what, *answers in rows}
    assert {answer for _, *answers in rows for answer in answers} == {"yes", "–"}
    assert promised == {what: [can(of_samples), can(of_a_function)] for what, can in ABILITIES.items()}


def test_a_function_with_its_parameters_is_a_model_of_samples():
    weights = np.array([0.5, -1.0, 2.0])
    run = flowsim.descend(jax.tree_util.Partial(jnp.dot, weights), of_samples(SQUARED), learning_rate=0.1, steps=3)
    for _ in range(3):
        weights = weights - 0.1 * 2 / 6 * X.T @ (X @ weights - Y)
    np.testing.assert_allclose(run.network.args[0], weights, rtol=1e-12)


@pytest.mark.parametrize("rows", [6, 4096])
def test_a_problem_keeps_its_samples_where_the_arrays_that_it_was_made_of_change(rows):
    inputs, targets = np.ones((rows, 3)), np.ones(rows)
    problem = flowsim.EmpiricalRisk(inputs, targets)
    inputs *= 10
    targets -= 1
    assert float(problem.X.max()) == 1
    assert float(problem.y.min()) == 1
