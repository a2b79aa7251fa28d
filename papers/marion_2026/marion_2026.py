"""Descent at the edge of stability beside models of it (Marion 2026, Cohen et al. 2024): the figure `AtTheEdge`."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Float
from pydantic_core import PydanticCustomError

from flowsim.columns import RecordedRun, read_runs
from flowsim.comparison.centres import DISTANCE, SHARPNESS, records_at
from flowsim.comparison.edge_statements import models_of
from flowsim.comparison.models import GRADIENT
from flowsim.kinds import validation_error
from flowsim.probes import Oscillation
from flowsim.report.panels import Axis, Curve, Guide, Key, Panel, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import FLOW, shade
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.theory import Claim, listed, mark_outside_sweep, unmeasured

AMPLITUDE = Oscillation().label.name
Series = Float[np.ndarray, " centres"]


@final
class AtTheEdge(Figure):
    """The sharpness at the centre of descent's oscillation, and its amplitude, beside what models say of both.

    One learning rate or more stay below the edge 2/η, and one or more come to it and stay there.
    """

    name = "at_the_edge"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield that there is no model of descent, or that the sharpness is not followed."""
        if not [model for model in scenario.flow.models if model != GRADIENT]:
            yield validation_error(
                found="no model of descent beside the gradient flow",
                expected="one or more, which the figure shows",
                write="models: [gradient, central, edge], or figure: null",
                at=("flow", "models"),
            )
        if scenario.sharpness is not None and scenario.sharpness.make().at_the_end_alone:
            yield validation_error(
                found="the sharpness at the end of the runs alone",
                expected="its course, which the figure shows",
                write="sharpness: true, or figure: null",
                at=("sharpness",),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on descent at the edge and on its models, each with the numbers measured."""
        return mark_outside_sweep(edge_claims(descents_of(results.required("trajectories"))))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return two panels: sharpness and amplitude of the descents, of the gradient flow and of the models."""
        trajectories = results.required("trajectories")
        descents, flow = descents_of(trajectories), read_runs(trajectories).flow
        gradient_flow = Key("flow", "GF", "GF", FLOW | {"linewidth": 1.2})
        sharpness = [Curve(gradient_flow, flow.along("time"), flow.along("sharpness").astype(float))]
        amplitude, guides = [], []
        for number, one in enumerate(descents):  # wide and pale; models look the same at every learning rate
            wide = {"color": shade(number, len(descents)), "linewidth": 3.6, "alpha": 0.55, "zorder": 2.1}
            wide |= {"solid_capstyle": "round"}
            key = Key("run", f"GD, η = {one.learning_rate:.3g}", rf"GD, $\eta = {one.learning_rate:.3g}$", wide)
            guides.append(Guide(2 / one.learning_rate, key, r"$2/\eta$"))
            sharpness.append(Curve(key, one.times, one.sharpness))
            amplitude.append(Curve(key, one.times, one.amplitude))
            looks = (("#b2182b", (0, (4, 1))), ("#08306b", (0, (1, 1))), ("#7a3b9c", (0, (5, 1, 1, 1))))
            for (colour, dashes), model in zip(itertools.cycle(looks), one.models, strict=False):
                look = {"color": colour, "linestyle": dashes, "linewidth": 1.3, "zorder": 3.0}
                key = Key("model", f"{model.name} flow", f"{model.name} flow", look)
                sharpness.append(Curve(key, one.times, model.sharpness))
                amplitude.append(Curve(key, one.times, model.amplitude))
        highest = max((float(one.amplitude.max()) for one in descents), default=1.0)
        last, limits = max((float(one.times[-1]) for one in descents), default=1.0), (1e-4, max(3 * highest, 1e-3))
        x, words = Axis(r"time $t = \eta k$", "time t = ηk", (0.0, last)), "amplitude of the oscillation"
        values = ordinates(sharpness, guides)
        up = axis_over("sharpness at the centre", "sharpness at the centre", values, logarithmic=True)
        panels = [
            Panel("sharpness", "Sharpness", "sharpness against time", x, up, sharpness, guides),
            Panel("amplitude", "Amplitude", words, x, Axis(words, words, limits, limits, True), amplitude),
        ]
        return figure_of(panels, (3.3, 4.2), sharex="col")


@dataclass(frozen=True)
class Model:
    """What one model says at the times of the centres: NaN where it did not get there.

    `distance` is how far it is from the centre, `amplitude` that of the oscillation that it predicts.
    """

    name: str
    sharpness: Series
    amplitude: Series
    distance: Series


@dataclass(frozen=True)
class Descent:
    """One descent at the centres (W_{k−1} + 2W_k + W_{k+1})/4 of its oscillation, at `times` t = ηk, with its models.

    `amplitude` is the length of (2W_k − W_{k−1} − W_{k+1})/4, `step` that of W_{k+1} − W_k, and `flow_distance` how far
    the gradient flow is from the centre.
    """

    name: str
    learning_rate: float
    times: Series
    sharpness: Series
    amplitude: Series
    step: Series
    flow_distance: Series
    models: tuple[Model, ...]

    @property
    def over_threshold(self) -> Series:
        """S·η/2 at the centres: one at the edge."""
        return self.sharpness * self.learning_rate / 2

    @property
    def period_two(self) -> Series:
        """Twice the amplitude over the length of a step: one where W_{k+1} = W_{k−1}, near zero in a smooth descent."""
        return 2 * self.amplitude / self.step

    @property
    def late(self) -> np.ndarray:
        """Which centres are in the last third of the time."""
        return self.times >= 2 / 3 * self.times[-1]

    @property
    def reaches_edge(self) -> bool:
        """Whether the sharpness at a centre was ever 2/η or more."""
        return bool(np.nanmax(self.over_threshold) >= 1)


def descents_of(trajectories: xarray.Dataset) -> list[Descent]:
    """Return every descent that has centres, from the smallest learning rate to the largest."""
    shown = read_runs(trajectories)
    descents = [run for run in shown.by_rate if run.run.is_descent and np.isfinite(run.along(SHARPNESS.name)).any()]
    return [_descent_at_centres(one, models_of(shown, one)) for one in descents]


def _descent_at_centres(descent: RecordedRun, models: list[RecordedRun]) -> Descent:
    rate = descent.run.learning_rate or np.nan
    centres = np.isfinite(descent.along(SHARPNESS.name))
    along = {
        name: descent.along(name)[centres].astype(float)
        for name in ("time", SHARPNESS.name, AMPLITUDE, "gradient_norm", DISTANCE.name)
    }
    return Descent(
        name=descent.run.name,
        learning_rate=rate,
        times=along["time"],
        sharpness=along[SHARPNESS.name],
        amplitude=along[AMPLITUDE],
        step=rate * along["gradient_norm"],
        flow_distance=along[DISTANCE.name],
        models=tuple(_model_at(run, along["time"]) for run in models),
    )


def _model_at(run: RecordedRun, times: Series) -> Model:
    """Return what a model says at these times, which are among its records up to where it ended."""
    index, there = records_at(run.along("time").astype(float), times, stays=False)
    found = {name: np.where(there, run.along(name)[index], np.nan) for name in ("sharpness", AMPLITUDE, DISTANCE.name)}
    return Model(run.run.method, found["sharpness"], found[AMPLITUDE], found[DISTANCE.name])


def edge_claims(descents: list[Descent]) -> list[Claim]:
    """Return the claims about descents, those that come to the edge and those that do not, and about their models."""
    at_edge = [one for one in descents if one.reaches_edge]
    below = [one for one in descents if not one.reaches_edge]
    return [
        _comes_to_edge(below, at_edge),
        _stays(at_edge),
        _alternates(below, at_edge),
        *(
            claim
            for name in dict.fromkeys(model.name for one in descents for model in one.models)
            for claim in (_closer(name, at_edge), _amplitude(name, at_edge))
        ),
    ]


def _comes_to_edge(below: list[Descent], at_edge: list[Descent]) -> Claim:
    text = "a small learning rate stays below the edge, and larger ones come to it"
    expected = "largest S·η/2 at a centre: below 1 for the smallest η, 1 or more for the others"
    largest = {one.name: float(np.nanmax(one.over_threshold)) for one in (*below, *at_edge)}
    ordered = max((one.learning_rate for one in below), default=np.inf) < min(
        (one.learning_rate for one in at_edge), default=-np.inf
    )
    return Claim(text, expected, listed(largest), bool(ordered), largest)


def _stays(at_edge: list[Descent], *, low: float = 0.9, high: float = 1.1) -> Claim:
    """Return the claim that S·η/2 stays about one; `low` and `high` are flowsim's, as the papers give no tolerance."""
    text = "a descent that comes to the edge stays there"
    expected = f"S·η/2 at every centre of the last third of the time: {low} to {high}"
    if not at_edge:
        return unmeasured(text, expected, "none comes to it")
    ranges = {one.name: (one.over_threshold[one.late].min(), one.over_threshold[one.late].max()) for one in at_edge}
    measured = ", ".join(f"{name}: {least:.4g} to {most:.4g}" for name, (least, most) in ranges.items())
    numbers = {f"{name}, least": float(least) for name, (least, _) in ranges.items()}
    numbers |= {f"{name}, most": float(most) for name, (_, most) in ranges.items()}
    return Claim(text, expected, measured, all(low <= a and b <= high for a, b in ranges.values()), numbers)


def _alternates(
    below: list[Descent], at_edge: list[Descent], *, low: float = 0.9, high: float = 1.1, smooth: float = 0.1
) -> Claim:
    """Return the claim about `Descent.period_two`, which is one at period two and near zero in a smooth descent.

    The papers give no tolerance; within a tenth of either is flowsim's.
    """
    text = "at the edge descent is of period two, and below it glides"
    expected = (
        f"|2W_k − W_k₋₁ − W_k₊₁|/2 over the length of a step, median of the last third: {low} to {high} at the edge, "
        f"at most {smooth} below"
    )
    if not at_edge:
        return unmeasured(text, expected, "none comes to the edge")
    medians = {one.name: float(np.median(one.period_two[one.late])) for one in (*below, *at_edge)}
    holds = all(low <= medians[one.name] <= high for one in at_edge)
    holds &= all(medians[one.name] <= smooth for one in below)
    return Claim(text, expected, listed(medians), holds, medians)


def _closer(model: str, at_edge: list[Descent], *, factor: float = 10.0) -> Claim:
    """Return the claim that a model is closer to descent than the gradient flow by `factor`, an order of magnitude."""
    text = f"the {model} flow stays with descent at the edge, where the gradient flow leaves it"
    expected = f"distance of the gradient flow from the centre over that of the model, at the end: {factor:g} or more"
    factors = {one.name: _last_factor(one, found) for one, found in _models_called(model, at_edge)}
    if not factors:
        return unmeasured(text, expected, "no descent at the edge has one")
    return Claim(text, expected, listed(factors), min(factors.values()) >= factor, factors)


def _last_factor(one: Descent, model: Model) -> float:
    """Return how much closer the model is at the last centre that both have, 0 where it has none in the last third."""
    known = np.isfinite(one.flow_distance) & np.isfinite(model.distance) & one.late
    if not known.any():
        return 0.0
    last = np.flatnonzero(known)[-1]
    return float(one.flow_distance[last] / model.distance[last])


def _amplitude(model: str, at_edge: list[Descent], *, tolerance: float = 0.1) -> Claim:
    """Return the claim that a model predicts the amplitude within a `tolerance`, of which the papers say nothing."""
    text = f"the {model} flow predicts the amplitude of the oscillation"
    expected = f"predicted over measured, median of the last third: within {tolerance:.0%} of 1"
    ratios = {
        one.name: float(np.nanmedian(found.amplitude[one.late] / one.amplitude[one.late]))
        for one, found in _models_called(model, at_edge)
        if np.isfinite(found.amplitude[one.late]).any()
    }
    if not ratios:
        return unmeasured(text, expected, "no descent at the edge has one")
    return Claim(text, expected, listed(ratios, ".4g"), max(abs(r - 1) for r in ratios.values()) <= tolerance, ratios)


def _models_called(model: str, at_edge: list[Descent]) -> list[tuple[Descent, Model]]:
    return [(one, found) for one in at_edge for found in one.models if found.name == model]
