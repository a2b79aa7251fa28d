"""What a run leaves can be read back, and drawn again without computing, to the last byte."""

import importlib
import shutil
import sys

import jax
import pytest
from made_runs import made_comparison

import flowsim
from flowsim import cli
from flowsim.results import ResultFolder, StoreError, theory_from_dataset, theory_to_dataset

SCENARIO = """
seed: 1
data: {kind: gaussian, samples: 12, features: 2}
network: {kind: mlp, depth: 2, scale: 0.5}
flow: {solver: Tsit5}
descent: {learning_rates: [0.05, 5.0], steps: 50}
theory: {subjects: [conservation, minimizers], repetitions: 1}
lemma_3: {deviations: [1.0], scales: [0.5], widths: [3], depths: [3], initializations: 4}
sweep:
  over: {network.scale: [0.4, 0.8]}
  repetitions: 2
  descent: [{learning_rates: [0.05, 0.2], steps: 50}]
figure: flowsim.papers.marion_chizat_2024:Figure1
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


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
        monkeypatch.setattr(importlib.import_module("flowsim.comparison.compare"), name, refuse)
    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)


@pytest.mark.slow
def test_redrawn_results_are_the_same_to_the_last_byte(place, tmp_path, nothing_computes, capsys):
    again = shutil.copytree(place, tmp_path / "paper")
    made = [path for path in again.rglob("*") if path.suffix in (".png", ".pdf", ".json")]
    for path in made:
        path.unlink()
    assert cli.main(["report", str(again)]) == 0
    assert len(made) > 3
    assert content(again) == content(place)
    printed = capsys.readouterr().out
    assert f"wrote {again}/summary.json" in printed
    assert "converged" in printed


def test_an_error_in_flowsim_is_not_blamed_on_the_folder(tmp_path, monkeypatch, capsys):
    errors = [TypeError("of flowsim"), ValueError("of flowsim")]

    def fail(*arguments):
        raise errors.pop(0)

    made_comparison().save(tmp_path / "made")
    monkeypatch.setattr(flowsim.report, "document", fail)
    with pytest.raises(TypeError, match="of flowsim"):  # no value in a folder that was read causes it
        cli.main(["report", str(tmp_path / "made")])
    assert cli.main(["report", str(tmp_path / "made")]) == 2
    assert "cannot be reported" in capsys.readouterr().err


@pytest.mark.slow
def test_opened_results_hold_data_sets_scenario_and_summary_and_say_what_each_array_is(place):
    results = flowsim.open_results(place)
    assert results.scenario["network"].items() >= {"kind": "mlp", "depth": 2, "scale": 0.5}.items()
    assert results.environment["jax"] == jax.__version__
    assert results.summary["flow"]["outcome"] == "CONVERGED"
    assert results.summary["claims"][0]["holds"] in (True, False)
    assert results.trajectories.sizes["run"] == 3
    assert results.sweep.sizes == {"scale": 2, "repetition": 2, "run": 3}
    for dataset in (results.trajectories, results.sweep, results.theory):
        for name in dataset.variables:
            assert dataset[name].attrs["long_name"], name
            assert dataset[name].attrs["units"] == "1", name


@pytest.mark.slow
def test_the_theory_is_stored_as_it_was_found(place):
    import xarray

    stored = flowsim.open_results(place).theory
    found = theory_from_dataset(stored)
    assert (len(found.flows), len(found.large_products)) == (1, 1)
    series = [one for flow in found.flows for one in flow.statements if one.times is not None]
    assert "Lemma 1" in {one.name for one in series}
    assert all(one.smaller.shape == one.times.shape for one in series)
    xarray.testing.assert_identical(theory_to_dataset(found, stored.attrs), stored)


def test_a_folder_that_holds_no_results_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    for name, message in {
        "absent": "absent: there is no such folder; give the folder of one scenario's results",
        "file": "file: is a file; give the folder of one scenario's results",
        ".": "holds none of trajectories.nc, sweep.nc, theory.nc; give the folder",
    }.items():
        assert cli.main(["report", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def stored(tmp_path):
    """The folder of made-up runs that a scenario asked a figure of a module that is not there."""
    place = ResultFolder(tmp_path / "made")
    place.write_dataset(made_comparison([0.1, 3.0]).to_dataset())
    place.write_scenario({"seed": 0, "figure": ["no_such_module:Mine"]}, {})
    return place.path


@pytest.mark.parametrize(
    ("name", "damage"),
    [("trajectories.nc", b"\x89HDF\r\n\x1a\n" + bytes(99)), ("theory.nc", b"no netCDF"), ("scenario.yaml", b"5")],
)
def test_a_damaged_file_is_one_message_and_changes_nothing(stored, capsys, name, damage):
    (stored / name).write_bytes(damage)
    before = content(stored)
    assert cli.main(["report", str(stored)]) == 2
    said = capsys.readouterr().err
    assert f"{name}: is damaged" in said
    assert "run the scenario again" in said
    assert said.count("\n") == 1
    assert content(stored) == before


def test_a_damaged_summary_and_a_figure_that_is_gone_are_named(stored, capsys):
    (stored / "summary.json").write_text("{")
    found = flowsim.open_results(stored)
    with pytest.raises(StoreError, match=r"summary\.json: is damaged"):
        _ = found.summary
    assert found.left_out == ("no_such_module:Mine",)  # what it names is not imported
    assert cli.main(["report", "--trust", str(stored)]) == 2
    said = capsys.readouterr().err
    assert "scenario.yaml: figure: found 'no_such_module:Mine', but no module no_such_module" in said
    assert said.count("\n") == 1


def test_report_alone_asks_for_a_folder(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["report"])
    assert caught.value.code == 2
    assert "DIR" in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_of_a_user_needs_no_sweep_and_is_drawn_again_from_its_results(stored, monkeypatch, capsys):
    (stored / "my_drawings.py").write_text(MINE)
    monkeypatch.syspath_prepend(stored)
    ResultFolder(stored).write_scenario({"seed": 0, "figure": ["my_drawings:Mine"]}, {})
    assert cli.main(["report", "--trust", str(stored)]) == 0
    assert "there are runs" in capsys.readouterr().out
    before = content(stored)
    assert {"figures/mine.png", "figures/sharpness.png"} <= set(before)
    (claim,) = flowsim.open_results(stored).summary["claims"]
    assert claim == {
        "claim": "there are runs",
        "expected": "more than one",
        "measured": "3",
        "holds": True,
        "numbers": {"runs": 3.0},
    }
    assert cli.main(["report", "--trust", str(stored)]) == 0
    assert content(stored) == before
    monkeypatch.delitem(sys.modules, "my_drawings")
