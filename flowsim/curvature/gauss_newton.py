"""Low-rank curvature: the Gauss–Newton matrix A = GᵀG of a risk, what it leaves out, and the top of any Hessian."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..problems import Problem
from . import krylov, vectors
from .eigenpair import decomposition


class GaussNewton:
    """The operator A = GᵀG + μI, with G of shape (m, weights), as a linearly implicit method uses it.

    Args:
        inner: v ↦ Gv, from the weights to (m,).
        outer: c ↦ Gᵀc, from (m,) to the weights.
        gram: GGᵀ.
        passes: The linearized passes over all data that G took; by default m.
        shift: μ, zero or more.
    """

    def __init__(
        self,
        inner: Callable[[PyTree], Float[Array, " m"]],
        outer: Callable[[Float[Array, " m"]], PyTree],
        gram: Float[Array, "m m"],
        passes: int | None = None,
        shift: Float[Array, ""] | float = 0.0,
    ):
        self.inner, self.outer, self.gram, self.shift = inner, outer, gram, shift
        self.passes = gram.shape[0] if passes is None else passes

    def __call__(self, vector: PyTree) -> PyTree:
        """Return Av."""
        stiff = self.outer(self.inner(vector))
        return jax.tree.map(lambda a, b: a + self.shift * b, stiff, vector)

    def shifted(self, shift: Float[Array, ""] | float) -> "GaussNewton":
        """Return A + μI for another μ, the `shift`."""
        return GaussNewton(self.inner, self.outer, self.gram, self.passes, self.shift + shift)

    @classmethod
    def of_rows(cls, rows: PyTree, passes: int | None = None) -> "GaussNewton":
        """Return the operator of a matrix G that is given by its rows.

        Args:
            rows: The weights with a leading axis of m rows.
            passes: The linearized passes over all data that G took; by default m.

        Returns:
            The operator GᵀG.
        """
        leaves, structure = jax.tree.flatten(rows)
        matrices = [leaf.reshape(leaf.shape[0], -1) for leaf in leaves]

        def inner(vector: PyTree) -> Array:
            return vectors.sum_of(
                matrix @ leaf.ravel() for matrix, leaf in zip(matrices, jax.tree.leaves(vector), strict=True)
            )

        def outer(coefficients: Array) -> PyTree:
            flat = [coefficients @ matrix for matrix in matrices]
            return structure.unflatten([f.reshape(leaf.shape[1:]) for f, leaf in zip(flat, leaves, strict=True)])

        return cls(inner, outer, vectors.sum_of(matrix @ matrix.T for matrix in matrices), passes)

    @classmethod
    def matrix_free(
        cls, outputs: Callable[[PyTree], Array], weights: PyTree, gram: Float[Array, "m m"] | None
    ) -> "GaussNewton":
        """Return the operator of the Jacobian G of some outputs, applied by derivatives of them.

        Args:
            outputs: A function of the weights that returns m numbers.
            weights: Where its Jacobian is taken.
            gram: GGᵀ; with `None` it is built by m products with G and with Gᵀ, one after the other.

        Returns:
            The operator GᵀG.
        """
        value, inner = jax.linearize(outputs, weights)
        transpose = jax.linear_transpose(inner, weights)

        def outer(coefficients: Array) -> PyTree:
            return transpose(coefficients)[0]

        def column(unit: Array) -> Array:
            return inner(outer(unit))

        units = jnp.eye(value.size, dtype=value.dtype)
        return cls(inner, outer, jax.lax.map(column, units) if gram is None else gram)

    @property
    def size(self) -> Float[Array, ""]:
        """The Frobenius norm of GGᵀ, which is that of GᵀG."""
        return jnp.linalg.norm(self.gram)

    @property
    def stiffness(self) -> Float[Array, ""]:
        """The length of the longest column of GGᵀ: a lower bound of the largest eigenvalue, close to it."""
        return jnp.max(jnp.linalg.norm(self.gram, axis=0)) + self.shift

    def with_rows(self, rows: PyTree) -> "GaussNewton":
        """Return A + RᵀR for R given as the weights with a leading axis of rows, known already."""
        added, own = GaussNewton.of_rows(rows), self.gram.shape[0]
        across = jax.vmap(self.inner)(rows)

        def inner(vector: PyTree) -> Array:
            return jnp.concatenate([self.inner(vector), added.inner(vector)])

        def outer(coefficients: Array) -> PyTree:
            return jax.tree.map(jnp.add, self.outer(coefficients[:own]), added.outer(coefficients[own:]))

        gram = jnp.block([[self.gram, across.T], [across, added.gram]])
        return GaussNewton(inner, outer, gram, self.passes, self.shift)

    def resolvent(self, h: Float[Array, ""], *, damping: float = 1e-3) -> Callable[[PyTree], PyTree]:
        """Return v ↦ (I + hA)⁻¹v, at the price of one Cholesky factorization.

        That is (v − hGᵀ(I + hGGᵀ)⁻¹Gv)/(1 + hμ) with h/(1 + hμ) in the place of h (Woodbury). Where the rounding of the
        inverse would change what is left of v in a stiff direction by more than the share `damping`, it is refined.
        """
        own = 1 + h * self.shift
        h = h / own
        # Rounding may leave GGᵀ with slightly negative eigenvalues, which a very long step would amplify.
        slack = 1 + 4 * jnp.finfo(self.gram.dtype).eps * h * jnp.trace(self.gram)
        identity = jnp.eye(self.gram.shape[0], dtype=self.gram.dtype)
        trace = jnp.trace(self.gram)
        matrix = slack * identity + h * self.gram
        inverse = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix, lower=True), identity)
        inexact = jnp.finfo(self.gram.dtype).eps * (h * trace) ** 2 > damping

        def apply(vector: PyTree) -> PyTree:
            outputs = self.inner(vector)
            solution = inverse @ outputs
            # In a stiff direction v/hλ is left, and the inverse adds ε·hλ·v. A step of iterative refinement takes that
            # away (Higham 2002, chapter 12).
            solution = jax.lax.cond(
                inexact, lambda: solution + inverse @ (outputs - matrix @ solution), lambda: solution
            )
            stiff = self.outer(h * solution)
            return jax.tree.map(lambda a, b: (a - b) / own, vector, stiff)

        return apply


def gauss_newton(weights: PyTree, problem: Problem, as_network: Callable[[PyTree], Any]) -> GaussNewton:
    """Return the Gauss–Newton matrix of a problem.

    G is stored, m times the weights, while it has at most 2²² entries, or 2¹² where GGᵀ has a closed form; beyond, it
    is applied by derivatives.

    Args:
        weights: Where it is taken.
        problem: The risk, which knows its `curved_outputs`.
        as_network: What makes the network of the weights.

    Returns:
        The operator GᵀG.

    Raises:
        TypeError: For a problem without `curved_outputs`.
    """
    network = as_network(weights)
    if problem.rank(network) is None:
        raise TypeError(
            "the Gauss-Newton matrix, which LowRankExtrapolation steps with, is made of the curved_outputs of the "
            f"problem; {type(problem).__name__} has none: use StabilitySwitching"
        )
    stored = _is_stored(problem, network, weights)
    rows = problem.output_jacobian(as_network, weights) if stored else None
    if rows is None:
        # The curvature of the outputs is that at `weights`, wherever they are differentiated.
        curved = problem.curved_outputs(network)
        assert curved is not None  # as the rank is known

        def outputs(moved: PyTree) -> Float[Array, " m"]:
            return curved(as_network(moved))

        if not stored:
            matrix = GaussNewton.matrix_free(outputs, weights, problem.output_gram(network))
            return matrix.shifted(problem.identity_curvature)
        rows = jax.jacrev(outputs)(weights)
    elif jax.tree.structure(rows) != jax.tree.structure(weights):
        # The weights are one vector here, and the network knows its Jacobian in its own shape.
        rows = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(rows)], axis=1)
    return GaussNewton.of_rows(rows, problem.jacobian_passes(network)).shifted(problem.identity_curvature)


def gauss_newton_passes(weights: PyTree, problem: Problem, as_network: Callable[[PyTree], Any]) -> int | None:
    """Return the `passes` that `gauss_newton` takes, without computing it.

    Args:
        weights: Where it would be taken.
        problem: The risk.
        as_network: What makes the network of the weights.

    Returns:
        The number of linearized passes over all data; `None` where there is no such matrix.
    """
    network = as_network(weights)
    if problem.rank(network) is None:
        return None
    stored = _is_stored(problem, network, weights)
    return problem.jacobian_passes(network) if stored else problem.rank(network)


def knows_gram(network: Any, problem: Problem) -> bool:
    """Tell whether GGᵀ has a closed form, without computing it.

    Args:
        network: The network that it would be computed of.
        problem: The risk, whose outputs G is the Jacobian of.

    Returns:
        Whether it has.
    """
    return eqx.filter_eval_shape(problem.output_gram, network) is not None


def _is_stored(
    problem: Problem, network: Any, weights: PyTree, *, entries: int = 2**22, entries_with_gram: int = 2**12
) -> bool:
    """Tell whether G is stored, having at most so many entries.

    More than 2²² (32 MiB in float64) do not fit into a cache, and G is applied without being formed; where GGᵀ has a
    closed form, that is faster much earlier.
    """
    rank = problem.rank(network)
    assert rank is not None  # as the caller has looked
    most = entries_with_gram if knows_gram(network, problem) else entries
    return rank * vectors.size_of(weights) <= most


def dominant_curvature(product: Callable[[PyTree], PyTree], start: PyTree, dimension: int) -> GaussNewton:
    """Return A = GᵀG, the positive part of a symmetric operator on a Krylov space of the rows of `start`.

    Its largest Ritz pairs are those of the operator, nearly, after few products; of the others A holds some average.
    Costs `dimension` products and some 2·dimension vectors.

    Args:
        product: The operator: it maps a pytree to one of the same structure.
        start: Such a pytree with a leading axis of one or more rows.
        dimension: That of the Krylov space.

    Returns:
        The operator A, with its rows G.
    """
    dimension = min(dimension, vectors.size_of(start) // jax.tree.leaves(start)[0].shape[0])
    space = krylov.krylov_space(product, start, dimension)
    values, ritz = decomposition(space.projection())
    basis = jax.tree.map(lambda leaf: leaf[: len(values)], space.basis)
    rows = vectors.combination(jnp.sqrt(jnp.maximum(values, 0))[:, None] * ritz.T, basis)
    # Small parts of Ritz vectors are what is left of the start.
    return GaussNewton.of_rows(vectors.pruned(rows, float(jnp.finfo(values.dtype).eps) ** 0.5), dimension)


class ResidualCurvature(eqx.Module):
    """The part of C = H − GᵀG, residuals times second derivatives of the outputs, that curves most.

    It is RᵀR: C on its eigenvectors of largest absolute eigenvalue, those below zero left out. They are followed along
    a path by subspace iteration: an update makes the directions orthonormal, and takes one product with C for each,
    which turns them towards the eigenvectors.
    """

    rows: PyTree
    """R: the weights with a leading axis."""
    directions: PyTree
    """The directions that are followed: the weights with a leading axis."""
    size: Float[Array, ""]
    """The length of the longest product, a lower bound of the norm of C."""

    @classmethod
    def unknown(cls, weights: PyTree, count: int) -> "ResidualCurvature":
        """Return the state before the first update.

        Its directions are odd functions of the weights, entry by entry: hidden units that are equal, which a flow keeps
        so, are equal in every direction too. Random ones would lead a flow away from a saddle that it converges to.

        Args:
            weights: Where it begins.
            count: How many directions are followed, at most as many as there are weights.

        Returns:
            The state, without curvature.
        """
        count, unit = min(count, vectors.size_of(weights)), vectors.peak(weights)
        rows = jax.tree.map(lambda leaf: _odd_chebyshev(leaf, count), vectors.divided(weights, unit))
        return cls(jax.tree.map(jnp.zeros_like, rows), rows, jnp.zeros((), vectors.dtype_of(weights)))

    def update(self, product: Callable[[PyTree], PyTree], *, batched_up_to: int = 2**17) -> "ResidualCurvature":
        """Return the state after one more update, `product` being v ↦ Cv.

        The products are taken all at once if the directions have at most `batched_up_to` entries together, otherwise
        one after the other, which needs less memory.
        """
        together = vectors.size_of(self.directions) <= batched_up_to
        directions = _orthonormal(self.directions)
        images = (jax.vmap(product) if together else lambda rows: jax.lax.map(product, rows))(directions)
        projected = vectors.gram(directions, images)
        values, turn = decomposition((projected + projected.T) / 2)
        towards, images = (vectors.combination(turn.T, rows) for rows in (directions, images))
        lengths = jax.vmap(vectors.norm)(images)
        # A direction in the null space of C stays as it is: C may act on it later.
        share = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1), 0)
        turned = jax.tree.map(jnp.add, _times(share, images), _times(jnp.where(lengths > 0, 0.0, 1.0), towards))
        rows = _times(jnp.sqrt(jnp.maximum(values, 0)), towards)
        return ResidualCurvature(rows, turned, jnp.max(lengths))


def _odd_chebyshev(x: Array, count: int) -> Float[Array, "count ..."]:
    """Return the Chebyshev polynomials T₁, T₃, T₅, … of every entry, in rows."""
    before, rows = x, [x]
    for _ in range(count - 1):
        before, rows = rows[-1], [*rows, (4 * x**2 - 2) * rows[-1] - before]
    return jnp.stack(rows)


def _orthonormal(rows: PyTree) -> PyTree:
    """Return orthonormal rows that span what `rows` do, which are of like lengths; rounding may leave some shorter."""
    gram = vectors.gram(rows, rows)
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    # Weights that are all zero have no directions, and rows of zeros stay what they are.
    slack = jnp.where(jnp.trace(gram) > 0, 10 * jnp.finfo(gram.dtype).eps * jnp.trace(gram), 1)
    lower = jnp.linalg.cholesky(gram + slack * identity)
    return vectors.combination(jax.scipy.linalg.solve_triangular(lower, identity, lower=True), rows)


def _times(factors: Float[Array, " k"], rows: PyTree) -> PyTree:
    return jax.vmap(vectors.scaled)(factors, rows)
