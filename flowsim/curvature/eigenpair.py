"""Eigenpairs at the ends of the spectrum of a symmetric operator, with their certificates."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..formatting import encodable
from ..formatting.numbers import rounded_down
from ..formatting.presentation import Shown, register_tables
from . import krylov, vectors
from .line import Rows, after, certified, is_no_number, numbers_of, shape_of, tables_of_rows

Operator = Callable[[Float[Array, " p"]], Float[Array, " p"]]


class Eigenpair(Shown, eqx.Module):
    """An eigenvalue estimate that carries its own certificate.

    `repr` is a line; printed, and shown in a notebook, it is a table, but for a batch and inside `jax.jit`.
    """

    value: Float[Array, ""]
    """The eigenvalue."""
    vector: PyTree
    """Its vector, of length one: an array (p,), or a pytree as the weights."""
    residual: Float[Array, ""]
    """Some eigenvalue lies within this of `value`: ‖Hv − value·v‖ plus the rounding of Hv."""
    converged: Bool[Array, ""]
    """Whether the residual is below the tolerance asked for."""
    products: Int[Array, ""]
    """The Hessian–vector products that it took."""

    def __repr__(self) -> str:
        return f"Eigenpair({certified(self.value, self.residual, self.converged)}{after(self.products)})"

    def _rows(self) -> Rows | None:
        return None if is_no_number(self.value) else {"λ": (self.value, self.residual, self.converged)}


class Eigenpairs(Shown, eqx.Module):
    """Several eigenvalue estimates in decreasing order, each with its own certificate.

    `repr` is a line; printed, and shown in a notebook, it is a table, but for a batch and inside `jax.jit`.
    """

    values: Float[Array, " k"]
    """The eigenvalues."""
    vectors: PyTree
    """Their vectors, orthonormal: the weights with a leading axis of k."""
    residuals: Float[Array, " k"]
    """Some eigenvalue lies within each of its value: ‖Hv − value·v‖ plus the rounding of Hv, which is measured."""
    converged: Bool[Array, " k"]
    """Whether each residual is below the tolerance asked for."""
    products: Int[Array, ""]
    """The products with the operator that all took together."""

    def __repr__(self) -> str:
        values = numbers_of(self.values)
        if values is None or values.ndim != 1:
            return f"Eigenpairs({shape_of(self.values)})"
        lines = [certified(*one) for one in zip(self.values, self.residuals, self.converged, strict=True)]
        few = lines if len(lines) <= 4 else [*lines[:3], "…", lines[-1]]
        return encodable(f"Eigenpairs({len(lines)}: {'; '.join(few)}{after(self.products)})")

    def _rows(self) -> Rows | None:
        values = numbers_of(self.values)
        if values is None or values.ndim != 1:
            return None
        rows = zip(self.values, self.residuals, self.converged, strict=True)
        return {f"λ{number}": row for number, row in enumerate(rows, 1)}

    def pair(self, index: int) -> Eigenpair:
        """Return one of them, its vector a pytree as the weights."""
        vector = jax.tree.map(lambda leaf: leaf[index], self.vectors)
        return Eigenpair(self.values[index], vector, self.residuals[index], self.converged[index], self.products)


register_tables(Eigenpair, tables_of_rows)
register_tables(Eigenpairs, tables_of_rows)


# LAPACK under vmap, a batch of matrices at once, corrupts memory on hosts of many cores (jax issue 39292): one by one.
@sequential_vmap
def decomposition(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Return the eigenvalues of a symmetric matrix in increasing order, and the eigenvectors as columns."""
    values, columns = jnp.linalg.eigh(matrix)
    return values, columns


@sequential_vmap
def eigenvalues(matrix: Float[Array, "n n"]) -> Float[Array, " n"]:
    """Return the eigenvalues of a symmetric matrix in increasing order."""
    return jnp.linalg.eigvalsh(matrix)


