"""The sharpness: the largest eigenvalue of the Hessian of the risk, as a function that JAX differentiates."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..formatting.presentation import Shown, register_tables
from ..networks import cast, split, weight_dtype
from ..problems import Problem, check_problem
from ..runtime.compiling import compiled, is_traced, with_standard_options
from . import vectors
from .eigenpair import Eigenpair, Eigenpairs
from .finiteness import check_gradient, check_result
from .hessian import end_pairs, objective_of, quadratic_form
from .line import Rows, after, certified, is_no_number, tables_of_rows

_SECOND = (
    "flowsim.sharpness has first derivatives only: a second one asks how the eigenvector moves. Take differences of "
    "first ones, or, of a few hundred weights, jax.hessian of jnp.linalg.eigvalsh of the dense Hessian"
)


@with_standard_options
def sharpness(
    network: PyTree, problem: Problem, *, dense: bool | None = None, rtol: float | None = None
) -> float | Float[Array, ""]:
    """Return the sharpness S(W), the largest *algebraic* eigenvalue of the Hessian of the risk.

    `jax.grad`, `jax.jvp`, `jax.jacfwd`, … differentiate it in whatever it depends on, the weights, the arrays of the
    problem and those that its functions read: dS = uᵀ(dH)u with u the unit eigenvector (Hellmann and Feynman; Magnus
    1985, theorem 1), at the price of a Hessian–vector product and its derivative. NaN where S is not certified, and one
    of many where the largest eigenvalue is not simple, as `sharpness_gradient` tells.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        dense: Whether the whole Hessian is decomposed, or Lanczos searches; by default, dense up to 256 weights.
        rtol: How exact, as a part of the spectral radius, the largest |λ|; by default 4e-11, in float32 2e-5. Beside
            λ_min = −1e6 an S of 1 is thus known to 20 in float32, and to 4e-5 in float64.

    Returns:
        A Python float; inside of transformations of JAX, a scalar array, which is NaN where the eigenvalue could not be
        certified: read `top_eigenpair` for the certificate.

    Raises:
        RuntimeError: Where the eigenvalue could not be certified, outside of transformations, which cannot raise; and
            for second derivatives, which need those of u.
        ValueError: For an `rtol` that the precision of the weights cannot meet, and outside of transformations for
            weights at which the risk or its gradient is NaN or infinite.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> round(flowsim.sharpness(jnp.array([1.0, 1.0]), bowl), 3)
        6.0
    """
    pair = differentiable_sharpness(network, problem, dense=dense, rtol=rtol)
    if isinstance(pair.value, Tracer):
        # Added rather than chosen: what is not certified has no derivative either.
        return pair.value + jnp.where(pair.converged, 0, jnp.nan).astype(pair.value.dtype)
    if not bool(pair.converged) and np.isfinite(pair.value) and _size(network) <= 2**20:
        # Where many eigenvalues lie within 1e-6 of the largest, wider spaces tell them apart sooner: 96 vectors, which
        # take less than a gigabyte up to 2²⁰ weights.
        pair = end_pairs(network, problem, dense=False, dimension=96, rtol=rtol).pair(0)
    if not bool(pair.converged):
        if not np.isfinite(pair.value):
            check_gradient(network, problem)
            raise RuntimeError(
                "the sharpness is not certified: second derivatives of the risk are NaN or infinite at these weights, "
                "where its gradient is finite; is there a power below two of zero? Write other weights, or |x|**1.5 "
                "as (x**2 + 1e-12)**0.75"
            )
        raise RuntimeError(
            f"the sharpness is not certified: best value {float(pair.value):.6g} with residual "
            f"{float(pair.residual):.2g} after {int(pair.products)} Hessian-vector products; rtol=... asks for less; "
            "flowsim.curvature.top_eigenpair(..., max_restarts=..., dimension=...) takes more rounds, or wider ones"
        )
    return float(pair.value)


@with_standard_options
def top_eigenpair(
    network: PyTree,
    problem: Problem,
    *,
    dense: bool | None = None,
    start: ArrayLike | None = None,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of the Hessian of the risk, with its residual.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        dense: Whether the whole Hessian is decomposed, or Lanczos searches; by default, dense up to 256 weights.
        start: The first vector of Lanczos, (p,) for p weights; by default random.
        dimension: That of the Krylov spaces.
        rtol: A bound on the residual, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        The eigenvalue, its vector of shape (p,), its residual, and whether it is certified.

    Raises:
        ValueError: For a start of another shape, and outside jit for one that is zero or not finite; for a dimension
            below 3; for an `rtol` that the precision of the weights cannot meet; as `sharpness` for weights at which
            the gradient is not finite.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> pair = flowsim.curvature.top_eigenpair(jnp.array([1.0, 1.0]), bowl)
        >>> print(pair.value.round(3), pair.converged)
        6.0 True
    """
    block = None if start is None else _check_start(network, start)
    options = {"dense": dense, "dimension": dimension, "rtol": rtol, "max_restarts": max_restarts}
    pair = end_pairs(network, problem, start=block, **options).pair(0)
    check_result(pair.value, network, problem)
    return replace(pair, vector=ravel_pytree(pair.vector)[0])


