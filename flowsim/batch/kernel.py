"""Kernels, which compute one step of many descents: by automatic differentiation, or written out for one problem."""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..dynamics.descent import Descent, DescentState
from ..dynamics.dynamics import Clock
from ..dynamics.learning_rates import with_rate
from ..problems import Draw, Problem

Move = Callable[[Float[Array, " batch"], Bool[Array, " batch"]], PyTree]


class Kernel(eqx.Module):
    """One way to compute the objectives and gradients of all runs of a group, for some networks on some problems.

    To add one, subclass it in a file of its own, with `@register(network=…, problem=…, dynamics=…)` above the class.
    `width` is the number of runs that one program takes, few enough for the memory of a step to fit a core's cache.
    """

    width: eqx.AbstractVar[int]

    @classmethod
    @abc.abstractmethod
    def of(cls, network: Any, problem: Any, dynamics: Any, /) -> "Kernel | None":
        """Return the kernel for networks like `network`, of which shapes will do, or `None` where it fits only others.

        The types of the three are those that it is registered for; any other condition on them is checked here.
        """

    def start(self, weights: Any, /) -> PyTree:
        """Return the state of runs that start from `weights`, the batch axis first: by default the weights alone."""
        return weights

    def end(self, weights: PyTree, /) -> Any:
        """Return the weights in the state of runs: the inverse of `start`."""
        return weights

    @abc.abstractmethod
    def enter(self, weights: Any, fixed: Any, /) -> tuple[PyTree, PyTree]:
        """Return the state of runs and fixed arrays, given with the batch axis first, as `evaluate` takes them."""

    @abc.abstractmethod
    def leave(self, weights: PyTree, /) -> PyTree:
        """Return the state of runs with the batch axis first again, all of it that the next step depends on."""

    def moves(self, weights: PyTree, /) -> PyTree:
        """Tell which arrays of a state, as `evaluate` takes it, are weights: by default all of them."""
        return jax.tree.map(lambda _: True, weights)

    @abc.abstractmethod
    def evaluate(self, weights: PyTree, fixed: PyTree, /) -> tuple[Float[Array, " batch"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ weights after one step of the runs moving."""


Registered = TypeVar("Registered", bound=type[Kernel])

KERNELS: dict[tuple[type, type, type], list[type[Kernel]]] = {}


def register(
    *, network: type[eqx.Module], problem: type[Problem], dynamics: type[Descent]
) -> Callable[[Registered], Registered]:
    """Return a decorator that makes a kernel known for networks, problems and dynamics of exactly these types.

    A subclass may compute something else, so it is not covered. Of several kernels for the same three, the first that
    fits is taken.
    """

    def enter(kernel: Registered) -> Registered:
        KERNELS.setdefault((network, problem, dynamics), []).append(kernel)
        return kernel

    return enter


class AutomaticKernel(Kernel):
    """∇R by `jax.grad` of the problem's objective, and the step of any descent, both vectorized over the runs.

    The state of a run: its weights, the memory of the descent, the position in its sequence of minibatches, and the
    time where the learning rate changes.
    """

    problem: Problem
    dynamics: Descent
    static: PyTree
    width: int = eqx.field(static=True, default=16)

    @classmethod
    def of(cls, network: PyTree, problem: Problem, dynamics: Descent) -> "AutomaticKernel":
        """Return the kernel for networks like `network` and descents like `dynamics`, with a learning rate each."""
        static = eqx.filter(
            network, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct), inverse=True
        )
        return cls(problem=problem, dynamics=dynamics, static=static)

    def start(self, weights: PyTree) -> PyTree:
        """Return the weights, the memory before the first step, and the first minibatch."""
        sampler, first = self.dynamics.minibatches(), self.dynamics.nominal()

        def start(one: PyTree) -> tuple[PyTree, PyTree, Draw | None, Clock | None]:
            zero = jnp.zeros((), jax.tree.leaves(one)[0].dtype)
            clock = Clock(zero, zero) if self.dynamics.is_scheduled() else None
            return one, first.remember(one), None if sampler is None else sampler.first(self.problem), clock

        return jax.vmap(start)(weights)

    def end(self, weights: PyTree) -> PyTree:
        """Return the weights alone."""
        return weights[0]

    def enter(self, weights: PyTree, fixed: PyTree) -> tuple[PyTree, PyTree]:
        """Return both as they are, the batch axis first."""
        return weights, fixed

    def leave(self, weights: PyTree) -> PyTree:
        """Return the state as it is."""
        return weights

    def evaluate(self, weights: PyTree, fixed: PyTree) -> tuple[Float[Array, " batch"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ the state after a step.

        With minibatches the objectives are those of the next samples.
        """
        sampler = self.dynamics.minibatches()

        def objective(draw: Draw | None, fixed: PyTree) -> Callable[[PyTree], Float[Array, ""]]:
            problem = self.problem if sampler is None or draw is None else sampler.taken(self.problem, draw)
            return lambda weights: problem.objective(eqx.combine(weights, fixed, self.static))

        def value_and_gradient(state: PyTree, fixed: PyTree) -> tuple[Array, PyTree]:
            return jax.value_and_grad(objective(state[2], fixed))(state[0])

        def step(rate: Array, moving: Array, state: PyTree, found: tuple[Array, PyTree], fixed: PyTree) -> PyTree:
            here, memory, draw, clock = state
            dynamics = with_rate(self.dynamics, rate)
            dynamics = dynamics if clock is None else dynamics.at(clock.time)
            moved = dynamics.advanced(objective(draw, fixed), DescentState(here, memory, *found, draw))
            later = None if clock is None else clock.after(jnp.asarray(dynamics.time_of_step()))
            after = (*moved, None if sampler is None or draw is None else sampler.next(draw), later)
            return jax.tree.map(lambda new, old: jnp.where(moving, new, old), after, state)

        found = jax.vmap(value_and_gradient)(weights, fixed)
        return found[0], lambda rates, moving: jax.vmap(step)(rates, moving, weights, found, fixed)


def kernel_for(network: PyTree, problem: Problem, dynamics: Descent) -> Kernel:
    """Return the kernel that fits one `network` of the runs (shapes will do), the `problem` and the `dynamics`.

    Where none is registered that does, it is automatic differentiation.
    """
    known = KERNELS.get((type(network), type(problem), type(dynamics)), [])
    registered = [] if dynamics.is_scheduled() else known
    fitting = (found for kernel in registered if (found := kernel.of(network, problem, dynamics)) is not None)
    return next(fitting, AutomaticKernel.of(network, problem, dynamics))


def batch_last(tree: PyTree) -> PyTree:
    """Return the arrays with the first axis moved to the end."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), tree)


def batch_first(tree: PyTree) -> PyTree:
    """Return the arrays with the last axis moved to the front."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), tree)


def apply(weight: Array, state: Array) -> Array:
    """Return W s: (out, …) from (out, in, …) and (in, …)."""
    return jnp.sum(weight * state[None], axis=1)


def apply_transposed(weight: Array, state: Array) -> Array:
    """Return Wᵀ s: (in, …) from (out, in, …) and (out, …)."""
    return jnp.sum(weight * state[:, None], axis=0)


def sum_over_samples(left: Array, right: Array, *, terms: int = 50) -> Array:
    """Return Σ_n left right: (out, in, batch) from (out, n, batch) and (in, n, batch).

    Up to so many `terms` are written out at a time: a reduction by XLA over a middle axis takes four times as long.
    """
    blocks, first = divmod(left.shape[1] - 1, terms)
    total = _sum_of_terms(left[:, : first + 1], right[:, : first + 1])
    if blocks == 0:
        return total

    def add(block: Array, total: Array) -> Array:
        start = first + 1 + terms * block
        parts = (jax.lax.dynamic_slice_in_dim(array, start, terms, axis=1) for array in (left, right))
        return total + _sum_of_terms(*parts)

    return jax.lax.fori_loop(0, blocks, add, total)


def _sum_of_terms(left: Array, right: Array) -> Array:
    total = left[:, None, 0] * right[None, :, 0]
    for sample in range(1, left.shape[1]):
        total = total + left[:, None, sample] * right[None, :, sample]
    return total


def moved(weight: Array, rates: Float[Array, " batch"], gradient: Array, moving: Bool[Array, " batch"]) -> Array:
    """Return W − η∇ for the runs that move, and W for the others."""
    shape = (1,) * (weight.ndim - 1) + rates.shape
    return jnp.where(moving.reshape(shape), weight - rates.reshape(shape) * gradient, weight)
