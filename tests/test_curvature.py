"""Eigenvalues at the ends of the spectrum of the Hessian: Lanczos and dense decompositions, and their certificates."""

import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import (
    LocalQuadraticModel,
    eigenpair_lanczos,
    eigenpairs_lanczos,
    hessian_operator,
    hessian_product,
    preconditioned_eigenpair,
    sharpness_along,
    spectral_bounds,
    top_eigenpair,
    top_eigenpairs,
)
from flowsim.curvature.eigenpair import default_rtol
from flowsim.dynamics import stopping_for
from flowsim.dynamics.limit import limit_outcome
from flowsim.networks import split

SIZE = 120
START = np.random.default_rng(1).standard_normal(SIZE)
BOWL = flowsim.Risk(lambda w: jnp.sum(w**2))


@eqx.filter_jit
def plain_hessian(network, problem):
    """The Hessian by forward over forward differentiation of the risk on flat weights."""
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)
    return jax.hessian(lambda vector: problem(eqx.combine(unravel(vector), rest)))(flat)


@jax.jit
def of_matrix(matrix, start=START, max_restarts=500):
    """Lanczos on a matrix of 120 rows, for its largest eigenvalue."""
    return eigenpair_lanczos(lambda vector: matrix @ vector, start, max_restarts=max_restarts)


def test_the_sharpness_of_ones_is_2L_and_of_a_linear_layer_twice_the_top_eigenvalue_of_the_covariance(problem):
    ones, of_one = flowsim.DeepLinear([np.ones((1, 1))] * 3), flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    np.testing.assert_allclose(flowsim.sharpness(ones, of_one), 2 * 3, rtol=1e-14)
    layer = flowsim.DeepLinear([np.zeros((1, 5))])
    np.testing.assert_allclose(flowsim.sharpness(layer, problem), 2 * problem.largest_eigenvalue, rtol=1e-13)
    of_one_weight = spectral_bounds(np.ones(1), BOWL)
    np.testing.assert_allclose([of_one_weight.smallest, of_one_weight.largest], 2.0)


