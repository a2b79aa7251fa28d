"""Norm against sharpness (Matveev et al. 2025): teachers, a diagonal network, the figure `NormAndSharpness`, claims."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
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
from flowsim.report.panels import INK, Curve, Guide, Key, Panel, abscissae, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import THRESHOLD, shade
from flowsim.report.sweeps import runs
from flowsim.report.sweeps.intervals import Interval, quartiles
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.theory import Claim, unmeasured

TEACHER, DRAW = "data.nonzero", "data.draw"
RECORDED = ("test_risk", "squared_norm")
Runs = Float[np.ndarray, "draws rates"]


class Teacher(DataSource):
    """Standard Gaussian inputs, and labels ⟨w*, x⟩ without noise, where `nonzero` entries of w* are ±1/√nonzero.

    ‖w*‖ = 1, so that the regressor zero has a test risk of one. Teachers of one draw share their inputs.
    """

    samples: int = Field(default=6, ge=1)
    """n."""
    features: int = Field(default=40, ge=1)
    """d, of one sample."""
    nonzero: int = Field(default=1, ge=1)
    """The number of features that the teacher uses, at most d."""
    test_samples: int = Field(default=2000, ge=1)
    """Further samples, on which the test risk is measured."""
    draw: int = Field(default=0, ge=0)
    """Which of the independent data sets of a seed."""

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that a teacher uses more features than there are."""
        if self.nonzero > self.features:
            yield validation_error(
                found=f"{self.nonzero}",
                expected=f"at most {self.features}, the number of features",
                write=f"nonzero: {self.features}",
                at=("nonzero",),
            )

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Return the samples, and those that training does not see."""
        rng = rng.spawn(self.draw + 1)[-1]
        X = rng.standard_normal((self.samples + self.test_samples, self.features))
        teacher = rng.choice([-1.0, 1.0], self.features) * (np.arange(self.features) < self.nonzero)
        y = X @ (teacher / np.linalg.norm(teacher))
        return Data((X[: self.samples], y[: self.samples]), (X[self.samples :], y[self.samples :]))

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
    """f(x) = ⟨u⊙v, x⟩ from u = scale·(1, …, 1) and v = 0 on.

    Where the n samples are fitted, S = (2/n)·λ_max(X diag(u² + v²) Xᵀ). Of a regressor β = u⊙v both that and
    ‖u‖² + ‖v‖² are least for |u| = |v|, where the latter is 2‖β‖₁.
    """

    first: Float[Array, " d"]
    last: Float[Array, " d"]

    def __init__(self, in_size: int, scale: _Scale = 0.01):
        self.first = scale * jnp.ones(in_size)
        self.last = jnp.zeros(in_size)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the prediction for one sample, a number."""
        return (self.first * self.last) @ x


@dataclass(frozen=True)
class Limits:
    """Where descents end, of all draws with a teacher of so many `nonzero` entries: one row for each draw, by η.

    `ratio` is η/η_c, with η_c = 2/S at the limit of the flow of the draw. `norm` ‖W‖², `sharpness` S and `test_risk`
    are in parts of those of the flow, and NaN where descent did not converge.
    """

    nonzero: int
    ratio: Runs
    norm: Runs
    sharpness: Runs
    test_risk: Runs

    def of_draws(self, draws: slice) -> "Limits":
        """Return the limits of some of the draws."""
        return Limits(self.nonzero, *(getattr(self, name)[draws] for name in _NUMBERS))

    @property
    def width(self) -> float:
        """By how much log η differs from one learning rate to the next."""
        return float(np.nanmedian(np.diff(np.log(self.ratio))))

    @property
    def edge(self) -> Runs:
        """ηS/2 at the limit: one at the edge of stability."""
        return self.ratio * self.sharpness

    @property
    def converged(self) -> np.ndarray:
        """Which descents converged."""
        return np.isfinite(self.norm)

    def where_least(
        self, chosen: Runs, values: Runs, *, among: np.ndarray | bool = True
    ) -> Float[np.ndarray, " draws"]:
        """Return `values` where `chosen` is least `among` the runs that converged, NaN for a draw without such runs."""
        allowed = self.converged & among
        place = np.where(allowed, chosen, np.inf).argmin(axis=1)
        return np.where(allowed.any(axis=1), np.take_along_axis(values, place[:, None], axis=1)[:, 0], np.nan)

    def course(self, values: Runs, *, share: float = 0.75) -> tuple[np.ndarray, Interval]:
        """Return the η/η_c of bins, and median and quartiles of the converged runs in each.

        The bins are as wide as learning rates are apart, and η_c is between two. Those to which half of the draws, or
        more, have no learning rate are left out, and those where less than this `share` of the runs converged: the rest
        would be a choice of draws.
        """
        width = self.width
        bins = np.floor(np.log(self.ratio) / width).ravel()
        numbers = np.unique(bins[np.isfinite(bins)])
        inside = bins == numbers[:, None]
        converged = inside & np.isfinite(values).ravel()
        enough = inside.sum(1) > len(values) / 2
        shown = enough & (converged.sum(1) >= share * inside.sum(1))
        found = np.where(converged, values.ravel(), np.nan)[shown]
        return np.exp((numbers[shown] + 0.5) * width), quartiles(found)


