"""`compare`: gradient flow and gradient descent from one initialization, run on one time axis."""

import dataclasses
import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..dynamics import Descent, Dynamics, GradientDescent, Stopping, Trajectory, flow_of
from ..formatting import ProgressCallback, check_progress, report_progress
from ..networks import weight_dtype
from ..probes import Probe, probe_of
from ..problems import Problem
from ..runtime.compiling import is_traced, with_standard_options
from ..solvers.field import check_step_count
from .centres import CentreDistance
from .comparison import Comparison
from .execute import execute
from .measure import FlowLimits, Runs, SharpnessAlong, measure
from .models import GRADIENT, ModelOfDescent, check_models
from .plan import End, Fork, RunSpec, check_told_apart, plan_descents, plan_models
from .records import RecordBudget

if TYPE_CHECKING:
    import optax


_OF_CHECKPOINTS = ("checkpoint", "checkpoint_seconds")
_FLOW_OPTIONS = ("model", "solver", "stepsize_controller", "rtol", "atol", "max_steps", *_OF_CHECKPOINTS)
"""Arguments of `integrate` that `compare` hands on."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in `compare` after the first of its runs.

    In a notebook those that had ended are `sys.last_value.finished`.

    Args:
        finished: The runs that had ended: the descents in the order of their learning rates, their forks, the
            flow, and the models.
    """

    def __init__(self, finished: Sequence[Trajectory]):
        super().__init__(f"{len(finished)} of the runs had ended: they are the attribute `finished` of this exception")
        self.finished = tuple(finished)


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
    if t1 is not None and not (np.ndim(t1) == 0 and np.asarray(t1).dtype.kind in "iuf" and t1 > 0):
        raise ValueError(f"t1 must be a time above zero, or None for a flow to its limit, got {t1!r}")
    if steps is not None:
        check_step_count("steps", steps)
    check_progress(progress)
    dtype = weight_dtype(network)
    until = End(math.inf if t1 is None else float(t1), steps)
    descents, branches = plan_descents(learning_rates, optimizer, forks, until, dtype)
    along = _sharpness_along(sharpness, network, probes, diagnostics)
    if limits is not None and not isinstance(limits, FlowLimits):
        raise TypeError(f"limits must be None or flowsim.FlowLimits(records=..., rtol=...), got {limits!r}")
    if limits is not None:
        of_flow = {name: flow_options.get(name) for name in ("rtol", "max_steps") if getattr(limits, name) is None}
        limits = dataclasses.replace(limits, **of_flow)
        limits.check(dtype)
    flow = _flow(flow_options, dtype)
    budget = RecordBudget()
    if records is None:
        records = budget.of_runs(network, len(descents))
    if not isinstance(records, int | np.integer) or isinstance(records, bool) or records < 2:
        raise ValueError(f"records must be a whole number, two or more, got {records!r}")
    tolerances = {name: flow_options.get(name) for name in ("rtol", "atol")}
    by_name = check_models(models, [spec.descent for spec in descents], dtype, **tolerances)
    check_told_apart(descents, modelled=bool(by_name))

    of_flow = End(until.t1, flow_options.get("max_steps"))
    modelled = plan_models(by_name.values(), descents, of_flow, **tolerances)
    plan = [*descents, *branches, RunSpec(flow, until=of_flow), *modelled]
    # A flow alone keeps its path where that is small, or where its sharpness is wanted at some records only.
    keeps_path = bool(descents) or budget.affords_path(network) or along != SharpnessAlong()
    measures = [*([CentreDistance(along)] if modelled else []), along, *([limits] if limits else [])]
    begun = [probe_of(entry).begin(network) for entry in probes] if isinstance(probes, list | tuple) else probes
    runs: Runs = {}
    with report_progress(progress) as report:
        try:
            execute(
                network,
                problem,
                plan,
                records=int(records),
                report=report,
                runs=runs,
                weights=keeps_path,
                stopping=stopping,
                probes=begun,
                diagnostics=diagnostics,
                checkpoint={name: flow_options[name] for name in _OF_CHECKPOINTS if name in flow_options},
            )
            compared = measure(runs, measures if keeps_path else [], report)
        except KeyboardInterrupt as stopped:
            if not runs:
                raise
            raise Interrupted(list(runs.values())) from stopped
    return Comparison.of(compared, along)


def _flow(options: Mapping[str, Any], dtype: jnp.dtype) -> Dynamics:
    """Return the flow with these options; `TypeError` or `ValueError` for one that `integrate` would refuse."""
    if unknown := [name for name in options if name not in _FLOW_OPTIONS]:
        near = difflib.get_close_matches(unknown[0], {*inspect.signature(compare).parameters, *_FLOW_OPTIONS}, n=1)
        remedy = f"write {near[0]}" if near else f"expected an option of the flow, one of {', '.join(_FLOW_OPTIONS)}"
        raise TypeError(f"compare() got an unexpected keyword argument {unknown[0]!r}: {remedy}")
    check_step_count("max_steps", options.get("max_steps", 1))
    flow = flow_of(*(options.get(name) for name in ("model", "solver", "stepsize_controller", "rtol", "atol")))
    flow.checked(dtype)
    return flow


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
