"""What flowsim asks of a solver: its registry, its count of work, and steps that it chooses itself."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..kinds import Registry, is_kind_of
from .field import Measured, VectorField

SOLVERS: Registry[type[diffrax.AbstractAdaptiveSolver]] = Registry(
    "a solver",
    accepts=is_kind_of(diffrax.AbstractAdaptiveSolver),
    expected="a diffrax.AbstractAdaptiveSolver with all of its methods",
)

# Diffrax's own solvers with adaptive steps: Euler has no error estimate, KenCarp and Sil3 want a split field.
for _solver in (
    diffrax.Tsit5,
    diffrax.Dopri5,
    diffrax.Dopri8,
    diffrax.Bosh3,
    diffrax.Heun,
    diffrax.Kvaerno3,
    diffrax.Kvaerno4,
    diffrax.Kvaerno5,
):
    SOLVERS.register(_solver.__name__)(_solver)


class Work(eqx.Module):
    """What steps have cost.

    A row of a Jacobian is the derivative of one output on every sample, which a network computes sample by sample in
    one pass.
    """

    gradients: Int[Array, ""]
    """Evaluations of the gradient."""
    products: Int[Array, ""]
    """Linearized passes over all data: Hessian–vector products, or rows of a Jacobian."""

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


class Proposal(eqx.Module):
    """What a solver that chooses its steps returns of one in place of an error.

    Args:
        size: The error in units of the tolerance, up to one where the step may be kept.
        factor: What leads from its length to that of the next, or of the next attempt.
        rough: Whether the error is larger than that of so short a step in any field without jumps.
        aimed: Whether the next is to end where something is looked for, so that the step control obeys to the digit.
        rounded: Whether the error may be the rounding of y.
    """

    size: Float[Array, ""]
    factor: Float[Array, ""]
    rough: Bool[Array, ""]
    aimed: Bool[Array, ""]
    rounded: Bool[Array, ""]

    def __init__(
        self,
        size: Float[Array, ""],
        factor: Float[Array, ""],
        rough: ArrayLike = False,
        aimed: ArrayLike = False,
        rounded: ArrayLike = False,
    ):
        # Where the field left its domain nothing is known but that the step is too long.
        unknown = jnp.isnan(size) | jnp.isnan(factor)
        self.size, self.factor = jnp.where(unknown, jnp.inf, size), jnp.where(unknown, 0, factor).astype(size.dtype)
        self.rough, self.aimed, self.rounded = jnp.asarray(rough), jnp.asarray(aimed), jnp.asarray(rounded)


class ProposingSolver(diffrax.AbstractAdaptiveSolver, CountsWork):
    """A Diffrax solver that knows more of its next step than the size of its error says.

    It may change its order or its formula, or know how far it is stable. `step` returns a `Proposal` in place of an
    error, which `ProposedSteps` obeys; no other step-size controller understands it. To add one, subclass this with
    fields `rtol` and `atol`, by which it chooses and which `flowsim.integrate` fills in where they are `None`, and the
    methods `order`, `init`, `step` and `work`, of which the last says what all steps until a state have cost.
    """

    rtol: eqx.AbstractVar[float | Float[Array, ""] | None]
    atol: eqx.AbstractVar[float | Float[Array, ""] | None]

    term_structure: ClassVar = diffrax.AbstractTerm

    def memory(self) -> int | None:
        """Return about how many arrays of the size of the weights a step keeps; `None`, as here, where nobody knows."""
        return None

    def error_order(self, terms: Any) -> int:
        """Return 1, by which Diffrax's heuristic guesses the first step."""
        return 1

    def func(self, terms: Any, t0: Any, y0: PyTree, args: Any) -> PyTree:
        """Return f(t0, y0)."""
        return terms.vf(t0, y0, args)

    def fill_in(self, field: VectorField, rtol: Float[Array, ""], atol: Float[Array, ""]) -> Self:
        """Return the solver for a field, with what it leaves open filled in."""
        own = {"rtol": rtol if self.rtol is None else self.rtol, "atol": atol if self.atol is None else self.atol}
        return dataclasses.replace(cast(Any, self), **own)

    def loosen(self, slack: Float[Array, ""], size: Float[Array, ""], noise: Float[Array, ""]) -> Self:
        """Return the solver with tolerances multiplied by `slack`, as the field jumps, and with `noise` added.

        A weight may be held at zero there, by slopes of both signs beside it. So what is added to the relative
        tolerance counts for all weights as if they were of their root mean square, `size`.
        """
        own = cast(Any, self)
        absolute = slack * own.atol + (slack - 1) * own.rtol * size + noise
        return dataclasses.replace(own, rtol=slack * own.rtol, atol=absolute)

    def steady_order(self, solver_state: Any) -> bool | Bool[Array, ""]:
        """Tell whether the error of the next step, tried again, falls by its order unless the field jumps."""
        return False

    def blank(self, y0: PyTree) -> Any | None:
        """Return the state before anything is measured, `None` where only `init` can make one, as here.

        With it a run begins by a step of no length, which measures where it begins and is kept, whatever it proposes.
        So its program holds the evaluation of the field once, and not a second time for the start.
        """
        return None

    def regime(self, solver_state: Any) -> Bool[Array, ""] | None:
        """Tell which of two kinds of steps comes next; `None` for a solver with one kind, as here."""
        return None

    def within(self, regime: bool | None) -> Self:
        """Return the solver for steps in one `regime` alone, whose program is smaller; `None` for both."""
        return self

    def after_rejection(self, before: Any, after: Any) -> Any:
        """Return the state to try again with, from those before and after a step that was rejected."""
        return before

    def measured(self, solver_state: Any) -> Measured | None:
        """Return f and the objective where the solver is, `None` for one that does not keep both."""
        return None

    @abc.abstractmethod
    def step(
        self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: Any, made_jump: Any
    ) -> tuple[PyTree, Proposal, dict[str, PyTree], Any, diffrax.RESULTS]:
        """Take one step; return y1, the proposal, what interpolates in between, the state and whether all went well."""