_NUMBERS = tuple(field.name for field in fields(Limits) if field.name != "nonzero")


def limits_of(sweep: xarray.Dataset) -> list[Limits]:
    """Return the limits of the descents of a sweep over teachers and draws, from the sparsest teacher on."""
    (flow,) = runs.flows(sweep)
    descents = runs.descents(sweep)
    rates = xarray.DataArray([run.learning_rate for run in descents], dims="rate")

    def at_end(name: str) -> xarray.DataArray:
        ends = [
            runs.final(sweep, run, name).where(runs.settled(sweep, run) | runs.as_asked(sweep, run)) for run in descents
        ]
        return xarray.concat(ends, dim="rate")

    of_flow = {name: runs.final(sweep, flow, name) for name in ("squared_norm", "sharpness", "test_risk")}
    found = {
        "ratio": rates * of_flow["sharpness"] / 2,
        "norm": at_end("squared_norm") / of_flow["squared_norm"],
        "sharpness": at_end("sharpness") / of_flow["sharpness"],
        "test_risk": at_end("test_risk") / of_flow["test_risk"],
    }
    teacher = TEACHER.rpartition(".")[2]
    by_draw = {name: values.transpose(teacher, ..., "rate").values for name, values in found.items()}
    return [
        Limits(
            int(sweep[teacher][place]),
            **{name: values[place].reshape(-1, len(descents)) for name, values in by_draw.items()},
        )
        for place in np.argsort(sweep[teacher].values)
    ]


@final
class NormAndSharpness(Figure):
    """Norm, sharpness and test risk of the limits of descents over η/η_c, in parts of those of the gradient flow."""

    name = "norm_and_sharpness"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the scenario is not a sweep of flow and descents over teachers that records all it needs."""
        for section, kind in (("data", "Teacher"), ("network", "Diagonal")):
            if (found := getattr(scenario, section).kind) != f"{__name__}:{kind}":
                yield validation_error(
                    found=f"{section} of kind {found}",
                    expected="what the claims are about",
                    write=f"kind: {__name__}:{kind}, or figure: null",
                    at=(section, "kind"),
                )
        sweep = scenario.sweep
        axes = {} if sweep is None else sweep.over
        rates = 0 if sweep is None else sum(len(entry.learning_rates) for entry in sweep.descent)
        if sweep is None or set(axes) != {TEACHER, DRAW} or len(axes[TEACHER]) < 2 or not sweep.flow or rates < 3:
            yield validation_error(
                found=f"no sweep of flow and descents over {TEACHER}, two or more, and {DRAW}",
                expected="one with three learning rates or more, which the figure shows",
                write=f"sweep: {{over: {{{TEACHER}: [1, 40], {DRAW}: [0, 1, 2, 3]}}, descent: [{{learning_rates: "
                "{start: 0.16, stop: 2.0, count: 24, spacing: log}, steps: 6000}]}",
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
        """Return the claims about the two biases, each with the numbers measured."""
        return claims(limits_of(results.required("sweep")))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return four panels over η/η_c: norm, sharpness, and the test risks of sparsest and densest teacher."""
        found = limits_of(results.required("sweep"))
        features = results.scenario["data"]["features"]
        norms, sharpness, risks = [], [], []
        for number, one in enumerate(found):
            look = {"color": shade(number, len(found)), "marker": "os^D"[number % 4]}
            name = f"teacher of {one.nonzero} of {features} features"
            key = Key("teacher", name, name, look | {"markersize": 2.4, "markeredgewidth": 0})
            for curves, values in ((norms, one.norm), (sharpness, one.sharpness), (risks, one.test_risk)):
                places, spread = one.course(values)
                curves.append(Curve(key, places, spread.estimate, spread.low, spread.high))
        places = abscissae((*norms, *sharpness, *risks))
        at, name = (0.1, 0.2, 0.3, 0.5, 1.0, 1.5, 2.0), "learning rate over the critical one"
        ticks = {"at": at, "ticks": tuple(f"{value:g}" for value in at)}
        x = axis_over(rf"{name}, $\eta/\eta_c$", name, places, logarithmic=True, **ticks)
        beyond, look = np.geomspace(1, x.limits[1]), {"color": "0.4", "linewidth": 0.7}
        sharpness.append(Curve(Key(INK, "2/η", r"$2/\eta$", THRESHOLD | {"color": "black"}), beyond, 1 / beyond))
        critical = Key(INK, "η_c", r"$\eta_c = 2/S$ of the flow", look | {"linestyle": ":"})
        guides = (
            Guide(1.0, critical, upright=True, dotted=True, look=look),
            Guide(1.0, look={"color": "0.75", "linewidth": 0.6, "linestyle": "-", "zorder": 1.9}),
        )
        panels = []
        for label, words, curves in (
            (r"$\Vert W \Vert^2$ over the flow's", "‖W‖² over the flow's", norms),
            ("sharpness over the flow's", "sharpness over the flow's", sharpness),
            (f"test risk over the flow's,\n{_features(found[0])}", "test risk over the flow's", risks[:1]),
            (f"test risk over the flow's,\n{_features(found[-1])}", "test risk over the flow's", risks[-1:]),
        ):
            y = axis_over(label, words, ordinates(curves, guides), logarithmic=len(panels) == 2)  # of the sparsest
            curves = (*curves, Curve(critical))  # for the legend
            panels.append(Panel("limits", words.capitalize(), f"{words} over η/η_c", x, y, curves, guides))
        return figure_of(panels, (6.6, 3.9), columns=2, sharex="all")


