"""What large steps on separable classes are said to do, each with the numbers measured."""

import itertools

import numpy as np

from ...dynamics import Outcome
from ...theory import Claim, listed
from .measures import Course, margin_of

# With γ itself the flow stays below one, and the margin of a run is below γ; one more for the steps of descent.
_PRODUCT = 2.0


def logistic_claims(flow: Course, descents: list[Course], samples: int) -> list[Claim]:
    """Return the claims about descents beside a flow, on so many `samples`."""
    margin = margin_of([flow, *descents])
    return [
        _no_critical_rate(flow, descents),
        _rate(flow, descents, margin, samples),
        _transition(descents, margin, samples),
        _acceleration(descents),
    ]


def _no_critical_rate(flow: Course, descents: list[Course]) -> Claim:
    ends = {course.name: course.outcome for course in (flow, *descents)}
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


def _rate(flow: Course, descents: list[Course], margin: float, samples: int) -> Claim:
    """Say that R falls like 1/(ηk): for one linear layer d(1/R)/dt = ‖∇R‖²/R² is γ² or more, up to a share R.

    In the end it is γ², so γ²Rt tends to one. A step of descent falls short of that by up to ηS/2 of itself.
    """
    products = {course.name: course.largest_product(margin, samples) for course in (flow, *descents)}
    return Claim(
        text="in the stable phase the risk falls like 1/(γ²ηk), whatever the learning rate",
        expected=f"γ²·R·η(k − s) at most {_PRODUCT:g} from its first step s on, γ the largest normalized margin",
        measured=f"γ = {margin:.3g}; " + listed(products),
        holds=max(products.values()) <= _PRODUCT,
        numbers={"margin": margin, **products},
    )


def _transition(descents: list[Course], margin: float, samples: int) -> Claim:
    """Say how long the risk stays high: O(η) steps where η is large (Wu et al. 2024), here max(η, n)/γ².

    Records after the first 187 steps are further apart: then the step is an upper bound.
    """
    first = [(course, course.stable_from(samples)) for course in descents]
    times = {course.name: float(np.append(course.times, np.inf)[record]) for course, record in first}
    steps = {course.name: times[course.name] / course.learning_rate for course in descents}
    shares = [steps[course.name] * margin**2 / max(course.learning_rate, samples) for course in descents]
    return Claim(
        text="the stable phase begins after O(η) steps at most where η is large",
        expected="R at most min(1/η, ln 2/n) from step max(η, n)/γ² on",
        measured="first step of it: " + listed(steps, ".0f"),
        holds=max(shares) <= 1,
        numbers={**steps, "largest_share": max(shares)},
    )


def _acceleration(descents: list[Course]) -> Claim:
    steps = {course.name: course.steps for course in descents}
    ordered = list(steps.values())
    return Claim(
        text="the larger the learning rate, the fewer steps it takes to the same gradient norm",
        expected="the number of steps falls with η",
        measured=listed(steps, "d"),
        holds=all(later < earlier for earlier, later in itertools.pairwise(ordered)),
        numbers=steps,
    )
