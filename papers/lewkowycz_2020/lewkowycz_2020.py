"""The catapult of two linear layers (Lewkowycz et al. 2020): the model, its recursion, the figure `Phases`, claims."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, final

import equinox as eqx
import jax
import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field
from pydantic_core import PydanticCustomError

from flowsim.columns import place_of, read_runs
from flowsim.data import Data, DataSource
from flowsim.dynamics import Outcome
from flowsim.kinds import validation_error
from flowsim.report.panels import Axis, Curve, Guide, Key, Panel
from flowsim.report.render_paper import figure_of
from flowsim.report.style import shade
from flowsim.report.sweeps import runs
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.theory import Claim, mark_outside_sweep, unmeasured

LAZY_ENDS, DIVERGENT_BEGINS = 2.0, 4.0
"""The ηS(0) at which the phases change at infinite width (Lewkowycz et al. 2020)."""


class OneSample(DataSource):
    """One sample x = 1 with label 0: the risk of a network is f(1)², twice the ½f² of the paper."""

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Return X = (1), (1, 1), and y = (0), (1,)."""
        return Data((np.ones((1, 1)), np.zeros(1)))

    def dimensions(self) -> tuple[int, int]:
        """Return that there is one number and one label."""
        return 1, 1

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return samples, inputs and outputs."""
        return 1, 1, 1


_Width = Annotated[int, Field(description="Width n of the hidden layer.")]
_Scale = Annotated[float, Field(description="Standard deviation of every weight at the start.")]


class TwoLayers(eqx.Module):
    """f(x) = vᵀUx/√n with `width` n, entries of U (n, d) and v (n,) drawn from N(0, scale²).

    The kernel of one sample x = 1, λ = (‖U‖² + ‖v‖²)/n, is about 2·scale², and f about scale², at any width: at
    scale 0.5 the sharpness of f², λ + √(λ² + 12f²/n), begins at about one. Raises `ValueError` for a width below one.
    """

    first: Float[Array, "n d"]
    last: Float[Array, " n"]

    def __init__(self, in_size: int, width: _Width = 1024, scale: _Scale = 0.5, *, key: Array):
        if width < 1:
            raise ValueError(f"width is {width}: expected one or more")
        one, two = jax.random.split(key)
        self.first = scale * jax.random.normal(one, (width, in_size))
        self.last = scale * jax.random.normal(two, (width,))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the prediction for one sample, a number."""
        return self.last @ (self.first @ x) / self.last.size**0.5


Numbers = Float[np.ndarray, "..."]


class Start(NamedTuple):
    """The starts of some descents on R = f²: `product` is 2ηλ, which is ηS where f = 0, and `move` is φ² = 4η²f²/n."""

    product: Numbers
    move: Numbers

    @classmethod
    def of(cls, risk: Numbers, gradient_norm: Numbers, width: Numbers | int, learning_rate: Numbers | float) -> "Start":
        """Return the starts of descents from what is stored of them, as R = f² and ‖∇R‖² = 4f²λ."""
        product = learning_rate * gradient_norm**2 / (2 * risk)
        return cls(product, np.broadcast_to(4 * learning_rate**2 * risk / width, product.shape))


class End(NamedTuple):
    """Where descents are after some steps, in parts of where they began: `kernel` is λ/λ₀, and `peak` the largest R/R₀.

    `kernel` is NaN and `peak` infinite for those that diverged.
    """

    kernel: Numbers
    peak: Numbers

    @property
    def diverged(self) -> np.ndarray:
        """Which descents diverged."""
        return np.isnan(self.kernel)


def ends(start: Start, steps: int | np.ndarray) -> End:
    """Return where descents are after so many `steps`, one number for all or one for each.

    With a = 2ηλ and φ² = 4η²f²/n, a step is φ' = φ(1 − a + φ²), a' = a + φ²(a − 4): the exact recursion of Lewkowycz et
    al. (2020), f' = f(1 − ηλ + η²f²/n), λ' = λ + (ηf²/n)(ηλ − 4) for ½f², at their η, twice ours.
    """
    a, phi = np.array(start.product, float), np.sqrt(start.move)
    largest, lost = np.abs(phi), np.zeros(a.shape, bool)
    for step in range(int(np.max(steps, initial=0))):
        moving = (step < np.asarray(steps)) & ~lost
        a, phi = (
            np.where(moving, a + phi**2 * (a - 4), a),
            np.where(moving, phi * (1 - a + phi**2), phi),
        )
        lost |= np.abs(phi) > 1e6  # φ² can only fall where ηλ < 2, and grows like its cube where it is above 4
        largest = np.maximum(largest, np.abs(phi))
    return End(np.where(lost, np.nan, a / start.product), np.where(lost, np.inf, largest**2 / start.move))


