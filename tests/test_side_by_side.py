"""Runs of several folders side by side: what differs, how the runs end, and their curves over each other."""

import importlib
import json
import shutil

import numpy as np
import pytest
from made_runs import files, made_run, made_sweep
from matplotlib.figure import Figure
from table_checks import check_fits

import flowsim
from flowsim import cli
from flowsim.columns import GRADIENT_DESCENT, RECORD, RUN, ComparedRun, Run
from flowsim.comparison import Comparison
from flowsim.report.panels import INK, SideBySidePanels
from flowsim.report.side_by_side import names_of, refuse_foreign
from flowsim.results import ResultFolder, Results, StoreError

SCENARIO = {
    "seed": 0,
    "data": {"kind": "gaussian", "samples": 50},
    "network": {"kind": "residual", "depth": 10, "scale": 0.5},
    "descent": {"learning_rates": [0.02, 0.1]},
    "figure": None,
}


def runs(*, rates=(0.02, 0.1), records=30, end=10.0, bound=15.0, **changed):
    """Return made-up runs that fall like exp(−t), sharper by each run, in the form in which flowsim stores them."""
    times = np.linspace(0, end, records)

    def run(level, rate=None):
        return made_run(times, level * np.exp(-times), 20 + level * times, rate=rate, steps=100)

    compared = (
        ComparedRun(Run(GRADIENT_DESCENT, rate), run(level, rate), level * np.exp(-times), 0.5, end, None)
        for level, rate in enumerate(rates, start=2)
    )
    return Comparison(run(1), tuple(compared), (bound, 2 * bound)).to_dataset().assign(changed)


def results(folder, scenario=SCENARIO, version="1.0", **given):
    """Return the results of made-up runs, of which only the scenario is on the disk: that is much faster."""
    if scenario is not None:
        ResultFolder(folder).write_scenario(scenario, {"flowsim": version, "jax": "0"})
    return Results(folder, runs(**given), None, None)


def stored(folder, scenario=SCENARIO, **given):
    ResultFolder(folder).write_dataset(runs(**given))
    ResultFolder(folder).write_scenario(scenario, {"flowsim": "1.0", "jax": "0"})
    return folder


def with_keys(**sections):
    """Return the scenario with other values of keys in its sections."""
    return SCENARIO | {name: SCENARIO[name] | keys for name, keys in sections.items()}


