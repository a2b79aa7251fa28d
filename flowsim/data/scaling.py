"""Data brought to a common scale: standardized inputs, labels of unit regressor."""

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array, DataError, paired_arrays, real_array


def unit_regressor(X: ArrayLike, y: ArrayLike) -> Array:
    """Return y / ‖w*‖, for which the least-squares regressor of minimal norm has norm one.

    With X = U S Vᵀ over its nonzero singular values, ‖w*‖ = ‖S⁻¹ Uᵀ y‖.

    Args:
        X: The samples, (n, d).
        y: The labels, (n,) or (n, m).

    Returns:
        The labels scaled, of the shape of y.

    Raises:
        DataError: For shapes that do not fit, entries that are not finite real numbers, and w* = 0 up to rounding.
    """
    X, y = paired_arrays(X, y)
    exponent = np.frexp(np.abs(X).max())[1]
    left, singular, _ = np.linalg.svd(np.ldexp(X, -exponent), full_matrices=False)
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
    scaled = y * (singular[0] / np.linalg.norm(explained.T / relative[kept]))
    if np.frexp(np.abs(scaled).max())[1] + exponent > np.finfo(float).maxexp:
        size = np.abs(X).max()
        raise DataError(f"X has entries of size {size:.2g}, and labels that fit leave the range of floats: rescale")
    return np.ldexp(scaled, exponent)


def standardize(X: ArrayLike) -> Array:
    """Return X with every column at mean zero and variance one: (x − mean x) / std x.

    `X` is (n, d), and so is the result. The variance is that of the population (a mean over n, not n − 1),
    so that the covariance XᵀX/n has a unit diagonal. A column that is constant, up to a few rounding errors
    of its largest entry, becomes zero: nothing in it could be scaled. Raises `DataError` for entries that
    are not finite real numbers and for a shape other than (n, d).
    """
    X = real_array(X, (2,), place="X")
    return standardize_together(X, X[:0])[0]


def standardize_together(X: Array, others: Array, *, rounding_errors: int = 8) -> tuple[Array, Array]:
    """Return X (n, d) as `standardize` does, and `others` (m, d) after the same map of every column.

    A column that varies by no more than `rounding_errors` of its largest entry is constant: a computed constant (0.1 +
    0.2 beside 0.3) differs from itself by one or two, and its spread means nothing.
    """
    # Powers of two are divided out without rounding: the difference of two very large entries would overflow.
    exponents = -np.frexp(np.abs(X).max(axis=0))[1]
    X, others = np.ldexp(X, exponents), np.ldexp(others, exponents)
    # Taking off a row loses nothing where a column varies little around a large value; its mean would.
    centred, others = X - X[0], others - X[0]
    constant = np.ptp(centred, axis=0) <= rounding_errors * np.finfo(float).eps * np.abs(X).max(axis=0)
    centred[:, constant] = others[:, constant] = 0.0
    largest = np.abs(centred).max(axis=0)
    unit = np.where(constant, 1.0, largest)
    centred, others = centred / unit, others / unit
    mean = centred.mean(axis=0)
    centred, others = centred - mean, others - mean
    deviation = np.where(constant, 1.0, np.sqrt(np.mean(centred**2, axis=0)))
    return centred / deviation, others / deviation
