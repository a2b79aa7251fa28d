"""Checks of data: finite real numbers in arrays of the right shape; errors say where not."""

import math
import numbers
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..kinds import reason_of
from ..runtime.errors import UserError

Array = NDArray[np.float64]

_AXES_OF_IMAGES = ("channel", "row", "column")
SHAPES = {1: "(n,)", 2: "(n, columns)", 3: "(n, height, width)", 4: "(n, channels, height, width)"}


class DataError(UserError, ValueError):
    """Data that cannot be used: the message says where, what was found, and what is expected."""


class DataWarning(UserWarning):
    """Data that can be used, but of which a part is missing: the message says which, and what to write."""


def paired_arrays(X: ArrayLike, y: ArrayLike, *, X_place: str = "X", y_place: str = "y") -> tuple[Array, Array]:
    """Return samples and labels in float64.

    Args:
        X: The samples, (n, d).
        y: The labels, (n,) or (n, m).
        X_place: What an error calls the samples.
        y_place: What an error calls the labels.

    Returns:
        X and y.

    Raises:
        DataError: As `real_array`, and for different numbers of rows.
    """
    X, y = real_array(X, (2,), place=X_place), real_array(y, (1, 2), place=y_place)
    check_pair(X, y, X_place=X_place, y_place=y_place)
    return X, y


def check_pair(X: NDArray, y: NDArray, *, X_place: str, y_place: str) -> None:
    """Raise `DataError` for what are not X (n, d) and y, (n,) or (n, m), of real numbers."""
    check_kind(X, (2,), place=X_place)
    check_kind(y, (1, 2), place=y_place)
    if X.shape[0] != y.shape[0]:
        rows = f"{X_place} has {X.shape[0]} rows and {y_place} has {y.shape[0]}"
        raise DataError(f"{rows}: expected one of each per sample")


def real_array(given: ArrayLike, dimensions: tuple[int, ...], *, place: str) -> Array:
    """Return an array in float64.

    Args:
        given: What it is made of.
        dimensions: How many axes it may have: some of 1 and 2.
        place: What an error calls it.

    Returns:
        The array.

    Raises:
        DataError: For other numbers of axes, an empty axis, and entries that are not finite real numbers.
    """
    array = numeric_array(given, place=place)
    check_kind(array, dimensions, place=place)
    with np.errstate(over="ignore"):  # what float64 has no number for is refused below
        array = array.astype(np.float64)
    check_finite(array, place=place)
    return array


def numeric_array(given: Any, *, place: str) -> NDArray:
    """Return data as an array in its own type: an array, lists, a tensor, or a table with named columns.

    Raises `DataError` for what is no array of numbers, such as words or missing values. Of a table it names the column.
    """
    names = getattr(given, "columns", None)  # of pandas, polars and their like
    if names is None:
        return _numbers(given, place)
    array = np.asarray(given)
    if array.ndim != 2 or array.dtype.kind in "iub" or (array.dtype.kind == "f" and np.isfinite(array).all()):
        return array
    of_pandas = hasattr(given, "items")
    parts = []
    for name, column in given.items() if of_pandas else ((name, given[name]) for name in names):
        drop = f"{place}.drop(columns=[{name!r}])" if of_pandas else f"{place}.drop({name!r})"
        classes = f"pandas.get_dummies({place}, dtype=float)" if of_pandas else ""
        if place == "y" and array.shape[1] == 1:
            drop, classes = "", f"numpy.unique({place}[{name!r}], return_inverse=True)[1]"
        parts.append(_numbers(column, place, of=f", column {name!r}", drop=drop, classes=classes))
        check_finite(parts[-1].astype(np.float64), place=f"{place}, column {name!r}")
    return np.stack(parts, axis=1)


