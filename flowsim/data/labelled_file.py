"""The kind of data called labelled: a table, or an archive of vectors or images, with a label for each sample."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_core import PydanticCustomError

from ..kinds.values import Names
from .classes import ClassSource, Labelled
from .source import SOURCES
from .table import absence, read_labelled


@SOURCES.register("labelled")
class LabelledFile(ClassSource):
    """Samples of classes from a CSV file (columns of numbers, one of labels) or an NPZ file (arrays)."""

    unswept: ClassVar[frozenset[str]] = frozenset({"kind", "path", "target"})

    path: str = Field(min_length=1, examples=["data/flowers.csv"])
    """A .csv or .npz file; a relative path starts in the folder of the scenario file."""
    target: str = Field(default="y", min_length=1, examples=["species"])
    """The column, or the array of an NPZ file, that holds the labels: whole numbers, or words in a CSV file."""
    features: Names | None = Field(default=None, examples=[["length", "width"]])
    """The columns of the inputs; null: all others. In an NPZ file the name of an array, null: X. It may hold vectors
    (n, d), or images (n, height, width) or (n, channels, height, width)."""

    def read(self, folder: Path) -> Labelled:
        """Read the file."""
        single = self.features is not None and len(self.features) == 1
        features = self.features[0] if single and self.features else self.features
        return Labelled(*read_labelled(folder / self.path, self.target, features))

    def dimensions(self) -> tuple[int | None, int | None]:
        """Return the number of columns named, and what is to be predicted of the classes named."""
        columns = len(self.features) if self.features and not self.path.lower().endswith(".npz") else None
        return columns, None if self.classes is None else self.predicted_numbers(len(self.classes))

    def files_read(self) -> tuple[str, ...]:
        """Return the one file."""
        return (self.path,)

    def absences(self, folder: Path) -> Iterator[PydanticCustomError]:
        """Yield that there is no such file."""
        yield from absence(folder, self.path)
