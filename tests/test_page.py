"""The page of a run holds what the terminal, the summary and the data set hold, and asks for nothing else."""

import base64
import csv
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
import yaml
from made_runs import made_comparison, made_sweep, write_without_figures
from rich.console import Console

import flowsim
from flowsim import report
from flowsim.cli.report import conclude
from flowsim.columns import read_runs
from flowsim.report.page import page
from flowsim.report.page.render import Group, group_of_runs, group_of_sweep, plain
from flowsim.report.panels import Axis, Curve, Key, Panel
from flowsim.report.panels.panel import data_limits
from flowsim.results.store import StoreError
from flowsim.scenarios import header_comment

# What may stand where a browser would load something: a part of the page, the data itself, or a file beside it.
HERE = re.compile(r"#[\w-]+|data:[\w/,.;=+-]*|(figures/)?[\w-]+\.(pdf|nc|json|yaml)")
SOURCES = ("src", "href", "srcset", "poster", "action", "data")


class Read(HTMLParser):
    """What a page says and asks for: its links, tables cell by cell, and the texts of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.links, self.cells, self.scripts, self.tags = [], [], {}, []
        self.open, self.script = None, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.links += [attributes[name] for name in SOURCES if name in attributes]
        if tag in ("td", "th"):
            self.cells.append("")
            self.open = True
        self.script = attributes.get("id", "") if tag == "script" else self.script

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.open = None
        self.script = None if tag == "script" else self.script

    def handle_data(self, data):
        if self.open:
            self.cells[-1] += data
        if self.script is not None:
            self.scripts[self.script] = data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a flow, a descent that follows it and one that diverges."""
    return write_without_figures(made_comparison([0.1, 3.0]).to_dataset(), tmp_path_factory.mktemp("page") / "mine")


@pytest.fixture(scope="module")
def results(folder):
    return flowsim.open_results(folder)


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text):
    return Read(text)


def page_of(results, title="mine"):
    return page(results, title, tables=[], warnings=[], complete=True, panels=[])


def doubles(packed):
    return np.frombuffer(base64.b64decode(packed["doubles"]), "<f8")


def test_a_page_loads_nothing_from_anywhere_and_has_its_data_in_itself(text, folder, read):
    assert read.links
    for link in read.links:
        assert HERE.fullmatch(link), link[:80]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"@import|url\(", style[1])
    assert len(text) < 5_000_000
    inside = {link["download"]: link["href"] for tag, link in read.tags if tag == "a" and "download" in link}
    assert set(inside) == {"trajectories.nc", "summary.json"}
    for name, link in inside.items():
        assert base64.b64decode(link.partition("base64,")[2]) == (folder / name).read_bytes()


def test_the_tables_of_the_page_are_those_of_the_terminal_below_what_did_not_arrive(results, text, read):
    words = set(" ".join(read.cells).split())
    for table in report.document(results, "mine").tables:
        for line in report.printed(table).splitlines():
            if line.startswith(("GF ", "GD ")) and "by" not in line:
                assert set(line.split()) <= words
    assert "diverged" in words
    assert text.index("η = 3: diverged at step") < text.index("<table")
    assert "Everything that counts ended as expected." in text


def test_page_and_summary_and_data_set_hold_the_same_numbers(results, read):
    (group,) = json.loads(read.scripts["content"])
    runs = read_runs(results.trajectories)
    ordered = [runs.flow, *runs.by_rate]
    assert [key["label"] for key in group["keys"]] == ["GF", "η = 0.1", "η = 3, diverged"]
    for run, key in zip(ordered, group["keys"], strict=True):
        series = group["series"][key["name"]]
        for name, column in series.items():
            np.testing.assert_array_equal(doubles(column), run.along(name), err_msg=name)
    for plot in group["plots"]:
        for curve in plot["curves"]:
            run = ordered[[key["name"] for key in group["keys"]].index(curve["key"])]
            known = np.isfinite(run.along(plot["name"]))
            columns = {name: doubles(column) for name, column in curve["columns"].items()}
            np.testing.assert_array_equal(columns["x"], run.along("time")[known])
            np.testing.assert_array_equal(columns["y"], run.along(plot["name"])[known])
    flow = results.summary["flow"]
    series = group["series"]["run-0"]
    for name in ("risk", "excess_risk", "sharpness", "gradient_norm"):
        assert doubles(series[name])[-1] == flow[name]


