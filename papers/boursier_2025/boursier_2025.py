"""Grokking as a slow flow (Boursier, Pesme and Dragomir 2025): a sparse teacher, a diagonal network, figure, claims."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

import equinox as eqx
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field
from pydantic_core import PydanticCustomError

from flowsim.data import Data, DataSource
from flowsim.kinds import validation_error
from flowsim.report.panels import INK, Axis, Curve, Key, Panel, abscissae, axis_over
from flowsim.report.render_paper import figure_of
from flowsim.report.style import shade
from flowsim.report.sweeps import runs
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.theory import Claim, unmeasured

DECAY, TIME = "weight_decay", "flow.t1"
RECORDED = ("unregularized_risk", "test_risk", "squared_norm")


class SparseTeacher(DataSource):
    """Standard Gaussian inputs, and labels ⟨w*, x⟩ without noise, where `nonzero` entries of w* are ±1, others 0."""

    samples: int = Field(default=24, ge=1)
    """n."""
    features: int = Field(default=40, ge=1)
    """d, of one sample."""
    nonzero: int = Field(default=3, ge=1)
    """The number of features that the teacher uses."""
    test_samples: int = Field(default=1000, ge=1)
    """Further samples, on which the test risk is measured."""

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Return the samples, and those that training does not see."""
        teacher = np.zeros(self.features)
        teacher[: self.nonzero] = rng.choice([-1.0, 1.0], min(self.nonzero, self.features))

        def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
            X = rng.standard_normal((count, self.features))
            return X, X @ teacher

        return Data(draw(self.samples), draw(self.test_samples))

    def dimensions(self) -> tuple[int, int]:
        """Return the features and one label."""
        return self.features, 1

    def holds_out(self) -> bool:
        """Return that there are samples that training does not see."""
        return True

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return samples, inputs and outputs."""
        return self.samples, self.features, 1


_Scale = Annotated[float, Field(description="Every weight of the first layer at the start; the second is zero.")]


class Diagonal(eqx.Module):
    """f(x) = ⟨u⊙v, x⟩ from u = scale·(1, …, 1) and v = 0 on: one start, so that the runs of a sweep are of one course.

    What the gradient flow conserves, u² − v² in every entry, keeps regressors of a large scale dense; the least
    ‖u‖² + ‖v‖² of a regressor β = u⊙v is 2‖β‖₁.
    """

    first: Float[Array, " d"]
    last: Float[Array, " d"]

    def __init__(self, in_size: int, scale: _Scale = 3.0):
        self.first = scale * jnp.ones(in_size)
        self.last = jnp.zeros(in_size)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the prediction for one sample, a number."""
        return (self.first * self.last) @ x


@dataclass(frozen=True)
class Course:
    """What the runs with one `decay` λ say at each of the times `t`, the median over repetitions: (times,)."""

    decay: float
    t: Float[np.ndarray, " times"]
    risk: Float[np.ndarray, " times"]
    test_risk: Float[np.ndarray, " times"]
    squared_norm: Float[np.ndarray, " times"]

    def time_of_fall(self, values: Float[np.ndarray, " times"], level: float) -> float:
        """Return when `values` fall below a level for good, between records on logarithmic axes; NaN for never."""
        above = np.flatnonzero(~(values < level))
        if not above.size or above[-1] + 1 == values.size:
            return np.nan
        before, after = above[-1], above[-1] + 1
        t, height = np.log(self.t[[before, after]]), np.log(np.maximum(values[[before, after]], 1e-300))
        return float(np.exp(t[0] + (np.log(level) - height[0]) / (height[1] - height[0]) * (t[1] - t[0])))


def courses(sweep: xarray.Dataset) -> list[Course]:
    """Return the course of the flow with every decay, from the smallest on."""
    (flow,) = runs.flows(sweep)
    found = {name: runs.final(sweep, flow, name).median(runs.REPETITION) for name in RECORDED}
    decay, time = (next(str(dim) for dim in runs.grid(sweep) if str(dim) in names) for names in _NAMES)
    return [
        Course(float(value), sweep[time].values, *(found[name].sel({decay: value}).values for name in RECORDED))
        for value in np.sort(sweep[decay].values)
    ]


_NAMES = ((DECAY,), (TIME, TIME.rpartition(".")[2]))