def default_rtol(dtype: jnp.dtype) -> float:
    """Return the tolerance that rounding leaves within reach: ε^(2/3), which is 4e-11 in float64, 2e-5 in float32."""
    return float(jnp.finfo(dtype).eps) ** (2 / 3)


def least_rtol(dtype: jnp.dtype) -> float:
    """Return the smallest tolerance that may be asked for: ten roundings."""
    return rounded_down(10 * float(jnp.finfo(dtype).eps), digits=2)


def resolve_rtol(rtol: float | None, dtype: jnp.dtype) -> float | Array:
    """Return the tolerance asked for, or the default.

    Args:
        rtol: What was asked for; `None` for the default.
        dtype: The type of the weights.

    Returns:
        The tolerance.

    Raises:
        ValueError: For one that the precision cannot meet.
    """
    if rtol is None:
        return default_rtol(dtype)
    if isinstance(rtol, Tracer):
        return rtol
    least = least_rtol(dtype)
    if not rtol >= least:
        raise ValueError(
            f"rtol={rtol} is out of reach in {jnp.dtype(dtype).name}: give {least:.1e} or more, or weights in float64"
        )
    return float(rtol)


def eigenpairs_dense(
    matrix: Float[Array, "p p"], *, largest: int = 1, smallest: int = 0, rtol: float | None = None
) -> Eigenpairs:
    """Return eigenpairs at the ends of the spectrum of a matrix by a full decomposition of its symmetric part.

    Its antisymmetric part, which is nothing but rounding in a Hessian, counts as a residual.
    """
    tolerance = resolve_rtol(rtol, matrix.dtype)
    wanted = jnp.array(_ends(matrix.shape[0], largest, smallest))
    symmetric, skew = (matrix + matrix.T) / 2, (matrix - matrix.T) / 2
    values, columns = decomposition(symmetric)
    chosen, rows = values[wanted], columns[:, wanted].T
    norms = jax.vmap(vectors.norm)
    residuals = norms(rows @ symmetric - chosen[:, None] * rows) + norms(rows @ skew)
    converged = residuals <= tolerance * jnp.max(jnp.abs(values))
    return Eigenpairs(chosen, rows, residuals, converged, jnp.asarray(matrix.shape[0]))