def test_everything_that_is_seen_is_said_in_words_too(read):
    words = [plot["aria-label"] for _, plot in read.tags if plot.get("role") == "img"]
    assert len(words) >= 5
    assert all("η = 3, diverged" in alternative for alternative in words)
    assert {header.get("scope") for tag, header in read.tags if tag == "th"} == {"col"}
    labelled = {label["for"] for tag, label in read.tags if tag == "label" and "for" in label}
    assert {slider["id"] for tag, slider in read.tags if tag == "input" and slider["type"] == "range"} <= labelled
    assert ("html", {"lang": "en"}) in read.tags


def test_names_are_text_and_never_code(results):
    named = results.trajectories.copy()
    named["risk"].attrs["long_name"] = "</script><script>alert(1)</script>"
    named["time"].attrs["long_name"] = "<b>"
    text = page_of(dataclasses.replace(results, trajectories=named))
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


def documents(folder, names):
    """What the command line holds of results in `folder`, of which the last did not all arrive."""
    return [
        SimpleNamespace(
            results=SimpleNamespace(folder=folder / name, scenario={}, asked_figures=()),
            complete=name != names[-1],
            warnings=("η < 3: diverged",),
            figures={"distance": None, "sharpness": None},
            panels={},
        )
        for name in names
    ]


def test_several_results_share_an_index_in_their_folder_and_the_worst_exit_code(tmp_path):
    assert conclude(documents(tmp_path, ["alone"]), Console()) == 1
    assert list(tmp_path.iterdir()) == []
    assert conclude(documents(tmp_path, ["a", "b c"]), Console()) == 1
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert {"a/report.html", "b%20c/report.html", "a/figures/sharpness.png"} <= set(Read(index).links)
    assert "2 scenarios, of which 1 did not end as expected" in index
    assert "η &lt; 3: diverged" in index
    assert conclude(documents(tmp_path, ["a", "b c"])[:1] * 2, Console()) == 0
    conclude(documents(tmp_path / "here", "a") + documents(tmp_path / "there", "b"), Console())
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_an_index_of_someone_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "index.html").write_text("mine")
    conclude(documents(tmp_path, "ab"), Console())
    assert (tmp_path / "index.html").read_text() == "mine"
    assert "it is not of flowsim" in capsys.readouterr().out


def test_a_curve_leaves_out_what_is_not_known_and_keeps_its_ends():
    times = np.arange(10_001.0)
    values = np.where(times % 2 == 0, times, np.nan)
    key = Key("k", "k", "k", {"color": "red", "marker": "o"})
    curve = Curve(key, times, values, marks=np.array([0, 4, 5, 10_000]))
    nothing = Curve(key, times, np.full(10_001, np.nan))
    axis = Axis("", "", (0.0, 1.0))
    panel = Panel("p", "p", "p", axis, axis, (nothing, curve))
    (drawn,) = Group("g", "g", "g", [panel], [key], points=3000).content()["plots"][0]["curves"]
    x, y = doubles(drawn["columns"]["x"]), doubles(drawn["columns"]["y"])
    assert len(x) == 3000
    assert np.isfinite(y).all()
    assert x[[0, -1]].tolist() == x[[drawn["marks"][0], drawn["marks"][-1]]].tolist() == [0.0, 10_000.0]


def test_limits_hold_every_value_on_either_scale():
    values = np.array([3.0, 1e-9, 50.0, np.nan])
    for logarithmic in (False, True):
        low, high = data_limits(values, logarithmic=logarithmic)
        assert low < 1e-9
        assert high > 50
    assert data_limits(np.array([-1.0, 0.0]), logarithmic=True) is None
    assert data_limits(np.array([20.0, 21.0]))[0] > 19
    assert data_limits(np.array([np.nan])) is None


