"""Which model of descent at the edge (Cohen et al. 2024, Regis and Chewi 2026, Marion 2026): figure `WhichModel`.

And the central flow with room for more eigenvalues at the edge, for networks of several outputs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Bool, Float
from pydantic_core import PydanticCustomError

from flowsim.columns import Run
from flowsim.comparison.centres import DISTANCE, OSCILLATION, SHARPNESS
from flowsim.kinds import validation_error
from flowsim.probes import SquaredNorm
from flowsim.report.panels import Axis, Curve, Guide, Key, Panel, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.sweeps import runs
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.scenarios.values import kind_of
from flowsim.sweeps.models import ONSET
from flowsim.theory import Claim, listed, mark_outside_sweep, unmeasured

Cells = Float[np.ndarray, " descents"]
SQUARED_NORM = SquaredNorm().label.name
MATTERS = 1e-3
"""The amplitude of an oscillation that is one, over the norm of the initial weights, as in the onset."""
COLOURS = ("#b2182b", "#ef8a62", "#4d9221", "#08306b", "#7a3b9c", "#8c510a")


@dataclass(frozen=True)
class Told:
    """What one model says of all descents where their last centre is: NaN where it did not get there.

    `closer` is the distance of the gradient flow from the centre over that of the model; `sharpness`, `amplitude` and
    `onset` are those of the model over those of descent, the last two only where descent oscillates; `work` is the
    number of gradients and Hessian-vector products for each step of descent.
    """

    name: str
    closer: Cells
    distance: Cells
    sharpness: Cells
    amplitude: Cells
    onset: Cells
    work: Cells


@dataclass(frozen=True)
class Seen:
    """All descents that have a centre, of those that did not diverge: their `models`, and how far the flow goes.

    `reach` is ηS/2 where the gradient flow ends, and `oscillates` tells whether the steps of a descent went back and
    forth by a thousandth of the norm of its weights, and still do by as much at the end.
    """

    reach: Cells
    oscillates: Bool[np.ndarray, " descents"]
    models: tuple[Told, ...]


def seen(sweep: xarray.Dataset) -> Seen:
    """Return what a sweep with models has: runs from every start, one learning rate after the other."""
    (flow,) = runs.flows(sweep)
    descents = runs.descents(sweep)
    kept = np.concatenate([_known(sweep, run) for run in descents])

    def of_all(some: Iterable[Run], quantity: str) -> Cells:
        return np.concatenate([_along(sweep, run, quantity) for run in some])[kept]

    reach = np.concatenate(
        [_along(sweep, flow, "final_sharpness") * (run.learning_rate or np.nan) / 2 for run in descents]
    )
    onset, amplitude = of_all(descents, f"final_{ONSET.name}"), of_all(descents, f"final_{OSCILLATION.name}")
    start = sweep[f"initial_{SQUARED_NORM}"].transpose(..., runs.REPETITION).values.ravel() ** 0.5
    oscillates = np.isfinite(onset) & (amplitude >= MATTERS * np.tile(start, len(descents))[kept])
    onset, amplitude = (np.where(oscillates, known, np.nan) for known in (onset, amplitude))
    distance, sharpness = of_all(descents, f"final_{DISTANCE.name}"), of_all(descents, f"final_{SHARPNESS.name}")
    steps = of_all(descents, "steps")
    found = []
    for name in dict.fromkeys(run.dynamics for run in runs.others(sweep) if run.models):
        model = [run for run in runs.others(sweep) if run.dynamics == name]
        own = of_all(model, f"final_{DISTANCE.name}")
        found.append(
            Told(
                model[0].method.lower(),
                distance / own,
                own,
                of_all(model, f"final_{SHARPNESS.name}") / sharpness,
                of_all(model, f"final_{OSCILLATION.name}") / amplitude,
                of_all(model, f"final_{ONSET.name}") / onset,
                (of_all(model, "gradients") + of_all(model, "products")) / steps,
            )
        )
    return Seen(reach[kept], oscillates, tuple(found))


def _along(sweep: xarray.Dataset, run: Run, quantity: str) -> Cells:
    place = runs.runs_of(sweep).index(run)
    return sweep[quantity].isel(run=place).transpose(..., runs.REPETITION).values.astype(float).ravel()


def _known(sweep: xarray.Dataset, run: Run) -> Bool[np.ndarray, " descents"]:
    return np.isfinite(_along(sweep, run, f"final_{DISTANCE.name}"))


@final
class WhichModel(Figure):
    """What models say of descents from many starts, at the time where the centre of their oscillation is last known.

    How much closer they are than the gradient flow, over how far that goes beyond the edge; and by model what it says
    of sharpness, amplitude and onset over what descent has, a point for each descent, with medians.
    """

    name = "which_model"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield that the scenario is no sweep of the flow and of gradient descents with models."""
        sweep = scenario.sweep
        descents = () if sweep is None else sweep.descent
        plain = all(kind_of(entry.optimizer) == "gradient_descent" and not entry.schedule for entry in descents)
        if sweep is None or not sweep.flow or not descents or not plain or len(scenario.flow.of_descent) < 2:
            yield validation_error(
                found="no sweep of the flow and of gradient descents with two models or more",
                expected="one, which the figure compares",
                write="flow: {models: [gradient, central, edge], t1: 40.0}, with sweep: {repetitions: 12, descent: "
                "[{learning_rates: [0.1], steps: 401}]}",
                at=("sweep",) if sweep else ("figure",),
            )
        if SQUARED_NORM not in {entry.kind for entry in scenario.record}:
            wording = {"expected": "that of the start, to which amplitudes are compared", "write": f"[{SQUARED_NORM}]"}
            yield validation_error(found=f"no {SQUARED_NORM} among what is recorded", **wording, at=("record",))

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on the models, each with the numbers measured."""
        return mark_outside_sweep(list(model_claims(seen(results.required("sweep")))))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return four panels: closeness over reach, and sharpness, amplitude and onset over those of descent."""
        found, thin = seen(results.required("sweep")), {"color": "0.5", "linewidth": 0.8}
        dots = {"marker": "o", "markersize": 3.0, "markeredgewidth": 0}
        keyed = [
            (Key("model", f"{model.name} flow", f"{model.name} flow", {"color": colour, **dots}), model)
            for model, colour in zip(found.models, COLOURS, strict=False)
        ]
        level = Guide(1.0, look=thin | {"linestyle": "-", "zorder": 0})
        guides = (level, Guide(1.0, upright=True, dotted=True, look=thin))
        curves = tuple(Curve(key, found.reach, model.closer, alpha=0.7, line=False) for key, model in keyed)
        reach, words = np.append(found.reach, 1.0), "where the gradient flow ends"
        wide = bool(reach.max() > 10 * reach.min())
        x = axis_over(rf"$\eta S/2$ {words}", f"ηS/2 {words}", reach, logarithmic=wide)
        name = "closer than the gradient flow"
        y = axis_over(name, name, ordinates(curves, guides), logarithmic=True)
        panels = [Panel("closer", "Closer", f"{name} over ηS/2", x, y, curves, guides)]
        models = tuple(model.name for model in found.models)
        x = Axis("", "model", (-0.6, len(models) - 0.4), ticks=models, at=tuple(map(float, range(len(models)))))
        middle = {"color": "0.1", "linewidth": 1.4, "marker": "none"}
        for quantity in ("sharpness", "amplitude", "onset"):  # a column of points for each model, and its median
            strips = []
            for place, (key, model) in enumerate(keyed):
                values = getattr(model, quantity)[found.oscillates]
                known = np.sort(values[np.isfinite(values)])
                aside = np.linspace(-0.25, 0.25, len(known)) if len(known) > 1 else np.zeros(len(known))
                strips.append(Curve(key, place + aside, known, alpha=0.7, line=False, named=False))
                if len(known):
                    median = np.full(2, np.median(known))
                    strips.append(Curve(key, place + np.array([-0.35, 0.35]), median, named=False, look=middle))
            name = f"{quantity} over that of descent"
            y = axis_over(name, name, ordinates(strips, [level]))
            panels.append(Panel(quantity, quantity.capitalize(), name, x, y, strips, (level,)))
        return figure_of(panels, (6.6, 4.6), columns=2)


