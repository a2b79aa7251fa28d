"""Whatever is in the place of a stored block, it is that block to the last bit, or as good as none."""

import hashlib
import io
import os

import numpy as np
import pytest

from flowsim.results import StoreError
from flowsim.sweeps import BlockStore
from flowsim.sweeps.compute import Column

ONE, OTHER = "ab" * 32, "ab" + "cd" * 31


@pytest.fixture
def store(tmp_path):
    """A store of two blocks, each of some numbers and steps."""
    store = BlockStore(tmp_path)
    for address, steps in ((ONE, 4), (OTHER, 6)):
        store.save(address, {Column("flow", "risk"): np.arange(3.0), Column("descent", "steps"): np.arange(steps)})
    return store


def file_of(store, address):
    return store.folder / address[:2] / f"{address[2:]}.block"


def archive(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def damaged(content):
    """Yield what a file may hold that was not written to its end, or of which one bit was flipped."""
    yield from (b"", content[:10], content[: len(content) // 2], content[:-1], content + b"\0")
    for place in np.linspace(0, len(content) - 1, 40).astype(int):
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_block_is_read_as_it_was_written_and_a_damaged_one_is_as_good_as_none(store):
    path = file_of(store, ONE)
    whole = path.read_bytes()
    for content in damaged(whole):
        path.write_bytes(content)
        assert store.load(ONE) is None
    path.write_bytes(whole)
    np.testing.assert_array_equal(store.load(ONE)["flow", "risk"], [0, 1, 2])
    np.testing.assert_array_equal(store.load(ONE)["descent", "steps"], np.arange(4))
    assert store.load("ef" * 32) is None


@pytest.mark.parametrize(
    "target",
    [lambda path, other: other, lambda path, other: path, lambda path, other: path.parent],
    ids=["another", "itself", "a folder"],
)
def test_a_link_in_the_place_of_a_block_is_as_good_as_none_and_is_replaced(store, target):
    path, other = file_of(store, ONE), file_of(store, OTHER)
    path.unlink()
    path.symlink_to(target(path, other))
    before = other.read_bytes()
    assert store.load(ONE) is None
    store.save(ONE, {Column("flow", "risk"): np.ones(2)})
    np.testing.assert_array_equal(store.load(ONE)["flow", "risk"], [1, 1])
    assert not path.is_symlink()
    assert other.read_bytes() == before


NOT_ARCHIVES = {
    "nothing": b"",
    "the first bytes of an archive": b"PK\x03\x04",
    "a Python object": archive(flow_risk=np.array([{"a": 1}], object)),
    "an archive that unpacks to more than its size": archive(np.savez_compressed, flow_risk=np.zeros(9)),
    "a pickle": b"\x80\x04K\x01.",
}


@pytest.mark.parametrize("arrays", NOT_ARCHIVES.values(), ids=NOT_ARCHIVES.keys())
def test_a_block_that_is_no_archive_of_plain_arrays_is_as_good_as_none(store, arrays):
    for content, is_block in ((archive(flow_risk=np.arange(2.0)), True), (arrays, False)):
        # Sealed as the store does it, whatever is sealed.
        file_of(store, ONE).write_bytes(hashlib.sha256(ONE.encode() + content).digest() + content)
        assert (store.load(ONE) is not None) == is_block


def test_what_a_killed_run_left_half_written_is_removed_after_an_hour(store):
    left, young = (store.folder / "ab" / f".{digit * 62}-{digit * 16}.block" for digit in "01")
    for path in (left, young):
        path.touch()
    os.utime(left, (1e9, 1e9))
    store.tidy()
    assert set(left.parent.iterdir()) == {young, file_of(store, ONE), file_of(store, OTHER)}


def test_a_pipe_in_the_place_of_a_block_is_not_waited_for(store):
    file_of(store, ONE).unlink()
    os.mkfifo(file_of(store, ONE))
    assert store.load(ONE) is None
    with pytest.raises(StoreError, match="is a pipe or a device in the place of a block"):
        store.refuse_obstacles()