def eigenpair_lanczos(
    product: Operator,
    start: Float[Array, " p"],
    *,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of a symmetric operator on flat vectors: see `eigenpairs_lanczos`.

    Args:
        product: The operator: it maps (p,) to (p,).
        start: The first vector, of shape (p,).
        dimension: That of the Krylov spaces.
        rtol: A bound on the residual, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        The eigenvalue, its vector of shape (p,) and its residual.

    Raises:
        ValueError: For a dimension below 3, and a tolerance that the precision cannot meet.
    """
    pairs = eigenpairs_lanczos(product, start[None], dimension=dimension, rtol=rtol, max_restarts=max_restarts)
    return pairs.pair(0)


def eigenpairs_lanczos(
    product: Callable[[PyTree], PyTree],
    start: PyTree,
    *,
    largest: int = 1,
    smallest: int = 0,
    dimension: int | None = None,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpairs:
    """Return the largest and the smallest eigenpairs of a symmetric operator by thick-restart Lanczos.

    Nothing is flattened, so sharded leaves stay where they are. Works under `jax.jit` and `jax.vmap`.

    Each round widens a Krylov space to `dimension` vectors with full reorthogonalization, and keeps the wanted Ritz
    vectors and a third of the others for the next: a single vector would stagnate where the ends of the spectrum are
    crowded (Wu and Simon 2000). Rounds end when the residuals that the recurrence predicts are below a quarter of
    `rtol` times the largest absolute Ritz value, or after `max_restarts`. The certificate is then computed from one
    more product for each pair, and counts as rounding what differs from the prediction: Lanczos vectors that fail it
    come back with `converged` false, as they do where H is not finite.

    A residual certifies that *an* eigenvalue is there, not that none is further out. A block of b random vectors has
    every eigenvalue up to b times almost surely; further copies of one can be missed.

    Memory: some dimension + block + 6 vectors besides what `product` needs; twice as many with JAX 0.6, whose XLA holds
    the basis twice.

    Args:
        product: The operator: it maps a pytree to one of the same structure.
        start: Such a pytree with a leading axis of one or more first vectors, the block.
        largest: How many of the largest eigenpairs.
        smallest: How many of the smallest.
        dimension: That of the Krylov spaces; by default 24, or 3(largest + smallest) + 2 block if that is more.
        rtol: A bound on the residuals, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        The largest and then the smallest, in decreasing order, with vectors as rows of `start`.

    Raises:
        ValueError: For a dimension, a number of pairs or a tolerance that cannot be.
    """
    block = jax.tree.leaves(start)[0].shape[0]
    size = vectors.size_of(start) // block
    tolerance = resolve_rtol(rtol, vectors.dtype_of(start))
    count = largest + smallest
    dimension = max(24, 3 * count + 2 * block) if dimension is None else dimension
    least = min(count + max(2, block), size)
    if dimension < least:
        raise ValueError(
            f"dimension={dimension} leaves no room for {count} eigenpairs and a block of {block}: give {least} or more"
        )
    dimension = min(dimension, size)

    # Which of the Ritz values, in increasing order, are wanted, and which others are kept for the next round.
    wanted, spare = _ends(dimension, largest, smallest), (dimension - count) // 3
    below = spare * smallest // count
    both = _ends(dimension, largest + spare - below, smallest + below)
    others = [index for index in both if index not in wanted]
    rounds = 1 if dimension == size else max_restarts
    return _search(product, krylov.begin(start, dimension), wanted, others, tolerance, rounds)


def _ends(size: int, largest: int, smallest: int) -> list[int]:
    """Return the indices of the ends of an increasing sequence, from the largest to the smallest."""
    if min(largest, smallest) < 0 or not 1 <= largest + smallest <= size:
        raise ValueError(
            f"asked for {largest} largest and {smallest} smallest eigenvalues of {size}: expected 1 to {size}"
        )
    return [*range(size - 1, size - 1 - largest, -1), *range(smallest - 1, -1, -1)]


def are_products_dear(weights: int, *, many: int = 2**11) -> bool:
    """Tell whether a product with so many weights costs more than the decomposition of a small projected matrix."""
    return weights > many


class _Search(eqx.Module):
    """A space, and its Ritz pairs where it had `checked` rows; `done` once its first rows are those that are wanted.

    Then so many of these are `certified`, one after the other, by their Rayleigh `quotients` and their `residuals`.
    """

    space: krylov.Krylov
    checked: Int[Array, ""]
    values: Float[Array, " dimension"]
    ritz: Float[Array, "dimension dimension"]
    done: Bool[Array, ""]
    rounds: Int[Array, ""]
    products: Int[Array, ""]
    certified: Int[Array, ""]
    quotients: Float[Array, " k"]
    residuals: Float[Array, " k"]


def _search(
    product: Callable,
    space: krylov.Krylov,
    ends: list[int],
    others: list[int],
    tolerance: float | Array,
    most_rounds: int,
    *,
    stride: int = 4,
) -> Eigenpairs:
    """Return the pairs at the `ends`, searched to a quarter of the tolerance and certified to all of it.

    Both `ends` and the `others`, which a restart keeps too, are indices of Ritz values in increasing order.
    Where products cost the most, convergence is checked after every `stride` of them, otherwise once a round. One loop
    makes the products that widen the space and those that certify, so that its program holds the product once.
    """
    rows, dimension = space.coupling.shape
    stride = stride if are_products_dear(vectors.size_of(space.basis) // rows) else dimension
    wanted, kept, count = jnp.array(ends), jnp.array([*ends, *others]), len(ends)

    def step(state: _Search) -> _Search:
        searching = ~state.done
        row = jnp.where(searching, state.space.filled, state.certified)
        space, unit = krylov.with_image(product, state.space, row)
        state = replace(state, space=space)
        state = _once(searching, partial(widen, unit), state)
        state = _once(~searching, partial(certify, unit), state)
        return replace(state, products=state.products + 1)

    def widen(unit: Array, state: _Search) -> _Search:
        state = replace(state, space=krylov.with_direction(state.space, unit))
        due = state.space.filled >= jnp.minimum(state.checked + stride, dimension)
        return _once(due, check, state)

    def check(state: _Search) -> _Search:
        values, ritz = decomposition(state.space.projection())
        done = _is_settled(state.space, values, ritz[:, wanted], tolerance / 4)
        full = state.space.filled >= dimension
        done = done | (full & (state.rounds + 1 >= most_rounds))
        checked = replace(state, checked=state.space.filled, values=values, ritz=ritz, done=done)
        return _once(done | full, restart, checked)

    def restart(state: _Search) -> _Search:
        turn = jnp.where(state.done, count, len(kept))
        space = krylov.restart(state.space, state.values[kept], state.ritz[:, kept], turn)
        return replace(state, space=space, checked=space.filled, rounds=state.rounds + 1)

    def certify(unit: Array, state: _Search) -> _Search:
        index = state.certified
        quotient, residual = _certificate(unit, state.space, index)
        here = jnp.arange(count) == index
        quotients, residuals = jnp.where(here, quotient, state.quotients), jnp.where(here, residual, state.residuals)
        return replace(state, certified=index + 1, quotients=quotients, residuals=residuals)

    zeros, none = jnp.zeros((dimension, dimension), space.coupling.dtype), jnp.array(0)
    unknown = jnp.zeros(count, zeros.dtype)
    first = _Search(space, none, zeros[0], zeros, jnp.array(False), none, none, none, unknown, unknown)
    last = jax.lax.while_loop(lambda state: state.certified < count, step, first)
    rows = jax.tree.map(lambda leaf: leaf[:count], last.space.basis)
    converged = last.residuals <= tolerance * jnp.max(jnp.abs(last.values))
    return Eigenpairs(last.quotients, rows, last.residuals, converged, last.products)


def _once(condition: Bool[Array, ""], function: Callable[[_Search], _Search], state: _Search) -> _Search:
    """Return `function(state)` where the condition holds: a conditional would copy the basis, a loop does not."""
    return jax.lax.while_loop(
        lambda pair: pair[0], lambda pair: (jnp.zeros_like(condition), function(pair[1])), (condition, state)
    )[1]


def _is_settled(
    space: krylov.Krylov, values: Array, ritz: Float[Array, "dimension k"], tolerance: float | Array
) -> Array:
    """Tell whether the Ritz pairs need no further round, being good enough or no numbers."""
    predicted = jax.vmap(vectors.norm, in_axes=1)(space.remainders(ritz))
    void = (jnp.arange(len(values)) >= space.filled)[:, None] & (jnp.abs(ritz) > jnp.finfo(ritz.dtype).eps)
    settled = jnp.all(predicted <= tolerance * jnp.max(jnp.abs(values))) & ~jnp.any(void)
    return settled | ~jnp.all(jnp.isfinite(values))


def _certificate(
    unit: Float[Array, ""], space: krylov.Krylov, index: Int[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the Rayleigh quotient and the residual of a row whose image the space holds, divided by `unit`.

    What differs from the residual that the recurrence predicts counts as rounding, and is added to it.
    """
    column = jax.lax.dynamic_index_in_dim(space.coupling, index, axis=1, keepdims=False)
    predicted = jnp.where(jnp.arange(len(column)) >= space.filled, column / unit, 0)
    vector, image = (vectors.row(space.basis, row) for row in (index, space.void))
    quotient = vectors.inner_product(vector, image)
    left = vectors.difference(image, vectors.scaled(quotient, vector))
    rounding = vectors.difference(left, vectors.combination(predicted, space.basis))
    return unit * quotient, unit * (vectors.length(left) + vectors.length(rounding))
