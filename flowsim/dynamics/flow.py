"""Flows, whose steps adapt to a tolerance: the gradient flow, and the abstract classes of all others."""

import abc
from dataclasses import replace
from typing import Any, ClassVar, Self

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..kinds import Registry, is_kind_of
from ..networks import FlattenedParameters, split, weight_dtype
from ..problems import Problem
from ..solvers.choice import check_solver, stepper_for, tolerances
from ..solvers.field import GradientField, Measured, VectorField, norm
from ..solvers.solver import Work
from ..solvers.stepper import LASTING, Stepper, StepperState
from .descent import Descent
from .dynamics import DYNAMICS, Attempt, Clock, Dynamics
from .gradient_descent import GradientDescent
from .learning_rates import Scalar, is_scheduled, is_settled, largest_rate, nominal_rate, rate_from
from .outcome import Outcome, decide


class FlowState(eqx.Module):
    """The point that a flow has reached, and the state of its solver and step control.

    With `flattened_by` given, the weights in the point are flattened into one vector. `before` is the work that was
    done before the first step, `None` for none.
    """

    point: PyTree
    stepper: StepperState
    flattened_by: FlattenedParameters | None
    before: Work | None = None


class Flow(Dynamics):
    """A dynamics d(point)/dt = F(point) of a point that contains the weights.

    By default the point is the weights, and F is −∇R; a kind of flow says at least which solver steps along F
    (`stepper`), how its options are filled in (`checked`), and risk and gradient at a state (`observe`).
    """

    patience: ClassVar[int] = LASTING
    gradients_per_step: ClassVar[int] = 15

    @abc.abstractmethod
    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return the solver and step control along F, created anew at each call, inside the compiled program."""

    def first_point(self, field: GradientField, weights: PyTree) -> PyTree:
        """Return the point that begins at `weights`, in the shape that they have in `field`."""
        return weights

    def vector_field(self, field: GradientField) -> VectorField:
        """Return F."""
        return field

    def weights_at(self, point: PyTree) -> PyTree:
        """Return the weights in a point."""
        return point

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return the gradients and the Hessian–vector products in so many evaluations of F, in so many steps."""
        return evaluations, jnp.zeros_like(evaluations)

    def may_be_flat(self) -> bool:
        """Tell whether weights may be flattened: no part of the flow holds functions of the network's own pytree."""
        return True

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first attempt."""
        field, weights = field.flattened(weights) if self.may_be_flat() else (field, weights)
        point = self.first_point(field, weights)
        stepper = self.stepper(field, point).init(self.vector_field(field), point)
        return FlowState(point, stepper, field.flattened_by)

    def weights(self, state: FlowState) -> PyTree:
        """Return the weights in a state."""
        weights = self.weights_at(state.point)
        return weights if state.flattened_by is None else state.flattened_by.tree(weights)

    def attempt(
        self, field: GradientField, state: FlowState, longest: Float[Array, ""], begun: Bool[Array, ""]
    ) -> Attempt:
        """Try a step of the length proposed by the step control, at most `longest`; none before the run has `begun`."""
        field = field.along(state.flattened_by)
        stepper, over = self.stepper(field, state.point), self.vector_field(field)
        tried = stepper.attempt(over, state.point, state.stepper, longest, begun=begun)
        fault = decide({Outcome.STALLED: ~(tried.state.wanted > 0), Outcome.SOLVER_FAILED: ~tried.okay})
        after = replace(state, point=tried.point, stepper=tried.state)
        return Attempt(tried.kept, after, tried.length, tried.cut, fault)

    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return the sum of all steps, `target` itself where the step was cut to end there."""
        reached = attempt.length >= (target - clock.time) - clock.remainder
        later = clock.after(attempt.length)
        return Clock(jnp.where(reached, target, later.time), jnp.where(reached, 0, later.remainder))

    def stands_still(self, state: FlowState, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step changed the point by no more than rounding, although it was long enough to.

        On a plateau a step may change nothing either, but there the step control proposes a longer one next. Out of a
        saddle entries may grow that are below the rounding of the others.
        """
        change = norm(jax.tree.map(jnp.subtract, attempt.state.point, state.point))
        rounding = jnp.finfo(change.dtype).eps * norm(attempt.state.point)
        long = attempt.length * gradient_norm > 2 * rounding
        steady = ~attempt.cut & (attempt.state.stepper.wanted <= 1.05 * state.stepper.wanted)
        still, growing = (change <= rounding) & (long | steady), jax.tree.leaves(attempt.state.stepper.growing)
        return still & ~jnp.any(jnp.stack([jnp.any(steps >= LASTING) for steps in growing]))

    def will_stand_still(self, field: GradientField, state: FlowState, attempt: Attempt) -> Bool[Array, ""] | bool:
        """Tell whether what is left to move is within rounding, where |F| falls as in this step, and no entry grows."""
        first, last = self._measured(field, state), self._measured(field, attempt.state)
        if first is None or last is None:
            return False
        before, after = norm(first.slope), norm(last.slope)
        moved = norm(jax.tree.map(jnp.subtract, attempt.state.point, state.point))
        rounding = jnp.finfo(moved.dtype).eps * norm(attempt.state.point)
        pairs = zip(*map(jax.tree.leaves, (state.point, attempt.state.point)), strict=True)
        grows = jnp.any(jnp.stack([jnp.any(jnp.abs(new) > 1.001 * jnp.abs(old)) for old, new in pairs]))
        return (after < before) & (moved * (after / (before - after)) <= rounding) & ~grows

    def _measured(self, field: GradientField, state: FlowState) -> Measured | None:
        return self.stepper(field.along(state.flattened_by), state.point).measured(state.stepper.solver)

    def unit_of_time(self, state: FlowState) -> Float[Array, ""]:
        """Return the length that the step control proposes for the first step."""
        return state.stepper.wanted

    def work(self, state: FlowState, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return the work in all, with one gradient for each termination check where the solver holds none."""
        spent = state.stepper.work
        if not state.stepper.counted:
            return None, spent.products
        gradients, products = self.passes(spent.gradients + 1, steps)
        work = Work(gradients + (0 if state.stepper.measures else steps), products + spent.products)
        work = work if state.before is None else work + state.before
        return work.gradients, work.products

    def for_its_regime(self, state: FlowState) -> FlowState:
        """Return the state for a program of explicit steps alone, or of implicit ones, whichever come next."""
        regime = None if state.stepper.regime is None else bool(state.stepper.regime)
        return state if regime == state.stepper.only else replace(state, stepper=replace(state.stepper, only=regime))

    def is_within_regime(self, state: FlowState) -> Bool[Array, ""] | bool:
        """Tell whether the program that was made for this state takes its next step."""
        only, regime = state.stepper.only, state.stepper.regime
        return True if only is None or regime is None else regime == only

    def loosened(self, state: FlowState) -> Float[Array, ""]:
        """Return the largest factor by which the tolerance was loosened where the gradient jumps."""
        return state.stepper.smoothness.most

    def method(self, state: FlowState) -> str:
        """Return the name of the solver."""
        return state.stepper.name


@DYNAMICS.register("gradient_flow")
class GradientFlow(Flow):
    """dW/dt = −∇R(W), by a Diffrax solver.

    A run raises `ValueError` and `TypeError` for what `checked` refuses.
    """

    solver: diffrax.AbstractAdaptiveSolver | None = None
    """Any Diffrax solver with an error estimate; the default follows from the structure of the problem."""
    stepsize_controller: diffrax.AbstractAdaptiveStepSizeController | None = None
    """Replaces the step control altogether, and then holds the tolerances."""
    rtol: ArrayLike | None = None
    """Relative tolerance of a step; the default follows from the precision."""
    atol: ArrayLike | None = None
    """Absolute tolerance of a step; by default zero, as errors are measured beside each weight."""

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        parts = ("first_point", "vector_field", "weights_at")
        if replaced := [name for name in parts if getattr(cls, name) is not getattr(GradientFlow, name)]:
            raise TypeError(
                f"{cls.__name__} replaces {' and '.join(replaced)} of GradientFlow, whose solvers go by the "
                "curvature of the risk: expected a subclass of flowsim.dynamics.flow.Flow with a stepper of its own"
            )

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with the tolerances that it leaves open filled in: 1e-6, in float32 1e-4, and zero.

        Raises `TypeError` for a solver or a step control that cannot adapt, `ValueError` for tolerances that are given
        twice, or that the precision cannot meet.
        """
        relative, absolute = tolerances(self.rtol, self.atol, self.stepsize_controller, dtype)
        check_solver(self.solver, self.stepsize_controller)
        return replace(self, rtol=relative, atol=absolute)

    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return the solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        return stepper_for(field, point, self.solver, self.stepsize_controller, rtol, atol)

    def solver_for(self, network: PyTree, problem: Problem) -> diffrax.AbstractSolver:
        """Return the solver for the flow of a network, with its options filled in; nothing is computed."""
        weights, rest = split(network)
        dynamics = self.checked(weight_dtype(network))
        return dynamics.stepper(GradientField(problem, rest), weights).solver

    def may_be_flat(self) -> bool:
        """Tell whether neither solver nor step control holds a function, such as a norm, of the network's pytree."""
        return not any(callable(leaf) for leaf in jax.tree.leaves((self.solver, self.stepsize_controller)))

    def objective(self, field: GradientField, state: FlowState) -> Float[Array, ""] | None:
        """Return the objective that flowsim's own solvers have computed, `None` with others."""
        measured = self._measured(field, state)
        return None if measured is None else measured.objective

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and ‖∇R‖, which flowsim's own solvers have computed already."""
        measured = self._measured(field, state)
        measured = field.along(state.flattened_by).measured(state.point) if measured is None else measured
        return measured.objective, norm(measured.slope)


class DescentModel(Flow):
    """A flow that models a descent in the time of its steps, by default gradient descent with `learning_rate` η.

    `oscillation` is what it predicts besides the weights, the centre of descent's oscillation. The learning rate may
    change in time (`flowsim.LearningRate`), and `at` a time it is that from then on. To add one, write a
    subclass whose other fields have defaults: `flowsim.compare(..., models=["gradient", "my_module:MyFlow"])` runs it
    once for each learning rate, and `models=[MyFlow(rtol=1e-9)]` does the same with other options.
    """

    learning_rate: Scalar = None
    """η of gradient descent, a number or a `flowsim.LearningRate`; in `compare`, `None`: that of each descent."""

    @classmethod
    def of(cls, descent: Descent) -> Self:
        """Return the model of a descent, by default of gradient descent by its learning rate.

        Raises `ValueError` for a descent that this is no model of.
        """
        if not isinstance(descent, GradientDescent):
            raise ValueError(
                f"{cls.__name__} models gradient descent alone, whose edge of stability is at 2/η and whose steps have "
                'no memory, not that of another optimizer: models=["centre"] does'
            )
        return cls(learning_rate=descent.learning_rate)

    def check_start(self, network: Any, problem: Problem) -> None:
        """Raise `ValueError` for a model without the learning rate of a descent."""
        if self.learning_rate is None:
            name = type(self).__name__
            raise ValueError(
                f"{name} has no learning rate: write {name}(learning_rate=0.1), the rate of the descent that it "
                "models, or give the model to flowsim.compare, in which each descent sets the rate"
            )

    def following(self, descent: Descent, *, rtol: float | None = None, atol: float | None = None) -> Self:
        """Return the model of a descent with the options of this one.

        An option that is `None` is filled in by `of`, and a tolerance that is still `None` by `rtol` or `atol`.
        """
        filled, tolerances = vars(self.of(descent)), {"rtol": rtol, "atol": atol}
        missing = [name for name, value in vars(self).items() if value is None]
        return replace(
            self, **{name: tolerances.get(name) if filled[name] is None else filled[name] for name in missing}
        )

    def at(self, time: Float[Array, ""]) -> Self:
        """Return the model of the descent from a time on."""
        later = rate_from(self.learning_rate, time)
        return eqx.tree_at(lambda one: one.learning_rate, self, later) if self.is_scheduled() else self

    def is_scheduled(self) -> bool:
        """Tell whether the learning rate changes in time."""
        return is_scheduled(self.learning_rate)

    def is_settled(self, time: Float[Array, ""]) -> Bool[Array, ""] | bool:
        """Tell whether the learning rate does not rise any more."""
        return is_settled(self.learning_rate, time)

    def rate_of_descent(self) -> Scalar:
        """Return the learning rate of the descent that it models."""
        return nominal_rate(self.learning_rate)

    def lasting_threshold(self, time: Float[Array, ""]) -> Scalar:
        """Return 2 over the largest learning rate from a time on."""
        return 2 / largest_rate(self.learning_rate, time)

    def held_within(self, dtype: jnp.dtype) -> float | None:
        """Return the relative deviation from 2/η up to which the model holds the sharpness there while it oscillates.

        `None` for a model that does not hold it, as here.
        """
        return None


MODELS: Registry[type[DescentModel]] = Registry(
    "a model of descent",
    accepts=is_kind_of(DescentModel),
    expected="a subclass of flowsim.DescentModel",
    elsewhere=("flowsim.edge",),
)
