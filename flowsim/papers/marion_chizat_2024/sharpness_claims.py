"""Claims of Figures 1b, 4b, 6 and 7: how sharp the minima are that descent and flow find, and how they generalize."""

import numpy as np
import xarray

from ...columns import FLOW, Run
from ...report.sweeps import runs
from ...report.sweeps.intervals import median
from ...theory import Claim, listed, unmeasured
from .measures import drawn_rates, gaps, has_learned, has_test_risk, regress, regressed_run, upper_bound


def sharpness_claims(
    dataset: xarray.Dataset, *, spread: float = 0.05, slack: float = 0.01, close: float = 2.0
) -> list[Claim]:
    """Return the claims about small scales, about the plateau at 2/η, and about the limit of the flow.

    The paper gives no tolerances; these are flowsim's. Medians within `spread` of each other count as equal. Runs end a
    little before their limit, where they may exceed a bound by `slack`. Of a nonlinear network the paper says less: its
    runs are not known to have reached a minimum, and it is to be within a factor `close` of the bounds, which are those
    of the linear one.
    """
    shown = drawn_rates(dataset)
    plateaus = [_plateau(dataset, run) for run in shown]
    if runs.progress_measure(dataset) == "risk":
        small = [_below_threshold(dataset, shown), _between_bounds(dataset, shown, close - 1)]
        return [*small, *plateaus, _flow_beyond(dataset, shown)]
    small = [
        _independence(dataset, shown, spread),
        _between_bounds(dataset, shown, slack),
        _flow_agrees(dataset, shown, spread),
    ]
    large = [_never_beyond(dataset, shown, slack), *plateaus, _trained_from_above(dataset, shown)]
    return [*small, *large, _flow_beyond(dataset, shown)]


