"""The runs that are to be made, as a list of specifications: what moves, from where, until when, what it follows."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..columns import Edge, Run
from ..dynamics import (
    Descent,
    Dynamics,
    StepTimes,
    as_descent,
    check_learning_rate,
    check_maker,
    is_transformation,
)
from ..dynamics.learning_rates import with_rate
from ..solvers.field import check_step_count
from .models import ModelOfDescent, model_of

DEFAULT_STEPS = 4000


@dataclass(frozen=True)
class Fork:
    """A descent that goes on from a step of each descent of a comparison.

    A fork of the same kind takes the memory of the run over, with the same batches their order, too: one that changes
    nothing is the run itself, bit for bit. It ends at the time at which the run was to end. Where the run came to rest
    before the step, a fork goes on from its end: one that changes nothing has ended there. Any other takes a step or
    more, and may leave a minimum that is too sharp for it.
    """

    step: int
    """The number of the step from which it goes on."""
    learning_rate: float | None = None
    """Its learning rate; by default that of the run."""
    optimizer: Callable[[float], Any] | None = None
    """What makes its descent of a learning rate; by default that of the comparison."""

    def __post_init__(self):
        check_step_count("step", self.step)


class ForkError(ValueError):
    """A fork where its descent does not get to."""


@dataclass(frozen=True)
class End:
    """When a run ends at the latest: at the time `t1`, or after a number of `steps`; of a flow, rejected ones too."""

    t1: float = math.inf
    steps: int | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """The state of another run of the plan after so many of its steps; its last, if the run comes to rest before."""

    of: "RunSpec"
    step: int


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One run of a plan. Its dynamics is an object that holds its own options."""

    dynamics: Dynamics
    """What moves the weights: a flow, a descent, or a model of a descent."""
    learning_rate: float | None = None
    """The learning rate η by which results name the run; `None` for a flow."""
    until: End = End()
    """When it ends at the latest. A descent without a number of steps makes as many as reach `t1`, or else 4000."""
    start: Record | None = None
    """The state that a fork goes on from; `None` for the weights of the network."""
    follows: "RunSpec | None" = None
    """The descent that a model follows; `None` for all others."""

    @property
    def is_descent(self) -> bool:
        """Whether it is a descent: no flow, and no model of a descent."""
        return isinstance(self.dynamics, Descent)

    @property
    def is_flow(self) -> bool:
        """Whether it is the gradient flow, or another flow in its place."""
        return not self.is_descent and self.follows is None

    @property
    def descent(self) -> Descent:
        """The descent that this is, or follows."""
        dynamics = self.dynamics if self.follows is None else self.follows.dynamics
        assert isinstance(dynamics, Descent)
        return dynamics

    @property
    def run(self) -> Run:
        """How results name it."""
        models = "" if self.follows is None else self.follows.dynamics.kind()
        edge = None if self.learning_rate is None else Edge.of(self.descent)
        return Run(self.dynamics.kind(), self.learning_rate, edge=edge, models=models)  # pyright: ignore[reportArgumentType]

    @property
    def step_times(self) -> StepTimes:
        """The times of the steps of the descent that this is, or follows, counted from its first."""
        return StepTimes(self.descent)

    @property
    def steps(self) -> int:
        """The number of steps that a descent takes."""
        if self.until.steps is not None:
            return self.until.steps
        if math.isinf(self.until.t1):
            return DEFAULT_STEPS
        return self.step_times.until(self.until.t1)

    @property
    def end_time(self) -> float:
        """The time at which a descent is to end."""
        return float(self.step_times.after(self.steps))


_NO_TIME = "how much time of the flow passes in a step, a transformation of Optax does not report: write "


