"""Running a plan: each run after those that it depends on, all of them recorded at the same times."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..dynamics import StepTimes, default_record_steps, descend, integrate
from ..formatting import ProgressReporter
from ..networks import weight_dtype
from ..probes import MeanExcessRisk, MeanRisk, Oscillation
from ..problems import Problem
from .centres import centre_records
from .measure import Runs
from .plan import ForkError, RunSpec
from .records import common_times, record_steps, time_limit


def execute(
    network: PyTree,
    problem: Problem,
    plan: Sequence[RunSpec],
    *,
    records: int,
    report: ProgressReporter,
    runs: Runs,
    in_a_row: int | None = None,
    probes: Sequence[Any] = (),
    weights: bool = True,
    checkpoint: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Make the runs of a plan that are not in `runs` yet, and add each to them as it ends: Ctrl-C loses none of these.

    Descents come first, then their forks, flows, which record at the times of all descents, and last the models of
    descents, which record at the centres of the oscillation of the descent that they follow. Runs keep their weights.

    Args:
        network: The weights from which all runs start.
        problem: The risk R.
        plan: What is to run.
        records: At about how many times each run is recorded.
        report: Shows what runs.
        runs: The runs that have ended.
        in_a_row: How many steps in a row descents record at each time; by default three beside models, else two.
        probes: What is recorded along all of them.
        weights: Whether flows that run alone keep their weights, too; else they record the sharpness.
        checkpoint: The arguments of `integrate` of that name, for gradient flows alone.
        **options: Arguments of `integrate` and `descend` for all runs: `stopping`, `diagnostics`.

    Raises:
        ForkError: For a fork of a descent that diverged before.
        ValueError: As `integrate` and `descend` do, and so `TypeError`.
    """
    options |= {"probes": probes}
    todo = [spec for spec in plan if spec not in runs]
    in_a_row = in_a_row or (3 if any(spec.follows for spec in plan) else 2)
    descents = [spec for spec in plan if spec.is_descent]
    for spec in (spec for spec in todo if spec.is_descent and spec.start is None):
        marks = record_steps(spec, records, in_a_row=in_a_row)
        progress = report.during(f"descent with η = {spec.learning_rate:g}")
        runs[spec] = descend(
            network, problem, optimizer=spec.descent, weights=True, progress=progress, **marks, **options
        )
    for spec in descents:
        if forks := [fork for fork in todo if fork.start is not None and fork.start.of is spec]:
            _run_forks(network, problem, spec, forks, records, report, runs, **options)
    for spec in (spec for spec in todo if spec.is_flow):
        when: dict[str, Any] = {"records": records}
        if descents:
            when = {"ts": common_times([runs[descent] for descent in descents], records), "between": True}
        when |= {"weights": True} if weights else {"sharpness": True}
        progress = report.during("gradient flow")
        runs[spec] = integrate(
            network,
            problem,
            model=spec.dynamics,
            progress=progress,
            **_limits(spec),
            **when,
            **options,
            **(checkpoint or {}),
        )
    for spec in todo:
        if spec.follows is None:
            continue
        descent = runs[spec.follows]
        times = np.asarray(descent.times, float)
        centres = times[centre_records(times, spec.step_times)]
        # A model runs to its limit; of a descent that does not come to rest, only as far as the centres are known.
        limits = _limits(spec)
        if not spec.descent.comes_to_rest():
            limits["t1"] = min([spec.until.t1, *centres[-1:]])
        # Padded, so that all models of a kind share one compiled program.
        centres = np.append(centres, np.full(records + 2 - len(centres), np.inf))
        progress = report.during(f"{spec.dynamics.kind()} flow with η = {spec.learning_rate:g}")
        when = {"ts": centres, "weights": True, "probes": (Oscillation(), MeanRisk(), MeanExcessRisk(), *probes)}
        runs[spec] = integrate(network, problem, model=spec.dynamics, progress=progress, **limits, **(options | when))


def _limits(spec: RunSpec) -> dict[str, Any]:
    """Return when a flow ends at the latest, in the words of `integrate`."""
    return {"t1": spec.until.t1} | ({} if spec.until.steps is None else {"max_steps": spec.until.steps})


def _run_forks(
    network: PyTree,
    problem: Problem,
    spec: RunSpec,
    forks: Sequence[RunSpec],
    records: int,
    report: ProgressReporter,
    runs: Runs,
    **options: Any,
) -> None:
    """Make the forks of a descent, all up to the time at which it was to end.

    The descent runs a second time up to the last of them: the states of all its records would take several times their
    memory.
    """
    steps_of_forks = sorted({fork.start.step for fork in forks if fork.start is not None})
    furthest = steps_of_forks[-1]
    states = {"steps": furthest, "record_steps": np.array(steps_of_forks), "states": True}
    trunk = descend(network, problem, optimizer=spec.descent, stopping=options.get("stopping"), **states)
    last, until = int(trunk.steps), spec.end_time
    if last < furthest and not trunk.outcome.stays:
        ended = f"{trunk.outcome.words} at step {last}"
        raise ForkError(f"a fork at step {furthest} of a descent that {ended}: expected a step before")
    for fork in forks:
        assert fork.start is not None
        point, descent = trunk.branch(min(fork.start.step, last)), fork.descent.checked(weight_dtype(network))
        times = StepTimes(descent, begin=point.time)
        steps = times.until(until)
        marks = point.step + default_record_steps(steps, records, evenly=True)
        padding = point.step + steps + 1 + np.arange(max(0, records + 1 - len(marks)))  # never made: one length for all
        when: dict[str, Any] = {"record_steps": np.append(marks, padding), "steps": steps}
        if fork.until.steps is None and math.isfinite(fork.until.t1):
            when["t1"] = time_limit(times, steps)
        progress = report.during(f"fork from step {point.step} of η = {spec.learning_rate:g}")
        runs[fork] = descend(
            network, problem, optimizer=fork.descent, after=point, weights=True, progress=progress, **when, **options
        )
