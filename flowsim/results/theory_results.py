"""What the theory sections of a scenario came to, in plain values."""

from dataclasses import dataclass

from ..dynamics import Outcome
from ..theory import LargeProductsSample, Statement, Verdict


@dataclass(frozen=True)
class CheckedFlow:
    """What the statements came to on one flow of the grid, and how that flow ended."""

    depth: int
    features: int
    condition: float
    repetition: int
    outcome: Outcome
    steps: int
    time: float
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class TheoryResults:
    """Everything that the theory sections of a scenario ask for.

    `convergence` is Theorem 4 as a frequency, one statement for each depth at which there are several flows.
    """

    flows: tuple[CheckedFlow, ...]
    convergence: dict[int, Statement]
    large_products: tuple[LargeProductsSample, ...]

    @property
    def failed(self) -> bool:
        """Whether a statement fails."""
        found = [statement for checked in self.flows for statement in checked.statements]
        found += [sample.statement() for sample in self.large_products]
        return any(statement.verdict is Verdict.FAILS for statement in found)