def _ends(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Return the sharpness at the end of the runs that learned."""
    return runs.final(dataset, run, "sharpness").where(has_learned(dataset, run))


def _median_end(start: xarray.Dataset, run: Run) -> float:
    """Return the median sharpness at the end of the runs that learned from one scale."""
    return float(median(_ends(start, run)))


def _smallest_scale_medians(dataset: xarray.Dataset, shown: tuple[Run, ...], spread: float) -> dict[str, float]:
    """Return the median sharpness at the smallest scale, of the initializations from which all methods came to an end.

    Learning rates for which 2/η is not above the limit of the flow are left out: they cannot follow it.
    """
    start = dataset.isel(scale=0)
    limit = _median_end(start, runs.FLOW) if runs.flows(dataset) else 0.0
    free = [run for run in shown if run.threshold > (1 + spread) * limit or np.isnan(limit)]
    ends = {run.name: _ends(start, run).values for run in free}
    common = np.all([np.isfinite(values) for values in ends.values()], axis=0)
    return {name: float(np.median(values[common])) for name, values in ends.items()} if common.any() else {}


def _independence(dataset: xarray.Dataset, shown: tuple[Run, ...], spread: float) -> Claim:
    text = "at the smallest scale the sharpness after training does not depend on the learning rate"
    expected = f"medians from the same initializations, for 2/η above the flow's limit: within {spread:.0%}"
    medians = _smallest_scale_medians(dataset, shown, spread)
    if len(medians) < 2:
        return unmeasured(text, expected, "fewer than two learning rates to compare")
    found = max(medians.values()) / min(medians.values()) - 1
    return Claim(text, expected, f"{listed(medians, '.4g')}; spread {found:.2%}", found <= spread, medians)


def _between_bounds(dataset: xarray.Dataset, shown: tuple[Run, ...], slack: float) -> Claim:
    lower, upper = float(dataset["sharpness_lower_bound"][0]), upper_bound(dataset)
    text = "at the smallest scale it lies between the dotted lines" if upper is not None else "it lies above 2La"
    top = np.inf if upper is None else float(upper[0])
    start = dataset.isel(scale=0)
    expected = f"median of every η between {lower:.4g} and {top:.4g}" + (f", up to {slack:.0%}" if slack else "")
    found = {run.name: _median_end(start, run) for run in (*runs.flows(dataset), *shown)}
    found = {name: value for name, value in found.items() if np.isfinite(value)}
    if not found:
        return unmeasured(text, expected, "no run learned")
    # The paper's statement is about descent; the flow is listed for comparison.
    descents = [found[run.name] for run in shown if run.name in found]
    holds = all(lower / (1 + slack) <= value <= top * (1 + slack) for value in descents) if descents else None
    return Claim(text, expected, listed(found, ".4g"), holds, found)


def _below_threshold(dataset: xarray.Dataset, shown: tuple[Run, ...]) -> Claim:
    text, expected = "at the smallest scale the sharpness after training is below 2/η", "median of S/(2/η) below 1"
    start = dataset.isel(scale=0)
    found = {run.name: _median_end(start, run) / run.threshold for run in shown}
    found = {name: value for name, value in found.items() if np.isfinite(value)}
    if not found:
        return unmeasured(text, expected, "every run diverged")
    return Claim(text, expected, listed(found), max(found.values()) < 1, found, of_absence=True)


def _never_beyond(dataset: xarray.Dataset, shown: tuple[Run, ...], slack: float) -> Claim:
    text, expected = "no minimum that descent finds is sharper than 2/η", f"largest S/(2/η) at most {1 + slack:g}"
    found = {m.name: float(_ends(dataset, m).max()) / m.threshold for m in shown}
    found = {name: value for name, value in found.items() if np.isfinite(value)}
    if not found:
        return unmeasured(text, expected, "no run learned")
    return Claim(text, expected, listed(found), max(found.values()) <= 1 + slack, found, of_absence=True)


def _plateau(dataset: xarray.Dataset, run: Run, *, low: float = 0.8, high: float = 1.02) -> Claim:
    """Return the claim about the scales where descent cannot follow the flow, whose limit is sharper than 2/η.

    The paper gives no number for how close to 2/η the plateau is: `low` and `high` are flowsim's. No minimum of descent
    is sharper than 2/η, and `high` leaves room for runs that end a little before their limit.
    """
    text = f"at large scales the sharpness after training plateaus at 2/η = {run.threshold:.4g} ({run.name})"
    expected = f"median of S/(2/η), over the scales where the flow's limit is sharper than 2/η: {low} to {high}"
    ratios = median(_ends(dataset, run)) / run.threshold
    ratios = ratios[_flow_ends_beyond(dataset, run)]
    ratios = ratios[ratios.notnull()]
    if ratios.size == 0:
        return unmeasured(text, expected, "no such scale at which runs learned")
    value = float(ratios.median())
    measured = f"{value:.3g} over {ratios.size} scales ({float(ratios.min()):.3g} to {float(ratios.max()):.3g})"
    numbers = {"median": value, "scales": float(ratios.size), **_of_runs_beyond(dataset, run)}
    if "runs" in numbers:
        measured += f"; {numbers['of_runs']:.3g} over the {numbers['runs']:g} runs whose own flow ends beyond 2/η"
    return Claim(text, expected, measured, low <= value <= high, numbers)


def _of_runs_beyond(dataset: xarray.Dataset, run: Run) -> dict[str, float]:
    """Return the median of S/(2/η) over the runs from initializations whose flow ends beyond 2/η, and their number.

    At large scales the runs that do not diverge are often those that start flat; this choice does not depend on it.
    """
    if not runs.flows(dataset):
        return {}
    ends = _ends(dataset, run).where(_ends(dataset, runs.FLOW) > run.threshold).values
    ends = ends[np.isfinite(ends)]
    return {"of_runs": float(np.median(ends)) / run.threshold, "runs": float(len(ends))} if len(ends) else {}


def _flow_ends_beyond(dataset: xarray.Dataset, run: Run) -> np.ndarray:
    """Return for each scale whether the flow's median limit is sharper than 2/η; without flows, of the larger half."""
    limits = median(_ends(dataset, runs.FLOW)).values if runs.flows(dataset) else np.full(1, np.nan)
    if np.isnan(limits).all():
        return np.arange(dataset.sizes["scale"]) >= dataset.sizes["scale"] / 2
    return limits > run.threshold


def _trained_from_above(dataset: xarray.Dataset, shown: tuple[Run, ...], *, factor: float = 2.0) -> Claim:
    """Return the claim about runs from a sharpness above `factor` times 2/η, which is flowsim's reading of "far"."""
    text = "networks initialized far above 2/η still train"
    expected = f"runs with initial sharpness above {factor:g}·2/η that learn, for every η"
    counts, words = {}, []
    for run in shown:
        above = (dataset["initial_sharpness"] > factor * run.threshold) & runs.asked(dataset, run)
        count, total = int((above & has_learned(dataset, run)).sum()), int(above.sum())
        if total:
            counts[run.name] = count
            words.append(f"{run.name}: {count} of {total}")
    if not counts:
        return unmeasured(text, expected, "no run starts there")
    return Claim(text, expected, ", ".join(words), min(counts.values()) > 0, counts)


def _flow_agrees(dataset: xarray.Dataset, shown: tuple[Run, ...], spread: float) -> Claim:
    text = "at the smallest scale the flow's limit is as sharp as what descent with small steps finds"
    expected = (
        f"median of the flow over that of the smallest η, from the same initializations: within {spread:.0%} of 1"
    )
    if not runs.flows(dataset) or not shown:
        return unmeasured(text, expected, "no flows")
    start = dataset.isel(scale=0)
    limit, end = _ends(start, runs.FLOW), _ends(start, shown[0])
    both = limit.notnull() & end.notnull()
    if not both.any():
        return unmeasured(text, expected, "no initialization from which both came to an end")
    ratio = float(median(limit.where(both)) / median(end.where(both)))
    return Claim(text, expected, f"{ratio:.4f}", abs(ratio - 1) <= spread, {"ratio": ratio})


def _flow_beyond(dataset: xarray.Dataset, shown: tuple[Run, ...]) -> Claim:
    text = "the flow has no plateau: the sharpness of its limit keeps rising with the scale, beyond 2/η"
    expected = "median at the largest scale above that at every other, and above 2/η of the largest η drawn"
    limits = median(_ends(dataset, runs.FLOW)).dropna("scale").values if runs.flows(dataset) else np.empty(0)
    if len(limits) < 2 or not shown:
        return unmeasured(text, expected, "too few flows reached their limit")
    last = float(limits[-1])
    numbers = {f"over 2/η, {run.name}": last / run.threshold for run in shown}
    holds = bool(last >= limits.max()) and last > shown[-1].threshold
    measured = f"{limits[0]:.4g} at the smallest scale, {last:.4g} at the largest; {listed(numbers)}"
    return Claim(text, expected, measured, holds, {"first": float(limits[0]), "last": last, **numbers})


def generalization_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figure 6b: sharper minima generalize worse, after descent and at the flow's limits."""
    flow = [FLOW] if has_test_risk(dataset) else []
    return [_correlation(dataset, run) for run in (regressed_run(dataset), *flow)]


def _correlation(dataset: xarray.Dataset, run: Run, *, level: float = 0.01) -> Claim:
    """Return the claim about one dynamics, at a significance `level` that is stricter than the usual 5 %."""
    text = f"the generalization gap grows with the sharpness ({run.name})"
    expected = f"slope of log gap on log sharpness > 0, one-sided p < {level:g}"
    found = regress(gaps(dataset, run))
    if found is None:
        return unmeasured(text, expected, "too few runs")
    left_out = f", {found.left_out} without a positive gap left out" if found.left_out else ""
    words = f"slope {found.slope:.3g}, R² = {found.r_squared:.3g}, p = {found.p_value:.2g}, {found.count} runs"
    numbers = {"slope": found.slope, "r_squared": found.r_squared, "p_value": found.p_value, "runs": found.count}
    return Claim(text, expected, words + left_out, found.slope > 0 and found.p_value < level, numbers)
