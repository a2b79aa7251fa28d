"""The schema of a sweep: a grid over fields of a scenario, repetitions, and what runs at every point."""

from collections import Counter
from collections.abc import Iterator

from pydantic import Field
from pydantic_core import PydanticCustomError

from ..dynamics import Descent
from ..kinds.recipes import Section, validation_error
from ..kinds.recipes.values import Count
from .grid import Grid
from .values import Axis, CountedSteps, Optimizer, Schedule, SpacedLearningRates, at_rate, gradient_descent, kind_of

MOST_CELLS = 10_000_000


class SweepDescent(Section):
    """Gradient descent from every initialization, at learning rates that share a number of steps."""

    learning_rates: SpacedLearningRates = Field(examples=[[0.005, 0.02]])
    """The learning rates η: a list, or start, stop, count and spacing."""
    steps: CountedSteps = Field(examples=[4000])
    """Number of steps."""
    repetitions: Count | None = Field(default=None, examples=[80])
    """Number of initializations at every point, the first of them those of the sweep; null: as many as it has."""
    optimizer: Optimizer = Field(default_factory=gradient_descent)
    """What a step does: a kind of descent by its name, or with its options, as {kind: adam, b1: 0.9}."""
    schedule: Schedule = Field(default=(), examples=[[{"kind": "warm_up", "time": 10.0}]])
    """How the learning rates change in time: a kind of factor, or a list of several; []: they do not."""

    def at(self, rate: float) -> Descent:
        """Return the descent with one of the learning rates."""
        return at_rate(self.optimizer, self.schedule)(rate)


class CriticalSettings(Section):
    """The largest learning rate at which gradient descent reaches the minimum, by a search from every initialization.

    The search halves and doubles `highest`, and then bisects between a rate that reaches the minimum and one that is
    too large. A rate is too large where descent diverges, or oscillates after its last step. A rate at which the risk
    is still falling then is too small for the steps. Where no rate reaches the minimum the result is NaN, with the
    reason.
    """

    lowest: float = Field(default=1e-3, gt=0, le=1e6, examples=[0.001])
    """A learning rate down to which the search goes at least; it goes on where this one is too large."""
    highest: float = Field(default=2.0, gt=0, le=1e6, examples=[2.0])
    """The learning rate at which the search begins; it goes up where this one is not too large."""
    doublings: Count | None = Field(default=None, le=1000, examples=[52])
    """How often `highest` is doubled and `lowest` is halved at most; null: the number of binary digits of the
    precision. A step as large as the weights changes none of their digits after so many halvings of the rate."""
    steps: CountedSteps = Field(default=10_000, examples=[10_000])
    """Number of steps within which the minimum is to be reached."""
    excess_risk: float = Field(default=1e-6, gt=0, examples=[1e-6])
    """The minimum is reached where the excess risk at the end is at most this."""
    precision: float = Field(default=0.01, ge=1e-6, le=1, examples=[0.01])
    """The search ends when the bracket is this narrow, relative to the learning rate."""

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that the bracket is empty."""
        if self.lowest >= self.highest:
            yield validation_error(
                found=f"{self.highest}, not above lowest",
                expected=f"more than {self.lowest}",
                write=f"highest: {10 * self.lowest:g}",
                at=("highest",),
            )


class SweepSettings(Section):
    """The flow, and gradient descent beside it, at every point of a grid and for several initializations."""

    over: dict[str, Axis] = Field(
        default_factory=dict, examples=[{"network.scale": [0.3, 0.5]}], json_schema_extra={"default": {}}
    )
    """Keys of the scenario, each with its values: a list, or start, stop, count and spacing."""
    repetitions: Count = Field(default=1, examples=[20])
    """Number of independent initializations at every point; minibatches and noise are drawn alike in all."""
    flow: bool = Field(default=True, examples=[True])
    """Integrate the gradient flow from every initialization."""
    descent: tuple[SweepDescent, ...] = Field(
        default=(), strict=False, examples=[[{"learning_rates": [0.02], "steps": 10_000}]]
    )
    """Gradient descent: learning rates with their numbers of steps."""
    critical: CriticalSettings | None = Field(default=None, examples=[{"steps": 10_000}])
    """Search for the critical learning rate of every initialization, the largest that reaches the minimum from it;
    null: do not."""
    first_look: bool | None = Field(default=None, examples=[True])
    """Take claims of figures that do not hold for undecided, as steps and repetitions are too few; null: do not."""

    @property
    def starts(self) -> int:
        """Number of initializations at every point of the grid, whatever runs from them."""
        return max([self.repetitions, *(entry.repetitions or 0 for entry in self.descent)])

    @property
    def grid(self) -> Grid:
        """The grid of the axes."""
        return Grid(self.over)

    def quick(self, *, fewer_steps: int = 10, most_repetitions: int = 3) -> "SweepSettings":
        """Return the same sweep with a tenth of the steps of descents and searches, and three repetitions at most.

        Flows run to their limits, as their steps are few. Where the sweep is less than it was, it is a first look, and
        says so in all that is stored of it.
        """
        descent = tuple(
            entry.model_copy(
                update={
                    "steps": max(1, entry.steps // fewer_steps),
                    "repetitions": entry.repetitions and min(entry.repetitions, most_repetitions),
                }
            )
            for entry in self.descent
        )
        critical = self.critical
        if critical is not None:
            critical = critical.model_copy(update={"steps": max(1, critical.steps // fewer_steps)})
        repetitions = min(self.repetitions, most_repetitions)
        less = self.model_copy(update={"repetitions": repetitions, "descent": descent, "critical": critical})
        return self if less == self else less.model_copy(update={"first_look": True})

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that a learning rate stands there twice, or that there are too many runs."""
        rates = Counter((kind_of(entry.optimizer), rate) for entry in self.descent for rate in entry.learning_rates)
        if twice := [rate for (_, rate), count in rates.items() if count > 1]:
            yield validation_error(
                found=f"{twice[0]} twice", expected="every learning rate once", write="it once", at=("descent",)
            )
        cells = self.starts * (1 + len(rates)) * self.grid.size
        if cells > MOST_CELLS:
            yield validation_error(
                found=f"a sweep of {cells} runs",
                expected=f"at most {MOST_CELLS}",
                write="fewer values or repetitions",
            )
