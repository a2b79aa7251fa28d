"""The kinds of value that several sections hold, and the validation errors that no bound on one number expresses."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

MOST_NUMBERS = 2_000_000_000  # 16 GB in float64: an array beyond this is a typing error, not an experiment
KeyPath = tuple[str | int, ...]


def validation_error(*, found: str, expected: str, write: str, at: KeyPath = ()) -> PydanticCustomError:
    """Return the error of a rule that spans several values; `at` is the key to blame, seen from who refuses."""
    context = {"found": found, "expected": expected, "write": write, "at": at}
    return PydanticCustomError("refused", "found {found}; expected {expected}; write {write}", context)


def too_large(found: str, what: str, at: KeyPath) -> PydanticCustomError:
    """Return the validation error of more numbers than a computer holds, for which `what` is to blame."""
    return validation_error(
        found=found, expected=f"at most {MOST_NUMBERS}", write=f"a smaller number for {what}", at=at
    )


def within(section: KeyPath, errors: Iterable[PydanticCustomError]) -> Iterator[PydanticCustomError]:
    """Yield what a section refuses as seen from the section around it."""
    for error in errors:
        context = error.context or {}
        yield validation_error(**{**context, "at": (*section, *context["at"])})


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `values`, of which none may stand there twice."""
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise validation_error(found=f"{repeated[0]!r} twice", expected="no repetitions", write="every entry once")
    return values


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


# Comes before a strict int: 3.0 is a whole number; 3.5, true and "3" are not.
WHOLE = BeforeValidator(_whole)

Count = Annotated[int, Field(ge=1), WHOLE]
CountOrZero = Annotated[int, Field(ge=0), WHOLE]
Depth = Annotated[int, Field(ge=1, le=100_000, examples=[10]), WHOLE]
Scale = Annotated[float, Field(ge=0, le=1e30, examples=[0.5])]
Condition = Annotated[float, Field(ge=1, le=1e12)]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_names),
    AfterValidator(distinct),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
