"""The kind of data called gaussian."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field
from pydantic_core import PydanticCustomError

from ...kinds.recipes import too_large, validation_error
from ...kinds.recipes.values import MOST_NUMBERS, Condition, Count, CountOrZero
from ...runtime.memory import beyond_memory
from ..gaussian import LARGEST_NOISE, gaussian_teacher_with_test
from .source import SOURCES, Data, DataSource


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