@pytest.mark.parametrize("dense", [True, False])
def test_eigenpairs_of_an_indefinite_hessian_are_those_of_numpy(dense, problem):
    rng = np.random.default_rng(3)
    network = flowsim.DeepLinear([0.6 * rng.standard_normal(shape) for shape in ((2, 5), (2, 2), (1, 2))])
    hessian = plain_hessian(network, problem)
    values = np.linalg.eigvalsh(hessian)
    assert values[0] < 0 < values[-1]
    pairs = top_eigenpairs(network, problem, count=2, dense=dense)
    assert bool(pairs.converged.all())
    np.testing.assert_allclose(pairs.values, values[:-3:-1], rtol=1e-10)
    assert [leaf.shape for leaf in pairs.vectors.stacks] == [(2, *leaf.shape) for leaf in network.stacks]
    rows = np.hstack([np.asarray(leaf).reshape(2, -1) for leaf in jax.tree.leaves(pairs.vectors)])
    np.testing.assert_allclose(rows @ rows.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(rows @ hessian, np.asarray(pairs.values)[:, None] * rows, atol=1e-9)
    if not dense:
        assert int(pairs.products) == len(values) + 2  # a space of all weights, and two certificates
        return
    bounds = spectral_bounds(network, problem)
    assert bool(bounds.converged)
    np.testing.assert_allclose([bounds.smallest, bounds.largest], values[[0, -1]], rtol=1e-10)
    assert max(bounds.smallest_residual, bounds.largest_residual) < 1e-10 * np.abs(values).max()


def test_a_preconditioner_divides_rows_and_columns_by_its_root():
    hessian = np.array([[1.0, 0.5, 0.0], [0.5, -2.0, 1.0], [0.0, 1.0, 3.0]])
    scales = np.array([4.0, 0.25, 1.0])
    pair = preconditioned_eigenpair(np.ones(3), flowsim.Risk(lambda w: w @ hessian @ w / 2), scales)
    values = np.linalg.eigvalsh(hessian / np.sqrt(np.outer(scales, scales)))
    np.testing.assert_allclose(pair.value, values[-1], rtol=1e-12)


def test_lanczos_finds_the_top_of_spectra_that_are_hard():
    """Power iteration gets the first wrong; a Krylov space is exhausted at once in the next three; restarts from a
    single vector stagnate at the last, of 30 eigenvalues within one hundredth and as many opposite.
    """
    generator = np.random.default_rng(0)
    crowded = np.concatenate([generator.uniform(0.99, 1, 30), -generator.uniform(0.99, 1, 30), np.zeros(SIZE - 60)])
    basis, _ = np.linalg.qr(generator.standard_normal((SIZE, SIZE)))
    for matrix, top in (
        (np.diag([-10.0, -9.0, 1.0, 0.5, *np.linspace(-1, 0, SIZE - 4)]), 1.0),
        (np.zeros((SIZE, SIZE)), 0.0),
        (-np.eye(SIZE), -1.0),
        (np.diag([-3.0] * (SIZE - 1) + [-2.0]), -2.0),
        (basis @ np.diag(crowded) @ basis.T, crowded.max()),
    ):
        pair = of_matrix(matrix)
        assert bool(pair.converged)
        np.testing.assert_allclose(pair.value, top, rtol=1e-12)
    # A start of zeros is no eigenvector: it would certify an eigenvalue of zero, which is above all of these.
    pair = of_matrix(np.diag(-np.arange(1.0, SIZE + 1)), start=np.zeros(SIZE))
    assert bool(pair.converged)
    np.testing.assert_allclose(pair.value, -1, rtol=1e-12)


def test_a_risk_falls_off_where_a_hundredth_of_its_curvature_is_negative():
    ends = [LocalQuadraticModel(np.array([least, 1.0]), np.eye(2), None, np.ones(2)) for least in (-0.02, -1e-3, 1e-3)]
    assert [bool(end.falls_off()) for end in ends] == [True, False, False]


@pytest.mark.slow
def test_lanczos_agrees_with_scipy_beyond_the_dense_size(problem):
    from scipy.sparse.linalg import LinearOperator, eigsh

    network = flowsim.DeepLinear.gaussian(widths=[5] + [30] * 3 + [1], scale=0.2, key=jax.random.key(1))
    weights, rest = split(network)
    product, flat = hessian_operator(lambda moving: problem.objective(eqx.combine(moving, rest)), weights)
    assert flat.size > 1500
    product = jax.jit(product)
    operator = LinearOperator(
        (flat.size, flat.size), matvec=lambda v: np.asarray(product(jnp.asarray(v, float).ravel()))
    )
    expected = eigsh(operator, k=1, which="LA", tol=1e-12, v0=np.ones(flat.size))[0][0]
    np.testing.assert_allclose(flowsim.sharpness(network, problem), expected, rtol=1e-9)


def test_the_residual_certifies_the_value():
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE))
    matrix += matrix.T
    values = np.linalg.eigvalsh(matrix)
    for rounds in (1, 2, 50):
        pair = of_matrix(matrix, max_restarts=rounds)
        vector = np.asarray(pair.vector)
        assert np.abs(values - float(pair.value)).min() <= float(pair.residual) + 1e-12
        left = np.linalg.norm(matrix @ vector - float(pair.value) * vector)
        assert 0.99 * left <= float(pair.residual) <= 1.01 * left + 1e-11
        assert bool(pair.converged) == (rounds == 50)
    np.testing.assert_allclose(pair.value, values[-1], rtol=1e-12)


def test_what_is_not_certified_is_refused_and_inside_jit_nan():
    bowl, bent = (flowsim.Risk(lambda w, p=power: jnp.sum(jnp.abs(w) ** p)) for power in (4, 1.5))
    with pytest.raises(ValueError, match=r"^the weights are NaN, in 1 of 3 entries of the weights"):
        flowsim.sharpness(np.array([1.0, np.nan, 1.0]), bowl)
    with pytest.raises(RuntimeError, match=r"not certified: second derivatives .* where its gradient is finite"):
        flowsim.sharpness(np.array([1.0, 0.0, 1.0]), bent)
    assert np.isnan(jax.jit(lambda network: flowsim.sharpness(network, bowl))(np.array([1.0, np.inf, 1.0])))


def test_the_default_tolerance_is_two_thirds_of_the_digits():
    tolerances = [default_rtol(np.dtype(name)) for name in ("float32", "float64")]
    assert tolerances == pytest.approx([2.42e-5, 3.67e-11], rel=1e-3)


@pytest.fixture(scope="module")
def indefinite():
    """A network whose Hessian has both signs, and more weights than a Krylov space has vectors."""
    return flowsim.DeepLinear.gaussian(widths=[5, 9, 9, 9, 1], scale=0.5, key=jax.random.key(4))


