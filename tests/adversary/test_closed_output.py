"""A reader of the output who goes away takes nothing of the work along: the results are files."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import pytest

from flowsim import cli

# Not by their names, which may be those of functions too.
RUN = import_module("flowsim.cli.run")
SCENARIO = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
"""


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

    def found(scenario, *_, **__):
        RUN.Terminal().print("a run begins")

    def reported(folder, name, written, console):
        console.print("a table")
        done.append(name)
        results = SimpleNamespace(folder=folder.path, scenario={}, asked_figures=())
        return SimpleNamespace(complete=not codes[len(done) - 1], results=results, warnings=(), panels={}, figures={})

    monkeypatch.setattr(RUN, "run", found)
    monkeypatch.setattr(RUN, "store", lambda job, *found: [])
    monkeypatch.setattr(RUN, "report", reported)
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(SCENARIO)
    with closed_output(monkeypatch):
        code = cli.main([*(str(tmp_path / f"{name}.yaml") for name in "ab"), "--out", str(tmp_path / "out")])
    assert code == max(codes)
    assert done == ["a", "b"]


def test_a_pipe_that_breaks_elsewhere_is_not_taken_for_the_end_of_the_work(tmp_path, monkeypatch, capsys):
    def breaks(jobs, pool):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(import_module("flowsim.cli.run"), "run_all", breaks)
    (tmp_path / "a.yaml").write_text(SCENARIO)
    assert cli.main([str(tmp_path / "a.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "Broken pipe" in capsys.readouterr().err


def test_the_schema_may_be_read_in_part(monkeypatch):
    monkeypatch.setattr("flowsim.scenarios.scenario_json_schema", dict)
    with closed_output(monkeypatch):
        code = cli.main(["--schema"])
    assert code == 0


@pytest.mark.slow
def test_a_reader_of_one_line_leaves_all_files_and_the_exit_code(tmp_path, quick_environment):
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(SCENARIO)
    line = f"{sys.executable} -m flowsim a.yaml b.yaml --set flow.max_steps=1 | head -1; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=quick_environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (1, "")
    for name in "ab":
        summary = json.loads((tmp_path / "results" / name / "summary.json").read_text())
        assert summary["flow"]["outcome"] == "STEP_LIMIT"