@final
class Phases(Figure):
    """Lazy, catapult and divergent: sharpness after training and largest risk over ηS(0) (Lewkowycz et al. 2020).

    Points are the descents of a sweep over the width and those from one start, beside the exact recursion.
    """

    name = "phases"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the scenario is not a sweep of two layers on one sample over their width, with descents."""
        for section, kind in (("data", "OneSample"), ("network", "TwoLayers")):
            if (found := getattr(scenario, section).kind) != f"{__name__}:{kind}":
                yield validation_error(
                    found=f"{section} of kind {found}",
                    expected="what the recursion is about",
                    write=f"kind: {__name__}:{kind}, or figure: null",
                    at=(section, "kind"),
                )
        if not scenario.squares:
            wording = {"expected": "squared_error, which the recursion is about", "write": "loss: squared_error"}
            yield validation_error(found=f"the loss {scenario.loss.kind}", **wording, at=("loss",))
        axis = "network.width"
        if scenario.sweep is None or set(scenario.sweep.over) != {axis} or not scenario.sweep.descent:
            yield validation_error(
                found="no sweep over the width alone with gradient descent",
                expected="one, which the figure shows",
                write=f"sweep: {{over: {{{axis}: [64, 1024]}}, descent: [{{learning_rates: [1, 3], steps: 4000}}]}}",
                at=("sweep",) if scenario.sweep else ("figure",),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return the paper's claims on the three phases, each with the numbers measured."""
        single = _single(results)
        of_single = mark_outside_sweep([peak_claim(single)] if single else [])
        return [*phase_claims(descents_of(results.required("sweep"))), *of_single]

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return two panels over ηS(0): the sharpness at the end, and the largest risk on the way."""
        descents, single = descents_of(results.required("sweep")), _single(results)
        last, highest_peak = 4.5, 1e6
        upper, lower = [], []
        widths = np.unique(descents.width)
        for number, width in enumerate(widths):  # those that did not diverge
            part = descents.select((descents.width == width) & ~descents.diverged)
            look = {"color": shade(number, len(widths)), "marker": "s^Dv"[number % 4], "zorder": 2.6}
            look |= {"markersize": 2.2, "markeredgewidth": 0}
            key = Key("width", f"n = {width:g}", rf"$n = {width:g}$", look)
            upper.append(Curve(key, part.product, part.kept, line=False))
        if single is not None:
            products = np.linspace(0.02, last, 1200)
            exact = single.recursion_ends(products, steps=4000)
            line = {"color": "0.35", "linewidth": 0.7, "zorder": 2.3}
            dots = {"color": "black", "marker": "o", "markersize": 3.2, "zorder": 3.2}
            recursion = Key("recursion", "exact recursion", "exact recursion", line)
            start = Key("start", f"one start, n = {single.width}", rf"one start, $n = {single.width}$", dots)
            upper.append(Curve(recursion, products, exact.kernel))
            upper.append(Curve(start, single.product, single.kept, line=False))
            lost = np.isnan(single.kept)  # shown at half of the highest peak
            lower.append(Curve(recursion, products, np.where(exact.diverged, np.nan, exact.peak)))
            lower.append(Curve(start, single.product[~lost], single.peak[~lost], line=False))
            peaks = np.full(lost.sum(), highest_peak / 2)
            lower.append(Curve(start, single.product[lost], peaks, line=False, named=False, look={"marker": "^"}))
        guides = [Guide(end, upright=True, look={"color": "0.4"}) for end in (LAZY_ENDS, DIVERGENT_BEGINS)]
        x, panels = Axis(r"$\eta S(0)$", "ηS(0)", (0.0, last)), []
        for label, words, limits, curves in (
            ("sharpness at the end, $S/S(0)$", "sharpness at the end", (1e-3, 3.0), upper),
            ("largest risk, $R/R(0)$", "largest risk", (0.3, highest_peak), lower),
        ):
            y = Axis(label, words, limits, limits, logarithmic=True)
            panels.append(Panel("phases", words.capitalize(), f"{words} over ηS(0)", x, y, curves, guides))
        figure = figure_of(panels, (3.3, 3.9), sharex="col")
        for name, place in {"lazy": 1.0, "catapult": 3.0, "divergent": 4.25}.items():
            figure.axes[0].text(place, 1.35, name, ha="center", va="bottom", fontsize=7)
        return figure


class Descents(NamedTuple):
    """Some descents, one entry for each: ηS at the start, S at the end over S at the start, and the recursion beside.

    `product` is ηS(0), `kept` S/S(0), NaN for those that diverged, `width` is n, `settled` tells which came to rest,
    or down to the risk asked for, and `exact` is the end of the recursion from the same `start` after the same number
    of steps.
    """

    product: Numbers
    kept: Numbers
    width: Numbers
    settled: np.ndarray
    start: Start
    exact: End

    @property
    def diverged(self) -> np.ndarray:
        """Which descents diverged."""
        return np.isnan(self.kept)

    @property
    def ends(self) -> Numbers:
        """λ/λ₀ at the end, where S is 2λ, as f is zero there."""
        return self.kept * self.product / self.start.product

    def select(self, chosen: np.ndarray) -> "Descents":
        """Return the chosen ones alone."""
        return jax.tree.map(lambda values: values[chosen], self)


def descents_of(sweep: xarray.Dataset) -> Descents:
    """Return the descents of a sweep over the width, of all widths, repetitions and learning rates."""
    columns = defaultdict(list)
    for run in runs.descents(sweep):
        asked = runs.asked(sweep, run)
        table = {
            "product": (run.learning_rate or np.nan) * sweep["initial_sharpness"],
            "kept": runs.final(sweep, run, "sharpness") / sweep["initial_sharpness"],
            "width": sweep["width"],
            "settled": runs.settled(sweep, run) | runs.as_asked(sweep, run),
            "steps": sweep["steps"].isel(run=place_of(sweep, run)),
            "risk": sweep["initial_risk"],
            "gradient_norm": sweep["initial_gradient_norm"],
            "learning_rate": xarray.full_like(sweep["initial_risk"], run.learning_rate),
        }
        for name, values in table.items():
            columns[name].append(values.broadcast_like(asked).transpose(*asked.dims).values[asked.values])
    found = {name: np.concatenate(parts) for name, parts in columns.items()}
    start = Start.of(found["risk"], found["gradient_norm"], found["width"], found["learning_rate"])
    exact = ends(start, found["steps"].astype(int))
    return Descents(found["product"], found["kept"], found["width"], found["settled"], start, exact)


@dataclass(frozen=True)
class Single:
    """The descents from one initialization that are recorded step by step.

    `product` is ηS(0), `kept` S/S(0) at the end, and `peak` the largest of the recorded risks over the first, NaN and
    infinite for those that diverged. `risk`, `gradient_norm` and `sharpness` are those of the start.
    """

    product: Numbers
    kept: Numbers
    peak: Numbers
    width: int
    risk: float
    gradient_norm: float
    sharpness: float

    def recursion_ends(self, products: Numbers, steps: int) -> End:
        """Return the ends of the recursion from this start, at the learning rates that have these ηS(0)."""
        risk, gradient_norm = np.array(self.risk), np.array(self.gradient_norm)
        return ends(Start.of(risk, gradient_norm, self.width, products / self.sharpness), steps)


def single_of(trajectories: xarray.Dataset, width: int) -> Single:
    """Return the descents beside one flow, from the smallest learning rate to the largest."""
    found = [run for run in read_runs(trajectories).by_rate if run.run.is_descent]
    first = {name: float(found[0].along(name)[0]) for name in ("risk", "gradient_norm", "sharpness")}
    lost = np.array([run.outcome is Outcome.DIVERGED for run in found])
    kept = np.array([run.number("final_sharpness") for run in found]) / first["sharpness"]
    peak = np.array([np.nanmax(run.along("risk")) / run.along("risk")[0] for run in found])
    return Single(
        product=np.array([run.run.learning_rate for run in found]) * first["sharpness"],
        kept=np.where(lost, np.nan, kept),
        peak=np.where(lost, np.inf, peak),
        width=width,
        **first,
    )


def _single(results: Results) -> Single | None:
    """Return the descents from one start, `None` where there are none."""
    found = results.trajectories
    if found is None or not results.scenario["descent"]["learning_rates"]:
        return None
    return single_of(found, results.scenario["network"]["width"])


def phase_claims(descents: Descents, *, about: float = 0.05) -> list[Claim]:
    """Return the claims about all descents of a sweep over the width.

    The boundaries of the phases are those of infinite width: at finite width S(0) is λ + √(λ² + 12f²/n) in place of 2λ,
    and a run within the part `about` of a boundary may be of the other phase.
    """
    return [_recursion(descents), _lazy(descents), _catapult(descents, about), _divergent(descents, about)]


def _recursion(descents: Descents, *, tolerance: float = 1e-6) -> Claim:
    """Compare λ at the ends, which is S/2 there, with that of the recursion.

    The `tolerance` is for rounding, which grows as the risk does, to 10⁶ times what it was, and for f² ≠ 0 at the end.
    """
    text = "descent ends where the exact recursion from the same start does"
    expected = f"λ within {tolerance:g} of it in every run that came to rest, and the same runs diverge"
    resting = descents.select(descents.settled & ~descents.exact.diverged)
    other = int((descents.diverged != descents.exact.diverged).sum())
    if not len(resting.kept):
        return unmeasured(text, expected, "no run came to rest")
    apart = float(np.abs(resting.ends / resting.exact.kernel - 1).max())
    measured = f"at most {apart:.2g} apart in {len(resting.kept)} runs; {other} differ in whether they diverge"
    numbers = {"apart": apart, "resting": len(resting.kept), "other_outcome": other}
    return Claim(text, expected, measured, apart <= tolerance and other == 0, numbers)


def _lazy(descents: Descents, *, kept: float = 0.9) -> Claim:
    """Return the claim that S stays in the lazy phase, up to a fall by some 1/√n, for which `kept` leaves room."""
    width = descents.width.max()
    text = f"lazy, ηS(0) < {LAZY_ENDS:g}: the sharpness stays as it was, at n = {width:g}"
    expected = f"S/S(0) at least {kept:g}"
    lazy = descents.select((descents.product < LAZY_ENDS) & (descents.width == width))
    if not len(lazy.kept):
        return unmeasured(text, expected, "no such learning rate")
    least = float(np.nan_to_num(lazy.kept).min())
    measured = f"least {least:.3g} in {len(lazy.kept)} runs"
    return Claim(text, expected, measured, least >= kept, {"least": least}, of_absence=True)


def _catapult(descents: Descents, about: float) -> Claim:
    """Return the claim about descents clearly between the two boundaries."""
    text = f"catapult, {LAZY_ENDS:g} < ηS(0) < {DIVERGENT_BEGINS:g}: descent ends flatter, below its own 2/η"
    expected = "S/S(0) below one, and ηS/2 below one, in every run"
    low, high = LAZY_ENDS * (1 + about), DIVERGENT_BEGINS * (1 - about)
    inside = descents.select((descents.product > low) & (descents.product < high))
    if not len(inside.kept):
        return unmeasured(text, expected, "no such learning rate")
    kept = np.where(inside.diverged, np.inf, inside.kept)
    largest, edge = float(kept.max()), float((kept * inside.product / 2).max())
    measured = f"S/S(0) at most {largest:.3g}, median {np.median(kept):.3g}; ηS/2 at most {edge:.3g}"
    numbers = {"largest": largest, "median": float(np.median(kept)), "largest_over_threshold": edge}
    return Claim(text, expected, measured, largest < 1 and edge < 1, numbers)


def _divergent(descents: Descents, about: float) -> Claim:
    """Return the claim on the ηS(0) beyond which runs diverge; for 2ηλ in its place, the boundary 4 is exact."""
    text = f"divergent: runs diverge beyond ηS(0) = {DIVERGENT_BEGINS:g}, and none before"
    expected = f"the boundary within {about:.0%} of {DIVERGENT_BEGINS:g}, and for 2ηλ(0) at {DIVERGENT_BEGINS:g}"
    lost = descents.diverged
    if lost.all() or not lost.any():
        return unmeasured(text, expected, "the learning rates do not reach across the boundary")
    last, first = float(descents.product[~lost].max()), float(descents.product[lost].min())
    kernel = descents.start.product
    exact = (kernel[~lost].max() <= DIVERGENT_BEGINS) & (kernel[lost].min() >= DIVERGENT_BEGINS)
    near = max(last / DIVERGENT_BEGINS - 1, 1 - first / DIVERGENT_BEGINS) <= about
    measured = (
        f"largest ηS(0) that stays {last:.4g}, least that diverges {first:.4g}; 2ηλ(0): {kernel[~lost].max():.4g} and "
        f"{kernel[lost].min():.4g}"
    )
    numbers = {
        "last_bounded": last,
        "first_divergent": first,
        "last_bounded_kernel": float(kernel[~lost].max()),
        "first_divergent_kernel": float(kernel[lost].min()),
    }
    return Claim(text, expected, measured, bool(near and exact), numbers)


def peak_claim(single: Single) -> Claim:
    """Return the claim about the risk on the way: it rises in the catapult phase alone."""
    text = "the risk rises on the way in the catapult phase, and not in the lazy one"
    expected = "largest R/R(0): one below ηS(0) = 2, more above"
    lazy, beyond = single.product < LAZY_ENDS, (single.product > LAZY_ENDS) & ~np.isnan(single.kept)
    if not (lazy.any() and beyond.any()):
        return unmeasured(text, expected, "no such learning rates")
    below, above = float(single.peak[lazy].max()), float(single.peak[beyond].min())
    measured = f"lazy at most {below:.3g}; catapult {above:.3g} to {single.peak[beyond].max():.3g}"
    return Claim(text, expected, measured, below <= 1 < above, {"lazy": below, "catapult_least": above})
