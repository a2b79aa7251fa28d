"""The schema of a scenario: one reproducible experiment, every number checked before any array exists."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field
from pydantic_core import PydanticCustomError

from ..comparison.models import GRADIENT, check_models
from ..data.sources import SOURCES, DataSource
from ..kinds import reason_of
from ..kinds.recipes import Chosen, Made, Section, recipe_of, validation_error, within
from ..losses import LOSSES, SquaredError
from ..networks.recipes import NETWORKS, NetworkRecipe, network_recipe, shape_errors
from ..results.figure import FigureNames, figure_errors
from ..runtime.memory import beyond_memory
from .settings import (
    DescentSettings,
    FlowSettings,
    LargeProductsSettings,
    SharpnessChoice,
    TheorySettings,
)
from .sweep_settings import SweepSettings
from .values import Record, Seed, labels_of, record_errors

_LOSS = Chosen(LOSSES, recipe=recipe_of, word=True)


class Scenario(Section):
    """One reproducible experiment: data, a network, its gradient flow, and gradient descent beside it."""

    seed: Seed = Field(default=0, examples=[0])
    """From which every random number derives."""
    precision: Literal["float64", "float32"] = Field(default="float64", examples=["float64"])
    """Of every array: float64 has 16 digits, float32 7, in half the memory."""
    data: Annotated[DataSource, Chosen(SOURCES)] = Field(examples=[{"kind": "gaussian", "samples": 50, "features": 5}])
    """Where the samples come from."""
    network: Annotated[NetworkRecipe, Chosen(NETWORKS, recipe=network_recipe)] = Field(
        examples=[{"kind": "residual", "depth": 10, "scale": 0.5}]
    )
    """What is trained."""
    loss: Annotated[Made, _LOSS] = Field(
        default_factory=lambda: recipe_of(SquaredError)(kind="squared_error"),
        examples=["squared_error"],
        json_schema_extra={"default": "squared_error"},
    )
    """What the prediction of one sample costs: the name of a loss, or kind and options."""
    weight_decay: float = Field(default=0.0, ge=0, le=1e6, examples=[1e-3])
    """λ, which adds (λ/2)‖W‖² to the risk, where ‖W‖² is the sum of all squared weights; 0: no decay."""
    flow: FlowSettings = Field(
        default_factory=FlowSettings, examples=[{"rtol": 1e-6}], json_schema_extra={"default": {}}
    )
    """How the gradient flow is integrated."""
    descent: DescentSettings = Field(
        default_factory=DescentSettings, examples=[{"learning_rates": [0.02]}], json_schema_extra={"default": {}}
    )
    """Gradient descent beside the flow."""
    sharpness: SharpnessChoice = Field(default=None, examples=[{"records": 50, "rtol": 1e-4}])
    """How the sharpness is followed along the runs; null or true: as it is by default; false: only at the end."""
    record: Record = Field(default=(), examples=[["test_risk", "my_module:MyProbe"], ["layer_norms"]])
    """What is recorded along the runs beside risk, excess risk, squared distance, gradient norm and sharpness."""
    theory: TheorySettings | None = Field(default=None, examples=[{"depths": [3, 5, 10]}])
    """The statements of the theory to check; null: none."""
    lemma_3: LargeProductsSettings | None = Field(
        default=None, examples=[{"deviations": [1.0], "scales": [0.5], "widths": [5], "depths": [20]}]
    )
    """Products of many random matrices; null: none."""
    sweep: SweepSettings | None = Field(
        default=None, examples=[{"over": {"network.scale": [0.3, 0.5]}, "repetitions": 20}]
    )
    """The same experiment for every point of a grid, with repetitions; null: none."""
    figure: FigureNames = Field(default=None, examples=["my_module:MyFigure"])
    """The figure, or a list of them, that the results are to be drawn as, with its claims checked; null: none."""

    @property
    def squares(self) -> bool:
        """Whether the loss is the squared error, for which the best linear network is known."""
        return bool(self.loss.make() == SquaredError())

    @property
    def least_squares(self) -> bool:
        """Whether this is a linear network with the squared error: what the theory is about."""
        return self.network.is_linear() and self.squares

    @property
    def knows_minimum(self) -> bool:
        """Whether the minimum of the risk is known: for least squares without weight decay."""
        return self.least_squares and self.weight_decay == 0

    @property
    def hides_minimum(self) -> str:
        """Why the minimum of the risk is not known, in words."""
        if self.least_squares:
            return f"a weight decay of {self.weight_decay:g}"
        return f"the loss {self.loss.kind}" if self.network.is_linear() else "a nonlinear network"

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield why the sections do not go together."""
        shape, (_, outputs) = self.data.sample_shape(), self.data.dimensions()
        yield from within(("network",), shape_errors(self.network, shape, outputs))
        yield from record_errors(self.record, self.data)
        weights = self.network.count_weights(self.network.inputs_for(shape), outputs) or 0  # at least
        yield from self._memory_errors(weights)
        if self.theory is not None and not self.squares:
            yield validation_error(
                found=f"the loss {self.loss.kind}",
                expected="the squared error, which the theory is about",
                write="loss: squared_error, or theory: null",
                at=("theory",),
            )
        if self.theory is not None and self.weight_decay:
            yield validation_error(
                found=f"a weight decay of {self.weight_decay:g}",
                expected="none, as the statements are about the risk alone",
                write="weight_decay: 0, or theory: null",
                at=("theory",),
            )
        if self.theory is not None:
            yield from self.theory.errors_for(self.data, self.network, weights)
        if self.lemma_3 is not None:
            yield from within(("lemma_3",), self.lemma_3.size_errors())
        yield from figure_errors(self.figure, self)
        if self.flow.excess_risk is not None and not self.knows_minimum:
            yield validation_error(
                found=f"{self.flow.excess_risk} beside {self.hides_minimum}",
                expected="null, as the minimum of the risk is not known",
                write="risk or gradient_norm in its place",
                at=("flow", "excess_risk"),
            )
        if self.weight_decay:
            yield from self._decay_errors()
        yield from self._flow_errors()
        rescaled = self.data.rescaled_targets()
        if rescaled and not self.loss.make().takes_numbers():
            yield validation_error(
                found=f"true beside the loss {self.loss.kind}",
                expected="false, as it would centre or rescale the labels of classes",
                write=" and ".join(f"{key}: false" for key in rescaled)
                + ", or data of kind: labelled, which scales the inputs alone",
                at=("data", rescaled[0]),
            )
        yield from self.descent.errors_until(self.flow.t1)
        yield from self._sharpness_errors()
        for section in ("network", "loss", "weight_decay", "flow", "descent", "sweep"):
            yield from within((section,), _without_room(getattr(self, section), self.precision))

    def _decay_errors(self) -> Iterator[PydanticCustomError]:
        """Yield what is asked for that weight decay rules out."""
        found = f"a weight decay of {self.weight_decay:g}"
        if self.flow.direction is not None:
            expected = "null, as weights that decay do not grow for ever"
            yield validation_error(
                found=f"{self.flow.direction} beside {found}",
                expected=expected,
                write="direction: null, or weight_decay: 0",
                at=("flow", "direction"),
            )
        for index, entry in enumerate(self.record):
            if entry.kind == "mean_square_sharpness":
                yield validation_error(
                    found=f"{entry.kind} beside {found}, which is in the Hessian of every sample",
                    expected="the risk of samples alone",
                    write="batch_sharpness, or weight_decay: 0",
                    at=("record", index),
                )

    def _memory_errors(self, weights: int) -> Iterator[PydanticCustomError]:
        """Yield that the copies of the weights that a run keeps are more than the memory of the machine."""
        flows = self.sweep is None or self.sweep.flow
        # The fewest that any solver of the flow keeps (two stages beside four), and that descent does.
        copies = 6 if flows else 3
        if beyond := beyond_memory(weights * copies * np.dtype(self.precision).itemsize):
            yield validation_error(
                found=f"{weights} weights, of which {'a flow' if flows else 'descent'} keeps {copies} copies: {beyond}",
                expected="a network that fits",
                write="fewer or narrower layers, or data of fewer features",
                at=("network",),
            )

    def _sharpness_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that a tolerance is too fine, or that a probe is called as what the sharpness records."""
        if self.sharpness is None:
            return
        yield from within(("sharpness",), self.sharpness.errors_at(self.precision))
        if taken := set(self.sharpness.make().names()).intersection(labels_of(self.record)):
            yield validation_error(
                found=f"{self.sharpness.count} beside a probe that is called {taken.pop()} too",
                expected="one of the two",
                write="count: 1, or no such probe in record",
                at=("sharpness", "count"),
            )

    def _flow_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that there is no descent for models to follow, or one that they are no models of.

        And that there is none from whose points flows could begin.
        """
        models = self.flow.of_descent
        swept = () if self.sweep is None else self.sweep.descent
        followed = [entry for entry in (self.descent, *swept) if entry.learning_rates]
        if models and not followed:
            places = "descent" if self.sweep is None else "descent or sweep.descent"
            yield validation_error(
                found=f"{', '.join(models)} without learning rates in {places}",
                expected="models of descents beside these",
                write=f"models: [{GRADIENT}]",
                at=("flow", "models"),
            )
        errors = list(within(("flow",), self.flow.errors_at(self.precision)))
        yield from errors
        tolerances = {} if errors else {"rtol": self.flow.rtol, "atol": self.flow.atol}
        swept_over = () if self.sweep is None else self.sweep.over.get("precision", ())
        precisions = [one for one in swept_over if one in ("float64", "float32")] or [self.precision]
        for (name, model), entry, precision in itertools.product(models.items(), followed, precisions):
            try:
                check_models([model], [entry.at(entry.learning_rates[0])], np.dtype(precision), **tolerances)
            except Exception as error:  # whatever the code of a user does
                yield validation_error(
                    found=f"{name} beside descents of kind {entry.optimizer.kind} ({reason_of(error)})",
                    expected="models of these descents",
                    write=f"models: [{GRADIENT}]",
                    at=("flow", "models"),
                )
        rates = Counter(rate for entry in swept for rate in entry.learning_rates)
        if models and (twice := [rate for rate, count in rates.items() if count > 1]):
            yield validation_error(
                found=f"models of two kinds of descent with the learning rate {twice[0]}",
                expected="every learning rate once, by which models are known",
                write=f"{twice[0]} once, or models: [{GRADIENT}]",
                at=("flow", "models"),
            )
        without = "without learning rates in descent" if not self.descent.learning_rates else ""
        without = "in a sweep, whose runs do not keep their weights" if self.sweep is not None else without
        if self.flow.limits is not None and without:
            yield validation_error(
                found=f"{self.flow.limits} {without}",
                expected="descents at single learning rates, from whose points flows begin",
                write="limits: null",
                at=("flow", "limits"),
            )


def _without_room(content: Any, precision: str) -> Iterator[PydanticCustomError]:
    """Yield every number in a section that `precision` has no room for: compiled programs take it for 0 or infinity."""
    if isinstance(content, float) and math.isfinite(content) and content != 0:
        limits = np.finfo(precision)
        if not limits.tiny <= abs(content) <= limits.max:
            wider = abs(content) >= np.finfo("float64").tiny
            yield validation_error(
                found=f"{content}, for which {precision} has no room",
                expected=f"a size from {limits.tiny:.2g} to {limits.max:.2g}",
                write="precision: float64, or another number" if wider else "another number",
            )
        return
    inside = content if isinstance(content, BaseModel) else ()
    inside = content.items() if isinstance(content, dict) else inside
    inside = enumerate(content) if isinstance(content, tuple) else inside
    for key, value in inside:
        yield from within((key,), _without_room(value, precision))
