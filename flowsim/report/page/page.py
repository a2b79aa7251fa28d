"""Stored results become one page: tables, interactive plots, figures, the scenario, and the data.

The page is one file: it opens from a disk, without a network, and holds everything that it shows. The templates, which
stand beside this file, are also that of the index, which leads to the pages of several results.
"""

import base64
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...results import Results
from ...results.store import PAGE, SCENARIO, SUMMARY, SWEEP, THEORY, TRAJECTORIES
from .render import Group, group_of_folders, group_of_runs, group_of_sweep, group_of_theory

_HERE = Path(__file__).parent
MARK = '<meta name="generator" content="flowsim">'
"""What tells a page of ours from others."""
_FILES = {
    TRAJECTORIES: "the runs, over (run, record), netCDF",
    SWEEP: "the sweep, over (grid, repetition, run), netCDF",
    THEORY: "the statements of the theory, netCDF",
    SUMMARY: "the numbers of the tables, JSON",
    SCENARIO: "the scenario as it ran, with versions and device, YAML",
}
# Bokeh, without its widgets, tables and formulas, and with what draws from a script.
_LIBRARY = ("bokeh", "bokeh-api")
_SCRIPTS = ("draw.js", "save.js", "view.js", "page.js")


def page(
    results: Results,
    title: str,
    *,
    tables: Sequence[str],
    warnings: Sequence[str],
    complete: bool,
    panels: Sequence[tuple[str, bytes, str, bool]],
) -> str:
    """Return the page of `results` as HTML: with `tables`, pieces of HTML, and `panels`, figures as they are.

    Of these it needs the name, the bytes of a PNG, alternative text, and whether colours in it stand for numbers.
    `warnings` stand at the top, loudly unless all that counts is `complete`.
    """
    parts = (
        (results.trajectories, group_of_runs),
        (results.sweep, group_of_sweep),
        (results.theory, group_of_theory),
    )
    # From the stored data, and from nothing: what --set and --quick changed stands in the scenario.
    words = "Tables, figures and this page from the stored data, without computing, in the folder above this page's:"
    commands = [(words, f"python -m flowsim report {shlex.quote(title)}")]
    if results.scenario:
        words = f"Everything, from the scenario above, kept as {title}.yaml beside the files that it names:"
        commands.append((words, f"python -m flowsim {shlex.quote(title + '.yaml')}"))
    return _page(
        [make(dataset) for dataset, make in parts if dataset is not None],
        title=title,
        comment=[" ".join(part.split()) for part in results.comment.split("\n\n") if part.strip()],
        subtitle=_subtitle(results),
        warnings=warnings,
        complete=complete,
        tables=tables,
        panels=[
            {"name": name, "source": _inline(png, "image/png"), "alt": alt, "map": has_map}
            for name, png, alt, has_map in panels
        ],
        environment=results.environment,
        scenario=yaml.safe_dump(results.scenario, sort_keys=False, allow_unicode=True) if results.scenario else "",
        commands=commands,
        files=list(_files(results.folder)),
        version=results.environment.get("flowsim") or version("flowsim"),
    )


def page_of_folders(
    found: Mapping[str, Results],
    *,
    tables: Sequence[str],
    warnings: Sequence[str],
    complete: bool,
    figures: Sequence[str] = (),
    here: Path | None = None,
) -> str:
    """Return the page of the runs in several folders, by the names of the folders, over each other, as HTML.

    Where it is to stand in the folder `here`, it leads to the pages of the folders, and to the files of `figures`.
    """
    links = [] if here is None else list(_links(found, figures, here))
    folders = " ".join(shlex.quote(str(results.folder)) for results in found.values())
    command = f"python -m flowsim report {folders}" + ("" if here is None else f" --out {shlex.quote(str(here))}")
    kinds: dict[str, str] = {}  # what was run, and in which folders
    for name, results in found.items():
        kinds[_subtitle(results)] = ", ".join(filter(None, (kinds.get(_subtitle(results)), name)))
    known, environments = ("flowsim", "jax", "python", "platform", "device"), {}
    for name, results in found.items():
        ran_on = [f"{part} {results.environment[part]}" for part in known if part in results.environment]
        environments[name] = ", ".join(ran_on) or "not known"
    group = group_of_folders({name: results.required("trajectories") for name, results in found.items()})
    return _page(
        [group],
        comment=[],
        title=" | ".join(found) if len(found) <= 4 else f"{len(found)} folders side by side",
        subtitle="; ".join(said if len(kinds) == 1 else f"{name}: {said}" for said, name in kinds.items()),
        warnings=warnings,
        complete=complete,
        tables=tables,
        panels=[],
        environment=environments,
        scenario="",
        commands=[("This page again, from the stored data, without computing:", command)],
        files=links,
        version=version("flowsim"),
    )


def _links(found: Mapping[str, Results], figures: Sequence[str], here: Path) -> Iterator[dict[str, Any]]:
    for name in figures:
        for suffix in ("pdf", "png"):
            link = f"figures/{name}.{suffix}"
            yield {"name": link, "about": f"the figure of all folders, {suffix.upper()}", "link": link, "inline": False}
    for name, results in found.items():
        path = results.folder.resolve() / PAGE
        if path.exists():
            try:
                link = quote(os.fsencode(Path(os.path.relpath(path, here.resolve())).as_posix()))
            except ValueError:  # on another drive
                link = path.as_uri()
            about = f"the page of {name} alone, with its data and its scenario"
            yield {"name": f"{name}/{PAGE}", "about": about, "link": link, "inline": False}


