"""The one vector field that is integrated as gradient flow and discretized as gradient descent."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from ..curvature import GaussNewton, gauss_newton
from ..networks import FlattenedParameters, cast, split, weight_dtype
from ..networks.weights import norm as norm, norms as norms
from ..problems import Problem, check_problem, check_weights


class Measured(eqx.Module):
    """What one pass over the data tells of a point: the field there, and the objective; NaN where none is known."""

    slope: PyTree
    objective: Float[Array, ""]


class VectorField(Protocol):
    """The right-hand side f(y) of an autonomous differential equation, and what flowsim's own solvers ask of it."""

    def __call__(self, t: Any, y: Any, args: Any, /) -> Any:
        """Return f(y), as Diffrax calls it."""
        ...

    def measured(self, point: Any, /) -> Measured:
        """Return f, and the objective where it is known at the same price."""
        ...

    def gauss_newton(self, point: Any, /) -> Any:
        """Return an approximation of −∂f/∂y that is cheap to invert beside the identity, as a `GaussNewton` is."""
        ...


class GradientField(eqx.Module):
    """The field W ↦ −∇R(W) of a network on a problem, over the weights of the network alone.

    It is called as `field(t, weights, args)`, as Diffrax calls a vector field. With `flattened_by` given, the weights
    are flattened into one vector.
    """

    problem: Problem
    rest: PyTree
    flattened_by: FlattenedParameters | None = None

    def __call__(self, t: object, weights: PyTree, args: object) -> PyTree:
        """Return −∇R at `weights`; it depends on neither `t` nor `args`."""
        return jax.tree.map(jnp.negative, jax.grad(self.objective)(weights))

    def measured(self, weights: PyTree) -> Measured:
        """Return −∇R at `weights` and the objective, at the price of the gradient alone."""
        objective, gradient = jax.value_and_grad(self.objective)(weights)
        return Measured(jax.tree.map(jnp.negative, gradient), objective)

    def objective(self, weights: PyTree) -> Float[Array, ""]:
        """Return the risk up to a constant."""
        return self.problem.objective(self.network(weights))

    def network(self, weights: PyTree) -> PyTree:
        """Return the network that has these weights."""
        return eqx.combine(weights if self.flattened_by is None else self.flattened_by.tree(weights), self.rest)

    def along(self, flattened_by: FlattenedParameters | None) -> "GradientField":
        """Return the same field over weights flattened by `flattened_by`, or over their pytree for `None`."""
        return GradientField(self.problem, self.rest, flattened_by)

    def flattened(self, weights: PyTree) -> tuple["GradientField", PyTree]:
        """Return the field and the weights as one vector where they are many small arrays, else as they are."""
        order = FlattenedParameters.of(weights)
        return (self, weights) if order is None else (self.along(order), order.vector(weights))

    def gauss_newton(self, weights: PyTree) -> GaussNewton:
        """Return the Gauss–Newton matrix at `weights`."""
        return gauss_newton(weights, self.problem, self.network)


def gradient_field(network: PyTree, problem: Problem) -> tuple[GradientField, PyTree]:
    """Return the gradient field of `network` on `problem`, in the precision of the weights, and the weights."""
    weights, rest = split(network)
    return GradientField(cast(problem, weight_dtype(network)), rest), weights


def checked_parts(network: PyTree, problem: Problem) -> tuple[PyTree, PyTree, jnp.dtype]:
    """Return a network, its weights as arrays of JAX, all the rest of it, and the type of the weights.

    Raises `ValueError` if they have several types or are not finite, and as `check_weights` does, and `TypeError` for
    what is no problem.
    """
    check_problem(problem, network)
    dtype = weight_dtype(network)
    network = check_weights(network, problem)
    weights, rest = split(network)
    for leaf in jax.tree.leaves(weights):
        if isinstance(leaf, Tracer):
            continue
        on_host = {device.platform for device in leaf.sharding.device_set} == {"cpu"}
        with jax.ensure_compile_time_eval():  # a constant inside jit can be looked at too
            finite = np.isfinite(np.asarray(leaf)).all() if on_host else jnp.isfinite(leaf).all()
        if not finite:
            raise ValueError("the network has weights that are not finite (NaN or infinity) before its first step")
    return eqx.combine(weights, rest), rest, dtype


def check_step_count(name: str, count: object) -> None:
    """Raise `ValueError` for what is no number of steps, or more than JAX counts."""
    most = int(jnp.iinfo(jnp.result_type(int)).max)
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or not 1 <= int(count) <= most:
        raise ValueError(f"{name} must be a whole number, one or more and at most {most}, got {count!r}")


def constant(value: Any, dtype: Any) -> Any:
    """Return a number or an array in type `dtype`, on no device yet unless it was on one."""
    return value.astype(dtype) if isinstance(value, jax.Array) else np.asarray(value, dtype)