SHALLOW = {"scenario": with_keys(network={"depth": 5}), "records": 20, "end": 30.0, "bound": 8.0}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two folders whose scenarios differ in one key, side by side."""
    place = tmp_path_factory.mktemp("folders")
    return flowsim.side_by_side(results(place / "deep"), results(place / "shallow", **SHALLOW))


@pytest.fixture(scope="module")
def panels(both):
    return SideBySidePanels.of(both.datasets)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    place = tmp_path_factory.mktemp("stored")
    stored(place / "deep")
    stored(place / "shallow", **SHALLOW)
    return place


@pytest.fixture
def two(on_disk, tmp_path):
    """The same two folders on the disk."""
    return [shutil.copytree(on_disk / name, tmp_path / name) for name in ("deep", "shallow")]


def test_a_key_that_one_scenario_lacks_differs_and_is_a_dash(tmp_path):
    given = [results(tmp_path / "a"), results(tmp_path / "b", scenario=with_keys(network={"skip": None}))]
    together = flowsim.side_by_side(*given)
    assert together.differences == {"network.skip": {"b": None}}
    assert check_fits(together.tables())[0].splitlines()[-1].split() == ["network.skip", "–", "null"]


def test_one_table_has_the_keys_that_differ_and_the_other_a_row_for_each_folder_and_run(both):
    assert both.differences == {"network.depth": {"deep": 10, "shallow": 5}}
    differences, text = check_fits(both.tables())
    assert differences.splitlines()[-1].split() == ["network.depth", "10", "5"]
    rows = [line.split() for line in text.splitlines()]
    of = {name: [row for row in rows if row[-1:] == ["converged"]][place::3] for place, name in enumerate(("GF", "GD"))}
    assert [row[0] for row in of["GF"]] == ["deep", "shallow"]
    # Sharper than the lower bound of its own folder: 30/15, and 50/8.
    assert [row[row.index("100") + 4] for row in of["GF"]] == ["2", "6.25"]


def test_one_data_set_holds_all_runs_with_the_folder_as_a_coordinate(both):
    joined = both.to_dataset()
    assert joined["folder"].values.tolist() == ["deep"] * 3 + ["shallow"] * 3
    assert joined["sharpness_lower_bound"].values.tolist() == [15.0] * 3 + [8.0] * 3
    for name, dataset in both.datasets.items():
        part = joined.isel(run=joined["folder"].values == name)
        for quantity in dataset:
            records = {RECORD: slice(dataset.sizes[RECORD])} if RECORD in dataset[quantity].dims else {}
            np.testing.assert_array_equal(part[quantity].isel(records).values, dataset[quantity].values)
            if records:
                assert np.isnan(part[quantity].values[:, dataset.sizes[RECORD] :]).all()
    frame = both.to_dataframe()
    assert frame.groupby("folder").size().to_dict() == {"deep": 90, "shallow": 60}
    assert frame.attrs["units"]["risk"] == "1"


def test_what_one_folder_alone_recorded_is_joined_too(tmp_path):
    probe = (("run", "record", "probe_0"), np.ones((3, 30, 2)), {"long_name": "a probe", "symbol": "p", "units": "1"})
    layers = (("run", "record", "layers_0"), np.ones((3, 30, 2)), {"long_name": "", "symbol": "l", "drawn": "layers"})
    a, b = results(tmp_path / "a", probe=probe, layers=layers), results(tmp_path / "b", rates=(0.3,))
    together = flowsim.side_by_side(a, b)
    joined = together.to_dataset()["probe"]
    assert joined.shape == (5, 30, 2)
    assert np.isnan(joined[3:]).all()
    assert (joined[:3] == 1).all()
    # Of layers there is a map in the report of their folder; of other arrays the first number is drawn.
    assert list(together.figures()) == ["sharpness", "squared_distance", "distance", "probe"]
    assert len(SideBySidePanels.of(together.datasets).panel("probe").curves) == 3


def test_colours_tell_folders_apart_and_dashes_and_marks_the_runs(panels):
    looks = [key.look for key in panels.keys]
    own = [(look.get("linestyle"), look.get("marker"), look["linewidth"]) for look in looks]
    assert [key.words for key in panels.keys[:2]] == ["deep: GF", "deep: η = 0.02"]
    assert len({look["color"] for look in looks[:3]}) == len({look["color"] for look in looks[3:]}) == 1
    assert looks[0]["color"] != looks[3]["color"]
    assert own[:3] == own[3:]
    assert len(set(own)) == 3
    # The legend of a figure names folders and runs, not each pair of them.
    named = [curve.key.label for curve in panels.panel("sharpness").overlays if curve.named]
    assert named == ["deep", "shallow", "GF", r"$\eta = 0.02$", r"$\eta = 0.1$"]
    # Rates that are rounded to the same name are different runs.
    panels = SideBySidePanels.of({"first": runs(rates=(0.1001, 0.1004)), "second": runs(rates=(0.1001,))})
    looks = [(key.look["linestyle"], key.look["marker"]) for key, run in panels.keyed_runs if not run.run.is_flow]
    assert looks[0] == looks[2]
    assert looks[0] != looks[1]


def test_a_panel_shows_all_that_the_panels_of_the_folders_show(both, panels):
    panel = panels.panel("sharpness")
    assert panel.x.linear[1] >= 30  # as long as the flow that takes longest to its limit
    assert panel.y.linear[1] >= 20 + 3 * 30
    for curve in panel.curves:
        name, run = curve.key.words.split(": ")
        place = ["GF", "η = 0.02", "η = 0.1"].index(run)
        np.testing.assert_array_equal(curve.y, both.datasets[name]["sharpness"].values[place])
    edges = [guide for guide in panel.guides if not guide.dotted]
    assert sorted(guide.value for guide in edges) == [20.0, 100.0]  # each once, though both folders have it
    assert all(guide.key.name == INK for guide in edges)
    assert [guide.value for guide in panel.guides if guide.dotted] == [15.0, 30.0, 8.0, 16.0]


def test_scenarios_that_are_the_same_are_said_to_be_and_their_bounds_are_drawn_once(tmp_path):
    together = flowsim.side_by_side(results(tmp_path / "a"), results(tmp_path / "b"))
    assert together.differences == {}
    assert str(together).startswith("the scenarios are the same\n")
    bounds = [one for one in SideBySidePanels.of(together.datasets).panel("sharpness").guides if one.dotted]
    assert [(one.value, one.key) for one in bounds] == [(15.0, None), (30.0, None)]


def test_of_many_runs_those_are_drawn_that_most_folders_have_and_what_others_know_is_said():
    own = np.geomspace(0.001, 0.01, 9)
    datasets = {f"run{n}": runs(rates=(*(own + 1e-4 * n), 0.05)) for n in range(3)}
    panels = SideBySidePanels.of(datasets, most=12)
    words = [key.words.split(": ")[1] for key in panels.keys]
    assert len(words) <= 12
    assert words.count("GF") == words.count("η = 0.05") == 3
    assert panels.remarks[0].startswith("Drawn are 12 of 33 runs")
    assert SideBySidePanels.of(datasets, most=40).remarks == []
    assert {key.words.split(": ")[1] for key in SideBySidePanels.of(datasets, most=2).keys} == {"GF"}
    with pytest.raises(ValueError, match="'distance' is known only of runs that are not drawn"):
        SideBySidePanels.of(datasets, most=2).panel("distance")


def test_a_quantity_is_drawn_into_given_axes_and_an_unknown_one_is_named(both):
    axes = Figure().subplots()
    assert both.plot("risk", ax=axes) is axes
    assert sum(len(line.get_xdata()) > 0 for line in axes.lines) == 6
    assert [text.get_text() for text in axes.get_legend().texts][:2] == ["deep", "shallow"]
    with pytest.raises(ValueError, match="'nothing' was not recorded: there are risk"):
        both.plot("nothing")


def test_the_table_says_of_each_folder_what_its_own_table_says(tmp_path):
    early = {"loosened": (RUN, np.array([50.0, 1.0, 1.0])), "distance_time": (RUN, np.full(3, 3.0))}
    together = flowsim.side_by_side(results(tmp_path / "deep"), results(tmp_path / "loose", **early))
    text = " ".join(str(together).split())
    assert "loose: The gradient jumps on the way" in text
    assert "loose: Distance taken at t = 3" in text
    assert "deep: Theorem 2: 15 ≤ S_min ≤ 30" in text


def test_of_an_earlier_call_its_own_files_are_replaced_and_a_broken_summary_names_no_figures(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("report.html", "figures/sharpness.png", "figures/mine.png"):
        (tmp_path / name).touch()
    for named, figures in ((["sharpness"], {"sharpness.png"}), (3, set()), ("sharpness", set()), ({"mine": 1}, set())):
        (tmp_path / "summary.json").write_text(json.dumps({"side_by_side": {"figures": named}}))
        assert {path.name for path in refuse_foreign(tmp_path)} == {"summary.json", "report.html"} | figures
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(StoreError, match="holds something else than runs side by side"):
        refuse_foreign(tmp_path)


def test_other_problems_other_seeds_and_versions_are_said(tmp_path):
    a = results(tmp_path / "a")
    data = results(tmp_path / "data", scenario=with_keys(data={"samples": 40}))
    seed = results(tmp_path / "seed", scenario=SCENARIO | {"seed": 1}, version="2.0")
    bare = results(tmp_path / "bare", scenario=None)
    (problem,) = flowsim.side_by_side(a, data).remarks
    assert "data.samples differ" in problem
    seeds, versions = flowsim.side_by_side(a, seed).remarks
    assert "seeds differ" in seeds
    assert versions.endswith("1.0, 2.0")
    (unknown,) = flowsim.side_by_side(a, bare).remarks
    assert unknown.startswith("bare: no scenario is stored")


def test_folders_of_one_name_are_told_apart_by_those_above_and_a_dollar_or_markup_in_it_is_text(tmp_path):
    folders = [tmp_path / "one" / "residual", tmp_path / "two" / "residual", tmp_path / "two" / "deep"]
    assert names_of(folders) == ["one/residual", "two/residual", "two/deep"]
    assert names_of(folders[1:]) == ["residual", "deep"]
    together = flowsim.side_by_side(results(tmp_path / "a$_1$"), results(tmp_path / "<b>x"))
    together.figures()["sharpness"].draw_without_rendering()
    page = together.page()
    assert "<b>x" not in page
    assert "&lt;b&gt;x" in page


def test_what_cannot_be_put_side_by_side_is_one_message(both, tmp_path):
    deep = both.results["deep"]
    for given, message in (
        ([], "none was given"),
        ([deep], "two folders or more with runs .*: .*deep holds runs"),
        ([deep, deep], "deep: is given twice"),
        ([deep, tmp_path / "gone"], "gone: there is no such folder"),
    ):
        with pytest.raises(StoreError, match=message):
            flowsim.side_by_side(*given)


def test_a_list_of_folders_is_refused_with_the_star_that_it_lacks(on_disk):
    folders = [on_disk / "deep", on_disk / "shallow"]
    with pytest.raises(TypeError, match=r"got list: .*write a star before a list"):
        flowsim.side_by_side(folders)
    flowsim.side_by_side(*folders)


def test_results_that_were_opened_are_taken_as_paths_are(on_disk, both):
    read = flowsim.side_by_side(on_disk / "deep", flowsim.open_results(on_disk / "shallow"))
    assert str(read) == str(both)
    assert repr(read) == "SideBySide(deep, 3 runs; shallow, 3 runs)"


class TestReport:
    """The command line, on made-up runs."""

    @pytest.fixture
    def reported(self, two, monkeypatch):
        """Return a function that reports the folders without figures, which take a while."""
        document, beside = (importlib.import_module(f"flowsim.report.{name}") for name in ("document", "side_by_side"))
        for module, name in (
            (document, "trajectories_figures"),
            (document, "sweep_figures"),
            (beside, "figures_of_folders"),
        ):
            monkeypatch.setattr(module, name, lambda found: {})
        return lambda *more: cli.main(["report", *map(str, more or two)])

    def test_the_page_lies_beside_the_index_that_leads_to_it(self, two, tmp_path, reported, capsys):
        assert reported() == 0
        assert f"wrote {tmp_path}/side_by_side/report.html" in capsys.readouterr().out.replace("\n", "")
        page = (tmp_path / "side_by_side" / "report.html").read_text(encoding="utf-8")
        assert 'href="../deep/report.html"' in page
        index = (tmp_path / "index.html").read_text(encoding="utf-8")
        assert 'href="side_by_side/report.html"' in index
        summary = json.loads((tmp_path / "side_by_side" / "summary.json").read_text())["side_by_side"]
        assert summary["differences"] == {"network.depth": {"deep": 10, "shallow": 5}}
        ends = [(run["folder"], run["learning_rate"]) for run in summary["runs"]]
        assert ends == [(folder, rate) for folder in ("deep", "shallow") for rate in (None, 0.02, 0.1)]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (["deep", "--out", "both"], "--out: is for the page of two folders or more with runs; found 1"),
            (["deep", "deep"], "is given twice"),
            (["deep", "shallow", "--out", "full"], "holds something else than runs side by side"),
        ],
    )
    def test_what_cannot_be_reported_is_refused_before_anything_is_written(
        self, two, tmp_path, monkeypatch, capsys, given, message
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("mine")
        before = files(tmp_path)
        assert cli.main(["report", *given]) == 2
        assert message in capsys.readouterr().err
        assert files(tmp_path) == before

    @pytest.mark.slow
    def test_an_index_groups_results_of_other_problems_and_a_second_time_all_is_made_again(
        self, two, tmp_path, reported
    ):
        other = stored(tmp_path / "mlp", scenario=with_keys(network={"kind": "mlp"}))
        reported(*two, other)
        index = (tmp_path / "index.html").read_text(encoding="utf-8")
        words = ("residual on gaussian", ">deep<", ">shallow<", "mlp on gaussian", ">mlp<")
        places = [index.index(word) for word in words]
        assert places == sorted(places)
        before = files(tmp_path)
        assert reported(*two, other, tmp_path / "side_by_side") == 0
        assert files(tmp_path) == before

    @pytest.mark.slow
    def test_folders_in_several_places_have_a_page_only_where_asked(self, tmp_path, two, reported, capsys):
        far = shutil.copytree(two[1], tmp_path / "far" / "shallow")
        before = {path.name for path in tmp_path.iterdir()}
        assert reported(two[0], far) == 0
        assert "say where with --out DIR" in capsys.readouterr().out
        assert {path.name for path in tmp_path.iterdir()} == before
        assert reported(two[0], far, "--out", tmp_path / "here" / "both") == 0
        assert (tmp_path / "here" / "both" / "report.html").exists()
        assert not (tmp_path / "side_by_side").exists()

    @pytest.mark.slow
    def test_a_sweep_among_runs_is_reported_by_itself_and_said_to_be(self, two, tmp_path, reported, capsys):
        ResultFolder(tmp_path / "grid").write_dataset(made_sweep(), "sweep.nc")
        assert reported(*two, tmp_path / "grid") == 0
        remark = "grid: its sweep is not put side by side, and stands in its own report"
        assert remark in " ".join(capsys.readouterr().out.split())
        assert remark in (tmp_path / "side_by_side" / "report.html").read_text(encoding="utf-8")
        assert (tmp_path / "grid" / "report.html").exists()
        assert reported(two[0], tmp_path / "grid") == 0
        assert "nothing is put side by side: of 2 folders 1 hold runs" in capsys.readouterr().out
