"""What a source of data promises, whatever its kind."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticCustomError

from ..kinds import Recipe, Registry, is_recipe_of

Samples = tuple[NDArray, NDArray]


@dataclass(frozen=True)
class Data:
    """The samples (X, y) to train on, X (n, …) and y (n,) or (n, m), and those that training does not see, if any."""

    training: Samples
    held_out: Samples | None = None

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return int(np.prod(self.training[0].shape[1:]))

    @property
    def outputs(self) -> int:
        """How many labels a sample has."""
        return 1 if self.training[1].ndim == 1 else self.training[1].shape[1]


def check_data(found: object) -> None:
    """Raise `TypeError` for what a source returns in place of `Data` with arrays in it."""
    if not isinstance(found, Data):
        raise TypeError(f"load returns a {type(found).__name__}: expected Data((X, y))")
    for name, array in zip(("X", "y"), found.training, strict=True):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"load returns {name} as a {type(array).__name__}: expected an array of NumPy")


class DataSource(Recipe):
    """Where the samples of a scenario come from. A kind has its options as fields, and a method `load`:

        class Spiral(DataSource):
            turns: float = 2.0

            def load(self, rng, folder):
                angle = 2 * np.pi * self.turns * rng.random(100)
                return Data((np.stack([angle, np.cos(angle)], axis=1), np.sin(angle)))

    In YAML it is `data: {kind: my_module:Spiral, turns: 3.0}`. The other methods tell what is known of the samples
    before there are any; each has an answer for a kind that does not say.
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

    def holds_out(self) -> bool:
        """Return whether there will be samples that training does not see."""
        return False

    def rescaled_targets(self) -> tuple[str, ...]:
        """Return the options that have targets centred or rescaled, which no class can be."""
        return ()

    def stated_condition(self) -> float | None:
        """Return the condition number of the covariance, where the options fix it."""
        return None

    def files_read(self) -> tuple[str, ...]:
        """Return the files that the samples depend on, as seen from the folder of the scenario."""
        return ()

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return samples, inputs and outputs, roughly, from which costs are estimated."""
        inputs, outputs = self.dimensions()
        return 100, inputs or 10, outputs or 1

    def absences(self, folder: Path) -> Iterator[PydanticCustomError]:
        """Yield the refusal of a file that is not there, seen from `folder`."""
        yield from ()


SOURCES: Registry[type[DataSource]] = Registry(
    "a data source",
    accepts=is_recipe_of(DataSource),
    expected="a subclass of flowsim.data.DataSource with a method load",
)
