"""Weight decay: in the risk, apart from the gradient, and the slow flow that is left of it as it vanishes."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from test_flow import imbalances
from test_solvers import flat

import flowsim
from flowsim import DecoupledDecay, NormFlow, Outcome, RegularizedRisk
from flowsim.curvature import gauss_newton
from flowsim.networks import split

NEVER = flowsim.Stopping(gradient_norm=None)
DRAWS = np.random.default_rng(0)
X = DRAWS.standard_normal((12, 3))
Y = np.sin(X @ DRAWS.standard_normal(3)) + 0.3 * DRAWS.standard_normal(12)


@pytest.fixture(scope="module")
def least_squares():
    return flowsim.LinearRegression(X, Y)


@pytest.fixture(scope="module")
def empirical():
    return flowsim.EmpiricalRisk(X, Y)


@pytest.fixture(scope="module")
def tanh():
    return eqx.nn.MLP(3, 1, 6, 1, activation=jnp.tanh, key=jax.random.key(0))


@pytest.fixture(scope="module")
def few():
    """Samples that a network fits."""
    return flowsim.EmpiricalRisk(X[:6], Y[:6])


@pytest.fixture(scope="module")
def fitted(tanh, few):
    """The network where the flow has fitted its samples to rounding."""
    stopping = flowsim.Stopping(gradient_norm=None, risk=1e-22)
    return flowsim.integrate(tanh, few, rtol=1e-10, stopping=stopping, ts=[]).network


def networks_along(run, count):
    weights, rest = split(run.weights)
    return [eqx.combine(jax.tree.map(lambda leaf, i=i: leaf[i], weights), rest) for i in range(count)]


def test_gradient_and_hessian_are_those_of_the_risk_and_of_half_the_squared_norm():
    plain, decay = flowsim.Risk(lambda w: jnp.sum(jnp.sin(w["a"])) * w["b"] ** 2), 0.37
    problems = [plain, RegularizedRisk(plain, decay), RegularizedRisk(RegularizedRisk(plain, 0.3), 0.07)]

    @jax.jit
    def expansions(vector):
        def expanded(problem):
            risk = lambda w: problem({"a": w[:2], "b": w[2]})  # noqa: E731
            return risk(vector), jax.grad(risk)(vector), jax.hessian(risk)(vector)

        return [expanded(problem) for problem in problems]

    vector = np.array([0.3, -1.1, 0.8])
    (risk, gradient, hessian), *others = expansions(vector)
    for other in others:
        np.testing.assert_allclose(other[0], risk + decay / 2 * vector @ vector, rtol=1e-14)
        np.testing.assert_allclose(other[1], gradient + decay * vector, rtol=1e-13)
        np.testing.assert_allclose(other[2], hessian + decay * np.eye(3), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_the_gauss_newton_matrix_holds_the_decay_as_a_multiple_of_the_identity(tanh, empirical):
    weights, rest = split(tanh)
    operators = [
        gauss_newton(weights, problem, lambda moved: eqx.combine(moved, rest))
        for problem in (empirical, RegularizedRisk(empirical, 0.37))
    ]
    vector, unravel = ravel_pytree(weights)

    def applied(operator, vectors):
        return jax.jit(jax.vmap(lambda vector: ravel_pytree(operator(unravel(vector)))[0]))(vectors)

    identity = np.eye(vector.size)
    plain, decayed = (applied(matrix, identity) for matrix in operators)
    np.testing.assert_allclose(decayed, plain + 0.37 * identity, rtol=1e-12, atol=1e-14)
    inverse = np.linalg.inv(identity + 2.5 * decayed)
    resolvent = applied(operators[1].resolvent(jnp.asarray(2.5)), identity)
    np.testing.assert_allclose(resolvent, inverse, rtol=1e-10, atol=1e-12)
    extended = operators[1].with_rows(jax.tree.map(lambda leaf: leaf[None], weights))
    np.testing.assert_allclose(applied(extended, identity), decayed + np.outer(vector, vector), rtol=1e-11, atol=1e-13)


def test_one_layer_under_the_flow_is_ridge_regression(least_squares):
    network = flowsim.DeepLinear([np.array([[0.7, -0.4, 1.1]])])
    for decay in (0.5, 1e-3):
        run = flowsim.integrate(network, RegularizedRisk(least_squares, decay), ts=[0.7], weights=True)
        matrix = 2 * X.T @ X / len(X) + decay * np.eye(3)
        limit = np.linalg.solve(matrix, 2 * X.T @ Y / len(X))
        values, columns = np.linalg.eigh(matrix)
        start = np.ravel(network.weights[0])
        after = limit + columns @ (np.exp(-0.7 * values) * (columns.T @ (start - limit)))
        np.testing.assert_allclose(np.ravel(run.weights.stacks[0][0]), after, atol=1e-6)
        np.testing.assert_allclose(np.ravel(run.network.weights[0]), limit, atol=1e-5)
        assert run.outcome is Outcome.CONVERGED
        assert run.final_sharpness == pytest.approx(values[-1], rel=1e-4)
        assert np.isnan(run.final_excess_risk)


@pytest.mark.slow
def test_what_the_gradient_flow_conserves_decays_at_twice_the_rate_of_the_weights(least_squares):
    deep = flowsim.DeepLinear.gaussian(widths=[3, 3, 3, 1], scale=0.6, key=jax.random.key(1))
    times, decay = np.array([0.1, 1.0, 3.0]), 1e-3
    problem = RegularizedRisk(least_squares, decay)
    run = flowsim.integrate(deep, problem, rtol=1e-10, ts=times / decay, t1=3 / decay, weights=True)
    for time, network in zip(times, networks_along(run, 3), strict=True):
        np.testing.assert_allclose(imbalances(network), imbalances(deep) * np.exp(-2 * time), atol=1e-8)


@pytest.mark.slow
def test_the_norm_flow_has_the_closed_forms_of_deep_linear_networks(least_squares):
    first, second = np.eye(3) + 0.4 * np.random.default_rng(1).standard_normal((2, 3, 3))
    minimizer = flowsim.DeepLinear([first, second, np.linalg.solve((second @ first).T, least_squares.optimum)[None]])
    times = np.array([0.3, 1.0, 2.5])
    run = flowsim.integrate(minimizer, least_squares, model=NormFlow(rtol=1e-9), ts=times, weights=True)
    assert run.outcome is Outcome.CONVERGED
    for time, network in zip(times, networks_along(run, 3), strict=True):
        np.testing.assert_allclose(imbalances(network), imbalances(minimizer) * np.exp(-2 * time), atol=1e-8)
    assert np.max(np.asarray(run.excess_risk)[:4]) < 1e-18
    # The least norm among the minimizers: all layers of one rank, and equal singular values.
    least = 3 * float(jnp.linalg.norm(least_squares.optimum)) ** (2 / 3)
    assert np.sum(flat(run.network) ** 2) == pytest.approx(least, rel=1e-12)


@pytest.mark.slow
def test_as_the_decay_vanishes_its_flow_becomes_the_norm_flow_at_the_same_cost(fitted, tanh, few):
    times = np.array([0.5, 2.0])
    slow = flowsim.integrate(fitted, few, model=NormFlow(rtol=1e-8), ts=times, weights=True)

    def decayed(decay, t1):
        problem = RegularizedRisk(few, decay)
        return flowsim.integrate(tanh, problem, rtol=1e-8, ts=times / decay, t1=t1 / decay, weights=True)

    def along(run):
        return np.concatenate([flat(network) for network in networks_along(run, 2)])

    runs = [decayed(decay, 2.0) for decay in (1e-4, 1e-5)]
    assert [run.outcome for run in runs] == [Outcome.TIME_LIMIT] * 2
    apart = [np.linalg.norm(along(run) - along(slow)) for run in runs]
    assert np.log10(apart[0] / apart[1]) == pytest.approx(1.0, abs=0.02)
    work = [int(run.gradients) for run in runs]
    assert max(work) < 1.3 * min(work)
    # ‖∇R‖ is below the standard 1e-8 from the minimizers of R on, which are no limit.
    end = decayed(1e-10, np.inf)
    assert end.outcome is Outcome.CONVERGED
    assert np.linalg.norm(flat(end.network)) == pytest.approx(np.linalg.norm(flat(slow.network)), abs=1e-6)


class Ellipse(flowsim.Problem):
    """Half the square of x²/4 + y² − 1, whose minimizers are nearest to zero at (0, ±1), and farthest at (±2, 0)."""

    def __call__(self, network):
        return self._outputs(network)[0] ** 2 / 2

    def _outputs(self, network):
        return jnp.array([network[0] ** 2 / 4 + network[1] ** 2 - 1])

    def curved_outputs(self, network):
        return self._outputs


@pytest.mark.slow
def test_the_norm_flow_converges_at_a_minimum_of_the_norm_alone():
    run = partial(flowsim.integrate, problem=Ellipse(), model=NormFlow(), max_steps=300)
    at_least = run(jnp.array([2 * np.cos(0.01), np.sin(0.01)]))
    assert at_least.outcome is Outcome.CONVERGED
    np.testing.assert_allclose(at_least.network, [0, 1], atol=1e-7)
    assert run(jnp.array([2.0, 0.0])).outcome is not Outcome.CONVERGED


@pytest.mark.slow
def test_the_norm_flow_refuses_what_has_no_manifold_of_minimizers(fitted, tanh, few):
    for network, problem, message in (
        (tanh, few, "begins at a minimizer, and by a Newton step the nearest is .* away"),
        (fitted, RegularizedRisk(few, 1e-3), "RegularizedRisk has weight decay"),
        (jnp.ones(2), flowsim.Risk(lambda w: jnp.sum(w**2)), "goes by the curved_outputs of the problem"),
        (tanh, flowsim.EmpiricalRisk(X, np.sign(Y), flowsim.losses.Logistic()), "the loss has no minimizer"),
    ):
        with pytest.raises(ValueError, match=message):
            flowsim.integrate(network, problem, model=NormFlow())


def test_samples_and_noise_are_those_of_the_problem_with_the_whole_decay_in_each_sample(empirical, least_squares):
    decayed, decay, w = RegularizedRisk(empirical, 0.1), 0.05 * (0.04 + 0.25 + 0.49), np.array([0.2, -0.5, 0.7])

    class Linear(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return jnp.sum(self.weight * x)

    @jax.jit
    def drawn(network):
        noisy = [problem.with_label_noise(jax.random.key(0), 0.3) for problem in (decayed, empirical)]
        return decayed.sample_risks(network), decayed.subsample(jnp.array([1, 4]))(network), noisy

    network = Linear(jnp.asarray(w))
    samples, pair, noisy = drawn(network)
    squares = (X @ w - Y) ** 2
    np.testing.assert_allclose(samples, squares + decay, rtol=1e-14)
    np.testing.assert_allclose(pair, (squares[1] + squares[4]) / 2 + decay, rtol=1e-14)
    np.testing.assert_array_equal(noisy[0].problem.y, noisy[1].y)
    assert decayed.sample_count() == 12
    assert least_squares.sample_count() is RegularizedRisk(least_squares, 0.1).sample_count() is None
    with pytest.raises(ValueError, match="RegularizedRisk has weight decay"):
        flowsim.probes.MeanSquareSharpness(batch=4).check(network, decayed)


@pytest.mark.parametrize("decay", [-1.0, float("nan"), float("inf"), "much"])
def test_a_decay_that_is_no_number_of_zero_or_more_is_refused(decay):
    for make in (partial(RegularizedRisk, flowsim.Risk(jnp.sum)), partial(DecoupledDecay, flowsim.Adam(0.1))):
        with pytest.raises(ValueError, match="weight_decay must be a finite number, zero or more"):
            make(decay)


# -- decoupled from the gradient


def test_a_step_takes_the_decay_at_the_rate_of_its_time_apart_from_the_velocity():
    rate, decay, beta, curvatures = flowsim.WarmUp(0.1, time=1.0), 0.5, 0.8, np.array([1.0, 3.0])
    bowl = flowsim.Risk(lambda weights: jnp.sum(jnp.asarray(curvatures) * weights**2) / 2)
    optimizer = DecoupledDecay(flowsim.HeavyBall(rate, beta), decay)
    w, v, t = np.array([1.0, -2.0]), np.zeros(2), 0.0
    run = flowsim.descend(jnp.asarray(w), bowl, optimizer=optimizer, steps=30, stopping=NEVER)
    for _ in range(30):
        eta = 0.1 * np.sqrt(0.01 + 0.99 * min(t, 1.0))
        v = beta * v + curvatures * w
        w, t = w - eta * v - eta * decay * w, t + eta / (1 - beta)
    np.testing.assert_allclose(run.network, w, rtol=1e-12)
    assert float(run.time) == pytest.approx(t, rel=1e-13)
    assert run.dynamics == "heavy_ball_with_decoupled_decay"
    assert run.method == "heavy ball with decoupled decay"


@pytest.mark.slow
def test_the_flow_of_a_centre_follows_decoupled_decay_closer_than_the_gradient_flow(tanh, empirical):
    decayed = RegularizedRisk(empirical, 0.2)
    centre = flowsim.CentreFlow(DecoupledDecay(flowsim.GradientDescent(0.05), 0.2))
    model = flowsim.integrate(tanh, empirical, model=centre, t1=1.5, ts=[1.5], stopping=NEVER)
    descent = flowsim.descend(tanh, decayed, learning_rate=0.05, steps=30, stopping=NEVER, record_steps=[30])
    flow = flowsim.integrate(tanh, decayed, t1=1.5, ts=[1.5], stopping=NEVER)
    apart = [np.linalg.norm(flat(run.network) - flat(descent.network)) for run in (model, flow)]
    assert apart[0] < apart[1] / 20


def test_another_seed_of_a_descent_with_decay_is_that_of_its_optimizer():
    descent = DecoupledDecay(flowsim.SGD(0.05, batch=4, seed=1), 0.2).with_seed(2)
    assert int(descent.minibatches().seed) == 2


@pytest.mark.slow
def test_no_run_has_converged_while_its_weights_decay(tanh, few):
    descent = DecoupledDecay(flowsim.GradientDescent(0.1), 1e-10)
    run = flowsim.descend(tanh, few, optimizer=descent, steps=30_000, record_steps=[30_000])
    assert run.final_gradient_norm < 1e-8
    assert run.outcome is Outcome.STEP_LIMIT
    bowl = flowsim.Risk(lambda weight: (weight - 1) ** 2)
    rest = flowsim.descend(jnp.asarray(3.0), bowl, optimizer=DecoupledDecay(flowsim.HeavyBall(0.1), 0.5), steps=5000)
    assert rest.outcome is Outcome.FIXED_POINT
    assert float(rest.network) == pytest.approx(20 / 20.5, rel=1e-6)  # λw = −R'/(1 − β)


def test_what_is_no_descent_with_a_learning_rate_is_refused():
    with pytest.raises(TypeError, match=r"the optimizer must be a flowsim.Descent with a learning rate"):
        DecoupledDecay(flowsim.Adam, 0.1)
