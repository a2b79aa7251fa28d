"""Stored results become one page that explains itself: tables, plots to touch, figures, what was asked, and the data.

The page is one file: it opens from a disk, without a network, and holds everything that it shows.
"""

import base64
import dataclasses
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from ...results import Results
from ...results.store import SCENARIO, SUMMARY, SWEEP, THEORY, TRAJECTORIES
from .index import MARK, template, text_of
from .plot import Group, Key, plain
from .render import plots_of_runs, plots_of_sweep
from .theory_plots import theory_plots

_FILES = {
    TRAJECTORIES: "the runs, over (run, record), netCDF",
    SWEEP: "the sweep, over (grid, repetition, run), netCDF",
    THEORY: "the statements of the theory, netCDF",
    SUMMARY: "the numbers of the tables, JSON",
    SCENARIO: "the scenario as it ran, with versions and device, YAML",
}
# Bokeh, without its widgets, tables and formulas, and with what draws from a script.
_LIBRARY = ("bokeh", "bokeh-api")
_SCRIPTS = ("draw.js", "page.js")
_FINE = "Everything ended as expected: flows at their limits, and no statement fails."
_NOTED = "Everything that counts ended as expected. Also note:"
_LACKING = "Not everything ended as expected:"


@dataclass(frozen=True)
class Panel:
    """A figure that the page shows as it is: its name, the bytes of a PNG, and words in its place."""

    name: str
    png: bytes
    alt: str

    @property
    def source(self) -> str:
        """The figure as an address that holds it."""
        return _inline(self.png, "image/png")


def page(
    results: Results,
    title: str,
    *,
    tables: Sequence[str],
    warnings: Sequence[str],
    complete: bool,
    panels: Sequence[Panel],
) -> str:
    """Return the page of `results` as HTML: with `tables`, pieces of HTML, and figures as they are.

    `warnings` stand at the top, loudly unless all that counts is `complete`.
    """
    groups = _groups(results)
    return template("page.html").render(
        title=title,
        mark=Markup(MARK),
        subtitle=_subtitle(results),
        warnings=warnings,
        complete=complete,
        headline=_headline(warnings, complete),
        tables=[Markup(table) for table in tables],
        groups=[(group, [_listed(key) for key in group.keys]) for group in groups],
        panels=panels,
        environment=results.environment,
        scenario=yaml.safe_dump(results.scenario, sort_keys=False, allow_unicode=True) if results.scenario else "",
        commands=_commands(results, title),
        files=list(_files(results.folder)),
        version=results.environment.get("flowsim", _version()),
        style=Markup(text_of("page.css")),
        library=Markup(_library()) if groups else "",
        content=Markup(_content(groups)),
        scripts=[Markup(text_of(name)) for name in _SCRIPTS],
    )


def _groups(results: Results) -> list[Group]:
    parts = ((results.trajectories, plots_of_runs), (results.sweep, plots_of_sweep), (results.theory, theory_plots))
    made = [make(dataset) for dataset, make in parts if dataset is not None]
    return [group for group in made if group.plots]


def _library() -> str:
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=list(_LIBRARY)).js_raw)


def _headline(warnings: Sequence[str], complete: bool) -> str:
    if not complete:
        return _LACKING
    return _NOTED if warnings else _FINE


def _version() -> str:
    from importlib.metadata import version

    return version("flowsim")


def _subtitle(results: Results) -> str:
    """Return in a line what was run: data, network and seed."""
    asked = results.scenario
    kinds = (("data", "{} data"), ("network", "{} network"))
    parts = [form.format(asked[name]["kind"]) for name, form in kinds if "kind" in (asked.get(name) or ())]
    parts += [f"seed {asked['seed']}"] if "seed" in asked else []
    return ", ".join(parts)


def _commands(results: Results, title: str) -> list[tuple[str, str]]:
    """Return what makes the page again, from the stored data and from nothing, each with a word on it."""
    words = "Tables, figures and this page from the stored data, without computing, in the folder above this page's:"
    redraw = (words, f"python -m flowsim report {shlex.quote(title)}")
    if not results.scenario:
        return [redraw]
    # What --set and --quick changed stands in the scenario.
    words = f"Everything, from the scenario above, kept as {title}.yaml beside the files that it names:"
    return [redraw, (words, f"python -m flowsim {shlex.quote(title + '.yaml')}")]


def _files(folder: Path, room: int = 800_000) -> Any:
    """Yield the files of the data, with a link to each, beside the page or into it.

    So many bytes stand in the page itself, for those who were sent the page alone.
    """
    left = room
    for name, about in _FILES.items():
        path = folder / name
        if path.exists():
            inline = path.stat().st_size <= left
            left -= path.stat().st_size if inline else 0
            link = _inline(path.read_bytes(), "application/octet-stream") if inline else name
            yield {"name": name, "about": about, "link": link, "inline": inline}


def _inline(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _listed(key: Key) -> dict[str, Any]:
    return {**dataclasses.asdict(key), "swatch": _swatch(key)}


def _swatch(key: Key) -> Markup:
    """Return the mark of a curve as a piece of SVG, in the middle of a box of 40 by 14."""
    corners = {"square": (4, 45), "triangle": (3, 90), "diamond": (4, 0), "inverted_triangle": (3, -90)}
    if not key.marker:
        return Markup("")
    look = Markup('data-colour="{}" fill="{}"').format(key.name, key.light)
    if key.marker not in corners:
        return Markup('<circle cx="20" cy="7" r="4" {}/>').format(look)
    count, turn = corners[key.marker]
    angles = [math.radians(turn + 360 * corner / count) for corner in range(count)]
    points = " ".join(f"{20 + 5 * math.cos(angle):.2f},{7 - 5 * math.sin(angle):.2f}" for angle in angles)
    return Markup('<polygon points="{}" {}/>').format(points, look)


def _content(groups: Sequence[Group]) -> str:
    """Return what the page's script draws, as JSON in which nothing can end the script that holds it."""
    content = [plain(dataclasses.asdict(group)) for group in groups]
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
