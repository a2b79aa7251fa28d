"""The Gauss–Newton matrix against dense algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import GaussNewton, ResidualCurvature, dense_hessian, gauss_newton
from flowsim.solvers.field import gradient_field

KEY = jax.random.key(1)


# Compiled as a whole: operation by operation, compilation takes ten times as long.


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


@eqx.filter_jit
def of_stored_rows(network, problem):
    """Return GᵀG and GGᵀ as they are found."""
    field, weights = gradient_field(network, problem)
    operator = gauss_newton(weights, problem, field.network)
    return dense(operator, weights), operator.gram


@eqx.filter_jit
def jacobian_of_outputs(network, problem):
    field, weights = gradient_field(network, problem)
    outputs = problem.curved_outputs(network)
    flat, unravel = ravel_pytree(weights)
    return jax.jacrev(lambda flat: outputs(field.network(unravel(flat))))(flat)


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_hessian_of_the_linearized_outputs(name):
    network, problem = CASES[name]
    jacobian = np.asarray(jacobian_of_outputs(network, problem))
    matrix, gram = of_stored_rows(network, problem)
    np.testing.assert_allclose(matrix, jacobian.T @ jacobian, atol=1e-12)
    np.testing.assert_allclose(gram, jacobian @ jacobian.T, atol=1e-12)
    assert gram.shape[0] == problem.rank(network)


@eqx.filter_jit
def without_rows(network, problem, known):
    """Return GᵀG and GGᵀ as they are found without forming the rows of G."""
    field, weights = gradient_field(network, problem)
    outputs = problem.curved_outputs(network)
    gram = problem.output_gram(network) if known else None
    free = GaussNewton.matrix_free(lambda w: outputs(field.network(w)), weights, gram)
    return dense(free, weights), free.gram


@pytest.mark.parametrize("name", CASES)
def test_without_forming_the_rows_it_is_the_same(name):
    network, problem = CASES[name]
    stored, stored_gram = of_stored_rows(network, problem)
    free, free_gram = without_rows(network, problem, name != "nonlinear")
    np.testing.assert_allclose(free_gram, stored_gram, atol=1e-12)
    np.testing.assert_allclose(free, stored, atol=1e-12)


@eqx.filter_jit
def resolved(network, problem, h):
    field, weights = gradient_field(network, problem)
    operator = gauss_newton(weights, problem, field.network)
    return operator.resolvent(h)(weights), weights


@pytest.mark.parametrize("h", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("name", CASES)
def test_the_resolvent_inverts(name, h):
    network, problem = CASES[name]
    matrix, _ = of_stored_rows(network, problem)
    found, weights = resolved(network, problem, jnp.array(h))
    flat = ravel_pytree(weights)[0]
    expected = np.linalg.solve(np.eye(flat.size) + h * np.asarray(matrix), flat)
    np.testing.assert_allclose(ravel_pytree(found)[0], expected, atol=1e-7)
    assert found.depth == network.depth


def test_at_a_minimizer_without_noise_it_is_the_hessian():
    network = CASES["mlp"][0]
    X = np.random.default_rng(2).standard_normal((9, 3))
    problem = flowsim.LinearRegression(X, X @ np.asarray(network.regressor()))
    field, weights = gradient_field(network, problem)
    hessian = eqx.filter_jit(dense_hessian)(field.objective, weights)
    np.testing.assert_allclose(of_stored_rows(network, problem)[0], hessian, atol=1e-10)


@pytest.mark.slow
def test_a_loss_of_its_own_weighs_the_outputs_by_its_curvature():
    X, labels = np.random.default_rng(3).standard_normal((6, 3)), np.arange(6) % 3

    def cross_entropy(logits, label):
        return jax.nn.logsumexp(logits) - logits[label]

    problem = flowsim.EmpiricalRisk(X, labels, cross_entropy)
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 3], scale=0.7, activation="tanh", key=KEY)
    field, weights = gradient_field(network, problem)
    flat, unravel = ravel_pytree(weights)

    @jax.jit
    def of_sample(x, label):
        jacobian = jax.jacrev(lambda v: field.network(unravel(v))(x))(flat)
        curvature = jax.hessian(cross_entropy)(network(x), label)
        return jacobian.T @ curvature @ jacobian

    expected = sum(of_sample(x, label) for x, label in zip(X, labels, strict=True)) / len(X)
    np.testing.assert_allclose(of_stored_rows(network, problem)[0], expected, atol=1e-10)
    assert flowsim.integrate(network, problem, t1=5.0).method == "StiffnessSwitching"
    assert eqx.filter_jit(problem.rank)(network) == 18


@eqx.filter_jit
def with_rows(network, problem, rows, v):
    field, weights = gradient_field(network, problem)
    operator = gauss_newton(weights, problem, field.network)
    longer = operator.with_rows(rows)
    applied = longer.resolvent(jnp.asarray(0.7))(ravel_pytree(weights)[1](v))
    return dense(operator, weights), dense(longer, weights), longer.gram, ravel_pytree(applied)[0]


@pytest.mark.parametrize("name", ["mlp", "nonlinear"])
def test_rows_can_be_added(name):
    network, problem = CASES[name]
    flat, unravel = ravel_pytree(gradient_field(network, problem)[1])
    rng = np.random.default_rng(5)
    R, v = rng.standard_normal((3, flat.size)), rng.standard_normal(flat.size)
    before, after, gram, applied = with_rows(network, problem, jax.vmap(unravel)(jnp.asarray(R)), jnp.asarray(v))
    np.testing.assert_allclose(after, before + R.T @ R, atol=1e-10)
    eigenvalues = np.linalg.eigvalsh(after)[::-1]
    np.testing.assert_allclose(np.linalg.eigvalsh(gram)[::-1], eigenvalues[: gram.shape[0]], atol=1e-10)
    np.testing.assert_allclose(applied, np.linalg.solve(np.eye(flat.size) + 0.7 * after, v), atol=1e-10)


@eqx.filter_jit
def looked(network, problem, known, count):
    """Return what is known of C = H − GᵀG after `count` more looks, and C itself."""
    field, weights = gradient_field(network, problem)
    _, unravel = ravel_pytree(weights)
    C = dense_hessian(field.objective, weights) - dense(gauss_newton(weights, problem, field.network), weights)
    known = jax.lax.fori_loop(0, count, lambda _, now: now.update(lambda v: unravel(C @ ravel_pytree(v)[0])), known)
    return known, C


def as_matrix(rows):
    return np.asarray(jax.vmap(lambda row: ravel_pytree(row)[0])(rows))


def projector(rows):
    """Return the orthogonal projector onto the span of some rows."""
    basis = np.linalg.qr(rows.T)[0]
    return basis @ basis.T


@pytest.mark.slow
def test_what_the_matrix_leaves_out_is_found_where_it_curves_most():
    network, problem = CASES["nonlinear"]
    weights = gradient_field(network, problem)[1]
    known, C = looked(network, problem, ResidualCurvature.unknown(weights, 6), 400)
    values, vectors = np.linalg.eigh(C)
    top = np.argsort(-np.abs(values))[:6]
    assert min(values[top]) < -0.01 < 0.01 < max(values[top])
    upward = np.maximum(values[top], 0)
    expected = (vectors[:, top] * upward) @ vectors[:, top].T
    rows, directions = as_matrix(known.rows), as_matrix(known.directions)
    np.testing.assert_allclose(rows.T @ rows, expected, atol=1e-6 * np.abs(values).max())
    np.testing.assert_allclose(projector(directions), vectors[:, top] @ vectors[:, top].T, atol=1e-6)
    assert float(known.size) == pytest.approx(np.abs(values).max(), rel=1e-6)


@pytest.mark.slow
def test_where_nothing_is_left_out_the_directions_stay_what_they_are():
    network, problem = CASES["nonlinear"]
    weights = gradient_field(network, problem)[1]
    first = ResidualCurvature.unknown(weights, 4)
    after = eqx.filter_jit(lambda known: known.update(lambda v: jax.tree.map(jnp.zeros_like, v)))(first)
    assert float(after.size) == 0
    assert not as_matrix(after.rows).any()
    kept, given = projector(as_matrix(after.directions)), projector(as_matrix(first.directions))
    np.testing.assert_allclose(kept, given, atol=1e-9)
    few = {"weight": jnp.array([1.0, 2.0])}
    assert as_matrix(ResidualCurvature.unknown(few, 8).directions).shape == (2, 2)


@pytest.mark.slow
def test_units_that_are_equal_are_so_in_all_directions():
    rows = np.tile([[-0.6, -0.3]], (4, 1))
    network = flowsim.Perceptron([rows, np.full((1, 4), 0.3)], activation="tanh")
    X = np.random.default_rng(4).standard_normal((9, 2))
    problem = flowsim.EmpiricalRisk(X, X[:, 0] * X[:, 1])
    field, weights = gradient_field(network, problem)
    product = jax.linearize(jax.grad(field.objective), weights)[1]
    before = ResidualCurvature.unknown(weights, 8)
    after = eqx.filter_jit(lambda: before.update(product))()
    for known in (before, after):
        first, last = known.directions.stacks
        np.testing.assert_array_equal(first, first[:, :, :1] + jnp.zeros_like(first))
        np.testing.assert_array_equal(last, last[..., :1] + jnp.zeros_like(last))
