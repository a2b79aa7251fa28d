"""The schema of a scenario: one reproducible experiment, every number checked before any array exists."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from ..data import SOURCES, DataSource
from ..kinds import Chosen, Made, Section, recipe_of, refusal, within
from ..networks import NETWORKS, NetworkRecipe, shape_refusals
from ..problems.losses import LOSSES, SquaredError
from .figure import FigureNames, figures_of
from .record import ProbeNames
from .settings import DescentSettings, FlowSettings, LargeProductsSettings, TheorySettings
from .sweep_settings import SweepSettings
from .values import Seed

_LOSS = Chosen(LOSSES, recipe=recipe_of, word=True)


class Scenario(Section):
    """One reproducible experiment: data, a network, its gradient flow, and gradient descent beside it."""

    seed: Seed = Field(default=0, examples=[0])
    """From which every random number derives."""
    precision: Literal["float64", "float32"] = Field(default="float64", examples=["float64"])
    """Of every array."""
    data: Annotated[DataSource, Chosen(SOURCES)] = Field(examples=[{"kind": "gaussian", "samples": 50, "features": 5}])
    """Where the samples come from."""
    network: Annotated[NetworkRecipe, Chosen(NETWORKS)] = Field(
        examples=[{"kind": "residual", "depth": 10, "scale": 0.5}]
    )
    """What is trained."""
    loss: Annotated[Made, _LOSS] = Field(
        default_factory=lambda: recipe_of(SquaredError)(kind="squared_error"), examples=["squared_error"]
    )
    """What the prediction of one sample costs: the name of a loss, or kind and options."""
    flow: FlowSettings = Field(default_factory=FlowSettings, examples=[{"rtol": 1e-6}])
    """How the gradient flow is integrated."""
    descent: DescentSettings = Field(default_factory=DescentSettings, examples=[{"learning_rates": [0.02]}])
    """Gradient descent beside the flow."""
    record: ProbeNames = Field(default=(), examples=[["sharpness", "my_module:MyProbe"]])
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

    def refusals(self) -> Iterator[PydanticCustomError]:
        """Yield why the sections do not go together."""
        yield from within(("network",), shape_refusals(self.network, *self.data.dimensions()))
        if self.theory is not None and not self.squares:
            yield refusal(
                found=f"the loss {self.loss.kind}",
                expected="the squared error, which the theory is about",
                write="loss: squared_error, or no theory",
                at=("theory",),
            )
        if self.theory is not None:
            yield from self.theory.refusals_for(self.data, self.network)
        for figure in figures_of(self.figure):
            yield from figure.refusals(self)
        yield from within(("flow",), self.flow.refusals_at(self.precision))
