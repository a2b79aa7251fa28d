"""The kinds of value that stand in a scenario: numbers, lists of them and ranges, optimizers, and probes."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from ..columns import MEASURES
from ..data.sources import DataSource
from ..dynamics import DESCENTS, LEARNING_RATES, DecoupledDecay, Descent, GradientDescent
from ..kinds.recipes import Chosen, Made, Section, recipe_of, refusal, validation_error
from ..kinds.recipes.values import WHOLE, Condition, distinct
from ..probes import HELD_OUT, PROBES, Label, Probe, probe_of

MOST_VALUES = 10_000


def _infinity(value: Any) -> Any:
    return math.inf if isinstance(value, str) and value.removeprefix("+") in ("inf", ".inf") else value


def _single(value: Any) -> Any:
    if isinstance(value, list | dict):
        raise validation_error(
            found="brackets", expected="a single value", write="a number, a word, true, false or null"
        )
    return value


class Range(Section):
    """Numbers from one to another, in place of a list of them."""

    start: float
    """The first value."""
    stop: float
    """The last value."""
    count: int = Field(ge=2, le=MOST_VALUES)
    """How many values."""
    spacing: Literal["linear", "log"] = "linear"
    """Whether the values are equally far apart, or their logarithms."""

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that numbers have no logarithm, or lie so far apart that their difference is no float."""
        ends, farthest = f"{self.start:.12g} to {self.stop:.12g}", 1e300
        if self.spacing == "log" and not (self.start > 0 and self.stop > 0):
            found = f"a logarithmic spacing from {ends}"
            yield validation_error(
                found=found,
                expected="positive ends",
                write=f"{{start: {self.start}, stop: {self.stop}, count: {self.count}}}",
            )
        if max(abs(self.start), abs(self.stop)) > farthest:
            expected = f"ends of at most {farthest:g} in size"
            yield validation_error(found=f"a spacing from {ends}", expected=expected, write="a list")

    def values(self) -> list[float]:
        """Return the numbers."""
        space = np.geomspace if self.spacing == "log" else np.linspace
        return space(self.start, self.stop, self.count).tolist()


_ENDS = (("start", "from", "min"), ("stop", "to", "max"))  # the last two, as others call them


def _spaced(value: Any) -> Any:
    """Return the numbers that {start, stop, count, spacing} stands for; anything else as it is."""
    if not isinstance(value, dict):
        return value
    try:
        return Range.model_validate(value).values()
    except ValidationError as error:
        if any(item["type"] == "refused" for item in error.errors()):
            raise
        ends = [value[key] for keys in _ENDS for key in keys if key in value]
        numbers = [end for end in ends if isinstance(end, float | int) and math.isfinite(end)]
        start, stop = numbers if len(numbers) == 2 else (0.25, 0.6)
        raise validation_error(
            found=f"the keys {', '.join(map(str, value)) or 'none'}",
            expected=f"finite numbers start and stop, a count from 2 to {MOST_VALUES}, and a spacing, linear or log",
            write=f"{{start: {start}, stop: {stop}, count: 10}}, or [{start}, {stop}]",
        ) from None


Seed = Annotated[int, Field(ge=0, le=2**32 - 1), WHOLE]  # without x64 JAX keeps 32 bits of a seed
StepLimit = Annotated[int, Field(ge=1, le=2**31 - 1), WHOLE]  # Diffrax counts in 32 bits

MOST_STEPS = 2**30 - 1  # a batch of descents is counted in 32 bits too
CountedSteps = Annotated[int, Field(ge=1, le=MOST_STEPS), WHOLE]

# YAML has lists and a frozen model has tuples: the container alone is lax, its entries stay strict.
LearningRates = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1e30)], ...], Field(strict=False), AfterValidator(distinct)
]


def _list_or_range(entry: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "array", "items": entry, "minItems": 1}, Range.model_json_schema()]})


# Written as a list, or as {start, stop, count, spacing}; a scenario holds the list.
Axis = Annotated[
    tuple[Annotated[Any, BeforeValidator(_single)], ...],
    Field(strict=False, min_length=1, max_length=MOST_VALUES),
    BeforeValidator(_spaced),
    AfterValidator(distinct),
    _list_or_range({}),
]
SpacedLearningRates = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1e30)], ...],
    Field(strict=False, min_length=1, max_length=MOST_VALUES),
    BeforeValidator(_spaced),
    AfterValidator(distinct),
    _list_or_range({"type": "number", "exclusiveMinimum": 0}),
]
Positives = Annotated[
    tuple[Annotated[float, Field(ge=1e-100, le=1e3)], ...], Field(strict=False, min_length=1), AfterValidator(distinct)
]
Counts = Annotated[
    tuple[Annotated[int, Field(ge=1, le=100_000), WHOLE], ...], Field(strict=False), AfterValidator(distinct)
]
Conditions = Annotated[tuple[Condition, ...], Field(strict=False), AfterValidator(distinct)]
Subject = Literal["minimizers", "conservation", "small_scale", "residual", "rates"]
Subjects = Annotated[tuple[Subject, ...], Field(strict=False, min_length=1), AfterValidator(distinct)]
# JSON has no infinity, YAML writes it .inf, and people write inf.
Time = Annotated[
    float,
    Field(gt=0, allow_inf_nan=True),
    BeforeValidator(_infinity),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}),
]

AtRate = Callable[[float], Descent]


def _as_list(value: Any) -> Any:
    """Return the list that one entry alone stands for."""
    return (value,) if isinstance(value, str | dict) else value


