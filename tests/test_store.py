"""Result files appear whole or not at all, and never among those of another scenario."""

import errno
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray
import yaml
from made_runs import files
from matplotlib.figure import Figure

from flowsim.report.style import Drawing
from flowsim.results.reading import read_dataset
from flowsim.results.store import StoreError, remove_temporaries, result_folder, write_atomically

SCENARIO = {
    "seed": 0,
    "network": {"kind": "mlp", "scale": 1e-3},
    "flow": {"t1": math.inf},
    "rates": (0.1, 0.2),
}
OTHER = SCENARIO | {"network": {"kind": "mlp", "scale": 0.5}}
ENVIRONMENT = {"versions": {"jax": "0.10"}, "device": "cpu"}


def write_all(results):
    results.write_scenario(SCENARIO, ENVIRONMENT)
    results.write_summary({"risk": 0.5})
    results.write_dataset(xarray.Dataset({"risk": ("time", np.linspace(0.0, 1.0, 5))}, {"time": np.arange(5.0)}))
    (results.path / "figures").mkdir(exist_ok=True)
    (results.path / "figures" / "risk.png").write_bytes(b"drawn")  # a real one takes long


def figure():
    drawn = Figure(figsize=(2, 2))
    drawn.subplots().plot([0, 1], [1, 0], label="η")
    return drawn


def interrupt(path: Path) -> None:
    path.write_text("half")
    raise KeyboardInterrupt


def fill_disk(path: Path) -> None:
    path.write_text("half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_file_appears_under_its_name_and_a_hidden_one_with_its_suffix_before(tmp_path):
    path = tmp_path / "deep" / "er" / ("long" * 60 + ".json")

    def write(temporary: Path) -> None:
        assert (temporary.parent, temporary.suffix) == (path.parent, ".json")
        assert temporary.name.startswith(".")
        temporary.write_text("{}")

    assert write_atomically(path, write) == path
    assert files(tmp_path) == {str(path.relative_to(tmp_path)): b"{}"}


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [(interrupt, KeyboardInterrupt, None), (fill_disk, StoreError, "a.json: .*No space .*make room")],
)
def test_a_broken_write_leaves_the_older_file_as_it_was_and_no_new_folder(tmp_path, write, error, message):
    (tmp_path / "a.json").write_text("old")
    for path in (tmp_path / "a.json", tmp_path / "results" / "mlp" / "a.json"):
        with pytest.raises(error, match=message):
            write_atomically(path, write)
        assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
    assert files(tmp_path) == {"a.json": b"old"}


def test_a_new_run_clears_away_what_a_killed_one_left_half_written(tmp_path):
    results = result_folder(tmp_path, "mlp", SCENARIO)
    write_all(results)
    before = files(tmp_path)
    left = [".sweep-0123456789abcdef.nc", "figures/.risk-0123456789abcdef.png", ".lock"]
    for name in left:
        (tmp_path / "mlp" / name).write_text("half")
    (tmp_path / "mlp" / ".my-notes.txt").write_text("mine")
    with results.locked():
        pass
    assert files(tmp_path) == before | {"mlp/.my-notes.txt": b"mine"}


def test_a_folder_that_is_at_work_is_refused_and_free_again_afterwards(tmp_path):
    with result_folder(tmp_path, "mlp", SCENARIO).locked():
        with (
            pytest.raises(StoreError, match="mlp: another run is at work there"),
            result_folder(tmp_path, "mlp", SCENARIO).locked(),
        ):
            pass
        assert (tmp_path / "mlp" / ".lock").exists()
    with result_folder(tmp_path, "mlp", SCENARIO).locked():
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), sync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace(*names)))
    write_atomically(tmp_path / "a.json", lambda temporary: temporary.touch())
    assert calls == ["fsync", "replace", "fsync"]


def test_results_lie_where_the_house_keeps_them_and_opening_them_writes_nothing(tmp_path):
    results = result_folder(tmp_path / "results", "mlp", SCENARIO)
    assert list(tmp_path.iterdir()) == []
    write_all(results)
    png, pdf = results.write_figure("risk", figure())
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in pdf.read_bytes()
    names = {"scenario.yaml", "summary.json", "trajectories.nc", "figures/risk.png", "figures/risk.pdf"}
    assert set(files(tmp_path / "results" / "mlp")) == names


