"""Results that somebody else made: nothing in them is run, and whatever is wrong in them is said in one message."""

import os
import sys
from functools import cache

import pytest
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


@cache
def stored():
    return made_comparison([0.1]).to_dataset()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of made-up results, in a folder where the process is."""
    monkeypatch.chdir(tmp_path)
    for known in [name for name in sys.modules if name in ("evil", "pm") or name.startswith("pm.")]:
        monkeypatch.delitem(sys.modules, known)
    ResultFolder(tmp_path / "pm").write_dataset(stored())
    return tmp_path / "pm"


def with_scenario(folder, **keys):
    (folder / "scenario.yaml").write_text(yaml.safe_dump({"scenario": keys}))


def with_data(folder, change):
    """Write the data set of the results again as `change` leaves it."""
    change(stored()).to_netcdf(folder / "trajectories.nc", engine="h5netcdf")


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
def test_a_report_leaves_out_what_is_not_trusted_and_takes_no_name_for_an_instruction(folder, monkeypatch, capsys):
    (folder / "evil.py").write_text(EVIL)
    with_scenario(folder, figure="evil:F")
    with_data(folder, lambda stored: stored.assign_coords(dynamics=("run", ["gradient_flow", "[/link]"])))
    folder = folder.rename(folder.with_name("pm\x1b[31m[bold]"))
    monkeypatch.syspath_prepend(folder)
    assert report(folder) == 0
    printed = capsys.readouterr().out
    assert "left out" in " ".join(printed.split())
    assert "\x1b" not in printed
    assert "[/link]" in printed
    assert "[bold]" in printed
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


@pytest.mark.parametrize("content", ["hello", "{figure: [1, [2]]}", "[" * 500], ids=["a word", "lists", "brackets"])
def test_a_scenario_that_is_none_is_said_to_be_damaged(folder, capsys, content):
    (folder / "scenario.yaml").write_text(f"scenario: {content}")
    assert report(folder) == 2
    error = capsys.readouterr().err
    assert error.startswith("flowsim: ")
    assert "one of ," not in error
    with pytest.raises(StoreError, match=r"scenario\.yaml"):
        str(flowsim.open_results(folder))


def test_a_summary_of_brackets_is_damaged(folder):
    (folder / "summary.json").write_text("[" * 200_000)
    with pytest.raises(StoreError, match="damaged"):
        _ = flowsim.open_results(folder).summary


WRONG = {
    "an outcome without a meaning": lambda stored: stored.assign(outcome=stored["outcome"] * 0 + 99),
    "more records than there are": lambda stored: stored.assign(records=stored["records"] + 10**6),
    "no risk": lambda stored: stored.drop_vars("risk"),
    "a learning rate of zero": lambda stored: stored.assign_coords(learning_rate=stored["learning_rate"] * 0),
    "a bound in words": lambda stored: stored.assign_attrs(critical_learning_rate="large"),
    "a curvature that steers a terminal": lambda stored: stored.assign_coords(
        threshold_of=("run", ["sharpness", "\x1b[2J"])
    ),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_legible_data_that_are_wrong_are_refused_in_words(folder, capsys, change):
    with_data(folder, change)
    assert report(folder) == 2
    error = capsys.readouterr().err
    assert "trajectories.nc: holds what flowsim does not write" in error
    assert "\x1b" not in error
    with pytest.raises(StoreError, match="does not write"):
        flowsim.open_results(folder)
