"""The sharpness under JAX's differentiation, and its gradient with what is known of its error."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import sharpness_gradient
from flowsim.networks import split
from flowsim.networks.weights import norm

STEP = 5e-4


def scalar_layers(*weights):
    """Two layers of one weight each, beside the risk (w₁w₂ − ½)²."""
    layers = flowsim.DeepLinear([np.full((1, 1), float(weight)) for weight in weights])
    return layers, flowsim.LinearRegression(np.ones((1, 1)), np.full(1, 0.5))


@pytest.fixture(scope="module")
def nonlinear():
    return flowsim.Perceptron.gaussian(widths=[3, 4, 1], scale=0.9, biases=True, key=jax.random.key(2))


def data(count=12, features=3):
    rng = np.random.default_rng(3)
    return rng.standard_normal((count, features)), rng.standard_normal(count)


@pytest.fixture(scope="module")
def samples():
    return flowsim.EmpiricalRisk(*data())


@eqx.filter_jit
def hessian(network, problem):
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)
    return jax.hessian(lambda vector: problem(eqx.combine(unravel(vector), rest)))(flat)


def slope_by_scipy(network_at, problem_at):
    """d/ds of SciPy's largest eigenvalue at s = 0, by the central difference of order four.

    Its error is h⁴S⁽⁵⁾/30, 1e-9 where S⁽⁵⁾ is 6e5, and some 1.5 ε S/h = 1e-12 of S by rounding.
    """

    import scipy.linalg

    def largest(s):
        matrix = np.asarray(hessian(network_at(s), problem_at(s)))
        return scipy.linalg.eigh(matrix, eigvals_only=True)[-1]

    return (8 * (largest(STEP) - largest(-STEP)) - largest(2 * STEP) + largest(-2 * STEP)) / (12 * STEP)


def bent(tree, s):
    """The arrays of a pytree, moved by s in some direction."""
    return jax.tree.map(lambda a: a + s * jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), tree)


def moved(network, s):
    weights, rest = split(network)
    return eqx.combine(bent(weights, s), rest)


def with_data(problem, s):
    return eqx.tree_at(lambda p: (p.X, p.y), problem, (bent(problem.X, s), bent(problem.y, s)))


def test_the_derivatives_of_two_scalar_layers_are_those_of_2a_3u_minus_t():
    """Balanced, w₁ = w₂ = w, with R = a²(w₁w₂ − t)² and u = w² > t/2: S = 2a²(3u − t), ∇S = 6w (1, 1) at a = 1."""
    network, problem = scalar_layers(0.8, 0.8)
    weights, data = eqx.filter_grad(lambda both: flowsim.sharpness(*both))((network, problem))
    np.testing.assert_allclose(ravel_pytree(weights)[0], [4.8, 4.8], rtol=1e-13)
    np.testing.assert_allclose(data.optimum, [-2.0], rtol=1e-13)
    np.testing.assert_allclose(data.root, [[4 * (3 * 0.64 - 0.5)]], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["weights", "data"])
def test_derivatives_in_weights_and_data_are_those_of_scipys_eigenvalue(by, nonlinear, samples):
    network_at = partial(moved, nonlinear) if by == "weights" else lambda s: nonlinear
    problem_at = partial(with_data, samples) if by == "data" else lambda s: samples
    expected = slope_by_scipy(network_at, problem_at)

    def along(s):
        return flowsim.sharpness(network_at(s), problem_at(s), dense=False)

    assert abs(expected) > 0.1
    for slope in (jax.jit(jax.jacfwd(along)), jax.jit(jax.grad(along))):
        np.testing.assert_allclose(slope(0.0), expected, rtol=1e-9)


def of_scale(c, weights=(1.0, 2.0, 3.0), dtype=float):
    """The sharpness 12 c w² of R = c Σ w⁴, whose function reads c."""
    return flowsim.sharpness(np.asarray(weights, dtype), flowsim.Risk(lambda w: c * jnp.sum(w**4)))


def test_what_the_function_of_a_risk_reads_is_differentiated_too_and_but_once():
    np.testing.assert_allclose(jax.grad(of_scale)(2.0), 108, rtol=1e-12)
    with pytest.raises(RuntimeError, match=r"flowsim\.sharpness has first derivatives only"):
        jax.grad(jax.grad(of_scale))(2.0)


@pytest.mark.slow
def test_what_the_function_of_a_risk_reads_is_differentiated_by_all_modes_in_the_precision_of_the_network():
    for way in (jax.jacfwd, lambda f: jax.grad(jax.jit(f))):
        np.testing.assert_allclose(jax.vmap(way(of_scale))(jnp.arange(1.0, 3.0)), [108, 108], rtol=1e-12)
    np.testing.assert_allclose(jax.grad(lambda c: of_scale(c, dtype=np.float32))(2.0), 108, rtol=1e-6)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        jax.jacfwd(jax.jacfwd(of_scale))(2.0)


@pytest.mark.slow
def test_what_is_not_certified_has_neither_a_value_nor_a_derivative():
    """The derivative of what is given as the gradient is not symmetric, by `skew`, which counts as a residual."""

    def problem(skew):
        return flowsim.Risk(
            lambda w: (w[0] ** 3 + w[1] ** 3) / 3, gradient=lambda w: jnp.stack([w[0] ** 2 + skew * w[1], w[1] ** 2])
        )

    weights = jnp.array([1.0, 2.0])
    assert float(flowsim.sharpness(weights, problem(0.0))) == pytest.approx(4, rel=1e-14)
    np.testing.assert_allclose(jax.grad(flowsim.sharpness)(weights, problem(0.0)), [0, 2], atol=1e-14)
    with pytest.raises(RuntimeError, match="not certified"):
        flowsim.sharpness(weights, problem(0.1))
    value, gradient = jax.value_and_grad(flowsim.sharpness)(weights, problem(0.1))
    assert np.isnan(value)
    assert np.isnan(gradient).all()
    assert np.isnan(jax.jvp(lambda w: flowsim.sharpness(w, problem(0.1)), (weights,), (weights,))).all()


def test_the_gradient_of_two_balanced_scalar_layers_has_its_closed_form():
    """H has the eigenvalues 2(3u − t) of (1, 1) and 2(t − u): they are 4(2u − t) apart."""
    found = sharpness_gradient(*scalar_layers(0.8, 0.8))
    np.testing.assert_allclose(found.value, 2 * (3 * 0.64 - 0.5), rtol=1e-14)
    np.testing.assert_allclose(found.gap, 4 * (2 * 0.64 - 0.5), rtol=1e-13)
    np.testing.assert_allclose(found.gradient.stacks, np.full((1, 2, 1, 1), 4.8), rtol=1e-13)
    assert bool(found.converged)
    assert found.angle < 1e-14
    assert found.relative_error < 1e-13


def test_where_the_largest_eigenvalue_is_double_the_gradient_is_not_converged():
    """At u = t/2 both eigenvalues of two balanced scalar layers are 2u."""
    near, at = (sharpness_gradient(*scalar_layers(w, w)) for w in (0.51, 0.5))
    assert bool(near.converged)
    assert not bool(at.converged)
    np.testing.assert_allclose(at.angle, np.pi / 2, rtol=1e-12)
    assert at.gap == 0


@pytest.mark.slow
def test_outputs_that_do_not_interact_have_no_gradient_of_their_sharpness():
    """A linear layer with two outputs has each of 60 eigenvalues twice: a single first vector would see them once."""
    network = flowsim.DeepLinear([np.ones((2, 60))])
    problem = flowsim.LinearRegression(data(80, 60)[0], np.ones((80, 2)))
    assert not bool(sharpness_gradient(network, problem, dense=False).converged)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [True, False])
def test_the_gradient_is_that_of_the_dense_third_derivative_in_chunks_too(dense, nonlinear, samples):
    weights, rest = split(nonlinear)
    flat, unravel = ravel_pytree(weights)
    third = jax.jit(jax.jacfwd(jax.hessian(lambda vector: samples(eqx.combine(unravel(vector), rest)))))(flat)
    vector = np.linalg.eigh(hessian(nonlinear, samples))[1][:, -1]
    expected = np.einsum("i,j,ijk->k", vector, vector, third)
    problem = samples if dense else flowsim.EmpiricalRisk(*data(), chunk_size=5)
    found = sharpness_gradient(nonlinear, problem, dense=dense)
    reverse = eqx.filter_grad(lambda network: flowsim.sharpness(network, problem, dense=dense))(nonlinear)
    assert bool(found.converged)
    for gradient in (found.gradient, reverse):
        np.testing.assert_allclose(ravel_pytree(gradient)[0], expected, rtol=1e-9, atol=1e-11)


def test_one_weight_has_no_second_eigenvalue():
    """R = w⁴/12 at w = 3: S = w² and S' = 2w."""
    found = sharpness_gradient(np.array(3.0), flowsim.Risk(lambda w: w**4 / 12))
    np.testing.assert_allclose([found.value, found.gradient], [9, 6], rtol=1e-14)
    assert found.gap == np.inf
    assert bool(found.converged)


