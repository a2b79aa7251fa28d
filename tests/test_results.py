"""What a run leaves can be read back, and drawn again without computing, to the last byte."""

import importlib
import shutil
import sys

import jax
import pytest
import xarray
from made_runs import files, made_comparison, write_without_figures

import flowsim
from flowsim import cli
from flowsim.results import ResultFolder, StoreError, theory_from_dataset, theory_to_dataset

SCENARIO = """
seed: 1
data: {kind: gaussian, samples: 12, features: 2}
network: {kind: mlp, depth: 2, scale: 0.5}
flow: {solver: Tsit5}
descent: {learning_rates: [0.05], steps: 20}
sharpness: false
theory: {subjects: [conservation], repetitions: 1}
lemma_3: {deviations: [1.0], scales: [0.5], widths: [2], depths: [2], initializations: 4}
sweep:
  over: {network.scale: [0.4, 0.8]}
  descent: [{learning_rates: [0.05], steps: 20}]
figure: flowsim.papers.marion_chizat_2024:Figure3
"""
MINE = """
from flowsim.report import Claim, Figure


class Mine(Figure):
    name = "mine"

    def claims(self, results):
        count = results.trajectories.sizes["run"]
        return [Claim("there are runs", "more than one", f"{count}", count > 1, {"runs": count})]

    def draw(self, results):
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing()
        data = results.trajectories
        drawing.subplots().plot(data["time"].isel(run=0), data["risk"].isel(run=0))
        return drawing
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of a scenario with runs, theory, and a sweep that is drawn as a figure of the paper."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "paper.yaml").write_text(SCENARIO)
    assert cli.main([str(folder / "paper.yaml"), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder / "out" / "paper"


@pytest.fixture
def nothing_computes(monkeypatch):
    """Let every computation of a run, and of a sharpness, fail."""

    def refuse(*arguments, **options):
        raise AssertionError("something was computed")

    for name in ("dynamics.trajectory.sharpness", "theory.path.integrate"):
        monkeypatch.setattr(f"flowsim.{name}", refuse)
    for name in ("integrate", "descend"):  # of the module, not of the function of its name
        monkeypatch.setattr(importlib.import_module("flowsim.comparison.execute"), name, refuse)
    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)


@pytest.mark.slow
def test_redrawn_results_are_the_same_to_the_last_byte(place, tmp_path, nothing_computes, capsys):
    again = shutil.copytree(place, tmp_path / "paper")
    made = [path for path in again.rglob("*") if path.suffix in (".png", ".pdf", ".json")]
    for path in made:
        path.unlink()
    assert cli.main(["report", str(again)]) == 0
    assert len(made) > 3
    assert files(again) == files(place)
    assert f"wrote {again}/summary.json" in capsys.readouterr().out


@pytest.mark.slow
def test_opened_results_hold_scenario_summary_and_data_sets_that_say_what_each_array_is(place):
    results = flowsim.open_results(place)
    assert results.scenario["network"].items() >= {"kind": "mlp", "depth": 2, "scale": 0.5}.items()
    assert results.environment["jax"] == jax.__version__
    assert results.summary["flow"]["outcome"] == "CONVERGED"
    assert results.summary["claims"][0]["holds"] in (True, False)
    assert results.trajectories.sizes["run"] == 2
    assert results.sweep.sizes == {"scale": 2, "repetition": 1, "run": 2}
    for dataset in (results.trajectories, results.sweep, results.theory):
        for name in dataset.variables:
            assert dataset[name].attrs["long_name"], name
            assert dataset[name].attrs["units"] == "1", name
    theory = theory_from_dataset(results.theory)
    assert (len(theory.flows), len(theory.large_products)) == (1, 1)
    series = [one for flow in theory.flows for one in flow.statements if one.times is not None]
    assert "Lemma 1" in {one.name for one in series}
    assert all(one.smaller.shape == one.times.shape for one in series)
    xarray.testing.assert_identical(theory_to_dataset(theory, results.theory.attrs), results.theory)


def test_a_folder_that_holds_no_results_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["report"])
    assert "DIR" in capsys.readouterr().err
    (tmp_path / "file").touch()
    for name, message in {
        "absent": "absent: there is no such folder",
        "file": "file: is a file",
        ".": "holds none of trajectories.nc, sweep.nc, theory.nc",
    }.items():
        assert cli.main(["report", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def stored(tmp_path):
    """The folder of made-up runs that a scenario asked a figure of a module that is not there."""
    place = ResultFolder(tmp_path / "made")
    place.write_dataset(made_comparison([0.1]).to_dataset())
    place.write_scenario({"seed": 0, "figure": ["no_such_module:Mine"]}, {})
    return place.path


def test_an_error_in_flowsim_is_not_blamed_on_the_folder(stored, monkeypatch, capsys):
    errors = [TypeError("of flowsim"), ValueError("of flowsim")]

    def fail(*arguments):
        raise errors.pop(0)

    monkeypatch.setattr(flowsim.report, "document", fail)
    with pytest.raises(TypeError, match="of flowsim"):  # no value in a folder that was read causes it
        cli.main(["report", str(stored)])
    assert cli.main(["report", str(stored)]) == 2
    assert "cannot be reported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damage"),
    [("trajectories.nc", b"\x89HDF\r\n\x1a\n" + bytes(99)), ("theory.nc", b"no netCDF"), ("scenario.yaml", b"5")],
)
def test_a_damaged_file_is_one_message_and_changes_nothing(stored, capsys, name, damage):
    (stored / name).write_bytes(damage)
    before = files(stored)
    assert cli.main(["report", str(stored)]) == 2
    error = capsys.readouterr().err
    assert f"{name}: is damaged" in error
    assert error.count("\n") == 1
    assert files(stored) == before


def test_a_damaged_summary_and_a_figure_that_is_gone_are_named(stored, capsys):
    (stored / "summary.json").write_text("{")
    results = flowsim.open_results(stored)
    with pytest.raises(StoreError, match=r"summary\.json: is damaged"):
        _ = results.summary
    assert results.left_out == ("no_such_module:Mine",)  # what it names is not imported
    assert cli.main(["report", "--trust", str(stored)]) == 2
    assert "scenario.yaml: figure: found 'no_such_module:Mine', but no module" in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_of_a_user_needs_no_sweep_and_is_drawn_again_from_its_results(stored, monkeypatch, capsys):
    (stored / "my_drawings.py").write_text(MINE)
    monkeypatch.syspath_prepend(stored)
    ResultFolder(stored).write_scenario({"seed": 0, "figure": ["my_drawings:Mine"]}, {})
    assert cli.main(["report", "--trust", str(stored)]) == 0
    assert "there are runs" in capsys.readouterr().out
    before = files(stored)
    assert {"figures/mine.png", "figures/sharpness.png"} <= set(before)
    (claim,) = flowsim.open_results(stored).summary["claims"]
    assert (claim["claim"], claim["holds"], claim["numbers"]) == ("there are runs", True, {"runs": 2.0})
    assert cli.main(["report", "--trust", str(stored)]) == 0
    assert files(stored) == before
    monkeypatch.delitem(sys.modules, "my_drawings")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, which is not the working directory; nothing may be left in the latter."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(elsewhere)
    yield home
    assert not list(elsewhere.iterdir())


def test_a_tilde_is_the_home_folder_wherever_python_is_given_a_path(home):
    both = made_comparison([0.1, 0.4])
    write_without_figures(both.to_dataset(), home / "stored")
    flowsim.open_results("~/stored").save("~/copy")
    flowsim.slider("~/stored", "~/slider.html")
    bowl = flowsim.Risk(lambda w: w**2)
    flowsim.descend(jax.numpy.ones(()), bowl, learning_rate=0.1, steps=2, checkpoint="~/checkpoint", sharpness=False)
    names = {"stored", "copy", "slider.html", "checkpoint"}
    assert {path.name for path in home.iterdir()} == names
    (home / "x.csv").write_text("a,y\n1,0\n2,1\n3,0\n")
    assert flowsim.data.read_table("~/x.csv", "y")[0].shape == (3, 1)
    (home / "s.yaml").write_text("data: {kind: labelled, path: ~/x.csv}\nnetwork: {kind: mlp, depth: 1, scale: 1}\n")
    scenario = flowsim.scenarios.read_scenario("~/s.yaml")
    assert scenario.data.path == str(home / "x.csv")
    with pytest.raises(StoreError, match="home/none: there is no such folder"):
        flowsim.open_results("~/none")


@pytest.mark.slow
def test_a_tilde_is_the_home_folder_on_the_command_line_and_for_sweeps(home, capsys):
    (home / "x.csv").write_text("a,b,y\n" + "".join(f"{i},{i * i % 5},{i % 3}\n" for i in range(9)))
    data, network = "data: {kind: file, path: ~/x.csv, target: y}", "network: {kind: mlp, depth: 1, scale: 0.5}"
    (home / "s.yaml").write_text(f"{data}\n{network}\nflow: {{t1: 0.01}}\n")
    assert cli.main(["~/s.yaml", "--out=~/out"]) == 0
    assert cli.main(["report", "~/out/s"]) == 0
    assert cli.main(["check", "~/s.yaml"]) == 0
    assert cli.main(["new", "residual", "--to=~/new.yaml"]) == 0
    make = jax.numpy.asarray
    flowsim.sweep(lambda a: make(a), flowsim.Risk(lambda w: w**2), {"a": [1.0]}, t1=0.01, folder="~/swept")
    flowsim.side_by_side("~/out/s", flowsim.open_results("~/out/s").save("~/copy")[0].parent).save("~/together")
    made_comparison([0.1]).flow.save("~/run")
    assert {"out", "swept", "new.yaml", "copy", "together", "run"} <= {path.name for path in home.iterdir()}