class MeasuringSolver(ProposingSolver):
    """A `ProposingSolver` whose state keeps what was `measured` at its point, f and the objective, and its `work`.

    `measure` returns both at a point, in one pass over the data; `fill_in` takes it from the field.
    """

    measure: eqx.AbstractVar[Callable[[PyTree], Measured] | None]

    def fill_in(self, field: VectorField, rtol: Float[Array, ""], atol: Float[Array, ""]) -> Self:
        """Return the solver for a field, with what it leaves open filled in."""
        return dataclasses.replace(cast(Any, super().fill_in(field, rtol, atol)), measure=field.measured)

    def work(self, solver_state: Any) -> Work:
        """Return the work of all steps so far."""
        return solver_state.work

    def measured(self, solver_state: Any) -> Measured:
        """Return f and the objective where the solver is."""
        return solver_state.measured

    def after_rejection(self, before: Any, after: Any) -> Any:
        """Return what has been learned, at the point from where the step went."""
        return dataclasses.replace(after, measured=before.measured)

    def taken_to(self, measured: Measured, solver_state: Any) -> Any:
        """Return the state at a point that another solver has reached."""
        return dataclasses.replace(solver_state, measured=measured)

    def price(self, spent: Work) -> Array:
        """Return what a step that has `spent` so much costs, in evaluations of f."""
        return spent.gradients

    def unmeasured(self, y0: PyTree) -> Measured:
        """Return zeros in the shape of what is measured at y0."""
        return Measured(jax.tree.map(jnp.zeros_like, y0), jnp.zeros((), jax.tree.leaves(y0)[0].dtype))

    def measure_at(self, terms: Any, t: Any, y: PyTree, args: Any) -> Measured:
        """Return what `measure` returns at y; without it f alone, with NaN for the objective."""
        if self.measure is not None:
            return self.measure(y)
        return Measured(terms.vf(t, y, args), jnp.full((), jnp.nan, jax.tree.leaves(y)[0].dtype))


class ProposedSteps(diffrax.AbstractAdaptiveStepSizeController):
    """The step control of a `ProposingSolver`: it accepts, rejects and lengthens steps as the solver proposes.

    For use with `diffrax.diffeqsolve`; `flowsim.integrate` takes it by itself.
    """

    rtol: float | Float[Array, ""]
    """The relative tolerance of the solver, by which the first step is guessed."""
    atol: float | Float[Array, ""]
    """The absolute one."""
    after_accepted: tuple[float, float] = eqx.field(static=True, default=(1.0, 10.0))
    """Bounds of the factor to the next step after an accepted one, which does not shorten it."""
    after_rejected: tuple[float, float] = eqx.field(static=True, default=(0.2, 0.9))
    """Bounds of the factor to the next step: an accepted step does not shorten it, and a rejected one must."""

    @property
    def norm(self) -> Callable[[PyTree], Any]:
        """The norm in which errors are measured: the root mean square."""
        return diffrax.PIDController(self.rtol, self.atol).norm

    def wrap(self, direction: Any) -> Self:
        """Return the same: the direction of time does not matter."""
        return self

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, dt0: Any, args: Any, func: Any, error_order: Any) -> tuple:
        """Return the end of the first step, by Diffrax's heuristic where `dt0` is `None`; there is no state."""
        heuristic = diffrax.PIDController(self.rtol, self.atol)
        end, _ = heuristic.init(terms, t0, t1, y0, dt0, args, func, error_order)
        return end, None

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: PyTree,
        y1_candidate: PyTree,
        args: Any,
        y_error: PyTree | None,
        error_order: Any,
        controller_state: None,
    ) -> tuple:
        """Do what the solver proposes. Raises `TypeError` where it proposes nothing."""
        if not isinstance(y_error, Proposal):
            raise TypeError("ProposedSteps is the step control of flowsim's own solvers: use diffrax.PIDController")
        keep, factor = y_error.size <= 1, jax.lax.stop_gradient(y_error.factor)
        kept, rejected = (jnp.clip(factor, *bounds) for bounds in (self.after_accepted, self.after_rejected))
        begin = jnp.where(keep, t1, t0)
        end = begin + jnp.where(y_error.aimed, factor, jnp.where(keep, kept, rejected)) * (t1 - t0)
        return keep, begin, end, False, None, diffrax.RESULTS.successful


def memory_of(solver: diffrax.AbstractSolver, weights: int, *, beside_stages: int = 4) -> int | None:
    """Return about how many arrays of the size of so many weights a step keeps; `None` where nobody knows.

    A Runge–Kutta method of Diffrax keeps its stages and `beside_stages` arrays more, an implicit one a matrix over all
    weights besides.
    """
    if isinstance(solver, ProposingSolver):
        return solver.memory()
    if not isinstance(solver, diffrax.AbstractRungeKutta):
        return None
    matrix = weights if isinstance(solver, diffrax.AbstractImplicitSolver) else 0
    tableau = solver.tableau
    several = isinstance(tableau, diffrax.MultiButcherTableau)
    stages = sum(one.num_stages for one in tableau.tableaus) if several else tableau.num_stages
    return stages + beside_stages + matrix
