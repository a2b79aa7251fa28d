"""Models of descent: flows in its time that follow where it goes, and not only the gradient."""

import inspect

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import ArrayLike

from ..dynamics.flow import Flow
from ..kinds import Registry


class DescentModel(Flow):
    """A flow that models gradient descent with `learning_rate` η in the time t = ηk of its steps.

    `oscillation` is what it predicts besides the weights, the centre of descent's oscillation. To add one, write a
    `Flow` with this field and any others that have a default: `flowsim.compare(..., models=["gradient",
    "my_module:MyFlow"])` runs it once for each learning rate.
    """

    learning_rate: eqx.AbstractVar[ArrayLike]

    def rate_of_descent(self) -> ArrayLike:
        """Return the learning rate of the descent that it models."""
        return self.learning_rate

    def held_within(self, dtype: jnp.dtype) -> float | None:
        """Return within which part of 2/η, in a precision, the sharpness stays there while there is an oscillation.

        `None` for a model that does not hold it, as here.
        """
        return None


def _is_model(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, DescentModel) and not inspect.isabstract(kind)


MODELS: Registry[type[DescentModel]] = Registry(
    "a model of descent", accepts=_is_model, expected="a subclass of flowsim.DescentModel"
)