def _numbers(given: Any, name: str, *, of: str = "", drop: str = "", classes: str = "") -> NDArray:
    """Return an array of numbers, which a user calls `name`, or a column `of` it.

    `drop` is what leaves out such a column, and `classes` what makes numbers of its words.
    """
    place, write = name + of, ""
    try:
        array = np.asarray(given)
    except ValueError as error:  # NumPy's, of lists that make no array
        raise DataError(f"{place} makes no array ({reason_of(error)}): expected rows of equal length") from None
    except (TypeError, RuntimeError) as error:  # of the library that it comes from, as of a tensor with a gradient
        if hasattr(given, "to_dataframe"):  # of a data set of xarray
            write = f"; write {name}.to_dataframe()"
        elif hasattr(given, "detach"):
            write = f"; write {name}.detach().double().cpu().numpy()"
        raise DataError(f"{place} makes no array ({reason_of(error)}): expected an array of numbers{write}") from error
    if array.dtype.kind == "O" and array.ndim == 0:
        if isinstance(given, Mapping):
            write = f"; write pandas.DataFrame({name})"
        elif hasattr(given, "toarray"):  # of a sparse matrix of SciPy
            write = f"; write {name}.toarray()"
        raise DataError(f"{place} is a {type(given).__name__}: expected an array, lists or a table of numbers{write}")
    if array.dtype.kind in "Mm":
        raise DataError(f"{place} holds {array.dtype}: expected real numbers" + (f"; write {drop}" if drop else ""))
    if np.ma.is_masked(given):  # else the numbers below the mask would count
        _refuse_missing(np.ma.getmaskarray(given), np.full(array.shape, "masked"), place=place)
    if array.dtype.kind not in "OSU":
        return array
    NA = getattr(sys.modules.get("pandas"), "NA", None)  # only a process that has imported pandas can hold it
    # Of these types a missing value, such as pandas.NaT, is not equal to itself.
    unequal = (numbers.Number, np.generic, datetime)
    missing = [entry is None or entry is NA or (isinstance(entry, unequal) and entry != entry) for entry in array.flat]
    _refuse_missing(np.reshape(missing, array.shape), array, place=place)
    others = [entry for entry in array.flat if not isinstance(entry, numbers.Real | np.bool_)]
    if not others:  # of pandas' types that allow missing values, and of columns of several types
        return np.array(array.tolist())
    holds = "words" if isinstance(others[0], str) else f"objects of {type(others[0]).__name__}"
    try:
        array.astype(np.float64)
        write = f"; write numpy.asarray({name}, float)"
    except (TypeError, ValueError):
        if array.ndim == 1 and not drop:
            classes = classes or f"numpy.unique({name}, return_inverse=True)[1]"
        remedies = ([drop] if drop else []) + ([f"{classes} for classes"] if classes else [])
        write = f"; write {', or '.join(remedies)}" if remedies else ""
    raise DataError(f"{place} holds {holds}, such as {str(others[0])!r}: expected real numbers{write}")


def _refuse_missing(missing: NDArray, array: NDArray, *, place: str) -> None:
    """Raise `DataError` for the first entry that is missing, with its place and what is there."""
    for at in np.argwhere(missing)[:1]:
        entry = ", ".join(f"{axis} {number + 1}" for axis, number in zip(("row", "column"), at, strict=False))
        raise not_finite(f"{place}, {entry} (counted from 1)", math.nan, found=str(array[tuple(at)]))


def check_finite(array: NDArray, *, place: str) -> None:
    """Raise `DataError` for an entry that is not finite, with its place in the array."""
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        axes = ("row", "column") if array.ndim <= 2 else ("sample", *_AXES_OF_IMAGES[-(array.ndim - 1) :])
        entry = ", ".join(f"{axis} {number + 1}" for axis, number in zip(axes, bad[0], strict=False))
        number = float(array[tuple(bad[0])])
        raise not_finite(f"{place}, {entry} (counted from 1)", number, found=str(number))


def check_kind(array: NDArray, dimensions: tuple[int, ...], *, place: str) -> None:
    """Raise `DataError` for other numbers of axes than `dimensions`, an empty axis, and what are no real numbers."""
    if len(array.shape) not in dimensions or 0 in array.shape:
        expected = " or ".join(SHAPES[dimension] for dimension in dimensions)
        raise DataError(f"{place} has shape {array.shape}: expected {expected}, with no empty axis")
    if array.dtype.kind not in "iuf":
        raise DataError(f"{place} holds {array.dtype}: expected real numbers, such as float64")


def not_finite(place: str, number: float, *, found: str) -> DataError:
    """Return the error for a `number`, written as `found`, that is missing (NaN) or infinite."""
    fault = "missing" if math.isnan(number) else "infinite"
    return DataError(f"{place}: the value is {fault} ({found!r}): expected a finite number; fill it in or drop the row")