@pytest.mark.parametrize("chosen", [3, 42])
def test_the_fonts_of_a_pdf_are_true_type_and_the_settings_of_the_user_stay(tmp_path, chosen):
    with matplotlib.rc_context({"pdf.fonttype": chosen}):
        _, pdf = result_folder(tmp_path, "mlp", SCENARIO).write_figure("risk", figure())
        assert b"/Type3" not in pdf.read_bytes()
        assert b"/FontFile2" in pdf.read_bytes()
        Drawing().add_subplot().figure.savefig(tmp_path / "mine.pdf")
        assert b"/Type3" not in (tmp_path / "mine.pdf").read_bytes()
        assert matplotlib.rcParams["pdf.fonttype"] == chosen


def test_a_scenario_is_stored_with_its_environment(tmp_path):
    path = result_folder(tmp_path, "mlp", SCENARIO).write_scenario(SCENARIO, ENVIRONMENT | {"cores": np.int64(2)})
    stored = yaml.safe_load(path.read_text())
    assert list(stored["scenario"].items()) == list((SCENARIO | {"rates": [0.1, 0.2]}).items())
    assert stored["environment"] == ENVIRONMENT | {"cores": 2}


def test_a_summary_is_json_without_nan(tmp_path):
    infinite = [np.nan, math.inf, {"b": -math.inf}]
    summary = {"z": np.float32(0.5), "a": infinite, "n": np.arange(2), "η": None, "ok": True}
    path = result_folder(tmp_path, "mlp", SCENARIO).write_summary(summary)
    read = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert read == {"z": 0.5, "a": [None, None, {"b": None}], "n": [0, 1], "η": None, "ok": True}
    assert list(read) == list(summary)


@pytest.mark.slow
def test_the_same_results_are_the_same_bytes(tmp_path):
    def write(name):
        write_all(result_folder(tmp_path, name, SCENARIO))
        result_folder(tmp_path, name, SCENARIO).write_figure("risk", figure())

    write("a")
    # HDF5 keeps the second in which a group was made; h5py asks it not to, from version 3.15 on.
    time.sleep(1.01)
    write("b")
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_results_of_a_different_scenario_are_kept_also_where_they_appeared_since_the_folder_was_opened(tmp_path):
    late = result_folder(tmp_path, "mlp", OTHER)
    write_all(result_folder(tmp_path, "mlp", SCENARIO))
    before = files(tmp_path)
    with pytest.raises(StoreError, match="holds results of a different scenario"), late.locked():
        late.write_scenario(OTHER, ENVIRONMENT)
    with pytest.raises(StoreError, match=r"scenario \(network\.scale is 0\.001 there and 0\.5 here\); use --overwrite"):
        result_folder(tmp_path, "mlp", OTHER)
    assert files(tmp_path) == before
    result_folder(tmp_path, "mlp", SCENARIO).write_summary({"risk": 0.25})  # the same scenario's are written again
    assert json.loads((tmp_path / "mlp" / "summary.json").read_text()) == {"risk": 0.25}
    assert set(files(tmp_path)) == set(before)

    for illegible in (b"\xff", b"[", b"scenario: 3", b"other: {}"):
        (tmp_path / "mlp" / "scenario.yaml").write_bytes(illegible)
        with pytest.raises(StoreError, match="holds results of a different scenario"):
            result_folder(tmp_path, "mlp", SCENARIO)
        assert (tmp_path / "mlp" / "scenario.yaml").read_bytes() == illegible


def test_overwriting_takes_away_every_result_of_the_other_scenario_and_nothing_where_nothing_is_written(
    tmp_path, monkeypatch
):
    write_all(result_folder(tmp_path, "mlp", SCENARIO))
    (tmp_path / "mlp" / "notes.txt").write_text("mine")
    before = files(tmp_path)
    results = result_folder(tmp_path, "mlp", OTHER, overwrite=True)

    def open_on_full_disk(path, mode):
        open(path, mode).close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full:
        full.setattr(Path, "open", open_on_full_disk)
        with pytest.raises(StoreError, match="No space left on device"):
            results.write_scenario(OTHER, ENVIRONMENT)
    assert files(tmp_path) == before
    results.write_summary({"risk": 1.0})
    assert set(files(tmp_path / "mlp")) == {"notes.txt", "summary.json"}
    results.write_scenario(OTHER, ENVIRONMENT)
    assert set(files(tmp_path / "mlp")) == {"notes.txt", "summary.json", "scenario.yaml"}


