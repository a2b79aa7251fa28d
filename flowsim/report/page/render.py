"""Panels as the script of the page draws them, with Bokeh in the browser: names and numbers in the types of JSON."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray
from matplotlib.colors import to_hex, to_rgb

from ...columns import SHARPNESS
from ...formatting import format_number
from ...results import theory_from_dataset
from ...tables.probes import overlaid_probes, probe_names
from ..panels import (
    HEADINGS,
    INK,
    NODES,
    PATH,
    Axis,
    Curve,
    Key,
    Panel,
    SideBySidePanels,
    TrajectoryPanels,
    plane_panels,
    spectrum_panel,
    subsample,
)
from ..panels.sweep import CRITICAL, SweepPanels, quantities
from ..panels.theory import TheoryPanels
from ..panels.trajectories import columns
from ..style import FLOW

_ABOUT_RUNS = (
    "Every quantity that was recorded, of all runs, against one time. The slider moves through all plots at once, and "
    "paths and spectra are those at its time; "
    "of an oscillation the band is its range and the line the middle of that; dashed lines are edges of stability, 2/η "
    "for gradient descent, dotted ones the bounds of Theorem 2 on the least sharpness of a minimizer, S_min."
)
_ABOUT_FOLDERS = (
    "Colours tell the folders apart, dashes and marks the runs; thick lines are the flows. The slider moves through "
    "all plots at once; of an oscillation the band is its range and the line the middle of that; dashed lines are "
    "edges of stability, dotted ones the bounds of Theorem 2 on S_min. Distances are from the flow of the same "
    "folder; of an array of numbers the first is drawn."
)
_ABOUT_SWEEP = (
    "Medians over the repetitions, of the flow at its limits or where it was to stop, with a band from the first "
    "quartile to the third and a faint point for each run; runs that diverged are left out. Dashed lines are edges of "
    "stability, 2/η for gradient descent, the dotted one is the lower bound of Theorem 2."
)
_ABOUT_THEORY = (
    "Both sides of every statement along the flow, the one claimed smaller as a line, the other dashed: the statement "
    "holds where the line stays below. Time counts from the escape from the initial plateau."
)
_MARKERS = {"o": "circle", "s": "square", "^": "triangle", "D": "diamond", "v": "inverted_triangle"}
_MARKERS |= {"<": "hex", "P": "cross", ">": "star", "X": "x"}


@dataclass(frozen=True)
class Group:
    """Panels of the same runs, whose curves are switched on and off together.

    `time` is the axis that a slider goes through, and `series` has the columns of each key, "time" and one named after
    each panel, that are read there. Of a curve at most so many `points` are shown, evenly taken.
    """

    name: str
    heading: str
    about: str
    panels: Sequence[Panel]
    keys: Sequence[Key]
    time: Axis | None = None
    series: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    points: int = 3000

    def content(self) -> dict[str, Any]:
        """Return what the template and the script of the page show of the group, in the types of JSON.

        Of time that is the part that panels show, and the scales that it may have on the page, by name, in words.
        """
        time = None
        if (axis := self.time) is not None:
            scales = {"linear": "linear", "logarithmic": "logarithmic"}
            if axis.last > axis.linear[1]:
                end, last = format_number(axis.linear[1], 3), format_number(axis.last, 3)
                scales = {
                    "linear": f"linear, to t = {end}",
                    "linear, all": f"linear, to t = {last}",
                    "logarithmic": f"logarithmic, to t = {end}",
                    "logarithmic, all": f"logarithmic, to t = {last}",
                }
            time = {
                "start": axis.linear[0],
                "first": axis.linear[0] if axis.log is None else axis.log[0],
                "end": axis.linear[1],
                "logarithmic": axis.logarithmic,
                "last": axis.last,
                "scales": scales,
            }
        content = {
            "name": self.name,
            "heading": self.heading,
            "about": self.about,
            "plots": [_plot(panel, self.points, moves=self.time is not None) for panel in self.panels],
            "keys": [_key(key) for key in self.keys],
            "time": time,
            "series": self.series,
        }
        return plain(content)


def group_of_runs(dataset: xarray.Dataset) -> Group:
    """Return the panels of a data set of trajectories, of every quantity that was recorded along a run."""
    known, panels = [*HEADINGS, *probe_names(dataset)], TrajectoryPanels.of(dataset)
    planes = plane_panels(panels) if PATH in dataset else []
    spectrum = spectrum_panel(panels) if NODES in dataset else None
    moving = [replace(one, description=f"{one.description}; strong up to the time of the slider") for one in planes]
    moving += [] if spectrum is None else [spectrum]
    return _along_runs(panels, known, "Along the runs", _ABOUT_RUNS, moving=moving)


def group_of_folders(datasets: Mapping[str, xarray.Dataset], *, curves: int = 20) -> Group:
    """Return the panels of several data sets of trajectories over each other, by the names of their folders.

    Each shows at most so many `curves`, see `SideBySidePanels`; the sharpness comes first. What models alone record has
    no panel, as it has no figure.
    """
    probes = overlaid_probes(datasets.values())
    panels = SideBySidePanels.of(datasets, most=curves)
    said = " ".join([_ABOUT_FOLDERS, *panels.remarks])
    return _along_runs(panels, [*dict.fromkeys((SHARPNESS, *HEADINGS, *probes))], "The runs overlaid", said)


def _along_runs(
    panels: TrajectoryPanels | SideBySidePanels,
    known: Sequence[str],
    heading: str,
    about: str,
    *,
    moving: Sequence[Panel] = (),
    most_panels: int = 24,
    points: int = 3000,
    light: int = 60_000,
) -> Group:
    """Return the panels of the `known` quantities that were followed, and behind them those that are `moving` in time.

    All curves together have at most `light` points, so that the page stays light; the data sets have all.
    """
    names = [name for name in known if panels.is_followed(name)][:most_panels]
    points = min(max(light // max(len(panels.keys) * min(len(known), most_panels), 1), 60), points)
    series = {}
    for key, run in panels.keyed_runs:
        along = {name: columns(run, name, 1)[0] for name in ("time", *names)}
        kept = np.array(subsample(range(len(along["time"])), points), int)
        series[key.name] = {name: column[kept] for name, column in along.items() if np.isfinite(column).any()}
    drawn = [*map(panels.panel, names), *moving]
    return Group("runs", heading, about, drawn, panels.keys, panels.time, series, points)


def group_of_sweep(dataset: xarray.Dataset, *, facets: int = 6, others: int = 14, points: int = 15_000) -> Group:
    """Return the panels of a sweep, one of each quantity for some `facets`: combinations of the other dimensions.

    `others` runs beside the flow are shown; each is a point besides medians and quartiles if these are few enough.
    """
    panels = SweepPanels.of(dataset, facets=facets, others=others, points=points)
    names = sorted(quantities(dataset), key=lambda name: name != CRITICAL)  # which come first
    drawn = [panel for name in names for panel in panels.panels(name)]
    return Group("sweep", "Over the sweep", _ABOUT_SWEEP, drawn, panels.keys)


def group_of_theory(dataset: xarray.Dataset, *, depths: int = 8) -> Group:
    """Return the panels of the statements that were checked along the flows of at most so many depths."""
    panels = TheoryPanels.of(theory_from_dataset(dataset).flows, depths=depths)
    drawn = [*map(panels.sides, panels.names), panels.conditioning()]
    shown = [panel for panel in drawn if panel is not None]
    return Group("theory", "The theory along the flow", _ABOUT_THEORY, shown, panels.keys)


def _plot(panel: Panel, points: int, *, moves: bool) -> dict[str, Any]:
    """Return a panel without its overlays: the page has panels of their own for these.

    It `moves` where a slider goes through time, if it shows what a run does there.
    """
    x, y = panel.x, panel.y
    curves = (_curve(curve, x.places, points) for curve in panel.curves)
    return {
        "name": panel.name,
        "heading": panel.heading,
        "description": panel.description,
        "across": x.words,
        "up": y.words,
        "curves": [curve for curve in curves if curve is not None],
        "linear": y.linear,
        "log": y.log,
        "logarithmic": y.logarithmic,
        "told": panel.told,
        "x": x.limits,
        "x_log": x.logarithmic,
        "levels": [
            {
                "value": guide.value,
                "key": guide.key and guide.key.name,
                "dotted": guide.dotted,
                "words": guide.words,
                "line": True,
            }
            for guide in panel.guides
        ]
        + [
            {"value": float(curve.y[-1]), "key": None, "dotted": True, "words": curve.key.words, "line": False}
            for curve in panel.curves
            if curve.key.name == INK and np.isfinite(curve.y[-1:]).any()
        ],
        "ticks": x.ticks and {"at": x.at, "names": x.ticks},
        "moving": moves and any(curve.times is not None for curve in panel.curves),
    }


def _key(key: Key, luminance: float = 0.62) -> dict[str, Any]:
    """Return the name of a key, and its look on a light and on a dark page.

    There its colour is mixed with white until it stands out, with the given luminance at least.
    """
    colour, marker = key.look["color"], key.look.get("marker", "")
    flow = colour == FLOW["color"]
    red, green, blue = to_rgb(to_hex(colour))
    white = max(0.0, luminance - (0.299 * red + 0.587 * green + 0.114 * blue))
    on_dark = (red + white * (1 - red), green + white * (1 - green), blue + white * (1 - blue))
    return {
        "name": key.name,
        "label": key.words,
        "light": to_hex(colour),
        "dark": "#f2f2f2" if flow else to_hex(on_dark),
        "width": 3.0 if flow else 1.0 + key.look.get("linewidth", 1.0),
        "dash": _dash(key.look),
        "marker": _MARKERS.get(marker, ""),
        "stays": key.stays,
    }


def _dash(look: Mapping[str, Any]) -> list[int]:
    style = look.get("linestyle", "-")
    return [round(2 * part) for part in style[1]] if isinstance(style, tuple) else []


def _curve(curve: Curve, places: Sequence[str], points: int, most_marks: int = 10) -> dict[str, Any] | None:
    """Return at most so many of the points of a curve that are known; `None` where there are none.

    It has marks where the panel says, else at some that are spread over all, and at a lone point in any case; none
    where its key has no marker. Single points, and what belongs to no run, are shown as they are.
    """
    parts = {"x": curve.x, "y": curve.y} | ({} if curve.low is None else {"low": curve.low, "high": curve.high})
    made = {"key": curve.key.name, "line": curve.line, "marks": [], "size": 6.0, "alpha": curve.alpha, "dash": None}
    if not curve.line:
        size = 5.0 if curve.named else 3.0
        return made | {"columns": parts, "marks": range(len(curve.x)), "size": size, "told": curve.named}
    if curve.key.name == INK:
        return made | {"columns": parts, "dash": [2, 3], "told": False}
    known = np.flatnonzero(np.isfinite(curve.y))
    if len(known) == 0:
        return None
    if len(places) == len(curve.x):
        parts["place"] = np.array(places)
    if curve.frames is not None:  # whole, and without marks, which would move
        whole = {"times": curve.times, "frames": curve.frames}
        return made | {"columns": parts, "told": True, "dash": None} | whole
    if curve.times is not None:
        parts["t"] = curve.times
    if curve.side:
        parts["side"] = np.full(len(curve.x), curve.side)
    kept = np.array(subsample(known.tolist(), points), int)
    marks = range(len(kept)) if curve.alpha == 1.0 else []
    if curve.alpha == 1.0 and curve.marks is not None:
        marks = np.searchsorted(kept, np.intersect1d(known, np.searchsorted(curve.x, curve.marks)))
    marked = subsample(np.unique(np.minimum(marks, len(kept) - 1)).tolist(), most_marks)
    return made | {
        "columns": {name: column[kept] for name, column in parts.items()},
        "marks": [0] if len(kept) == 1 else marked if curve.key.look.get("marker", "") in _MARKERS else [],
        "dash": _dash(curve.look) or ([] if curve.side else None),
        "told": True,
        "times": None if curve.times is None else curve.times[kept],
    }


def plain(value: Any) -> Any:
    """Return a value in the types of JSON: numbers of arrays as the bytes of doubles, in base 64.

    A lone number that is not finite, for which JSON has no word, is `None`.
    """
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iufb":
            return {"doubles": base64.b64encode(value.astype("<f8").tobytes()).decode()}
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