def _page(made: Sequence[Group], *, warnings: Sequence[str], complete: bool, tables: Sequence[str], **said: Any) -> str:
    groups = [group.content() for group in made if group.panels]
    headline = "Everything ended as expected: flows at their limits, and no statement fails."
    if warnings:
        headline = "Everything that counts ended as expected. Also note:"
    return rendered(
        "page.html",
        warnings=warnings,
        complete=complete,
        headline=headline if complete else "Not everything ended as expected:",
        tables=[Markup(table) for table in tables],
        groups=[(group, [key | {"swatch": _swatch(key)} for key in group["keys"]]) for group in groups],
        content=groups,
        scripts=_SCRIPTS,
        tables_script=Markup(script("tables.js")),
        **said,
    )


def rendered(name: str, *, content: Any = None, scripts: Sequence[str] = (), **values: Any) -> str:
    """Return a template with its values, where text is text: no name or message is ever taken for HTML.

    `content`, in the types of JSON, is what the `scripts` of the page, files beside this one, draw with Bokeh.
    """
    if content:
        from bokeh.resources import Resources  # not above: it takes a moment to import

        library = "\n".join(Resources(mode="inline", components=list(_LIBRARY)).js_raw)
        # Nothing in the content can end the script that holds it.
        data = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        values |= {"library": Markup(library), "content": Markup(data), "scripts": [Markup(script(s)) for s in scripts]}
    loader = FileSystemLoader(_HERE)
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return found.get_template(name).render(mark=Markup(MARK), style=Markup(script("page.css")), **values)


def script(name: str) -> str:
    """Return a style sheet, or a script, as it stands."""
    return (_HERE / name).read_text(encoding="utf-8")


def _subtitle(results: Results) -> str:
    """Return in a line what was run: data, network and seed."""
    asked = results.scenario
    kinds = (("data", "{} data"), ("network", "{} network"))
    parts = [form.format(asked[name]["kind"]) for name, form in kinds if "kind" in (asked.get(name) or ())]
    parts += [f"seed {asked['seed']}"] if "seed" in asked else []
    return ", ".join(parts)


def heading(results: Results) -> str:
    """Return under what an index shows results: the module of their figure, as that of a paper, or what was run."""
    asked = results.scenario
    modules = [name.partition(":")[0] for name in results.asked_figures if ":" in name]
    kinds = [str(asked[name]["kind"]) for name in ("network", "data") if "kind" in (asked.get(name) or ())]
    return modules[0] if modules else " on ".join(kinds) or "saved from Python"


def _files(folder: Path, room: int = 800_000) -> Iterator[dict[str, Any]]:
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


def _swatch(key: Mapping[str, Any]) -> Markup:
    """Return the mark of a curve as a piece of SVG, in the middle of a box of 40 by 14."""
    # The distances of the corners from the middle, and the angle of the first.
    corners = {"square": ([5], 4, 45), "triangle": ([5], 3, 90), "diamond": ([5], 4, 0)}
    corners |= {"inverted_triangle": ([5], 3, -90), "hex": ([5], 6, 0), "star": ([5.5, 2.2], 5, 90)}
    corners |= {"cross": ([5.5, 2], 4, 0), "x": ([5.5, 2], 4, 45)}
    if not key["marker"]:
        return Markup("")
    look = Markup('data-colour="{}" fill="{}"').format(key["name"], key["light"])
    if key["marker"] not in corners:
        return Markup('<circle cx="20" cy="7" r="4" {}/>').format(look)
    radii, count, turn = corners[key["marker"]]
    lengths = radii * count
    angles = [math.radians(turn + 360 * corner / len(lengths)) for corner in range(len(lengths))]
    ends = [(length * math.cos(angle), length * math.sin(angle)) for length, angle in zip(lengths, angles, strict=True)]
    points = " ".join(f"{20 + x:.2f},{7 - y:.2f}" for x, y in ends)
    return Markup('<polygon points="{}" {}/>').format(points, look)


@dataclass(frozen=True)
class Entry:
    """Results that an index leads to: the folder `name` beside it, how they came out, a figure of theirs.

    `group` is the heading under which it stands with others of the same paper or problem.
    """

    name: str
    complete: bool
    warnings: tuple[str, ...]
    figure: str | None
    group: str = ""


def index_page(entries: Sequence[Entry], together: str | None = None) -> str:
    """Return the page that leads to the pages of results, which stand in folders beside it.

    `together` is the folder of the page that puts them side by side, if there is one.
    """
    said = f"{len(entries)} scenarios"
    lacking = sum(not entry.complete for entry in entries)
    headline = (
        f"{said}, all ended as expected" if not lacking else f"{said}, of which {lacking} did not end as expected"
    )
    groups = {name: [entry for entry in entries if entry.group == name] for name in (entry.group for entry in entries)}
    return rendered("index.html", title="Results", groups=groups, together=together, headline=headline, lacking=lacking)
