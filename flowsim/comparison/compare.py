"""`compare`: gradient flow and gradient descent from one initialization, run on one time axis."""

import contextlib
import dataclasses
import difflib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PyTree

from ..dynamics import Descent, GradientDescent, Stopping, Trajectory, checked_flow, descend, integrate
from ..formatting import Progress, ProgressCallback, check_progress, report_progress
from ..networks import weight_dtype
from ..probes import Probe, probe_of
from ..problems import Problem
from ..results.runs import Edge
from ..runtime.compiling import is_traced, with_standard_options
from ..solvers.field import check_step_count
from ..theory import minimal_sharpness_bounds_of
from .comparison import Comparison, compare_model_to_flow, compare_to_flow
from .descents import check_told_apart, descent_at, forked_descent, rates_and_makers
from .forks import Fork, Forked, check_forks, planned_forks, run_forks
from .models import GRADIENT, Centres, ModelOfDescent, ModelRun, check_models, run_models
from .records import RecordBudget, common_times, end_of, steps_and_marks, steps_of_descent, times_of
from .sharpness_along import FlowLimits, SharpnessAlong

if TYPE_CHECKING:
    import optax


_OF_CHECKPOINTS = ("checkpoint", "checkpoint_seconds")
_FLOW_OPTIONS = ("model", "solver", "stepsize_controller", "rtol", "atol", "max_steps", *_OF_CHECKPOINTS)
"""Arguments of `integrate` that `compare` hands on."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in `compare` after the first of its runs.

    In a notebook those that had ended are `sys.last_value.finished`.

    Args:
        finished: The runs that had ended: the descents in the order of their learning rates, and then the flow.
    """

    def __init__(self, finished: Sequence[Trajectory]):
        super().__init__(f"{len(finished)} of the runs had ended: they are the attribute `finished` of this exception")
        self.finished = tuple(finished)


@contextlib.contextmanager
def _interruptible() -> Iterator[list[Trajectory]]:
    """Yield a list for finished runs, which `Interrupted` holds after Ctrl-C."""
    finished: list[Trajectory] = []
    try:
        yield finished
    except KeyboardInterrupt as stopped:
        if not finished:
            raise
        raise Interrupted(finished) from stopped


