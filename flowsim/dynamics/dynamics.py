"""The interface of all flows and descents to the loop that runs them."""

import abc
import inspect
from typing import Any, ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..kinds import Registry, is_kind_of
from ..problems import Problem
from ..solvers.field import GradientField


class Clock(eqx.Module):
    """The time of a run as an unevaluated sum of two numbers, which keeps its digits at the end of a long plateau."""

    time: Float[Array, ""]
    """The time, rounded."""
    remainder: Float[Array, ""]
    """What the rounding left out."""

    def after(self, length: Float[ArrayLike, ""]) -> "Clock":
        """Return the time so much later (Knuth's two-sum)."""
        term = self.remainder + length
        high = self.time + term
        shadow = high - self.time
        return Clock(high, (self.time - (high - shadow)) + (term - shadow))


class Attempt(eqx.Module):
    """The result of one attempted step."""

    kept: Bool[Array, ""] | bool
    """Whether the step is accepted, the constant `True` where every step is."""
    state: PyTree
    """The state after it, or after its rejection."""
    length: Float[Array, ""]
    """Its length in time."""
    cut: Bool[Array, ""]
    """Whether that is shorter than the dynamics proposed."""
    fault: Int[Array, ""]
    """What went wrong, as the number of an `Outcome`: SOLVER_FAILED, DIVERGED or STALLED; RUNNING where nothing did."""


