"""What a run costs, in the units in which methods compare."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int


class Work(eqx.Module):
    """Evaluations of the gradient, and linearized passes over all data: Hessian–vector products, or rows of a Jacobian.

    A row is the derivative of one output on every sample, which a network computes sample by sample in one pass.
    """

    gradients: Int[Array, ""]
    products: Int[Array, ""]

    def __add__(self, other: "Work") -> "Work":
        return Work(self.gradients + other.gradients, self.products + other.products)

    def __sub__(self, other: "Work") -> "Work":
        return Work(self.gradients - other.gradients, self.products - other.products)


def no_work() -> Work:
    """Return nothing spent."""
    return Work(jnp.array(0), jnp.array(0))


class CountsWork(eqx.Module):
    """The ability of a solver or a step-size controller to say what it has spent."""

    @abc.abstractmethod
    def work(self, state: Any, /) -> Work:
        """Return the work of all steps until `state`, its own."""


def work_of(part: object, state: Any) -> Work:
    """Return what a solver or a step-size controller says that it has spent, nothing if it does not say."""
    return part.work(state) if isinstance(part, CountsWork) else no_work()
