"""What a scenario records along its runs beside what every run records: probes, with their options."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ..data import DataSource
from ..kinds import Chosen, Made, recipe_of, validation_error
from ..probes import HELD_OUT, PROBES, Label, Probe, probe_of
from ..results.schema import MEASURES


def labels_of(record: Iterable[Made]) -> dict[str, Label]:
    """Return the labels of the recorded probes by the names of the columns that they fill."""
    labels = [_label_of(entry) for entry in record if entry.kind not in MEASURES]
    return {name: column for label in labels for name, column in label.columns().items()}


def record_errors(record: Iterable[Made], data: DataSource) -> Iterator[PydanticCustomError]:
    """Yield that a probe needs samples that training does not see, and `data` hold out none."""
    for place, entry in enumerate(record):
        if entry.given & HELD_OUT and not data.holds_out():
            yield validation_error(
                found=f"{entry.kind} beside data of kind {data.kind} that hold out no samples",
                expected="data with samples that training does not see",
                write="test_samples: 100 for data that have this option, or leave it out",
                at=("record", place),
            )


def _recipe(kind: Any) -> type[Made]:
    """Return the recipe of a probe, whose options are its fields, or of a function of the network, which has none."""
    return recipe_of(kind, given=HELD_OUT) if isinstance(kind, type) else recipe_of(_maker(kind))


def _maker(function: Callable[[Any], Any]) -> Callable[[], Probe]:
    def make() -> Probe:
        return probe_of(function)

    make.__name__, make.__doc__ = getattr(function, "__name__", "probe"), function.__doc__
    return make


CHOSEN = Chosen(PROBES, recipe=_recipe, word=True)


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str | dict) else value


def _known(record: tuple[Made, ...]) -> tuple[Made, ...]:
    """Return `record`, in which no two probes may have one name."""
    taken: set[str] = set(MEASURES)
    for entry in record:
        if entry.kind in MEASURES:
            continue
        name = _label_of(entry).name
        if name in taken:
            raise validation_error(found=f"two probes called {name}", expected="different names", write="one of them")
        taken.add(name)
    return record


def _label_of(entry: Made) -> Label:
    """Return what a probe calls what it measures; of one that asks for samples, its class must say so."""
    made = entry.makes if entry.given else entry.make()
    label = getattr(made, "label", None)
    if not isinstance(label, Label):
        raise validation_error(
            found=f"the probe {entry.kind}, whose label is a {type(label).__name__}",
            expected="a flowsim.Label",
            write="label = flowsim.Label(name, meaning, symbol) in the class",
        )
    return label


Record = Annotated[
    tuple[Annotated[Made, CHOSEN], ...], Field(strict=False), BeforeValidator(_as_list), AfterValidator(_known)
]
"""Probes by their names, as risk or my_module:MyProbe, or with options, as {kind: top_eigenvalues, count: 3}."""