def claims(found: list[Limits]) -> list[Claim]:
    """Return the claims about limits with several teachers, from the sparsest on.

    That the learning rate goes from small norm to small sharpness, and that neither need generalize best, is the
    paper's; all numbers, and what teachers are learned best by which, are flowsim's.
    """
    every = Limits(0, *(np.concatenate([getattr(one, name) for one in found]) for name in _NUMBERS))
    return [
        _as_flow(every),
        _at_edge(every),
        _trades(every),
        _conflict(every),
        _between(found[-1]),
        _norm_decides(found[0]),
    ]


def _as_flow(limits: Limits, *, near: float = 0.05, share: float = 0.9) -> Claim:
    """Return the claim about descents below η_c."""
    text = "below η_c = 2/S of the flow, descent ends where the flow does"
    expected = f"‖W‖² and S within {near:.0%} of those of the flow in {share:.0%} of the runs"
    below = (limits.ratio < 1) & limits.converged
    if not below.any():
        return unmeasured(text, expected, "no such run converged")
    off = {"‖W‖²": np.abs(limits.norm[below] - 1), "S": np.abs(limits.sharpness[below] - 1)}
    shares = {name: float((one <= near).mean()) for name, one in off.items()}
    measured = "; ".join(
        f"{name} in {shares[name]:.1%}, {np.median(one):.2%} off in the median, {one.max():.2%} at most"
        for name, one in off.items()
    )
    return Claim(text, expected, f"{measured}; {below.sum()} runs", min(shares.values()) >= share, shares)


def _at_edge(limits: Limits, *, near: float = 0.95, share: float = 0.9) -> Claim:
    """Return the claim about descents above η_c: they leave minima with S > 2/η, and stay where S is close to it.

    That S is no larger at a limit is linear stability, and goes for all that converge; that it is no smaller does not.
    """
    text = "above η_c the sharpness of the limit is 2/η"
    expected = f"ηS/2 from {near:g} to 1 in {share:.0%} of the runs"
    edge = limits.edge[(limits.ratio > 1) & limits.converged]
    if not edge.size:
        return unmeasured(text, expected, "no such run converged")
    inside = float(((edge >= near) & (edge <= 1)).mean())
    numbers = {"least": float(edge.min()), "most": float(edge.max()), "share": inside}
    measured = f"in {inside:.1%} of {edge.size}; {edge.min():.4g} to {edge.max():.4g}, median {np.median(edge):.4g}"
    return Claim(text, expected, measured, inside >= share, numbers)


def _trades(limits: Limits, *, share: float = 0.95) -> Claim:
    """Return the claim that above η_c every larger learning rate pays for its sharpness with norm."""
    text = "above η_c, the larger the learning rate, and so the smaller the sharpness, the larger the norm"
    expected = f"from one learning rate of a draw to the next ‖W‖² rises, and S falls, in {share:.0%} of the steps"
    above = (limits.ratio > 1) & limits.converged
    steps = above[:, :-1] & above[:, 1:]
    if not steps.any():
        return unmeasured(text, expected, "no draw has two such runs that converged")
    rises, falls = np.diff(limits.norm, axis=1)[steps] > 0, np.diff(limits.sharpness, axis=1)[steps] < 0
    numbers = {"rises": float(rises.mean()), "falls": float(falls.mean())}
    measured = f"rises in {rises.sum()} and falls in {falls.sum()} of {rises.size}"
    return Claim(text, expected, measured, min(numbers.values()) >= share, numbers)