@with_standard_options
def top_eigenpairs(
    network: PyTree,
    problem: Problem,
    *,
    count: int,
    block: int | None = None,
    dense: bool | None = None,
    dimension: int | None = None,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpairs:
    """Return the `count` largest eigenpairs of the Hessian of the risk, in decreasing order, each with its residual.

    Memory of Lanczos: some 2(dimension + block) + 5 times the weights.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        count: How many eigenpairs.
        block: The number of random vectors that Lanczos starts from: by default `count`, which is always enough. An
            eigenvalue is returned as often as it occurs, if not more often than this. Fewer take fewer products where
            eigenvalues are simple.
        dense: Whether the whole Hessian is decomposed, or Lanczos searches; by default, dense up to 256 weights.
        dimension: That of the Krylov spaces; by default 24, or 3 count + 2 block if that is more.
        rtol: A bound on the residuals, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        Values, residuals and whether they are certified, of shape (count,), and `vectors`, which are weights, as the
        network, with a leading axis of `count`.

    Raises:
        ValueError: For a count beyond the number of weights, a block below one, and as `top_eigenpair`.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> pairs = flowsim.curvature.top_eigenpairs(jnp.array([1.0, 1.0]), bowl, count=2)
        >>> print(pairs.values.round(3), pairs.converged.all())
        [6. 2.] True
    """
    if block is not None and block < 1:
        raise ValueError(f"block={block}: expected one vector or more to start from")
    options = {"dense": dense, "dimension": dimension, "rtol": rtol, "max_restarts": max_restarts}
    pairs = end_pairs(network, problem, largest=count, block=count if block is None else block, **options)
    check_result(pairs.values, network, problem)
    return pairs


class SpectralBounds(Shown, eqx.Module):
    """Both ends of a spectrum: an eigenvalue lies within each residual of each value, none (almost surely) outside.

    `repr` is a line; printed, and shown in a notebook, it is a table, but for a batch and inside `jax.jit`.
    """

    smallest: Float[Array, ""]
    """The smallest eigenvalue."""
    largest: Float[Array, ""]
    """The largest eigenvalue."""
    smallest_residual: Float[Array, ""]
    """The residual of the smallest."""
    largest_residual: Float[Array, ""]
    """The residual of the largest."""
    converged: Bool[Array, ""]
    """Whether both residuals are below the tolerance asked for."""
    products: Int[Array, ""]
    """The Hessian–vector products that they took."""

    def __repr__(self) -> str:
        ends = ((self.smallest, self.smallest_residual), (self.largest, self.largest_residual))
        low, high = (certified(value, residual, self.converged) for value, residual in ends)
        return f"SpectralBounds(from {low} to {high}{after(self.products)})"

    def _rows(self) -> Rows | None:
        if is_no_number(self.smallest):
            return None
        ends = {"smallest": (self.smallest, self.smallest_residual), "largest": (self.largest, self.largest_residual)}
        return {name: (*end, self.converged) for name, end in ends.items()}


register_tables(SpectralBounds, tables_of_rows)


@with_standard_options
def spectral_bounds(
    network: PyTree,
    problem: Problem,
    *,
    dense: bool | None = None,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> SpectralBounds:
    """Return the smallest and the largest algebraic eigenvalue of the Hessian of the risk, from one Lanczos run.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        dense: Whether the whole Hessian is decomposed, or Lanczos searches; by default, dense up to 256 weights.
        dimension: That of the Krylov spaces.
        rtol: A bound on the residuals, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        Both ends with their residuals. For a network of one weight the two are the same.

    Raises:
        ValueError: As `top_eigenpair`.
    """
    both = _size(network) > 1
    options = {"dense": dense, "dimension": dimension, "rtol": rtol, "max_restarts": max_restarts}
    pairs = end_pairs(network, problem, smallest=int(both), **options)
    check_result(pairs.values, network, problem)
    (low, high), residuals = pairs.values[jnp.array([-1, 0])], pairs.residuals
    return SpectralBounds(low, high, residuals[-1], residuals[0], jnp.all(pairs.converged), pairs.products)


def _size(network: PyTree) -> int:
    return vectors.size_of(split(network)[0])


def _check_start(network: PyTree, start: ArrayLike) -> PyTree:
    """Return the start as weights with a leading axis of one."""
    size, start = _size(network), jnp.asarray(start, weight_dtype(network))
    if start.shape != (size,):
        raise ValueError(f"start has shape {start.shape}, but the network has {size} weights: expected ({size},)")
    if not isinstance(start, Tracer) and not (bool(jnp.all(jnp.isfinite(start))) and bool(jnp.any(start != 0))):
        raise ValueError("start is zero or not finite: give a direction in which to begin, or none")
    _, unravel = ravel_pytree(split(network)[0])
    return jax.vmap(unravel)(start[None])


def differentiable_sharpness(network: PyTree, problem: Problem, *, dense: bool | None, rtol: float | None) -> Eigenpair:
    """Return the largest eigenvalue, whose `value` JAX differentiates in all that it depends on.

    It comes without its vector, and the other fields are taken for constants. Raises `RuntimeError` where a second
    derivative is taken, and as `top_eigenpair` does.
    """
    check_problem(problem, network)
    if not is_traced((network, problem)):
        try:
            return _largest(network, problem, dense=dense, rtol=rtol)
        except jax.errors.UnexpectedTracerError:  # a function of the problem closes over what is being differentiated
            pass
    return _largest(network, bring_closures_into_fields(network, problem), dense=dense, rtol=rtol)


@compiled
def curvature_along(network: PyTree, problem: Problem, direction: PyTree) -> Float[Array, ""]:
    """Return vᵀHv for a direction v as the weights."""
    objective, weights = objective_of(network, problem)
    return quadratic_form(objective, weights, direction)


@eqx.filter_custom_jvp
def _largest(network: PyTree, problem: Problem, *, dense: bool | None, rtol: Any) -> Eigenpair:
    return replace(end_pairs(network, problem, dense=dense, rtol=rtol), vectors=None).pair(0)


@_largest.def_jvp
def _slope(primals: tuple, tangents: tuple, *, dense: bool | None, rtol: Any) -> tuple[Eigenpair, Eigenpair]:
    """Return dS = uᵀ(dH)u beside S: the derivative of (weights, problem) ↦ uᵀHu, u being a constant."""
    network, problem = eqxi.nondifferentiable(primals, msg=_SECOND)
    pair = end_pairs(network, problem, dense=dense, rtol=rtol).pair(0)
    _, slope = eqx.filter_jvp(
        lambda network, problem: curvature_along(network, problem, pair.vector), primals, tangents
    )
    slope = slope * jnp.where(pair.converged, 1, jnp.nan).astype(slope.dtype)
    largest = replace(pair, vector=None)
    constant = jax.tree.map(lambda _: None, largest)
    return largest, eqx.tree_at(lambda tangent: tangent.value, constant, slope, is_leaf=lambda leaf: leaf is None)


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

    function, closed_over = jax.closure_convert(objective, arrays)
    read = [jnp.asarray(value) for value in closed_over]
    return _WithClosures(function, tuple(value.dtype for value in read), arrays[1], read) if read else problem
