"""Any gradient transformation of Optax as a descent."""

import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from ...recognized import recognized
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
    flow. Raises `TypeError` for what is no transformation, `ValueError` for a time that cannot be.
    """

    init: Any
    update: Any
    time_per_step: Scalar

    def __init__(self, transformation: "optax.GradientTransformation", *, time_per_step: Scalar = 1.0):
        if not is_transformation(transformation):
            found = type(transformation).__name__
            raise TypeError(f"expected a gradient transformation of Optax, such as optax.adam(1e-3), got {found}")
        time = np.nan if isinstance(time_per_step, str | bool) or np.ndim(time_per_step) else time_per_step
        if not isinstance(time, Tracer) and not 0 < time < math.inf:
            raise ValueError(f"time_per_step must be a positive finite number, got {time_per_step!r}")
        import optax

        whole = optax.with_extra_args_support(transformation)
        self.init, self.update = recognized(whole.init), recognized(whole.update)
        self.time_per_step = float(time_per_step) if isinstance(time_per_step, int) else time_per_step

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
