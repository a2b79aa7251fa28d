"""Results that somebody else made: nothing in them is run, and whatever is wrong in them is said in one message."""

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
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


command = import_module("flowsim.cli.report")


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


@pytest.mark.parametrize("content", ["hello", "{figure: [1, [2]]}", "{network: 5, data: [1]}", "[" * 500])
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


def with_attributes(stored, name, **attributes):
    """Return the data set with other attributes of a variable, without those that are `None`."""
    changed = {key: value for key, value in {**stored[name].attrs, **attributes}.items() if value is not None}
    return stored.assign({name: (stored[name].dims, stored[name].values, changed)})


WRONG = {
    "a symbol of numbers": lambda stored: with_attributes(stored, "risk", symbol=np.arange(3.0)),
    "a symbol without a meaning": lambda stored: with_attributes(stored, "risk", symbol="s", long_name=None),
    "a symbol of many brackets": lambda stored: with_attributes(stored, "risk", symbol=f"${'{' * 99}x{'}' * 99}$"),
    "a meaning of a book": lambda stored: with_attributes(stored, "risk", long_name="x" * 100_000),
    "rows that are no JSON": lambda stored: with_attributes(stored, "risk", rows='{"'),
    "a scenario of brackets": lambda stored: stored.assign_attrs(scenario="[" * 10_000),
    "cells that failed without a message": lambda stored: stored.assign_attrs(failures='[{"cell": "a"}]'),
    "a run with the name of a book": lambda stored: stored.assign_coords(dynamics=("run", ["x" * 100_000] * 2)),
    "an outcome without a meaning": lambda stored: stored.assign(outcome=stored["outcome"] * 0 + 99),
    "more records than there are": lambda stored: stored.assign(records=stored["records"] + 10**6),
    "no risk": lambda stored: stored.drop_vars("risk"),
    "no count of rejected steps": lambda stored: stored.drop_vars("rejected_steps"),
    "no solver": lambda stored: stored.drop_vars("solver"),
    "products without a number": lambda stored: stored.assign(products=stored["products"] * np.nan),
    "gradients without end": lambda stored: stored.assign(gradients=stored["gradients"] * 0.0 + np.inf),
    "an order in words": lambda stored: stored.assign(order=("run", ["two", "two"])),
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


def external(file):
    Path("secret").write_bytes(b"SECRET!!" * 82)
    file.create_dataset("more", file["risk"].shape, "<f8", external=[("secret", 0, 656)])


def from_a_pipe(file):
    os.mkfifo("pipe")
    file.create_dataset("more", (9,), "<f8", external=[("pipe", 0, 72)])


def virtual(file):
    with h5py.File("other.h5", "w") as other:
        other["x"] = np.arange(9.0)
    layout = h5py.VirtualLayout((9,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", (9,))
    file.create_virtual_dataset("more", layout)


def virtual_of_any_length(file):
    os.mkfifo("pipe")
    layout, source = (make((9,), maxshape=(None,)) for make in (virtual_layout, virtual_source))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    file.create_virtual_dataset("more", layout)


def virtual_layout(shape, maxshape):
    return h5py.VirtualLayout(shape, "f8", maxshape=maxshape)


def virtual_source(shape, maxshape):
    return h5py.VirtualSource("pipe", "x", shape, maxshape=maxshape)


def references(file):
    file.create_dataset("more", (2,), h5py.ref_dtype)[0] = file["risk"].ref


def repeated(file):
    """Have every cell refer to the one text that is stored."""
    texts = file.create_dataset("more", (1000,), h5py.string_dtype())
    texts[:] = ["x" * 10_000] + ["y"] * 999
    place, name = texts.id.get_offset(), file.filename
    file.close()
    content = bytearray(Path(name).read_bytes())
    content[place : place + 16_000] = content[place : place + 16] * 1000
    Path(name).write_bytes(content)


FOREIGN = {
    "is stored in another file": [external, from_a_pipe, virtual, virtual_of_any_length],
    "is a link": [
        lambda file: file.__setitem__("more", h5py.SoftLink("/risk")),
        lambda file: file.__setitem__("more", h5py.ExternalLink("other.h5", "/x")),
    ],
    "is a group or a type": [
        lambda file: file.create_group("more").__setitem__("itself", file["more"]),
        lambda file: file.__setitem__("more", np.dtype("f8")),
    ],
    "is of the type": [references, lambda file: file.create_dataset("more", (2,), [("a", "f8"), ("b", "i4")])],
    "than by deflate": [lambda file: file.create_dataset("more", data=np.zeros(99), compression="lzf")],
    "more than a file of": [
        lambda file: file.create_dataset("more", (10**12,), "f8", fillvalue=1.0),
        lambda file: file.create_dataset("more", (1,), "f8", maxshape=(None,), chunks=(10**8,)),
    ],
    " variables": [lambda file: [file.__setitem__(f"more{number}", file["risk"]) for number in range(2001)]],
    "repeats its texts": [repeated],
    "with the shape (5000,)": [lambda file: file.attrs.create("more", ["x"] * 5000, dtype=h5py.string_dtype())],
}


@pytest.mark.parametrize(("message", "change"), [(words, one) for words, several in FOREIGN.items() for one in several])
def test_what_a_data_set_takes_from_outside_of_its_file_or_multiplies_is_refused_unread(folder, message, change):
    with h5py.File(folder / "trajectories.nc", "r+") as file:
        change(file)
    with pytest.raises(StoreError, match=r"trajectories\.nc: holds what flowsim does not write") as refused:
        flowsim.open_results(folder)
    assert message in str(refused.value)


def test_a_data_set_that_was_compressed_by_deflate_is_read(folder):
    with_data(folder, lambda stored: stored.assign())
    encoding = {"risk": {"zlib": True, "shuffle": True}}
    stored().to_netcdf(folder / "trajectories.nc", engine="h5netcdf", encoding=encoding)
    np.testing.assert_array_equal(flowsim.open_results(folder).trajectories["risk"], stored()["risk"])


PAIRS = zip("abcdefgh", "bcdefghi", strict=True)
LAUGHS = "a: &a [lol, lol]\n" + "".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]\n" for x, y in PAIRS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LAUGHS + "scenario: {network: {kind: *i}}", "line 2: an alias"),
        ("scenario: &a {network: &b {kind: *a}}", "line 1: an alias"),
        ("scenario: " + "[" * 40 + "]" * 40, "more than 30 levels"),
        ("scenario: {seed: 1" + ":10" * 1000 + "}", "a number of 3001 characters"),
        ("scenario: {seed: 2001-01-01}", "timestamp"),
        ("scenario: {1: 2}", "the key 1, which is no text"),
        ("scenario: {" + "x: 1," * 2**21 + "}", "bytes, where flowsim writes at most"),
    ],
    ids=["laughs", "a cycle", "brackets", "a number", "a date", "a key", "a book"],
)
def test_a_stored_scenario_takes_no_more_time_and_memory_than_its_text(folder, content, message):
    (folder / "scenario.yaml").write_text(content)
    with pytest.raises(StoreError, match=r"scenario\.yaml: ") as refused:
        str(flowsim.open_results(folder))
    assert message in str(refused.value)


