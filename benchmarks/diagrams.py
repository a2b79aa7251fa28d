"""Figures of the comparison with peers: work against precision, cost against κ, cost against the size."""

from collections.abc import Iterable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from scaling import Cost

from flowsim.report.style import BOUND, FLOW, STYLE, descent_look, set_ticks

Curves = dict[str, list[tuple[float, float]]]
_OWN = "flowsim, default"
_PACKAGES = ["flowsim", "Diffrax", "SciPy", "others"]
# Inches: a panel, and a line of the legend.
_COLUMNS, _PANEL, _LINE = 3, (2.3, 1.9), 0.17
_TITLES = {
    "mlp-0.3": "MLP, scale 0.3",
    "mlp-0.6": "MLP, scale 0.6",
    "residual": "residual network",
    "kappa-1e2": r"$\kappa = 10^2$",
    "kappa-1e4": r"$\kappa = 10^4$",
    "kappa-1e6": r"$\kappa = 10^6$",
    "depth-100": "depth 100, width 10",
    "depth-1000": "depth 1000",
    "gelu": "GELU",
}


def figures(races: dict[str, Curves], sweeps: dict[str, list[Cost]]) -> dict[str, Figure]:
    """Return the figures by name."""
    made = {"work_precision": work_precision(races)}
    if sweeps:
        made["kappa"] = against_kappa(sweeps["kappa"])
        made["size"] = against_size(sweeps["width"], sweeps["depth"])
    return made


def work_precision(races: dict[str, Curves]) -> Figure:
    """Return one panel for each case: seconds against the error of the final weights."""
    names = _in_order(name for curves in races.values() for name in curves)
    figure, panels = _panels(len(races), "error of the final weights", "seconds")
    for axes, (case, curves) in zip(panels, races.items(), strict=True):
        for name, points in curves.items():
            axes.plot(*zip(*_efficient(points), strict=True), label=name, **_look(name, names))
        axes.set_title(_TITLES.get(case, case), fontsize=8.0)
        axes.invert_xaxis()
    _legend(figure, panels)
    return figure


def against_kappa(costs: Sequence[Cost]) -> Figure:
    """Return seconds, and gradients with products, against the condition number."""
    figure, (seconds, counts) = _panels(2, r"condition number $\kappa$", "")
    seconds.set_ylabel("seconds")
    counts.set_ylabel("gradients + products")
    names = _in_order(cost.method for cost in costs)
    for name in names:
        own = [cost for cost in costs if cost.method == name]
        seconds.plot([c.x for c in own], [c.seconds for c in own], label=name, **_look(name, names))
        counted = [(c.x, c.gradients + c.products) for c in own if c.gradients is not None]
        if counted:
            counts.plot(*zip(*counted, strict=True), label=name, **_look(name, names))
    _root(counts, max(c.gradients + c.products for c in costs if c.x == costs[0].x and c.gradients), costs)
    _legend(figure, [seconds, counts])
    return figure


def _root(axes: Axes, start: float, costs: Sequence[Cost]) -> None:
    """Draw growth with the root of the condition number."""
    first, last = costs[0].x, costs[-1].x
    end = start * (last / first) ** 0.5
    axes.plot([first, last], [start, end], **BOUND)
    place = {"xytext": (0, -11), "textcoords": "offset points", "ha": "right", "va": "top"}
    axes.annotate(r"$\propto \sqrt{\kappa}$", (last, end), fontsize=7.0, **place)


def against_size(width: Sequence[Cost], depth: Sequence[Cost]) -> Figure:
    """Return seconds against width and against depth."""
    figure, panels = _panels(2, "", "seconds")
    names = _in_order(cost.method for cost in (*width, *depth))
    for axes, costs, label in zip(panels, (width, depth), ("width $d$, $L = 10$", "depth $L$, $d = 5$"), strict=True):
        axes.set_xlabel(label)
        for name in names:
            own = [cost for cost in costs if cost.method == name]
            axes.plot([c.x for c in own], [c.seconds for c in own], label=name, **_look(name, names))
    _legend(figure, panels)
    return figure


def _panels(count: int, x: str, y: str) -> tuple[Figure, list[Axes]]:
    columns = min(_COLUMNS, count)
    rows = -(-count // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.4), layout="constrained")
        panels = [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
        for axes in panels:
            axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
            set_ticks(axes)
            # A few decades wide, an axis is crowded by what stands between two of them.
            axes.xaxis.set_major_locator(LogLocator(numticks=6))
            axes.xaxis.set_minor_locator(NullLocator())
    return figure, panels


def _efficient(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points than which no other one is both more exact and faster."""
    return [(e, s) for e, s in sorted(points) if not any(f < e and r < s for f, r in points)]


def _look(name: str, names: Sequence[str]) -> dict[str, object]:
    """Return the look of a method: one colour for each package, one marker for each of its methods."""
    if name == _OWN:
        return {**FLOW, "marker": "o", "markersize": 3.2}
    mates = [other for other in names if _package(other) == _package(name)]
    colour = descent_look(_PACKAGES.index(_package(name)), len(_PACKAGES))["color"]
    marker = descent_look(mates.index(name), len(mates))["marker"]
    told = {"linestyle": "--"} if name.endswith("told") else {}
    shape = {"marker": marker, "markersize": 3.6, "markeredgecolor": "black", "markeredgewidth": 0.4}
    return {"color": colour, "linewidth": 1.0, **shape, **told}


def _package(name: str) -> str:
    return next((package for package in _PACKAGES if name.startswith(package)), _PACKAGES[-1])


def _in_order(names: Iterable[str]) -> list[str]:
    """Return each name once, package by package."""
    return sorted(dict.fromkeys(names), key=lambda name: _PACKAGES.index(_package(name)))


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Explain all lines once: where panels are missing in the last row, or below."""
    found = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles = {name: found[name] for name in _in_order(found)}
    columns = min(_COLUMNS, len(panels))
    free = -len(panels) % columns
    if free > 1:
        room = {"loc": "lower right", "ncols": free}
    else:
        room = {"loc": "outside lower center", "ncols": len(handles) if columns > 1 and len(handles) < 5 else columns}
        lines = -(-len(handles) // room["ncols"])
        figure.set_figheight(figure.get_figheight() + _LINE * (lines - 1))
    with matplotlib.rc_context({**STYLE, "legend.labelspacing": 0.6}):
        figure.legend(handles.values(), handles, **room)
