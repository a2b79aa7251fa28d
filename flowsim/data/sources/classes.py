"""Data with class labels: choice of classes and samples, split, and scaling of inputs."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ...kinds.recipes import validation_error
from ...kinds.recipes.values import Count, CountOrZero, distinct
from ...runtime.memory import beyond_memory
from ..arrays import DataError, DataWarning
from ..scaling import standardize_together
from .source import Data, DataSource, Labels, Samples


@dataclass(frozen=True)
class Labelled:
    """Samples and the labels of their classes as they were read."""

    X: NDArray
    """The samples, (n, …)."""
    labels: NDArray
    """Their labels, (n,)."""
    limits: tuple[float, float] | None = None
    """The range of the inputs, where it is known."""
    others: Samples | None = None
    """Further samples and labels, where the source has a test set of its own."""


def _class_name(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise validation_error(found=f"{value!r}", expected="the label of a class, a whole number or a word", write="3")
    return value


ClassName = Annotated[Any, AfterValidator(_class_name), WithJsonSchema({"type": ["integer", "string"]})]


class ClassSource(DataSource):
    """A source of samples with class labels, which become the indices 0, …, K − 1 of the sorted labels.

    A kind defines `read`, and has these options. Labels are never centred or scaled, whether they are indices, one-hot
    rows or ±1.
    """

    classes: Annotated[tuple[ClassName, ...], AfterValidator(distinct)] | None = Field(default=None, examples=[[0, 1]])
    """The labels of the classes to be told apart, others are left out; null: all."""
    samples: Count | None = Field(default=None, examples=[500])
    """How many samples to train on, drawn at random by the seed; null: all but those held out."""
    test_samples: CountOrZero = Field(default=0, examples=[500])
    """How many samples are held out, on which test_risk and test_accuracy are measured; drawn at random, too."""
    labels: Labels = Field(default="auto", examples=["one_hot"])
    """How a loss gets the class: its number (index), zeros and a one (one_hot), ±1 (sign); auto: as the loss wants."""
    scaling: Literal["unit", "standardized", "none"] = Field(default="unit", examples=["unit"])
    """Of the inputs: unit brings all to [0, 1] by one map, standardized each to mean zero and variance one over the
    training samples."""

    @abstractmethod
    def read(self, folder: Path) -> Labelled:
        """Return all samples, which may be read from files that are named as seen from `folder`."""

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Read the samples, number their classes, draw those to train on and to hold out, and scale the inputs."""
        found = self.read(folder)
        try:
            names = self._names(found.labels)
            training, held_out = self._drawn(found, names, rng)
        except DataError as error:
            files = self.files_read()
            raise DataError(f"{folder / files[0]}: {error}" if len(files) == 1 else str(error)) from None
        count = len(training[0]) + len(held_out[0])
        # Every number is there twice in float64: as it is, and scaled.
        if beyond := beyond_memory(2 * 8 * count * int(np.prod(found.X.shape[1:]))):
            raise DataError(f"{count} samples take {beyond}: expected fewer; write samples: 1000")
        inputs, test_inputs = training[0].astype(np.float64), held_out[0].astype(np.float64)
        if self.scaling == "standardized":
            flat = (part.reshape(len(part), int(np.prod(part.shape[1:]))) for part in (inputs, test_inputs))
            scaled, test_scaled = standardize_together(*flat)
            inputs, test_inputs = scaled.reshape(inputs.shape), test_scaled.reshape(test_inputs.shape)
        elif self.scaling == "unit":
            least, largest = found.limits or (inputs.min(), inputs.max())
            width = (largest - least) or 1.0
            inputs, test_inputs = (inputs - least) / width, (test_inputs - least) / width
        numbers, test_numbers = (np.searchsorted(names, part[1]) for part in (training, held_out))
        test = (test_inputs, test_numbers) if self.test_samples else None
        return Data((inputs, numbers), test, classes=len(names), labels=self.labels)

    def holds_out(self) -> bool:
        """Return whether test samples are asked for."""
        return self.test_samples > 0

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield errors for a single class, and for labels ±1 of other than two classes."""
        if self.classes is None:
            return
        found = f"{len(self.classes)} of them"
        if len(self.classes) < 2:
            yield validation_error(
                found=found, expected="two or more to tell apart", write="classes: [0, 1]", at=("classes",)
            )
        if len(self.classes) != 2 and self.labels == "sign":
            write = "classes: [0, 1], or labels: one_hot"
            yield validation_error(found=f"{found} beside labels ±1", expected="two", write=write, at=("classes",))

    def predicted_numbers(self, classes: int) -> int | None:
        """Return the number of outputs for so many classes; None where the loss decides it."""
        classes = classes if self.classes is None else len(self.classes)
        return {"auto": None, "sign": 1}.get(self.labels, classes)

    def _names(self, labels: NDArray) -> NDArray:
        """Return the labels of the classes wanted, sorted."""
        known = np.unique(labels)
        if self.classes is not None:
            text = known.dtype.kind == "U"
            wanted = [str(name) if text else name for name in self.classes]
            for name in wanted:
                if name not in known.tolist():
                    listing = ", ".join(map(repr, known.tolist()[:12]))
                    more = ", …" if len(known) > 12 else ""
                    raise DataError(f"classes: no sample has the label {name!r}: expected some of {listing}{more}")
            known = np.unique(np.array(wanted, known.dtype))
        if len(known) < 2:
            raise DataError(f"all samples have the label {known[0]!s}: expected two classes or more")
        return known

    def _drawn(self, found: Labelled, names: NDArray, rng: np.random.Generator) -> tuple[Samples, Samples]:
        """Return the training and the test samples with their labels, each in the original order.

        The first of one permutation are trained on and the last held out, so neither number changes the other set.
        """
        order = rng.permutation(np.flatnonzero(np.isin(found.labels, names)))
        whole, others, room = (found.X, found.labels), order, len(order) - self.test_samples
        held_out = whole
        if found.others is not None:
            held_out, room = found.others, len(order)
            others = rng.permutation(np.flatnonzero(np.isin(held_out[1], names)))
        samples = room if self.samples is None else self.samples
        if not 1 <= samples <= room or self.test_samples > len(others):
            apart = "" if found.others is None else f" and {len(others)} to hold out"
            asked = f"samples: {'null' if self.samples is None else samples} and test_samples: {self.test_samples}"
            raise DataError(f"{asked} ask for more than the {len(order)} samples{apart} of these classes: write fewer")
        for missing in self._missing(names, whole[1][order], samples, held_out[1][others], found.others is not None):
            warnings.warn(missing, DataWarning, stacklevel=2)
        chosen, left = np.sort(order[:samples]), np.sort(others[len(others) - self.test_samples :])
        return (whole[0][chosen], whole[1][chosen]), (held_out[0][left], held_out[1][left])

    def _missing(
        self, names: NDArray, labels: NDArray, samples: int, others: NDArray, has_test_set: bool
    ) -> Iterator[str]:
        """Yield which classes the training samples or the held-out ones lack, and which numbers of them have all.

        `labels` are those of all samples in the order in which they are drawn, of which training takes the first, and
        `others` those of which the last are held out.
        """
        least = 1 + max(int(np.argmax(labels == name)) for name in names)  # the first so many have every class
        if lacking := [name for name in names if name not in labels[:samples]]:
            which = f"label {lacking[0]!s}" if len(lacking) == 1 else f"labels {', '.join(map(str, lacking))}"
            count = "the only one has" if samples == 1 else f"all {samples} have"
            only = f", as {count} the label {labels[0]!s}" if len(lacking) == len(names) - 1 else ""
            write = [f"samples: {least}"] if self.samples is not None else []
            if not has_test_set and least > len(labels) - self.test_samples:
                write = [f"test_samples: {len(labels) - least}", *write] if least < len(labels) else ["another seed"]
            yield f"no training sample has the {which}{only}; write {' and '.join(write)}"
        held_out = others[len(others) - self.test_samples :]
        lacking = [name for name in names if name not in held_out] if self.test_samples else []
        if lacking:
            which = f"label {lacking[0]!s}" if len(lacking) == 1 else f"labels {', '.join(map(str, lacking))}"
            counts = [int(np.count_nonzero(others == name)) for name in lacking]
            room = len(others) - (0 if has_test_set else max(least, self.samples or 0))
            if min(counts) <= (0 if has_test_set else 1):
                remedy = "there are too few to hold one out: add samples"
            else:
                needed = len(others) - min(int(np.flatnonzero(others == name)[-1]) for name in lacking)
                remedy = f"write test_samples: {needed}" if needed <= room else "write another seed"
            yield f"no held-out sample has the {which}, so test_risk and test_accuracy leave it out; {remedy}"