def test_critical_learning_rates_of_a_sweep_are_drawn_below_what_theory_allows():
    sweep = made_sweep()
    lower = xarray.full_like(sweep["initial_risk"], 1.0) * [0.1, 0.2, 0.4]
    sweep = sweep.assign(critical_learning_rate_lower=lower, critical_learning_rate_upper=4 * lower)
    panels = group_of_sweep(sweep.assign(sharpness_lower_bound=("scale", np.full(3, 2.5)))).panels
    (panel,) = (panel for panel in panels if panel.heading == "Critical learning rate")
    *every, median, allowed = panel.curves
    np.testing.assert_allclose(median.y, 0.4)
    np.testing.assert_allclose(allowed.y, 0.8)
    np.testing.assert_allclose(sorted(every[0].y), np.repeat([0.2, 0.4, 0.8], 3))
    assert panel.y.log[1] > 0.8


def test_doubles_are_kept_to_the_last_bit_and_a_run_of_one_record_is_a_mark(results):
    values = np.array([0.1, np.nan, np.inf, 5e-324])
    np.testing.assert_array_equal(doubles(plain({"v": values})["v"]), values)
    dataset = results.trajectories.isel(record=slice(0, 1))
    group = group_of_runs(dataset.assign(records=("run", np.ones(3, int)))).content()
    assert all(curve["marks"] == [0] for plot in group["plots"] for curve in plot["curves"])


def test_a_page_has_the_comment_of_its_scenario_at_the_top_and_the_command_without_quick(results, tmp_path):
    here = dataclasses.replace(results, folder=tmp_path)
    comment = "Two <descents>\n\nOne follows the flow,\nthe other diverges."
    scenario = {"comment": comment, "scenario": {"seed": 0, "sweep": {"first_look": True}}}
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    text = page_of(here, "figure-quick")
    assert "<code>python -m flowsim figure-quick.yaml</code>" in text
    top = text[text.index("<header>") : text.index("</header>")]
    assert '<p class="comment title">Two &lt;descents&gt;</p>' in top
    assert '<p class="comment">One follows the flow, the other diverges.</p>' in top
    assert 'class="comment' not in page_of(results)
    (tmp_path / "scenario.yaml").write_text("comment: 3\nscenario: {}\n")
    with pytest.raises(StoreError, match=r"comment is .*, not a text"):
        _ = dataclasses.replace(here).comment


@pytest.mark.parametrize(
    ("written", "comment"),
    [
        ("# Title\n#\n# More,\n#   and more\nseed: 0\n# not this\n", "Title\n\nMore,\nand more"),
        ("# yaml-language-server: $schema=s.json\n\n---\n## Title\n\n# of the data\ndata: 1\n", "Title"),
        ("seed: 0 # no\n# nor this\n", ""),
        ("", ""),
    ],
)
def test_the_first_lines_of_a_scenario_are_its_comment(tmp_path, written, comment):
    (tmp_path / "s.yaml").write_text(written)
    assert header_comment(tmp_path / "s.yaml") == comment


def test_a_pipe_is_not_read_twice_for_its_comment(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert header_comment(tmp_path / "pipe.yaml") == ""


_SAVES = """
const made = () => ({ setAttribute() {}, click() {}, addEventListener(_, act) { this.act = act; } });
globalThis.document = { createElement: made, querySelector: () => ({ textContent: "runs" }) };
URL.createObjectURL = (blob) => blob.text().then((text) => { console.log(text); process.exit(); });
const curve = { key: "run", columns: { x: [-1.5, 2], y: [-Infinity, NaN] } };
const levels = [{ value: -2, key: "run", words: "@SUM(1)", line: true }];
const plot = { across: "+t", up: "-1", curves: [curve], levels, heading: "", name: "" };
files.buttons({ plot, hidden: new Set(), keys: new Map([["run", { label: "=cmd(), 2" }]]) })[0].act();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node is here")
def test_no_cell_of_a_saved_table_is_a_formula_and_numbers_stay_numbers():
    code = (Path(flowsim.__file__).parent / "report" / "page" / "save.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "-e", code + _SAVES], capture_output=True, text=True, check=True)
    rows = [
        ["curve", "'+t", "'-1"],
        ["'=cmd(), 2", "-1.5", "-Infinity"],
        ["'=cmd(), 2", "2", ""],
        ["'@SUM(1)", "", "-2"],
    ]
    assert list(csv.reader(io.StringIO(run.stdout.strip()))) == rows
