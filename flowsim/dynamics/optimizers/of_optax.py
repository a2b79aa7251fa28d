"""Any gradient transformation of Optax as a descent."""

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from ...runtime.identity import static_function
from ..descent import Descent, DescentState, Scalar
from ..dynamics import DYNAMICS
from .transformed import Transformed

if TYPE_CHECKING:
    import optax


@DYNAMICS.register("optax")
class Optax(Transformed):
    """A descent by any `optax.GradientTransformation`: a step takes `time_per_step`, so that by default steps count.

    The transformation holds its learning rate, and what else it has, as constants of the compiled program; where it
    searches along a line, it is handed `value`, `grad` and `value_fn`. `descend(..., optimizer=optax.lion(1e-3))` makes
    one by itself. Give `time_per_step`, as in `flowsim.Optax(optax.lion(1e-3), time_per_step=1e-3)`, to put it beside a
    flow. Raises `TypeError` for what is no transformation, `ValueError` for a time that cannot be, which one number is
    not where the learning rate follows a schedule.
    """

    init: Any
    update: Any
    time_per_step: Scalar

    def __init__(self, transformation: "optax.GradientTransformation", *, time_per_step: Scalar | None = None):
        if not is_transformation(transformation):
            found = type(transformation).__name__
            raise TypeError(f"expected a gradient transformation of Optax, such as optax.adam(1e-3), got {found}")
        import optax

        if time_per_step is not None and _has_schedule(transformation):
            raise ValueError(
                "the learning rate of this transformation follows a schedule, so that its steps take times of their "
                "own: leave time_per_step out, and steps count; a flow is compared with a constant learning rate"
            )
        time: Any = 1.0 if time_per_step is None else time_per_step
        if not isinstance(time, Tracer) and not (_is_number(time) and 0 < time < math.inf):
            raise ValueError(f"time_per_step must be a positive finite number, got {time_per_step!r}")
        whole = optax.with_extra_args_support(transformation)
        self.init, self.update = static_function(whole.init), static_function(whole.update)
        self.time_per_step = float(time) if isinstance(time, int) else time

    @property
    def learning_rate(self) -> Scalar:
        """The time of a step: that of the transformation is its own."""
        return self.time_per_step

    def transformation(self) -> "optax.GradientTransformation":
        """Return the transformation."""
        import optax

        return optax.GradientTransformationExtraArgs(self.init, self.update)

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


def as_descent(optimizer: object) -> Descent:
    """Return a descent as it is, and a transformation of Optax as one; `TypeError` for what is neither."""
    if isinstance(optimizer, Descent):
        return optimizer
    if not is_transformation(optimizer):
        raise TypeError(
            "optimizer must be a flowsim.Descent, such as flowsim.GradientDescent(0.02), or a transformation of Optax, "
            f"such as optax.adam(1e-3), got {type(optimizer).__name__}"
        )
    return Optax(optimizer)  # pyright: ignore[reportArgumentType]
