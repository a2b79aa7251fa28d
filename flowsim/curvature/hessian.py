"""The Hessian of the risk as an operator on the weights, and eigenpairs at the ends of its spectrum."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..networks import FlattenedParameters, cast, split, warn_of_single_precision, weight_dtype
from ..problems import Problem, check_problem, check_weights
from ..runtime.compiling import compiled, few_blas_threads, is_traced, with_standard_options
from . import vectors
from .eigenpair import Eigenpair, Eigenpairs, Operator, eigenpairs_dense, eigenpairs_lanczos, resolve_rtol

Objective = Callable[[PyTree], Float[Array, ""]]


def objective_of(network: PyTree, problem: Problem) -> tuple[Objective, PyTree]:
    """Return the objective as a function of the weights, computed in their precision, and the weights of `network`."""
    check_problem(problem, network)
    weights, rest = split(network)
    problem = cast(problem, weight_dtype(network))
    return lambda moved: problem.objective(eqx.combine(moved, rest)), weights


def hessian_operator(objective: Objective, weights: PyTree) -> tuple[Operator, Float[Array, " p"]]:
    """Return v ↦ ∇²objective(weights) v on flat vectors, and the weights flattened.

    Forward over reverse; the linearization is done once, so each product costs about one gradient.

    Args:
        objective: The function of the weights.
        weights: Where its Hessian is taken: a pytree of p numbers.

    Returns:
        The product, from (p,) to (p,), and the weights, of shape (p,).
    """
    flat, unravel = ravel_pytree(weights)
    gradient = jax.grad(lambda vector: objective(unravel(vector)))
    _, product = jax.linearize(gradient, flat)
    return product, flat


def hessian_product(objective: Objective, weights: PyTree) -> Callable[[PyTree], PyTree]:
    """Return v ↦ ∇²objective(weights) v on pytrees as the weights.

    Forward over reverse, linearized once, as `hessian_operator`.

    Args:
        objective: The function of the weights.
        weights: Where its Hessian is taken.

    Returns:
        The product, each leaf of which is shaped and sharded as its weights.
    """
    return jax.linearize(jax.grad(objective), weights)[1]


def quadratic_form(objective: Objective, weights: PyTree, direction: PyTree) -> Float[Array, ""]:
    """Return vᵀ∇²objective(weights)v for a direction v as the weights."""
    _, image = jax.jvp(jax.grad(objective), (weights,), (direction,))
    return vectors.inner_product(direction, image)


def dense_hessian(objective: Objective, weights: PyTree, *, batch_size: int | None = None) -> Float[Array, "p p"]:
    """Return the Hessian as a symmetric matrix over the flattened weights, by one product for each weight.

    Args:
        objective: The function of the weights.
        weights: Where its Hessian is taken: a pytree of p numbers.
        batch_size: How many products are made at a time; by default all of them.

    Returns:
        The matrix, of shape (p, p).
    """
    rows = hessian_rows(objective, weights, batch_size=batch_size)
    return (rows + rows.T) / 2


def hessian_rows(objective: Objective, weights: PyTree, *, batch_size: int | None = None) -> Float[Array, "p p"]:
    """Return the Hessian as computed, row by row, `batch_size` of them at a time: symmetric up to rounding."""
    product, flat = hessian_operator(objective, weights)
    units = jnp.eye(flat.size, dtype=flat.dtype)
    if batch_size is None or batch_size >= flat.size:
        return eqx.filter_vmap(product)(units)
    return jax.lax.map(product, units, batch_size=batch_size)


def is_decomposed(weights: PyTree, dense: bool | None = None, *, up_to: int = 256) -> bool:
    """Tell whether to decompose the whole Hessian: as `dense` says; if it is `None`, for at most `up_to` weights.

    Of so few, that finds the ends of the spectrum sooner than Lanczos does.
    """
    return sum(leaf.size for leaf in jax.tree.leaves(weights)) <= up_to if dense is None else dense


def end_pairs(network: PyTree, problem: Problem, **options: Any) -> Eigenpairs:
    """Return eigenpairs at the ends of the spectrum of the Hessian, the vectors as weights; `options` as below."""
    check_problem(problem, network)
    warn_of_single_precision(network)
    network = check_weights(network, problem)
    if is_traced((network, problem)):
        return _end_pairs(network, problem, **options)
    with few_blas_threads(vectors.size_of(split(network)[0])):
        return jax.block_until_ready(_end_pairs(network, problem, **options))


@partial(compiled, few_calls=True)
def _end_pairs(
    network: PyTree,
    problem: Problem,
    *,
    largest: int = 1,
    smallest: int = 0,
    block: int = 1,
    dense: bool | None = None,
    start: PyTree = None,
    dimension: int | None = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpairs:
    whole, weights = objective_of(network, problem)
    dtype = weight_dtype(network)
    if dtype.itemsize < 4:
        raise ValueError(f"eigenvalues are not found in {dtype}: cast the weights to float32 or float64")
    resolve_rtol(rtol, dtype)
    if dimension is not None and dimension < 3:
        raise ValueError(f"dimension={dimension} is too small a Krylov space to restart from: give 3 or more")

    flattened = FlattenedParameters.of(weights)
    as_tree, as_moved = (lambda tree: tree,) * 2 if flattened is None else (flattened.tree, flattened.vector)

    def objective(moving: PyTree) -> Float[Array, ""]:
        return whole(as_tree(moving))

    here = as_moved(weights)
    if is_decomposed(weights, dense):
        pairs = eigenpairs_dense(hessian_rows(objective, here), largest=largest, smallest=smallest, rtol=rtol)
        pairs = replace(pairs, vectors=jax.vmap(ravel_pytree(here)[1])(pairs.vectors))
    else:
        start = scattered_starts(here, block) if start is None else jax.vmap(as_moved)(start)
        options = {"dimension": dimension, "rtol": rtol, "max_restarts": max_restarts}
        product = hessian_product(objective, here)
        pairs = eigenpairs_lanczos(product, start, largest=largest, smallest=smallest, **options)
    return replace(pairs, vectors=jax.vmap(as_tree)(pairs.vectors))


def scattered_starts(weights: PyTree, block: int, *, seed: int = 2**20) -> PyTree:
    """Return `block` pseudo-random vectors as weights with a leading axis, the same ones every time.

    Their seeds begin at `seed`: a Krylov space uses the small numbers, those of its rows, for vectors of its own.
    """
    drawn = [vectors.scattered_like(weights, seed + number) for number in range(block)]
    return jax.tree.map(lambda *rows: jnp.stack(rows), *drawn)


@with_standard_options
def preconditioned_eigenpair(
    network: PyTree,
    problem: Problem,
    preconditioner: PyTree,
    *,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of P^(−1/2) H P^(−1/2), with its residual, by Lanczos.

    H is the Hessian of the risk over all weights together. That is the spectrum of P⁻¹H, and the Hessian in the
    coordinates P^½ W, in which a descent preconditioned by P takes steps along the plain gradient (Cohen et al. 2022,
    arXiv 2207.14484).

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        preconditioner: The diagonal of P, positive numbers, as the weights: the floating-point arrays of the network.
        dimension: That of the Krylov spaces.
        rtol: A bound on the residual, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        The eigenpair, whose vector is one of the coordinates P^½ W, a pytree.

    Raises:
        ValueError: For a preconditioner of another structure or shape than the weights, and as `top_eigenpair`.
    """
    network = check_weights(network, problem)
    objective, weights = objective_of(network, problem)
    dtype = weight_dtype(network)
    resolve_rtol(rtol, dtype)
    given, expected = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (preconditioner, weights))
    if jax.tree.structure(preconditioner) != jax.tree.structure(weights) or given != expected:
        raise ValueError(
            f"the preconditioner has arrays of shapes {given} and the network has weights of shapes {expected}: "
            "expected one number for each weight, in the structure of flowsim.networks.split(network)[0]"
        )
    inverse_root = jax.tree.map(lambda entries: jax.lax.rsqrt(jnp.asarray(entries, dtype)), preconditioner)

    def preconditioned(displacement: PyTree) -> Float[Array, ""]:
        return objective(jax.tree.map(lambda w, scale, change: w + scale * change, weights, inverse_root, displacement))

    product = hessian_product(preconditioned, jax.tree.map(jnp.zeros_like, weights))
    start = scattered_starts(weights, 1)
    return eigenpairs_lanczos(product, start, dimension=dimension, rtol=rtol, max_restarts=max_restarts).pair(0)
