"""Data to regress on, read from CSV and NPZ files; what is not a finite number is refused with its place."""

import csv
import difflib
import io
import math
import operator
import reprlib
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..memory import beyond_memory
from .arrays import Array, DataError, check_pair, not_finite, paired_arrays

Names = str | Sequence[str]

_MISSING = frozenset(["", "?", "-", ".", "na", "n/a", "#n/a", "<na>", "nat", "nil", "null", "none", "missing"])
_MOST_COMPARED = 1000  # names among which the nearest to an unknown one is looked for
_CORRUPT = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


def read_table(path: str | PathLike[str], target: Names, features: Names | None = None) -> tuple[Array, Array]:
    """Read X (n, d) and y, (n,) or (n, m), in float64 from a `.csv` or `.npz` file.

    CSV: commas, UTF-8, the first row names the columns, blank rows are skipped. `target` names the column
    of y, or is a list of m names for a y of shape (n, m). `features` names the columns of X, in the order
    wanted; without it they are all others. Columns not named may hold anything.

    NPZ: `target` and `features` (`"X"` if not given) name one array of the archive each; nothing is
    unpickled.

    Raises `DataError`, with the file, the row as counted in the file from 1 (the header of a CSV is a row)
    and the column: for a file that is absent or not what its name says, for names that are unknown,
    repeated or blank, for shapes that do not fit, and for entries that are missing, infinite or not real
    numbers.
    """
    file = Path(path)
    try:
        return _reader(file)(file, target, features)
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file, seen from {Path.cwd()}") from error
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {error.strerror or error}") from error


def _reader(file: Path) -> Callable[[Path, Names, Names | None], tuple[Array, Array]]:
    readers = {".csv": _read_csv, ".npz": _read_npz}
    if file.is_dir():
        raise DataError(f"{file}: this is a folder: expected a .csv or .npz file")
    if file.suffix.lower() not in readers:
        raise DataError(f"{file}: file type {file.suffix!r} is not supported: expected .csv or .npz")
    return readers[file.suffix.lower()]


def _read_csv(file: Path, target: Names, features: Names | None) -> tuple[Array, Array]:
    rows = _rows(file)
    number, header = _header(file, rows)
    position = {name: index for index, name in enumerate(header)}
    targets = _known(f"{file}, target", "column", target, position)
    if features is None:
        taken = set(targets)
        features = [name for name in header if name not in taken]
    inputs = _known(f"{file}, features", "column", features, position)
    _refuse_repeated(f"{file}, target and features", "column", [*inputs, *targets])
    if "" in inputs or "" in targets:
        place = f"{file}, row {number}, column number {header.index('') + 1}"
        raise DataError(f"{place}: the column has no name: expected one, or a list of the features wanted")
    table = _numbers(file, header, rows, [position[name] for name in (*inputs, *targets)])
    y = table[:, len(inputs)] if isinstance(target, str) else table[:, len(inputs) :]
    return table[:, : len(inputs)].copy(), y.copy()


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(_text(file), newline=""), skipinitialspace=True, strict=True)
    number = 0
    try:
        for number, cells in enumerate(reader, start=1):
            if len(cells) > 1 or "".join(cells).strip():
                yield number, cells
    except csv.Error as error:
        place = f"{file}, row {number + 1}"
        raise DataError(f"{place}: not valid CSV ({error}): check the quotation marks") from error


