"""The panels of the figures of Marion and Chizat (2024): of sweeps, and of single runs."""

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.patheffects import Normal, Stroke

from ...report.panels import FURTHEST, LABELS, Curve, Key, Panel, oscillates
from ...report.panels.sweep import DIVERGED, Facet, SweepPanels, axis_along, is_constant, positions
from ...report.render_paper import (
    draw_curve,
    draw_interval,
    draw_sweep_panel,
    set_sweep_axis,
)
from ...report.style import BOUND, FLOW as FLOW_LOOK, THRESHOLD, THRESHOLD_ID, run_look, set_ticks
from ...report.sweeps import runs
from ...report.sweeps.intervals import median, quartiles
from ...results.runs import FLOW, GRADIENT_DESCENT, RecordedRun, Run
from .measures import (
    Points,
    Regression,
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


def draw_squared_distance(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw panel a of Figures 1 and 4: squared distance after training against the scale, for every run."""
    draw_sweep_panel(axes, _panel(dataset, runs.runs_of(dataset), "squared_distance"))


def draw_sharpness(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw panel b of Figures 1, 4 and 6 and Figure 7: sharpness at initialization and after training, and bounds.

    The lower bound is that of Theorem 2, which is 2La for ‖w*‖ = 1; perceptrons of overdetermined data have the upper
    one 8LΛ of Corollary 2, too. For a nonlinear network these are the bounds of the linear one on the same data.
    """
    shown = runs.flows(dataset) + drawn_rates(dataset)
    draw_sweep_panel(axes, _panel(dataset.drop_vars("sharpness_lower_bound"), shown, "sharpness"))
    draw_bounds(axes, dataset)
    bottom, top = SHARPNESS_LIMITS
    axes.set_yscale("log")
    axes.set_ylim(bottom, max(top, _highest_median(dataset)))


def _panel(dataset: xarray.Dataset, shown: tuple[Run, ...], quantity: str) -> Panel:
    """Return the description of the one panel of a sweep over one axis."""
    return SweepPanels((Facet({}, dataset),), shown).panels(quantity)[0]


def draw_bounds(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the dotted bounds with their names beside them: 2La, and 8LΛ where Corollary 2 applies."""
    x = positions(dataset)
    place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
    lower, upper = dataset["sharpness_lower_bound"].values, upper_bound(dataset)
    for name, found in ((r"$2La$", lower), (r"$8L\Lambda$", upper)):
        bound = np.broadcast_to(np.nan if found is None else found, x.shape)
        if not np.isfinite(bound).any():
            continue
        if is_constant(bound):
            axes.axhline(bound[0], **BOUND)
        else:
            axes.plot(x, bound, **BOUND)
        axes.annotate(name, xy=(1.0, bound[-1]), xytext=(2, 0), va="center", fontsize=6.5, **place)


def _highest_median(dataset: xarray.Dataset) -> float:
    """Return twice the highest median, 1e8 at most, below which curves and most of their quartiles are to be seen."""
    medians = [median(dataset["initial_sharpness"])]
    medians += [median(runs.final(dataset, run, "sharpness")) for run in runs.runs_of(dataset)]
    highest = max((float(m.max()) for m in medians if m.notnull().any()), default=0.0)
    return min(2 * highest, 1e8)


def draw_divergence_probability(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw Figures 3 and 5: the share of the runs that diverged, against the scale, for every learning rate."""
    draw_sweep_panel(axes, _panel(dataset, runs.descents(dataset), DIVERGED))


def draw_critical_rates(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the squared distance after training against η, a curve for each depth, and 1/(La) dashed.

    Medians are over the runs that did not diverge; where all did, the curve ends.
    """
    depths, rates = dataset["depth"].values, np.array([run.learning_rate for run in runs.descents(dataset)])
    for index, depth in enumerate(depths):
        part = dataset.isel(depth=index)
        values = np.stack([runs.final(part, m, "squared_distance").values for m in runs.descents(dataset)])
        colour = matplotlib.colormaps["plasma"](0.8 * index / max(1, len(depths) - 1))
        look = {"color": colour, "marker": "os^DvP"[index % 6], "markeredgecolor": "black", "zorder": 3.0}
        found = quartiles(values)
        key = Key(f"depth-{depth}", f"L = {depth}", rf"$L = {depth}$", look)
        draw_interval(axes, Curve(key, rates, found.estimate, found.low, found.high))
        axes.axvline(2 / part["sharpness_lower_bound"].item(), color=colour, gid=THRESHOLD_ID, **THRESHOLD)
    _draw_flow(axes, dataset, rates[0])
    axes.set_xscale("log")
    # The zero network is at ‖w*‖² = 1; the paper draws −0.01 to 0.21 of the squared distance divided by d = 5.
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel(r"learning rate $\eta$")
    axes.set_ylabel(LABELS["squared_distance"])
    set_ticks(axes)


def _draw_flow(axes: Axes, dataset: xarray.Dataset, smallest_rate: float) -> None:
    """Draw the limit of the flow, η → 0, over all depths, to the left of the smallest learning rate."""
    if runs.flows(dataset):
        distance = float(
            quartiles(runs.final(dataset, runs.FLOW, "squared_distance").values.reshape(1, -1)).estimate[0]
        )
        ends = [smallest_rate / 1.25, smallest_rate]
        axes.plot(ends, [distance] * 2, label=r"GF ($\eta \to 0$)", **FLOW_LOOK)


def draw_generalization(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the gap against the sharpness after training with the smallest η and, as crosses, at the flow's limits."""
    run = regressed_run(dataset)
    points = gaps(dataset, run)
    dots = {"color": run_look(run)["color"], "marker": run_look(run)["marker"], "edgecolors": "none", "alpha": 0.7}
    limits = [_positive(gaps(dataset, FLOW))] if has_test_risk(dataset) else []
    for limit in limits:
        look = {"marker": "x", "color": "0.45", "linewidths": 0.5, "s": 8, "zorder": 2.3}
        axes.scatter(*limit, label="limit of GF", **look)
    axes.scatter(*_positive(points), label=f"GD, {run.label}", s=6, zorder=2.4, **dots)
    if any(len(shown[0]) for shown in (*limits, _positive(points))):  # a logarithmic axis of no points has no ends
        axes.set_xscale("log")
        axes.set_yscale("log")
    found = regress(points)
    if found is not None:
        x = np.array([np.min(_positive(points)[0]), np.max(_positive(points)[0])])
        line = 10**found.intercept * x**found.slope
        rim = [Stroke(linewidth=3, foreground="white"), Normal()]  # by which the line stands out from the points
        look = {"color": "black", "linewidth": 1.4, "zorder": 3}
        axes.plot(x, line, label="regression of GD", path_effects=rim, **look)
        axes.set_title(_description(found), fontsize=7)
    axes.set_xlabel(r"sharpness $S$ after training")
    axes.set_ylabel("test risk − training risk")
    set_ticks(axes)
    axes.legend(loc="upper left", handletextpad=0.4)


def _positive(points: Points) -> Points:
    kept = (points[0] > 0) & (points[1] > 0)
    return points[0][kept], points[1][kept]


def _description(found: Regression) -> str:
    p = f"= {found.p_value:.1g}" if found.p_value >= 1e-16 else "< 1e-16"
    return rf"slope {found.slope:.3g}, $R^2 = {found.r_squared:.2f}$, one-sided $p$ {p}"


def draw_over_edge(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw S·η/2 after training against the scale: every run as a point, and the median for each learning rate."""
    x, shown, top = positions(dataset), runs.descents(dataset), 1.65
    spacing = 0.13 * (x[-1] - x[0]) / max(1, len(x) - 1)  # between the points of neighbouring learning rates
    for number, run in enumerate(shown):
        values = over_edge(dataset, run).transpose(..., runs.REPETITION)
        places = np.broadcast_to((x + spacing * (number - (len(shown) - 1) / 2))[:, None], values.shape)
        look = run_look(run)
        dots = {"marker": look["marker"], "markersize": 1.8, "markeredgewidth": 0, "linestyle": "none", "alpha": 0.45}
        axes.plot(places.ravel(), np.minimum(values.values.ravel(), top), color=look["color"], **dots)
        axes.plot(x, median(values).values, label=run.label, **look)
    axes.axhline(1.0, color="0.4", **THRESHOLD)
    axes.set_ylim(0, top)
    axes.set_ylabel(r"sharpness over $2/\eta$, $S\eta/2$")
    set_sweep_axis(axes, axis_along(dataset))


def draw_single_run(
    distance: Axes, sharpness: Axes, dataset: xarray.Dataset, flow: RecordedRun, descent: RecordedRun
) -> None:
    """Draw squared distance and sharpness against the steps k of `descent`, and the flow at the times t = ηk.

    The sharpness has the axis of panel b, and 2/η dashed.
    """
    rate = descent.run.learning_rate or np.nan
    shown, steps = _as_in_sweep(dataset, rate), descent.along("time") / rate
    curve = run_look(shown, calm=not oscillates(descent.along("sharpness")))
    marks = {"markevery": list(range(0, len(steps), max(1, len(steps) // 9))), "label": shown.label}  # some nine marks
    for axes, quantity in ((distance, "squared_distance"), (sharpness, "sharpness")):
        axes.plot(*_flow_until(flow, quantity, rate, steps[-1]), label="GF", **FLOW_LOOK)
        draw_curve(axes, steps, descent.along(quantity), curve | marks)
        axes.set_yscale("log")
        axes.set_xlim(0, steps[-1])
        axes.set_xlabel(rf"steps $k$, for the flow $t/\eta$ ($\eta = {rate:.3g}$)")
        axes.set_ylabel(LABELS[quantity])
        set_ticks(axes)
    if shown.threshold < FURTHEST:  # or a logarithmic axis would have no room above it
        sharpness.axhline(shown.threshold, color=curve["color"], gid=THRESHOLD_ID, **THRESHOLD)
    draw_bounds(sharpness, dataset)
    sharpness.set_ylim(*SHARPNESS_LIMITS)


def _flow_until(flow: RecordedRun, quantity: str, rate: float, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the flow until `last`; its sharpness is continued beyond its limit, where the distance is rounding."""
    steps, values = flow.along("time") / rate, flow.along(quantity)
    shown = steps <= last * (1 + 1e-9)
    steps, values = steps[shown], values[shown]
    if quantity == "sharpness" and flow.outcome.converged and steps[-1] < last:
        steps, values = np.append(steps, last), np.append(values, values[-1])
    return steps, values


def _as_in_sweep(dataset: xarray.Dataset, rate: float) -> Run:
    """Return the learning rate as it is in the sweep, so that it looks the same, or alone if it is not."""
    known = (run for run in runs.descents(dataset) if np.isclose(run.threshold, 2 / rate, rtol=1e-9))
    return next(known, Run(GRADIENT_DESCENT, float(rate)))
