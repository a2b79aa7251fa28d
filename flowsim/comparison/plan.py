"""The runs that are to be made, as a list of specifications: what moves, from where, until when, and what it follows."""

import math
from dataclasses import dataclass

from ..dynamics import Descent, Dynamics, steps_until, times_of_steps
from ..results.runs import Edge

DEFAULT_STEPS = 4000


@dataclass(frozen=True)
class End:
    """The end of a run, if it does not come to its limit before: the time `t1`, or a number of `steps` of a descent."""

    t1: float = math.inf
    steps: int | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """The state of another run of the plan after so many of its steps; its last one, if the run comes to rest before."""

    of: "RunSpec"
    step: int


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One run of a plan.

    Its dynamics is an object that holds its own options. A descent takes `until.steps` steps, or as many as reach
    `until.t1`, or else 4000.
    """

    dynamics: Dynamics
    """What moves the weights: a gradient flow, a descent, or a model of a descent."""
    learning_rate: float | None = None
    """The learning rate η that results name the run by; `None` for a flow."""
    until: End = End()
    """When it ends at the latest."""
    start: Record | None = None
    """The state that a fork goes on from; `None` for the weights of the network."""
    follows: "RunSpec | None" = None
    """The descent that a model follows; `None` for all others."""

    @property
    def descent(self) -> Descent:
        """The descent that this is, or follows."""
        dynamics = self.dynamics if self.follows is None else self.follows.dynamics
        assert isinstance(dynamics, Descent)
        return dynamics

    @property
    def is_descent(self) -> bool:
        """Whether it is a descent: not a flow, and no model of a descent."""
        return isinstance(self.dynamics, Descent)

    @property
    def edge(self) -> Edge:
        """The edge of stability of the descent that this is, or follows."""
        return Edge.of(self.descent)

    @property
    def steps(self) -> int:
        """The number of steps that a descent takes."""
        if self.until.steps is not None:
            return self.until.steps
        if math.isinf(self.until.t1):
            return DEFAULT_STEPS
        if self.descent.is_scheduled():
            return len(times_of_steps(self.descent, t1=self.until.t1)) - 1
        return steps_until(self.until.t1, float(self.descent.time_of_step()))

    @property
    def end_time(self) -> float:
        """The time at which a descent is to end."""
        if self.descent.is_scheduled():
            return float(times_of_steps(self.descent, steps=self.steps)[-1])
        return self.steps * float(self.descent.time_of_step())
