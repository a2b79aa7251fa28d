"""The slow flow behind weight decay: down the norm of the weights along the minimizers of the risk.

With decay λ the gradient flow of R + (λ/2)‖W‖² first goes to a minimizer of R, nearly along the flow of R alone, and
then, over times of order 1/λ, along the minimizers: as λ → 0, in the time τ = λt, it follows

    dW/dτ = −P(W)W,    P(W) the projection onto the directions in which the minimizers continue,

the Riemannian gradient flow of ‖W‖²/2 on their manifold (Boursier, Pesme and Dragomir 2025, arXiv 2505.20172, propose
it for what is known as grokking). Where the samples are fitted, the Hessian is GᵀG with the Jacobian G of the outputs,
and P = I − Gᵀ(GGᵀ)⁺G. Errors of the steps would lead away from the manifold; here it attracts:

    dW/dτ = −P(W)W − κ(GᵀG)⁺∇R(W).

Deep linear networks have closed forms for it: D = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, which the gradient flow of R conserves,
is D(0)e^(−2τ) here, and D(0)e^(−2λt) on the flow with decay.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..curvature import GaussNewton, eigenpairs_lanczos, hessian_product, vectors
from ..curvature.eigenpair import decomposition
from ..problems import Problem, has_identity_curvature
from ..runtime.compiling import compiled
from ..solvers import LowRankExtrapolation, ProposedSteps
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, Measured, gradient_field, norm
from ..solvers.stepper import Stepper
from .dynamics import DYNAMICS
from .flow import Flow, FlowState


@DYNAMICS.register("norm")
class NormFlow(Flow):
    """The flow of the norm ‖W‖²/2 along the minimizers of a risk: that of weight decay λ in the time τ = λt, as λ → 0.

    It begins at a minimizer, such as the limit of the gradient flow, and runs in units of τ:

        limit = flowsim.integrate(network, problem)
        slow = flowsim.integrate(limit.network, problem, model=flowsim.NormFlow())

    Beside it, `flowsim.RegularizedRisk(problem, 1e-4)` is the risk whose gradient flow it approximates to order λ. The
    norm of the gradient in its records and criteria is √(‖PW‖² + ‖∇R‖²). It has converged where that is small and ‖W‖
    has a minimum among the minimizers near: where no direction along them has negative curvature, by the Hessian of
    ‖W‖²/2 − νᵀ(outputs), ν its multipliers.

    The problem has to know its `curved_outputs`, smooth functions of the weights, and the minimizers to be those of all
    outputs: samples that are fitted (or regressors that are optimal). Where they are not, a run ends without
    convergence, as it comes to points at which ∇R is not zero. So it does where precision cannot tell outputs apart:
    eigenvalues of GGᵀ of less than 10mε of the largest, m being their number, are taken for zero, which in float32 is
    soon a real one. Each evaluation takes the Jacobian of the outputs and the eigenvectors of GGᵀ. Steps are linearly
    implicit. A run raises `ValueError` for a start that is not near a minimizer, for a problem that has none, knows no
    outputs or has weight decay, and for tolerances that the precision cannot meet.
    """

    rtol: ArrayLike | None = None
    """Relative tolerance of a step; by default 1e-6, in float32 1e-4."""
    atol: ArrayLike | None = None
    """Absolute tolerance of a step; by default zero."""

    attraction: ClassVar[float] = 10.0
    """κ, the rate at which it returns to the minimizers."""
    farthest: ClassVar[float] = 0.01
    """How far off a minimizer it may begin, relative to the weights."""

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with the tolerances that it leaves open filled in."""
        relative, absolute = tolerances(self.rtol, self.atol, None, dtype)
        return replace(self, rtol=relative, atol=absolute)

    def check_start(self, network: Any, problem: Problem) -> None:
        """Raise `ValueError` for a problem that it does not know the minimizers of, or a network that is none."""
        kind = type(problem).__name__
        if problem.rank(network) is None:
            raise ValueError(f"the norm flow goes by the curved_outputs of the problem, and {kind} has none")
        if has_identity_curvature(problem):
            raise ValueError(
                f"{kind} has weight decay, and then no manifold of minimizers: give the norm flow the problem without"
            )
        if not problem.attained:
            raise ValueError(
                "the loss has no minimizer, along which the norm flow would run: take one that has, such as "
                "flowsim.losses.SquaredError()"
            )
        share, size = (float(number) for number in _off_by(network, problem))
        if not share <= self.farthest:
            raise ValueError(
                f"the norm flow begins at a minimizer, and by a Newton step the nearest is {share:.2g} of the weights "
                f"away (‖∇R‖ = {size:.2g}): begin where the gradient flow ends, "
                "flowsim.integrate(network, problem).network"
            )

    def vector_field(self, field: GradientField) -> "NormField":
        """Return −PW − κ(GᵀG)⁺∇R."""
        return NormField(field, self.attraction)

    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        over = self.vector_field(field)
        columns = 5 if vectors.dtype_of(point).itemsize < 8 else 8
        solver = LowRankExtrapolation(columns=columns, overhead=2.0, frozen_up_to=float("inf"), counted=over.counted)
        return Stepper(solver.fill_in(over, rtol, atol), ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective, and √(‖PW‖² + ‖∇R‖²)."""
        along = field.along(state.flattened_by)
        objective, gradient = jax.value_and_grad(along.objective)(state.point)
        return objective, jnp.hypot(norm(Minimizers.near(along, state.point).tangent(state.point)), norm(gradient))

    def rests(
        self,
        field: GradientField,
        state: FlowState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""]:
        """Tell whether the norm has a minimum among the minimizers near: no curvature along them is negative."""
        along = field.along(state.flattened_by)

        def look() -> Bool[Array, ""]:
            return Minimizers.near(along, state.point).curves_up(along, state.point)

        return jax.lax.cond(asked, look, lambda: jnp.array(True))


class NormField(eqx.Module):
    """The right-hand side of the norm flow, with `attraction` κ."""

    field: GradientField
    attraction: float

    def __call__(self, t: object, point: PyTree, args: object) -> PyTree:
        """Return the derivative of the weights by τ; its own derivative is −κ(I − P)v − PBPv, B that of the norm.

        On the minimizers that leaves out what leads along their normals alone.
        """

        @jax.custom_jvp
        def slope(weights: PyTree) -> PyTree:
            return self.measured(weights).slope

        @slope.defjvp
        def derivative(primals: tuple[PyTree], tangents: tuple[PyTree]) -> tuple[PyTree, PyTree]:
            (weights,), (vector,) = primals, tangents
            near = Minimizers.near(self.field, weights)
            bent = near.curvature_of_norm(self.field, weights)(vector)
            off = vectors.difference(vector, near.tangent(vector))
            return slope(weights), jax.tree.map(lambda a, b: -self.attraction * a - b, off, bent)

        return slope(point)

    def counted(self, point: PyTree) -> tuple[PyTree, Int[Array, ""]]:
        """Return the derivative, and the linearized passes of the Jacobian."""
        near = Minimizers.near(self.field, point)
        return self._slope(near, point, jax.grad(self.field.objective)(point)), jnp.array(near.matrix.passes)

    def measured(self, point: PyTree) -> Measured:
        """Return the derivative, and the objective."""
        objective, gradient = jax.value_and_grad(self.field.objective)(point)
        return Measured(self._slope(Minimizers.near(self.field, point), point, gradient), objective)

    def _slope(self, near: "Minimizers", point: PyTree, gradient: PyTree) -> PyTree:
        tangent, newton = near.tangent(point), near.newton(gradient)
        return jax.tree.map(lambda a, b: -a - self.attraction * b, tangent, newton)

    def gauss_newton(self, point: PyTree) -> GaussNewton:
        """Return κ(I − P), which is what is stiff."""
        near = Minimizers.near(self.field, point)
        root = near.columns * jnp.sqrt(self.attraction * near.inverses)[None]
        gram = jnp.diag(jnp.where(near.inverses > 0, self.attraction, 0.0).astype(near.inverses.dtype))
        inner, outer = near.matrix.inner, near.matrix.outer
        return GaussNewton(lambda v: inner(v) @ root, lambda c: outer(root @ c), gram, near.matrix.passes)


class Minimizers:
    """The minimizers near some weights, to first order: those with the same outputs."""

    def __init__(self, matrix: GaussNewton):
        self.matrix = matrix
        values, self.columns = decomposition(matrix.gram)
        rounding = 10 * len(values) * jnp.finfo(values.dtype).eps * values[-1]
        self.inverses = jnp.where(values > rounding, 1 / jnp.where(values > rounding, values, 1), 0)

    @classmethod
    def near(cls, field: GradientField, weights: PyTree) -> "Minimizers":
        """Return those near `weights`."""
        return cls(field.gauss_newton(weights))

    def multipliers(self, vector: PyTree) -> Float[Array, " m"]:
        """Return ν = (GGᵀ)⁺Gv."""
        return self.columns @ (self.inverses * (self.columns.T @ self.matrix.inner(vector)))

    def tangent(self, vector: PyTree) -> PyTree:
        """Return Pv, projected twice, as once leaves the rounding of an ill-conditioned GGᵀ."""
        once = vectors.difference(vector, self.matrix.outer(self.multipliers(vector)))
        return vectors.difference(once, self.matrix.outer(self.multipliers(once)))

    def newton(self, gradient: PyTree) -> PyTree:
        """Return (GᵀG)⁺∇R, what weights are off the nearest minimizer, to first order."""
        along = self.columns.T @ self.matrix.inner(gradient)
        return self.matrix.outer(self.columns @ (self.inverses**2 * along))

    def curvature_of_norm(self, field: GradientField, weights: PyTree) -> Callable[[PyTree], PyTree]:
        """Return v ↦ PBPv, with B the Hessian of ‖W‖²/2 − νᵀ(outputs), that of the norm along the minimizers."""
        outputs = field.problem.curved_outputs(field.network(weights))
        assert outputs is not None  # as the run has looked
        multipliers = self.multipliers(weights)

        def lagrangian(moved: PyTree) -> Float[Array, ""]:
            return vectors.inner_product(moved, moved) / 2 - multipliers @ outputs(field.network(moved))

        product = hessian_product(lagrangian, weights)
        return lambda vector: self.tangent(product(self.tangent(vector)))

    def curves_up(self, field: GradientField, weights: PyTree) -> Bool[Array, ""]:
        """Tell whether the norm has no negative curvature along the minimizers, beyond half of the digits."""
        product = self.curvature_of_norm(field, weights)
        start = jax.tree.map(lambda leaf: leaf[None], vectors.scattered_like(weights, 0))
        digits = float(jnp.finfo(vectors.dtype_of(weights)).eps) ** 0.5
        ends = eigenpairs_lanczos(product, start, largest=1, smallest=1, rtol=digits)
        radius = jnp.maximum(jnp.max(jnp.abs(ends.values)), 1)  # that of B holds the identity, and P may be zero
        return (ends.values[-1] >= -4 * digits * radius) & (ends.residuals[-1] <= 4 * digits * radius)


@compiled
def _off_by(network: Any, problem: Problem) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the share of the weights by which they are off a minimizer, and ‖∇R‖."""
    field, weights = gradient_field(network, problem)
    gradient = jax.grad(field.objective)(weights)
    step = norm(Minimizers.near(field, weights).newton(gradient))
    return jnp.where(step == 0, 0, step / norm(weights)), norm(gradient)
