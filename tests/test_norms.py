import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowsim.networks.weights import norm, norms


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_no_square_leaves_the_range_of_floats(size):
    tree = {"one": jnp.array([3.0, 0.0]) * size, "other": (jnp.array(-4.0) * size, jnp.zeros((2, 0)))}
    assert float(norm(tree)) == pytest.approx(5 * size, rel=1e-15)


def test_zero_and_what_is_not_finite_have_a_norm_too():
    assert float(norm(jnp.zeros(3))) == 0
    assert float(norm([jnp.ones(2), jnp.array(np.inf)])) == np.inf
    assert np.isnan(norm([jnp.ones(2), jnp.array(np.nan)]))


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("count", [1, 2, 100, 20_000])
def test_nor_does_one_in_a_compiled_program(count, size):
    entries = size * jnp.linspace(1.0, 2.0, count)
    found = jax.jit(norms)(entries, -2 * entries)
    np.testing.assert_allclose(
        found, size * np.linalg.norm(np.linspace(1.0, 2.0, count)) * np.array([1, 2]), rtol=1e-14
    )


def test_the_derivative_of_a_norm_is_the_direction():
    tree = {"one": jnp.array([3.0, 0.0]) * 1e200, "other": jnp.array(-4.0) * 1e200}
    slopes = jax.grad(norm)(tree)
    np.testing.assert_allclose(slopes["one"], [0.6, 0.0], rtol=1e-15)
    np.testing.assert_allclose(slopes["other"], -0.8, rtol=1e-15)
