"""The third derivative of the risk on a few directions, beside the dense one and a closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import contractions, top_eigenpairs
from flowsim.networks import split


@eqx.filter_jit
def derivatives(network, problem):
    """The gradient, the Hessian and the third derivative of the risk on flat weights."""
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)

    def risk(vector):
        return problem(eqx.combine(unravel(vector), rest))

    return jax.grad(risk)(flat), jax.hessian(risk)(flat), jax.jacfwd(jax.hessian(risk))(flat)


def rows_of(directions):
    return np.asarray(jax.vmap(lambda one: ravel_pytree(one)[0])(directions))


@pytest.mark.slow
def test_all_contractions_are_those_of_the_dense_third_derivative():
    rng = np.random.default_rng(5)
    problem = flowsim.EmpiricalRisk(rng.standard_normal((12, 3)), rng.standard_normal(12))
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 1], scale=0.9, biases=True, key=jax.random.key(7))
    vectors = top_eigenpairs(network, problem, count=3).vectors
    contracted, rows = contractions(network, problem, vectors), rows_of(vectors)
    gradient, hessian, third = (np.asarray(one) for one in derivatives(network, problem))
    slopes = np.einsum("ia,jb,abc->ijc", rows, rows, third)
    scale = np.abs(slopes).max()
    assert rows_of(contracted.gradients).shape == (6, gradient.size)
    for one in range(3):
        for other in range(3):
            flat = ravel_pytree(contracted.gradient(one, other))[0]
            np.testing.assert_allclose(flat, slopes[one, other], rtol=1e-10, atol=1e-12 * scale)
    np.testing.assert_allclose(contracted.gram, np.einsum("ijc,klc->ijkl", slopes, slopes) / 2, atol=1e-11 * scale**2)
    np.testing.assert_allclose(contracted.sharpening, -slopes @ gradient, atol=1e-11 * scale)
    np.testing.assert_allclose(contracted.hessian, rows @ hessian @ rows.T, atol=1e-11 * hessian.max())


def test_contractions_have_the_closed_form_of_a_cubic_with_a_custom_gradient():
    """R = Σ (a·w)³/6 + (a·w)², so D³R[u, v, ·] = Σ (a·u)(a·v) a and H = Σ (a·w + 2) aaᵀ."""
    rng = np.random.default_rng(0)
    rows, directions, weights = rng.standard_normal((6, 4)), rng.standard_normal((3, 4)), rng.standard_normal(4)
    problem = flowsim.Risk(
        lambda w: jnp.sum((rows @ w) ** 3 / 6 + (rows @ w) ** 2), gradient=lambda w: slopes_of(rows @ w) @ rows
    )

    def slopes_of(along):
        return along**2 / 2 + 2 * along

    contracted = contractions(weights, problem, directions)
    along, steep = rows @ directions.T, rows @ weights
    third = np.einsum("ni,nj,nc->ijc", along, along, rows)
    for one, other in ((0, 0), (0, 2), (2, 1)):
        np.testing.assert_allclose(contracted.gradient(one, other), third[one, other], rtol=1e-12)
    np.testing.assert_allclose(contracted.gram, np.einsum("ijc,klc->ijkl", third, third) / 2, rtol=1e-12)
    np.testing.assert_allclose(contracted.sharpening, -third @ (slopes_of(steep) @ rows), rtol=1e-11)
    np.testing.assert_allclose(contracted.hessian, np.einsum("ni,n,nj->ij", along, steep + 2, along), rtol=1e-11)
    X = rng.standard_normal((3, 3))
    X = X + X.T
    combined = np.einsum("ij,ijc->c", X, third)  # ⟨X, B[X]⟩ = ½‖Σ X_ij T_ij‖², which is positive
    np.testing.assert_allclose(np.einsum("ij,ijkl,kl", X, contracted.gram, X), combined @ combined / 2, rtol=1e-12)


def test_directions_that_are_no_rows_of_weights_are_refused():
    for directions in (np.ones(5), np.ones((2, 4)), {"w": np.ones((2, 5))}):
        with pytest.raises(ValueError, match=r"beside weights of shapes \[\(5,\)\]"):
            contractions(np.ones(5), flowsim.Risk(lambda w: jnp.sum(w**3)), directions)
