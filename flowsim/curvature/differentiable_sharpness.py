"""The sharpness as a function that JAX differentiates, by its eigenvector and not through the search for it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..networks import cast, split, weight_dtype
from ..problems import Problem, check_problem
from ..runtime.compiling import compiled, is_traced
from . import vectors
from .eigenpair import Eigenpair
from .hessian_eigenpairs import end_pairs

_SECOND = (
    "flowsim.sharpness has first derivatives only: a second one asks how the eigenvector moves. Take differences of "
    "first ones, or, of a few hundred weights, jax.hessian of jnp.linalg.eigvalsh of the dense Hessian"
)


class FoundSharpness(NamedTuple):
    """The largest eigenvalue with its certificate, as `Eigenpair` has it."""

    value: Array
    residual: Array
    converged: Array
    products: Array


def differentiable_sharpness(
    network: PyTree, problem: Problem, *, dense: bool | None, rtol: float | None
) -> FoundSharpness:
    """Return the largest eigenvalue, whose `value` JAX differentiates in all that it depends on.

    The other fields are taken for constants. Raises `RuntimeError` where a second derivative is taken, and as
    `top_eigenpair` does.
    """
    check_problem(problem)
    if is_traced((network, problem)):
        return _found(network, bring_closures_into_fields(network, problem), dense=dense, rtol=rtol)
    try:
        return _found(network, problem, dense=dense, rtol=rtol)
    except jax.errors.UnexpectedTracerError:  # a function of the problem closes over what is being differentiated
        return _found(network, bring_closures_into_fields(network, problem), dense=dense, rtol=rtol)


@compiled
def curvature_along(network: PyTree, problem: Problem, direction: PyTree) -> Float[Array, ""]:
    """Return vᵀHv for a direction v as the weights."""
    weights, rest = split(network)
    problem = cast(problem, weight_dtype(network))
    gradient = jax.grad(lambda moved: problem.objective(eqx.combine(moved, rest)))
    return vectors.inner_product(direction, jax.jvp(gradient, (weights,), (direction,))[1])


@eqx.filter_custom_jvp
def _found(network: PyTree, problem: Problem, *, dense: bool | None, rtol: Any) -> FoundSharpness:
    return _without_vector(_searched(network, problem, dense, rtol))


@_found.def_jvp
def _slope(primals: tuple, tangents: tuple, *, dense: bool | None, rtol: Any) -> tuple[FoundSharpness, Any]:
    """Return dS = uᵀ(dH)u beside S: the derivative of (weights, problem) ↦ uᵀHu, u being a constant."""
    network, problem = eqxi.nondifferentiable(primals, msg=_SECOND)
    pair = _searched(network, problem, dense, rtol)

    def of_both(network: PyTree, problem: Problem) -> Float[Array, ""]:
        return curvature_along(network, problem, pair.vector)

    _, slope = eqx.filter_jvp(of_both, primals, tangents)
    slope = slope * jnp.where(pair.converged, 1, jnp.nan).astype(slope.dtype)
    return _without_vector(pair), FoundSharpness(slope, None, None, None)  # pyright: ignore[reportArgumentType]


def _searched(network: PyTree, problem: Problem, dense: bool | None, rtol: Any) -> Eigenpair:
    return end_pairs(network, problem, dense=dense, rtol=rtol).pair(0)


def _without_vector(pair: Eigenpair) -> FoundSharpness:
    return FoundSharpness(pair.value, pair.residual, pair.converged, pair.products)


class _WithClosures(Problem):
    """A problem whose fields hold all that it reads: its own `arrays`, and those that its functions close over."""

    function: Callable[..., Array] = eqx.field(static=True)
    dtypes: tuple[Any, ...] = eqx.field(static=True)
    arrays: PyTree
    close_over: list[Array]

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return what is descended, the objective of the original problem."""
        read = [value.astype(dtype) for value, dtype in zip(self.close_over, self.dtypes, strict=True)]
        return self.function((eqx.filter(network, eqx.is_array), self.arrays), *read)


def bring_closures_into_fields(network: PyTree, problem: Problem) -> Problem:
    """Return a problem of the same objective whose fields hold the traced values that its functions close over.

    One is c in `flowsim.Risk(lambda w: c * w @ w)`: a custom rule of differentiation sees its arguments only. A problem
    without such values is returned as it is. The result is for networks like `network`, in their precision.
    """
    problem = cast(problem, weight_dtype(network))
    arrays, static = eqx.partition((network, problem), eqx.is_array)

    def objective(given: PyTree) -> Float[Array, ""]:
        other, its_problem = eqx.combine(given, static)
        return its_problem.objective(other)

    function, found = jax.closure_convert(objective, arrays)
    read = [jnp.asarray(value) for value in found]
    return _WithClosures(function, tuple(value.dtype for value in read), arrays[1], read) if read else problem