def test_what_is_no_place_for_results_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(StoreError, match=r"a\.json: cannot be written: Is a directory"):
        write_atomically(tmp_path / "a.json", lambda temporary: temporary.touch())
    (tmp_path / "file").write_text("a file")
    for out, name in ((tmp_path / "file", "mlp"), (tmp_path / "file" / "deeper", "mlp"), (tmp_path, "file")):
        with pytest.raises(StoreError, match=r"file: is a file"):
            result_folder(out, name, SCENARIO)
    for name in ("", "..", "a/b", "/a"):
        with pytest.raises(StoreError, match="is no name for a folder of results"):
            result_folder(tmp_path, name, SCENARIO)
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(StoreError, match="no permission to write there"):
        result_folder(tmp_path / "results", "mlp", SCENARIO)
    assert files(tmp_path) == {"file": b"a file"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "file"]


CROWDED = """
import sys, resource, numpy, xarray, pathlib
from flowsim.results.reading import read_dataset
from flowsim.results.store import StoreError, result_folder
results = result_folder(pathlib.Path(sys.argv[1]), "mlp", {})
dataset = xarray.Dataset({"a": ("t", numpy.random.default_rng(0).normal(size=100_000))})
dataset.to_netcdf(engine="h5netcdf")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    results.write_dataset(dataset)
except StoreError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_dataset_that_does_not_fit_on_the_disk_ends_in_one_message(tmp_path):
    run = subprocess.run([sys.executable, "-c", CROWDED, tmp_path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "trajectories.nc: cannot be written: File too large" in run.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_goes_while_a_run_holds_it_takes_no_more_results(tmp_path, replaced):
    folder = result_folder(tmp_path, "mine", SCENARIO)
    with folder.locked():
        folder.write_scenario(SCENARIO, ENVIRONMENT)
        (tmp_path / "mine").rename(tmp_path / "elsewhere")
        if replaced:
            (tmp_path / "mine").mkdir()
            (tmp_path / "mine" / ".lock").touch()  # of another run
        with pytest.raises(StoreError, match="mine: was removed or replaced by another program"):
            folder.write_summary({"risk": 0.5})
    assert (tmp_path / "mine" / ".lock").exists() == replaced
    assert not list(tmp_path.rglob("summary.json"))


def test_temporary_files_are_removed_where_results_are_written_and_nowhere_else(tmp_path):
    name = f".risk-{'0' * 16}.png"
    places = [tmp_path / "mine", tmp_path / "mine" / "figures", tmp_path / "mine" / "a" / "b", tmp_path / "elsewhere"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    (tmp_path / "mine" / "link").symlink_to(tmp_path / "elsewhere")
    remove_temporaries(tmp_path / "mine")
    assert [(place / name).exists() for place in places] == [False, False, True, True]


def test_a_name_that_the_encoding_of_the_system_lacks_is_written_in_utf_8(tmp_path):
    folder = result_folder(tmp_path, "mine", SCENARIO)
    name = "ü".encode().decode("ascii", "surrogateescape")  # as Python reads it where LC_ALL=C
    folder.write_summary({name: 1})
    folder.write("report.html", name)
    folder.write_scenario(SCENARIO, ENVIRONMENT, comment=f"{name} \ud800")
    assert json.loads((tmp_path / "mine" / "summary.json").read_bytes()) == {"ü": 1}
    assert (tmp_path / "mine" / "report.html").read_bytes() == "ü".encode()
    assert (tmp_path / "mine" / "scenario.yaml").read_bytes().decode()


def test_padding_of_runs_of_many_lengths_takes_no_room(tmp_path):
    results = result_folder(tmp_path, "padded", SCENARIO)
    values = np.full((200, 4000), np.nan)
    values[:, :20] = np.random.default_rng(0).standard_normal((200, 20))
    values[0] = 1.5
    dataset = xarray.Dataset({"risk": (("run", "record"), values)})
    assert results.write_dataset(dataset).stat().st_size < 1e5  # of 6.4 MB
    np.testing.assert_array_equal(read_dataset(results.path / "trajectories.nc")["risk"], values)
