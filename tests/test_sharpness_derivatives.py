"""The sharpness under JAX's differentiation, and its gradient with what is known of its error."""

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


def scalar_layers(weight):
    """Two layers of the same weight, beside the risk (w₁w₂ − ½)²."""
    return flowsim.DeepLinear([np.full((1, 1), weight)] * 2), flowsim.LinearRegression(np.ones((1, 1)), np.full(1, 0.5))


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


def bent(tree, s):
    """The arrays of a pytree, moved by s in some direction."""
    return jax.tree.map(lambda a: a + s * jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), tree)


def test_the_gradient_of_two_balanced_scalar_layers_has_its_closed_form_beside_those_in_the_data():
    """For w₁ = w₂ = w and R = a²(w₁w₂ − t)², with u = w² > t/2, S = 2a²(3u − t), and ∇S = 6w (1, 1) at a = 1.

    H has the eigenvalues 2(3u − t) of (1, 1) and 2(t − u): they are 4(2u − t) apart.
    """
    network, problem = scalar_layers(0.8)
    weights, of_data = eqx.filter_grad(lambda given: flowsim.sharpness(*given))((network, problem))
    np.testing.assert_allclose(ravel_pytree(weights)[0], [4.8, 4.8], rtol=1e-13)
    np.testing.assert_allclose(of_data.optimum, [-2.0], rtol=1e-13)
    np.testing.assert_allclose(of_data.root, [[4 * (3 * 0.64 - 0.5)]], rtol=1e-13)
    slope = sharpness_gradient(network, problem)
    np.testing.assert_allclose(slope.value, 2 * (3 * 0.64 - 0.5), rtol=1e-14)
    np.testing.assert_allclose(slope.gap, 4 * (2 * 0.64 - 0.5), rtol=1e-13)
    np.testing.assert_allclose(slope.gradient.stacks, np.full((1, 2, 1, 1), 4.8), rtol=1e-13)
    assert bool(slope.converged)
    assert slope.angle < 1e-14
    assert slope.relative_error < 1e-13


@pytest.mark.slow
def test_derivatives_in_weights_and_data_are_those_of_scipys_eigenvalue(nonlinear, samples):
    """The central difference of order four is off by h⁴S⁽⁵⁾/30, and by rounding by some 1.5 ε S/h = 1e-12 of S."""
    import scipy.linalg

    weights, rest = split(nonlinear)

    def moved(s):
        problem = eqx.tree_at(lambda p: (p.X, p.y), samples, (bent(samples.X, s), bent(samples.y, s)))
        return eqx.combine(bent(weights, s), rest), problem

    def by_lanczos(s):
        return flowsim.sharpness(*moved(s), dense=False)

    step = 5e-4
    matrices = [np.asarray(hessian(*moved(place * step))) for place in (1, -1, 2, -2)]
    largest = [scipy.linalg.eigh(matrix, eigvals_only=True)[-1] for matrix in matrices]
    expected = (8 * (largest[0] - largest[1]) - largest[2] + largest[3]) / (12 * step)
    assert abs(expected) > 0.1
    for slope in (jax.jit(jax.jacfwd(by_lanczos)), jax.jit(jax.grad(by_lanczos))):
        np.testing.assert_allclose(slope(0.0), expected, rtol=1e-9)


def of_scale(c, dtype=float):
    """The sharpness 12 c w² of R = c Σ w⁴ at w = 3, whose function reads c."""
    return flowsim.sharpness(np.asarray([1.0, 2.0, 3.0], dtype), flowsim.Risk(lambda w: c * jnp.sum(w**4)))


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


def test_where_the_largest_eigenvalue_is_double_the_gradient_is_not_converged():
    """At u = t/2 both eigenvalues of two balanced scalar layers are 2u."""
    near, at = (sharpness_gradient(*scalar_layers(w)) for w in (0.51, 0.5))
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
    slope = sharpness_gradient(nonlinear, problem, dense=dense)
    assert bool(slope.converged)
    np.testing.assert_allclose(ravel_pytree(slope.gradient)[0], expected, rtol=1e-9, atol=1e-11)


def test_one_weight_has_no_second_eigenvalue_and_a_quadratic_risk_no_slope_of_the_sharpness():
    """R = w⁴/12 at w = 3: S = w² and S' = 2w. Of a gradient of zero no part is known."""
    one = sharpness_gradient(np.array(3.0), flowsim.Risk(lambda w: w**4 / 12))
    np.testing.assert_allclose([one.value, one.gradient], [9, 6], rtol=1e-14)
    assert one.gap == np.inf
    quadratic = sharpness_gradient(np.ones(2), flowsim.Risk(lambda w: w[0] ** 2 + 2 * w[1] ** 2))
    np.testing.assert_array_equal(quadratic.gradient, [0, 0])
    assert np.isnan(quadratic.relative_error)
    assert bool(one.converged & quadratic.converged)


@pytest.mark.slow
def test_the_angle_bounds_that_to_numpys_eigenvector_and_the_error_of_the_gradient_follows(nonlinear, samples):
    """`relative_error` is an estimate; here the way of the vector's error is far from the worst, so it holds."""
    rtol, (values, columns) = 1e-2, np.linalg.eigh(hessian(nonlinear, samples))
    exact = sharpness_gradient(nonlinear, samples, dense=True)
    # Of 21 weights a Krylov space of ten vectors knows the eigenvector to some digits.
    slope = sharpness_gradient(nonlinear, samples, dense=False, rtol=rtol, dimension=10)
    flat = np.asarray(ravel_pytree(slope.vector)[0])
    apart = np.linalg.norm(flat - columns[:, -1] * (columns[:, -1] @ flat))
    assert 1e-14 < apart <= np.sin(slope.angle)
    assert 0 < slope.gap <= float(slope.value) - values[-2]
    assert apart_from(slope.gradient, exact.gradient) <= slope.relative_error
    assert slope.relative_error < 100 * rtol


def apart_from(gradient, exact):
    return float(norm(jax.tree.map(jnp.subtract, gradient, exact)) / norm(exact))


@pytest.mark.slow
def test_in_single_precision_many_weights_have_a_gradient():
    """Its error is the estimate, or rounding: some ten ε for each of the three derivatives."""
    double = flowsim.Perceptron.gaussian(widths=[20, 60, 60, 1], scale=0.2, key=jax.random.key(0))
    problem = flowsim.EmpiricalRisk(*data(60, 20))
    exact = sharpness_gradient(double, problem)
    single = sharpness_gradient(flowsim.networks.cast(double, jnp.float32), problem)
    assert bool(exact.converged)
    assert bool(single.converged)
    error = apart_from(single.gradient, exact.gradient)
    assert error <= single.relative_error + 30 * np.finfo(np.float32).eps
