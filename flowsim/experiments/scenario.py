"""The schema of a scenario: one reproducible experiment, every number checked before any array exists."""

from typing import Literal

from pydantic import Field, model_validator

from .contradictions import contradictions
from .figure import FigureNames
from .section import Section
from .settings import (
    DescentSettings,
    FileData,
    FlowSettings,
    GaussianData,
    LargeProductsSettings,
    PerceptronNetwork,
    ResidualNetwork,
    TheorySettings,
)
from .sweep_settings import SweepSettings
from .values import Seed


class Scenario(Section):
    """One reproducible experiment: data, a network, its gradient flow, and gradient descent beside it."""

    seed: Seed = Field(default=0, examples=[0])
    """From which every random number derives."""
    precision: Literal["float64", "float32"] = Field(default="float64", examples=["float64"])
    """Of every array."""
    data: GaussianData | FileData = Field(
        discriminator="kind", examples=[{"kind": "gaussian", "samples": 50, "features": 5}]
    )
    """Where the samples come from."""
    network: ResidualNetwork | PerceptronNetwork = Field(
        discriminator="kind", examples=[{"kind": "residual", "depth": 10, "scale": 0.5}]
    )
    """What is trained."""
    flow: FlowSettings = Field(default_factory=FlowSettings, examples=[{"rtol": 1e-6}])
    """How the gradient flow is integrated."""
    descent: DescentSettings = Field(default_factory=DescentSettings, examples=[{"learning_rates": [0.02]}])
    """Gradient descent beside the flow."""
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

    @model_validator(mode="after")
    def _refusecontradictions(self) -> "Scenario":
        for error in contradictions(self):
            raise error
        return self