@pytest.mark.parametrize("content", ['{"risk": NaN}', "[1]", "", '{"risk": 1' + "0" * 5000 + "}", "\xff", "[" * 10_000])
def test_a_summary_that_is_no_object_of_json_is_refused_in_one_message(folder, content):
    (folder / "summary.json").write_text(content, encoding="latin-1")
    with pytest.raises(StoreError, match=r"summary\.json: "):
        _ = flowsim.open_results(folder).summary


@pytest.mark.parametrize("name", ["scenario.yaml", "trajectories.nc", "figures/risk.png"])
def test_a_link_does_not_bring_a_file_of_elsewhere_into_results(folder, tmp_path, name):
    (tmp_path / "secret").write_text("secret: 1")
    (folder / "figures").mkdir()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="is a link to a file outside of its folder"):
        flowsim.open_results(folder).save(tmp_path / "copy") if name.startswith("fig") else str(
            flowsim.open_results(folder)
        )


def test_a_lock_that_is_a_link_is_refused_and_its_target_is_left_as_it_is(folder, tmp_path, capsys):
    (tmp_path / "precious").write_text("mine")
    (folder / ".lock").symlink_to(tmp_path / "precious")
    assert report(folder) == 2
    assert ".lock: is a link" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "mine"


def test_folders_of_any_depth_are_not_gone_through(folder):
    place = Path.cwd()
    os.chdir(folder)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(place)
    try:
        with ResultFolder(folder).locked():
            assert (folder / "d").is_dir()
    finally:
        subprocess.run(["rm", "-rf", folder / "d"], check=True)


def test_what_only_drawing_finds_wrong_is_one_message(folder, capsys, monkeypatch):
    def draws(*_):
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(import_module("flowsim.report.document"), "trajectories_figures", draws)
    assert report(folder) == 2
    error = capsys.readouterr().err
    assert f"{folder}: cannot be reported (RecursionError: maximum recursion depth exceeded); run" in error
    assert error.count("\n") == 1


def made_twice(folder, monkeypatch):
    """Have two folders reported at no cost, and return their parent."""
    shutil.copytree(folder, folder.with_name("qm"))
    results = {place: flowsim.open_results(place) for place in (folder, folder.with_name("qm"))}

    class Made:
        complete, warnings, panels, figures = True, (), {}, {}

        def __init__(self, place):
            self.results = results[place]

    monkeypatch.setattr(import_module("flowsim.cli.report"), "_report_folder", lambda place, trust: Made(place))
    return folder.parent


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir, Path.touch])
def test_an_index_that_is_not_of_flowsim_is_left_whatever_it_is(folder, monkeypatch, capsys, make):
    parent = made_twice(folder, monkeypatch)
    make(parent / "index.html")
    (parent / "side_by_side").symlink_to(".")
    before = os.lstat(parent / "index.html").st_ino
    assert cli.main(["report", str(folder), str(folder.with_name("qm"))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "index.html as it is: it is not of flowsim" in printed
    assert "side_by_side: is a link, and the page belongs here" in printed
    assert os.lstat(parent / "index.html").st_ino == before


def test_modules_in_a_foreign_folder_do_not_take_the_place_of_installed_ones(tmp_path, quick_environment):
    for name in ("yaml", "lazy_loader", "rich", "numpy", "xarray"):
        (tmp_path / f"{name}.py").write_text("open('it_ran', 'w')")
    (tmp_path / "trajectories.nc").write_bytes(b"damaged")
    words = [sys.executable, "-m", "flowsim", "report", "."]
    done = subprocess.run(words, cwd=tmp_path, env=quick_environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "trajectories.nc: is damaged" in done.stderr
    assert not (tmp_path / "it_ran").exists()


def test_a_folder_that_is_given_many_times_is_looked_at_once_before_it_is_refused(folder, capsys, monkeypatch):
    looks, refuse_obstacles = [], command.refuse_obstacles
    monkeypatch.setattr(command, "refuse_obstacles", lambda place: looks.append(place) or refuse_obstacles(place))
    assert report(folder, *[str(folder)] * 20) == 2
    assert "is given twice; give each folder once" in capsys.readouterr().err
    assert looks == [folder]
