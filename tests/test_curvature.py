import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import LinearOperator, eigsh

import flowsim
from flowsim.curvature import (
    eigenpair_lanczos,
    eigenpairs_lanczos,
    hessian_operator,
    hessian_product,
    sharpness_along,
    spectral_bounds,
    top_eigenpair,
    top_eigenpairs,
)
from flowsim.dynamics import stopping_for
from flowsim.dynamics.limit import limit_outcome
from flowsim.networks import split

slow = partial(pytest.param, marks=pytest.mark.slow)


@eqx.filter_jit
def _plain_hessian(network, problem):
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)
    return jax.hessian(lambda vector: problem(eqx.combine(unravel(vector), rest)))(flat)


def plain_hessian(network, problem):
    """The Hessian by forward over forward differentiation of the risk on flat weights."""
    return np.asarray(_plain_hessian(network, problem))


@partial(jax.jit, static_argnames=("dimension",))
def of_matrix(matrix, start, **options):
    """Lanczos on a matrix, compiled once for each shape."""
    return eigenpair_lanczos(lambda vector: matrix @ vector, start, **options)


@pytest.mark.parametrize("depth", [1, 2, slow(7), slow(40)])
def test_the_one_dimensional_network_of_ones_has_sharpness_2L(depth):
    network = flowsim.DeepLinear([np.ones((1, 1))] * depth)
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    np.testing.assert_allclose(flowsim.sharpness(network, problem), 2 * depth, rtol=1e-14)


@pytest.mark.parametrize("dense", [slow(True), False])
@pytest.mark.slow
def test_sharpness_equals_numpy_at_init_on_the_path_and_at_the_end(dense, mlp, problem):
    path = flowsim.integrate(mlp, problem, ts=[0.0, 1.0, 2.0], weights=True).weights
    for record in range(4):
        network = jax.tree.map(lambda leaf, record=record: leaf[record], path)
        expected = np.linalg.eigvalsh(plain_hessian(network, problem))[-1]
        pair = top_eigenpair(network, problem, dense=dense)
        assert bool(pair.converged)
        np.testing.assert_allclose(pair.value, expected, rtol=1e-10)


def test_sharpness_of_a_linear_layer_is_twice_the_top_eigenvalue_of_the_covariance(problem):
    network = flowsim.DeepLinear([np.zeros((1, 5))])
    np.testing.assert_allclose(flowsim.sharpness(network, problem), 2 * problem.largest_eigenvalue, rtol=1e-13)


@pytest.mark.parametrize("dense", [slow(True), False])
@pytest.mark.slow
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
    pair = of_matrix(matrix, start)
    np.testing.assert_allclose(pair.value, 1.0, rtol=1e-10)


@pytest.mark.slow
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
    pair = of_matrix(matrix, start)
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, matrix.max(initial=-9, where=matrix != 0) if matrix.any() else 0, atol=1e-12)


def test_a_start_of_zeros_is_no_eigenvector():
    """It would certify an eigenvalue of zero, which is above all of these."""
    pair = of_matrix(np.diag(-np.arange(1.0, 301.0)), jnp.zeros(300))
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, -1, rtol=1e-12)


def test_a_product_may_come_in_another_precision_than_the_start():
    values = jnp.arange(300, dtype=jnp.float32)
    pair = jax.jit(lambda start: eigenpair_lanczos(lambda v: values * v.astype(jnp.float32), start, max_restarts=5))(
        jnp.ones(300)
    )
    np.testing.assert_allclose(pair.value, 299, rtol=1e-5)


@pytest.mark.parametrize("dimension", [slow(12), 24])
def test_a_crowded_top_of_the_spectrum_is_resolved(dimension):
    """Restarts from a single vector stagnate here, at 30 eigenvalues within one hundredth and as many opposite."""
    generator = np.random.default_rng(0)
    values = np.concatenate([generator.uniform(0.99, 1, 30), -generator.uniform(0.99, 1, 30), np.zeros(240)])
    vectors, _ = np.linalg.qr(generator.standard_normal((300, 300)))
    start = jax.random.normal(jax.random.key(0), (300,))
    pair = of_matrix(vectors @ np.diag(values) @ vectors.T, start, dimension=dimension)
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, values.max(), rtol=1e-12)


