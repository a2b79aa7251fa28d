"""What a run costs, in the units in which methods compare."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int


class Work(eqx.Module):
    """Evaluations of the gradient, and linearized passes: Hessian–vector products, or rows of an output Jacobian."""

    gradients: Int[Array, ""]
    products: Int[Array, ""]

    def __add__(self, other: "Work") -> "Work":
        return Work(self.gradients + other.gradients, self.products + other.products)

    def __sub__(self, other: "Work") -> "Work":
        return Work(self.gradients - other.gradients, self.products - other.products)


def work_of(part: Any, state: Any) -> Work:
    """Return what a solver or a step-size controller says that it has spent, nothing if it does not say."""
    if hasattr(part, "work"):
        return part.work(state)
    return Work(jnp.array(0), jnp.array(0))
