"""Results that somebody else made: nothing in them is run, and whatever is wrong in them is said in one message."""

import os
import sys

import pytest
import xarray
import yaml
from made_runs import made_comparison

import flowsim
from flowsim import cli
from flowsim.results import ResultFolder, StoreError

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("it_ran").touch()
import flowsim.results, matplotlib.figure


class F(flowsim.results.Figure):
    name = "evil"

    def draw(self, results):
        return matplotlib.figure.Figure()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of made-up results, in a folder where the process is."""
    monkeypatch.chdir(tmp_path)
    for known in [name for name in sys.modules if name in ("evil", "pm") or name.startswith("pm.")]:
        monkeypatch.delitem(sys.modules, known)
    ResultFolder(tmp_path / "pm").write_dataset(made_comparison([0.1]).to_dataset())
    return tmp_path / "pm"


def with_scenario(folder, **keys):
    (folder / "scenario.yaml").write_text(yaml.safe_dump({"scenario": keys}))
    return folder


def with_data(folder, change):
    """Write the data set of the results again as `change` leaves it."""
    path = folder / "trajectories.nc"
    with xarray.open_dataset(path, engine="h5netcdf") as stored:
        changed = change(stored.load())
    path.unlink()
    changed.to_netcdf(path, engine="h5netcdf")
    return folder


def report(folder, *options):
    return cli.main(["report", str(folder), *options])


@pytest.mark.parametrize(("module", "inside"), [("evil", True), ("pm.evil", False), ("this", False)])
def test_what_results_ask_for_is_not_imported_unless_they_are_trusted(folder, monkeypatch, module, inside):
    (folder / "evil.py").write_text(EVIL)
    sys.modules.pop("this", None)  # of Python
    with_scenario(folder, figure=f"{module}:F")
    monkeypatch.syspath_prepend(folder if inside else folder.parent)
    results = flowsim.open_results(folder)
    assert "left out" in " ".join(str(results).split())
    assert results.left_out == (f"{module}:F",)
    assert not (folder / "it_ran").exists()
    assert "this" not in sys.modules
    if module != "this":
        assert "evil" in flowsim.open_results(folder, trust=True).figures()
        assert (folder / "it_ran").exists()


@pytest.mark.slow
def test_a_report_leaves_out_what_is_not_trusted_and_says_so(folder, monkeypatch, capsys):
    (folder / "evil.py").write_text(EVIL)
    with_scenario(folder, figure="evil:F")
    monkeypatch.syspath_prepend(folder)
    assert report(folder) == 0
    assert "left out" in " ".join(capsys.readouterr().out.split())
    assert "is left out" in (folder / "report.html").read_text(encoding="utf-8")
    assert not (folder / "it_ran").exists()
    assert report(folder, "--trust") == 0
    assert (folder / "figures" / "evil.png").exists()


def test_files_are_not_written_through_a_link(folder, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (folder / "figures").symlink_to(tmp_path / "elsewhere")
    assert report(folder) == 2
    assert "is a link" in capsys.readouterr().err
    assert not any((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["scenario.yaml", "trajectories.nc"])
def test_a_pipe_is_not_waited_for(folder, capsys, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert report(folder) == 2
    assert name in capsys.readouterr().err


SCENARIOS = {
    "hello": "scenario: hello",
    "figures in lists": "scenario: {figure: [1, [2]]}",
    "brackets": "scenario: " + "[" * 2000,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_that_is_none_is_said_to_be_damaged(folder, capsys, name):
    (folder / "scenario.yaml").write_text(SCENARIOS[name])
    assert report(folder) == 2
    said = capsys.readouterr().err
    assert said.startswith("flowsim: ")
    assert "one of ," not in said
    with pytest.raises(StoreError, match=r"scenario\.yaml"):
        str(flowsim.open_results(folder))


def test_a_summary_of_brackets_is_damaged(folder):
    (folder / "summary.json").write_text("[" * 200_000)
    with pytest.raises(StoreError, match="damaged"):
        _ = flowsim.open_results(folder).summary


def attribute(name, value):
    return lambda stored: stored.assign_attrs({name: value})


def variable(name, values):
    return lambda stored: stored.assign({name: values(stored)})


WRONG = {
    "an outcome without a meaning": variable("outcome", lambda stored: stored["outcome"] * 0 + 99),
    "more records than there are": variable("records", lambda stored: stored["records"] + 10**6),
    "no risk": lambda stored: stored.drop_vars("risk"),
    "a learning rate of zero": lambda stored: stored.assign_coords(learning_rate=stored["learning_rate"] * 0),
    "a bound in words": attribute("critical_learning_rate", "large"),
    "a curvature that steers a terminal": lambda stored: stored.assign_coords(
        threshold_of=("run", ["sharpness", "\x1b[2J"])
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_legible_data_that_are_wrong_are_refused_in_words(folder, capsys, name):
    with_data(folder, WRONG[name])
    assert report(folder) == 2
    said = capsys.readouterr().err
    assert "trajectories.nc: holds what flowsim does not write" in said
    assert "\x1b" not in said
    with pytest.raises(StoreError, match="does not write"):
        flowsim.open_results(folder)


@pytest.mark.slow
def test_names_are_not_taken_for_instructions(folder, capsys):
    with_data(folder, lambda stored: stored.assign_coords(dynamics=("run", ["gradient_flow", "[/link]"])))
    other = folder.rename(folder.with_name("pm\x1b[31m[bold]"))
    assert report(other) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "[/link]" in said
    assert "[bold]" in said
