"""Samples read from CSV and NPZ files; an error says at which row and column the file is wrong."""

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
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...runtime.memory import beyond_memory
from ...runtime.paths import user_path
from ..arrays import SHAPES, Array, DataError, check_finite, check_kind, check_pair, not_finite, paired_arrays

Names = str | Sequence[str]
Read = TypeVar("Read")

_CORRUPT = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OverflowError, ValueError)
_MISSING = frozenset(["", "?", "-", ".", "na", "n/a", "#n/a", "<na>", "nat", "nil", "null", "none", "missing"])
_NO_LABEL = frozenset(["", "?", "na", "n/a", "nan"])


def read_table(path: str | PathLike[str], target: Names, features: Names | None = None) -> tuple[Array, Array]:
    """Read X and y in float64 from a `.csv` or `.npz` file.

    CSV: commas, UTF-8, the first row names the columns, blank rows are skipped. Columns not named may hold anything.
    NPZ: `target` and `features` name one array of the archive each; nothing is unpickled.

    Args:
        path: The file.
        target: The column of y, or a list of m names for a y of shape (n, m).
        features: The columns of X, in the order wanted; by default all others, of an archive the array `"X"`.

    Returns:
        X (n, d) and y, (n,) or (n, m).

    Raises:
        DataError: With the file, the row as counted in the file from 1 (the header of a CSV is a row) and the column:
            for a file that is absent or not what its name says, for names that are unknown, repeated or blank, for
            shapes that do not fit, and for entries that are missing, infinite or not real numbers.
    """
    return _read(path, {".csv": _numbers_of_csv, ".npz": _numbers_of_npz}, target, features)


def read_labelled(
    path: str | PathLike[str], target: str, features: Names | None = None
) -> tuple[NDArray, NDArray[np.str_] | NDArray[np.int64]]:
    """Read samples and the labels of their classes from a `.csv` or `.npz` file as `read_table` does.

    Args:
        path: The file.
        target: The column, or the array of an archive, of the labels.
        features: The columns of X, or its array, as in `read_table`.

    Returns:
        X, (n, d), or from an NPZ file also images (n, channels, height, width), which may be saved without channels, in
        the type that they have there; and the labels (n,), whole numbers, or text in a CSV file.

    Raises:
        DataError: For labels that are missing, for numbers that are not whole, and as `read_table`.
    """
    return _read(path, {".csv": _labelled_of_csv, ".npz": _labelled_of_npz}, target, features)


def _read(
    path: str | PathLike[str], readers: dict[str, Callable[..., Read]], target: Names, features: Names | None
) -> Read:
    file = user_path(path)
    try:
        if file.is_dir():
            raise DataError(f"{file}: this is a folder: expected a .csv or .npz file")
        if file.suffix.lower() not in readers:
            raise DataError(f"{file}: file type {file.suffix!r} is not supported: expected .csv or .npz")
        return readers[file.suffix.lower()](file, target, features)
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file, seen from {Path.cwd()}") from error
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {error.strerror or error}") from error


def _numbers_of_npz(file: Path, target: Names, features: Names | None) -> tuple[Array, Array]:
    X, y, positions = _read_npz(file, target, features, check_pair)
    return paired_arrays(X, y, **positions)


def _labelled_of_npz(file: Path, target: str, features: Names | None) -> tuple[NDArray, NDArray[np.int64]]:
    X, y, positions = _read_npz(file, target, features, check_labelled)
    check_finite(X, place=positions["X_place"])
    # Up to 2⁵³ float64 tells whole numbers apart.
    if not (whole := (abs(y) <= 2.0**53) & (y == np.round(y))).all():
        row = int(np.argmin(whole))
        raise _no_class(f"{positions['y_place']}, row {row + 1} (counted from 1)", str(y[row]))
    return X[:, None] if X.ndim == 3 else X, y.astype(np.int64)


