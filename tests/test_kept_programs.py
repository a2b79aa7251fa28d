"""Compiled programs are kept from run to run: the same results, sooner, and only where that was seen to be safe."""

import os
import subprocess
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

import jax
import pytest

from flowsim.cli import kept_programs
from flowsim.cli.kept_programs import keep_programs
from flowsim.cli.run import run_scenarios

DESCENT = """
import jax
jax.config.update("jax_enable_x64", True)
import flowsim
from flowsim.cli.kept_programs import keep_programs

keep_programs()
run = flowsim.descend(jax.numpy.ones(2), flowsim.Risk(lambda w: (w**4).sum()), learning_rate=0.01, steps=50)
print(run.risk.tolist())
"""


@pytest.fixture
def kept_in(monkeypatch, tmp_path):
    """Return where programs are to be kept, in a list: nothing is done about it."""
    folders = []
    monkeypatch.setattr(kept_programs, "keep_programs_in", folders.append)
    monkeypatch.setattr(kept_programs.platformdirs, "user_cache_path", lambda *_, **__: tmp_path)
    before = jax.config.jax_enable_compilation_cache, jax.config.jax_compilation_cache_dir
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    yield folders
    jax.config.update("jax_enable_compilation_cache", before[0])
    jax.config.update("jax_compilation_cache_dir", before[1])


def program_name(number):
    """The name that JAX gives a program."""
    return f"jit_run-{number:064x}-cache"


@pytest.fixture
def trial_says(monkeypatch):
    """Return a function that replaces the trial by what it is to say of each task, and a list of the tasks asked."""
    asked = []

    def says(**outputs):
        monkeypatch.setattr(kept_programs, "_output_of_trial", lambda _, task: asked.append(task) or outputs[task])
        return asked

    return says


@pytest.mark.slow
def test_a_second_run_loads_what_the_first_compiled_and_compiles_again_what_is_damaged(tmp_path, quick_environment):
    own = {"JAX_ENABLE_COMPILATION_CACHE": "true", "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def run():
        command = [sys.executable, "-c", DESCENT]
        done = subprocess.run(command, env=quick_environment | own, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    first = run()
    (tried,) = tmp_path.rglob("programs/*/tried")
    assert tried.read_text() == "safe\n"
    programs = sorted(set(tried.parent.iterdir()) - {tried})
    assert len(programs) > 5
    for path in programs[::2]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert run() == first
    assert sorted(set(tried.parent.iterdir()) - {tried}) == programs


def test_the_command_line_keeps_programs(kept_in, trial_says, monkeypatch):
    trial_says(keep="1.0", load="1.0")
    monkeypatch.setattr("flowsim.cli.run.read_jobs", lambda options: [])
    monkeypatch.setattr("flowsim.cli.run.run_all", lambda jobs, pool: 0)
    run_scenarios(Namespace(device=None))
    assert len(kept_in) == 1


def test_nothing_is_kept_where_programs_were_not_what_they_had_been(kept_in, trial_says):
    asked = trial_says(keep="1.0", load="2.0")
    for _ in range(2):
        keep_programs()
    assert kept_in == []
    assert asked == ["keep", "load"]  # once for all runs


def test_nothing_is_kept_where_loading_a_program_crashes(kept_in, monkeypatch, tmp_path):
    crashing = tmp_path / "crashing.py"
    crashing.write_text("import os, sys\nprint('1.0', flush=True)\nif sys.argv[2] == 'load':\n    os.abort()\n")
    monkeypatch.setattr(kept_programs, "_TRIAL", crashing)
    keep_programs()
    assert kept_in == []


def test_a_trial_that_ends_too_late_is_made_again(kept_in, trial_says, monkeypatch):
    def late(folder, task):
        raise subprocess.TimeoutExpired("trial", 60)

    monkeypatch.setattr(kept_programs, "_output_of_trial", late)
    keep_programs()
    assert kept_in == []
    trial_says(keep="1.0", load="1.0")
    keep_programs()
    assert len(kept_in) == 1


def test_a_user_who_tells_jax_where_to_keep_programs_decides(kept_in, trial_says, tmp_path):
    asked = trial_says(keep="1.0", load="1.0")
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    keep_programs()
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    keep_programs()
    assert asked == kept_in == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner here")
def test_a_folder_that_others_can_write_to_or_that_cannot_be_made_is_not_used(
    kept_in, trial_says, monkeypatch, tmp_path
):
    trial_says(keep="1.0", load="1.0")
    folder = tmp_path / "programs"
    folder.write_text("a file")
    keep_programs()
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    keep_programs()
    assert kept_in == []
    folder.chmod(0o700)
    keep_programs()
    assert len(kept_in) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept_programs.platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/flowsim"))
    keep_programs()
    assert len(kept_in) == 1
    assert not Path("~").exists()


def test_the_older_half_is_removed_where_too_much_is_kept(kept_in, trial_says, monkeypatch, tmp_path):
    trial_says(keep="1.0", load="1.0")
    keep_programs()
    foreign = [kept_in[0] / "holiday.mp4", tmp_path / "programs" / "videos" / program_name(9)]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000))
    for age in range(6):
        path = kept_in[0] / program_name(age)
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age, 1e9 - age))
    keep_programs()
    assert len(list(kept_in[0].iterdir())) == 8
    monkeypatch.setattr(kept_programs, "_remove_oldest", partial(kept_programs._remove_oldest, most_bytes=500))
    keep_programs()
    left = {path.name for path in kept_in[0].iterdir()}
    assert left == {"tried", "holiday.mp4", program_name(0), program_name(1)}
    assert all(path.exists() for path in foreign)
    (kept_in[0] / "tried").write_bytes(b"\xff")  # a damaged note of the trial
    kept_in.clear()
    keep_programs()
    assert kept_in == []
