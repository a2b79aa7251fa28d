"""What the figure and its claims measure: where descents ended, beside where the recursion ends from the same start."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...report.sweeps import runs
from ...results.recorded import RecordedRun, recorded
from ...results.runs import Run, place_of
from .recursion import End, Start, ends

WIDTH = "width"
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

    def those(self, chosen: np.ndarray) -> "Descents":
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
    width = sweep[WIDTH].broadcast_like(sweep["initial_risk"])
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
    width = sweep[WIDTH].broadcast_like(sweep["initial_risk"]).transpose(*sweep["initial_risk"].dims).values
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

    def course(self, products: Numbers, steps: int) -> End:
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