@pytest.mark.parametrize("size", [1, slow(2), 3, slow(10)])
@pytest.mark.slow
def test_spaces_smaller_than_the_krylov_dimension_are_solved_at_once(size):
    matrix = np.random.default_rng(size).standard_normal((size, size))
    matrix = matrix + matrix.T
    pair = of_matrix(matrix, jax.random.normal(jax.random.key(0), (size,)))
    assert int(pair.products) == size + 1
    np.testing.assert_allclose(pair.value, np.linalg.eigvalsh(matrix)[-1], rtol=1e-12)


def test_the_residual_certifies_the_value():
    generator = np.random.default_rng(0)
    matrix = generator.standard_normal((400, 400))
    matrix = matrix + matrix.T
    values = np.linalg.eigvalsh(matrix)
    start = jax.random.normal(jax.random.key(0), (400,))
    for rounds in (1, 2, 50):
        pair = of_matrix(matrix, start, max_restarts=rounds)
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


@pytest.mark.slow
def test_sharpness_works_under_jit_and_vmap(problem):
    keys = jax.random.split(jax.random.key(5), 3)

    def one(key):
        return flowsim.sharpness(flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.5, key=key), problem)

    np.testing.assert_allclose(jax.jit(jax.vmap(one))(keys), [one(key) for key in keys], rtol=1e-12)


@pytest.fixture(scope="module")
def indefinite(problem):
    """A network whose Hessian has both signs, and its eigenvalues in increasing order."""
    network = flowsim.DeepLinear.gaussian(widths=[5, 9, 9, 9, 1], scale=0.5, key=jax.random.key(4))
    return network, np.linalg.eigvalsh(plain_hessian(network, problem))


@partial(jax.jit, static_argnames=("largest", "smallest", "dimension", "rtol"))
def of_diagonal(values, start, **options):
    """Lanczos on a diagonal matrix, compiled once for each shape."""
    return eigenpairs_lanczos(lambda vector: values * vector, start, **options)


def normal(block, size, dtype=float):
    return jax.random.normal(jax.random.key(0), (block, size), dtype)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.slow
def test_several_top_eigenpairs_equal_numpy(dense, indefinite, problem):
    network, values = indefinite
    pairs = top_eigenpairs(network, problem, count=4, dense=dense)
    assert bool(pairs.converged.all())
    np.testing.assert_allclose(pairs.values, values[:-5:-1], rtol=1e-10)
    assert pairs.vectors.stacks[1].shape == (4, *network.stacks[1].shape)
    rows = np.hstack([leaf.reshape(4, -1) for leaf in jax.tree.leaves(pairs.vectors)])
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(rows @ plain_hessian(network, problem) @ rows.T, np.diag(pairs.values), atol=1e-9)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.slow
def test_both_ends_of_an_indefinite_spectrum_equal_numpy(dense, indefinite, problem):
    network, values = indefinite
    bounds = spectral_bounds(network, problem, dense=dense)
    assert bool(bounds.converged)
    assert values[0] < 0 < values[-1]
    np.testing.assert_allclose([bounds.smallest, bounds.largest], values[[0, -1]], rtol=1e-10)
    assert max(bounds.smallest_residual, bounds.largest_residual) < 1e-10 * np.abs(values).max()


def test_a_network_of_one_weight_has_one_eigenvalue_at_both_ends():
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    bounds = spectral_bounds(flowsim.DeepLinear([np.ones((1, 1))]), problem)
    np.testing.assert_allclose([bounds.smallest, bounds.largest], 2.0)


def test_a_block_finds_every_copy_of_a_multiple_eigenvalue():
    values = np.concatenate([[2.0] * 3, [1.5] * 2, np.linspace(-1, 1, 295)])
    pairs = of_diagonal(values, normal(3, 300), largest=5, dimension=24)
    assert bool(pairs.converged.all())
    np.testing.assert_allclose(pairs.values, [2, 2, 2, 1.5, 1.5], rtol=1e-12)