def test_a_quadratic_risk_has_gradient_zero_of_which_no_part_is_known():
    found = sharpness_gradient(np.ones(2), flowsim.Risk(lambda w: w[0] ** 2 + 2 * w[1] ** 2))
    np.testing.assert_array_equal(found.gradient, [0, 0])
    assert bool(found.converged)
    assert np.isnan(found.relative_error)


@pytest.mark.slow
def test_the_angle_bounds_that_to_numpys_eigenvector_and_the_error_of_the_gradient_follows(samples):
    """`relative_error` is an estimate; here the way of the vector's error is far from the worst, so it holds."""
    # 337 weights, beyond what one Krylov space of 24 vectors solves.
    wide = flowsim.Perceptron.gaussian(widths=[3, 16, 16, 1], scale=0.5, biases=True, key=jax.random.key(2))
    rtol, (values, columns) = 1e-2, np.linalg.eigh(hessian(wide, samples))
    exact = sharpness_gradient(wide, samples, dense=True)
    found = sharpness_gradient(wide, samples, dense=False, rtol=rtol)
    flat = np.asarray(ravel_pytree(found.vector)[0])
    apart = np.linalg.norm(flat - columns[:, -1] * (columns[:, -1] @ flat))
    error = float(norm(jax.tree.map(jnp.subtract, found.gradient, exact.gradient)) / norm(exact.gradient))
    assert 1e-14 < apart <= np.sin(found.angle)
    assert 0 < found.gap <= float(found.value) - values[-2]
    assert error <= found.relative_error
    assert found.relative_error < 100 * rtol


@pytest.mark.slow
def test_in_single_precision_many_weights_have_a_gradient():
    """Its error is the estimate, or rounding: some ten ε for each of the three derivatives."""
    double = flowsim.Perceptron.gaussian(widths=[20, 60, 60, 1], scale=0.2, key=jax.random.key(0))
    problem = flowsim.EmpiricalRisk(*data(60, 20))
    exact = sharpness_gradient(double, problem)
    found = sharpness_gradient(flowsim.networks.cast(double, jnp.float32), problem)
    assert bool(exact.converged)
    assert bool(found.converged)
    error = float(norm(jax.tree.map(jnp.subtract, found.gradient, exact.gradient)) / norm(exact.gradient))
    assert error <= found.relative_error + 30 * np.finfo(np.float32).eps
