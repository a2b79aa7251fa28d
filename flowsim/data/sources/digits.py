"""The kind of data called digits: 1797 images of handwritten digits, which are shipped with flowsim."""

from importlib.resources import files
from pathlib import Path

import numpy as np

from .classes import ClassSource, Labelled
from .source import SOURCES

_FILE = "digits.npz"  # digits.md beside it says where they come from
_SHAPE, _CLASSES, _SAMPLES = (1, 8, 8), 10, 1797


@SOURCES.register("digits")
class Digits(ClassSource):
    """1797 images of handwritten digits, 8 by 8 with one channel, in ten classes (Alpaydin and Kaynak 1998)."""

    def read(self, folder: Path) -> Labelled:
        """Read the images that are shipped, whose inputs are whole numbers from 0 to 16."""
        with (files("flowsim.data.sources") / _FILE).open("rb") as stream, np.load(stream) as archive:
            X, y = archive["X"], archive["y"]
        return Labelled(X.reshape(-1, *_SHAPE), y.astype(np.int64), limits=(0.0, 16.0))

    def dimensions(self) -> tuple[int, int | None]:
        """Return the number of inputs, and of what is to be predicted."""
        return int(np.prod(_SHAPE)), self.predicted_numbers(_CLASSES)

    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of an image."""
        return _SHAPE

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return the sizes."""
        return self.samples or _SAMPLES, int(np.prod(_SHAPE)), _CLASSES