@final
class Grokking(Figure):
    """Risks on training and test samples over time, with several weight decays, and the latter over the time λt."""

    name = "grokking"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the scenario is not a sweep of the flow over weight decay and time that records all it needs."""
        sweep = scenario.sweep
        if sweep is None or set(sweep.over) != {DECAY, TIME} or not sweep.flow or 0.0 not in sweep.over[DECAY]:
            yield validation_error(
                found=f"no sweep of the flow over {DECAY}, zero among it, and {TIME}",
                expected="one, which the figure shows",
                write=f"sweep: {{over: {{{DECAY}: [0.0, 1.0e-3], {TIME}: {{start: 1, stop: 1.0e+5, count: 21, "
                "spacing: log}}}}",
                at=("sweep",) if sweep else ("figure",),
            )
        if missing := set(RECORDED) - {entry.kind for entry in scenario.record}:
            yield validation_error(
                found=f"no record of {', '.join(sorted(missing))}",
                expected="what the figure shows",
                write=f"record: [{', '.join(RECORDED)}]",
                at=("record",),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return what the paper says of the two phases, each with the numbers measured."""
        return list(claims(courses(results.required("sweep")), results.scenario["data"].get("nonzero", np.nan)))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return two panels: training and test risk over t, and test risk over λt."""
        found = courses(results.required("sweep"))
        left, right, dots = [], [], {"linestyle": ":"}
        for number, course in enumerate(found):
            colour = shade(len(found) - 1 - number, len(found)) if course.decay else "black"
            name = rf"$\lambda = 10^{{{np.log10(course.decay):.3g}}}$" if course.decay else "no decay"
            key = Key("run", name, name, {"color": colour, "linewidth": 1.0})
            left.append(Curve(key, course.t, course.test_risk))
            left.append(Curve(key, course.t, course.risk, named=False, look=dots))
            if course.decay:
                right.append(Curve(key, course.decay * course.t, course.test_risk, named=False))
        trained = "on the training samples"
        left.append(Curve(Key(INK, trained, trained, {"color": "0.4", **dots})))
        y = Axis("risk without decay", "risk without decay", (0.0, 1e3), (1e-12, 1e3), logarithmic=True)
        panels = []
        for label, words, curves in ((r"time $t$", "time t", left), (r"slow time $\lambda t$", "slow time λt", right)):
            x = axis_over(label, words, abscissae(curves), logarithmic=True)
            panels.append(Panel("risk", "Risk", f"risk against {words}", x, y, curves))
        return figure_of(panels, (6.6, 2.7), columns=2, sharey="row")


def claims(found: list[Course], nonzero: float, *, fitted: float = 1e-3, general: float = 1e-2) -> Iterable[Claim]:
    """Yield the claims: a network has fitted at a risk below `fitted` of the first, and generalizes below `general`."""
    plain, decayed = found[0], [course for course in found if course.decay > 0]
    fits = np.array([course.time_of_fall(course.risk, fitted * plain.risk[0]) for course in decayed])
    knows = np.array([course.time_of_fall(course.test_risk, general * plain.test_risk[0]) for course in decayed])
    decays = np.array([course.decay for course in decayed])
    small = decays < 5e-3
    yield _stays(plain, general)
    yield _late(decays, fits, knows)
    yield _slope(
        "the time until it generalizes is of order 1/λ",
        decays[small],
        knows[small],
        -1.0,
        0.02,
        "the logarithm of that time over the logarithm of λ",
    )
    ends = np.array([course.test_risk[-1] for course in decayed])
    yield _slope(
        "what decay leaves of the risk is of order λ²",
        decays,
        ends,
        2.0,
        0.1,
        "the logarithm of the test risk at the end over that of λ",
    )
    text, expected = "the limit has the least norm: 2‖w*‖₁, of the sparse teacher", "‖W‖² within 2λ of it"
    off = np.array([abs(course.squared_norm[-1] / (2 * nonzero) - 1) for course in decayed])
    measured = (
        f"off by {off.max():.2g} at λ = {decays[off.argmax()]:g}, {off.min():.2g} at λ = {decays[off.argmin()]:g}"
    )
    yield Claim(text, expected, measured, bool((off <= 2 * decays).all()), {"largest": off.max(), "least": off.min()})


def _stays(plain: Course, general: float) -> Claim:
    """Return the claim that the flow without decay fits, and does not generalize."""
    text = "without decay it fits its samples, and never generalizes"
    expected = f"risk below 1e-12 at the end, test risk more than {general:g} of what it was"
    share = float(plain.test_risk[-1] / plain.test_risk[0])
    measured = f"risk {plain.risk[-1]:.2g}, test risk {share:.3g} of what it was"
    numbers = {"risk": float(plain.risk[-1]), "share": share}
    return Claim(text, expected, measured, bool(plain.risk[-1] < 1e-12 and share > general), numbers, of_absence=True)


def _late(decays: np.ndarray, fits: np.ndarray, knows: np.ndarray, *, later: float = 10.0) -> Claim:
    """Return the claim that it generalizes long after it has fitted."""
    text, expected = (
        "it generalizes long after it has fitted, the later the smaller λ",
        f"{later:g} times as late, or more",
    )
    if np.isnan(knows).any() or np.isnan(fits).any():
        return unmeasured(text, expected, "some run does not get that far")
    ratio = knows / fits
    measured = (
        f"{ratio.min():.3g} times as late at λ = {decays[ratio.argmin()]:g}, {ratio.max():.3g} at λ = {decays[0]:g}"
    )
    holds = bool(ratio.min() >= later and (np.diff(ratio[np.argsort(decays)]) < 0).all())
    return Claim(text, expected, measured, holds, {"least": float(ratio.min()), "most": float(ratio.max())})


def _slope(text: str, x: np.ndarray, y: np.ndarray, value: float, about: float, of: str) -> Claim:
    """Return the claim that the logarithm of y has a slope over that of x."""
    expected = f"a slope of {value:g} ± {about:g} of {of}"
    known = np.isfinite(y) & (y > 0)
    if known.sum() < 2:
        return unmeasured(text, expected, "fewer than two decays get that far")
    slope = float(np.polyfit(np.log(x[known]), np.log(y[known]), 1)[0])
    return Claim(text, expected, f"{slope:.4f}", abs(slope - value) <= about, {"slope": slope})
