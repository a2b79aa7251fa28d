"""Verdicts on what a paper says: on its statements, two sides with a margin, and on claims about its figures."""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, overload

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..formatting import encodable
from ..formatting.presentation import Shown, view_of

if TYPE_CHECKING:
    import pandas

Side = Float[np.ndarray, "..."]

ROUNDING = 1e-9
"""How far one side may pass the other, relative to the larger, before the two differ by more than rounding: chains
of thousands of float64 products lose some 1e-12, and a sharpness is certified to 4e-11."""


class Verdict(enum.Enum):
    """What became of a statement of a theorem, or of a claim about a figure.

    A statement has assumptions, which may not be met or not apply; a claim may be one that these runs do not measure,
    or are too short and too few to decide.
    """

    HOLDS = "holds"
    FAILS = "fails"
    ASSUMPTION_NOT_MET = "assumption not met"
    NOT_APPLICABLE = "not applicable"
    NOT_MEASURED = "not measured"
    NOT_DECIDED = "not decided"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Assumption:
    """What a statement asks for."""

    name: str
    """What it is called."""
    met: bool | None
    """Whether it is met; `None` where it could not be checked."""
    found: str = ""
    """What was seen."""

    def __post_init__(self):
        if self.met is not None:
            object.__setattr__(self, "met", bool(self.met))

    def __str__(self) -> str:
        words = {True: "", False: "not met: ", None: "not checked: "}[self.met]
        return words + self.name + (f" ({self.found})" if self.found else "")


@dataclass(frozen=True, eq=False, repr=False)
class Statement(Shown):
    """One statement, "smaller ≤ larger", as numbers (arrays without axes) or as series over time.

    Both sides are `None` where the statement does not apply. "Holds" cannot be said without assumptions, nor with one
    that is not met: `ValueError`.

    `repr` is a line, without arrays; printed, and shown in a notebook, it is the table of the command line.
    """

    name: str
    """What it is called."""
    claim: str
    """What it says, in words."""
    verdict: Verdict
    """What became of it."""
    smaller: Side | None = None
    """The left side."""
    larger: Side | None = None
    """The right side; `None` also where the theory names a constant without its value."""
    times: Float[np.ndarray, " records"] | None = None
    """The times of a series since the escape, as in `FlowPath`."""
    assumptions: tuple[Assumption, ...] = ()
    """What it rests on, as checked."""
    note: str = ""
    """What is to be said besides."""
    source: str = "Marion and Chizat (2024)"
    """Where it stands."""

    def __post_init__(self):
        unchecked = [assumption for assumption in self.assumptions if assumption.met is not True]
        if self.verdict is Verdict.HOLDS and (unchecked or not self.assumptions):
            raise ValueError(f"{self.name} cannot hold: its assumptions were not all checked and met: {unchecked}")

    def __repr__(self) -> str:
        margin = "" if self.margin is None else f", margin {self.margin:.4g}"
        series = "" if self.times is None else f", over {len(self.times)} times"
        return encodable(f"Statement({self.name}: {self.verdict}{margin}{series})")

    @property
    def margins(self) -> Side | None:
        """(larger − smaller) / max(|larger|, |smaller|) at every record: 0 is tight, negative is violated.

        NaN where both sides are zero and nothing is said.
        """
        if self.smaller is None or self.larger is None:
            return None
        return np.asarray(-_relative_excess(self.smaller, self.larger))

    @property
    def tightest(self) -> int:
        """The index of the record at which the margin is least, or of the largest value where no margin is known."""
        margins = self.margins
        if margins is None:
            return -1 if self.smaller is None else int(np.argmax(self.smaller))
        return int(np.argmin(np.where(np.isnan(margins), np.inf, margins)))

    @property
    def margin(self) -> float | None:
        """The least of `margins`; zero where both sides are zero throughout."""
        margins = self.margins
        return None if margins is None else float(np.nan_to_num(margins.flat[self.tightest])) + 0.0

    @property
    def sides(self) -> tuple[float | None, float | None]:
        """Both sides at the tightest record."""
        smaller, larger = (
            None if side is None else float(side.flat[self.tightest]) for side in (self.smaller, self.larger)
        )
        return smaller, larger

    @property
    def unmet(self) -> str:
        """The assumptions that were not met or not checked, in words."""
        return "; ".join(str(assumption) for assumption in self.assumptions if assumption.met is not True)


