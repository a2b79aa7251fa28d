"""The panels of the figures of Marion and Chizat (2024): of sweeps, and of single runs."""

from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.patheffects import Normal, Stroke

from ...columns import FLOW, GRADIENT_DESCENT, RecordedRun, Run
from ...report.panels import FURTHEST, INK, LABELS, Axis, Curve, Guide, Key, Panel, axis_over, oscillates
from ...report.panels.oscillation import middle_and_range
from ...report.panels.sweep import DIVERGED, MEDIANS, Facet, SweepPanels, axis_along, is_constant, positions
from ...report.style import BOUND, FLOW as FLOW_LOOK, run_look
from ...report.sweeps import runs
from ...report.sweeps.intervals import median, quartiles
from .measures import (
    Points,
    drawn_rates,
    gaps,
    has_test_risk,
    over_edge,
    regress,
    regressed_run,
    upper_bound,
)

# The sharpness has the same axis in all figures of the paper.
SHARPNESS_LIMITS = (0.1, 3e4)
_EDGE = r"$2/\eta$"
_GF = Key("flow", "GF", "GF", FLOW_LOOK)


def squared_distance(dataset: xarray.Dataset) -> Panel:
    """Return panel a of Figures 1 and 4: squared distance after training against the scale, for every run."""
    return _panel(dataset, runs.runs_of(dataset), "squared_distance")


def sharpness(dataset: xarray.Dataset) -> Panel:
    """Return panel b of Figures 1, 4 and 6 and Figure 7: sharpness at initialization and after training, and bounds.

    The lower bound is that of Theorem 2, which is 2La for ‖w*‖ = 1; perceptrons of overdetermined data have the upper
    one 8LΛ of Corollary 2, too. For a nonlinear network these are the bounds of the linear one on the same data.
    """
    shown = runs.flows(dataset) + drawn_rates(dataset)
    panel = _panel(dataset.drop_vars("sharpness_lower_bound"), shown, "sharpness")
    curves, guides = _bounds(dataset)
    # Below twice the highest median are the curves and most of their quartiles.
    medians = [median(dataset["initial_sharpness"])]
    medians += [median(runs.final(dataset, run, "sharpness")) for run in runs.runs_of(dataset)]
    highest = max((float(m.max()) for m in medians if m.notnull().any()), default=0.0)
    limits = (SHARPNESS_LIMITS[0], max(SHARPNESS_LIMITS[1], min(2 * highest, 1e8)))
    return replace(
        panel,
        y=replace(panel.y, log=limits, logarithmic=True),
        curves=(*panel.curves, *curves),
        guides=(*panel.guides, *guides),
        bounds=True,
        edge=_EDGE,
    )


def divergence_probability(dataset: xarray.Dataset) -> Panel:
    """Return Figures 3 and 5: the share of the runs that diverged, against the scale, for every learning rate."""
    return _panel(dataset, runs.descents(dataset), DIVERGED)


def _panel(dataset: xarray.Dataset, shown: tuple[Run, ...], quantity: str) -> Panel:
    """Return the one panel of a sweep over one axis."""
    return SweepPanels((Facet({}, dataset),), shown).panels(quantity)[0]


def _bounds(dataset: xarray.Dataset) -> tuple[list[Curve], list[Guide]]:
    """Return the dotted bounds, with their names: 2La, and 8LΛ where Corollary 2 applies."""
    x, curves, guides = positions(dataset), [], []
    for name, values in ((r"$2La$", dataset["sharpness_lower_bound"].values), (r"$8L\Lambda$", upper_bound(dataset))):
        bound = np.broadcast_to(np.nan if values is None else values, x.shape)
        if is_constant(bound):
            guides.append(Guide(float(bound[0]), label=name, dotted=True))
        elif np.isfinite(bound).any():
            curves.append(Curve(Key(INK, name, name, BOUND), x, bound, named=False))
    return curves, guides


