"""`compare`: gradient flow and gradient descent from one initialization, run on one time axis."""

import contextlib
import dataclasses
import difflib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..dynamics import (
    Descent,
    GradientDescent,
    Stopping,
    Trajectory,
    as_descent,
    check_learning_rate,
    check_maker,
    checked_flow,
    default_record_steps,
    descend,
    integrate,
    is_transformation,
    steps_until,
    times_of_steps,
    whole_if_close,
)
from ..dynamics.learning_rates import with_rate
from ..formatting import Progress, ProgressCallback, check_progress, report_progress
from ..networks import split, weight_dtype
from ..probes import Probe, probe_of
from ..problems import Problem
from ..results.runs import Edge
from ..solvers.field import check_step_count
from ..theory import minimal_sharpness_bounds_of
from .comparison import Comparison, compare_model_to_flow, compare_to_flow
from .forks import Fork, Forked, check_forks, planned_forks, run_forks
from .models import GRADIENT, Centres, ModelRun, check_models, run_models
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


def compare(
    network: PyTree,
    problem: Problem,
    learning_rates: Sequence[float | Descent],
    *,
    steps: int | None = None,
    t1: float | None = None,
    models: Sequence[str] = (GRADIENT,),
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
        models: Flows that are to follow the descents, once for each learning rate: "edge", or `my_module:MyModel` (a
            `flowsim.DescentModel`, which holds its own tolerances); "gradient" is there in any case.
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
        **flow_options: Further options of `integrate`: `rtol`, `solver`, ….

    Returns:
        All runs, which print as a table, are drawn as figures, and can be saved.

    Raises:
        ValueError: For numbers that cannot be, and as `integrate` and `descend` do.
        TypeError: As `integrate` and `descend` do.
        Interrupted: For Ctrl-C after the first run; it has the runs that had ended.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> both = flowsim.compare(jnp.array([1.0, 1.0]), bowl, [0.1, 1.0], steps=50)
        >>> print([str(one.trajectory.outcome) for one in both.descents])
        ['STEP_LIMIT', 'DIVERGED']
    """
    learning_rates, makers = _rates_and_makers(learning_rates, optimizer, network)
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
    optimizers = [_descent_at(maker, eta) for eta, maker in zip(learning_rates, makers, strict=True)]
    kinds = check_models(models, optimizers, weight_dtype(network))
    _check_told_apart(optimizers, learning_rates, modelled=bool(kinds))
    in_a_row, forks = 3 if kinds else 2, check_forks(forks)
    planned = [
        planned_forks(forks, eta, steps_of_descent(descent, steps, t1), partial(_forked_descent, maker, network))
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
            until = _end_of(descent, steps, t1)
            for one in run_forks(network, problem, descent, eta, own, until, records, report, **shared):
                forked.append(one)
                finished.append(one.run)
        shared |= {"t1": t1}
        everyone = [*runs, *(one.run for one in forked)]
        when = {"ts": _common_times(everyone, records), "between": True} if runs else {"records": records}
        when |= {"progress": report.during("gradient flow")}
        if runs or budget.affords_path(network) or along != SharpnessAlong():
            flow = integrate(network, problem, weights=True, **when, **shared, **flow_options)
            finished.append(flow)
            model_runs: list[ModelRun] = []
            if kinds:
                centres = list(map(Centres.of, runs, map(times_of, optimizers, runs)))
                runs = [one.record_on(run, flow, along) for one, run in zip(centres, runs, strict=True)]
                padded = {"slots": records + 2, "report": report}
                by_rate = dict(zip(learning_rates, optimizers, strict=True))
                model_runs += run_models(network, problem, kinds, by_rate, centres, **padded, **shared)
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


def _descent_at(optimizer: Any, eta: float) -> Descent:
    """Return the descent with a learning rate; `TypeError` for an `optimizer` whose time per step is not known."""
    check_maker(optimizer)
    made = optimizer(eta)
    if is_transformation(made):
        raise TypeError(
            "how much time of the flow passes in a step, a transformation of Optax does not report: write "
            "optimizer=lambda eta: flowsim.Optax(optax.sgd(eta), time_per_step=eta), or a descent of flowsim's"
        )
    return as_descent(made)


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


DEFAULT_STEPS = 4000


def steps_of_descent(descent: Descent, steps: int | None, t1: float) -> int:
    """Return the number of steps of one descent: `steps`, or as many as reach a finite `t1`, or else 4000."""
    if steps is not None:
        return steps
    if math.isinf(t1):
        return DEFAULT_STEPS
    scheduled = descent.is_scheduled()
    return len(times_of_steps(descent, t1=t1)) - 1 if scheduled else steps_until(t1, float(descent.time_of_step()))


def _end_of(descent: Descent, steps: int | None, t1: float) -> float:
    """Return the time at which a descent is to end."""
    count = steps_of_descent(descent, steps, t1)
    scheduled = descent.is_scheduled()
    return float(times_of_steps(descent, steps=count)[-1]) if scheduled else count * float(descent.time_of_step())


def _forked_descent(optimizer: Any, network: PyTree, fork: Fork, rate: float) -> Descent:
    """Return the descent of a fork; `TypeError` or `ValueError` for what is none."""
    check_learning_rate(rate, weight_dtype(network))
    return _descent_at(fork.optimizer or optimizer, rate).checked(weight_dtype(network))


def times_of(descent: Descent, run: Trajectory) -> float | np.ndarray:
    """Return the time that each step of a run takes, or the times of all of them where these differ."""
    return times_of_steps(descent, steps=int(run.steps)) if descent.is_scheduled() else float(descent.time_of_step())


def _rates_and_makers(
    given: Sequence[Any], optimizer: Any, network: PyTree
) -> tuple[tuple[float, ...], list[Callable[[float], Any]]]:
    """Return the learning rates, and what makes the descents of each: the `optimizer`, or a descent that is given.

    Raises `ValueError` for anything but a list of positive numbers and descents.
    """
    entries = list(given) if isinstance(given, list | tuple) or np.ndim(given) == 1 else [None]
    found: list[Any] = [one.rate_of_descent() if isinstance(one, Descent) else one for one in entries]
    array = np.asarray(found if all(np.ndim(one) == 0 for one in found) else [None])
    if array.size and array.dtype.kind not in "iuf":
        raise ValueError(
            "learning_rates must be a list of numbers, as [0.02, 0.1], or of descents, as [flowsim.Adam(1e-3)], got "
            f"{given!r}"
        )
    rates = tuple(array.tolist())
    for rate in rates:
        check_learning_rate(rate, weight_dtype(network))
    return rates, [partial(_with_rate, one) if isinstance(one, Descent) else optimizer for one in entries]


def _with_rate(descent: Descent, rate: float) -> Descent:
    """Return a descent as it is for its own learning rate, else with another."""
    return descent if float(descent.rate_of_descent()) == rate else with_rate(descent, rate)


def _check_told_apart(descents: Sequence[Descent], rates: Sequence[float], *, modelled: bool) -> None:
    """Raise `ValueError` for descents of one kind and rate, which results could not tell apart, nor models by rate."""
    for number, (descent, rate) in enumerate(zip(descents, rates, strict=True)):
        for other in (one for one, its_rate in zip(descents[:number], rates, strict=False) if its_rate == rate):
            if bool(descent == other):
                raise ValueError(
                    f"learning_rates: found {rate!r} twice; expected no repetitions; write every entry once"
                )
            if descent.kind() == other.kind():
                raise ValueError(
                    f"learning_rates: found {rate!r} of {descent.kind()} twice, which results could not tell apart; "
                    "give them other rates, or compare each alone"
                )
            if modelled:
                raise ValueError(
                    f"learning_rates: found {rate!r} of {other.kind()} and of {descent.kind()}, whose models could not "
                    "be told apart; give them other rates, or compare each alone"
                )


def steps_and_marks(descent: Descent, steps: int | None, t1: float, records: int, *, in_a_row: int) -> dict[str, Any]:
    """Return how many steps a descent takes, and at which of them it is recorded, as `descend` calls them.

    Among these is the last one up to `t1`. They are padded to a fixed number by steps that are never reached, so that
    descents of several lengths share one program.
    """
    count = steps_of_descent(descent, steps, t1)
    if descent.is_scheduled():
        times = times_of_steps(descent, steps=count)
        last = np.searchsorted(times, t1 * (1 + 4 * np.finfo(float).eps), side="right") - 1
    else:
        last = whole_if_close(t1 / float(descent.time_of_step()))
    marks = default_record_steps(count, records, in_a_row=in_a_row, evenly=descent.is_scheduled())
    marks = np.union1d(marks, [math.floor(last)]) if last < count else marks
    return {"steps": count, "record_steps": np.append(marks, count + 1 + np.arange(records + 1 - len(marks)))}


def _common_times(runs: Sequence[Trajectory], records: int) -> np.ndarray:
    """Return the recorded times of all descents, padded by infinity to a fixed number.

    So another comparison with the same settings does not compile again.
    """
    times = np.unique(np.concatenate([np.asarray(run.times) for run in runs]))
    times = times[np.isfinite(times)]  # a descent that diverged at once may have none
    return np.append(times, np.full(len(runs) * (records + 2) - len(times), np.inf))


@dataclass(frozen=True)
class RecordBudget:
    """How often the weights of runs are recorded by default.

    That is `records` times, enough for a smooth curve, or as often as all descents together fit into `memory` bytes;
    the flow, which records at the times of all of them, takes as much again.
    """

    records: int = 250
    memory: int = 2 * 10**9

    def of_runs(self, network: PyTree, rates: int) -> int:
        """Return how often descents with so many learning rates are recorded, twice at least."""
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(split(network)[0]))
        return int(np.clip(self.memory // (max(rates, 1) * max(size, 1)), 2, self.records))

    def affords_path(self, network: PyTree) -> bool:
        """Tell whether a flow alone may keep its weights at every record."""
        return self.of_runs(network, 1) == self.records