@dataclass(frozen=True, eq=False, repr=False)
class Statements(Shown, Sequence[Statement]):
    """What statements came to, in the order of the paper; `repr` is a line.

    Printed, and shown in a notebook, it is the table of the command line, with what is said of those that do not hold.
    """

    found: tuple[Statement, ...] = ()
    """The statements."""

    def __len__(self) -> int:
        return len(self.found)

    @overload
    def __getitem__(self, index: int) -> Statement: ...
    @overload
    def __getitem__(self, index: slice) -> "Statements": ...
    def __getitem__(self, index: int | slice) -> "Statement | Statements":
        return Statements(self.found[index]) if isinstance(index, slice) else self.found[index]

    def __repr__(self) -> str:
        counts = Counter(str(one.verdict) for one in self.found)
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        return f"Statements({said or 'none'})"

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a table of pandas with a row for each statement: name, claim, both sides, margin and verdict."""
        return view_of(self).to_dataframe()


def judge(
    name: str,
    claim: str,
    smaller: ArrayLike,
    larger: ArrayLike,
    *,
    assumptions: Sequence[Assumption],
    error: ArrayLike = 0.0,
    rounding: float = ROUNDING,
    times: Float[np.ndarray, " records"] | None = None,
    note: str = "",
) -> Statement:
    """Return the verdict on `smaller` ≤ `larger`.

    It *holds* if every assumption is met and no record has `smaller` above `larger` by more than `rounding` times the
    larger of the two; it *fails* if one does by more than that and `error`. What lies between, and sides that are no
    numbers, are beyond what this run resolves: an assumption of its own, which is not met.

    Args:
        name: What the statement is called.
        claim: What it says, in words.
        smaller: The left side, a number or one for each record.
        larger: The right side.
        assumptions: What it rests on, one at least: a theorem has some.
        error: A bound on the numerical error of the sides.
        rounding: The relative error that counts as rounding.
        times: The times of the records.
        note: What is to be said besides.

    Returns:
        The statement.

    Raises:
        ValueError: Without assumptions.
    """
    if not assumptions:
        raise ValueError(f"{name} needs its assumptions, as checked; got none")
    low, high = np.broadcast_arrays(np.asarray(smaller, float), np.asarray(larger, float))
    checked = (*assumptions, *_limits_of_resolution(low, high, np.asarray(error, float), rounding))
    met = all(assumption.met for assumption in checked)
    holds = not np.any(_relative_excess(low, high) > rounding)
    verdict = (Verdict.HOLDS if holds else Verdict.FAILS) if met else Verdict.ASSUMPTION_NOT_MET
    return Statement(name, claim, verdict, low, high, times, checked, note)


def _relative_excess(low: Side, high: Side) -> Side:
    """Return (low − high) / max(|low|, |high|): minus or plus one where one is infinite, NaN where both are zero."""
    with np.errstate(invalid="ignore", over="ignore"):
        relative = (low - high) / np.maximum(np.abs(low), np.abs(high))
    return np.where(np.isinf(high), -np.sign(high), np.where(np.isinf(low), np.sign(low), relative))


def _limits_of_resolution(low: Side, high: Side, error: Side, rounding: float) -> list[Assumption]:
    if np.isnan(low).any() or np.isnan(high).any() or np.isinf(low).any():
        return [Assumption("both sides are finite numbers", False)]
    beyond = _relative_excess(low, high) > rounding
    clear = beyond & (low - high > error)
    if beyond.any() and not clear.any():
        found = f"one side passes the other by {np.max(np.where(beyond, low - high, 0)):.2g}"
        return [Assumption(f"the run resolves it (numerical error {np.max(error):.2g})", False, found)]
    return []


def not_applicable(name: str, claim: str, reason: str) -> Statement:
    """Return a statement that does not speak of what was run, for the given reason."""
    return Statement(name, claim, Verdict.NOT_APPLICABLE, note=reason)


def measured(
    name: str,
    claim: str,
    values: ArrayLike,
    *,
    unknown: str,
    assumptions: Sequence[Assumption] = (),
    times: Float[np.ndarray, " records"] | None = None,
    note: str = "",
) -> Statement:
    """Return a statement with an `unknown` constant, of which only one side can be measured: it never "holds"."""
    missing = Assumption(f"{unknown}, which are known to exist only", None)
    values = np.asarray(values, float)
    return Statement(name, claim, Verdict.ASSUMPTION_NOT_MET, values, None, times, (*assumptions, missing), note)


@dataclass(frozen=True, repr=False)
class Claim(Shown):
    """What a figure is said to show, and what was found.

    Printed, and shown in a notebook, it is the table of the command line; `repr` is a line.
    """

    text: str
    """What is said."""
    expected: str
    """The criterion."""
    measured: str
    """What was found, for reading."""
    holds: bool | None
    """Whether it is so; `None` where nothing could be measured, and where these runs cannot tell."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What was found, by name."""
    of_absence: bool = False
    """Whether it says that something does not happen, as that no run diverges."""
    of_sweep: bool = True
    """Whether it is about the sweep; one about runs beside it `--quick` leaves as it is."""
    undecided: str = ""
    """Why these runs cannot tell."""

    def __repr__(self) -> str:
        return encodable(f"Claim({self.text}: {self.verdict})")

    @property
    def verdict(self) -> Verdict:
        """What became of the claim; unlike a theorem it has no assumptions, but may go unmeasured or undecided."""
        if self.undecided:
            return Verdict.NOT_DECIDED
        return {True: Verdict.HOLDS, False: Verdict.FAILS, None: Verdict.NOT_MEASURED}[self.holds]

    def at_first_look(self) -> "Claim":
        """Return what a sweep of fewer steps and repetitions, as `--quick` makes it, can say of the claim.

        What does not hold there is not decided: longer runs get further, and a mean of three is not that of twenty.
        What holds was seen, and stays; but that something does *not* happen takes long and many runs to say, and is not
        decided either. What nothing was measured of, and what is not of the sweep, stays as it is.
        """
        shown = self.holds and not self.of_absence
        if self.holds is None or shown or not self.of_sweep:
            return self
        reason = "a tenth of the steps, three repetitions at most: run without --quick"
        return replace(self, holds=None, undecided=reason)


def unmeasured(text: str, expected: str, reason: str) -> Claim:
    """Return a claim about which these runs say nothing, and why.

    Args:
        text: What is said.
        expected: The criterion.
        reason: Why nothing was measured.

    Returns:
        The claim, undecided.
    """
    return Claim(text, expected, reason, None)


def mark_outside_sweep(claims: Iterable[Claim]) -> list[Claim]:
    """Return claims about runs beside a sweep, or without one, which `--quick` leaves as they are."""
    return [replace(claim, of_sweep=False) for claim in claims]


def listed(numbers: Mapping[str, float], form: str = ".3g") -> str:
    """Return numbers by name in one line: "η = 0.02: 0.97, η = 0.07: 1".

    Args:
        numbers: The numbers, by name.
        form: How each is written.

    Returns:
        The line.
    """
    return ", ".join(f"{name}: {value:{form}}" for name, value in numbers.items())
