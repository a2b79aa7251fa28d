"""The kind of data called cifar10: the binary files of CIFAR-10, which a user has downloaded."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from ...kinds.recipes import validation_error
from ...kinds.recipes.values import WHOLE, FileName, distinct
from ..arrays import DataError
from .classes import ClassSource, Labelled
from .source import SOURCES

_SHAPE, _CLASSES, _BATCH = (3, 32, 32), 10, 10_000
_SOURCE = "the CIFAR-10 binary version"

Batch = Annotated[int, Field(ge=1, le=5), WHOLE]


@SOURCES.register("cifar10")
class Cifar10(ClassSource):
    """Colour images of 32 by 32 in ten classes, 0 to 9, from the files of CIFAR-10's binary version (Krizhevsky 2009).

    Samples to train on are drawn from data_batch_1.bin to data_batch_5.bin, those held out from test_batch.bin.
    """

    unswept: ClassVar[frozenset[str]] = frozenset({"kind", "path", "batches"})

    path: FileName = Field(examples=["cifar-10-batches-bin"])
    """The folder of the files; a relative path starts in the folder of the scenario file."""
    batches: Annotated[tuple[Batch, ...], Field(min_length=1), AfterValidator(distinct)] = Field(
        default=(1, 2, 3, 4, 5), examples=[[1]]
    )
    """The numbers of the files data_batch_*.bin to read; each has 10 000 images."""

    def read(self, folder: Path) -> Labelled:
        """Read the files. Raises `DataError` for one that is not of this format."""
        batches = [read_batch(folder / name) for name in self.files_read()]
        others = batches.pop() if self.test_samples else None
        X, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        return Labelled(X, labels, (0.0, 255.0), others)

    def dimensions(self) -> tuple[int, int | None]:
        """Return the number of inputs, and of what is to be predicted."""
        return int(np.prod(_SHAPE)), self.predicted_numbers(_CLASSES)

    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of an image."""
        return _SHAPE

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return the sizes."""
        return self.samples or _BATCH * len(self.batches), int(np.prod(_SHAPE)), _CLASSES

    def files_read(self) -> tuple[str, ...]:
        """Return the files of the batches, and that of the samples held out if there are to be any."""
        names = [f"data_batch_{number}.bin" for number in self.batches]
        return tuple(f"{self.path}/{name}" for name in (*names, *(["test_batch.bin"] if self.test_samples else [])))

    def absences(self, folder: Path) -> Iterator[PydanticCustomError]:
        """Yield which of the files is not there."""
        for name in self.files_read():
            if not (folder / name).is_file():
                yield validation_error(
                    found=f"no file {name} in {folder.resolve()}",
                    expected=f"the folder of {_SOURCE}, with data_batch_1.bin to data_batch_5.bin and test_batch.bin",
                    write="its path as seen from the folder of the scenario, and batches that are there",
                    at=("path",),
                )


def read_batch(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 3, 32, 32) and the labels (n,) of one file of the binary version of CIFAR-10.

    Raises `DataError` for a size that is not that of whole records, and for labels beyond 9.
    """
    # A byte for the label, then the pixels: all red ones row by row, all green, all blue.
    record = 1 + math.prod(_SHAPE)
    try:
        content = np.fromfile(file, np.uint8)
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {error.strerror or error}") from error
    if content.size == 0 or content.size % record:
        expected = f"a multiple of {record} (a byte for the label and 3072 of pixels), as in {_SOURCE}"
        raise DataError(f"{file}: the file has {content.size} bytes: expected {expected}")
    records = content.reshape(-1, record)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= _CLASSES:
        number = int(np.argmax(labels >= _CLASSES))
        raise DataError(
            f"{file}: image {number + 1} has the label {labels[number]}: expected 0 to 9, as in {_SOURCE}; CIFAR-100 "
            "and the versions for Python and Matlab have other formats"
        )
    return records[:, 1:].reshape(-1, *_SHAPE), labels
