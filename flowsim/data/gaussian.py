"""Data drawn from a Gaussian teacher."""

import math
from numbers import Integral

import numpy as np

from .arrays import Array, DataError
from .scaling import unit_regressor

LARGEST_NOISE = 1e100  # whose square is a float, and so is a sum of squares


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

    w* is the least-squares regressor of minimal norm (Frobenius norm for several outputs), so that the y returned has
    ‖w*‖ = 1 (Marion and Chizat 2024, experiments). The draws do not depend on `noise` and `condition`.

    Args:
        rng: What draws.
        samples: The number of samples n.
        features: The number of features d.
        noise: The standard deviation of the noise.
        outputs: The number of labels m of one sample.
        condition: Where it is given, X keeps its singular vectors and gets singular values for which the eigenvalues of
            XᵀX/n fall geometrically from 1 to 1/`condition`.

    Returns:
        X (n, d) and y: (n,), or (n, m) for m > 1.

    Raises:
        DataError: For sizes that are not positive whole numbers, a `noise` that is negative or not finite, and a
            `condition` below one, infinite, or other than one where there is one eigenvalue only.

    Examples:
        >>> import flowsim, numpy as np
        >>> X, y = flowsim.data.gaussian_teacher(np.random.default_rng(0), 50, 5)
        >>> X.shape, y.shape
        ((50, 5), (50,))
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
    """Draw X and y as `gaussian_teacher` does, and further samples of the same teacher and in the same units.

    X and y do not depend on the number of test samples, whose inputs are standard Gaussian whatever the `condition`.

    Args:
        rng: What draws.
        samples: The number of samples n.
        features: The number of features d.
        test_samples: The number of further samples.
        noise: The standard deviation of the noise.
        outputs: The number of labels m of one sample.
        condition: Λ/λ of XᵀX/n, as in `gaussian_teacher`.

    Returns:
        X, y, X_test and y_test.

    Raises:
        DataError: As `gaussian_teacher`.
    """
    for name, size in {"samples": samples, "features": features, "outputs": outputs}.items():
        if not isinstance(size, Integral) or size < 1:
            raise DataError(f"{name} is {size!r}: expected a whole number, at least 1")
    if not 0 <= noise <= LARGEST_NOISE:
        expected = f"expected a finite standard deviation, at least 0 and at most {LARGEST_NOISE:g}"
        raise DataError(f"noise is {noise!r}: {expected}")
    X = rng.standard_normal((samples, features))
    if condition is not None:
        left, singular, right = np.linalg.svd(X, full_matrices=False)
        if not 1 <= condition < math.inf or (singular.size == 1 and condition != 1):
            expected = "one, as there is one eigenvalue" if singular.size == 1 else "a finite number, at least one"
            raise DataError(f"condition is {condition!r}: expected {expected}")
        X = left * np.sqrt(len(X) * np.geomspace(1, 1 / condition, singular.size)) @ right
    teacher = rng.standard_normal((features, outputs))
    y = X @ teacher + noise * rng.standard_normal((samples, outputs))
    X_test = rng.standard_normal((test_samples, features))
    y_test = X_test @ teacher + noise * rng.standard_normal((test_samples, outputs))
    if outputs == 1:
        y, y_test = y[:, 0], y_test[:, 0]
    scaled = unit_regressor(X, y)
    largest = np.abs(y).argmax()
    return X, scaled, X_test, y_test * (scaled.flat[largest] / y.flat[largest])
