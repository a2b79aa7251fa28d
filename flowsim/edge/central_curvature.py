"""What a linearly implicit step of the central flow takes for the derivative of its field."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import GaussNewton, vectors
from ..curvature.eigenpair import decomposition

# Davidson's method divides by what eigenvalues differ from the one looked for, by at least this part of it.
_APART = 0.05


class CentralCurvature(eqx.Module):
    """An approximation of −∂F/∂W for the central flow that is cheap to invert beside the identity.

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

    def correction(self) -> Callable[[PyTree, Float[Array, ""]], PyTree]:
        """Return (r, θ) ↦ (A − θ)⁻¹r, with no difference of eigenvalues below a twentieth of θ."""
        whole = GaussNewton.of_rows(self.rows)
        values, columns = decomposition(whole.gram)
        values = jnp.maximum(values, 0)

        def apply(residual: PyTree, value: Float[Array, ""]) -> PyTree:
            value = jnp.where(jnp.abs(value) > 0, value, 1)
            apart, least = values - value, _APART * jnp.abs(value)
            apart = jnp.where(jnp.abs(apart) < least, jnp.where(apart < 0, -least, least), apart)
            rise = jnp.where(values > 0, (1 / apart + 1 / value) / jnp.where(values > 0, values, 1), 0)
            core = (columns * rise[None]) @ columns.T
            known = whole.outer(core @ whole.inner(residual))
            return jax.tree.map(lambda a, r: a - r / value.astype(r.dtype), known, residual)

        return apply