def plan_descents(
    learning_rates: Sequence[Any],
    optimizer: Callable[[float], Any],
    forks: Sequence[Fork],
    until: End,
    dtype: jnp.dtype,
) -> tuple[list[RunSpec], list[RunSpec]]:
    """Return the descents of a comparison, and the forks of each.

    An entry of `learning_rates` is a descent, or a number, of which `optimizer` makes one. Raises `ValueError` for
    anything but a list of them, `ForkError` for a fork at a step that its descent does not make, and `TypeError` for
    what makes no descent.
    """
    is_list = isinstance(learning_rates, list | tuple) or np.ndim(learning_rates) == 1
    entries: list[Any] = list(learning_rates) if is_list else [None]
    if any(map(is_transformation, entries)):
        raise TypeError(f"{_NO_TIME}flowsim.Optax(optax.adam(1e-3), time_per_step=1e-3) in the list")
    numbers: list[Any] = [entry.rate_of_descent() if isinstance(entry, Descent) else entry for entry in entries]
    rates = np.asarray(numbers if all(np.ndim(number) == 0 for number in numbers) else [None])
    if rates.size and rates.dtype.kind not in "iuf":
        raise ValueError(
            "learning_rates must be a list of numbers, as [0.02, 0.1], or of descents, as [flowsim.Adam(1e-3)], got "
            f"{learning_rates!r}"
        )
    if not isinstance(forks, Sequence) or not all(isinstance(fork, Fork) for fork in forks):
        raise TypeError(f"forks must be a list of flowsim.Fork(step=..., learning_rate=...), got {forks!r}")

    def descent_at(rate: float, make: Callable[[float], Any]) -> Descent:
        check_learning_rate(rate, dtype)
        check_maker(make)
        made = make(rate)
        if is_transformation(made):
            remedy = "optimizer=lambda eta: flowsim.Optax(optax.sgd(eta), time_per_step=eta), or a descent of flowsim's"
            raise TypeError(_NO_TIME + remedy)
        return as_descent(made)

    descents: list[RunSpec] = []
    branches: list[RunSpec] = []
    for entry, rate in zip(entries, rates.tolist(), strict=True):
        make = partial(_with_rate, entry) if isinstance(entry, Descent) else optimizer
        spec = RunSpec(descent_at(rate, make), rate, until)
        descents.append(spec)
        steps = spec.steps if forks else 0
        for fork in forks:
            if fork.step >= steps:
                raise ForkError(
                    f"a fork at step {fork.step} of a descent of {steps} steps: expected a step before its last"
                )
            descent, its_rate = spec.descent, rate if fork.learning_rate is None else fork.learning_rate
            if fork.learning_rate is not None or fork.optimizer is not None:
                descent = descent_at(its_rate, fork.optimizer or make).checked(dtype)
            branches.append(RunSpec(descent, its_rate, until, start=Record(spec, fork.step)))
    return descents, branches


def _with_rate(descent: Descent, rate: float) -> Descent:
    """Return a descent as it is for its own learning rate, else with another."""
    return descent if float(descent.rate_of_descent()) == rate else with_rate(descent, rate)


def check_told_apart(descents: Sequence[RunSpec], *, modelled: bool) -> None:
    """Raise `ValueError` for descents of one kind and rate, which results could not tell apart, nor models by rate."""
    for number, spec in enumerate(descents):
        rate, kind = spec.learning_rate, spec.dynamics.kind()
        for other in descents[:number]:
            if other.learning_rate != rate:
                continue
            if bool(spec.dynamics == other.dynamics):
                raise ValueError(
                    f"learning_rates: found {rate!r} twice; expected no repetitions; write every entry once"
                )
            if kind == other.dynamics.kind():
                raise ValueError(
                    f"learning_rates: found {rate!r} of {kind} twice, which results could not tell apart; "
                    "give them other rates, or compare each alone"
                )
            if modelled:
                raise ValueError(
                    f"learning_rates: found {rate!r} of {other.dynamics.kind()} and of {kind}, whose models could not "
                    "be told apart; give them other rates, or compare each alone"
                )


def plan_models(
    models: Collection[ModelOfDescent], descents: Sequence[RunSpec], until: End, **tolerances: float | None
) -> list[RunSpec]:
    """Return a run of each model for each descent; `tolerances` are the `rtol` and `atol` of a model that has none."""
    return [
        RunSpec(model_of(model, spec.descent, **tolerances), spec.learning_rate, until, follows=spec)
        for model in models
        for spec in descents
    ]