class Dynamics(eqx.Module):
    """A method that moves weights down a risk, one attempted step after the other.

    The loop (`dynamics.loop`) handles records, stopping and divergence, the driver (`dynamics.driver`) interruption and
    checkpoints. The fields of a dynamics are its options. Its `state` is any pytree of arrays that contains the
    weights. To add a descent, subclass `Descent`, which leaves two methods to write; to add a flow, subclass `Flow`.

    A run is at a fixed point after `patience` steps in a row that change nothing. `gradients_per_step` is a rough cost
    of a step, from which the length of the first compiled call follows.
    """

    patience: eqx.AbstractClassVar[int]
    gradients_per_step: eqx.AbstractClassVar[int]

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        annotations = inspect.get_annotations(cls)
        # Of a kind that computes its learning rate from other fields, the rate is no argument.
        if isinstance(vars(cls).get("learning_rate"), property):
            cls.__annotations__ = annotations | {"learning_rate": ClassVar[Any]}
        fields = [name for name, kind in annotations.items() if "ClassVar" not in str(kind)]
        inherited = any("learning_rate" in inspect.get_annotations(base) for base in cls.__mro__[1:])
        if inherited and "learning_rate" in fields[1:]:  # its arguments would be in another order than its fields
            raise TypeError(
                f"{cls.__name__} declares {fields[0]} before learning_rate: write learning_rate first, or leave it "
                "out, as it is a field of every descent"
            )

    @abc.abstractmethod
    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the dynamics for weights of type `dtype`, with defaults filled in and numbers as arrays.

        Raises `ValueError` or `TypeError` for invalid options.
        """

    def kind(self) -> str:
        """Return the name of its kind, under which YAML knows and results keep it."""
        return DYNAMICS.name_of(type(self))

    def check_start(self, network: Any, problem: Problem) -> None:
        """Raise `ValueError` where runs from this network could not be right. By default nothing is checked."""

    def at(self, time: Float[Array, ""]) -> Self:
        """Return the dynamics for which the time from here on begins at zero: itself, if nothing in it changes.

        Of this the loop asks all that may depend on a learning rate: `start`, `attempt`, `rests`, `unit_of_time`, and
        what is recorded.
        """
        return self

    def is_scheduled(self) -> bool:
        """Tell whether its learning rate changes in time: by default, no."""
        return False

    @abc.abstractmethod
    def start(self, field: GradientField, weights: PyTree) -> PyTree:
        """Return the state before the first attempt, which may leave all that takes a gradient to it."""

    @abc.abstractmethod
    def weights(self, state: PyTree) -> PyTree:
        """Return the weights in a state."""

    @abc.abstractmethod
    def observe(self, field: GradientField, state: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient at the weights in `state`."""

    @abc.abstractmethod
    def attempt(
        self, field: GradientField, state: PyTree, longest: Float[Array, ""], begun: Bool[Array, ""]
    ) -> Attempt:
        """Try one step, no longer than `longest` in time where the length is free.

        The first attempt of a run, before it has `begun`, measures where it begins: a step of no length that is kept.
        So the program holds the gradient once.
        """

    @abc.abstractmethod
    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return the time after the `steps`-th accepted step; a step that reaches `target` ends there exactly."""

    def is_settled(self, time: Float[Array, ""]) -> Bool[Array, ""] | bool:
        """Tell whether what stands still at a time stays so, as no later step is longer: by default, yes."""
        return True

    @abc.abstractmethod
    def stands_still(self, state: PyTree, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether an accepted step from `state` left the weights unchanged up to rounding."""

    def will_stand_still(self, field: GradientField, state: PyTree, attempt: Attempt) -> Bool[Array, ""] | bool:
        """Tell whether all steps after an accepted step from `state` will change the weights by rounding at most.

        By default, this is not foreseen.
        """
        return False

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

        `before` is the stationarity measure at the last check, infinite at the start, and `small` the norm that counts
        as small. The result is used only where `asked` is true; elsewhere any will do, and should cost nothing.
        """
        return True

    def checks_termination(self, state: PyTree) -> Bool[Array, ""] | bool:
        """Tell whether termination is checked in this state: `True` itself where it always is, as here.

        For a dynamics whose steps cost much less than `observe`. At records and after the last step it is always
        checked.
        """
        return True

    def for_its_regime(self, state: PyTree) -> PyTree:
        """Return the state for a program that takes the kind of steps that come next, alone: by default, of all kinds.

        Called between two calls of the program. A smaller program compiles sooner; the rest waits until it is needed.
        """
        return state

    def is_within_regime(self, state: PyTree) -> Bool[Array, ""] | bool:
        """Tell whether the program that was made for this state takes its next step."""
        return True

    def stationarity_measure(self, state: PyTree, gradient_norm: Float[Array, ""]) -> Float[Array, ""]:
        """Return what is small where a run has converged: ‖∇R‖, or more where the weights do not follow it alone."""
        return gradient_norm

    def objective(self, field: GradientField, state: PyTree) -> Float[Array, ""] | None:
        """Return the objective at the weights, which some states hold; `None` for those that do not, as here."""
        return None

    def preconditioner(self, state: PyTree) -> PyTree | None:
        """Return the diagonal of P, as the weights, if the next step goes along P⁻¹ times a gradient; else `None`."""
        return None

    def oscillation(self, field: GradientField, state: PyTree) -> PyTree | None:
        """Return vectors vᵢ as the weights, with a leading axis, if an oscillation Σᵢ vᵢvᵢᵀ is predicted, else `None`.

        Σ is its covariance about the weights in `state`.
        """
        return None

    @abc.abstractmethod
    def unit_of_time(self, state: PyTree) -> Float[Array, ""]:
        """Return the length of the first step in time, known after the first attempt: the unit of records over time."""

    @abc.abstractmethod
    def work(self, state: PyTree, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return the gradients (`None` where not known) and the linearized passes that the run has taken so far."""

    def rate_of_descent(self) -> ArrayLike | None:
        """Return the learning rate of the descent that this is or follows; `None` for a dynamics without, as here.

        Of one that changes it is the nominal one, and after `at` that at the time.
        """
        return None

    def edge_of_stability(self) -> ArrayLike | None:
        """Return the curvature up to which a quadratic mode is stable, by default the sharpness 2/η.

        `None` without a learning rate, and where it is not known.
        """
        rate = self.rate_of_descent()
        return None if rate is None else 2 / jnp.asarray(rate)

    def sharpness_threshold(self) -> ArrayLike | None:
        """Return the same where it is the sharpness that decides; `None` where it is another curvature."""
        return self.edge_of_stability()

    def lasting_threshold(self, time: Float[Array, ""]) -> ArrayLike | None:
        """Return the sharpness up to which a minimum stays stable from a time on: by default as it is then."""
        return self.at(time).sharpness_threshold()

    def loosened(self, state: PyTree) -> Float[Array, ""]:
        """Return the factor by which the tolerance of the steps was loosened, one where it was not or there is none."""
        return jnp.array(1.0)

    @abc.abstractmethod
    def method(self, state: PyTree) -> str:
        """Return the name of the method that computes the steps."""


DYNAMICS: Registry[type[Dynamics]] = Registry(
    "a dynamics",
    accepts=is_kind_of(Dynamics),
    expected="a subclass of flowsim.Dynamics or flowsim.Descent",
    elsewhere=("flowsim.edge",),
)
