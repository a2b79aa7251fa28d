"""Results of sweeps on disk: a file for each block, named by what determines its content, and the folder around."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..results.results import open_results
from ..results.store import (
    SCENARIO,
    SWEEP,
    THEORY,
    TRAJECTORIES,
    ResultFolder,
    StoreError,
    difference,
    refuse_obstacles,
    refuse_unwritable,
    remove_temporaries,
    write_atomically,
)
from .compute import Arrays, Column, Kind

if TYPE_CHECKING:
    import xarray

# Every file starts with the SHA-256 of its address and of the rest, an NPZ archive.
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class BlockStore:
    """A folder of block results, which scenarios and runs may share: equal addresses have equal contents."""

    folder: Path

    def tidy(self) -> None:
        """Remove what killed runs left half written. Others may be at work: what is young may be theirs."""
        remove_temporaries(self.folder, seconds=3600)

    def refuse_obstacles(self) -> None:
        """Raise `StoreError` where no block could be written, or a folder is in the place of one, or the reverse."""
        refuse_unwritable(self.folder)
        for place in sorted(self.folder.glob("[0-9a-f][0-9a-f]")):
            if not place.is_dir():
                raise StoreError(f"{place}: is in the place of a folder of blocks; remove it, or use another --out")
            for block in sorted(place.glob("*.block")):
                if block.exists() and not block.is_file() and not block.is_symlink():  # a link is replaced
                    what = "a folder" if block.is_dir() else "a pipe or a device"
                    raise StoreError(f"{block}: is {what} in the place of a block; remove it, or use another --out")

    def holds(self, address: str) -> bool:
        """Tell whether there is a file for a block; whether it is whole is seen when it is loaded."""
        return self._path(address).is_file()

    def load(self, address: str) -> Arrays | None:
        """Return the arrays of a block, `None` where there is no file, or not the one that was written for it."""
        if not self.holds(address):  # a pipe would be waited for
            return None
        try:
            content = self._path(address).read_bytes()
        except OSError:
            return None
        digest, arrays = content[:_DIGEST], content[_DIGEST:]
        # NumPy would read an archive that lost some of its arrays.
        if digest != _digest(address, arrays):
            return None
        try:
            file = np.load(io.BytesIO(arrays), allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile) or file.zip is None:
                return None
            # What is written here is not compressed: else a small file could unpack to any size.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.zip.infolist()):
                return None
            parts = ((name.partition("_"), values) for name, values in file.items())
            return {Column(cast(Kind, kind), quantity): values for (kind, _, quantity), values in parts}
        except (ValueError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile):
            return None

    def save(self, address: str, arrays: Arrays) -> None:
        """Write the arrays of a block. Raises `StoreError` where the system does not allow it."""
        written = io.BytesIO()
        # Before NumPy 2.2 the option allow_pickle would be stored as an array of that name.
        named = {f"{column.of}_{column.quantity}": values for column, values in arrays.items()}
        np.savez(written, **named)  # pyright: ignore[reportArgumentType]
        content = _digest(address, written.getvalue()) + written.getvalue()
        write_atomically(self._path(address), lambda path: path.write_bytes(content))

    def _path(self, address: str) -> Path:
        return self.folder / address[:2] / f"{address[2:]}.block"


def _digest(address: str, arrays: bytes) -> bytes:
    return hashlib.sha256(address.encode() + arrays).digest()


@contextmanager
def sweep_folder(folder: Path, attrs: Mapping[str, str], *, overwrite: bool = False) -> Iterator[ResultFolder]:
    """Lock a folder for the sweep that `attrs` describe, and provide it.

    Raises `StoreError` where `folder` holds other results than a part of that sweep, unless `overwrite`, and where it
    cannot be written.
    """
    refuse_obstacles(folder)
    sweep = json.loads(attrs.get("sweep", "null"))
    here = ResultFolder(folder, lambda: _other_results(folder, sweep, overwrite))
    with here.locked():
        yield here


def _other_results(folder: Path, sweep: dict[str, Any] | None, overwrite: bool) -> list[Path]:
    """Return the files in `folder` that are not of `sweep`. Raises `StoreError` for them without `overwrite`.

    `sweep` is `None` for that of a scenario, which differs from every stored one.
    """
    others = [path for path in (folder / name for name in (SCENARIO, TRAJECTORIES, THEORY)) if path.exists()]
    found = f"{others[0].name} is there" if others else None
    if (folder / SWEEP).exists():
        others.append(folder / SWEEP)
        found = found or (None if overwrite else _difference(open_results(folder).required("sweep"), sweep))
    if found is None and not overwrite:
        return []
    if not overwrite:
        raise StoreError(f"{folder}: holds other results ({found}); write overwrite=True, or give another folder")
    return others


def _difference(stored: "xarray.Dataset", sweep: dict[str, Any] | None) -> str | None:
    """Return in words how a stored sweep differs from `sweep`, None where it is a part of it."""
    there = json.loads(stored.attrs.get("sweep", "null"))
    if there is None or sweep is None:
        return "the sweep of a scenario" if there is None else "another sweep"
    here = json.loads(json.dumps(sweep))
    for name, values in there["over"].items():
        if name in here["over"] and all(value in here["over"][name] for value in values):
            here["over"][name] = values
    if here["repetitions"] > there["repetitions"]:
        here["repetitions"] = there["repetitions"]
    return difference(there, here, "the sweep")