@with_standard_options
def compare(
    network: PyTree,
    problem: Problem,
    learning_rates: Sequence[float | Descent],
    *,
    steps: int | None = None,
    t1: float | None = None,
    models: Sequence[str | ModelOfDescent] = (GRADIENT,),
    optimizer: "Callable[[float], Descent | optax.GradientTransformation]" = GradientDescent,
    diagnostics: Mapping[str, Callable[[Any], Any]] | None = None,
    probes: Sequence[Probe | Callable[[Any], Any]] = (),
    sharpness: bool | SharpnessAlong = True,
    limits: FlowLimits | None = None,
    forks: Sequence[Fork] = (),
    records: int | None = None,
    stopping: Stopping | None = None,
    progress: bool | ProgressCallback | None = None,
    **flow_options: Any,
) -> Comparison:
    """Run gradient flow, and gradient descent with each of `learning_rates`, from `network`.

    The flow runs to its limit, or to time `t1` if that comes first. All runs share the criterion `stopping`, and record
    their weights at about `records` times each; the flow records at all of these times together, so that every distance
    is taken at equal times. That keeps 2 × (number of rates) × `records` copies of the weights.

    With a model of descent, descents record threes of steps, of which the mean is the centre of their oscillation; the
    distances from it, the amplitude and the mean risk are called `centre_distance`, `oscillation` and `mean_risk`, the
    sharpness there `centre_sharpness`.

    Args:
        network: The weights from which all runs start: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        learning_rates: η of each descent, or a descent, which holds its own: `[0.02, flowsim.Adam(1e-3)]`.
        steps: How many steps each descent takes; by default as many as reach `t1`, ⌈t1/η⌉, and 4000 without a `t1`.
        t1: The time at which the flow ends at the latest; without `steps`, descents make as many as reach it.
        models: Flows that follow the descents, once for each learning rate: names, as "edge" or `my_module:MyModel`,
            or models with options, as `flowsim.EdgeFlow(rtol=1e-9)`, whose learning rate each descent sets. The
            gradient flow runs in any case.
        optimizer: Makes another descent of each learning rate, such as `flowsim.HeavyBall`, with its own time per step,
            and its own threshold of stability where that is known; that of a preconditioned descent is met by the probe
            "preconditioned_sharpness".
        diagnostics: Functions of the network, by name, recorded along all runs.
        probes: What else is recorded along all runs: a `flowsim.Probe`, or a function of the network.
        sharpness: How the sharpness is followed along all runs; with False it is only known at their ends.
        limits: With these, descents record the sharpness that the gradient flow would reach from some of their points.
        forks: What goes on from a step of each descent with another rate, batch or optimizer, as rows of their own.
        records: Records of a run, about; by default 250, fewer for a network so large that they would take more than
            4 GB.
        stopping: When a run counts as converged, as in `integrate`.
        progress: With True a bar shows how far each run is, and the time left of it, with `None` where someone waits
            (see `integrate`); a function is called with a `flowsim.Progress`, which is a text: what runs.
        **flow_options: Further options of `integrate`: `solver`, `stepsize_controller`, … of the gradient flow; `rtol`,
            `atol` and `max_steps` of the models too, if they have no tolerances. The default `rtol` of a model is
            mostly larger.

    Returns:
        All runs, which print as a table, are drawn as figures, and can be saved.

    Raises:
        ValueError: For numbers that cannot be, and as `integrate` and `descend` do.
        TypeError: As `integrate` and `descend` do, and inside transformations of JAX.
        Interrupted: For Ctrl-C after the first run; it has the runs that had ended.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> both = flowsim.compare(jnp.array([1.0, 1.0]), bowl, [0.1, 1.0], steps=50)
        >>> print([str(one.trajectory.outcome) for one in both.descents])
        ['STEP_LIMIT', 'DIVERGED']
    """
    if is_traced((network, problem)):
        raise TypeError(
            "compare makes tables of numbers, and cannot be called inside jax.jit, jax.vmap or jax.grad: write "
            "flowsim.integrate and flowsim.descend there"
        )
    learning_rates, makers = rates_and_makers(learning_rates, optimizer, network)
    t1 = _end_time(t1)
    along = _sharpness_along(sharpness, network, probes, diagnostics)
    if limits is not None and not isinstance(limits, FlowLimits):
        raise TypeError(f"limits must be None or flowsim.FlowLimits(records=..., rtol=...), got {limits!r}")
    check_progress(progress)
    if steps is not None:
        check_step_count("steps", steps)
    _check_flow_options(flow_options, network)
    budget = RecordBudget()
    if records is None:
        records = budget.of_runs(network, len(learning_rates))
    if not isinstance(records, int | np.integer) or isinstance(records, bool) or records < 2:
        raise ValueError(f"records must be a whole number, two or more, got {records!r}")
    records = int(records)
    begun = [probe_of(entry).begin(network) for entry in probes] if isinstance(probes, list | tuple) else probes
    shared: dict[str, Any] = {"stopping": stopping, "probes": begun, "diagnostics": diagnostics}
    optimizers = [descent_at(maker, eta) for eta, maker in zip(learning_rates, makers, strict=True)]
    tolerances = {name: flow_options.get(name) for name in ("rtol", "atol")}
    modelled = check_models(models, optimizers, weight_dtype(network), **tolerances)
    check_told_apart(optimizers, learning_rates, modelled=bool(modelled))
    in_a_row, forks = 3 if modelled else 2, check_forks(forks)
    planned = [
        planned_forks(
            forks, descent, eta, steps_of_descent(descent, steps, t1), partial(forked_descent, maker, network)
        )
        for eta, descent, maker in zip(learning_rates, optimizers, makers, strict=True)
    ]
    with report_progress(progress) as report, _interruptible() as finished:
        for eta, descent in zip(learning_rates, optimizers, strict=True):
            when = steps_and_marks(descent, steps, t1, records, in_a_row=in_a_row)
            when["progress"] = report.during(f"descent with η = {eta:g}")
            finished.append(descend(network, problem, optimizer=descent, weights=True, **when, **shared))
        runs = list(finished)
        forked: list[Forked] = []
        for eta, descent, own in zip(learning_rates, optimizers, planned, strict=True):
            until = end_of(descent, steps, t1)
            by_time = steps is None and math.isfinite(t1)
            for one in run_forks(
                network, problem, descent, eta, own, until, records, report, by_time=by_time, **shared
            ):
                forked.append(one)
                finished.append(one.run)
        shared |= {"t1": t1}
        everyone = [*runs, *(one.run for one in forked)]
        when = {"ts": common_times(everyone, records), "between": True} if runs else {"records": records}
        when |= {"progress": report.during("gradient flow")}
        if runs or budget.affords_path(network) or along != SharpnessAlong():
            flow = integrate(network, problem, weights=True, **when, **shared, **flow_options)
            finished.append(flow)
            model_runs: list[ModelRun] = []
            if modelled:
                centres = list(map(Centres.of, runs, map(times_of, optimizers, runs)))
                runs = [one.record_on(run, flow, along) for one, run in zip(centres, runs, strict=True)]
                options = {"slots": records + 2, "report": report, **tolerances, **shared}
                options |= {name: flow_options[name] for name in ("max_steps",) if name in flow_options}
                by_rate = dict(zip(learning_rates, optimizers, strict=True))
                model_runs += run_models(network, problem, modelled, by_rate, centres, **options)
            report(Progress("sharpness along the way"))
            flow = along.added_to(flow)
            runs = [along.added_to(run, pairs=True) for run in runs]
            forked = [dataclasses.replace(one, run=along.added_to(one.run, pairs=True)) for one in forked]
            compared_models = tuple(compare_model_to_flow(flow, one, along) for one in model_runs)
            if limits is not None:
                stages = [report.during(f"limits of the flow from descent with η = {eta:g}") for eta in learning_rates]
                runs = [limits.added_to(run, progress=stage) for run, stage in zip(runs, stages, strict=True)]
        else:
            flow, compared_models = integrate(network, problem, sharpness=True, **when, **shared, **flow_options), ()
    descents = tuple(map(partial(compare_to_flow, flow), runs, learning_rates, map(Edge.of, optimizers)))
    branches = (
        dataclasses.replace(compare_to_flow(flow, one.run, one.learning_rate, Edge.of(one.descent)), branch=one.branch)
        for one in forked
    )
    descents = (*descents, *branches)
    bounds = minimal_sharpness_bounds_of(network, problem)
    critical = None if bounds is None or bounds[0] == 0 else 2 / bounds[0]
    return Comparison(flow, descents, bounds=bounds, critical_learning_rate=critical, models=compared_models)


