"""The interface of data sources, and the samples they return."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticCustomError

from ...kinds import Registry, is_kind_of
from ...kinds.recipes import Recipe
from ..arrays import DataError

Samples = tuple[NDArray, NDArray]
Labels = Literal["auto", "index", "one_hot", "sign"]


@dataclass(frozen=True)
class Data:
    """The samples of a source."""

    training: Samples
    """The samples (X, y) to train on, X (n, …) and y (n,) or (n, m)."""
    held_out: Samples | None = None
    """Those that training does not see, if any."""
    classes: int | None = None
    """The number K of classes, where y, (n,), holds their numbers 0, …, K − 1."""
    labels: Labels = "auto"
    """How the numbers of classes are to be written for the loss: as "index", "one_hot" or "sign"; "auto" leaves that to
    the loss."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return self.training[0].shape[1:]

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return int(np.prod(self.shape))

    @property
    def outputs(self) -> int:
        """How many numbers a network predicts for a sample: its labels, or one for each class."""
        if self.classes is not None and self.labels != "sign":
            return self.classes
        return 1 if self.training[1].ndim == 1 else self.training[1].shape[1]

    @property
    def numbers_classes(self) -> bool:
        """Whether the labels are numbers of classes, of which there is no regression."""
        return self.classes is not None and self.labels in ("auto", "index")

    def flattened(self) -> "Data":
        """Return the same with every sample as a vector."""
        return self._with(lambda X, y: (X.reshape(len(X), -1), y))

    def written_as(self, labels: Labels) -> "Data":
        """Return the same with the numbers of classes written as `labels` says.

        "index" keeps them, "one_hot" makes y (n, K) of zeros and a one for the class, "sign" makes it −1 for the first
        of two classes and +1 for the second. Raises `DataError` for signs of another number of classes.
        """
        assert self.classes is not None
        if labels == "sign" and self.classes != 2:
            raise DataError(
                f"there are {self.classes} classes: expected two for labels ±1; write the two that you want, as "
                "classes: [0, 1], or labels: one_hot and a loss for several outputs"
            )
        rows = {"index": None, "one_hot": np.eye(self.classes), "sign": np.array([-1.0, 1.0])}[labels]
        written = self if rows is None else self._with(lambda X, y: (X, rows[y]))
        return replace(written, labels=labels)

    def _with(self, change: Callable[[NDArray, NDArray], Samples]) -> "Data":
        held_out = None if self.held_out is None else change(*self.held_out)
        return replace(self, training=change(*self.training), held_out=held_out)


def check_data(found: object) -> None:
    """Raise `TypeError` for what a source returns in place of `Data` with arrays, and numbers of classes, in it."""
    if not isinstance(found, Data):
        raise TypeError(f"load returns a {type(found).__name__}: expected Data((X, y))")
    for name, array in zip(("X", "y"), found.training, strict=True):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"load returns {name} as a {type(array).__name__}: expected an array of NumPy")
    if (classes := found.classes) is None:
        return
    for _, y in (found.training, *([] if found.held_out is None else [found.held_out])):
        if y.ndim != 1 or y.dtype.kind not in "iu" or (y.size and not 0 <= y.min() <= y.max() < classes):
            labels = f"labels of shape {y.shape} and {y.dtype} beside {classes} classes"
            raise TypeError(f"load returns {labels}: expected whole numbers from 0 to {classes - 1}, of shape (n,)")


class DataSource(Recipe):
    """Where the samples of a scenario come from. A kind has its options as fields, and a method `load`:

        class Spiral(DataSource):
            turns: float = 2.0

            def load(self, rng, folder):
                angle = 2 * np.pi * self.turns * rng.random(100)
                return Data((np.stack([angle, np.cos(angle)], axis=1), np.sin(angle)))

    In YAML it is `data: {kind: my_module:Spiral, turns: 3.0}`. The other methods, all optional, tell what is known of
    the samples before they are loaded.
    """

    unswept: ClassVar[frozenset[str]] = frozenset({"kind"})  # data of one kind do not say what those of another need
    varied: ClassVar[frozenset[str]] = frozenset()
    """Which of `features` and `condition` the theory section may set in place of the values here."""

    @abstractmethod
    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Draw the samples with `rng`, or read them from files that are named as seen from `folder`.

        The numbers depend on `rng`, the options and the files alone. Raises `DataError` for what cannot be used.
        """

    def dimensions(self) -> tuple[int | None, int | None]:
        """Return how many numbers and how many labels a sample will have; None where only loading tells."""
        return None, None

    def sample_shape(self) -> tuple[int, ...] | None:
        """Return the shape that a sample will have; None where only loading tells. By default it is a vector."""
        inputs, _ = self.dimensions()
        return None if inputs is None else (inputs,)

    def holds_out(self) -> bool:
        """Return whether there will be samples that training does not see."""
        return False

    def rescaled_targets(self) -> tuple[str, ...]:
        """Return the options that centre or rescale the targets, which classes do not allow."""
        return ()

    def stated_condition(self) -> float | None:
        """Return the condition number of the covariance, where the options fix it."""
        return None

    def files_read(self) -> tuple[str, ...]:
        """Return the files that the samples depend on, as seen from the folder of the scenario."""
        return ()

    def rough_sizes(self) -> tuple[int, int, int]:
        """Estimate the numbers of samples, inputs and outputs, from which costs are predicted."""
        inputs, outputs = self.dimensions()
        return 100, inputs or 10, outputs or 1

    def absences(self, folder: Path) -> Iterator[PydanticCustomError]:
        """Yield a validation error for every file that is missing, seen from `folder`."""
        yield from ()


SOURCES: Registry[type[DataSource]] = Registry(
    "a data source",
    accepts=is_kind_of(DataSource),
    expected="a subclass of flowsim.data.DataSource with a method load",
)
