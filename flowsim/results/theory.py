"""What the theory sections of a scenario came to: in plain values, as one labelled data set, and back.

The dimensions are `flow`, `statement`, `record` (along the time of a statement) and `case` (of Lemma 3).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import attributes
from ..dynamics import Outcome
from ..kinds import reason_of
from ..theory import Assumption, LargeProducts, LargeProductsSample, Statement, Verdict

if TYPE_CHECKING:
    import xarray

_FLOW, _STATEMENT, _RECORD, _CASE = "flow", "statement", "record", "case"
_NO_FLOW = -1
_COORDINATES = ("depth", "features", "condition", "repetition", "outcome", "steps", "time")
_WORDS = ("name", "claim", "note", "source")
_SIDES = ("smaller", "larger")
_CASES = ("deviation", "scale", "width", "depth")
_COUNTS = ("initializations", "random_failures", "failures", "largest", "least")
_VERDICTS = tuple(Verdict)
_LONG_NAMES = {
    "flow_depth": "depth L",
    "flow_features": "number of features d",
    "flow_condition": "condition number Λ/λ",
    "flow_repetition": "number of the data set and initialization",
    "flow_steps": "number of steps made",
    "flow_time": "time at the end of the flow",
    "statement_flow": "flow that the statement is about, −1: all of one depth together",
    "statement_depth": "depth L of the flows that the statement is about",
    "statement_verdict": "what became of the statement",
    "statement_sides": "number of sides that are known: none, the smaller one, or both",
    "statement_records": "number of records; what follows them is padding",
    "statement_series": "whether the sides go along time",
    "statement_shape": "shape of the sides, as JSON: [] for numbers",
    "statement_assumptions": "assumptions: name, whether met, and what was found, as JSON",
    "time": "time since the escape from the plateau",
    "smaller": "side of the statement that is claimed to be smaller",
    "larger": "side of the statement that is claimed to be larger",
    "case_deviation": "deviation u",
    "case_scale": "scale s of the initialization",
    "case_width": "width d",
    "case_depth": "depth L",
    "case_initializations": "number of initializations",
    "case_random_failures": "initializations at which a random displacement breaks a bound",
    "case_failures": "initializations at which some displacement breaks a bound",
    "case_largest": "largest singular value met, over its bound",
    "case_least": "least singular value met, over its bound",
}


@dataclass(frozen=True)
class CheckedFlow:
    """What the statements came to on one flow of the grid, and how that flow ended."""

    depth: int
    """The number of layers."""
    features: int
    """The number of features."""
    condition: float
    """The condition number Λ/λ of the covariance."""
    repetition: int
    """The number of the repetition."""
    outcome: Outcome
    """How the flow ended."""
    steps: int
    """The steps that it took."""
    time: float
    """The time at its end."""
    statements: tuple[Statement, ...]
    """What the statements came to."""


@dataclass(frozen=True)
class TheoryResults:
    """Everything that the theory sections of a scenario ask for."""

    flows: tuple[CheckedFlow, ...]
    """What was checked on each flow."""
    convergence: dict[int, Statement]
    """Theorem 4 as a frequency, one statement for each depth at which there are several flows."""
    large_products: tuple[LargeProductsSample, ...]
    """What was found of Lemma 3, one for each case."""

    @property
    def failed(self) -> bool:
        """Whether a statement fails."""
        found = [statement for checked in self.flows for statement in checked.statements]
        found += [sample.statement() for sample in self.large_products]
        return any(statement.verdict is Verdict.FAILS for statement in found)


def theory_to_dataset(results: TheoryResults, attrs: dict[str, Any] | None = None) -> "xarray.Dataset":
    """Return everything that tables, summary and figures show of `results`; no variables of what there is none of."""
    import xarray

    known = {name: variable for name, variable in _variables(results) if variable[1].size}
    return xarray.Dataset(known, attrs=attrs)


def theory_from_dataset(dataset: "xarray.Dataset") -> TheoryResults:
    """Return the results that `theory_to_dataset` made `dataset` of."""
    about, flows, convergence = list(_statements(dataset)), [], {}
    for number in range(dataset.sizes.get(_FLOW, 0)):
        known = {name: dataset[f"{_FLOW}_{name}"].values[number].item() for name in _COORDINATES}
        own = tuple(statement for flow, _, statement in about if flow == number)
        flows.append(CheckedFlow(**known | {"outcome": Outcome(known["outcome"])}, statements=own))
    for flow, depth, statement in about:
        if flow == _NO_FLOW:
            convergence[depth] = statement
    samples = []
    for row in range(dataset.sizes.get(_CASE, 0)):
        case = LargeProducts(**{name: dataset[f"{_CASE}_{name}"].values[row].item() for name in _CASES})
        counts = {name: dataset[f"{_CASE}_{name}"].values[row].item() for name in _COUNTS}
        samples.append(LargeProductsSample(case, **counts))
    return TheoryResults(tuple(flows), convergence, tuple(samples))


def faults_of_theory(dataset: "xarray.Dataset") -> Iterator[str]:
    """Yield in words what speaks against a data set being one of the theory that flowsim wrote."""
    try:
        theory_from_dataset(dataset)
    except Exception as error:  # whatever is missing, or of another kind
        yield reason_of(error)


def _variables(results: TheoryResults) -> Iterator[tuple[str, Any]]:
    for name in _COORDINATES:
        kind = float if name in ("condition", "time") else int
        values = np.array([getattr(flow, name) for flow in results.flows], kind)
        yield _variable(f"{_FLOW}_{name}", _FLOW, values)
    about = [
        (number, flow.depth, statement) for number, flow in enumerate(results.flows) for statement in flow.statements
    ]
    about += [(_NO_FLOW, depth, statement) for depth, statement in results.convergence.items()]
    yield from _of_statements(about)
    for name in _CASES:
        kind = float if name in ("deviation", "scale") else int
        values = np.array([getattr(sample.case, name) for sample in results.large_products], kind)
        yield _variable(f"{_CASE}_{name}", _CASE, values)
    for name in _COUNTS:
        kind = float if name in ("largest", "least") else int
        values = np.array([getattr(sample, name) for sample in results.large_products], kind)
        yield _variable(f"{_CASE}_{name}", _CASE, values)


def _of_statements(about: Sequence[tuple[int, int, Statement]]) -> Iterator[tuple[str, Any]]:
    statements = [statement for _, _, statement in about]
    for name in _WORDS:
        yield _variable(f"{_STATEMENT}_{name}", _STATEMENT, _texts(getattr(one, name) for one in statements))
    assumed = _texts(json.dumps([asdict(entry) for entry in one.assumptions]) for one in statements)
    yield _variable(f"{_STATEMENT}_assumptions", _STATEMENT, assumed)
    shapes = _texts(json.dumps([] if one.smaller is None else list(one.smaller.shape)) for one in statements)
    yield _variable(f"{_STATEMENT}_shape", _STATEMENT, shapes)
    numbers = {
        "flow": [flow for flow, _, _ in about],
        "depth": [depth for _, depth, _ in about],
        "verdict": [_VERDICTS.index(one.verdict) for one in statements],
        "sides": [sum(getattr(one, side) is not None for side in _SIDES) for one in statements],
        "records": [0 if one.smaller is None else one.smaller.size for one in statements],
        "series": [one.times is not None for one in statements],
    }
    for name, values in numbers.items():
        yield _variable(f"{_STATEMENT}_{name}", _STATEMENT, np.array(values, int))
    width = max([1, *numbers["records"]])
    for name, field in {"time": "times", "smaller": "smaller", "larger": "larger"}.items():
        padded = np.full((len(statements), width), np.nan)
        for row, one in zip(padded, statements, strict=True):
            if (values := getattr(one, field)) is not None:
                row[: values.size] = values.ravel()
        yield _variable(name, (_STATEMENT, _RECORD), padded)


def _texts(words: Any) -> np.ndarray:
    return np.array(list(words), object)


def _variable(name: str, dims: str | tuple[str, ...], values: np.ndarray) -> tuple[str, Any]:
    if name == f"{_FLOW}_outcome":
        return name, (dims, values, attributes("outcome"))
    more: dict[str, Any] = {"long_name": _LONG_NAMES.get(name, name.replace("_", " of the ")), "units": "1"}
    if name == f"{_STATEMENT}_verdict":
        more["flag_values"] = np.arange(len(_VERDICTS))
        more["flag_meanings"] = " ".join(verdict.name for verdict in _VERDICTS)
    return name, (dims, values, more)


def _statements(dataset: "xarray.Dataset") -> Iterator[tuple[int, int, Statement]]:
    """Yield the number of its flow, its depth, and itself for every statement."""
    for row in range(dataset.sizes.get(_STATEMENT, 0)):
        own = {str(name): dataset[name].values[row] for name in dataset if dataset[name].dims[0] == _STATEMENT}
        flow, depth, verdict = (int(own[f"{_STATEMENT}_{name}"]) for name in ("flow", "depth", "verdict"))
        assumed = json.loads(str(own[f"{_STATEMENT}_assumptions"]))
        words = {name: str(own[f"{_STATEMENT}_{name}"]) for name in _WORDS}
        assumptions = tuple(Assumption(**entry) for entry in assumed)
        count, known = int(own[f"{_STATEMENT}_records"]), int(own[f"{_STATEMENT}_sides"])
        shape = json.loads(str(own[f"{_STATEMENT}_shape"]))
        sides: dict[str, Any] = {
            side: own[side][:count].reshape(shape).copy() if index < known else None
            for index, side in enumerate(_SIDES)
        }
        times = own["time"][:count].copy() if own[f"{_STATEMENT}_series"] else None
        statement = Statement(verdict=_VERDICTS[verdict], assumptions=assumptions, times=times, **words, **sides)
        yield flow, depth, statement