def _text(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise DataError(f"{file}, row {row}: {found}: save the file as UTF-8") from error


def _header(file: Path, rows: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    number, cells = next(rows, (1, []))
    header = [name.strip() for name in cells]
    if not header:
        raise DataError(f"{file}: the file is empty: expected a row of column names, then rows of numbers")
    if len(header) == 1:
        found = f"there is one column, {reprlib.repr(header[0])}"
        raise DataError(f"{file}, row {number}: {found}: expected two or more, separated by commas")
    _refuse_repeated(f"{file}, row {number}", "column", [name for name in header if name])
    return number, header


def _numbers(file: Path, header: list[str], rows: Iterator[tuple[int, list[str]]], positions: list[int]) -> Array:
    pick = operator.itemgetter(*positions)
    values = array("d")
    for number, cells in rows:
        if len(cells) != len(header):
            found = f"the row has {len(cells)} values and the header {len(header)}"
            raise DataError(f"{file}, row {number}: {found}: expected as many")
        try:
            parsed = [_number(text) for text in pick(cells)]
        except ValueError:
            parsed = [math.nan]
        if not all(map(math.isfinite, parsed)):
            for position in sorted(positions):
                _refuse_unless_finite(f"{file}, row {number}, column {header[position]!r}", cells[position])
        values.extend(parsed)
    if not values:
        raise DataError(f"{file}: there are no rows of data: expected at least one")
    return np.frombuffer(values).reshape(-1, len(positions))


def _number(text: str) -> float:
    # `float` accepts the underscores of Python's own literals, and the digits of every script: in a table, slips both.
    if "_" in text or not (text.isascii() or text.strip().isascii()):
        raise ValueError(text)
    return float(text)


def _refuse_unless_finite(place: str, text: str) -> None:
    try:
        number = _number(text)
    except ValueError as error:
        if text.strip().casefold() not in _MISSING:
            found = f"{reprlib.repr(text)} is not a number"
            raise DataError(f"{place}: {found}: expected one written like 12.5 or 3e-4") from error
        number = math.nan
    if not math.isfinite(number):
        raise not_finite(place, number, found=text)


def _read_npz(file: Path, target: Names, features: Names | None) -> tuple[Array, Array]:
    roles = {"target": target, "features": "X" if features is None else features}
    with _archive(file) as archive:
        available = {name.removesuffix(".npy"): None for name in archive.namelist() if name.endswith(".npy")}
        y_name, X_name = (_only(f"{file}, {role}", name, available) for role, name in roles.items())
        _refuse_repeated(f"{file}, target and features", "array", [y_name, X_name])
        X_place, y_place = f"{file}, array {X_name!r}", f"{file}, array {y_name!r}"
        heads = [_head(archive, X_name, place=X_place), _head(archive, y_name, place=y_place)]
        check_pair(*heads, X_place=X_place, y_place=y_place)
        if beyond := beyond_memory(sum(head.bytes_to_read for head in heads)):
            raise DataError(f"{file}: the arrays {X_name!r} and {y_name!r} take {beyond}: expected smaller ones")
        X, y = _array(archive, X_name, place=X_place), _array(archive, y_name, place=y_place)
    return paired_arrays(X, y, X_place=X_place, y_place=y_place)


def _only(place: str, chosen: Names, available: Collection[str]) -> str:
    if not isinstance(chosen, str):
        raise DataError(f"{place}: found {chosen!r}: expected the name of one array")
    return _known(place, "array", chosen, available)[0]


def _archive(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _CORRUPT as error:
        raise DataError(f"{file}: not an .npz archive ({error}): expected one saved by numpy.savez") from error


@dataclass(frozen=True)
class _Head:
    """What an archive says of one of its arrays before it is unpacked, and how many bytes it takes then."""

    shape: tuple[int, ...]
    dtype: np.dtype
    size: int

    @property
    def bytes_to_read(self) -> int:
        """Unpacked, parsed, and in float64."""
        return 2 * self.size + 8 * math.prod(self.shape)


def _head(archive: zipfile.ZipFile, name: str, *, place: str) -> _Head:
    """Read the head of an array alone: a few kilobytes of an archive may unpack to any size."""
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


def _known(place: str, kind: str, chosen: Names, available: Collection[str]) -> list[str]:
    """Return the chosen names; `available` are looked up, so that their number costs nothing."""
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    listing = ", ".join(map(reprlib.repr, islice(available, 20))) + (", ..." if len(available) > 20 else "")
    if not names:
        raise DataError(f"{place}: no {kind} is named or left: expected at least one of {listing}")
    for name in names:
        if name not in available:
            folded = {other.casefold(): other for other in islice(available, _MOST_COMPARED)}
            nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
            hint = f" (did you mean {folded[nearest[0]]!r}?)" if nearest else ""
            raise DataError(f"{place}: there is no {kind} {reprlib.repr(name)}{hint}: expected one of {listing}")
    return names


def _refuse_repeated(place: str, kind: str, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"{place}: {kind} {name!r} is named {count} times: expected once")
