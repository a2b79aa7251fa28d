"""Data drawn from a Gaussian teacher, and the kind of data called gaussian."""

import math
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field
from pydantic_core import PydanticCustomError

from ..kinds import too_large, validation_error
from ..kinds.values import MOST_NUMBERS, Condition, Count, CountOrZero
from ..runtime.memory import beyond_memory
from .arrays import Array, DataError
from .scaling import unit_regressor
from .source import SOURCES, Data, DataSource

LARGEST_NOISE = 1e100  # whose square is a float, and so is a sum of squares


@SOURCES.register("gaussian")
class GaussianData(DataSource):
    """Inputs and noise drawn from standard Gaussians, labels from a linear teacher, with ‖w*‖ = 1."""

    varied: ClassVar[frozenset[str]] = frozenset({"features", "condition"})

    samples: Count = Field(examples=[50])
    """Number of samples n."""
    features: Count = Field(examples=[5])
    """Number of features d of one sample."""
    noise: float = Field(default=1.0, ge=0, le=LARGEST_NOISE, examples=[1.0])
    """Standard deviation of the noise on the labels, before they are scaled."""
    outputs: Count = Field(default=1, examples=[1])
    """Number of labels m of one sample."""
    condition: Condition | None = Field(default=None, examples=[100.0])
    """Condition number Λ/λ of the covariance, with Λ = 1; null: as the inputs are drawn."""
    test_samples: CountOrZero = Field(default=0, examples=[50])
    """Number of further samples of the same teacher, on which a sweep measures the risk of what was trained."""

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Draw the samples, and those that are held out after them."""
        options = {"noise": self.noise, "outputs": self.outputs, "condition": self.condition}
        sizes = (self.samples, self.features)
        drawn = gaussian_teacher_with_test(rng, *sizes, test_samples=self.test_samples, **options)
        return Data(drawn[:2], drawn[2:] if self.test_samples else None)

    def dimensions(self) -> tuple[int, int]:
        """Return the numbers of features and labels."""
        return self.features, self.outputs

    def holds_out(self) -> bool:
        """Return whether test samples are asked for."""
        return self.test_samples > 0

    def stated_condition(self) -> float | None:
        """Return Λ/λ, where it is asked for."""
        return self.condition

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return the sizes, which are known."""
        return self.samples, self.features, self.outputs

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that there are too many numbers, or that the condition number could not be that of all samples."""
        numbers = {"samples": self.samples * (self.features + self.outputs), "features": self.features**2}
        for key, number in numbers.items():
            if number > MOST_NUMBERS:
                yield too_large(f"a matrix of {number} numbers", key, (key,))
        # So many copies of the data are there at once, at least, when the regressor is scaled to norm one.
        samples, copies = self.samples + self.test_samples, 4
        if beyond := beyond_memory(8 * copies * samples * (self.features + self.outputs)):
            yield validation_error(
                found=f"{samples} samples of {self.features + self.outputs} numbers, in {copies} copies: {beyond}",
                expected="data that fit",
                write="fewer samples or features",
                at=("samples",),
            )
        if self.test_samples and self.condition is not None:
            yield validation_error(
                found=f"{self.test_samples} beside a condition number",
                expected="0, as the condition number is that of the drawn samples",
                write="test_samples: 0, or condition: null",
                at=("test_samples",),
            )


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
