"""Data from a table or an archive: the kinds called file, of numbers, and labelled, of classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field
from pydantic_core import PydanticCustomError

from ...kinds.recipes import validation_error
from ...kinds.recipes.values import FileName, Names
from ..scaling import standardize, unit_regressor
from .classes import ClassSource, Labelled
from .source import SOURCES, Data, DataSource
from .table import read_labelled, read_table


class _OfTable(DataSource):
    """What the kinds of data in a table share."""

    unswept: ClassVar[frozenset[str]] = frozenset({"kind", "path", "target"})

    path: FileName = Field(examples=["data/diabetes.csv"])
    """A .csv or .npz file; a relative path starts in the folder of the scenario file."""

    def files_read(self) -> tuple[str, ...]:
        """Return the one file."""
        return (self.path,)

    def absences(self, folder: Path) -> Iterator[PydanticCustomError]:
        """Yield that there is no such file."""
        if not (folder / self.path).is_file():
            yield validation_error(
                found=f"{self.path!r}, which is no file in {folder.resolve()}",
                expected="a .csv or .npz file",
                write="its path as seen from the folder of the scenario",
                at=("path",),
            )


@SOURCES.register("labelled")
class LabelledFile(_OfTable, ClassSource):
    """Samples of classes from a CSV file (columns of numbers, one of labels) or an NPZ file (arrays)."""

    path: FileName = Field(examples=["data/flowers.csv"])
    """A .csv or .npz file; a relative path starts in the folder of the scenario file."""
    target: str = Field(default="y", min_length=1, examples=["species"])
    """The column, or the array of an NPZ file, that holds the labels: whole numbers, or words in a CSV file."""
    features: Names | None = Field(default=None, examples=[["length", "width"]])
    """The columns of the inputs; null: all others. In an NPZ file the name of an array, null: X. It may hold vectors
    (n, d), or images (n, height, width) or (n, channels, height, width)."""

    def read(self, folder: Path) -> Labelled:
        """Read the file."""
        features = self.features[0] if self.features and len(self.features) == 1 else self.features
        return Labelled(*read_labelled(folder / self.path, self.target, features))

    def dimensions(self) -> tuple[int | None, int | None]:
        """Return the number of columns named, and what is to be predicted of the classes named."""
        columns = len(self.features) if self.features and not self.path.lower().endswith(".npz") else None
        return columns, None if self.classes is None else self.predicted_numbers(len(self.classes))


@SOURCES.register("file")
class FileData(_OfTable):
    """Data read from a CSV file (columns) or an NPZ file (arrays)."""

    target: Names = Field(examples=["progression"])
    """The column to predict, or a list of columns; in an NPZ file, the name of an array."""
    features: Names | None = Field(default=None, examples=[["age", "bmi"]])
    """The columns to predict from; null: all the others. In an NPZ file the name of an array; null: X."""
    standardize: bool = Field(default=True, examples=[True])
    """Bring every feature to mean zero and variance one, and the labels to mean zero."""
    unit_regressor: bool = Field(default=True, examples=[True])
    """Scale the labels so that the least-squares regressor w* has norm one."""

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Read the file, and bring its columns to the scales asked for."""
        # A single name stands alone: y is then a vector, and in an NPZ file X is named.
        target = self.target[0] if len(self.target) == 1 else self.target
        features = self.features[0] if self.features and len(self.features) == 1 else self.features
        X, y = read_table(folder / self.path, target, features)
        if self.standardize:
            # The networks have no constant term: with centred features, centring y takes its place.
            X, y = standardize(X), y - y.mean(axis=0)
        return Data((X, unit_regressor(X, y) if self.unit_regressor else y))

    def dimensions(self) -> tuple[int | None, int | None]:
        """Return the numbers of features and targets, where columns are named: an array may have any number."""
        if self.path.lower().endswith(".npz"):
            return None, None
        return len(self.features) if self.features else None, len(self.target)

    def rescaled_targets(self) -> tuple[str, ...]:
        """Return those of the two options that are on."""
        return tuple(key for key in ("standardize", "unit_regressor") if getattr(self, key))

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that a column is to be predicted from itself."""
        if shared := set(self.target).intersection(self.features or ()):
            yield validation_error(
                found=f"{min(shared)!r}, which is also a target",
                expected="features that are no targets",
                write="features without it, or null for all columns but the targets",
                at=("features",),
            )