@pytest.mark.slow
def test_outputs_that_do_not_interact_give_every_eigenvalue_twice():
    X = np.random.default_rng(0).standard_normal((50, 40))
    network = flowsim.DeepLinear([np.zeros((2, 40))])
    problem = flowsim.LinearRegression(X, np.ones((50, 2)))
    pairs = top_eigenpairs(network, problem, count=4, dense=False)
    expected = np.repeat(2 * np.linalg.eigvalsh(X.T @ X / 50)[[-1, -2]], 2)
    np.testing.assert_allclose(pairs.values, expected, rtol=1e-10)


def test_eigenvalues_within_a_millionth_are_told_apart():
    generator = np.random.default_rng(0)
    values = np.concatenate([1 - 1e-6 * generator.uniform(size=10), generator.uniform(-0.9, 0.9, 290)])
    pairs = of_diagonal(values, normal(1, 300), dimension=48)
    assert bool(pairs.converged[0])
    np.testing.assert_allclose(pairs.values[0], values.max(), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160, 1e200])
def test_no_scale_of_the_operator_or_of_the_start_is_too_extreme(scale):
    values = np.linspace(-1, 1, 300) ** 3
    pairs = of_diagonal(scale * values, normal(1, 300) / scale, largest=1, smallest=1, dimension=24)
    assert bool(pairs.converged.all())
    np.testing.assert_allclose(pairs.values / scale, [1, -1], rtol=1e-12)
    assert (pairs.residuals < 1e-10 * scale).all()


def test_lanczos_holds_the_product_once():
    """The program searches and certifies with one product, which for a large network is most of what is compiled."""

    def values_of(start):
        return eigenpairs_lanczos(lambda vector: vector[::-1], start, largest=2, smallest=1).values

    text = jax.jit(values_of).lower(jnp.ones((1, 40))).as_text()
    assert text.count("stablehlo.reverse") == 1


# Older compilers make a second basis for every loop, whatever is read before it.
of_a_new_compiler = pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="XLA keeps two bases in any case")


@of_a_new_compiler
@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.slow
def test_lanczos_keeps_one_basis(block):
    """Of 24 + `block` vectors, with five beside it: XLA would make a second one of what is read before it changes."""
    problem = flowsim.LinearRegression(*flowsim.data.gaussian_teacher(np.random.default_rng(0), 100, 50))
    network = flowsim.DeepLinear.gaussian(widths=[50] * 8 + [1], scale=0.1, key=jax.random.key(0))
    weights, rest = split(network)

    def values_of(weights):
        product = hessian_product(lambda w: problem.objective(eqx.combine(w, rest)), weights)
        start = jax.tree.map(lambda leaf: jnp.stack([jnp.cos(leaf + row) for row in range(block)]), weights)
        return eigenpairs_lanczos(product, start, smallest=1, dimension=24).values

    program = jax.jit(values_of).lower(weights).compile()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    assert program.memory_analysis().temp_size_in_bytes < (24 + block + 6) * size


@of_a_new_compiler
@pytest.mark.slow
def test_a_look_at_second_derivatives_keeps_one_space_after_the_other():
    class Bowl(flowsim.Problem):
        curvatures: jax.Array

        def __call__(self, weights):
            return jnp.sum(self.curvatures * weights**2) / 2

    curvatures = jnp.linspace(0.1, 3.0, 50_000)
    stopping = stopping_for(None, problem := Bowl(curvatures), curvatures.dtype)
    look = jax.jit(lambda start, end: limit_outcome(stopping, start, end, problem))
    program = look.lower(curvatures, curvatures**2).compile()
    assert program.memory_analysis().temp_size_in_bytes < 42 * curvatures.nbytes


@pytest.mark.slow
def test_lanczos_under_vmap_and_jit_is_lanczos_one_by_one(problem, indefinite):
    network, _ = indefinite
    lanes = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf, -leaf]), network)

    def ends(one):
        bounds = spectral_bounds(one, problem, dense=False)
        return bounds.smallest, bounds.largest

    batch = jax.jit(jax.vmap(ends))(lanes)
    for lane in range(3):
        alone = ends(jax.tree.map(lambda leaf, lane=lane: leaf[lane], lanes))
        np.testing.assert_allclose([end[lane] for end in batch], alone, rtol=1e-11)


