"""A descent whose steps are those of a gradient transformation of Optax."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from ..descent import Descent, DescentState

if TYPE_CHECKING:
    import optax


class Transformed(Descent):
    """A descent by the update rule of a gradient transformation of Optax, whose state is the memory.

    To add one, return the transformation, made of the fields:

        class Lion(flowsim.dynamics.Transformed):
            learning_rate: ArrayLike
            b1: float = 0.9

            def transformation(self):
                return optax.lion(self.learning_rate, b1=self.b1)
    """

    @abc.abstractmethod
    def transformation(self) -> "optax.GradientTransformation":
        """Return the transformation. It is made anew wherever it is asked for, inside the compiled program."""

    def remember(self, weights: PyTree) -> PyTree:
        """Return the transformation's first state."""
        return jax.tree.map(_strong, self.transformation().init(weights))

    def step(self, weights: PyTree, gradient: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        """Return the weights after one step, for a transformation that needs no more than gradient and weights."""
        return self._stepped(weights, gradient, memory)

    def advanced(self, objective: Callable[[PyTree], Float[Array, ""]], state: DescentState) -> tuple[PyTree, PyTree]:
        """Return the weights after one step; a transformation that searches along a line has the objective, too."""
        extra = {"value": state.objective, "grad": state.gradient, "value_fn": objective}
        return self._stepped(state.weights, state.gradient, state.memory, **extra)

    def memory_of_next_step(self, state: DescentState) -> Any:
        """Return the transformation's state after the next step, in which the gradient of `state` counts already."""
        _, memory = self.transformation().update(state.gradient, state.memory, state.weights)
        return memory

    def _stepped(self, weights: PyTree, gradient: PyTree, memory: PyTree, **extra: Any) -> tuple[PyTree, PyTree]:
        import optax  # takes a moment to import, and not every run needs it

        rule = optax.with_extra_args_support(self.transformation())
        updates, after = rule.update(gradient, memory, weights, **extra)
        # A loop carries numbers of the same type from turn to turn, whatever a rule makes of them.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, memory)
        return optax.apply_updates(weights, updates), after


def _strong(leaf: Any) -> Array:
    array = jnp.asarray(leaf)
    return jax.lax.convert_element_type(array, array.dtype)


def check_decay(name: str, value: Any) -> None:
    """Raise `ValueError` for what is no number from 0 to below 1, by which what was remembered is multiplied."""
    if not isinstance(value, Tracer) and not 0 <= value < 1:
        raise ValueError(f"{name} must be a number from 0 to below 1, got {value!r}")


def check_regularizer(name: str, value: Any, *, positive: bool) -> None:
    """Raise `ValueError` for what cannot be added to a denominator: less than zero, or zero where it is `positive`."""
    if not isinstance(value, Tracer) and not (value > 0 or (value == 0 and not positive)):
        raise ValueError(f"{name} must be {'a number above zero' if positive else 'zero or more'}, got {value!r}")
