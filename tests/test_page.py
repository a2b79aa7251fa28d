"""The page of a run holds what the terminal, the summary and the data set hold, and asks for nothing else."""

import base64
import dataclasses
import json
import os
import re
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray
import yaml
from rich.console import Console

import flowsim
from flowsim import cli, report
from flowsim.cli.report import conclude
from flowsim.data import gaussian_teacher
from flowsim.report.page import Entry, index_page, page
from flowsim.report.page.render import Group, group_of_runs, plain
from flowsim.report.panels import Axis, Curve, Key, Panel
from flowsim.report.panels.panel import data_limits
from flowsim.results.runs import read_runs
from flowsim.results.store import StoreError
from flowsim.scenarios import header_comment

# What may stand where a browser would load something: a part of the page, the data itself, or a file beside it.
HERE = re.compile(r"#[\w-]+|data:[\w/,.;=+-]*|(figures/)?[\w-]+\.(pdf|nc|json|yaml)")
SOURCES = ("src", "href", "srcset", "poster", "action", "data")


class Read(HTMLParser):
    """What a page says and asks for: its links, tables cell by cell, and the texts of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.links, self.cells, self.scripts, self.images, self.tags = [], [], {}, [], []
        self.open, self.script = None, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        self.links += [found[name] for name in SOURCES if name in found]
        if tag in ("td", "th"):
            self.cells.append("")
            self.open = True
        self.script = found.get("id", "") if tag == "script" else self.script

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
    """A flow, a descent that follows it and one that diverges, saved from Python."""
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 20, 3))
    network = flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=0.6, key=jax.random.key(1))
    both = flowsim.compare(network, problem, [0.1, 4.0], steps=200, records=40)
    place = tmp_path_factory.mktemp("page") / "mine"
    both.save(place)
    return place


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text):
    return Read(text)


def doubles(packed):
    return np.frombuffer(base64.b64decode(packed["doubles"]), "<f8")


@pytest.mark.slow
def test_a_page_loads_nothing_from_anywhere(text, read):
    assert read.links
    for link in read.links:
        assert HERE.fullmatch(link), link[:80]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"@import|url\(", style[1])
    assert len(text) < 5_000_000


@pytest.mark.slow
def test_the_tables_of_the_page_are_those_of_the_terminal(folder, read):
    results = flowsim.open_results(folder)
    words = set(" ".join(read.cells).split())
    for table in report.document(results, "mine").tables:
        for line in report.printed(table).splitlines():
            if line.startswith(("GF ", "GD ")) and "by" not in line:
                assert set(line.split()) <= words
    assert "diverged" in words


@pytest.mark.slow
def test_page_and_summary_and_data_set_hold_the_same_numbers(folder, read):
    (group,) = json.loads(read.scripts["content"])
    results = flowsim.open_results(folder)
    runs = read_runs(results.trajectories)
    ordered = [runs.flow, *runs.by_rate]
    assert [key["label"] for key in group["keys"]] == ["GF", "η = 0.1", "η = 4, diverged"]
    for run, key in zip(ordered, group["keys"], strict=True):
        series = group["series"][key["name"]]
        for name, column in series.items():
            np.testing.assert_array_equal(doubles(column), run.along(name), err_msg=name)
    for plot in group["plots"]:
        for curve in plot["curves"]:
            run = ordered[[key["name"] for key in group["keys"]].index(curve["key"])]
            known = np.isfinite(run.along(plot["name"]))
            columns = {name: doubles(column) for name, column in curve["columns"].items()}
            y = columns["y"]
            if "low" in columns:  # the range of an oscillation, and its middle
                known &= np.isin(run.along("time"), columns["x"])
                assert (columns["low"] <= run.along(plot["name"])[known]).all()
                assert (run.along(plot["name"])[known] <= columns["high"]).all()
                np.testing.assert_array_equal(y, (columns["low"] + columns["high"]) / 2)
            else:
                np.testing.assert_array_equal(y, run.along(plot["name"])[known])
            np.testing.assert_array_equal(columns["x"], run.along("time")[known])
    flow = results.summary["flow"]
    series = group["series"]["run-0"]
    for name in ("risk", "excess_risk", "sharpness", "gradient_norm"):
        assert doubles(series[name])[-1] == flow[name]


@pytest.mark.slow
def test_the_data_stand_in_the_page_itself(folder, read):
    inside = {found["download"]: found["href"] for tag, found in read.tags if tag == "a" and "download" in found}
    assert set(inside) == {"trajectories.nc", "summary.json"}
    for name, link in inside.items():
        assert base64.b64decode(link.partition("base64,")[2]) == (folder / name).read_bytes()


@pytest.mark.slow
def test_everything_that_is_seen_is_said_in_words_too(read):
    plots = [found for tag, found in read.tags if found.get("role") == "img"]
    assert len(plots) >= 5
    for found in plots:
        assert "η = 4, diverged" in found["aria-label"]
    assert all(len(found["alt"]) > 5 for tag, found in read.tags if tag == "img")
    headers = [found for tag, found in read.tags if tag == "th"]
    assert headers
    assert all(found.get("scope") in ("col", "row") for found in headers)
    named = {found["for"] for tag, found in read.tags if tag == "label" and "for" in found}
    assert {found["id"] for tag, found in read.tags if tag == "input" and found["type"] == "range"} <= named
    assert ("html", {"lang": "en"}) in read.tags


@pytest.mark.slow
def test_what_did_not_arrive_stands_at_the_top(text):
    assert text.index("η = 4: diverged at step") < text.index("<table")
    assert "Everything that counts ended as expected." in text


@pytest.mark.slow
def test_names_are_text_and_never_code(folder, tmp_path):
    results = flowsim.open_results(folder)
    named = results.trajectories.rename_vars({"risk": "risk"}).copy()
    named["risk"].attrs["long_name"] = "</script><script>alert(1)</script>"
    named["time"].attrs["long_name"] = "<b>"
    report.save(named, tmp_path / "mine")
    page = (tmp_path / "mine" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.slow
def test_a_page_made_again_is_the_same(folder, text, capsys):
    (folder / "report.html").unlink()
    assert cli.main(["report", str(folder)]) == 0
    assert f"wrote {folder}/report.html" in capsys.readouterr().out.replace("\n", "")
    assert (folder / "report.html").read_text(encoding="utf-8") == text


def documents(folder, names):
    """What the command line holds of results in `folder`, of which the last did not all arrive."""
    return [
        SimpleNamespace(
            results=SimpleNamespace(folder=folder / name, scenario={}, asked_figures=()),
            complete=name != names[-1],
            warnings=("η = 4: diverged",),
            figures={"distance": None, "sharpness": None},
            panels={},
        )
        for name in names
    ]


def test_several_results_share_an_index_and_the_worst_exit_code(tmp_path):
    assert conclude(documents(tmp_path, ["alone"]), Console()) == 1
    assert list(tmp_path.iterdir()) == []
    assert conclude(documents(tmp_path, ["a", "b c"]), Console()) == 1
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert {"a/report.html", "b%20c/report.html", "a/figures/sharpness.png"} <= set(Read(index).links)
    assert "2 scenarios, of which 1 did not end as expected" in index
    assert conclude(documents(tmp_path, ["a", "b c"])[:1] * 2, Console()) == 0


def test_results_in_several_folders_have_no_index(tmp_path):
    conclude(documents(tmp_path / "here", "a") + documents(tmp_path / "there", "b"), Console())
    assert list(tmp_path.iterdir()) == []


def test_an_index_of_someone_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "index.html").write_text("mine")
    conclude(documents(tmp_path, "ab"), Console())
    assert (tmp_path / "index.html").read_text() == "mine"
    assert "it is not of flowsim" in capsys.readouterr().out


def test_an_index_says_which_results_lack_something():
    page = index_page([Entry("one", False, ("η < 1: diverged",), None), Entry("two", True, (), "sharpness")])
    assert "2 scenarios, of which 1 did not end as expected" in page
    assert "η &lt; 1: diverged" in page


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
    assert x[[0, -1]].tolist() == [0.0, 10_000.0]
    assert x[drawn["marks"][0]] == 0.0
    assert x[drawn["marks"][-1]] == 10_000.0


def test_limits_hold_every_value_on_either_scale():
    values = np.array([3.0, 1e-9, 50.0, np.nan])
    for logarithmic in (False, True):
        low, high = data_limits(values, logarithmic=logarithmic)
        assert low < 1e-9
        assert high > 50
    assert data_limits(np.array([-1.0, 0.0]), logarithmic=True) is None
    assert data_limits(np.array([20.0, 21.0]))[0] > 19
    assert data_limits(np.array([np.nan])) is None


def test_doubles_are_kept_to_the_last_bit():
    values = np.array([0.1, np.nan, np.inf, 5e-324])
    np.testing.assert_array_equal(doubles(plain({"v": values})["v"]), values)


@pytest.mark.slow
def test_a_run_of_one_record_is_a_mark(folder):
    dataset = flowsim.open_results(folder).trajectories.isel(record=slice(0, 1))
    group = group_of_runs(dataset.assign(records=("run", np.ones(3, int)))).content()
    assert all(curve["marks"] == [0] for plot in group["plots"] for curve in plot["curves"])


@pytest.mark.slow
def test_a_page_of_many_runs_and_quantities_stays_light(folder):
    results = flowsim.open_results(folder)
    flow, descent = (results.trajectories.isel(run=[place]) for place in (0, 1))
    many = [descent.assign_coords(learning_rate=("run", [0.1 + 0.001 * number])) for number in range(40)]
    wide = xarray.concat([flow, *many], "run", data_vars="minimal", coords="minimal", compat="override")
    record = np.linspace(0, wide.sizes["record"] - 1, 600).astype(int)
    wide = wide.isel(record=record).assign(records=("run", np.full(41, 600)))
    label = {"symbol": "p", "units": "1", "logarithmic": 1, "long_name": "p"}
    wide = wide.assign({f"probe_{number}": wide["risk"].assign_attrs(label) for number in range(20)})
    made = dataclasses.replace(results, trajectories=wide)
    text = page(made, "wide", tables=[], warnings=[], complete=True, panels=[])
    assert len(Read(text).tags) > 41 + 20
    assert len(text.encode()) < 5_000_000


@pytest.mark.slow
def test_a_scenario_that_ran_quick_is_not_shortened_twice(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "figure-quick")
    (tmp_path / "figure-quick" / "scenario.yaml").write_text("scenario: {seed: 0, sweep: {first_look: true}}")
    results = flowsim.open_results(tmp_path / "figure-quick")
    text = page(results, "figure-quick", tables=[], warnings=[], complete=True, panels=[])
    assert "<code>python -m flowsim figure-quick.yaml</code>" in text
    assert "<code>python -m flowsim report figure-quick</code>" in text


@pytest.mark.slow
def test_the_comment_of_a_scenario_stands_at_the_top_of_its_page(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "said")
    comment = "Two <descents>\n\nOne follows the flow,\nthe other diverges."
    (tmp_path / "said" / "scenario.yaml").write_text(yaml.safe_dump({"comment": comment, "scenario": {"seed": 0}}))
    text = page(flowsim.open_results(tmp_path / "said"), "said", tables=[], warnings=[], complete=True, panels=[])
    top = text[text.index("<header>") : text.index("</header>")]
    assert '<p class="comment title">Two &lt;descents&gt;</p>' in top
    assert '<p class="comment">One follows the flow, the other diverges.</p>' in top
    nothing = page(flowsim.open_results(folder), "mine", tables=[], warnings=[], complete=True, panels=[])
    assert 'class="comment' not in nothing


@pytest.mark.slow
@pytest.mark.parametrize("comment", [3, ["a", "b"]])
def test_a_comment_that_is_no_text_is_one_message(folder, tmp_path, comment):
    shutil.copytree(folder, tmp_path / "said")
    (tmp_path / "said" / "scenario.yaml").write_text(yaml.safe_dump({"comment": comment, "scenario": {}}))
    with pytest.raises(StoreError, match=r"comment is .*, not a text"):
        _ = flowsim.open_results(tmp_path / "said").comment


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("# Title\n#\n# More,\n#   and more\nseed: 0\n# not this\n", "Title\n\nMore,\nand more"),
        ("# yaml-language-server: $schema=s.json\n\n---\n## Title\n\n# of the data\ndata: 1\n", "Title"),
        ("seed: 0 # no\n# nor this\n", ""),
        ("", ""),
    ],
)
def test_the_first_lines_of_a_scenario_are_its_comment(tmp_path, written, said):
    (tmp_path / "s.yaml").write_text(written)
    assert header_comment(tmp_path / "s.yaml") == said


def test_a_pipe_is_not_read_twice_for_its_comment(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert header_comment(tmp_path / "pipe.yaml") == ""
