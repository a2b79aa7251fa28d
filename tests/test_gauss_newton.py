"""The Gauss–Newton matrix against dense algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import GaussNewton, dense_hessian, gauss_newton
from flowsim.dynamics.field import gradient_field

KEY = jax.random.key(1)


def dense(operator, weights):
    """Return GᵀG as a matrix over the flattened weights."""
    flat, unravel = ravel_pytree(weights)
    return jax.vmap(lambda v: ravel_pytree(operator.outer(operator.inner(unravel(v))))[0])(jnp.eye(flat.size))


def cases():
    rng = np.random.default_rng(0)
    X, targets = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    projection = rng.standard_normal(3)
    residual = flowsim.DeepLinear.residual(width=3, depth=4, scale=0.5, projection=projection, key=KEY)
    mlp = flowsim.DeepLinear.gaussian(widths=[3, 4, 4, 4, 1], scale=0.7, key=KEY)
    several = flowsim.DeepLinear.gaussian(widths=[3, 4, 4, 2], scale=0.7, key=KEY)
    tanh = flowsim.Perceptron.gaussian(widths=[3, 4, 4, 2], scale=0.7, activation="tanh", key=KEY)
    yield "residual", residual, flowsim.LinearRegression(X, targets[:, 0])
    yield "mlp", mlp, flowsim.LinearRegression(X, targets[:, 0])
    yield "several outputs", several, flowsim.LinearRegression(X, targets)
    yield "fewer samples than features", mlp, flowsim.LinearRegression(X[:2], targets[:2, 0])
    yield "nonlinear", tanh, flowsim.EmpiricalRisk(X, targets)


CASES = {name: (network, problem) for name, network, problem in cases()}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_hessian_of_the_linearized_outputs(name):
    network, problem = CASES[name]
    field, weights = gradient_field(network, problem)
    outputs = problem.curved_outputs(network)
    jacobian = jax.jacrev(lambda flat: outputs(field.network(unravel(flat))))
    flat, unravel = ravel_pytree(weights)
    expected = jacobian(flat).T @ jacobian(flat)
    operator = gauss_newton(problem, field.network, weights)
    np.testing.assert_allclose(dense(operator, weights), expected, atol=1e-12)
    np.testing.assert_allclose(operator.gram, jacobian(flat) @ jacobian(flat).T, atol=1e-12)
    assert operator.gram.shape[0] == problem.rank(network)


@pytest.mark.parametrize("name", CASES)
def test_without_forming_the_rows_it_is_the_same(name):
    network, problem = CASES[name]
    field, weights = gradient_field(network, problem)
    stored = gauss_newton(problem, field.network, weights)
    outputs = problem.curved_outputs(network)
    known = problem.output_gram(network) if name != "nonlinear" else None
    free = GaussNewton.matrix_free(lambda w: outputs(field.network(w)), weights, known)
    np.testing.assert_allclose(free.gram, stored.gram, atol=1e-12)
    np.testing.assert_allclose(dense(free, weights), dense(stored, weights), atol=1e-12)


@pytest.mark.parametrize("h", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("name", CASES)
def test_the_resolvent_inverts(name, h):
    network, problem = CASES[name]
    field, weights = gradient_field(network, problem)
    operator = gauss_newton(problem, field.network, weights)
    matrix = dense(operator, weights)
    flat, unravel = ravel_pytree(weights)
    found = ravel_pytree(operator.resolvent(jnp.array(h))(weights))[0]
    expected = np.linalg.solve(np.eye(flat.size) + h * np.asarray(matrix), flat)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert unravel(found).depth == network.depth


def test_at_a_minimizer_without_noise_it_is_the_hessian():
    network = CASES["mlp"][0]
    X = np.random.default_rng(2).standard_normal((9, 3))
    problem = flowsim.LinearRegression(X, X @ np.asarray(network.regressor()))
    field, weights = gradient_field(network, problem)
    found = dense(gauss_newton(problem, field.network, weights), weights)
    np.testing.assert_allclose(found, dense_hessian(field.objective, weights), atol=1e-10)


def test_a_loss_of_its_own_weighs_the_outputs_by_its_curvature():
    X, labels = np.random.default_rng(3).standard_normal((6, 3)), np.arange(6) % 3

    def cross_entropy(logits, label):
        return jax.nn.logsumexp(logits) - logits[label]

    problem = flowsim.EmpiricalRisk(X, labels, cross_entropy)
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 3], scale=0.7, activation="tanh", key=KEY)
    field, weights = gradient_field(network, problem)
    flat, unravel = ravel_pytree(weights)
    expected = 0
    for x, label in zip(X, labels, strict=True):
        jacobian = jax.jacrev(lambda v, x=x: field.network(unravel(v))(x))(flat)
        curvature = jax.hessian(cross_entropy)(network(x), label)
        expected = expected + jacobian.T @ curvature @ jacobian / len(X)
    found = dense(gauss_newton(problem, field.network, weights), weights)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert flowsim.integrate(network, problem, t1=5.0).method == "LowRankExtrapolation"
    assert eqx.filter_jit(problem.rank)(network) == 18
