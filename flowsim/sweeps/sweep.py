"""Sweeps from Python: a network of one's own at every point of a grid, from many initializations."""

import json
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import diffrax
import jax
import numpy as np

from ..comparison.models import GRADIENT, ModelOfDescent, check_models
from ..comparison.plan import DEFAULT_STEPS
from ..dynamics import MAX_STEPS, Descent, GradientDescent, Stopping, as_descent, check_maker
from ..dynamics.learning_rates import check_learning_rate
from ..formatting import Progress, ProgressCallback, check_progress, report_progress
from ..formatting.presentation import view_of
from ..kinds import reason_of
from ..probes import Probe, probe_of
from ..problems import Problem, check_problem
from ..results import BLOCKS
from ..runtime.identity import digest_of, identity_of
from ..runtime.paths import user_path
from ..scenarios.grid import Grid
from ..scenarios.sweep_settings import MOST_CELLS
from ..scenarios.values import MOST_STEPS
from ..solvers.field import check_step_count
from . import workers
from .dataset import RESERVED
from .function_recipe import FLOW_OPTIONS, Ingredients, Maker, plan_functions
from .run import Sweep, SweepPlan, SweepRun, run_sweeps
from .store import BlockStore, sweep_folder

if TYPE_CHECKING:
    import optax

RATE = "learning_rate"
# Names of coordinates and variables of the data set, and that of the parameter for the key.
_TAKEN = {*RESERVED, "key", "outcome", "steps", "time", "end_time", "steps_asked", "distance_to_flow"} - {RATE}
_TAKEN |= {"sharpness_lower_bound", "sharpness_upper_bound"}


