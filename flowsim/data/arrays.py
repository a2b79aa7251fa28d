"""What can be computed with: finite real numbers in arrays of the right shape, or a message that says where not."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class DataError(ValueError):
    """Data that cannot be used: the message says where, what was found, and what is expected."""


def paired_arrays(X: ArrayLike, y: ArrayLike, *, X_place: str = "X", y_place: str = "y") -> tuple[Array, Array]:
    """Return X (n, d) and y, (n,) or (n, m), in float64; the places are what an error calls them.

    Raises `DataError` as `real_array` does, and for different numbers of rows.
    """
    X, y = real_array(X, (2,), place=X_place), real_array(y, (1, 2), place=y_place)
    if len(X) != len(y):
        raise DataError(f"{X_place} has {len(X)} rows and {y_place} has {len(y)}: expected one of each per sample")
    return X, y


def real_array(given: ArrayLike, dimensions: tuple[int, ...], *, place: str) -> Array:
    """Return `given` in float64, with one of the `dimensions` 1 and 2; `place` is what an error calls it.

    Raises `DataError` for other numbers of axes, an empty axis, and entries that are not finite real
    numbers.
    """
    try:
        array = np.asarray(given)
    except ValueError as error:  # NumPy's, of lists that make no array
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataError(f"{place} makes no array ({reason}): expected rows of equal length") from None
    if array.ndim not in dimensions or 0 in array.shape:
        expected = " or ".join({1: "(n,)", 2: "(n, columns)"}[dimension] for dimension in dimensions)
        raise DataError(f"{place} has shape {array.shape}: expected {expected}, with no empty axis")
    if array.dtype.kind not in "iuf":
        raise DataError(f"{place} holds {array.dtype}: expected real numbers, such as float64")
    array = array.astype(np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        entry = ", ".join(f"{axis} {number + 1}" for axis, number in zip(("row", "column"), bad[0], strict=False))
        number = float(array[tuple(bad[0])])
        raise not_finite(f"{place}, {entry} (counted from 1)", number, found=str(number))
    return array


def not_finite(place: str, number: float, *, found: str) -> DataError:
    """Return the error for a `number`, written as `found`, that is missing (NaN) or infinite."""
    fault = "missing" if math.isnan(number) else "infinite"
    return DataError(f"{place}: the value is {fault} ({found!r}): expected a finite number; fill it in or drop the row")