def _read_npz(
    file: Path, target: Names, features: Names | None, check: Callable[..., None]
) -> tuple[NDArray, NDArray, dict[str, str]]:
    """Return the arrays X and y as they are, and what errors call them, once `check` has seen their shapes and types.

    `target` and `features` (`"X"` if not given) name one array each; nothing is unpickled.
    """
    try:
        archive = zipfile.ZipFile(file)
    except _CORRUPT as error:
        raise DataError(f"{file}: not an .npz archive ({error}): expected one saved by numpy.savez") from error
    with archive:
        available = {name.removesuffix(".npy"): None for name in archive.namelist() if name.endswith(".npy")}
        names = []
        for role, chosen in {"target": target, "features": "X" if features is None else features}.items():
            if not isinstance(chosen, str):
                raise DataError(f"{file}, {role}: found {chosen!r}: expected the name of one array")
            names += check_names(f"{file}, {role}", "array", chosen, available)
        check_unique(f"{file}, target and features", "array", names)
        y_name, X_name = names
        X_place, y_place = f"{file}, array {X_name!r}", f"{file}, array {y_name!r}"
        known = [_shape_alone(archive, X_name, X_place), _shape_alone(archive, y_name, y_place)]
        check(*known, X_place=X_place, y_place=y_place)
        # Each is there unpacked, parsed, and in float64.
        if beyond := beyond_memory(sum(2 * array.nbytes + 8 * array.size for array in known)):
            raise DataError(f"{file}: the arrays {X_name!r} and {y_name!r} take {beyond}: expected smaller ones")
        X, y = (_array(archive, name, place) for name, place in ((X_name, X_place), (y_name, y_place)))
    return X, y, {"X_place": X_place, "y_place": y_place}


def _shape_alone(archive: zipfile.ZipFile, name: str, place: str) -> NDArray:
    """Return zeros of the shape and type of an array, which take no memory: a small archive may unpack to any size."""
    try:
        with archive.open(f"{name}.npy") as stream:
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, dtype = readers.get(version, np.lib.format.read_array_header_2_0)(stream)
            size = archive.getinfo(f"{name}.npy").file_size - stream.tell()
        if dtype.hasobject:
            raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
        if size != (expected := math.prod(shape) * dtype.itemsize):
            raise ValueError(f"{size} bytes for shape {shape} of {dtype}, which takes {expected}")
        return np.broadcast_to(np.zeros((), dtype), shape)
    except _CORRUPT as error:
        raise _unreadable(place, error) from error


def _array(archive: zipfile.ZipFile, name: str, place: str) -> NDArray:
    try:
        # Read whole before it is parsed: the checksum comes last.
        return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
    except _CORRUPT as error:
        raise _unreadable(place, error) from error


def _unreadable(place: str, reason: object) -> DataError:
    return DataError(f"{place}: the array cannot be read ({reason}): expected real numbers, saved by numpy.savez")


def _no_class(place: str, found: str) -> DataError:
    expected = "expected whole numbers up to 2^53 or words, each the label of a class; for regression write kind: file"
    return DataError(f"{place}: the label is {found}: {expected}")


def _numbers_of_csv(file: Path, target: Names, features: Names | None) -> tuple[Array, Array]:
    header, rows, inputs, targets = _columns(file, target, features)
    table = _numbers(file, header, rows, [*inputs, *targets])
    y = table[:, len(inputs)] if isinstance(target, str) else table[:, len(inputs) :]
    return table[:, : len(inputs)].copy(), y.copy()


def _labelled_of_csv(file: Path, target: str, features: Names | None) -> tuple[NDArray, NDArray[Any]]:
    header, rows, inputs, (position,) = _columns(file, target, features)
    rows = list(rows)
    X = _numbers(file, header, iter(rows), inputs)
    labels = [cells[position].strip() for _, cells in rows]
    for (number, _), label in zip(rows, labels, strict=True):
        if label.casefold() in _NO_LABEL:
            found = f"{file}, row {number}, column {target!r}: the label is missing ({label!r})"
            raise DataError(f"{found}: expected that of a class; fill it in or drop the row")
    try:
        numbers = np.array([_number(label) for label in labels])
    except ValueError:
        return X, np.array(labels)
    for (number, _), value in zip(rows, numbers, strict=True):
        if not value.is_integer() or abs(value) > 2.0**53:
            raise _no_class(f"{file}, row {number}, column {target!r}", str(value))
    return X, numbers.astype(np.int64)


Columns = tuple[list[str], Iterator[tuple[int, list[str]]], list[int], list[int]]


