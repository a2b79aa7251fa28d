"""Results of blocks on disk: one file each, whole or absent, named by what determines its content."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..store import write_atomically
from .compute import Arrays

FOLDER = ".blocks"


@dataclass(frozen=True)
class BlockStore:
    """A folder of block results, which scenarios and runs may share: equal addresses have equal contents."""

    folder: Path

    def load(self, address: str) -> Arrays | None:
        """Return the arrays of a block, `None` where there is no file, or none that can be read."""
        try:
            with np.load(self._path(address), allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, address: str, arrays: Arrays) -> None:
        """Write the arrays of a block. Raises `StoreError` where the system refuses."""
        written = io.BytesIO()
        np.savez(written, allow_pickle=False, **arrays)
        write_atomically(self._path(address), lambda path: _write(path, written.getvalue()))

    def _path(self, address: str) -> Path:
        return self.folder / address[:2] / f"{address[2:]}.npz"


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
