"""The field of the central flow: the gradient flow, held where descent oscillates.

Cohen, Damian, Talwalkar, Kolter and Lee (2024, "Understanding optimization in deep learning with central flows") follow
the mean of descent's iterates, over an oscillation whose covariance Σ is what keeps every curvature at 2/η or below:

    dW/dt = −∇R − ½ ∇⟨H, Σ⟩,    Σ = Uᵀ X U ⪰ 0,    0 ⪯ X ⊥ 2/η − H_U ⪰ 0,

with the rows U of eigenvectors at the edge and H_U = U H Uᵀ. Along the flow dH_U/dt = A − B[X], with
T_ij = ∇(u_iᵀHu_j), A_ij = −⟨T_ij, ∇R⟩ and B_ij,kl = ½⟨T_ij, T_kl⟩. So X is the solution of

    0 ⪯ X ⊥ (2/η − H_U)/τ − A + B[X] ⪰ 0.

At the edge H_U = 2/η, and this is the complementarity problem of the paper. Off it, where rounding, a step or the
initialization has led, it is that of the paper's own implementation, in which τ is the length of a step: eigenvalues
above 2/η come back at a rate 1/τ, and those below may rise until they are there.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import GaussNewton, vectors
from ..curvature.davidson import eigenpairs_davidson
from ..curvature.eigenpair import decomposition
from ..curvature.third_derivative import contraction
from ..solvers.field import GradientField, norm
from .complementarity import complementary_covariance, from_basis, in_basis


class CentralCurvature(eqx.Module):
    """An approximation of −∂F/∂W for the central flow, with a cheap resolvent.

    With A = GᵀG near the Hessian, given by the `rows` G, and P the projection onto the `normals`, orthonormal rows that
    span what the eigenvalues at the edge cannot follow: −∂F/∂W ≈ (I − P)(A + C) + P/τ. Along the edge the gradient flow
    goes on, and across it a departure fades within the `relaxation` τ. C is what makes the edge bend: ½⟨∇²H_U, X⟩, of
    which the part RᵀR with the rows `bends` grows without bound where another eigenvalue comes near. Rows of zeros
    count for nothing.
    """

    rows: PyTree
    normals: PyTree
    bends: PyTree
    relaxation: Float[Array, ""]

    @property
    def passes(self) -> int:
        """None: the rows are known before the step."""
        return 0

    @property
    def size(self) -> Float[Array, ""]:
        """The Frobenius norm of A."""
        return GaussNewton.of_rows(self.rows).size

    def resolvent(self, h: Float[Array, ""]) -> Callable[[PyTree], PyTree]:
        """Return (I + h(I − P)A + hP/τ)⁻¹."""
        rows = jax.tree.map(lambda *both: jnp.concatenate(both), self.rows, self.bends)
        whole, across = GaussNewton.of_rows(rows), GaussNewton.of_rows(self.normals)
        mixed = vectors.gram(rows, self.normals)
        tangent = jax.tree.map(jnp.subtract, rows, vectors.combination(mixed, self.normals))
        along = GaussNewton.of_rows(tangent).resolvent(h)

        def off_the_normals(vector: PyTree) -> PyTree:
            return vectors.difference(vector, across.outer(across.inner(vector)))

        def apply(vector: PyTree) -> PyTree:
            normal = across.outer(across.inner(vector) / (1 + h / self.relaxation))
            pushed = vectors.scaled(h, whole.outer(whole.inner(normal)))
            moved = along(off_the_normals(vectors.difference(vector, pushed)))
            return jax.tree.map(jnp.add, moved, normal)

        return apply

    def correction(self, *, least_apart: float = 0.05) -> Callable[[PyTree, Float[Array, ""]], PyTree]:
        """Return (r, θ) ↦ (A − θ)⁻¹r, with no difference of eigenvalues below the part `least_apart` of θ."""
        whole = GaussNewton.of_rows(self.rows)
        values, columns = decomposition(whole.gram)
        values = jnp.maximum(values, 0)

        def apply(residual: PyTree, value: Float[Array, ""]) -> PyTree:
            value = jnp.where(jnp.abs(value) > 0, value, 1)
            apart, least = values - value, least_apart * jnp.abs(value)
            apart = jnp.where(jnp.abs(apart) < least, jnp.where(apart < 0, -least, least), apart)
            rise = jnp.where(values > 0, (1 / apart + 1 / value) / jnp.where(values > 0, values, 1), 0)
            core = (columns * rise[None]) @ columns.T
            known = whole.outer(core @ whole.inner(residual))
            return jax.tree.map(lambda a, r: a - r / value.astype(r.dtype), known, residual)

        return apply


class Edge(eqx.Module):
    """The top of the spectrum at a point: k rows of `vectors` and their `values`, in decreasing order.

    The first `active` are held at the edge, the first `near` ≥ `active` are worth following. `rows` are those of a
    matrix near the Hessian.
    """

    vectors: PyTree
    values: Float[Array, " k"]
    active: Int[Array, ""]
    near: Int[Array, ""]
    rows: PyTree

    def room(self, most: int) -> int:
        """Return how many eigenvalues may be held at once: `most`, or the number of weights if that is less."""
        return min(most, len(self.values))


class Reading(eqx.Module):
    """The field at a point and what it is made of: U, H_U, X and T, the last in `symmetric_basis`.

    `vectors` and `values` have k rows, of which `covariance`, X, has those that may be held at once. `slack`
    is the least eigenvalue of X, and less than zero where X has lost rank.
    """

    slope: PyTree
    objective: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    vectors: PyTree
    values: Float[Array, " k"]
    covariance: Float[Array, "m m"]
    slack: Float[Array, ""]
    tangents: PyTree
    products: Int[Array, ""]


class CentralField(eqx.Module):
    """The right-hand side of the central flow next to a point of which `edge` is known.

    `rtol` is that of the eigenvectors. τ is the `relaxation`.
    """

    field: GradientField
    learning_rate: Float[Array, ""]
    relaxation: Float[Array, ""]
    rtol: Float[Array, ""]
    edge: Edge
    curvature: CentralCurvature
    most: int = eqx.field(static=True)

    def __call__(self, t: object, weights: PyTree, args: object) -> PyTree:
        """Return the derivative of the weights in time; it depends on neither `t` nor `args`."""
        return self.counted(weights)[0]

    def counted(self, weights: PyTree) -> tuple[PyTree, Int[Array, ""]]:
        """Return the derivative, and the products with the Hessian that it took."""

        def held() -> tuple[PyTree, Int[Array, ""]]:
            reading = self.reading(weights)
            return reading.slope, reading.products

        return jax.lax.cond(self.edge.active > 0, held, lambda: (self.field(None, weights, None), jnp.array(0)))

    def reading(self, weights: PyTree) -> Reading:
        """Return the field at `weights` and all that it is made of."""
        (objective, gradient), both = jax.linearize(jax.value_and_grad(self.field.objective), weights)
        pairs = eigenpairs_davidson(
            lambda vector: both(vector)[1],
            self.edge.vectors,
            self.curvature.correction(),
            begun=self.edge.near,
            wanted=self.edge.active,
            rtol=self.rtol,
        )
        count = self.edge.room(self.most)
        tangents, passes = self._tangents(weights, jax.tree.map(lambda leaf: leaf[:count], pairs.vectors))
        covariance, slack = self._covariance(pairs.values[:count], tangents, gradient)
        pushed = vectors.combination(in_basis(covariance) / 2, tangents)
        slope = jax.tree.map(lambda g, t: -g - t, gradient, pushed)
        products = pairs.products + passes
        return Reading(
            slope, objective, norm(gradient), pairs.vectors, pairs.values, covariance, slack, tangents, products
        )

    def bends(
        self, weights: PyTree, reading: Reading, active: Int[Array, ""], *, least_apart: float = 1e-5
    ) -> tuple[PyTree, Int[Array, ""]]:
        """Return what bends the edge most at a point that has been read, in rows, and the passes that it took.

        The second derivative of an eigenvalue λᵢ holds 2 T_ij T_ijᵀ / (λᵢ − λⱼ) for each other one (Kato 1980, II.2.2);
        those of the `active` ones are weighted by X, and of the others those that are near count, taken to be the part
        `least_apart` of 2/η apart at least.
        """
        room, count = self.edge.room(self.most), len(self.edge.values)
        sizes, turn = decomposition(reading.covariance)
        held = vectors.combination(turn.T[::-1], jax.tree.map(lambda leaf: leaf[:room], reading.vectors))
        sizes, edge = jnp.maximum(sizes[::-1], 0), 2 / self.learning_rate
        empty = jax.tree.map(lambda leaf: jnp.zeros((room * count, *leaf.shape[1:]), leaf.dtype), reading.vectors)

        def add(index: Array, rows: PyTree) -> PyTree:
            i, j = index % active, active + index // active
            apart = jnp.maximum(edge - reading.values[j], least_apart * edge)
            factor = jnp.sqrt(sizes[i] / apart)
            one, other = vectors.row(held, i), vectors.row(reading.vectors, j)
            _, tangent = contraction(self.field.objective, weights, one, other)
            return jax.tree.map(lambda all, t: all.at[index].set(factor.astype(t.dtype) * t), rows, tangent)

        pairs = active * (self.edge.near - active)
        return jax.lax.fori_loop(0, pairs, add, empty), 3 * pairs

    def _tangents(self, weights: PyTree, rows: PyTree) -> tuple[PyTree, Int[Array, ""]]:
        """Return T in `symmetric_basis`, zero beyond the active block, and the passes that it took."""
        count, like = jax.tree.leaves(rows)[0].shape[0], vectors.row(rows, 0)
        pairs = [(i, j) for j in range(count) for i in range(j + 1)]
        table = jnp.array(pairs)

        def add(index: Array, tangents: PyTree) -> PyTree:
            i, j = table[index]
            _, tangent = contraction(self.field.objective, weights, vectors.row(rows, i), vectors.row(rows, j))
            factor = jnp.where(i == j, 1, jnp.sqrt(2.0))
            return jax.tree.map(lambda all, t: all.at[index].set(factor.astype(t.dtype) * t), tangents, tangent)

        wanted = self.edge.active * (self.edge.active + 1) // 2
        empty = jax.tree.map(lambda leaf: jnp.zeros((len(pairs), *leaf.shape), leaf.dtype), like)
        return jax.lax.fori_loop(0, wanted, add, empty), 3 * wanted

    def _covariance(
        self, values: Float[Array, " m"], tangents: PyTree, gradient: PyTree
    ) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
        """Return X, and its least eigenvalue; where that is zero, the largest of Y in units of X, below zero."""
        gram = vectors.gram(tangents, tangents) / 2
        rate = -from_basis(vectors.inner_products(tangents, gradient), len(values))
        active = jnp.arange(len(values)) < self.edge.active
        beyond = jnp.where(active, values - 2 / self.learning_rate, 0)
        drive = rate + jnp.diag(beyond) / self.relaxation
        found = complementary_covariance(gram, drive, self.edge.active)
        left = from_basis(gram @ in_basis(found), len(values)) - drive
        unit = jnp.max(jnp.diag(gram))
        signed = found - left / jnp.where(unit > 0, unit, 1)
        block = jnp.where(active[:, None] & active[None], signed, jnp.diag(jnp.full(len(values), jnp.inf)))
        return found, decomposition(jnp.where(jnp.isinf(block), 2 * jnp.max(jnp.abs(signed)), block))[0][0]
