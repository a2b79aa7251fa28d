"""What the phase diagram is said to show, measured where descents end and where the exact recursion does."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...report.sweeps import runs
from ...results.recorded import RecordedRun, recorded
from ...results.runs import Run, place_of
from ...theory import Claim, unmeasured
from .model import End, Start, ends

LAZY_ENDS, DIVERGENT_BEGINS = 2.0, 4.0
"""The ηS(0) at which the phases change at infinite width (Lewkowycz et al. 2020)."""
Numbers = Float[np.ndarray, " runs"]


@dataclass(frozen=True)
class Descents:
    """Some descents, one entry for each: ηS at the start, S at the end over S at the start, and the recursion beside.

    `product` is ηS(0), `kept` S/S(0), NaN for those that diverged, `width` is n, `settled` tells which came to rest,
    or down to the risk asked for, and `exact` is the end of the recursion from the same `start` after the same number
    of steps.
    """

    product: Numbers
    kept: Numbers
    width: Numbers
    settled: Numbers
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
        start = Start(self.start.product[chosen], self.start.move[chosen])
        exact = End(self.exact.kernel[chosen], self.exact.peak[chosen])
        return Descents(self.product[chosen], self.kept[chosen], self.width[chosen], self.settled[chosen], start, exact)


def descents_of(sweep: xarray.Dataset) -> Descents:
    """Return the descents of a sweep over the width, of all widths, repetitions and learning rates."""
    parts = [_part(sweep, run) for run in runs.descents(sweep)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    start = Start(joined["start"], joined["move"])
    exact = ends(start, joined["steps"].astype(int))
    return Descents(joined["product"], joined["kept"], joined["width"], joined["settled"] > 0, start, exact)


def _part(sweep: xarray.Dataset, run: Run) -> dict[str, np.ndarray]:
    """Return numbers of one learning rate from every start from which it was asked for."""
    chosen = runs.asked(sweep, run).values
    rate = run.learning_rate or np.nan
    start = start_of(sweep, rate)
    steps = sweep["steps"].isel(run=place_of(sweep, run))
    width = sweep["width"].broadcast_like(sweep["initial_risk"])
    table = {
        "product": rate * sweep["initial_sharpness"],
        "kept": runs.final(sweep, run, "sharpness") / sweep["initial_sharpness"],
        "width": width,
        "settled": (runs.settled(sweep, run) | runs.as_asked(sweep, run)).astype(float),
        "steps": steps,
    }
    dims = sweep["initial_risk"].dims
    values = {name: array.transpose(*dims).values for name, array in table.items()}
    return {name: array[chosen] for name, array in {**values, "start": start.product, "move": start.move}.items()}


def start_of(sweep: xarray.Dataset, learning_rate: float) -> Start:
    """Return the starts of a sweep over (width, repetition) as descents with one learning rate see them."""
    width = sweep["width"].broadcast_like(sweep["initial_risk"]).transpose(*sweep["initial_risk"].dims).values
    return Start.of(sweep["initial_risk"].values, sweep["initial_gradient_norm"].values, width, learning_rate)


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
    found = [run for run in recorded(trajectories).by_rate if run.run.is_descent]
    first = {name: float(found[0].along(name)[0]) for name in ("risk", "gradient_norm", "sharpness")}
    lost = np.array([run.outcome.name == "DIVERGED" for run in found])
    rates = np.array([run.run.learning_rate for run in found])
    kept = np.array([run.number("final_sharpness") for run in found]) / first["sharpness"]
    peak = np.array([_peak(run) for run in found])
    return Single(
        product=rates * first["sharpness"],
        kept=np.where(lost, np.nan, kept),
        peak=np.where(lost, np.inf, peak),
        width=width,
        **first,
    )


def _peak(run: RecordedRun) -> float:
    risk = run.along("risk")
    return float(np.nanmax(risk) / risk[0])


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
