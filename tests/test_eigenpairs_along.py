"""Eigenpairs along a path, and which continues which where eigenvalues cross."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.curvature import eigenpairs_along, eigenvalues_along
from flowsim.curvature.trajectory import branches_of

SIZE, RECORDS = 40, 24
TURN = np.linalg.qr(np.random.default_rng(0).standard_normal((SIZE, SIZE)))[0]
TIMES = np.linspace(0, 1, RECORDS)


class Turned(eqx.Module):
    weights: jax.Array


class Quartic(flowsim.Problem):
    """The risk Σ (Qw)⁴/12, whose Hessian has the eigenvalues (Qw)² and the rows of Q as eigenvectors."""

    turn: jax.Array

    def __call__(self, network):
        return jnp.sum((self.turn @ network.weights) ** 4) / 12


def crossing(times):
    """Eigenvalues that cross: 2 − t falls, 1 + t rises through it at t = ½ and through 1.45 at t = 0.45."""
    times = np.asarray(times)[:, None]
    rest = np.tile(np.linspace(0, 0.9, SIZE - 3), (len(times), 1))
    return np.concatenate([2 - times, 1.45 + 0 * times, 1 + times, rest], axis=1)


def path_of(eigenvalues):
    return Turned(jnp.asarray(np.sqrt(eigenvalues) @ TURN)), Quartic(jnp.asarray(TURN))


def test_curves_go_straight_through_crossings_begin_where_they_come_from_below_and_have_gaps():
    """Of the two largest, 1.45 is none for 0.45 < t < 0.55, 2 − t none after that, and 1 + t none before."""
    found = eigenpairs_along(*path_of(crossing(TIMES)), np.arange(RECORDS), count=2)
    early, late = TIMES < 0.45, TIMES > 0.55
    expected = [
        np.where(late, np.nan, 2 - TIMES),
        np.where(early, 1.45, np.nan),
        np.where(early, np.nan, 1 + TIMES),
        np.where(late, 1.45, np.nan),
    ]
    assert found.converged.all()
    np.testing.assert_allclose(found.curves(), expected, atol=1e-9)
    np.testing.assert_allclose(found.values, -np.sort(-crossing(TIMES)[:, :3], axis=1)[:, :2], atol=1e-9)
    for place, rows in enumerate(found.vectors.weights):
        hessian = TURN.T @ np.diag(crossing(TIMES)[place]) @ TURN
        np.testing.assert_allclose(rows @ rows.T, np.eye(2), atol=1e-12)
        left = np.linalg.norm(rows @ hessian - found.values[place][:, None] * rows, axis=1)
        assert (left <= found.residuals[place] + 1e-14).all()


@pytest.mark.slow
def test_curves_go_straight_through_a_record_at_the_crossing_and_from_block_to_block():
    """At the crossing the eigenvectors are any basis of a plane.

    A residual of rtol leaves a value the error rtol of 2: 8e-11.
    """
    times = np.linspace(0, 1, 71)
    path, problem = path_of(crossing(times))
    found = eigenpairs_along(path, problem, np.arange(71), count=3)
    np.testing.assert_allclose(found.curves(), crossing(times)[:, :3].T, atol=1e-9)
    np.testing.assert_array_equal(found.values, eigenvalues_along(path, problem, np.arange(71), count=3))


def test_the_value_at_the_last_point_depends_on_that_alone():
    path, problem = path_of(crossing(TIMES))
    ends = [
        eigenvalues_along(path, problem, chosen)[-1, 0] for chosen in (np.arange(12), np.arange(5, 12), np.array([11]))
    ]
    assert ends[0] == ends[1] == ends[2]


def test_where_weights_are_no_numbers_the_curves_end():
    path, problem = path_of(crossing(TIMES))
    broken = Turned(path.weights.at[2].set(np.nan))
    found = eigenpairs_along(broken, problem, np.arange(4), count=2)
    assert found.converged.tolist() == [[True] * 2] * 2 + [[False] * 2] + [[True] * 2]
    np.testing.assert_allclose(found.curves()[:2, :2], [2 - TIMES[:2], [1.45, 1.45]], atol=1e-9)
    assert np.isfinite(found.curves()).sum() == 6
    assert np.isnan(found.curves()[:2, 2:]).all()


def test_no_branch_goes_through_what_was_not_certified_nor_to_a_vector_that_shares_less_than_half_with_its_match():
    values, residuals = np.tile([3.0, 1.0], (4, 1)), np.full((4, 2), 1e-12)
    converged = np.array([[True, True], [True, False], [True, True], [True, True]])
    branches = branches_of(values, residuals, converged, np.tile(np.eye(2), (3, 1, 1)))
    np.testing.assert_array_equal(branches, [[0, 1], [0, 2], [0, 3], [0, 3]])
    turned = np.array([[0.8, 0.1], [0.6, 0.3]])
    branches = branches_of(values[:2], residuals[:2], np.ones((2, 2), bool), turned[None])
    np.testing.assert_array_equal(branches, [[0, 1], [0, 2]])


def test_equal_eigenvalues_are_any_basis_and_the_one_nearest_to_before_goes_on():
    """At the second place the two are equal, and their vectors turned by 50°; at the third they have crossed."""
    angle = np.deg2rad(50)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    values = np.array([[2.0, 1.0], [1.5, 1.5], [2.0, 1.0]])
    overlaps = np.stack([turn, swap @ turn.T])
    branches = branches_of(values, np.full((3, 2), 1e-12), np.ones((3, 2), bool), overlaps)
    np.testing.assert_array_equal(branches, [[0, 1], [0, 1], [1, 0]])