def _conflict(limits: Limits, *, share: float = 0.9) -> Claim:
    """Return the claim that no learning rate has both least norm and least sharpness."""
    text = "least norm and least sharpness are at opposite ends"
    expected = f"‖W‖² least below η_c, and S at the largest learning rate that converges, in {share:.0%} of the draws"
    ratio, norm, sharpness = limits.ratio, limits.norm, limits.sharpness
    largest = limits.where_least(-ratio, ratio)
    reaches = largest > 1
    if not reaches.any():
        return unmeasured(text, expected, "no draw has a run that converged above η_c")
    apart = (limits.where_least(norm, ratio) < 1) & (limits.where_least(sharpness, ratio) == largest)
    of_norm, of_sharpness = (float(np.median(limits.where_least(sharpness, one)[reaches])) for one in (norm, sharpness))
    numbers = {"share": float(apart[reaches].mean()), "norm": of_norm, "sharpness": of_sharpness}
    measured = (
        f"in {apart[reaches].sum()} of {reaches.sum()}; where S is least it is {of_sharpness:.3g} of that of the flow, "
        f"and ‖W‖² {of_norm:.3g}, in the median"
    )
    return Claim(text, expected, measured, numbers["share"] >= share, numbers)


def _between(dense: Limits, *, better: float = 0.02) -> Claim:
    """Return the claim about a dense teacher; where its test risk is least is found from every other draw alone."""
    text = f"neither bias alone generalizes best: with {_features(dense)} the test risk is least in between"
    expected = (
        f"at the η/η_c above 1 that is best in half of the draws, median over the others: {better:.0%} or more below "
        "that of the flow, and as much below that of the flattest limit of the draw"
    )
    chosen, others = dense.of_draws(slice(0, None, 2)), dense.of_draws(slice(1, None, 2))
    places, risk = chosen.course(chosen.test_risk)
    above = places > 1
    if not above.any():
        return unmeasured(text, expected, "too few runs converged above η_c")
    at = float(places[above][np.argmin(risk.estimate[above])])
    away = np.abs(np.log(others.ratio / at))
    found = others.where_least(away, others.test_risk, among=away <= others.width / 2)
    known = np.isfinite(found)
    if known.sum() < 2:
        return unmeasured(text, expected, "too few runs converged there")
    shares = {"flow": found, "flattest": found / others.where_least(others.sharpness, others.test_risk)}
    numbers = {name: float(np.median(one[known])) for name, one in shares.items()} | {"at": at}
    measured = f"at {at:.3g}: " + ", ".join(
        f"{numbers[name]:.3f} of that of the {name}, lower in {(one[known] < 1).sum()} of {known.sum()}"
        for name, one in shares.items()
    )
    holds = max(numbers["flow"], numbers["flattest"]) <= 1 - better
    return Claim(text, expected, measured, holds, numbers)


def _features(limits: Limits) -> str:
    return "1 feature" if limits.nonzero == 1 else f"{limits.nonzero} features"


def _norm_decides(sparse: Limits, *, share: float = 0.75, rises: float = 2.0) -> Claim:
    """Return the claim that a sparse teacher, whose regressor has a small ‖·‖₁, is learned best by the least norm."""
    text = f"with {_features(sparse)} the norm decides: above η_c the test risk rises with η"
    expected = (
        "from the largest learning rate below η_c to the largest that converges it rises, in "
        f"{share:.0%} of the draws, and by a factor of {rises:g} in the median"
    )
    ratio, risk = sparse.ratio, sparse.test_risk
    end = sparse.where_least(-ratio, risk, among=ratio > 1)
    factors = end / sparse.where_least(-ratio, risk, among=ratio < 1)
    factors = factors[np.isfinite(factors)]
    if factors.size < 2:
        return unmeasured(text, expected, "too few draws converge on both sides of η_c")
    low, middle, high = np.quantile(factors, (0.25, 0.5, 0.75))
    numbers = {"share": float((factors > 1).mean()), "factor": float(middle)}
    measured = (
        f"rises in {(factors > 1).sum()} of {factors.size}, {middle:.3g} times, quartiles {low:.3g} and {high:.3g}"
    )
    return Claim(text, expected, measured, numbers["share"] >= share and middle >= rises, numbers)
