"""The Gauss–Newton matrix, and the curvature that it leaves out, against dense algebra."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import GaussNewton, ResidualCurvature, dense_hessian, gauss_newton
from flowsim.solvers.field import gradient_field

STEPS = (1e-3, 1.0, 1e6)


def case(name):
    """Return a network and a risk, of which some know their Jacobian or GGᵀ, and others do not."""
    rng = np.random.default_rng(0)
    X, targets = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))

    def weights(*widths):
        return [0.7 * rng.standard_normal((out, into)) for into, out in itertools.pairwise(widths)]

    if name == "minimizer of several outputs":
        network = flowsim.DeepLinear(weights(3, 3, 2))
        return network, flowsim.LinearRegression(X, X @ (network.weights[1] @ network.weights[0]).T)
    if name == "residual of fewer samples than features":
        network = flowsim.DeepLinear([np.eye(3) + w for w in weights(3, 3, 3)], rng.standard_normal(3))
        return network, flowsim.LinearRegression(X[:2], targets[:2, 0])
    return flowsim.Perceptron(weights(3, 4, 2), activation="tanh"), flowsim.EmpiricalRisk(X, targets)


def dense(operator, weights):
    """Return GᵀG as a matrix over the flattened weights."""
    flat, unravel = ravel_pytree(weights)
    return jax.vmap(lambda v: ravel_pytree(operator.outer(operator.inner(unravel(v))))[0])(jnp.eye(flat.size))


# Compiled as one program: operation by operation, compilation takes ten times as long.
@eqx.filter_jit
def computed(network, problem, vector, rows):
    """Return J, GᵀG with GGᵀ, resolvents, and GGᵀ in closed form; GᵀG matrix-free, too, and with `rows` added."""
    field, weights = gradient_field(network, problem)
    flat, unravel = ravel_pytree(weights)
    outputs, operator = problem.curved_outputs(network), gauss_newton(weights, problem, field.network)
    jacobian = jax.jacrev(lambda flat: outputs(field.network(unravel(flat))))(flat)
    stored, closed_gram = (dense(operator, weights), operator.gram), problem.output_gram(network)
    resolved = jax.lax.map(lambda h: ravel_pytree(operator.resolvent(h)(unravel(vector)))[0], jnp.array(STEPS))
    if rows is None:
        return jacobian, stored, resolved, closed_gram, None
    free = GaussNewton.matrix_free(lambda w: outputs(field.network(w)), weights, closed_gram)
    longer = operator.with_rows(jax.vmap(unravel)(rows))
    solved = ravel_pytree(longer.resolvent(jnp.asarray(0.7))(unravel(vector)))[0]
    others = (dense(free, weights), free.gram), dense(longer, weights), longer.gram, solved
    return jacobian, stored, resolved, closed_gram, others


@pytest.mark.parametrize(
    "name", ["nonlinear", "minimizer of several outputs", "residual of fewer samples than features"]
)
def test_it_is_the_hessian_of_the_linearized_outputs_and_its_resolvent_inverts(name):
    network, problem = case(name)
    field, weights = gradient_field(network, problem)
    size, rng = ravel_pytree(weights)[0].size, np.random.default_rng(5)
    vector, rows = rng.standard_normal(size), rng.standard_normal((3, size))
    results = computed(network, problem, vector, rows if name == "nonlinear" else None)
    jacobian, stored, resolved, closed_gram, others = jax.tree.map(np.asarray, results)
    for matrix, gram in (stored, stored if others is None else others[0]):
        np.testing.assert_allclose(matrix, jacobian.T @ jacobian, atol=1e-12)
        np.testing.assert_allclose(gram, jacobian @ jacobian.T, atol=1e-12)
        assert gram.shape[0] == problem.rank(network)
    if closed_gram is not None:
        np.testing.assert_allclose(closed_gram, jacobian @ jacobian.T, atol=1e-12)
    for h, inverted in zip(STEPS, resolved, strict=True):
        np.testing.assert_allclose(inverted, np.linalg.solve(np.eye(size) + h * stored[0], vector), atol=1e-7)
    if name == "minimizer of several outputs":  # without noise: nothing is left out
        hessian = jax.jit(lambda weights: dense_hessian(field.objective, weights))(weights)
        np.testing.assert_allclose(stored[0], hessian, atol=1e-10)
    if others is not None:
        _, after, gram, solved = others
        np.testing.assert_allclose(after, stored[0] + rows.T @ rows, atol=1e-10)
        count = min(len(gram), len(after))
        np.testing.assert_allclose(*(np.linalg.eigvalsh(one)[::-1][:count] for one in (gram, after)), atol=1e-10)
        np.testing.assert_allclose(solved, np.linalg.solve(np.eye(size) + 0.7 * after, vector), atol=1e-10)


@pytest.mark.slow
def test_a_loss_of_its_own_weighs_the_outputs_by_its_curvature():
    X, labels = np.random.default_rng(3).standard_normal((6, 3)), np.arange(6) % 3

    def cross_entropy(logits, label):
        return jax.nn.logsumexp(logits) - logits[label]

    problem = flowsim.EmpiricalRisk(X, labels, cross_entropy)
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 3], scale=0.7, activation="tanh", key=jax.random.key(1))
    field, weights = gradient_field(network, problem)
    flat, unravel = ravel_pytree(weights)

    @jax.jit
    def of_sample(x, label):
        jacobian = jax.jacrev(lambda v: field.network(unravel(v))(x))(flat)
        curvature = jax.hessian(cross_entropy)(network(x), label)
        return jacobian.T @ curvature @ jacobian

    expected = sum(of_sample(x, label) for x, label in zip(X, labels, strict=True)) / len(X)
    matrix = jax.jit(lambda: dense(gauss_newton(weights, problem, field.network), weights))()
    np.testing.assert_allclose(matrix, expected, atol=1e-10)
    assert eqx.filter_jit(problem.rank)(network) == 18


@jax.jit
def looked(known, matrix, count):
    """Return what is known of a matrix C after `count` more looks."""
    _, unravel = ravel_pytree(jax.tree.map(lambda rows: rows[0], known.directions))
    return jax.lax.fori_loop(0, count, lambda _, now: now.update(lambda v: unravel(matrix @ ravel_pytree(v)[0])), known)


def as_matrix(rows):
    return np.hstack([np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(rows)])


def projector(rows):
    """Return the orthogonal projector onto the span of some rows."""
    basis = np.linalg.qr(rows.T)[0]
    return basis @ basis.T


def test_what_the_matrix_leaves_out_is_found_where_it_curves_most():
    rng = np.random.default_rng(0)
    start = {"first": rng.uniform(-1, 1, (2, 3)), "last": rng.uniform(-1, 1, 4)}
    columns = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    values = np.array([3.0, -2.5, 2.0, 0.4, -0.3, 0.2, 0.1, 0, 0, 0])
    first = jax.jit(lambda: ResidualCurvature.unknown(start, 3))()
    known = looked(first, columns * values @ columns.T, 200)
    rows, directions = as_matrix(known.rows), as_matrix(known.directions)
    upward = columns[:, :3] * np.maximum(values[:3], 0) @ columns[:, :3].T
    np.testing.assert_allclose(rows.T @ rows, upward, atol=1e-9)
    np.testing.assert_allclose(projector(directions), columns[:, :3] @ columns[:, :3].T, atol=1e-9)
    assert float(known.size) == pytest.approx(3, rel=1e-9)
    nothing = looked(first, np.zeros((10, 10)), 1)  # the directions stay what they are
    assert float(nothing.size) == 0
    assert not as_matrix(nothing.rows).any()
    np.testing.assert_allclose(*(projector(as_matrix(one.directions)) for one in (nothing, first)), atol=1e-9)
    few = jax.jit(lambda: ResidualCurvature.unknown({"weight": np.array([1.0, 2.0])}, 8))()
    assert as_matrix(few.directions).shape == (2, 2)


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


def test_a_stiff_direction_is_damped_at_any_length_of_the_step():
    """Rounding of the inverse alone would make the stiff part several times as large here."""
    rng = np.random.default_rng(0)
    G = np.linalg.qr(rng.standard_normal((20, 2)))[0] * [1.0, 1e-4]
    h, vector = 1e9, np.array([1.0, 1e-8])
    operator = GaussNewton.of_rows(jnp.asarray(G))
    expected = vector / (1 + h * np.array([1.0, 1e-8]))
    np.testing.assert_allclose(h * operator.resolvent(jnp.asarray(h))(jnp.asarray(vector)), h * expected, rtol=1e-3)
