"""What a scenario records along its runs beside what every run records: probes, by their names."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from ..kinds import UnknownKindError, refusal
from ..probes import PROBES, Probe, probe_of


def probes_of(names: Iterable[str]) -> tuple[Probe, ...]:
    """Return the probes of these names, less those that are recorded in any case.

    Raises `UnknownKindError` for a name without one.
    """
    return tuple(_probe(name) for name in names if name not in PROBES)


def _probe(name: str) -> Probe:
    kind = PROBES[name]
    return probe_of(kind() if isinstance(kind, type) else kind)


def _as_names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    taken = set(PROBES)
    for name in names:
        label = name if name in PROBES else _label_of(name)
        if name not in PROBES and label in taken:
            raise refusal(found=f"two probes called {label}", expected="different names", write="one of them")
        taken.add(label)
    return names


def _label_of(name: str) -> str:
    """Return what a probe of a user's own calls what it measures."""
    try:
        return _probe(name).label.name
    except UnknownKindError as error:
        raise refusal(found=error.found, expected=error.expected, write=error.write) from None
    except Exception as error:  # whatever the code of a user does
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise refusal(
            found=f"{name!r}, which cannot be made without arguments ({reason})",
            expected="a subclass of flowsim.Probe whose fields have defaults, or a function of the network",
            write="a probe of your own that chooses them",
        ) from None


ProbeNames = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(strict=False),
    BeforeValidator(_as_names),
    AfterValidator(_known),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""Probes by their names: risk, sharpness, …, or my_module:MyProbe."""
