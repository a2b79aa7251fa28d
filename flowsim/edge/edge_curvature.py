"""What a linearly implicit step of the edge flow takes for the derivative of its field."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import GaussNewton, vectors
from ..curvature.eigenpair import decomposition

Point = TypeVar("Point")


class EdgeCurvature(eqx.Module):
    """An approximation of −∂F/∂y for the edge flow F, y = (x, u, ln r), that is cheap to invert beside the identity.

    With A = GᵀG, of low rank, near the Hessian at the centre x, and S its largest eigenvalue:

        x' ≈ −(A + ½ηA²) x − r² ∇S ln r,    u' ≈ −(h − A)₊ u / (ηh − 1),    (ln r)' ≈ ⟨∇S, x⟩ / (ηh − 1) − ϱ ln r,

    with ½ηA² in an edge flow of order two alone, and ϱ the renewal of the oscillation. Oscillation and sharpness drive
    each other: without the terms in ∇S steps would have to resolve the swings of period 2π/√(2α) about the edge, where
    α is the rate at which the gradient flow sharpens.
    """

    low_rank: GaussNewton
    sharpening: PyTree
    curvature: Float[Array, ""]
    slope: Float[Array, ""]
    amplitude: Float[Array, ""]
    renewal: Float[Array, ""]
    bend: Float[Array, ""]
    values: Float[Array, " m"]
    columns: Float[Array, "m m"]

    def __init__(
        self,
        low_rank: GaussNewton,
        sharpening: PyTree,
        *,
        curvature: Float[Array, ""],
        slope: Float[Array, ""],
        amplitude: Float[Array, ""],
        renewal: Float[Array, ""],
        bend: Float[Array, ""],
    ):
        """`slope` is 1/(ηh − 1), and `bend` the η/2 before A², or zero."""
        self.low_rank, self.sharpening, self.bend = low_rank, sharpening, bend
        self.curvature, self.slope = jnp.maximum(curvature, 0), slope
        self.amplitude, self.renewal = amplitude, renewal
        values, self.columns = decomposition(low_rank.gram)
        self.values = jnp.maximum(values, 0)

    @property
    def passes(self) -> int:
        """The linearized passes that it took: those of G, and three for ∇S."""
        return self.low_rank.passes + 3

    @property
    def size(self) -> Float[Array, ""]:
        """The Frobenius norm of A."""
        return jnp.linalg.norm(self.values)

    def resolvent(self, h: Float[Array, ""]) -> Callable[[Point], Point]:
        """Return (I − hJ)⁻¹ for the derivative J above."""
        steep = self.values * (1 + self.bend * self.values)
        centre = self._function(jnp.ones_like(h), -h * (1 + self.bend * self.values) / (1 + h * steep))
        pushed = centre(vectors.scaled(-(self.amplitude**2), self.sharpening))
        turn = self._of_directions(h * self.slope)
        own = 1 + h * self.renewal - h**2 * self.slope * vectors.inner_product(self.sharpening, pushed)

        def apply(point: Point) -> Point:
            moved = centre(point.centre)  # pyright: ignore[reportAttributeAccessIssue]
            sharper = self.slope * vectors.inner_product(self.sharpening, moved)
            grown = (point.log_amplitude + h * sharper) / own  # pyright: ignore[reportAttributeAccessIssue]
            return dataclasses.replace(
                point,  # pyright: ignore[reportArgumentType]
                centre=jax.tree.map(lambda a, b: a + h * grown * b, moved, pushed),
                direction=turn(point.direction),  # pyright: ignore[reportAttributeAccessIssue]
                log_amplitude=grown,
            )

        return apply

    def _of_directions(self, h: Float[Array, ""]) -> Callable[[PyTree], PyTree]:
        """Return (I + h(curvature − A)₊)⁻¹."""
        top = self.curvature
        elsewhere = 1 / (1 + h * top)
        below = jnp.minimum(self.values, top) / jnp.where(self.values > 0, self.values, 1)
        return self._function(elsewhere, h * elsewhere * below / (1 + h * jnp.maximum(top - self.values, 0)))

    def _function(self, at_zero: Float[Array, ""], rise: Float[Array, " m"]) -> Callable[[PyTree], PyTree]:
        """Return φ(A) from φ(0) and the (φ(λ) − φ(0))/λ of the eigenvalues."""
        core = (self.columns * rise[None]) @ self.columns.T

        def apply(vector: PyTree) -> PyTree:
            stiff = self.low_rank.outer(core @ self.low_rank.inner(vector))
            return jax.tree.map(lambda a, b: at_zero * a + b, vector, stiff)

        return apply
