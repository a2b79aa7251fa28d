"""Compiled programs that outlive the process."""

import os
import subprocess
import sys

import pytest

SCENARIO = "data: {kind: gaussian, samples: 20, features: 3}\nnetwork: {kind: mlp, depth: 3, scale: 0.5}\n"
INHERITED = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}


def run(folder, home):
    """Run a scenario for somebody with this home, and return the trajectories."""
    (folder / "small.yaml").write_text(SCENARIO)
    command = [sys.executable, "-m", "flowsim", str(folder / "small.yaml"), "--out", str(folder / "out")]
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "MPLCONFIGDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=INHERITED | places, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    return (folder / "out" / "small" / "trajectories.nc").read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def first(folder):
    return run(folder, folder / "home")


def kept_programs(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "home").rglob("*-cache")}


def test_a_second_run_finds_the_programs_of_the_first_and_gives_the_same(folder, first):
    before = kept_programs(folder)
    assert any("begin" in path.name for path in before)
    assert run(folder, folder / "home") == first
    assert kept_programs(folder) == before


def test_damaged_programs_are_compiled_again_without_a_word(folder, first):
    for path in kept_programs(folder):
        path.write_bytes(path.read_bytes()[:100])
    assert run(folder, folder / "home") == first


def test_where_nothing_can_be_kept_all_is_compiled(folder, first):
    (folder / "no folder").write_text("")
    assert run(folder, folder / "no folder") == first


def test_importing_flowsim_keeps_nothing():
    program = "import flowsim, jax; print(jax.config.values['jax_compilation_cache_dir'])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, env=INHERITED, check=True).stdout == "None\n"
