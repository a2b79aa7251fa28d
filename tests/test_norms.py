import jax.numpy as jnp
import numpy as np
import pytest

from flowsim.networks.weights import norm


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_no_square_leaves_the_range_of_floats(size):
    tree = {"one": jnp.array([3.0, 0.0]) * size, "other": (jnp.array(-4.0) * size, jnp.zeros((2, 0)))}
    assert float(norm(tree)) == pytest.approx(5 * size, rel=1e-15)


def test_zero_and_what_is_not_finite_have_a_norm_too():
    assert float(norm(jnp.zeros(3))) == 0
    assert float(norm([jnp.ones(2), jnp.array(np.inf)])) == np.inf
    assert np.isnan(norm([jnp.ones(2), jnp.array(np.nan)]))
