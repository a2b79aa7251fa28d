"""Arrays in NPZ archives, whose headers are checked before anything is unpacked."""

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..runtime.memory import beyond_memory
from .arrays import DataError, Names, check_names, check_unique

_CORRUPT = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


def read_archive(
    file: Path, target: Names, features: Names | None, check: Callable[..., None]
) -> tuple[NDArray, NDArray]:
    """Return the arrays X and y of an `.npz` archive as they are, once `check` has seen their shapes and types.

    `target` and `features` (`"X"` if not given) name one array each; nothing is unpickled. Raises `DataError`.
    """
    roles = {"target": target, "features": "X" if features is None else features}
    with _archive(file) as archive:
        available = {name.removesuffix(".npy"): None for name in archive.namelist() if name.endswith(".npy")}
        y_name, X_name = (_only(f"{file}, {role}", name, available) for role, name in roles.items())
        check_unique(f"{file}, target and features", "array", [y_name, X_name])
        X_place, y_place = f"{file}, array {X_name!r}", f"{file}, array {y_name!r}"
        heads = [_head(archive, X_name, place=X_place), _head(archive, y_name, place=y_place)]
        check(*heads, X_place=X_place, y_place=y_place)
        if beyond := beyond_memory(sum(head.bytes_to_read for head in heads)):
            raise DataError(f"{file}: the arrays {X_name!r} and {y_name!r} take {beyond}: expected smaller ones")
        return _array(archive, X_name, place=X_place), _array(archive, y_name, place=y_place)


def _only(place: str, chosen: Names, available: Collection[str]) -> str:
    if not isinstance(chosen, str):
        raise DataError(f"{place}: found {chosen!r}: expected the name of one array")
    return check_names(place, "array", chosen, available)[0]


def _archive(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _CORRUPT as error:
        raise DataError(f"{file}: not an .npz archive ({error}): expected one saved by numpy.savez") from error


@dataclass(frozen=True)
class _Head:
    """The header of an array in an archive, and how many bytes it takes unpacked."""

    shape: tuple[int, ...]
    dtype: np.dtype
    size: int

    @property
    def bytes_to_read(self) -> int:
        """Unpacked, parsed, and in float64."""
        return 2 * self.size + 8 * math.prod(self.shape)


def _head(archive: zipfile.ZipFile, name: str, *, place: str) -> _Head:
    """Read the header of an array alone: a few kilobytes of an archive may unpack to any size."""
    try:
        with archive.open(f"{name}.npy") as stream:
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, dtype = readers.get(version, np.lib.format.read_array_header_2_0)(stream)
            content = archive.getinfo(f"{name}.npy").file_size - stream.tell()
    except _CORRUPT as error:
        raise _unreadable(place, error) from error
    if dtype.hasobject:
        raise _unreadable(place, "Object arrays cannot be loaded when allow_pickle=False")
    if content != (expected := math.prod(shape) * dtype.itemsize):
        raise _unreadable(place, f"{content} bytes for shape {shape} of {dtype}, which takes {expected}")
    return _Head(shape, dtype, content)


def _unreadable(place: str, reason: object) -> DataError:
    return DataError(f"{place}: the array cannot be read ({reason}): expected real numbers, saved by numpy.savez")


def _array(archive: zipfile.ZipFile, name: str, *, place: str) -> NDArray:
    try:
        # Read whole before it is parsed: the checksum comes last.
        content = archive.read(f"{name}.npy")
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except _CORRUPT as error:
        raise _unreadable(place, error) from error
