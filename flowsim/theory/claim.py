"""One thing that a figure is said to show, and what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .statement import Verdict


@dataclass(frozen=True)
class Claim:
    """What a figure is said to show (`text`), the criterion (`expected`), and what was found.

    `measured` is for reading, `numbers` has the same by name. `holds` is `None` where nothing could be measured.
    """

    text: str
    expected: str
    measured: str
    holds: bool | None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """What became of the claim; unlike a theorem it has no assumptions to be met, but may go unmeasured."""
        return {True: Verdict.HOLDS, False: Verdict.FAILS, None: Verdict.NOT_MEASURED}[self.holds]


def unmeasured(text: str, expected: str, reason: str) -> Claim:
    """Return a claim about which these runs say nothing, and why."""
    return Claim(text, expected, reason, None)


def listed(numbers: Mapping[str, float], form: str = ".3g") -> str:
    """Return numbers by name in one line: "η = 0.02: 0.97, η = 0.07: 1"."""
    return ", ".join(f"{name}: {value:{form}}" for name, value in numbers.items())
