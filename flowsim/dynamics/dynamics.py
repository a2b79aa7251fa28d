"""What moves the weights: the seam between the driver and every kind of flow and descent."""

import abc
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..kinds import Registry
from ..solvers.field import GradientField


class Clock(eqx.Module):
    """The time of a run as an unevaluated sum of two numbers, which keeps its digits at the end of a long plateau."""

    time: Float[Array, ""]
    remainder: Float[Array, ""]


class Attempt(eqx.Module):
    """The outcome of one attempted step.

    `kept` says whether the step counts, `True` itself where every step does. `state` is where the dynamics stands
    then, or what it learned from a step that does not count. `length` is that of the step in time, and `cut` whether
    something else than the dynamics made it so short. `fault` is the number of the `Outcome` that ends the run here,
    RUNNING where there is nothing wrong.
    """

    kept: Bool[Array, ""] | bool
    state: PyTree
    length: Float[Array, ""]
    cut: Bool[Array, ""]
    fault: Int[Array, ""]


class Dynamics(eqx.Module):
    """A way in which weights move down a risk, one attempted step after the other.

    The loop (`dynamics.loop`) owns records, stopping and divergence, the driver (`dynamics.driver`) interruption and
    checkpoints; a dynamics answers what it is asked here. Its fields are its options. `state` is a pytree of arrays of
    its own choosing, with the weights in it. To add a discrete step, subclass `Descent`, which leaves two methods to
    write; to add a flow, subclass this.

    `patience` steps in a row that stand still make a fixed point. `gradients_per_step` is a rough cost, by which the
    first compiled call is made long enough for most runs, and short enough to react to an interrupt.
    """

    patience: eqx.AbstractClassVar[int]
    gradients_per_step: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the dynamics for weights of type `dtype`, what it leaves open filled in, its numbers as arrays.

        Raises `ValueError` or `TypeError` for options that cannot be right.
        """

    @abc.abstractmethod
    def start(self, field: GradientField, weights: PyTree) -> PyTree:
        """Return the state before the first step."""

    @abc.abstractmethod
    def weights(self, state: PyTree) -> PyTree:
        """Return the weights in a state."""

    @abc.abstractmethod
    def observe(self, field: GradientField, state: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient at the weights in `state`."""

    @abc.abstractmethod
    def attempt(self, field: GradientField, state: PyTree, longest: Float[Array, ""]) -> Attempt:
        """Try one step, no longer than `longest` in time where the length is free."""

    @abc.abstractmethod
    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return the time after a step that counts, the `steps`-th; a step that reaches `target` ends there exactly."""

    @abc.abstractmethod
    def stands_still(self, state: PyTree, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step from `state` that counts left the weights where they were, to rounding."""

    def rests(
        self,
        field: GradientField,
        state: PyTree,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""] | bool:
        """Tell whether a run may end at weights of small gradient: by default, everywhere.

        `before` is the stationarity measure at the last check, infinite at the start, and `small` that which counts as
        small. The answer counts only where `asked`; elsewhere any will do, and should cost nothing.
        """
        return True

    def checks_termination(self, state: PyTree) -> Bool[Array, ""] | bool:
        """Tell whether termination is checked in this state: `True` itself where it always is, as here.

        For a dynamics whose steps cost much less than `observe`. At records and after the last step it is always
        checked.
        """
        return True

    def stationarity_measure(self, state: PyTree, gradient_norm: Float[Array, ""]) -> Float[Array, ""]:
        """Return what is small where a run has converged: ‖∇R‖, or more where not the gradient alone moves it."""
        return gradient_norm

    def preconditioner(self, state: PyTree) -> PyTree | None:
        """Return the diagonal of P, as the weights, if the next step goes along P⁻¹ times a gradient; else `None`."""
        return None

    def oscillation(self, state: PyTree) -> PyTree | None:
        """Return vectors vᵢ as the weights, with a leading axis, if an oscillation Σᵢ vᵢvᵢᵀ is predicted, else `None`.

        Σ is its covariance about the weights in `state`.
        """
        return None

    @abc.abstractmethod
    def unit_of_time(self, state: PyTree) -> Float[Array, ""]:
        """Return the length of the first step, in which a run measures how long ago it began."""

    @abc.abstractmethod
    def work(self, state: PyTree, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return the gradients (`None` where they are not known) and the linearized passes of a run until here."""

    def rate_of_descent(self) -> ArrayLike | None:
        """Return the learning rate of the descent that this is or follows; `None` for a dynamics without, as here."""
        return None

    def sharpness_threshold(self) -> ArrayLike | None:
        """Return the sharpness up to which a minimum is stable, by default 2/η; `None` where there is none to tell.

        That is without a learning rate, where it is not known, and where another curvature than the sharpness decides.
        """
        rate = self.rate_of_descent()
        return None if rate is None else 2 / jnp.asarray(rate)

    def loosened(self, state: PyTree) -> Float[Array, ""]:
        """Return by how much the tolerance of the steps had to be loosened, one where it was kept or there is none."""
        return jnp.array(1.0)

    @abc.abstractmethod
    def method(self, state: PyTree) -> str:
        """Return the name of what computes the steps."""


def _is_dynamics(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Dynamics)


DYNAMICS: Registry[type[Dynamics]] = Registry(
    "a dynamics", accepts=_is_dynamics, expected="a subclass of flowsim.Dynamics or flowsim.Descent"
)
