"""Descents by gradient transformations of Optax: the abstract class, and any transformation as it is."""

import abc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from ...kinds import got
from ...networks import strongly_typed
from ...runtime.compiling import with_standard_options
from ...runtime.identity import static_function
from ..descent import Descent, DescentState
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar

if TYPE_CHECKING:
    import optax


class Transformed(Descent):
    """A descent by the update rule of a gradient transformation of Optax, whose state is the memory.

    To add one, return the transformation, made of the fields:

        class Lion(flowsim.dynamics.Transformed):
            b1: float = 0.9

            def transformation(self):
                return optax.lion(self.learning_rate, b1=self.b1)
    """

    @abc.abstractmethod
    def transformation(self) -> "optax.GradientTransformation":
        """Return the transformation, created anew at each call, inside the compiled program."""

    def remember(self, weights: PyTree) -> PyTree:
        """Return the transformation's first state."""
        return strongly_typed(self.transformation().init(weights))

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


def check_decay(name: str, value: Any) -> None:
    """Raise `ValueError` for what is no number from 0 to below 1, by which what was remembered is multiplied."""
    if not isinstance(value, Tracer) and not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"{name} must be a number from 0 to below 1, got {value!r}")


def is_number(value: Any) -> bool:
    """Tell whether this is a real number, or an array of one."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_regularizer(name: str, value: Any, *, positive: bool) -> None:
    """Raise `ValueError` for what cannot be added to a denominator: less than zero, or zero where it is `positive`."""
    if not isinstance(value, Tracer) and not (is_number(value) and (value > 0 or (value == 0 and not positive))):
        raise ValueError(f"{name} must be {'a number above zero' if positive else 'zero or more'}, got {value!r}")


@DYNAMICS.register("optax")
class Optax(Transformed):
    """A descent by any `optax.GradientTransformation`.

    `descend(..., optimizer=optax.lion(1e-3))` makes one by itself. A transformation that searches along a line is given
    `value`, `grad` and `value_fn`.

    A transformation holds its learning rate and its other numbers as constants, so that a program is compiled for each
    learning rate. `flowsim.Optax(optax.lion, learning_rate=1e-3)` holds them as arrays: one program serves all
    learning rates, and they may be traced, as by `jax.vmap`.

    Args:
        transformation: The transformation, or a function that makes it of `hyperparameters`, such as `optax.adam`.
        time_per_step: The time of a step, to compare it with a flow, as in `flowsim.Optax(optax.lion(1e-3),
            time_per_step=1e-3)`; by default steps count.
        **hyperparameters: The arguments of that function. Floating-point numbers become arrays.

    Raises:
        TypeError: For anything but a transformation or a function that makes one of these hyperparameters.
        ValueError: For an invalid time, and for any time where the learning rate follows a schedule.
    """

    init: Any
    update: Any
    maker: Any
    numbers: dict[str, Any]
    settings: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    time_per_step: Scalar

    @with_standard_options
    def __init__(
        self,
        transformation: "optax.GradientTransformation | Callable[..., optax.GradientTransformation]",
        *,
        time_per_step: Scalar | None = None,
        **hyperparameters: Any,
    ):
        self.maker, self.numbers, self.settings = None, {}, ()
        if not is_transformation(transformation) and callable(transformation):
            self.maker = static_function(transformation)
            floating = {
                name: isinstance(one, float | np.floating) or eqx.is_inexact_array(one)
                for name, one in hyperparameters.items()
            }
            self.numbers = {name: one for name, one in hyperparameters.items() if floating[name]}
            self.settings = tuple(
                (name, static_function(one)) for name, one in hyperparameters.items() if not floating[name]
            )
            transformation = transformation(**hyperparameters)
        elif hyperparameters:
            raise TypeError(
                f"the transformation holds its {', '.join(hyperparameters)} already: write a function that makes it, "
                "as in flowsim.Optax(optax.adam, learning_rate=1e-3)"
            )
        if not is_transformation(transformation):
            found = type(transformation).__name__
            raise TypeError(
                "expected a gradient transformation of Optax, such as optax.adam(1e-3), or a function that makes one, "
                f"with its hyperparameters, as flowsim.Optax(optax.adam, learning_rate=1e-3), got {found}"
            )
        import optax

        whole = optax.with_extra_args_support(transformation)  # pyright: ignore[reportArgumentType]
        if time_per_step is not None and _has_schedule(whole):
            raise ValueError(
                "the learning rate of this transformation follows a schedule, so that its steps take times of their "
                "own: leave time_per_step out, and steps count; a flow is compared with a constant learning rate"
            )
        time: Any = 1.0 if time_per_step is None else time_per_step
        if not isinstance(time, Tracer) and not (_is_number(time) and 0 < time < math.inf):
            raise ValueError(f"time_per_step must be a positive finite number, got {time_per_step!r}")
        made = self.maker is not None
        self.init, self.update = (None, None) if made else map(static_function, (whole.init, whole.update))
        self.time_per_step = float(time) if isinstance(time, int) else time

    @property
    def learning_rate(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]  (no field here)
        """The time of a step: that of the transformation is its own."""
        return self.time_per_step

    def transformation(self) -> "optax.GradientTransformation":
        """Return the transformation."""
        import optax

        if self.maker is None:
            return optax.GradientTransformationExtraArgs(self.init, self.update)
        return optax.with_extra_args_support(self.maker(**self.numbers, **dict(self.settings)))

    def work(self, state: DescentState, steps: Int[Array, ""]) -> tuple[None, Int[Array, ""]]:
        """Return `None`: a transformation may take gradients of its own along a line."""
        return None, jnp.zeros_like(steps)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"  # pyright: ignore[reportArgumentType]


def _has_schedule(transformation: "optax.GradientTransformation") -> bool:
    """Tell whether the state of a transformation counts the steps of a schedule, as `optax.sgd(schedule)` does."""
    import optax

    def counts(node: object) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    try:
        state = transformation.init(jnp.zeros(1))
    except Exception:  # of one that is made for a certain network nothing is known before it sees that
        return False
    return any(map(counts, jax.tree.leaves(state, is_leaf=counts)))


def is_transformation(optimizer: object) -> bool:
    """Tell whether this is a gradient transformation of Optax."""
    import optax  # takes a moment to import, and whoever has a transformation has done it

    return isinstance(optimizer, optax.GradientTransformation)


def check_maker(optimizer: object) -> None:
    """Raise `TypeError` for an `optimizer` that makes no descent of a learning rate."""
    if not callable(optimizer) or isinstance(optimizer, Descent):
        raise TypeError(
            f"optimizer is {optimizer!r}: expected a function that makes a descent of each learning rate, or the class "
            "of a descent; write optimizer=flowsim.Adam, or optimizer=lambda eta: flowsim.Adam(eta, b1=0.8)"
        )


def as_descent(optimizer: object) -> Descent:
    """Return a descent as it is, and a transformation of Optax as one; `TypeError` for what is neither."""
    if isinstance(optimizer, Descent):
        return optimizer
    if not is_transformation(optimizer):
        raise TypeError(
            "optimizer must be a flowsim.Descent, such as flowsim.GradientDescent(0.02), or a transformation of Optax, "
            f"such as optax.adam(1e-3), got {got(optimizer, Descent)}"
        )
    return Optax(optimizer)  # pyright: ignore[reportArgumentType]
