"""Data to regress on: drawn from a Gaussian teacher, brought to unit regressor, standardized."""

import math
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# A column that varies by no more than this many rounding errors of its largest entry is constant: a computed
# constant (0.1 + 0.2 beside 0.3) differs from itself by one or two, and its spread means nothing.
_ROUNDING_ERRORS = 8


class DataError(ValueError):
    """Data that cannot be used: the message says where, what was found, and what is expected."""


def gaussian_teacher(
    rng: np.random.Generator,
    samples: int,
    features: int,
    *,
    noise: float = 1.0,
    outputs: int = 1,
    condition: float | None = None,
) -> tuple[Array, Array]:
    """Draw y = X w_true + noise·ζ with X, w_true and ζ standard Gaussian, then divide y by ‖w*‖.

    `samples` is n, `features` is d, `noise` the standard deviation of the noise. w* is the least-squares
    regressor of minimal norm (Frobenius norm for several outputs), so that the y returned has ‖w*‖ = 1
    (Marion and Chizat 2024, experiments). Returns X (n, d) and y: (n,), or (n, m) for m = `outputs` > 1.
    With `condition`, X keeps its singular vectors and gets singular values for which the eigenvalues of XᵀX/n fall
    geometrically from 1 to 1/`condition`. The draws do not depend on `noise` and `condition`. Raises `DataError` for
    sizes that are not positive whole numbers, a `noise` that is negative or not finite, and a `condition` below one,
    infinite, or other than one where there is one eigenvalue only.
    """
    options = {"noise": noise, "outputs": outputs, "condition": condition}
    return gaussian_teacher_with_test(rng, samples, features, test_samples=0, **options)[:2]


def gaussian_teacher_with_test(
    rng: np.random.Generator,
    samples: int,
    features: int,
    *,
    test_samples: int,
    noise: float = 1.0,
    outputs: int = 1,
    condition: float | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Draw X and y as `gaussian_teacher` does, and `test_samples` more, of the same teacher and in the same units.

    Returns X, y, X_test and y_test; X and y do not depend on the number of test samples, whose inputs are standard
    Gaussian whatever the `condition`. Raises as `gaussian_teacher`.
    """
    for name, size in {"samples": samples, "features": features, "outputs": outputs}.items():
        if not isinstance(size, Integral) or size < 1:
            raise DataError(f"{name} is {size!r}: expected a whole number, at least 1")
    if not 0 <= noise < math.inf:
        raise DataError(f"noise is {noise!r}: expected a finite standard deviation, at least 0")
    X = rng.standard_normal((samples, features))
    if condition is not None:
        X = _conditioned(X, condition)
    teacher = rng.standard_normal((features, outputs))
    y = X @ teacher + noise * rng.standard_normal((samples, outputs))
    X_test = rng.standard_normal((test_samples, features))
    y_test = X_test @ teacher + noise * rng.standard_normal((test_samples, outputs))
    if outputs == 1:
        y, y_test = y[:, 0], y_test[:, 0]
    scaled = unit_regressor(X, y)
    largest = np.abs(y).argmax()
    return X, scaled, X_test, y_test * (scaled.flat[largest] / y.flat[largest])


def _conditioned(X: Array, condition: float) -> Array:
    left, singular, right = np.linalg.svd(X, full_matrices=False)
    if not 1 <= condition < math.inf or (singular.size == 1 and condition != 1):
        expected = "one, as there is one eigenvalue" if singular.size == 1 else "a finite number, at least one"
        raise DataError(f"condition is {condition!r}: expected {expected}")
    return left * np.sqrt(len(X) * np.geomspace(1, 1 / condition, singular.size)) @ right


def unit_regressor(X: ArrayLike, y: ArrayLike) -> Array:
    """Return y / ‖w*‖, for which the least-squares regressor of minimal norm has norm one.

    With X = U S Vᵀ over its nonzero singular values, ‖w*‖ = ‖S⁻¹ Uᵀ y‖. `X` is (n, d), `y` is (n,) or (n,
    m), and so is the result. Raises `DataError` for shapes that do not fit, entries that are not finite
    real numbers, and w* = 0 up to rounding.
    """
    X, y = paired_arrays(X, y)
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    rounding = max(X.shape) * np.finfo(float).eps
    # Sizes are divided out: squares of very large or small entries would leave the range of floats.
    y = y / (np.abs(y).max() or 1.0)
    relative = singular / (singular[0] or 1.0)
    kept = relative > rounding
    explained = left[:, kept].T @ y
    if np.linalg.norm(explained) <= rounding * np.linalg.norm(y):
        raise DataError(
            "the least-squares regressor w* of y on X is zero, so y cannot be scaled to ‖w*‖ = 1: "
            "expected a y that is not orthogonal to every column of X"
        )
    return y * (singular[0] / np.linalg.norm(explained.T / relative[kept]))


def standardize(X: ArrayLike) -> Array:
    """Return X with every column at mean zero and variance one: (x − mean x) / std x.

    `X` is (n, d), and so is the result. The variance is that of the population (a mean over n, not n − 1),
    so that the covariance XᵀX/n has a unit diagonal. A column that is constant, up to a few rounding errors
    of its largest entry, becomes zero: nothing in it could be scaled. Raises `DataError` for entries that
    are not finite real numbers and for a shape other than (n, d).
    """
    X = real_array(X, (2,), place="X")
    # Taking off a row loses nothing where a column varies little around a large value; its mean would.
    centred = X - X[0]
    constant = np.ptp(centred, axis=0) <= _ROUNDING_ERRORS * np.finfo(float).eps * np.abs(X).max(axis=0)
    centred[:, constant] = 0.0
    largest = np.abs(centred).max(axis=0)
    centred /= np.where(constant, 1.0, largest)
    centred -= centred.mean(axis=0)
    deviation = np.sqrt(np.mean(centred**2, axis=0))
    return centred / np.where(constant, 1.0, deviation)


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
    array = np.asarray(given)
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
