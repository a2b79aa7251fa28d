"""Gradient descent with large steps on separable classes (Wu et al. 2024): the figure `RiskOverTime` and its claims."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Float
from pydantic_core import PydanticCustomError

from flowsim.columns import RecordedRun, read_runs
from flowsim.dynamics import Outcome
from flowsim.kinds import validation_error
from flowsim.probes import NormalizedMargin
from flowsim.report.panels import INK, Axis, Curve, Key, Panel, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import BOUND, run_look
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.theory import Claim, listed, mark_outside_sweep

MARGIN = NormalizedMargin().label.name


@final
class RiskOverTime(Figure):
    """The risk against t = ηk, for the flow and several learning rates on one axis (Wu et al. 2024).

    Where η is large, descent oscillates first, and then decreases as the flow does: 1/(γ²t), dotted.
    """

    name = "risk_over_time"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the runs are not descents of one linear layer, with a loss without minimizer and their margins."""
        if scenario.loss.kind != "logistic":
            wording = {"expected": "logistic, which the figure is about", "write": "loss: logistic, or figure: null"}
            yield validation_error(found=f"the loss {scenario.loss.kind}", **wording, at=("loss",))
        if not (scenario.network.is_linear() and scenario.network.count_matrices() == 1):
            yield validation_error(
                found="another network than one linear layer",
                expected="one, for which the rate is known",
                write="network: {kind: mlp, depth: 1, scale: 0.0}, or figure: null",
                at=("network",),
            )
        if scenario.data.model_dump().get("samples") is None:
            wording = {"expected": "their number, on which the claims depend", "write": "samples: 300, or figure: null"}
            yield validation_error(found="data that do not say how many samples there are", **wording, at=("data",))
        if not scenario.descent.learning_rates:
            wording = {"expected": "learning rates, which the figure shows", "write": "learning_rates: [0.5, 50]"}
            yield validation_error(found="no descent", **wording, at=("descent",))
        if MARGIN not in {entry.kind for entry in scenario.record}:
            wording = {"expected": "the margin, from which the rate follows", "write": f"record: [{MARGIN}]"}
            yield validation_error(found=f"no {MARGIN} among what is recorded", **wording, at=("record",))

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on large steps for separable classes, each with the numbers measured."""
        samples = results.scenario["data"]["samples"]
        return mark_outside_sweep(logistic_claims(*risk_curves_of(results.required("trajectories")), samples))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return the figure of the flow, of the descents, and of 1/(γ²t)."""
        trajectories = results.required("trajectories")
        flow, descents = risk_curves_of(trajectories)
        curves = []
        for run, course in zip(_flow_and_descents(trajectories), (flow, *descents), strict=True):
            key, times = Key("run", run.run.name, run.run.label, run_look(run.run)), course.times[1:]
            marks = np.geomspace(times[0], times[-1], 8) if "marker" in key.look else None
            curves.append(Curve(key, times, course.risk[1:], marks=marks))
        margin, last = margin_of([flow, *descents]), max(course.times[-1] for course in (flow, *descents))
        times = np.array([1 / margin**2, last])
        curves.append(Curve(Key(INK, "1/(γ²t)", r"$1/(\gamma^2 t)$", BOUND), times, 1 / (margin**2 * times)))
        x = Axis(r"time $t = \eta k$", "time t = ηk", (0, last), (0.2, 3 * last), logarithmic=True)
        y = axis_over(r"risk $R$", "risk R", ordinates(curves), logarithmic=True)
        bottom = min(course.risk[-1] for course in (flow, *descents[:1])) / 30
        y = replace(y, log=(bottom, y.log[1] if y.log else 1.0))
        return figure_of([Panel("risk", "Risk", "risk against time", x, y, curves)], (3.3, 2.7))


@dataclass(frozen=True)
class RiskCurve:
    """One run: `times` t (ηk after k steps), the `risk` R there, its normalized `margin` at the end, and how it ended.

    The flow has the `learning_rate` zero.
    """

    name: str
    learning_rate: float
    times: Float[np.ndarray, " records"]
    risk: Float[np.ndarray, " records"]
    margin: float
    outcome: Outcome
    steps: int

    def stable_from(self, samples: int) -> int:
        """Return the first record of the stable phase: from there on R is min(1/η, ln 2/n) at most.

        With a mean below ln 2/n, n the number of `samples`, each of them is on the right side; and the sharpness of a
        logistic risk is R at most, for inputs of norm one, so that below 1/η it is below the edge 2/η. The flow
        has no such bound. It is the number of records where there is no such phase.
        """
        low = self.risk <= np.log(2) / max(samples, self.learning_rate * np.log(2))
        return len(low) - int(np.argmin(low[::-1])) if not low.all() else 0

    def largest_product(self, margin: float, samples: int) -> float:
        """Return the largest γ²·R·η(k − s) of the stable phase, which begins at step s, for a `margin` γ."""
        first = self.stable_from(samples)
        since = self.times[first:] - self.times[min(first, len(self.times) - 1)]
        return float(np.max(margin**2 * self.risk[first:] * since, initial=0.0)) if len(since) else np.inf


