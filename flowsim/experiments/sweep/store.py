"""Results of blocks on disk: one file each, whole or absent, named by what determines its content."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..store import remove_temporaries, write_atomically
from .compute import Arrays

FOLDER = ".blocks"
# Every file starts with the SHA-256 of the rest, an NPZ archive.
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class BlockStore:
    """A folder of block results, which scenarios and runs may share: equal addresses have equal contents."""

    folder: Path

    def tidy(self) -> None:
        """Remove what killed runs left half written. Others may be at work: what is young may be theirs."""
        remove_temporaries(self.folder, seconds=3600)

    def load(self, address: str) -> Arrays | None:
        """Return the arrays of a block, `None` where there is no file, or not the one that was written."""
        try:
            content = self._path(address).read_bytes()
        except OSError:
            return None
        digest, arrays = content[:_DIGEST], content[_DIGEST:]
        # NumPy would read an archive that lost some of its arrays.
        if digest != hashlib.sha256(arrays).digest():
            return None
        with np.load(io.BytesIO(arrays), allow_pickle=False) as file:
            return dict(file)

    def save(self, address: str, arrays: Arrays) -> None:
        """Write the arrays of a block. Raises `StoreError` where the system refuses."""
        written = io.BytesIO()
        # Before NumPy 2.2 the option allow_pickle would be stored as an array of that name.
        np.savez(written, **arrays)  # pyright: ignore[reportArgumentType]
        content = hashlib.sha256(written.getvalue()).digest() + written.getvalue()
        write_atomically(self._path(address), lambda path: _write(path, content))

    def _path(self, address: str) -> Path:
        return self.folder / address[:2] / f"{address[2:]}.block"


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