def _columns(file: Path, target: Names, features: Names | None) -> Columns:
    """Return the header, the rows behind it, and the positions of the columns of X and of y."""
    rows = _rows(file)
    number, cells = next(rows, (1, []))
    header = [name.strip() for name in cells]
    if not header:
        raise DataError(f"{file}: the file is empty: expected a row of column names, then rows of numbers")
    if len(header) == 1:
        found, write = f"there is one column, {reprlib.repr(header[0])}", ""
        if separator := next((one for one in ";\t|" if one in header[0]), ""):  # as spreadsheets may write
            decimal = ", decimal=','" if any(len(cells) > 1 for _, cells in rows) else ""
            read = f"pandas.read_csv({str(file)!r}, sep={separator!r}{decimal})"
            write = f"; write {read}.to_csv({str(file.with_stem(file.stem + '_commas'))!r}, index=False)"
        raise DataError(f"{file}, row {number}: {found}: expected two or more, separated by commas{write}")
    check_unique(f"{file}, row {number}", "column", [name for name in header if name])
    position = {name: index for index, name in enumerate(header)}
    targets = check_names(f"{file}, target", "column", target, position)
    if features is None:
        taken = set(targets)
        features = [name for name in header if name not in taken]
    inputs = check_names(f"{file}, features", "column", features, position)
    check_unique(f"{file}, target and features", "column", [*inputs, *targets])
    if "" in inputs or "" in targets:
        place = f"{file}, row {number}, column number {header.index('') + 1}"
        raise DataError(f"{place}: the column has no name: expected one, or a list of the features wanted")
    return header, rows, [position[name] for name in inputs], [position[name] for name in targets]


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number, counted from 1, and the cells of every row that is not blank."""
    content, number = file.read_bytes(), 0
    try:
        text = content.decode("utf-8-sig")
        for number, cells in enumerate(
            csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True), 1
        ):
            if len(cells) > 1 or "".join(cells).strip():
                yield number, cells
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise DataError(f"{file}, row {row}: {found}: save the file as UTF-8") from error
    except csv.Error as error:
        place = f"{file}, row {number + 1}"
        raise DataError(f"{place}: not valid CSV ({error}): check the quotation marks") from error


def _numbers(file: Path, header: list[str], rows: Iterator[tuple[int, list[str]]], positions: list[int]) -> Array:
    pick = operator.itemgetter(*positions) if len(positions) > 1 else lambda cells: (cells[positions[0]],)
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
                place, text = f"{file}, row {number}, column {header[position]!r}", cells[position]
                try:
                    value = _number(text)
                except ValueError as error:
                    if text.strip().casefold() not in _MISSING:
                        found = f"{reprlib.repr(text)} is not a number"
                        expected = "expected one written like 12.5 or 3e-4; labels of classes take kind: labelled"
                        raise DataError(f"{place}: {found}: {expected}") from error
                    value = math.nan
                if not math.isfinite(value):
                    raise not_finite(place, value, found=text)
        values.extend(parsed)
    if not values:
        raise DataError(f"{file}: there are no rows of data: expected at least one")
    return np.frombuffer(values).reshape(-1, len(positions))


def _number(text: str) -> float:
    # `float` accepts the underscores of Python's own literals, and the digits of every script: in a table, slips both.
    if "_" in text or not (text.isascii() or text.strip().isascii()):
        raise ValueError(text)
    return float(text)


def check_labelled(X: NDArray, y: NDArray, *, X_place: str, y_place: str) -> None:
    """Raise `DataError` for what are not X (n, d), or images, and labels (n,), of real numbers."""
    check_kind(X, (2, 3, 4), place=X_place)
    if len(X.shape) == 4 and X.shape[3] <= 4 < min(X.shape[1:3]):  # as short as red, green, blue and opacity
        raise DataError(
            f"{X_place} has shape {X.shape}, as of images with their channels last: expected {SHAPES[4]}; save "
            "X.transpose(0, 3, 1, 2)"
        )
    check_kind(y, (1,), place=y_place)
    if X.shape[0] != y.shape[0]:
        samples = f"{X_place} has {X.shape[0]} samples and {y_place} has {y.shape[0]} labels"
        raise DataError(f"{samples}: expected one label for each sample")


def check_names(place: str, kind: str, chosen: Names, available: Collection[str], *, compared: int = 1000) -> list[str]:
    """Return the chosen names; `available` are looked up, so that their number costs nothing.

    Raises `DataError` where there is none, or no `kind`, a column or an array, of that name; it suggests the nearest of
    the first `compared` names.
    """
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    listing = ", ".join(map(reprlib.repr, islice(available, 20))) + (", ..." if len(available) > 20 else "")
    if not names:
        raise DataError(f"{place}: no {kind} is named or left: expected at least one of {listing}")
    for name in names:
        if name not in available:
            folded = {other.casefold(): other for other in islice(available, compared)}
            nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
            hint = f" (did you mean {folded[nearest[0]]!r}?)" if nearest else ""
            raise DataError(f"{place}: there is no {kind} {reprlib.repr(name)}{hint}: expected one of {listing}")
    return names


def check_unique(place: str, kind: str, names: Sequence[str]) -> None:
    """Raise `DataError` for a name that stands there twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"{place}: {kind} {name!r} is named {count} times: expected once")