def model_claims(found: Seen, *, share: float = 0.9) -> Iterator[Claim]:
    """Yield the claims on models of descents, where these oscillate.

    That models follow descent where the gradient flow does not is the papers'; how often, and all numbers to compare
    with, are flowsim's.
    """
    for model in found.models:
        yield _closer(found, model, share)
    by_name = {model.name: model for model in found.models}
    if {"central", "edge"} <= by_name.keys():
        text = "the edge flow follows descent at least as closely as the central flow (Marion 2026)"
        yield _as_close(found, text, by_name["edge"], by_name["central"], within=1.0)
    if {"central", "rod"} <= by_name.keys():
        text = "the rod flow follows descent about as closely as the central flow, or more (Regis and Chewi 2026)"
        yield _as_close(found, text, by_name["rod"], by_name["central"], within=1.25)
    yield _told(found, "the models tell the sharpness at the centre", "sharpness", 0.02)
    yield _told(found, "the models tell the amplitude of the oscillation", "amplitude", 0.1)
    yield _told(found, "the models tell when the oscillation begins", "onset", 0.1)


def _closer(found: Seen, model: Told, share: float) -> Claim:
    text = f"the {model.name} flow is closer to descent than the gradient flow where descent oscillates"
    expected = f"in {share:.0%} of the descents"
    factors, works = model.closer[found.oscillates], model.work[found.oscillates]
    if not factors.size:
        return unmeasured(text, expected, "no descent oscillates")
    closer, known = float(np.mean(factors > 1)), factors[~np.isnan(factors)]
    if not known.size:
        return Claim(text, expected, f"the model ends before in all of {factors.size}", False, {"share": 0.0})
    middle, work = float(np.median(known)), float(np.nanmedian(works))
    measured = f"in {closer:.0%} of {factors.size}; {middle:.3g} times in the median, {known.min():.3g} to "
    measured += f"{known.max():.3g}; {factors.size - known.size} ended before; {work:.2g} gradients and products a step"
    return Claim(text, expected, measured, closer >= share, {"share": closer, "median": middle, "work": work})


def _as_close(found: Seen, text: str, one: Told, other: Told, *, within: float) -> Claim:
    expected = f"its distance at most {within:g} times that of the other, in the median over descents that oscillate"
    ratios = (one.distance / other.distance)[found.oscillates]
    ratios = ratios[np.isfinite(ratios)]
    if not ratios.size:
        return unmeasured(text, expected, "no descent oscillates, or a model ended before")
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    measured = f"{middle:.3g} times, quartiles {low:.3g} and {high:.3g}, of {ratios.size}"
    return Claim(text, expected, measured, bool(middle <= within), {"low": low, "median": middle, "high": high})


def _told(found: Seen, text: str, what: str, tolerance: float) -> Claim:
    expected = f"its {what} over that of descent, median where descent oscillates: within {tolerance:.0%} of 1 for each"
    columns = {model.name: getattr(model, what)[found.oscillates] for model in found.models}
    if not all(np.isfinite(values).any() for values in columns.values()):
        return unmeasured(text, expected, "no descent oscillates, or a model says nothing of it")
    medians = {name: float(np.nanmedian(values)) for name, values in columns.items()}
    holds = all(abs(median - 1) <= tolerance for median in medians.values())
    return Claim(text, expected, listed(medians, ".4g"), holds, medians)
