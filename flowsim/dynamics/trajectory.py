"""What a run returns."""

import functools
import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import sharpness
from ..curvature.line import numbers_of
from ..formatting import encodable
from ..formatting.presentation import Drawn, view_of
from ..networks import records as records_of
from ..probes import Label
from ..problems import Problem
from ..runtime.compiling import compiled, is_traced
from .branches import BranchPoint, KeptStates
from .dynamics import Dynamics
from .loop import Request, RunState
from .outcome import Outcome
from .records import STANDARD

if TYPE_CHECKING:
    import xarray


class Trajectory(Drawn, eqx.Module):
    """A run of gradient flow or gradient descent: its records, its end, and how it ended.

    Records have one entry each, the last one at the end of the run. Inside `jax.jit` and `jax.vmap` shapes are fixed,
    so entries from `count` on are NaN. `final_risk`, `final_excess_risk`, `final_squared_distance`,
    `final_gradient_norm` and `final_sharpness` are those at the end, also of a batch of runs. Of a learning rate that
    changes in time `diagnostics` have `scheduled_rate` and `moving_edge` along the path.

    In a debugger, an interactive session and inside `jax.jit` it is one line (`repr`), of which nothing is computed.
    Printed, and shown in a notebook, it is the table of the command line with its one row: for that the sharpness at
    the end is computed, unless it is known, as `final_sharpness`, a dash where it could not be certified. `figures`,
    `plot`, `to_dataset`, `to_dataframe` and `save` are as those of a `Comparison`; like the table they are for one run,
    and say `ValueError` of a batch and inside `jax.jit`, where a printed one is its line.
    """

    times: Float[Array, " records"]
    """The times of the records."""
    time_remainders: Float[Array, " records"]
    """What is to be added to them, which keeps the digits for which one number has no room at the end of a long
    plateau."""
    risk: Float[Array, " records"]
    """R at the records."""
    excess_risk: Float[Array, " records"]
    """R − R_min, NaN where the minimum is not known."""
    squared_distance: Float[Array, " records"]
    """‖π − w*‖², NaN without a regressor."""
    gradient_norm: Float[Array, " records"]
    """‖∇R‖ at the records."""
    diagnostics: dict[str, PyTree]
    """What diagnostics and probes measured, by their names."""
    sharpness: Float[Array, " records"] | None
    """S at the records, NaN where it was not measured; `None` unless it was asked for."""
    weights: PyTree
    """The network at the records, with a leading axis of them in every weight; `None` unless weights were asked for."""
    network: PyTree
    """The network at the end."""
    problem: Problem
    """The risk R."""
    time: Float[Array, ""]
    """The time at the end."""
    steps: Int[Array, ""]
    """The accepted steps of a flow, the steps of a descent."""
    rejected_steps: Int[Array, ""]
    """The rejected steps of a flow."""
    code: Int[Array, ""]
    """The number of the `outcome`."""
    count: Int[Array, ""]
    """The number of records."""
    gradients: Int[Array, ""] | None
    """The evaluations of the gradient; `None` where Diffrax does not say."""
    products: Int[Array, ""]
    """Hessian–vector products and, for the low-rank solver, linearized passes over the data for the Jacobian of the
    outputs."""
    loosened: Float[Array, ""]
    """The largest factor by which the tolerance had to be loosened where the gradient jumps, one for a smooth one."""
    order: Float[Array, ""]
    """The order k to which the risk is flat where the run ends: there it rises like x^k, and k is two unless that is
    known to be a degenerate point, which a flow approaches like t^(−1/(k−2))."""
    learning_rate: Float[Array, ""] | None
    """η of a descent, and of the flow that models one, `None` where there is none; of one that changes, the nominal
    rate."""
    sharpness_threshold: Float[Array, ""] | None
    """The sharpness up to which it is stable, 2/η for gradient descent; `None` where that is not known."""
    states: KeptStates | None
    """What `branch` goes on from, of a descent that was told to keep it."""
    method: str = eqx.field(static=True)
    """The name of the solver."""
    dynamics: str = eqx.field(static=True)
    """The name of what moved the weights: "gradient_flow", "gradient_descent", or `my_module:MyKind`."""
    labels: dict[str, Label] = eqx.field(static=True)
    """What the diagnostics are called in tables and figures."""

    @property
    def path(self) -> PyTree:
        """The same as `weights`."""
        return self.weights

    @property
    def outcome(self) -> Any:
        """How the run ended, an `Outcome`; an array of them for a batch of runs; where it is traced, the `code`.

        All three may be compared with an `Outcome`.
        """
        if isinstance(self.code, Tracer):
            return self.code
        return Outcome(int(self.code)) if self.code.ndim == 0 else np.vectorize(Outcome, otypes=[object])(self.code)

    @property
    def converged(self) -> bool | Array:
        """Whether the run reached its limit: where it was to stop before, at a risk or a time, it did not."""
        reached = self.code == Outcome.CONVERGED
        return reached if isinstance(reached, Tracer) or reached.ndim > 0 else bool(reached)

    @property
    def final_risk(self) -> float | Array:
        """The risk at the end: a number, or an array for a batch of runs and inside `jax.jit` and `jax.vmap`."""
        return self._last(self.risk)

    @property
    def final_excess_risk(self) -> float | Array:
        """The excess risk at the end, as `final_risk`."""
        return self._last(self.excess_risk)

    @property
    def final_squared_distance(self) -> float | Array:
        """The squared distance ‖π − w*‖² at the end, as `final_risk`."""
        return self._last(self.squared_distance)

    @property
    def final_gradient_norm(self) -> float | Array:
        """The norm of the gradient at the end, as `final_risk`."""
        return self._last(self.gradient_norm)

    def _last(self, along: Float[Array, "*batch records"]) -> float | Array:
        """Return the last record of every run: behind it, where runs are traced or stand in a batch, all is NaN."""
        if isinstance(along, Tracer) or isinstance(self.count, Tracer):
            return jnp.take_along_axis(along, self.count[..., None] - 1, axis=-1)[..., 0]
        last = np.take_along_axis(np.asarray(along), np.asarray(self.count)[..., None] - 1, axis=-1)[..., 0]
        return float(last) if last.ndim == 0 else jnp.asarray(last)

    @functools.cached_property
    def final_sharpness(self) -> float | Array:
        """The sharpness at the final weights, computed when first read; NaN if the run diverged.

        A number; inside `jax.jit` and `jax.vmap`, an array, NaN too where the sharpness could not be certified. Raises
        `RuntimeError` if it could not be, and `ValueError` for a batch of runs.
        """
        if isinstance(self.code, Tracer):
            return jnp.where(self.code == Outcome.DIVERGED, jnp.nan, sharpness(self.network, self.problem))
        if self.code.ndim > 0:
            raise ValueError(
                "final_sharpness is that of one run: for a batch of runs, read it inside of what jax.vmap maps, or "
                "write jax.vmap(flowsim.sharpness)(runs.network, runs.problem)"
            )
        if self.outcome == Outcome.DIVERGED:
            return float("nan")
        if self.sharpness is not None and jnp.isfinite(self.sharpness[-1]):
            return float(self.sharpness[-1])  # the last record is the end
        return float(sharpness(self.network, self.problem))

    def branch(self, step: int) -> BranchPoint:
        """Return where the run was at a recorded `step`, from which another descent may go on (`descend(after=...)`).

        Raises `ValueError` for a run that was not told to keep its states, and for a step that was not recorded.
        """
        if self.states is None:
            raise ValueError("this run has not kept its states: write descend(..., states=True) to go on from records")
        if is_traced(self.states):
            raise ValueError("a run is branched from outside of jit and vmap, where it is known how it ended")
        along = self.states.along
        steps, whole = np.asarray(along.steps), isinstance(step, int | np.integer) and not isinstance(step, bool)
        places = np.flatnonzero(steps == step) if whole else np.array([], int)
        if not places.size:
            some = ", ".join(map(str, steps[:: max(1, len(steps) // 8)]))
            raise ValueError(f"no state was recorded at step {step!r}: there are {some}, …, {steps[-1]}")
        state = records_of(along, places[0])
        if int(state.code) == Outcome.DIVERGED:
            raise ValueError(f"the run had diverged at step {step}: expected a step before")
        return BranchPoint(state, self.states)

    def __repr__(self) -> str:
        return encodable(_line(self))

    def to_dataset(self, attrs: Mapping[str, Any] | None = None) -> "xarray.Dataset":
        """Return the run as labelled arrays over (run, record), with `attrs` among the attributes.

        As `Comparison.to_dataset`, for one run, its sharpness at the end computed unless it is known. Raises
        `ValueError` for a batch of runs and inside `jax.jit`.
        """
        return view_of(self).to_dataset(attrs)


def trajectory_of(state: RunState, request: Request, rest: PyTree) -> Trajectory:
    """Return the trajectory of a run that ended in `state`, cut to the records made where their number is known."""
    dynamics, records = request.dynamics, state.schedule.records
    weights, (gradients, products), loosened, rate, threshold = _totals(dynamics, state)
    slots = records.slots
    if isinstance(records.count, Tracer):
        reached = jnp.arange(records.capacity) < records.count

        def with_nan(buffer: Array) -> Array:
            return jnp.where(reached.reshape(-1, *[1] * (buffer.ndim - 1)), buffer, jnp.nan)

        slots = jax.tree.map(with_nan, slots)
    else:
        slots = records_of(slots, slice(int(records.count)))
    measured, kept = dict(slots["probes"]), slots["states"]
    standard = {probe.label.name: measured.pop(probe.label.name) for probe in STANDARD}
    along = measured.pop("sharpness", None)
    return Trajectory(
        times=slots["times"],
        time_remainders=slots["time_remainders"],
        **standard,
        diagnostics=measured,
        sharpness=along,
        weights=None if slots["weights"] is None else eqx.combine(slots["weights"], rest),
        network=eqx.combine(weights, rest),
        problem=request.problem,
        time=state.clock.time,
        steps=state.steps,
        rejected_steps=state.rejected_steps,
        code=state.code,
        count=records.count,
        gradients=gradients,
        products=products,
        loosened=loosened,
        order=state.order,
        # A program returns what it only hands on as it was given, under `jax.grad` a number of NumPy's.
        learning_rate=None if rate is None else jnp.asarray(rate),
        sharpness_threshold=None if threshold is None else jnp.asarray(threshold),
        states=None
        if kept is None
        else KeptStates(
            kept, request.network, dynamics, request.begin and request.begin.origin, request.problem, request.stopping
        ),
        method=dynamics.method(state.dynamics),
        dynamics=dynamics.kind(),
        labels={probe.label.name: probe.label for probe in request.instruments.probes},
    )


@partial(compiled, sized_by=[0], few_calls=True)
def _totals(dynamics: Dynamics, state: RunState) -> tuple[PyTree, ...]:
    """Return the weights at the end of a run, its work, how far its tolerance was loosened, its rate and threshold.

    One program takes less time than the small ones of its parts, to compile and to run.
    """
    numbers = jax.tree.map(jnp.asarray, (dynamics.rate_of_descent(), dynamics.sharpness_threshold()))
    here = state.dynamics
    return (
        dynamics.weights(here),
        dynamics.work(here, state.steps),
        dynamics.loosened(here),
        *numbers,
    )


def as_times(ts: object, name: str, *, whole: bool = False) -> np.ndarray:
    """Return increasing numbers ≥ 0 as an array; `ValueError` otherwise."""
    array = np.asarray(ts)
    wanted = "whole numbers" if whole else "numbers"
    if array.ndim == 1 and (array.size > 0 or not whole) and array.dtype.kind in ("iu" if whole else "iuf"):
        finite = array[np.isfinite(array)]
        # Times that never come may fill the end, so that lists of several lengths share one program.
        filled = np.append(finite, np.full(array.size - finite.size, np.inf))
        if np.array_equal(array, filled) and (array[:1] >= 0).all() and (np.diff(finite) > 0).all():
            return array
    shown = np.array2string(array, threshold=8)
    raise ValueError(f"{name} must be a list of increasing {wanted}, zero or more, got {shown}")


def is_batch(run: Any) -> bool:
    """Tell whether a `Trajectory` is not one run with numbers, but a batch of runs, or traced."""
    code = numbers_of(run.code)
    return code is None or code.ndim > 0


def _line(run: Any) -> str:
    """Return a trajectory in one line, whatever its leaves are: numbers, batches, tracers, or no arrays at all."""
    code = numbers_of(run.code)
    if code is None:
        shape = getattr(run.times, "shape", None)  # known of a tracer, too
        if shape is None:
            return f"Trajectory({run.dynamics}, of {type(run.times).__name__} leaves)"
        *batch, records = shape or ("no",)
        of = f"{' × '.join(map(str, batch))} runs of " if batch else ""
        kind = "traced" if isinstance(run.times, Tracer) else "no numbers"
        return f"Trajectory({run.dynamics}, {kind}, {of}{records} records)"
    if code.ndim > 0:
        ends = Counter(_word(one) for one in code.flat)
        batch = " × ".join(map(str, code.shape))
        return f"Trajectory({run.dynamics}, {batch} runs: {', '.join(f'{n} {word}' for word, n in ends.items())})"
    rate, time, steps, count = map(_number, (run.learning_rate, run.time, run.steps, run.count))
    parts = [run.dynamics] + ([] if math.isnan(rate) else [f"η = {rate:.3g}"])
    end = "" if math.isnan(time) else f" at t = {time:.4g}"
    parts.append(_word(code) + end + ("" if math.isnan(steps) else f" after {steps:.0f} steps"))
    risk = numbers_of(run.risk)
    if risk is not None and risk.ndim == 1 and 1 <= count <= risk.size:
        parts.append(f"risk {risk[int(count) - 1]:.3g}")
    return f"Trajectory({', '.join(parts)})"


def _number(leaf: Any) -> float:
    found = numbers_of(leaf)
    return math.nan if found is None or found.ndim else float(found)


def _word(code: Any) -> str:
    try:
        return Outcome(int(code)).words
    except ValueError:
        return f"outcome {code}"
