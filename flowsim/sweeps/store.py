"""Results of blocks on disk: one file each, whole or absent, named by what determines its content."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from ..results.store import StoreError, refuse_unwritable, remove_temporaries, write_atomically
from .compute import Arrays, Column, Kind

# Every file starts with the SHA-256 of its address and of the rest, an NPZ archive.
_DIGEST = hashlib.sha256().digest_size


class Store(Protocol):
    """Where results of blocks are kept, by their addresses."""

    def tidy(self) -> None:
        """Remove what killed runs left half written."""
        ...

    def load(self, address: str, /) -> Arrays | None:
        """Return the arrays of a block, `None` where they are not there."""
        ...

    def save(self, address: str, arrays: Arrays, /) -> None:
        """Keep the arrays of a block. Raises `StoreError` where that cannot be."""
        ...


class NoStore:
    """Keeps nothing: every block is computed."""

    def tidy(self) -> None:
        """Do nothing."""

    def load(self, address: str) -> None:
        """Return `None`."""

    def save(self, address: str, arrays: Arrays) -> None:
        """Do nothing."""


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
                if block.is_dir() and not block.is_symlink():
                    raise StoreError(f"{block}: is a folder in the place of a block; remove it, or use another --out")

    def holds(self, address: str) -> bool:
        """Tell whether there is a file for a block; whether it is whole is seen when it is loaded."""
        return self._path(address).is_file()

    def load(self, address: str) -> Arrays | None:
        """Return the arrays of a block, `None` where there is no file, or not the one that was written for it."""
        try:
            content = self._path(address).read_bytes()
        except OSError:
            return None
        digest, arrays = content[:_DIGEST], content[_DIGEST:]
        # NumPy would read an archive that lost some of its arrays.
        if digest != _digest(address, arrays):
            return None
        return _arrays_in(arrays)

    def save(self, address: str, arrays: Arrays) -> None:
        """Write the arrays of a block. Raises `StoreError` where the system refuses."""
        written = io.BytesIO()
        # Before NumPy 2.2 the option allow_pickle would be stored as an array of that name.
        named = {f"{column.of}_{column.quantity}": values for column, values in arrays.items()}
        np.savez(written, **named)  # pyright: ignore[reportArgumentType]
        content = _digest(address, written.getvalue()) + written.getvalue()
        write_atomically(self._path(address), lambda path: _write(path, content))

    def _path(self, address: str) -> Path:
        return self.folder / address[:2] / f"{address[2:]}.block"


def _digest(address: str, arrays: bytes) -> bytes:
    return hashlib.sha256(address.encode() + arrays).digest()


def _arrays_in(archive: bytes) -> Arrays | None:
    """Return the arrays of an NPZ archive, `None` for anything else, Python objects among the arrays included."""
    try:
        file = np.load(io.BytesIO(archive), allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            return None
        return {_column(name): values for name, values in file.items()}
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile):
        return None


def _column(name: str) -> Column:
    kind, _, quantity = name.partition("_")
    return Column(cast(Kind, kind), quantity)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