@pytest.mark.parametrize("dense", [slow(True), False])
@pytest.mark.slow
def test_no_batch_of_matrices_reaches_lapack(dense, problem, indefinite):
    lanes = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), indefinite[0])
    batched = jax.jit(jax.vmap(lambda one: top_eigenpair(one, problem, dense=dense).value)).lower(lanes).as_text()
    calls = [line for line in batched.splitlines() if "syevd" in line]
    assert calls
    assert not any("tensor<3x" in line for line in calls)


def test_inside_jit_a_sharpness_that_is_not_certified_is_nan(mlp, problem):
    broken = eqx.tree_at(lambda n: n.stacks[-1], mlp, replace_fn=lambda last: last * jnp.inf)
    assert np.isnan(jax.jit(lambda network: flowsim.sharpness(network, problem))(broken))


@pytest.mark.slow
@pytest.mark.parametrize("depth", [10, 300])
def test_single_precision_claims_no_more_than_it_knows(depth, problem):
    network = flowsim.DeepLinear.residual(
        width=5, depth=depth, scale=0.5, projection=np.ones(5), key=jax.random.key(depth)
    )
    truth = top_eigenpairs(network, problem, count=3, dense=False).values
    found = top_eigenpairs(flowsim.networks.cast(network, jnp.float32), problem, count=3, dense=False)
    assert bool(found.converged.all())
    assert (np.abs(found.values.astype(float) - truth) <= found.residuals).all()
    assert (found.residuals > np.finfo(np.float32).eps * truth).all()


@pytest.mark.parametrize(
    ("dtype", "asked", "rtol"), [(np.float32, None, 1e-4), slow(np.float64, None, 1e-10), (np.float64, 1e-6, 1e-8)]
)
@pytest.mark.parametrize("gap", [3e-3, 0.1])
@pytest.mark.slow
def test_a_warm_start_sees_the_eigenvalue_that_has_overtaken(dtype, asked, rtol, gap):
    """On the path, the top eigenvector changes from the first axis to the second between the records 3 and 4.

    A residual r leaves the quotient of a vector an error of r² over the gap: 1e-12/4e-4 at most, for one of 1e-6.
    """
    rest = np.linspace(0.0, 0.95, 998)
    times = np.arange(8)[:, None] - 3.5
    diagonals = np.concatenate([1 - gap * times / 3.5, 1 + gap * times / 3.5, np.tile(rest, (8, 1))], axis=1)
    path = Diagonal(jnp.asarray(np.sqrt(diagonals), dtype))
    np.testing.assert_allclose(sharpness_along(path, Quartic(), rtol=asked), diagonals.max(axis=1), rtol=rtol)


class Diagonal(eqx.Module):
    roots: jax.Array


class Quartic(flowsim.Problem):
    """The risk Σ w⁴/12, whose Hessian is the diagonal matrix of w²."""

    def __call__(self, network):
        return jnp.sum(network.roots**4) / 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimension": 2}, "dimension=2 is too small"),
        ({"start": np.ones(3)}, r"expected \(230,\)"),
        ({"start": np.zeros(230)}, "zero or not finite"),
        ({"start": np.full(230, np.nan)}, "zero or not finite"),
        ({"rtol": 1e-17}, "rtol=1e-17 is out of reach in float64"),
        ({"rtol": 1e-17, "dense": True}, "rtol=1e-17 is out of reach in float64"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message, mlp, problem):
    assert sum(stack.size for stack in mlp.stacks) == 230
    with pytest.raises(ValueError, match=message):
        top_eigenpair(mlp, problem, **{"dense": False, **options})


def test_more_eigenpairs_than_weights_are_refused(problem):
    with pytest.raises(ValueError, match="6 largest and 0 smallest eigenvalues of 5"):
        top_eigenpairs(flowsim.DeepLinear([np.ones((1, 5))]), problem, count=6)


@pytest.mark.slow
def test_weights_on_two_devices_stay_there_and_have_the_same_eigenpairs():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    script = Path(__file__).with_name("sharded_lanczos.py")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_weights_of_half_precision_and_none_at_all_are_refused():
    bowl = flowsim.Risk(lambda w: jnp.sum(w**2))
    with pytest.raises(ValueError, match="not found in float16: cast the weights to float32"):
        flowsim.sharpness(jnp.ones(3, jnp.float16), bowl)
    with pytest.raises(ValueError, match="holds no weights"):
        flowsim.integrate(jnp.zeros(0), bowl)
