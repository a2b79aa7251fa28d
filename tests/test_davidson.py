"""Davidson's method, and the curvature that the central flow steps with, against dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowsim.curvature.davidson import ritz_space
from flowsim.edge.central_curvature import CentralCurvature
from flowsim.edge.central_field import Edge

SIZE = 40
WEIGHTS = {"a": np.zeros(30), "b": np.zeros((2, 5))}


def as_rows(matrix):
    """Return the rows of a matrix as weights with a leading axis."""
    return {"a": jnp.asarray(matrix[..., :30]), "b": jnp.asarray(matrix[..., 30:]).reshape(*matrix.shape[:-1], 2, 5)}


def as_matrix(rows):
    leaves = [np.asarray(rows["a"]), np.asarray(rows["b"])]
    return np.concatenate([leaves[0], leaves[1].reshape(*leaves[1].shape[:-2], 10)], axis=-1)


def product_of(matrix):
    def product(vector):
        flat = jnp.concatenate([vector["a"], vector["b"].ravel()])
        return as_rows(jnp.asarray(matrix) @ flat)

    return product


@pytest.fixture(scope="module")
def spectrum():
    """Eigenvalues 10, 9, 4, and others from −3 to 3, and the eigenvectors as columns."""
    rng = np.random.default_rng(0)
    columns = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    return np.concatenate([[10, 9, 4], np.linspace(3, -3, SIZE - 3)]), columns


def near(columns, *, off=1e-2):
    """Return rows next to the first eigenvectors."""
    return as_rows(columns.T[:3] + off * np.random.default_rng(1).normal(size=(3, SIZE)))


@pytest.mark.slow
def test_pairs_are_refined_until_their_residuals_are_below_the_tolerance(spectrum):
    values, columns = spectrum
    matrix = columns * values @ columns.T
    known = Edge.unknown(WEIGHTS, 2, scouts=0)
    space = ritz_space(product_of(matrix), near(columns), known.correction, begun=3, wanted=2, rtol=1e-11)
    found = space.pairs(1e-11)
    np.testing.assert_allclose(found.values[:2], values[:2], rtol=1e-13)
    rows = as_matrix(found.vectors)[:2]
    np.testing.assert_allclose(np.abs(np.sum(rows.T * columns[:, :2], axis=0)), 1, rtol=1e-13)
    left = np.linalg.norm(rows @ matrix - np.asarray(found.values[:2])[:, None] * rows, axis=1)
    assert (left <= 1.1e-11 * values[0]).all()
    assert found.converged[:2].all()
    assert not found.converged[2]


@pytest.mark.slow
def test_a_curvature_known_nearby_saves_most_products(spectrum):
    values, columns = spectrum
    matrix = columns * values @ columns.T
    beside = matrix + 1e-3 * np.diag(np.random.default_rng(2).normal(size=SIZE))
    known_values, known_columns = np.linalg.eigh(beside)
    edge = Edge.unknown(WEIGHTS, 2, scouts=0)
    full = Edge(edge.vectors, edge.values, edge.active, edge.near, as_rows(known_columns.T), jnp.asarray(known_values))
    options = {"begun": 1, "wanted": 1, "rtol": 1e-10}
    with_it, without = (
        ritz_space(product_of(matrix), near(columns), one.correction, **options) for one in (full, edge)
    )
    np.testing.assert_allclose([with_it.values[0], without.values[0]], 10, rtol=1e-13)
    assert int(with_it.products) <= 5 < 10 < int(without.products)


@pytest.mark.slow
def test_scouts_find_what_came_to_the_top_at_right_angles_to_all_that_was_known(spectrum):
    """The vectors begun with are exact eigenvectors, so that without scouts nothing leads to the largest one."""
    values, columns = spectrum
    product, start = product_of(columns * values @ columns.T), as_rows(columns.T[1:4])
    known, seed = Edge.unknown(WEIGHTS, 2, scouts=0), as_rows(columns.sum(axis=1))

    def top(scouts):
        space = ritz_space(
            product, start, known.correction, begun=2, wanted=2, rtol=1e-10, dimension=24, scout=lambda: seed,
            scouts=scouts, above=5.0,
        )  # fmt: skip
        return np.asarray(space.pairs(1e-10).values[:2]), int(space.products)

    blind, seen = top(jnp.array(0)), top(jnp.array(12))
    np.testing.assert_allclose(blind[0], [9, 4], rtol=1e-12)
    np.testing.assert_allclose(seen[0], [10, 9], rtol=1e-12)
    assert blind[1] == 2
    assert seen[1] >= 14


def test_the_resolvent_of_the_central_flow_is_that_of_the_dense_matrix():
    """(I + h(I − P)A + hP/τ)⁻¹ for A = RᵀR and P onto orthonormal rows N, of which some are zero."""
    rng = np.random.default_rng(3)
    rows, vector, tau = rng.normal(size=(6, SIZE)), rng.normal(size=SIZE), 0.1
    normals = np.concatenate([np.linalg.qr(rng.normal(size=(SIZE, 2)))[0].T, np.zeros((1, SIZE))])
    projection = normals.T @ normals

    @jax.jit
    def resolved(h):
        curvature = CentralCurvature.of(as_rows(rows), as_rows(normals), 6, jnp.array(tau))
        return curvature.resolvent(h, as_rows(vector))

    for h in (1e-3, 1.0, 1e4):
        dense = np.eye(SIZE) + h * (np.eye(SIZE) - projection) @ rows.T @ rows + h / tau * projection
        found = as_matrix(resolved(h))
        np.testing.assert_allclose(found, np.linalg.solve(dense, vector), rtol=1e-9, atol=1e-9)
