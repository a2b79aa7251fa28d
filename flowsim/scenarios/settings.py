"""The sections of a scenario: what each holds, and what of it is wrong on its own."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ..comparison import Fork, SharpnessAlong
from ..comparison.models import GRADIENT, ModelOfDescent
from ..comparison.plan import End, RunSpec
from ..curvature import least_rtol
from ..data.sources import DataSource
from ..dynamics import MAX_STEPS, Descent, GradientFlow, Stopping, finest_gradient_norm
from ..edge import MODELS
from ..kinds.recipes import Chosen, Made, Named, Section, recipe_of, refusal, too_large, validation_error, within
from ..kinds.recipes.values import MOST_NUMBERS, Count, CountOrZero
from ..networks.recipes import NetworkRecipe
from ..runtime.memory import beyond_memory
from ..solvers import SOLVERS
from ..solvers.choice import finest_rtol, usable_solver
from .grid import Grid
from .sweep_settings import MOST_CELLS
from .values import (
    Conditions,
    Counts,
    LearningRates,
    Optimizer,
    Positives,
    Schedule,
    StepLimit,
    Subject,
    Subjects,
    Time,
    at_rate,
    gradient_descent,
)

AUTOMATIC = "auto"
_MODEL = Chosen(
    MODELS,
    recipe=partial(recipe_of, given=frozenset({"learning_rate", "optimizer"})),
    names=Named(MODELS, GRADIENT, entry=True),
)


def model_of_entry(entry: str | Made) -> tuple[str, ModelOfDescent | None]:
    """Return a model of descent after its name in results, without a learning rate; `None` for the gradient flow."""
    if isinstance(entry, str):
        return entry, None if entry == GRADIENT else MODELS[entry]
    model = entry.make(learning_rate=None, optimizer=None)
    return model.kind(), model


def _usable(entry: str | Made) -> str | Made:
    """Return a model of descent, whose options the kind itself may refuse."""
    for error in refusal(partial(model_of_entry, entry)):
        raise error
    return entry


ModelEntry = Annotated[str | Made, _MODEL, AfterValidator(_usable)]
"""A model of descent by its name, or with options, as {kind: edge, rtol: 1.0e-9}; or the gradient flow."""
SolverName = Annotated[str, Named(SOLVERS, AUTOMATIC, use=usable_solver)]


class FlowSettings(Section):
    """How the gradient flow is integrated, and when it has reached its limit."""

    models: tuple[ModelEntry, ...] = Field(default=(GRADIENT,), strict=False, examples=[[GRADIENT, "edge"]])
    """Which flows: gradient, which runs in any case, and models of descent, once for each learning rate, by their names
    or with options, as {kind: edge, rtol: 1.0e-9}."""
    solver: SolverName = Field(default=AUTOMATIC, examples=[AUTOMATIC])
    """The method, by its name in flowsim.solvers or in Diffrax; auto: by the structure of the problem."""
    rtol: float | None = Field(default=None, gt=0, lt=1, examples=[1e-6])
    """Relative tolerance of one step, of models too that have none; null: the default for precision and model."""
    atol: float | None = Field(default=None, ge=0, examples=[1e-9])
    """Absolute tolerance of one step, of models too; null: none, as errors are measured beside each weight."""
    gradient_norm: float | None = Field(default=None, gt=0, examples=[1e-8])
    """The flow has reached its limit once the norm of the gradient is this small, at a minimum; null: the default."""
    remaining: float | None = Field(default=None, gt=0, examples=[1e-6])
    """And the remaining distance to the minimizer this small relative to the norm of the weights; null: the default."""
    excess_risk: float | None = Field(default=None, gt=0, examples=[1e-12])
    """The flow may stop once the excess risk is this small; null: not used."""
    risk: float | None = Field(default=None, gt=0, examples=[1e-9])
    """The flow may stop once the risk is this small, for networks that fit their data; null: not used."""
    margin: float | None = Field(default=None, gt=0, examples=[10.0])
    """The flow may stop once the margin of every sample is this large, for losses of classes; null: not used."""
    direction: float | None = Field(default=None, gt=0, lt=math.pi, examples=[0.01])
    """The flow may stop once −∇R is at this angle to the weights, which grow for ever then; null: not used."""
    limits: Count | None = Field(default=None, examples=[16])
    """From about how many points of each descent the flow is taken to its limit, for its sharpness; null: from none."""
    t1: Time = Field(default=math.inf, examples=[100.0], json_schema_extra={"default": "inf"})
    """The time at which the flow ends at the latest; inf: it runs to its limit."""
    max_steps: StepLimit = Field(default=MAX_STEPS, examples=[MAX_STEPS])
    """The number of steps after which the integration stops."""

    unswept: ClassVar[tuple[str, ...]] = ("models", "limits")

    @property
    def of_descent(self) -> dict[str, ModelOfDescent]:
        """The models of descent by their names in results, without the gradient flow."""
        return {name: model for name, model in map(model_of_entry, self.models) if model is not None}

    def make(self) -> GradientFlow:
        """Return the gradient flow, with its method and tolerances."""
        solver = None if self.solver == AUTOMATIC else SOLVERS[self.solver]()
        return GradientFlow(solver, rtol=self.rtol, atol=self.atol)

    @property
    def stopping(self) -> Stopping | None:
        """When a run counts as converged; `None` for the criterion by default."""
        names = ("gradient_norm", "remaining", "excess_risk", "risk", "margin", "direction")
        set_here = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return Stopping(**set_here) if set_here else None

    def options(self) -> dict[str, Any]:
        """Return the arguments of `integrate` that are set here."""
        flow = self.make()
        tolerances = {"solver": flow.solver, "rtol": flow.rtol, "atol": flow.atol}
        return tolerances | {"t1": self.t1, "max_steps": self.max_steps, "stopping": self.stopping}

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that a model is there twice."""
        models = [name for name, _ in map(model_of_entry, self.models)]
        if len(set(models)) < len(models):
            yield validation_error(
                found=", ".join(models),
                expected="each model once",
                write=f"models: [{', '.join(dict.fromkeys(models))}]",
                at=("models",),
            )

    def errors_at(self, precision: str) -> Iterator[PydanticCustomError]:
        """Yield what is finer than the rounding of `precision`."""
        for key, finest_of in (("rtol", finest_rtol), ("gradient_norm", finest_gradient_norm)):
            value, finest = getattr(self, key), finest_of(np.dtype(precision))
            if value is not None and value < finest:
                enough = "precision: float64" if value >= finest_of(np.dtype(np.float64)) else f"{key}: {finest:.1g}"
                yield validation_error(
                    found=f"{value}",
                    expected=f"at least {finest:.1g}, as {precision} resolves no less",
                    write=enough,
                    at=(key,),
                )