def test_a_block_finds_copies_and_neighbours_of_eigenvalues_at_any_scale_of_operator_and_start():
    @jax.jit
    def of_diagonal(values, start):
        return eigenpairs_lanczos(lambda vector: values * vector, start, largest=5, smallest=1, dimension=48)

    generator, block = np.random.default_rng(0), np.random.default_rng(0).standard_normal((3, SIZE))
    copies = np.concatenate([[2.0] * 3, [1.5] * 2, np.linspace(-1, 1, SIZE - 5)])
    within_a_millionth = [1 - 1e-6 * generator.uniform(size=10), generator.uniform(-0.9, 0.9, SIZE - 10)]
    wide = np.linspace(-1, 1, SIZE) ** 3
    for values, scale in ((copies, 1.0), (np.concatenate(within_a_millionth), 1.0), (wide, 1e-200), (wide, 1e200)):
        pairs = of_diagonal(scale * values, block / scale)
        assert bool(pairs.converged.all())
        np.testing.assert_allclose(pairs.values / scale, [*np.sort(values)[:-6:-1], values.min()], rtol=1e-12)
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
@pytest.mark.slow
def test_lanczos_keeps_one_basis():
    """Of 24 + 2 vectors, with five beside it: XLA would make a second one of what is read before it changes."""
    block = 2
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
    assert program.memory_analysis().temp_size_in_bytes < 48 * curvatures.nbytes


@pytest.mark.slow
def test_lanczos_under_vmap_and_jit_is_lanczos_one_by_one(problem, indefinite):
    lanes = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf, -leaf]), indefinite)

    def ends(one):
        bounds = spectral_bounds(one, problem, dense=False)
        return bounds.smallest, bounds.largest

    batch = jax.jit(jax.vmap(ends))(lanes)
    for lane in range(3):
        one = jax.tree.map(lambda leaf, lane=lane: leaf[lane], lanes)
        alone, values = ends(one), np.linalg.eigvalsh(plain_hessian(one, problem))
        np.testing.assert_allclose(alone, values[[0, -1]], rtol=1e-10)
        np.testing.assert_allclose([end[lane] for end in batch], alone, rtol=1e-11)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.slow
def test_no_batch_of_matrices_reaches_lapack(dense, problem, indefinite):
    lanes = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), indefinite)
    batched = jax.jit(jax.vmap(lambda one: top_eigenpair(one, problem, dense=dense).value)).lower(lanes).as_text()
    calls = [line for line in batched.splitlines() if "syevd" in line]
    assert calls
    assert not any("tensor<3x" in line for line in calls)


@pytest.mark.slow
def test_single_precision_claims_no_more_than_it_knows(problem):
    network = flowsim.DeepLinear.residual(width=5, depth=12, scale=0.5, projection=np.ones(5), key=jax.random.key(10))
    truth = top_eigenpairs(network, problem, count=3, dense=False).values
    single = top_eigenpairs(flowsim.networks.cast(network, jnp.float32), problem, count=3, dense=False)
    assert bool(single.converged.all())
    assert (np.abs(single.values.astype(float) - truth) <= single.residuals).all()
    assert (single.residuals > np.finfo(np.float32).eps * truth).all()


@pytest.mark.slow
def test_a_warm_start_sees_the_eigenvalue_that_has_overtaken():
    """On the path, the top eigenvector changes from the first axis to the second between the records 3 and 4.

    A residual r leaves the quotient of a vector an error of r² over the gap: 1e-12/4e-4 at most, for one of 1e-6.
    """
    rest, gap = np.linspace(0.0, 0.95, 998), 3e-3
    times = np.arange(8)[:, None] - 3.5
    diagonals = np.concatenate([1 - gap * times / 3.5, 1 + gap * times / 3.5, np.tile(rest, (8, 1))], axis=1)
    path = Diagonal(jnp.asarray(np.sqrt(diagonals)))
    np.testing.assert_allclose(sharpness_along(path, Quartic(), rtol=1e-6), diagonals.max(axis=1), rtol=1e-8)


class Diagonal(eqx.Module):
    roots: jax.Array


class Quartic(flowsim.Problem):
    """The risk Σ w⁴/12, whose Hessian is the diagonal matrix of w²."""

    def __call__(self, network):
        return jnp.sum(network.roots**4) / 12


def by_lanczos(**options):
    return lambda: top_eigenpair(np.ones(3), BOWL, dense=False, **options)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (by_lanczos(dimension=2), "dimension=2 is too small"),
        (by_lanczos(start=np.ones(4)), r"expected \(3,\)"),
        (by_lanczos(start=np.zeros(3)), "zero or not finite"),
        (by_lanczos(rtol=1e-17), "rtol=1e-17 is out of reach in float64"),
        (lambda: top_eigenpairs(np.ones(3), BOWL, count=4), "4 largest and 0 smallest eigenvalues of 3"),
        (lambda: flowsim.sharpness(jnp.ones(3, jnp.float16), BOWL), "float16: cast the weights to float32"),
    ],
)
def test_what_has_no_eigenpairs_and_options_that_cannot_be_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.mark.slow
def test_weights_on_two_devices_stay_there_and_have_the_same_eigenpairs():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    script = Path(__file__).with_name("sharded_lanczos.py")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
