"""A reader of the output who goes away takes nothing of the work along: the results are files."""

import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import pytest
from made_runs import made_comparison
from scenario_texts import TINY

from flowsim import cli
from flowsim.results import ResultFolder

# Not by their names, which may be those of functions too.
RUN = import_module("flowsim.cli.run")


@contextmanager
def closed_output(monkeypatch):
    """Have this process print into a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        yield


@pytest.mark.parametrize("codes", [(1, 0), (0, 1)])
def test_all_scenarios_are_run_and_the_exit_code_is_theirs(tmp_path, monkeypatch, codes):
    done = []

    def computed(scenario, *_, **__):
        RUN.Terminal().print("a run begins")

    def reported(folder, name, written, console):
        console.print("a table")
        done.append(name)
        results = SimpleNamespace(folder=folder.path, scenario={}, asked_figures=())
        return SimpleNamespace(complete=not codes[len(done) - 1], results=results, warnings=(), panels={}, figures={})

    monkeypatch.setattr(RUN, "run", computed)
    monkeypatch.setattr(RUN, "report", reported)
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(TINY)
    with closed_output(monkeypatch):
        code = cli.main([*(str(tmp_path / f"{name}.yaml") for name in "ab"), "--out", str(tmp_path / "out")])
    assert code == max(codes)
    assert done == ["a", "b"]


def test_a_pipe_that_breaks_elsewhere_is_not_taken_for_the_end_of_the_work(tmp_path, monkeypatch, capsys):
    def breaks(jobs, pool):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(RUN, "run_all", breaks)
    (tmp_path / "a.yaml").write_text(TINY)
    assert cli.main([str(tmp_path / "a.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "Broken pipe" in capsys.readouterr().err


def test_the_schema_may_be_read_in_part(monkeypatch):
    monkeypatch.setattr("flowsim.scenarios.scenario_json_schema", dict)
    with closed_output(monkeypatch):
        code = cli.main(["--schema"])
    assert code == 0


@pytest.mark.slow
def test_a_reader_who_goes_away_leaves_all_files_and_the_exit_code(tmp_path, quick_environment):
    ResultFolder(tmp_path / "a").write_dataset(made_comparison([0.1]).to_dataset())
    line = f"{sys.executable} -m flowsim report a | true; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=quick_environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "a" / "report.html").exists()
    assert list((tmp_path / "a" / "figures").iterdir())


@pytest.mark.parametrize(
    ("words", "ends"),
    [(words, "2>&1 | true") for words in ("nonsense", "--nonsense", "report nowhere", "new nothing")]
    + [("nonsense", ends) for ends in (">&- 2>&- <&-", "2>/dev/full")],
)
def test_an_error_of_usage_has_its_exit_code_where_nobody_reads_its_message(tmp_path, quick_environment, words, ends):
    command = f"(sleep 0.2; {sys.executable} -m flowsim {words}; echo $? > code) {ends}"
    line = f"{command}; while [ ! -s code ]; do sleep 0.1; done"
    buffered = quick_environment | {"PYTHONUNBUFFERED": ""}
    options = {"cwd": tmp_path, "env": buffered, "capture_output": True, "text": True, "timeout": 60}
    run = subprocess.run(["bash", "-c", line], check=False, **options)
    assert ((tmp_path / "code").read_text(), run.stdout, run.stderr) == ("2\n", "", "")


def test_help_that_a_full_disk_cuts_off_is_an_error(quick_environment):
    buffered = quick_environment | {"PYTHONUNBUFFERED": ""}
    line = f"{sys.executable} -m flowsim --help >/dev/full"
    run = subprocess.run(["bash", "-c", line], env=buffered, capture_output=True, text=True, check=False)
    assert run.stderr == "flowsim: output: No space left on device; use another file or folder\n"