def _usable(factor: Made) -> Made:
    """Return what changes a learning rate, whose options the kind itself may refuse."""
    for error in refusal(lambda: factor.makes(rate=1.0, **factor.options())):
        raise error
    return factor


_FACTOR = Chosen(LEARNING_RATES, recipe=partial(recipe_of, given=frozenset({"rate"})))
Schedule = Annotated[
    tuple[
        Annotated[
            Made,
            _FACTOR,
            AfterValidator(_usable),
        ],
        ...,
    ],
    Field(strict=False),
    BeforeValidator(_as_list),
]
"""What YAML says of how learning rates change: {kind: warm_up, time: 10}, or a list of several, which multiply."""


class OptimizerOptions(Made):
    """What YAML says of a descent: the options of its kind, and the weight decay beside its steps."""

    decoupled_decay: float = Field(default=0.0, ge=0, le=1e6, examples=[0.01])
    """λ, by which each step makes the weights smaller besides, by ηλW: with adam, AdamW; 0: no decay."""


def kind_of(optimizer: OptimizerOptions) -> str:
    """Return what results call the descents of these options."""
    return optimizer.kind + "_with_decoupled_decay" * bool(_decay_apart(optimizer))


def _decay_apart(optimizer: OptimizerOptions) -> float | None:
    """Return the decay beside the steps of a kind, `None` for a kind that has this option itself."""
    has_option = "decoupled_decay" in inspect.signature(type(optimizer).makes).parameters
    return None if has_option else optimizer.decoupled_decay


def at_rate(optimizer: OptimizerOptions, schedule: Iterable[Made] = ()) -> AtRate:
    """Return what makes the descent of these options, at any learning rate, which changes by a `schedule`."""

    def descent(rate: Any) -> Descent:
        for factor in schedule:
            rate = factor.makes(rate=rate, **factor.options())
        options, decay = optimizer.options(), _decay_apart(optimizer)
        if decay is not None:
            del options["decoupled_decay"]
        made = type(optimizer).makes(learning_rate=rate, **options)
        return DecoupledDecay(made, decay) if decay else made

    return descent


def _checked(optimizer: OptimizerOptions) -> OptimizerOptions:
    """Return `optimizer`, whose options the kind itself may refuse."""
    for error in refusal(lambda: at_rate(optimizer)(1.0)):
        raise error
    return optimizer


_options_of = partial(recipe_of, given=frozenset({"learning_rate"}), base=OptimizerOptions)
_OPTIMIZER = Chosen(DESCENTS, recipe=_options_of, word=True)
Optimizer = Annotated[
    OptimizerOptions,
    _OPTIMIZER,
    AfterValidator(_checked),
    Field(examples=["gradient_descent"], json_schema_extra={"default": "gradient_descent"}),
]
"""What YAML says of a descent: `gradient_descent`, or {kind: adam, b1: 0.8}, or {kind: my_module:MyDescent}."""


def gradient_descent() -> OptimizerOptions:
    """Return what YAML says where it says nothing."""
    return _options_of(GradientDescent)(kind="gradient_descent")


def content_of(optimizer: OptimizerOptions, schedule: Iterable[Made]) -> dict[str, Any]:
    """Return in plain values what makes a descent, of a schedule as of one more option, where there is one."""
    factors = [factor.model_dump(mode="json") for factor in schedule]
    return optimizer.model_dump(mode="json") | ({"schedule": factors} if factors else {})


def labels_of(record: Iterable[Made]) -> dict[str, Label]:
    """Return the labels of the recorded probes by the names of the columns that they fill."""
    labels = [_label_of(entry) for entry in record if entry.kind not in MEASURES]
    return {name: column for label in labels for name, column in label.columns().items()}


def record_errors(record: Iterable[Made], data: DataSource) -> Iterator[PydanticCustomError]:
    """Yield that a probe needs samples that training does not see, and `data` hold out none."""
    for index, entry in enumerate(record):
        if entry.given & HELD_OUT and not data.holds_out():
            yield validation_error(
                found=f"{entry.kind} beside data of kind {data.kind} that hold out no samples",
                expected="data with samples that training does not see",
                write="test_samples: 100 for data that have this option, or leave it out",
                at=("record", index),
            )


def _probe_recipe(kind: Any) -> type[Made]:
    """Return the recipe of a probe, whose options are its fields, or of a function of the network, which has none."""
    if isinstance(kind, type):
        return recipe_of(kind, given=HELD_OUT)
    made = recipe_of(_maker(kind))
    made.origin = _probe_recipe, kind
    return made


def _maker(function: Callable[[Any], Any]) -> Callable[[], Probe]:
    def make() -> Probe:
        return probe_of(function)

    make.__name__, make.__doc__ = getattr(function, "__name__", "probe"), function.__doc__
    return make


_PROBE = Chosen(PROBES, recipe=_probe_recipe, word=True)


def _unique(record: tuple[Made, ...]) -> tuple[Made, ...]:
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
    try:
        label = getattr(made, "label", None)
        found = f"is a {type(label).__name__}"
    except TypeError as error:  # of a label that is no `Label`
        label, found = None, f"fails: {error}"
    if not isinstance(label, Label):
        raise validation_error(
            found=f"the probe {entry.kind}, whose label {found}",
            expected="a flowsim.Label",
            write="label = flowsim.Label(name, meaning, symbol) in the class",
        )
    return label


Record = Annotated[
    tuple[Annotated[Made, _PROBE], ...],
    Field(strict=False),
    BeforeValidator(_as_list),
    AfterValidator(_unique),
]
"""Probes by their names, as risk or my_module:MyProbe, or with options, as {kind: top_eigenvalues, count: 3}."""
