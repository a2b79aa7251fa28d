import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import LinearOperator, eigsh

import flowsim
from flowsim.curvature import hessian_operator, top_eigenpair
from flowsim.curvature.eigenpair import eigenpair_lanczos
from flowsim.networks import split


def plain_hessian(network, problem):
    """The Hessian by forward over forward differentiation of the risk on flat weights."""
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)
    return np.asarray(jax.hessian(lambda vector: problem(eqx.combine(unravel(vector), rest)))(flat))


def as_operator(matrix):
    return lambda vector: jnp.asarray(matrix) @ vector


@pytest.mark.parametrize("depth", [1, 2, 7, 40])
def test_the_one_dimensional_network_of_ones_has_sharpness_2L(depth):
    network = flowsim.DeepLinear([np.ones((1, 1))] * depth)
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    np.testing.assert_allclose(flowsim.sharpness(network, problem), 2 * depth, rtol=1e-14)


@pytest.mark.parametrize("dense", [True, False])
def test_sharpness_equals_numpy_at_init_on_the_path_and_at_the_end(dense, mlp, problem):
    path = flowsim.integrate(mlp, problem, ts=[0.0, 1.0, 2.0], weights=True).path
    for record in range(4):
        network = jax.tree.map(lambda leaf, record=record: leaf[record], path)
        expected = np.linalg.eigvalsh(plain_hessian(network, problem))[-1]
        pair = top_eigenpair(network, problem, dense=dense)
        assert bool(pair.converged)
        np.testing.assert_allclose(pair.value, expected, rtol=1e-10)


def test_sharpness_of_a_linear_layer_is_twice_the_top_eigenvalue_of_the_covariance(problem):
    network = flowsim.DeepLinear([np.zeros((1, 5))])
    np.testing.assert_allclose(flowsim.sharpness(network, problem), 2 * problem.largest_eigenvalue, rtol=1e-13)


@pytest.mark.parametrize("dense", [True, False])
def test_the_largest_eigenvalue_keeps_its_sign_where_the_smallest_is_larger_in_absolute_value(dense, problem):
    # At W = (0, …) with two layers the Hessian is [[0, −B], [−Bᵀ, 0]] scaled; adding weight makes it lopsided.
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=1.5, key=jax.random.key(4))
    flipped = eqx.tree_at(lambda n: n.stacks[-1], network, replace_fn=lambda last: -last)
    for candidate in (network, flipped):
        values = np.linalg.eigvalsh(plain_hessian(candidate, problem))
        pair = top_eigenpair(candidate, problem, dense=dense)
        np.testing.assert_allclose(pair.value, values[-1], rtol=1e-10)


def test_lanczos_finds_the_top_of_a_spectrum_that_power_iteration_gets_wrong():
    matrix = np.diag([-10.0, -9.0, 1.0, 0.5, *np.linspace(-1, 0, 60)])
    start = jax.random.normal(jax.random.key(0), (64,))
    pair = eigenpair_lanczos(as_operator(matrix), start)
    np.testing.assert_allclose(pair.value, 1.0, rtol=1e-10)


def test_lanczos_agrees_with_scipy_beyond_the_dense_size(problem):
    network = flowsim.DeepLinear.gaussian(widths=[5] + [30] * 6 + [1], scale=0.2, key=jax.random.key(1))
    weights, rest = split(network)
    product, flat = hessian_operator(lambda moving: problem.objective(eqx.combine(moving, rest)), weights)
    assert flat.size > 4000
    product = jax.jit(product)
    operator = LinearOperator(
        (flat.size, flat.size), matvec=lambda v: np.asarray(product(jnp.asarray(v, float).ravel()))
    )
    expected = eigsh(operator, k=1, which="LA", tol=1e-12, v0=np.ones(flat.size))[0][0]
    np.testing.assert_allclose(flowsim.sharpness(network, problem), expected, rtol=1e-9)


@pytest.mark.parametrize("matrix", [np.zeros((300, 300)), -np.eye(300), np.diag([-3.0] * 299 + [-2.0])])
def test_an_exhausted_krylov_space_is_no_obstacle(matrix):
    start = jax.random.normal(jax.random.key(0), (300,))
    pair = eigenpair_lanczos(as_operator(matrix), start)
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, matrix.max(initial=-9, where=matrix != 0) if matrix.any() else 0, atol=1e-12)


@pytest.mark.parametrize("dimension", [12, 24])
def test_a_crowded_top_of_the_spectrum_is_resolved(dimension):
    """Restarts from a single vector stagnate here, at 30 eigenvalues within one hundredth and as many opposite."""
    generator = np.random.default_rng(0)
    values = np.concatenate([generator.uniform(0.99, 1, 30), -generator.uniform(0.99, 1, 30), np.zeros(240)])
    vectors, _ = np.linalg.qr(generator.standard_normal((300, 300)))
    start = jax.random.normal(jax.random.key(0), (300,))
    pair = eigenpair_lanczos(as_operator(vectors @ np.diag(values) @ vectors.T), start, dimension=dimension)
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, values.max(), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_spaces_smaller_than_the_krylov_dimension_are_solved_at_once(size):
    matrix = np.random.default_rng(size).standard_normal((size, size))
    matrix = matrix + matrix.T
    pair = eigenpair_lanczos(as_operator(matrix), jax.random.normal(jax.random.key(0), (size,)))
    assert int(pair.products) == size + 1
    np.testing.assert_allclose(pair.value, np.linalg.eigvalsh(matrix)[-1], rtol=1e-12)


def test_the_residual_certifies_the_value():
    generator = np.random.default_rng(0)
    matrix = generator.standard_normal((400, 400))
    matrix = matrix + matrix.T
    values = np.linalg.eigvalsh(matrix)
    start = jax.random.normal(jax.random.key(0), (400,))
    for rounds in (1, 2, 50):
        pair = eigenpair_lanczos(as_operator(matrix), start, max_restarts=rounds)
        assert np.abs(values - float(pair.value)).min() <= float(pair.residual) + 1e-12
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, values[-1], rtol=1e-12)


def test_a_sharpness_that_is_not_certified_is_not_returned(mlp, problem):
    broken = eqx.tree_at(lambda n: n.stacks[-1], mlp, replace_fn=lambda last: last * jnp.nan)
    with pytest.raises(RuntimeError, match="not certified"):
        flowsim.sharpness(broken, problem)


def test_single_precision_is_certified_to_its_own_accuracy(mlp, problem):
    single = flowsim.networks.cast(mlp, jnp.float32)
    assert abs(flowsim.sharpness(single, problem) / flowsim.sharpness(mlp, problem) - 1) < 1e-4


def test_sharpness_works_under_jit_and_vmap(problem):
    keys = jax.random.split(jax.random.key(5), 3)

    def one(key):
        return flowsim.sharpness(flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.5, key=key), problem)

    np.testing.assert_allclose(jax.jit(jax.vmap(one))(keys), [one(key) for key in keys], rtol=1e-12)