class ForkSettings(Section):
    """Descents that go on from a step of each descent, with another rate, batch or optimizer."""

    step: Count = Field(examples=[1000])
    """The step of each descent from which they go on, with its memory where they are of the same kind."""
    learning_rates: LearningRates = Field(default=(), examples=[[0.1]])
    """Their learning rates; []: that of the descent."""
    optimizer: Optimizer | None = Field(default=None)
    """What their steps do; null: what those of the descent do."""
    schedule: Schedule | None = Field(default=None)
    """How their learning rates change in the time of the whole run; null: as those of the descent do."""


class DescentSettings(Section):
    """Gradient descent from the weights at which the flow starts, once for each learning rate."""

    learning_rates: LearningRates = Field(default=(), examples=[[0.005, 0.02]])
    """The learning rates η, each once; [] runs the flow alone."""
    steps: Count | None = Field(default=None, examples=[4000])
    """Number of steps; null: as many as reach the time flow.t1, and 4000 where that is inf."""
    optimizer: Optimizer = Field(default_factory=gradient_descent)
    """What a step does: a kind of descent by its name, or with its options, as {kind: adam, b1: 0.9}."""

    schedule: Schedule = Field(default=(), examples=[[{"kind": "warm_up", "time": 10.0}]])
    """How the learning rates change in time: a kind of factor, or a list of several; []: they do not."""

    forks: tuple[ForkSettings, ...] = Field(
        default=(), strict=False, examples=[[{"step": 1000, "learning_rates": [0.1]}]]
    )
    """Descents that go on from a step of each of these, with another rate, batch or optimizer; []: none."""

    def kinds(self) -> Iterator[str]:
        """Yield the names of all kinds that its descents are made of."""
        for section in (self, *self.forks):
            if section.optimizer is not None:
                yield section.optimizer.kind
            yield from (factor.kind for factor in section.schedule or ())

    def made_forks(self) -> tuple[Fork, ...]:
        """Return what `flowsim.compare` takes."""
        return tuple(
            Fork(
                fork.step,
                rate,
                at_rate(fork.optimizer or self.optimizer, self.schedule if fork.schedule is None else fork.schedule),
            )
            for fork in self.forks
            for rate in fork.learning_rates or (None,)
        )

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that there are forks, and no descents that they could go on from."""
        if self.forks and not self.learning_rates:
            yield validation_error(
                found=f"{len(self.forks)} without learning rates",
                expected="descents that they go on from",
                write="learning_rates: [0.02], or forks: []",
                at=("forks",),
            )

    def at(self, rate: float) -> Descent:
        """Return the descent with one of the learning rates."""
        return at_rate(self.optimizer, self.schedule)(rate)

    def all_steps(self, t1: float) -> int:
        """Return the steps of all descents together, beside a flow to time `t1`. Raises `ValueError` for too many."""
        return sum(self.steps_of_each(t1))

    def steps_of_each(self, t1: float) -> list[int]:
        """Return the steps of the descent with each learning rate, as `all_steps`."""
        return [RunSpec(self.at(rate), rate, End(t1, self.steps)).steps for rate in self.learning_rates]

    def errors_until(self, t1: float) -> Iterator[PydanticCustomError]:
        """Yield that steps are more than could be recorded, or fewer than a fork is at, as seen from the scenario."""
        at = ("descent", "steps") if self.steps is not None else ("flow", "t1")
        try:
            steps = self.steps_of_each(t1)
        except ValueError as error:
            write = "a smaller t1, or descent.steps"
            yield validation_error(found=str(error), expected=f"at most {MOST_NUMBERS} steps", write=write, at=at)
            return
        if sum(steps) > MOST_NUMBERS:
            yield too_large(f"{sum(steps)} steps over all learning rates", at[-1], at)
        fewest = min(steps, default=0)
        for number, fork in enumerate(self.forks):
            if fork.step >= fewest > 0:
                yield validation_error(
                    found=f"{fork.step}",
                    expected=f"a step before the last, {fewest}",
                    write=f"step: {max(1, fewest // 2)}",
                    at=("descent", "forks", number, "step"),
                )


class SharpnessSettings(Section):
    """How the sharpness is followed along the runs."""

    records: CountOrZero | None = Field(default=None, examples=[50])
    """At about how many records of each run; 0: only at the end; null: at all, of many weights at fewer."""
    rtol: float | None = Field(default=None, gt=0, lt=1, examples=[1e-4])
    """The residual of an eigenvalue relative to its size, on the way; null: the default for precision and weights."""
    count: Count = Field(default=1, examples=[3])
    """How many of the largest eigenvalues are recorded; the others are called top_eigenvalues."""

    def make(self) -> SharpnessAlong:
        """Return what `flowsim.compare` takes."""
        return SharpnessAlong(records=self.records, rtol=self.rtol, count=self.count)

    def errors_at(self, precision: str) -> Iterator[PydanticCustomError]:
        """Yield that the tolerance is finer than the rounding of `precision`."""
        least = least_rtol(np.dtype(precision))
        if self.rtol is not None and self.rtol < least:
            expected = f"at least {least:.2g}, as {precision} resolves no less"
            yield validation_error(found=f"{self.rtol}", expected=expected, write="rtol: null, or more", at=("rtol",))


def _switched(value: Any) -> Any:
    """Return the section for which true or false stands: as it is by default, or at the end alone."""
    return ({} if value else {"records": 0}) if isinstance(value, bool) else value


SharpnessChoice = Annotated[
    SharpnessSettings | None, BeforeValidator(_switched, json_schema_input_type=SharpnessSettings | bool | None)
]
"""Options of the sharpness along the way, or false for none."""


class TheorySettings(Section):
    """Which statements of the theory are checked, on the flow of this network and of others like it."""

    subjects: Subjects = Field(default=get_args(Subject), examples=[["small_scale"]])
    """What to check; by default all, of which those that apply are."""
    depths: Counts = Field(default=(), examples=[[3, 5, 10]])
    """Depths L to check, in place of that of the network; []: that one."""
    features: Counts = Field(default=(), examples=[[5, 10]])
    """Numbers of features d to check, in place of those of the data; []: that one."""
    conditions: Conditions = Field(default=(), examples=[[1.0, 100.0]])
    """Condition numbers Λ/λ to check, in place of that of the data; []: that one."""
    repetitions: Count = Field(default=1, examples=[20])
    """Number of independent data sets and initializations for each depth, features and condition."""

    @property
    def grid(self) -> Grid:
        """The grid of the values to check, by the keys that they are of."""
        axes = {"network.depth": self.depths, "data.features": self.features, "data.condition": self.conditions}
        return Grid({key: values for key, values in axes.items() if values})

    @property
    def flows(self) -> int:
        """The number of flows that are checked."""
        return self.repetitions * self.grid.size

    def seconds(self, *, seconds_per_flow: float = 0.3) -> float:
        """Return about how long the checked flows take on one core, once their programs are compiled."""
        return seconds_per_flow * self.flows

    def errors_for(self, data: DataSource, network: NetworkRecipe, weights: int) -> Iterator[PydanticCustomError]:
        """Yield what the theory does not cover, what it cannot vary, and what is too much, as seen from the scenario.

        Each flow keeps its network, of so many `weights`, until it is its turn.
        """
        if not network.is_linear():
            yield validation_error(
                found="a nonlinear network",
                expected="a linear network, which the theory is about",
                write=f"{network.linear_if}, or theory: null",
                at=("theory",),
            )
        yield from within(("theory",), self._errors_to_vary(data, network))
        if self.depths and "depth" in network.varied:
            yield from within(("network",), network.model_copy(update={"depth": min(self.depths)}).validation_errors())
        at = ("theory", "repetitions")
        if self.flows > MOST_CELLS:
            yield validation_error(
                found=f"{self.flows} flows to check",
                expected=f"at most {MOST_CELLS}",
                write="fewer repetitions, or shorter lists",
                at=at,
            )
        elif beyond := beyond_memory(8 * self.flows * weights):
            yield validation_error(
                found=f"{self.flows} flows to check, whose networks take {beyond}",
                expected="networks that fit",
                write="fewer repetitions",
                at=at,
            )

    def _errors_to_vary(self, data: DataSource, network: NetworkRecipe) -> Iterator[PydanticCustomError]:
        if self.depths and "depth" not in network.varied:
            yield validation_error(
                found=f"a list of them for a network of kind {network.kind}",
                expected="a network whose depth can be set",
                write="depths: []",
                at=("depths",),
            )
        for key, option in {"features": "features", "conditions": "condition"}.items():
            if getattr(self, key) and option not in data.varied:
                yield validation_error(
                    found=f"a list of them for data of kind {data.kind}",
                    expected="data that are drawn",
                    write="data of kind: gaussian",
                    at=(key,),
                )
        _, outputs = data.dimensions()
        if self.features and outputs is not None and outputs > 1:
            yield validation_error(
                found=f"a list of them for {outputs} outputs",
                expected="as many features as the data have",
                write="features: []",
                at=("features",),
            )


class LargeProductsSettings(Section):
    """Lemma 3 by Monte Carlo, over a grid of all combinations."""

    deviations: Positives = Field(examples=[[1.0, 2.0]])
    """Values of u, by which bounds and probability are widened."""
    scales: Positives = Field(examples=[[0.25, 0.5]])
    """Values of s, the scale of the initialization."""
    widths: Counts = Field(min_length=1, examples=[[5, 10]])
    """Values of d."""
    depths: Counts = Field(min_length=1, examples=[[5, 20]])
    """Values of L."""
    initializations: Count = Field(default=2000, examples=[2000])
    """Number of initializations for each combination."""

    @property
    def grid(self) -> Grid:
        """The grid of all combinations, by the fields of `flowsim.theory.LargeProducts`."""
        return Grid({"deviation": self.deviations, "scale": self.scales, "width": self.widths, "depth": self.depths})

    @property
    def draws(self) -> int:
        """The number of initializations over all combinations."""
        return self.initializations * self.grid.size

    def seconds(self, *, seconds_per_number: float = 5e-7) -> float:
        """Return about how long it takes one core to draw them."""
        numbers = sum(self.depths) * sum(width**2 for width in self.widths)
        return seconds_per_number * numbers * self.initializations * len(self.deviations) * len(self.scales)

    def size_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that one product of matrices does not fit into memory, or that there are more than can be drawn."""
        largest, copies = max(self.depths) * max(self.widths) ** 2, 6
        if beyond := beyond_memory(8 * copies * largest):
            yield validation_error(
                found=f"{largest} numbers in one initialization, in {copies} copies: {beyond}",
                expected="matrices that fit",
                write="smaller widths or depths",
                at=("widths",),
            )
        if self.draws > MOST_NUMBERS:
            found = f"{self.draws} initializations over all combinations"
            yield too_large(found, "initializations", ("initializations",))

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that the radius of the ball, exp(−2s² − 4u)/64, is no positive float, as the bounds are none either."""
        scale, deviation = max(self.scales), max(self.deviations)
        exponent = 2 * scale**2 + 4 * deviation
        largest = 700  # of an exponential that is a float
        if exponent > largest:
            yield validation_error(
                found=f"s = {scale:g} beside u = {deviation:g}, for which 2s² + 4u is {exponent:g}",
                expected=f"at most {largest}, as the bounds of Lemma 3 are exponentials of that",
                write="smaller scales or deviations",
                at=("scales",),
            )
