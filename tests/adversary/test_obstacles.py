"""What cannot be written is found before anything is computed: one message, exit code 2, everything left as it was."""

import os
from importlib import import_module

import pytest
from scenario_texts import TINY

import flowsim
from flowsim import cli
from flowsim.results import StoreError
from flowsim.results.store import refuse_obstacles, result_folder
from flowsim.runtime.errors import UserError

# Not by their names, which may be those of functions too.
RUN = import_module("flowsim.cli.run")


def a_file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def a_folder(path):
    path.mkdir(parents=True)


def a_link_to_nowhere(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("nowhere")


def everything_in(folder):
    return {path: path.read_bytes() if path.is_file() else os.path.islink(path) for path in folder.rglob("*")}


OBSTACLES = {
    "out/tiny": (a_file, "is a file; files need a folder"),
    "out": (a_link_to_nowhere, "is a link that leads nowhere; files need a folder"),
    "out/tiny/figures": (a_file, "is a file; files need a folder"),
    "out/tiny/.lock": (a_folder, "is a folder in the place of a file"),
    "out/tiny/summary.json": (a_folder, "is a folder in the place of a file; remove it, or use another --out"),
    "out/tiny/figures/sharpness.png": (a_folder, "is a folder in the place of a file"),
    "out/tiny/figures/": (a_link_to_nowhere, "is a link that leads nowhere; files need a folder: use another --out"),
    "out/.blocks": (a_link_to_nowhere, "is a link that leads nowhere"),
    "out/.blocks/ab": (a_file, "is in the place of a folder of blocks; remove it, or use another --out"),
    "out/.blocks/ab/0.block": (a_folder, "is a folder in the place of a block; remove it, or use another --out"),
}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Return a function that runs a scenario and returns its one message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RUN, "run", lambda *_, **__: pytest.fail("it computed"))

    def run(name="tiny", *options):
        (tmp_path / f"{name}.yaml").write_text(TINY + ("sweep: {}" if "sweep" in options else ""))
        before = everything_in(tmp_path)
        code = cli.main([f"{name}.yaml", "--out", "out", "--jobs", "1"])
        error = capsys.readouterr().err
        assert (code, error.count("\n")) == (2, 1), error
        assert everything_in(tmp_path) == before
        return error

    return run


@pytest.mark.parametrize("place", OBSTACLES)
def test_what_is_in_the_place_of_results_is_refused_before_anything_is_computed(tmp_path, refused, place):
    make, message = OBSTACLES[place]
    make(tmp_path / place)
    assert f"{place.rstrip('/')}: {message}" in refused("tiny", "sweep")


def test_a_folder_for_figures_without_permission_is_refused_before_anything_is_computed(tmp_path, monkeypatch, refused):
    a_folder(tmp_path / "out/tiny/figures")
    access = os.access  # which is given to root always
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "figures" and access(path, mode))
    assert "out/tiny/figures: no permission to write there; use another --out" in refused()


def test_no_scenario_has_its_results_among_the_blocks(refused):
    assert ".blocks: is the folder of the blocks of sweeps; give the scenario file another name" in refused(".blocks")


def test_stored_results_that_cannot_be_written_again_are_refused_before_anything_is_drawn(tmp_path, capsys):
    import xarray

    result_folder(tmp_path, "tiny", {}).write_dataset(xarray.Dataset({"risk": 1.0}))
    a_file(tmp_path / "tiny" / "figures")
    assert cli.main(["report", str(tmp_path / "tiny")]) == 2
    printed, error = capsys.readouterr()
    assert printed == ""
    assert "figures: is a file; files need a folder" in error


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path):
    a_link_to_nowhere(tmp_path / "summary.json")
    refuse_obstacles(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "figures/sharpness.png"])
def test_results_that_no_scenario_made_are_not_overwritten_unasked(tmp_path, refused, name):
    a_file(tmp_path / "out" / "tiny" / name)
    before = everything_in(tmp_path / "out")
    assert f"holds other results, which no scenario made ({name} is there)" in refused()
    assert everything_in(tmp_path / "out") == before
    assert result_folder(tmp_path / "out", "tiny", {}, overwrite=True).holds_other_results


@pytest.mark.parametrize("words", [["tiny.yaml", "--out"], ["check"], ["report"], ["new", "residual", "--to"]])
@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_text_that_is_no_path_is_refused_and_is_not_the_current_folder(tmp_path, monkeypatch, capsys, words, path):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, path]) == 2
    error = capsys.readouterr().err
    assert ("the path is empty" if not path else "found a null character") in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_python_refuses_a_text_that_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"the path is empty; .* write \. for the current folder"):
        flowsim.open_results("")
    with pytest.raises(StoreError, match="holds none of"):
        flowsim.open_results(".")