def critical_rates(dataset: xarray.Dataset) -> Panel:
    """Return the squared distance after training against η, a curve for each depth, and 1/(La) dashed.

    Medians are over the runs that did not diverge; where all did, the curve ends.
    """
    depths, rates = dataset["depth"].values, np.array([run.learning_rate for run in runs.descents(dataset)])
    curves, guides = [], []
    for index, depth in enumerate(depths):
        part = dataset.isel(depth=index)
        values = np.stack([runs.final(part, m, "squared_distance").values for m in runs.descents(dataset)])
        colour = matplotlib.colormaps["plasma"](0.8 * index / max(1, len(depths) - 1))
        look = {"color": colour, "marker": "os^DvP"[index % 6], "markeredgecolor": "black", "zorder": 3.0}
        found, band = quartiles(values), {"alpha": 0.22, "zorder": 2.0}
        key = Key(f"depth-{depth}", f"L = {depth}", rf"$L = {depth}$", look)
        curves.append(Curve(key, rates, found.estimate, found.low, found.high, band=band))
        guides.append(Guide(2 / part["sharpness_lower_bound"].item(), key, upright=True))
    if runs.flows(dataset):  # its limit, η → 0, over all depths, to the left of the smallest learning rate
        ends = runs.final(dataset, runs.FLOW, "squared_distance").values.reshape(1, -1)
        distance = float(quartiles(ends).estimate[0])
        key = replace(_GF, label=r"GF ($\eta \to 0$)")
        curves.append(Curve(key, np.array([rates[0] / 1.25, rates[0]]), np.full(2, distance)))
    known = [curve.x[np.isfinite(curve.y)] for curve in curves]
    across = np.concatenate([*known, [guide.value for guide in guides]])
    return Panel(
        "critical-rates",
        "Squared distance after training",
        "squared distance after training against the learning rate",
        axis_over(r"learning rate $\eta$", "learning rate η", across, logarithmic=True),
        # The zero network is at ‖w*‖² = 1; the paper draws −0.01 to 0.21 of the squared distance divided by d = 5.
        Axis(LABELS["squared_distance"], "squared distance", (-0.05, 1.05)),
        tuple(curves),
        tuple(guides),
        statistic=MEDIANS,
        edge="$1/(La)$",
    )


def generalization(dataset: xarray.Dataset) -> Panel:
    """Return the gap against the sharpness after training with the smallest η and, as crosses, at the flow's limits."""
    run = regressed_run(dataset)
    points, look, curves = gaps(dataset, run), run_look(run), []
    if has_test_risk(dataset):
        cross: dict[str, Any] = {"linestyle": "none", "marker": "x", "color": "0.45", "zorder": 2.3}
        cross |= {"markeredgewidth": 0.5, "markersize": 8**0.5}
        limits = _positive(gaps(dataset, FLOW))
        curves.append(Curve(Key("limit", "limit of GF", "limit of GF", cross), *limits, line=False))
    dots: dict[str, Any] = {"linestyle": "none", "marker": look["marker"], "color": look["color"], "zorder": 2.4}
    dots |= {"markeredgewidth": 0, "markersize": 6**0.5}
    curves.append(Curve(Key("run", run.name, f"GD, {run.label}", dots), *_positive(points), alpha=0.7, line=False))
    found, title = regress(points), ""
    if found is not None:
        x = np.array([np.min(_positive(points)[0]), np.max(_positive(points)[0])])
        rim = [Stroke(linewidth=3, foreground="white"), Normal()]  # by which the line stands out from the points
        line = {"color": "black", "linewidth": 1.4, "zorder": 3, "path_effects": rim}
        key = Key("regression", "regression of GD", "regression of GD", line)
        curves.append(Curve(key, x, 10**found.intercept * x**found.slope))
        p = f"= {found.p_value:.1g}" if found.p_value >= 1e-16 else "< 1e-16"
        title = rf"slope {found.slope:.3g}, $R^2 = {found.r_squared:.2f}$, one-sided $p$ {p}"
    across, up = (np.concatenate(values) for values in zip(*((one.x, one.y) for one in curves), strict=True))
    return Panel(
        "generalization",
        "Generalization",
        "generalization gap against the sharpness after training",
        axis_over(r"sharpness $S$ after training", "sharpness after training", across, logarithmic=True),
        axis_over("test risk − training risk", "test risk − training risk", up, logarithmic=True),
        tuple(curves),
        title=title,
        legend={"loc": "upper left", "handletextpad": 0.4},
    )


