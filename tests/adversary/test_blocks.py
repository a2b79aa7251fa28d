"""Whatever is in the place of a stored block, a sweep ends with the results that it would have computed."""

import hashlib
import io
import os
import shutil
from importlib import import_module

import numpy as np
import pytest
import xarray

from flowsim import cli
from flowsim.scenarios import read_scenario
from flowsim.sweeps import BlockStore, run_sweep
from flowsim.sweeps.compute import Column
from flowsim.sweeps.workers import InProcess

SCENARIO = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
sweep:
  over: {data.noise: [0.5, 1.0]}
  flow: false
  descent: [{learning_rates: [0.05], steps: 20}]
"""
# Not by its name, which is that of a function too.
WORKERS = import_module("flowsim.sweeps.workers")


def swept(folder):
    """Return the data set of the sweep, with its blocks in `folder`."""
    path = folder.parent / "tiny.yaml"
    path.write_text(SCENARIO)
    found = run_sweep(read_scenario(path), path.parent, BlockStore(folder), InProcess())
    assert found.failures == ()
    return found.dataset


def blocks_in(folder):
    return sorted(folder.glob("*/*.block"))


def content_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The data set of the sweep, and the folder of its blocks."""
    folder = tmp_path_factory.mktemp("undisturbed") / ".blocks"
    return swept(folder), folder


@pytest.fixture
def store(undisturbed, tmp_path):
    """A folder with the blocks of the sweep."""
    shutil.copytree(undisturbed[1], tmp_path / "out" / ".blocks")
    return tmp_path / "out" / ".blocks"


def sealed(address, arrays):
    """Return what a file holds whose digest is right, whatever the rest is."""
    return hashlib.sha256(address.encode() + arrays).digest() + arrays


def archive(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def array(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def swapped(first, second):
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def in_place_of_the_first(make):
    def damage(first, second):
        first.unlink()
        make(first, second)

    return damage


def flipped(share):
    def damage(first, second):
        content = bytearray(first.read_bytes())
        content[int(share * (len(content) - 1))] ^= 1
        first.write_bytes(content)

    return damage


DAMAGES = {
    "swapped": swapped,
    "a link to another": in_place_of_the_first(lambda first, second: first.symlink_to(second)),
    "a link to itself": in_place_of_the_first(lambda first, second: first.symlink_to(first)),
    "a link to a folder": in_place_of_the_first(lambda first, second: first.symlink_to(first.parent)),
    "truncated": lambda first, second: os.truncate(first, first.stat().st_size // 2),
    "empty": lambda first, second: os.truncate(first, 0),
    **{f"a bit flipped at {share}": flipped(share) for share in (0.0, 0.7)},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.slow
def test_a_damaged_or_foreign_block_is_computed_again(undisturbed, store, damage):
    damage(*blocks_in(store))
    dataset, whole = undisturbed
    xarray.testing.assert_identical(swept(store), dataset)
    assert content_of(store) == content_of(whole)


NOT_ARCHIVES = {
    "nothing": b"",
    "the first bytes of an archive": b"PK\x03\x04",
    "one array alone": array(np.arange(3.0)),
    "a Python object": archive(flow_risk=np.array([{"a": 1}], object)),
    "a pickle": b"\x80\x04K\x01.",
}


@pytest.mark.parametrize("arrays", NOT_ARCHIVES.values(), ids=NOT_ARCHIVES.keys())
def test_a_block_that_is_no_archive_of_plain_arrays_is_as_good_as_none(tmp_path, arrays):
    store, address = BlockStore(tmp_path), "ab" * 32
    store.save(address, {Column("flow", "risk"): np.arange(3.0)})
    (path,) = tmp_path.rglob("*.block")
    path.write_bytes(sealed(address, archive(flow_risk=np.arange(2.0))))
    np.testing.assert_array_equal(
        store.load(address)["flow", "risk"], [0, 1]
    )  # so the file is sealed as the store does
    path.write_bytes(sealed(address, arrays))
    assert store.load(address) is None


def test_a_block_of_another_address_is_as_good_as_none(tmp_path):
    store, one, other = BlockStore(tmp_path), "ab" * 32, "ab" + "cd" * 31
    store.save(one, {Column("flow", "risk"): np.arange(3.0)})
    (path,) = tmp_path.rglob("*.block")
    shutil.copy(path, path.with_name(f"{other[2:]}.block"))
    assert store.load(one) is not None
    assert store.load(other) is None


@pytest.mark.parametrize("place", ["block", "shard"])
@pytest.mark.slow
def test_what_no_block_could_replace_is_refused_before_anything_is_computed(store, capsys, monkeypatch, place):
    block = blocks_in(store)[0]
    if place == "block":
        block.unlink()
        block.mkdir()
    else:
        shutil.rmtree(block.parent)
        block.parent.write_text("a file")
    monkeypatch.setattr(WORKERS, "compute", lambda *_: pytest.fail("it computed"))
    before = sorted(store.rglob("*"))
    (store.parent.parent / "tiny.yaml").write_text(SCENARIO)
    assert cli.main([str(store.parent.parent / "tiny.yaml"), "--out", str(store.parent), "--jobs", "1"]) == 2
    said = capsys.readouterr().err
    assert str(block if place == "block" else block.parent) in said
    assert "remove it, or use another --out" in said
    assert said.count("\n") == 1
    assert sorted(store.rglob("*")) == before