def _check_flow_options(options: Mapping[str, Any], network: PyTree) -> None:
    """Raise `TypeError` or `ValueError` for an option of the flow that `integrate` would refuse, after the descents."""
    if unknown := [name for name in options if name not in _FLOW_OPTIONS]:
        near = difflib.get_close_matches(unknown[0], {*inspect.signature(compare).parameters, *_FLOW_OPTIONS}, n=1)
        remedy = f"write {near[0]}" if near else f"expected an option of the flow, one of {', '.join(_FLOW_OPTIONS)}"
        raise TypeError(f"compare() got an unexpected keyword argument {unknown[0]!r}: {remedy}")
    checked_flow(weight_dtype(network), **{name: one for name, one in options.items() if name not in _OF_CHECKPOINTS})


def _end_time(t1: object) -> float:
    """Return the time at which the flow ends at the latest; `ValueError` for an invalid one."""
    if t1 is None:
        return math.inf
    time = np.asarray(t1)
    if time.ndim == 0 and time.dtype.kind in "iuf" and time > 0:
        return float(time)
    raise ValueError(f"t1 must be a time above zero, or None for a flow to its limit, got {t1!r}")


def _sharpness_along(given: object, network: PyTree, probes: object, diagnostics: object) -> SharpnessAlong:
    """Return how the sharpness is followed; `TypeError` or `ValueError` for an invalid `sharpness`."""
    along = given
    if isinstance(given, bool):
        along = SharpnessAlong() if given else SharpnessAlong(records=0)
    if not isinstance(along, SharpnessAlong):
        raise TypeError(
            f"sharpness must be True, False or flowsim.SharpnessAlong(records=..., rtol=..., count=...), got {given!r}"
        )
    along.check(network)
    names = [probe_of(entry).label.name for entry in probes] if isinstance(probes, list | tuple) else []
    names += list(diagnostics) if isinstance(diagnostics, Mapping) else []
    if twice := set(names).intersection(along.names()):
        raise ValueError(f"{twice.pop()!r} is recorded by sharpness=... already: leave out the probe, or give count=1")
    return along
