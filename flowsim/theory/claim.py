"""One thing that a figure is said to show, and what was measured."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..formatting.presentation import Shown
from .statement import Verdict

FIRST_LOOK = "a tenth of the steps, three repetitions at most: run without --quick"
"""Why a first look leaves a claim undecided."""


@dataclass(frozen=True, repr=False)
class Claim(Shown):
    """What a figure is said to show (`text`), the criterion (`expected`), and what was found.

    `measured` is for reading, `numbers` has the same by name. `holds` is `None` where nothing could be measured, and
    where `undecided` says why these runs cannot tell. A claim `of_absence` says that something does not happen, as that
    no run diverges; one that is not `of_sweep` is about runs beside it, which `--quick` leaves as they are.
    Printed, and shown in a notebook, it is the table of the command line; `repr` is a line.
    """

    text: str
    expected: str
    measured: str
    holds: bool | None
    numbers: Mapping[str, float] = field(default_factory=dict)
    of_absence: bool = False
    of_sweep: bool = True
    undecided: str = ""

    def __repr__(self) -> str:
        return f"Claim({self.text}: {self.verdict})"

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
        return replace(self, holds=None, undecided=FIRST_LOOK)


def unmeasured(text: str, expected: str, reason: str) -> Claim:
    """Return a claim about which these runs say nothing, and why."""
    return Claim(text, expected, reason, None)


def beside_sweep(claims: Iterable[Claim]) -> list[Claim]:
    """Return claims about runs beside a sweep, or without one, which `--quick` leaves as they are."""
    return [replace(claim, of_sweep=False) for claim in claims]


def listed(numbers: Mapping[str, float], form: str = ".3g") -> str:
    """Return numbers by name in one line: "η = 0.02: 0.97, η = 0.07: 1"."""
    return ", ".join(f"{name}: {value:{form}}" for name, value in numbers.items())