def risk_curves_of(trajectories: xarray.Dataset) -> tuple[RiskCurve, list[RiskCurve]]:
    """Return the curve of the flow, and those of gradient descent from the smallest learning rate to the largest."""
    flow, *descents = (
        RiskCurve(
            name=run.run.name,
            learning_rate=run.run.learning_rate or 0.0,
            times=run.along("time").astype(float),
            risk=run.along("risk").astype(float),
            margin=float(run.along(MARGIN)[-1]),
            outcome=run.outcome,
            steps=run.steps,
        )
        for run in _flow_and_descents(trajectories)
    )
    return flow, descents


def _flow_and_descents(trajectories: xarray.Dataset) -> list[RecordedRun]:
    found = read_runs(trajectories)
    return [found.flow, *(run for run in found.by_rate if run.run.is_descent)]


def margin_of(curves: list[RiskCurve]) -> float:
    """Return the largest normalized margin that a run ended with.

    It is a lower bound on the margin γ of the best separator, to which it rises as 1/log t falls (Soudry et al. 2018).
    """
    return max(curve.margin for curve in curves)


def logistic_claims(flow: RiskCurve, descents: list[RiskCurve], samples: int) -> list[Claim]:
    """Return the claims about descents beside a flow, on so many `samples`."""
    margin = margin_of([flow, *descents])
    return [
        _no_critical_rate(flow, descents),
        _rate(flow, descents, margin, samples),
        _transition(descents, margin, samples),
        _acceleration(descents),
    ]


def _no_critical_rate(flow: RiskCurve, descents: list[RiskCurve]) -> Claim:
    ends = {curve.name: curve.outcome for curve in (flow, *descents)}
    largest = descents[-1]
    text = "no learning rate is critical: every run drives the risk to its infimum at infinity, the largest η too"
    others = ", ".join(f"{name}: {outcome}" for name, outcome in ends.items() if outcome is not Outcome.NO_MINIMIZER)
    measured = f"{others or 'all'}; {largest.name}: risk {largest.risk[0]:.3g}, at most {largest.risk.max():.3g}, "
    return Claim(
        text=text,
        expected="NO_MINIMIZER, and with the largest η a risk at the end below a hundredth of the first",
        measured=measured + f"{largest.risk[-1]:.3g} at the end",
        holds=not others and bool(largest.risk[-1] < largest.risk[0] / 100),
        numbers={"first": largest.risk[0], "largest": largest.risk.max(), "last": largest.risk[-1]},
    )


def _rate(flow: RiskCurve, descents: list[RiskCurve], margin: float, samples: int, *, most: float = 2.0) -> Claim:
    """Return the claim that R falls like 1/(ηk).

    For one linear layer d(1/R)/dt = ‖∇R‖²/R² is γ² or more, up to a share R, and γ² in the end, so that γ²Rt tends to
    one. A step of descent falls short of that by up to ηS/2 of itself, and the
    margin that a run ends with is below γ: hence `most`, one for the flow and one more for the steps of descent.
    """
    products = {curve.name: curve.largest_product(margin, samples) for curve in (flow, *descents)}
    return Claim(
        text="in the stable phase the risk falls like 1/(γ²ηk), whatever the learning rate",
        expected=f"γ²·R·η(k − s) at most {most:g} from its first step s on, γ the largest normalized margin",
        measured=f"γ = {margin:.3g}; " + listed(products),
        holds=max(products.values()) <= most,
        numbers={"margin": margin, **products},
    )


def _transition(descents: list[RiskCurve], margin: float, samples: int) -> Claim:
    """Return the claim that the risk stays high for O(η) steps where η is large (Wu et al. 2024), here max(η, n)/γ².

    Records after the first 187 steps are further apart: then the step is an upper bound.
    """
    first = [(curve, curve.stable_from(samples)) for curve in descents]
    times = {curve.name: float(np.append(curve.times, np.inf)[record]) for curve, record in first}
    steps = {curve.name: times[curve.name] / curve.learning_rate for curve in descents}
    shares = [steps[curve.name] * margin**2 / max(curve.learning_rate, samples) for curve in descents]
    return Claim(
        text="the stable phase begins after O(η) steps at most where η is large",
        expected="R at most min(1/η, ln 2/n) from step max(η, n)/γ² on",
        measured="first step of it: " + listed(steps, ".0f"),
        holds=max(shares) <= 1,
        numbers={**steps, "largest_share": max(shares)},
    )


def _acceleration(descents: list[RiskCurve]) -> Claim:
    steps = {curve.name: curve.steps for curve in descents}
    ordered = list(steps.values())
    return Claim(
        text="the larger the learning rate, the fewer steps it takes to the same gradient norm",
        expected="the number of steps falls with η",
        measured=listed(steps, "d"),
        holds=all(later < earlier for earlier, later in itertools.pairwise(ordered)),
        numbers=steps,
    )