def _positive(points: Points) -> Points:
    kept = (points[0] > 0) & (points[1] > 0)
    return points[0][kept], points[1][kept]


def sharpness_over_edge(dataset: xarray.Dataset) -> Panel:
    """Return S·η/2 after training against the scale: every run as a point, and the median for each learning rate."""
    x, shown, top, curves = positions(dataset), runs.descents(dataset), 1.65, []
    spacing = 0.13 * (x[-1] - x[0]) / max(1, len(x) - 1)  # between the points of neighbouring learning rates
    for number, run in enumerate(shown):
        values = over_edge(dataset, run).transpose(..., runs.REPETITION)
        places = np.broadcast_to((x + spacing * (number - (len(shown) - 1) / 2))[:, None], values.shape)
        key = Key(f"run-{number}", run.name, run.label, run_look(run))
        dots = {"markersize": 1.8, "markeredgewidth": 0, "linestyle": "none", "zorder": 2.0}
        points = places.ravel(), np.minimum(values.values.ravel(), top)
        curves.append(Curve(key, *points, alpha=0.45, line=False, named=False, look=dots))
        curves.append(Curve(key, x, median(values).values))
    known = [curve.x[np.isfinite(curve.y)] for curve in curves]
    across, limits = axis_along(dataset), axis_over("", "", np.concatenate(known))
    return Panel(
        "over-edge",
        "Sharpness over 2/η",
        "sharpness after training over 2/η",
        replace(across, linear=limits.linear, log=limits.log),
        Axis(r"sharpness over $2/\eta$, $S\eta/2$", "sharpness over 2/η", (0.0, top)),
        tuple(curves),
        (Guide(1.0, Key(INK, "", "", {"color": "0.4"})),),
        statistic="medians; points: runs",
    )


def single_run(dataset: xarray.Dataset, flow: RecordedRun, descent: RecordedRun) -> list[Panel]:
    """Return squared distance and sharpness against the steps k of `descent`, and the flow at the times t = ηk.

    The sharpness has the axis of panel b, and 2/η dashed.
    """
    rate = descent.run.learning_rate or np.nan
    # In the look that the learning rate has in the sweep; alone if it is not in the sweep.
    known = (run for run in runs.descents(dataset) if np.isclose(run.threshold, 2 / rate, rtol=1e-9))
    shown, steps = next(known, Run(GRADIENT_DESCENT, float(rate))), descent.along("time") / rate
    look = run_look(shown, calm=not oscillates(descent.along("sharpness")))
    key, marks = Key("descent", shown.name, shown.label, look), steps[:: max(1, len(steps) // 9)]  # some nine marks
    label, last = rf"steps $k$, for the flow $t/\eta$ ($\eta = {rate:.3g}$)", float(steps[-1])
    x, panels = Axis(label, "steps", (0.0, last)), []
    bounding, bounds = _bounds(dataset)
    for quantity in ("squared_distance", "sharpness"):
        times, values = flow.along("time") / rate, flow.along(quantity)
        until = times <= last * (1 + 1e-9)
        times, values = times[until], values[until]
        # The sharpness is continued beyond the limit of the flow, where the distance is rounding.
        if quantity == "sharpness" and flow.outcome.converged and times[-1] < last:
            times, values = np.append(times, last), np.append(values, values[-1])
        drawn = middle_and_range(steps, descent.along(quantity))
        curves, guides = [Curve(_GF, times, values), Curve(key, *drawn, marks=marks)], []
        every = np.concatenate([values, *(part for part in drawn[1:] if part is not None)])
        y = axis_over(LABELS[quantity], quantity.replace("_", " "), every, logarithmic=True)
        if quantity == "sharpness":
            y = replace(y, log=SHARPNESS_LIMITS, logarithmic=True)
            curves, guides = [*curves, *bounding], [*bounds]
            if shown.threshold < FURTHEST:  # or a logarithmic axis would have no room above it
                guides.append(Guide(float(shown.threshold), key))
        name = f"single-{quantity}"
        panels.append(Panel(name, y.words.capitalize(), f"{y.words} against steps", x, y, tuple(curves), tuple(guides)))
    return panels
