"""Davidson's method, and the curvature that the central flow steps with, against dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowsim.curvature.davidson import ritz_space
from flowsim.edge.central_curvature import CentralCurvature
from flowsim.edge.central_field import Edge

SIZE = 40


@pytest.fixture(scope="module")
def spectrum():
    """Eigenvalues 10, 9, 4, and others from −3 to 3, and the eigenvectors as columns."""
    rng = np.random.default_rng(0)
    columns = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    return np.concatenate([[10, 9, 4], np.linspace(3, -3, SIZE - 3)]), columns


def near(columns):
    """Return rows next to the first eigenvectors."""
    return columns.T[:3] + 1e-2 * np.random.default_rng(1).normal(size=(3, SIZE))


def unknown():
    return Edge.unknown(np.zeros(SIZE), 2, scouts=0)


@pytest.mark.slow
def test_pairs_are_refined_until_their_residuals_are_below_the_tolerance(spectrum):
    values, columns = spectrum
    matrix = columns * values @ columns.T
    space = ritz_space(lambda v: matrix @ v, near(columns), unknown().correction, begun=3, wanted=2, rtol=1e-11)
    pairs = space.pairs(1e-11)
    np.testing.assert_allclose(pairs.values[:2], values[:2], rtol=1e-13)
    rows = np.asarray(pairs.vectors)[:2]
    np.testing.assert_allclose(np.abs(np.sum(rows.T * columns[:, :2], axis=0)), 1, rtol=1e-13)
    residuals = np.linalg.norm(rows @ matrix - np.asarray(pairs.values[:2])[:, None] * rows, axis=1)
    assert (residuals <= 1.1e-11 * values[0]).all()
    assert pairs.converged.tolist() == [True, True, False]


@pytest.mark.slow
def test_a_curvature_known_nearby_saves_most_products(spectrum):
    values, columns = spectrum
    matrix = columns * values @ columns.T
    beside = matrix + 1e-3 * np.diag(np.random.default_rng(2).normal(size=SIZE))
    curvatures, ritz = map(jnp.asarray, np.linalg.eigh(beside))
    edge = unknown()
    full = Edge(edge.vectors, edge.values, edge.active, edge.near, ritz.T, curvatures)
    with_it, without = (
        ritz_space(lambda v: matrix @ v, near(columns), one.correction, begun=1, wanted=1, rtol=1e-10)
        for one in (full, edge)
    )
    np.testing.assert_allclose([with_it.values[0], without.values[0]], 10, rtol=1e-13)
    assert int(with_it.products) <= 5 < 10 < int(without.products)


@pytest.mark.slow
def test_scouts_find_what_came_to_the_top_at_right_angles_to_all_that_was_known(spectrum):
    """The vectors begun with are exact eigenvectors, so that without scouts nothing leads to the largest one."""
    values, columns = spectrum
    matrix, options = columns * values @ columns.T, {"begun": 2, "wanted": 2, "rtol": 1e-10, "dimension": 24}
    options |= {"scout": lambda: jnp.asarray(columns.sum(axis=1)), "above": 5.0}

    @jax.jit
    def top(scouts):
        space = ritz_space(
            lambda v: matrix @ v, jnp.asarray(columns.T[1:4]), unknown().correction, scouts=scouts, **options
        )
        return space.pairs(1e-10).values[:2], space.products

    for scouts, expected, products in ((0, [9, 4], range(2, 3)), (12, [10, 9], range(14, 100))):
        eigenvalues, count = top(jnp.array(scouts))
        np.testing.assert_allclose(eigenvalues, expected, rtol=1e-12)
        assert int(count) in products


def test_the_resolvent_of_the_central_flow_is_that_of_the_dense_matrix():
    """(I + h(I − P)A + hP/τ)⁻¹ for A = RᵀR and P onto orthonormal rows N, of which some are zero."""
    rng = np.random.default_rng(3)
    rows, vector, tau = rng.normal(size=(6, SIZE)), rng.normal(size=SIZE), 0.1
    normals = np.concatenate([np.linalg.qr(rng.normal(size=(SIZE, 2)))[0].T, np.zeros((1, SIZE))])
    projection = normals.T @ normals

    @jax.jit
    def resolved(h):
        curvature = CentralCurvature.of(jnp.asarray(rows), jnp.asarray(normals), 6, jnp.array(tau))
        return curvature.resolvent(h, jnp.asarray(vector))

    for h in (1e-3, 1.0, 1e4):
        dense = np.eye(SIZE) + h * (np.eye(SIZE) - projection) @ rows.T @ rows + h / tau * projection
        np.testing.assert_allclose(resolved(h), np.linalg.solve(dense, vector), rtol=1e-9, atol=1e-9)
