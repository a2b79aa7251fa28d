"""What large steps on separable classes are said to do, and what is measured for it along the runs."""

import itertools
from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...dynamics import Outcome
from ...probes import NormalizedMargin
from ...results.recorded import RecordedRun, recorded
from ...theory import Claim, listed


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
    found = recorded(trajectories)
    return _risk_curve(found.flow), [_risk_curve(run) for run in found.by_rate if run.run.is_descent]


def margin_of(curves: list[RiskCurve]) -> float:
    """Return the largest normalized margin that a run ended with.

    It is a lower bound on the margin γ of the best separator, to which it rises as 1/log t falls (Soudry et al. 2018).
    """
    return max(curve.margin for curve in curves)


def _risk_curve(run: RecordedRun) -> RiskCurve:
    return RiskCurve(
        name=run.run.name,
        learning_rate=run.run.learning_rate or 0.0,
        times=run.along("time").astype(float),
        risk=run.along("risk").astype(float),
        margin=float(run.along(NormalizedMargin().label.name)[-1]),
        outcome=run.outcome,
        steps=run.steps,
    )


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
