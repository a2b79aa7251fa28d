"""Norms of weights whose squares leave the range of floats."""

import jax
import numpy as np
import pytest

from flowsim.networks.weights import norm, norms

of_tree = jax.jit(norm)


def test_no_square_leaves_the_range_of_floats_and_what_is_not_finite_has_a_norm_too():
    for size in (1e-200, 1.0, 1e200):
        tree = {"one": np.array([3.0, 0.0]) * size, "other": (np.array(-4.0) * size, np.zeros((2, 0)))}
        assert float(of_tree(tree)) == pytest.approx(5 * size, rel=1e-15)
    for entries, expected in ((np.zeros(2), 0), (np.array([1, np.inf]), np.inf), (np.array([1, np.nan]), np.nan)):
        np.testing.assert_equal(float(of_tree(entries)), expected)


@pytest.mark.parametrize("count", [1, 20_000])
def test_several_norms_of_a_compiled_program_leave_it_neither(count):
    entries, program = np.linspace(1.0, 2.0, count), jax.jit(norms)
    for size in (1e-200, 1.0, 1e200):
        lengths = program(size * entries, -2 * size * entries)
        np.testing.assert_allclose(lengths, size * np.linalg.norm(entries) * np.array([1, 2]), rtol=1e-14)


def test_the_derivative_of_a_norm_is_the_direction():
    tree = {"one": np.array([3.0, 0.0]) * 1e200, "other": np.array(-4.0) * 1e200}
    slopes = jax.jit(jax.grad(norm))(tree)
    np.testing.assert_allclose(slopes["one"], [0.6, 0.0], rtol=1e-15)
    np.testing.assert_allclose(slopes["other"], -0.8, rtol=1e-15)
