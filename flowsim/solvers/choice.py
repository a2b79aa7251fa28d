"""The solver, step control and tolerances of a flow: what is chosen where nothing is given, and what is refused."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from ..curvature import gauss_newton_passes, knows_gram
from ..curvature.vectors import size_of
from ..formatting.numbers import rounded_down
from ..kinds import got
from .field import GradientField, constant, norm
from .hessian import HessianExtrapolation
from .low_rank import LowRankExtrapolation
from .solver import ProposedSteps, ProposingSolver
from .step_control import SharpnessLimitedController, stability_interval
from .stepper import Stepper
from .stiffness import StiffnessSwitching
from .switching import StabilitySwitching

# Diffrax puts this mark, which is no number, where diffeqsolve is to fill in the tolerances of the step control.
_LEFT_OPEN: Any = diffrax.Kvaerno3().root_finder.rtol


def default_solver(
    field: GradientField,
    weights: PyTree,
    rtol: Float[Array, ""],
    atol: Float[Array, ""],
    *,
    largest_rank: int = 2048,
    largest_overhead: float = 45,
    largest_hessian: int = 512,
) -> diffrax.AbstractAdaptiveSolver:
    """Return the solver for a problem: by what its curvature costs.

    For a linear network, where GGᵀ has a closed form, it is `LowRankExtrapolation`, whose steps accuracy alone limits;
    but with several outputs at the saddles between the singular values that are learned one after the other, where what
    the Gauss–Newton matrix leaves out keeps them short, it is the Hessian by `StiffnessSwitching`. For others it is
    that, too, explicit while that is cheap, then with the Gauss–Newton matrix where that costs little, for up to 512
    samples and one output, 31 samples and ten; and where it costs more, or the problem does not know its outputs, with
    the Hessian. Beyond it is `StabilitySwitching`, explicit, which changes its formula with what limits its step.

    Args:
        field: The vector field −∇R.
        weights: Where it starts.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        largest_rank: Up to which rank factorizations of the outputs' matrix GGᵀ cost no more than the gradients of a
            step.
        largest_overhead: Up to which price for each step, in gradients, the Gauss–Newton matrix is taken: explicit
            stabilized steps of that price have a reach hρ of some 700.
        largest_hessian: Up to how many weights the Hessian is.

    Returns:
        The solver, with all that it takes filled in.
    """
    network, problem, count = field.network(weights), field.problem, size_of(weights)
    rank, passes = problem.rank(network), gauss_newton_passes(weights, problem, field.network)
    columns = 5 if jax.tree.leaves(weights)[0].dtype.itemsize < 8 else 8
    explicit = StabilitySwitching(rtol, atol)
    known = knows_gram(network, problem)
    if rank is not None and passes is not None and rank <= largest_rank:
        # For a linear network that fits its optimum, what a Gauss–Newton matrix leaves out vanishes at the limit; to
        # follow it spared no steps on the way.
        followed = 0 if known else 8
        # Its Gram matrix takes m² products of rows where a gradient takes one for each sample.
        overhead = 5 + rank / 16 + followed if known else 4 + passes * (1 + rank / 16) + followed
        if known or overhead <= largest_overhead:
            low_rank = LowRankExtrapolation(
                curvature=field.gauss_newton,
                rtol=rtol,
                atol=atol,
                columns=columns,
                followed=followed,
                overhead=overhead,
            )
            if not known:
                return StiffnessSwitching(first=explicit, second=low_rank)
            regressor = eqx.filter_eval_shape(lambda network: network.regressor(), network)
            if count > largest_hessian or regressor.ndim == 1:
                return low_rank
            whole = _with_hessian(count, columns)
            return StiffnessSwitching(first=low_rank, second=whole, tried_after=10, paced=False, back=1.5, on_trial=12)
    if count > largest_hessian:
        return explicit
    whole = _with_hessian(count, columns, gradient=5 + count / 10)
    return StiffnessSwitching(first=explicit, second=whole, tried_after=2, back=0.25)


def _with_hessian(count: int, columns: int, *, gradient: float = 5.0, free: int = 32) -> HessianExtrapolation:
    """Return the solver with the Hessian for so many weights; of up to `free` it is taken as often as it helps.

    `gradient` is about how many μs an evaluation of the gradient takes: 5 for a linear network, for others the more,
    the more weights they have. A product takes half of it, where many are taken at once; a factor and eigenvectors take
    some p³/70 and p³ ns.
    """
    overhead, product_price = 2 + count**3 / (14_000 * gradient), 0.5 + count**2 / (4000 * gradient)
    # Along a bent valley of condition 1e8 the error is 318·rtol with `still` = 1e3, and 7·rtol with 10.
    often = {"kept": 1, "still": 10.0} if count <= free else {}
    return HessianExtrapolation(columns=columns, overhead=overhead, product_price=product_price, **often)


def stepper_for(
    field: GradientField,
    weights: PyTree,
    solver: diffrax.AbstractAdaptiveSolver | None,
    controller: diffrax.AbstractAdaptiveStepSizeController | None,
    rtol: Float[Array, ""],
    atol: Float[Array, ""],
) -> Stepper:
    """Return the stepper for the options of a gradient flow, with what is left open filled in."""
    method = default_solver(field, weights, rtol, atol) if solver is None else solver
    if isinstance(method, ProposingSolver):
        return Stepper(method.fill_in(field, rtol, atol), controller or ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)
    if controller is None:
        # A weight that symmetry holds at zero moves by rounding, and no step is exact beside that.
        rounding = 4 * jnp.finfo(rtol.dtype).eps * norm(weights) / size_of(weights) ** 0.5
        least = jnp.maximum(rounding, jnp.finfo(rtol.dtype).tiny)
        controller = diffrax.PIDController(rtol=rtol, atol=jnp.maximum(atol, least))
        if not isinstance(method, diffrax.AbstractImplicitSolver):
            controller = SharpnessLimitedController(controller, field, interval=stability_interval(method))
    # A root finder may leave its tolerances open: they are those of the steps.
    finder = getattr(method, "root_finder", None)
    for name in ("rtol", "atol", "norm") if finder is not None else ():
        if getattr(finder, name) is _LEFT_OPEN:
            method = eqx.tree_at(lambda s, n=name: getattr(s.root_finder, n), method, getattr(controller, name))
    return Stepper(method, controller)


def usable_solver(kind: type[diffrax.AbstractAdaptiveSolver]) -> diffrax.AbstractAdaptiveSolver:
    """Return a solver of this kind as it is where nothing is said about it.

    Raises `TypeError` for one that cannot integrate a gradient flow, and what the kind itself raises.
    """
    solver = kind()
    check_solver(solver, None)
    if not isinstance(solver, ProposingSolver | diffrax.AbstractImplicitSolver):
        stability_interval(solver)
    return solver


def check_solver(solver: object, controller: object) -> None:
    """Raise `TypeError` or `ValueError` for a solver or a step-size controller that cannot be used."""
    if isinstance(solver, type):
        raise TypeError(
            f"solver must be an object, such as diffrax.Tsit5(), got {got(solver, diffrax.AbstractAdaptiveSolver)}"
        )
    if solver is not None and not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        raise TypeError(
            f"{type(solver).__name__} makes no error estimate, so its steps cannot adapt: pass a solver such as "
            "diffrax.Tsit5(), or use flowsim.descend for steps of fixed length"
        )
    if solver is not None and solver.term_structure not in (diffrax.AbstractTerm, diffrax.ODETerm):
        raise TypeError(
            f"{type(solver).__name__} wants a field in several terms: pass a solver such as diffrax.Tsit5()"
        )
    if controller is not None and not isinstance(controller, diffrax.AbstractAdaptiveStepSizeController):
        raise TypeError(f"stepsize_controller must adapt its steps to an error, got {type(controller).__name__}")
    if isinstance(controller, diffrax.ClipStepSizeController):
        raise ValueError("times at which a step must end are given as ts=..., not to the step-size controller")
    proposes = solver is None or isinstance(solver, ProposingSolver)
    if controller is not None and proposes != isinstance(controller, ProposedSteps):
        name = "the default solver" if solver is None else type(solver).__name__
        raise TypeError(
            f"{name} chooses its steps itself: give rtol and atol to integrate, or a solver of Diffrax's beside its "
            "stepsize_controller"
            if proposes
            else f"{name} proposes no steps, which is what ProposedSteps wants: use diffrax.PIDController"
        )


def tolerances(
    rtol: ArrayLike | None,
    atol: ArrayLike | None,
    controller: object | None,
    dtype: jnp.dtype,
    *,
    standard: float = 1e-6,
) -> tuple[ArrayLike, ArrayLike]:
    """Return the tolerances of a run: those of its own `controller`, if it has one; what is not given by precision.

    By default rtol is `standard` in float64, 1e-4 in float32 and the finest in float16, and atol zero. Raises
    `ValueError` where they are given twice, for what is not a number, and where the precision cannot meet them.
    """
    if controller is not None:
        if rtol is not None or atol is not None:
            raise ValueError("with a stepsize_controller of your own, give rtol and atol to it, not to integrate")
        rtol, atol = getattr(controller, "rtol", None), getattr(controller, "atol", None)
    relative, absolute = standard_rtol(dtype, standard) if rtol is None else rtol, 0.0 if atol is None else atol
    for name, value in (("rtol", relative), ("atol", absolute)):
        if not isinstance(value, jax.Array) and (np.ndim(value) or np.asarray(value).dtype.kind not in "iuf"):
            raise ValueError(f"{name} must be a number, got {value!r}")
    if not (isinstance(relative, jax.Array) or isinstance(absolute, jax.Array)):
        rtol, atol, finest = float(np.asarray(relative)), float(np.asarray(absolute)), finest_rtol(dtype)
        if not 0 < rtol < 1 or not atol >= 0:
            raise ValueError(f"expected 0 < rtol < 1 and atol ≥ 0, got rtol={rtol} and atol={atol}")
        if rtol < finest:
            raise ValueError(
                f"rtol={rtol:g} is finer than {dtype} can meet: write rtol={finest:.1g} or more"
                + (", or use float64 weights (jax.config.update('jax_enable_x64', True))" if dtype.itemsize < 8 else "")
            )
    return constant(relative, dtype), constant(absolute, dtype)


def finest_rtol(dtype: jnp.dtype) -> float:
    """Return the smallest relative tolerance that a flow can meet with weights of a type."""
    return rounded_down(32 * float(jnp.finfo(dtype).eps), digits=1)


def standard_rtol(dtype: jnp.dtype, standard: float = 1e-6) -> float:
    """Return the relative tolerance of a flow for weights of a type where none is given."""
    return max(1e-4 if dtype.itemsize < 8 else standard, finest_rtol(dtype))