def sweep(
    make_network: Callable[..., Any],
    problem: Problem | Callable[..., Problem],
    over: Mapping[str, Iterable[Any]],
    *,
    repetitions: int = 1,
    seed: int = 0,
    flow: bool = True,
    steps: int = DEFAULT_STEPS,
    optimizer: "Callable[[float], Descent | optax.GradientTransformation]" = GradientDescent,
    models: Sequence[str | ModelOfDescent] = (GRADIENT,),
    solver: diffrax.AbstractAdaptiveSolver | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    t1: float = float("inf"),
    max_steps: int = MAX_STEPS,
    stopping: Stopping | None = None,
    probes: Sequence[Probe | Callable[[Any], Any]] = (),
    folder: str | Path | None = None,
    overwrite: bool = False,
    jobs: int = 1,
    progress: bool | ProgressCallback | None = None,
) -> Sweep:
    """Integrate the flow at every point of a grid, from several initializations, and descents from the same ones.

    A run that does not converge, or diverges, is a result, and so is a cell that raises: see `failures`. The key of a
    network depends on `seed`, its repetition and the values of its functions alone, that of a problem on `seed`: so
    what a cell finds does not depend on which others run. Minibatches and noise are drawn by the seed of the
    `optimizer`, and alike in all repetitions.

    Args:
        make_network: A function `make_network(key, **values)` that returns a network. It is given those names of `over`
            that it takes, and may leave out the key.
        problem: The risk R, or a function `problem(key, **values)` that returns one, in the same way.
        over: Names, and the numbers or words that each goes through. The name `learning_rate` is that of descents from
            the same initializations; `rtol`, `atol`, `t1` and `max_steps` are those of the flow.
        repetitions: Initializations at every point.
        seed: From which the keys are made.
        flow: Whether the gradient flow runs.
        steps: Steps of a descent.
        optimizer: Makes a descent of each learning rate.
        models: Names or models, as in `compare`. Each follows each descent up to the last known centre of its
            oscillation. Results hold the distance from this centre (in the row of the descent, the distance of the
            gradient flow), sharpness and amplitude there, and when the oscillation begins (`centre_distance`,
            `centre_sharpness`, `oscillation`, `mean_risk`, `oscillation_onset`).
        solver: The solver of the gradient flow, as in `integrate`.
        rtol: Relative tolerance of the gradient flow, as in `integrate`, and of models that have none.
        atol: Absolute tolerance, likewise.
        t1: The time at which the flow ends at the latest.
        max_steps: The number of steps after which the flow ends, and each model.
        stopping: When a run counts as converged, as in `integrate`.
        probes: What else is measured at the end of every run.
        folder: Where what is finished is kept. A sweep that was killed goes on from it and ends, bit for bit, as
            without, one with more values or repetitions computes these alone, and data set, summary and figures stand
            there in the end, for `flowsim.open_results`.
        overwrite: Whether the folder may hold another sweep, which is then lost.
        jobs: Processes that share the work. They import what makes networks, so that has to stand in a module, or in a
            script under `if __name__ == "__main__":`.
        progress: With True a bar shows how far it is and the time left, with `None` where someone waits (see
            `integrate`); a function is called with a `flowsim.Progress`, in initializations.

    Returns:
        All cells, which print as a table, are drawn as figures, and can be saved.

    Raises:
        ValueError: For what cannot be right, the first network of each point and its problem among it.
        TypeError: For arguments of another type.
        StoreError: Where the folder holds another sweep, unless `overwrite`.

    Examples:
        >>> import flowsim, jax, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> def start(key, scale):
        ...     return scale * jax.random.normal(key, (2,))
        >>> swept = flowsim.sweep(start, bowl, {"scale": [0.1, 1.0]}, repetitions=2)
        >>> swept.to_dataset().sizes["scale"], len(swept.failures)
        (2, 0)
    """
    check_progress(progress)
    axes = _axes(over)
    precision = np.dtype(np.float64 if _is_wide() else np.float32)
    rates = _rates(axes.pop(RATE, ()), precision)
    _check_counts(repetitions=repetitions, seed=seed, steps=steps, jobs=jobs)
    check_maker(optimizer)
    check_step_count("max_steps", max_steps)
    for most in axes.get("max_steps", ()):
        check_step_count("max_steps", most)
    descents = [as_descent(optimizer(rate)) for rate in rates]
    modelled = check_models(models, descents, precision, rtol=rtol, atol=atol)
    grid = Grid(axes)
    if not flow and not rates:
        raise ValueError(f"nothing would run: leave flow=False out, or write over={{'{RATE}': [0.02], ...}}")
    if modelled and not rates:
        raise ValueError(f"models without descents that they would follow: write over={{'{RATE}': [0.02], ...}}")
    runs = repetitions * (len(rates) * (1 + len(modelled)) + bool(flow)) * grid.size
    if runs > MOST_CELLS:
        raise ValueError(f"a sweep of {runs} runs: expected at most {MOST_CELLS}, fewer values or repetitions")
    network, drawn = Maker.of("make_network", make_network, tuple(axes)), problem
    if not isinstance(drawn, Problem):
        if not callable(problem) or isinstance(problem, type):
            check_problem(problem)
        drawn = Maker.of("problem", problem, tuple(axes))
    _check_names(axes, network, drawn)
    if network.key is None and repetitions > 1:
        raise ValueError("make_network takes no key, so that all repetitions would be the same: add a parameter key")
    options = {"solver": solver, "rtol": rtol, "atol": atol, "t1": t1, "max_steps": max_steps}
    measured = tuple(probe_of(probe) for probe in probes)
    wide = _is_wide()
    parts = [
        make_network,
        problem,
        options | {"stopping": stopping},
        measured,
        optimizer,
        seed,
        wide,
        *modelled.values(),
    ]
    try:
        identity = "" if folder is None else identity_of(parts)
    except ValueError as error:
        raise ValueError(f"folder: what is kept has to be known again: {error}, here a folder") from None
    ingredients = Ingredients(
        network=network,
        problem=drawn,
        flow=options,
        stopping=stopping,
        flow_runs=flow,
        probes=measured,
        optimizer=optimizer,
        learning_rates=rates,
        steps=steps,
        models=modelled,
        repetitions=repetitions,
        seed=seed,
        wide=wide,
        identity=identity,
    )
    _check_sendable(ingredients, jobs)
    description = json.dumps(_describe(make_network, problem, grid, ingredients, parts))
    plan = plan_functions(ingredients, grid, {"sweep": description})
    if folder is None:
        return _compute(plan, None, jobs, progress)
    folder = user_path(folder)
    store = BlockStore(folder / BLOCKS)
    store.refuse_obstacles()
    with sweep_folder(folder, plan.layout.attrs, overwrite=overwrite) as here:
        swept = _compute(plan, store, jobs, progress)
        view_of(swept).write(here)
    return swept


def _is_wide() -> bool:
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]  (set at run time)


def _compute(plan: SweepPlan, store: BlockStore | None, jobs: int, progress: bool | ProgressCallback | None) -> Sweep:
    with report_progress(progress) as report, workers(jobs) as pool:

        def advanced(run: SweepRun) -> None:
            report(Progress("sweep", run.progress.done, run.progress.total, "initializations"))

        run = SweepRun(plan, store)
        run_sweeps([run], pool, advanced)
        return run.results()


def _axes(over: Mapping[str, Iterable[Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each name, checked one by one."""
    if not isinstance(over, Mapping):
        raise TypeError(f"over must map names to lists of values, as {{'scale': [0.1, 0.3]}}, got {over!r}")
    return {name: _values(name, values) for name, values in over.items()}


def _values(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    place = f"over[{name!r}]"
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{place}: a name is a word that a function could take, as scale")
    if name in _TAKEN:
        raise ValueError(f"{place}: the results have something else of that name: call it by another")
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ValueError(f"{place} must be a list of values, as [0.1, 0.3], got {given!r}")
    values = tuple(_value(place, value) for value in given)
    if not values:
        raise ValueError(f"{place} has no values: write one or more")
    for number, value in enumerate(values):
        if value in values[:number]:
            raise ValueError(f"{place} has {value!r} twice: write every value once")
    return values


def _value(place: str, value: Any) -> Any:
    """Return a value in Python's own types; a tuple of them, such as widths, is one value."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray | jax.Array) and value.ndim == 0):
        value = value.item()
    if isinstance(value, tuple | list):
        return tuple(_value(place, entry) for entry in value)
    if value is not None and not isinstance(value, int | float | str):
        raise ValueError(f"{place} has a {type(value).__name__}: expected numbers, words, or tuples of them")
    if value != value:
        raise ValueError(f"{place} has NaN, which equals nothing: expected numbers or words")
    return value


def _rates(values: tuple[Any, ...], precision: np.dtype) -> tuple[float, ...]:
    for rate in values:
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            hint = "; the flow runs anyway, unless flow=False" if rate is None else ""
            raise ValueError(f"over['{RATE}'] has {rate!r}: expected positive numbers{hint}")
        check_learning_rate(rate, precision)
    return tuple(float(rate) for rate in values)


def _check_counts(*, repetitions: Any, seed: Any, steps: Any, jobs: Any) -> None:
    bounds = {
        "repetitions": (repetitions, 1, MOST_CELLS),
        "seed": (seed, 0, 2**32 - 1),
        "steps": (steps, 1, MOST_STEPS),
        "jobs": (jobs, 1, 10_000),
    }
    for name, (count, least, most) in bounds.items():
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not whole or not least <= int(count) <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {count!r}")


def _check_names(axes: Iterable[str], network: Maker, problem: Maker | Problem) -> None:
    """Raise `ValueError` for a name that nothing takes."""
    makers = [maker for maker in (network, problem) if isinstance(maker, Maker)]
    for name in axes:
        if name in FLOW_OPTIONS or any(maker.takes is None or name in maker.takes for maker in makers):
            continue
        taken = "; ".join(f"{one.name} takes {', '.join(sorted(one.takes or ())) or 'no values'}" for one in makers)
        others = ", ".join((RATE, *FLOW_OPTIONS))
        raise ValueError(f"over[{name!r}]: nothing takes that name: {taken}; and of a run there are {others}")


def _check_sendable(ingredients: Ingredients, jobs: int) -> None:
    """Raise `ValueError` for what other processes could not be given."""
    if jobs == 1:
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # at the imports of the script that spawned it
        raise RuntimeError(
            f"jobs={jobs} in a script whose processes run it again as they start: write the call under "
            'if __name__ == "__main__":, or jobs=1'
        )
    remedy = "define it at the top level of a module, or write jobs=1"
    for function in ingredients.functions():
        if getattr(function, "__module__", None) == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            name = getattr(function, "__qualname__", repr(function))
            raise ValueError(f"jobs={jobs}: other processes cannot import {name} from this session: {remedy}")
    try:
        pickle.dumps(ingredients)
    except Exception as error:  # of whatever holds what cannot be sent
        reason = reason_of(error)
        sent = f"jobs={jobs}: a function, or an option, cannot be sent to other processes ({reason})"
        raise ValueError(f"{sent}: {remedy}") from None


def _describe(
    make_network: Callable[..., Any], problem: Any, grid: Grid, ingredients: Ingredients, parts: list[Any]
) -> dict[str, Any]:
    """Return what tells one sweep from another, for readers."""

    def name(thing: Any) -> str:
        named = thing if hasattr(thing, "__qualname__") else type(thing)
        return f"{named.__module__}:{named.__qualname__}"

    def digest(thing: Any) -> str:
        try:
            return digest_of(thing).hex()[:12]
        except ValueError:
            return "unknown"

    return {
        "make_network": name(make_network),
        "problem": name(problem),
        "over": {name: list(values) for name, values in grid.axes.items()} | {RATE: list(ingredients.learning_rates)},
        "repetitions": int(ingredients.repetitions),
        "seed": int(ingredients.seed),
        "code of make_network": digest(make_network),
        "code or data of problem": digest(problem),
        "steps": int(ingredients.steps),
        "flow": bool(ingredients.flow_runs),
        "options": digest(parts),
    } | ({"models": list(ingredients.models)} if ingredients.models else {})
