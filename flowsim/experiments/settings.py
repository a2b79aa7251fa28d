"""The sections of a scenario: what each holds, and what of it is wrong on its own."""

import math
from typing import Annotated, Literal, get_args

from pydantic import Field

from .section import Section
from .values import (
    Condition,
    Conditions,
    Count,
    Counts,
    Depth,
    LearningRates,
    Names,
    Positives,
    StepLimit,
    Subject,
    Subjects,
    TestCount,
    Time,
)


class GaussianData(Section):
    """Inputs and noise drawn from standard Gaussians, labels from a linear teacher, with ‖w*‖ = 1."""

    kind: Literal["gaussian"] = Field(examples=["gaussian"])
    """Data drawn from a Gaussian teacher."""
    samples: Count = Field(examples=[50])
    """Number of samples n."""
    features: Count = Field(examples=[5])
    """Number of features d of one sample."""
    noise: float = Field(default=1.0, ge=0, examples=[1.0])
    """Standard deviation of the noise on the labels, before they are scaled."""
    outputs: Count = Field(default=1, examples=[1])
    """Number of labels m of one sample."""
    condition: Condition | None = Field(default=None, examples=[100.0])
    """Condition number Λ/λ of the covariance, with Λ = 1; null: as the inputs are drawn."""
    test_samples: TestCount = Field(default=0, examples=[50])
    """Number of further samples of the same teacher, on which a sweep measures the risk of what was trained."""

    @property
    def inputs(self) -> int:
        """Number of features, known before the data are."""
        return self.features


class FileData(Section):
    """Data read from a CSV file (columns) or an NPZ file (arrays)."""

    kind: Literal["file"] = Field(examples=["file"])
    """Data read from a file."""
    path: str = Field(min_length=1, examples=["data/diabetes.csv"])
    """A .csv or .npz file; a relative path starts in the folder of the scenario file."""
    target: Names = Field(examples=["progression"])
    """The column to predict, or a list of columns; in an NPZ file, the name of an array."""
    features: Names | None = Field(default=None, examples=[["age", "bmi"]])
    """The columns to predict from; null: all the others. In an NPZ file the name of an array; null: X."""
    standardize: bool = Field(default=True, examples=[True])
    """Bring every feature to mean zero and variance one."""
    unit_regressor: bool = Field(default=True, examples=[True])
    """Scale the labels so that the least-squares regressor w* has norm one."""

    @property
    def target_names(self) -> str | tuple[str, ...]:
        """The argument `target` of `read_table`, for which a single name stands alone."""
        return self.target[0] if len(self.target) == 1 else self.target

    @property
    def feature_names(self) -> str | tuple[str, ...] | None:
        """The argument `features` of `read_table`."""
        return self.features[0] if self.features and len(self.features) == 1 else self.features

    @property
    def inputs(self) -> int | None:
        """Number of features, or None where only the file knows."""
        return len(self.features) if self.features and self._names_columns else None

    @property
    def outputs(self) -> int | None:
        """Number of labels of one sample, or None where only the file knows."""
        return len(self.target) if self._names_columns else None

    @property
    def _names_columns(self) -> bool:
        return not self.path.lower().endswith(".npz")


Scale = Annotated[float, Field(ge=0, examples=[0.5])]


class ResidualNetwork(Section):
    """A deep linear residual network: W_k = I + scale/√(depth·features)·N_k with N_k standard Gaussian."""

    kind: Literal["residual"] = Field(examples=["residual"])
    """A deep linear residual network, as wide as there are features."""
    depth: Depth
    """Number of weight matrices L."""
    scale: Scale
    """Standard deviation s of the initialization, times 1/√(depth·features); 0 is the identity."""

    @property
    def linear(self) -> bool:
        """Whether the network is a linear map."""
        return True

    def count_weights(self, inputs: int, outputs: int) -> int:
        """Count the weights; the projection onto one output is not one of them."""
        return self.depth * inputs**2


class PerceptronNetwork(Section):
    """A multi-layer perceptron with independent N(0, scale²) weights and no biases."""

    kind: Literal["mlp"] = Field(examples=["mlp"])
    """A multi-layer perceptron, linear or not."""
    depth: Depth
    """Number of weight matrices L."""
    scale: Scale
    """Standard deviation of every weight at the start; from depth 2 on 0 is a saddle: no flow."""
    width: Count | None = Field(default=None, examples=[20])
    """Width of the hidden layers; null: as many as there are features."""
    activation: Literal["linear", "gelu", "tanh", "softplus"] = Field(default="linear", examples=["gelu"])
    """What stands between the weight matrices."""
    zero_layer: Count | None = Field(default=None, examples=[2])
    """The weight matrix that starts at zero, counted from 1; null: none. Only for activation linear."""

    @property
    def linear(self) -> bool:
        """Whether the network is a linear map."""
        return self.activation == "linear"

    def count_weights(self, inputs: int, outputs: int) -> int:
        """Count the weights of all layers."""
        width = self.width or inputs
        return inputs * outputs if self.depth == 1 else width * (inputs + outputs + (self.depth - 2) * width)


class FlowSettings(Section):
    """How the gradient flow is integrated, and when it has reached its limit."""

    # Diffrax methods with adaptive steps: Euler has no error estimate, KenCarp and Sil3 want a split field.
    solver: Literal[
        "auto",
        "LowRankExtrapolation",
        "RungeKuttaChebyshev",
        "StabilitySwitching",
        "Tsit5",
        "Dopri5",
        "Dopri8",
        "Bosh3",
        "Heun",
        "Kvaerno3",
        "Kvaerno4",
        "Kvaerno5",
    ] = Field(default="auto", examples=["auto"])
    """The method, by its name in flowsim.solvers or in Diffrax; auto: by the structure of the problem."""
    rtol: float | None = Field(default=None, gt=0, lt=1, examples=[1e-6])
    """Relative tolerance of one step; null: the default for the precision."""
    atol: float | None = Field(default=None, ge=0, examples=[1e-9])
    """Absolute tolerance of one step; null: the default for the precision."""
    gradient_norm: float | None = Field(default=None, gt=0, examples=[1e-8])
    """The flow has reached its limit once the norm of the gradient is this small; null: the default."""
    excess_risk: float | None = Field(default=None, gt=0, examples=[1e-12])
    """The flow may stop once the excess risk is this small; null: it is not asked."""
    risk: float | None = Field(default=None, gt=0, examples=[1e-9])
    """The flow may stop once the risk is this small, for networks that fit their data; null: it is not asked."""
    t1: Time = Field(default=math.inf, examples=[100.0], json_schema_extra={"default": "inf"})
    """The time at which the flow ends at the latest; inf: it runs to its limit."""
    max_steps: StepLimit = Field(default=1_000_000, examples=[1_000_000])
    """The number of steps after which the integration gives up."""


class DescentSettings(Section):
    """Gradient descent from the weights at which the flow starts, once for each learning rate."""

    learning_rates: LearningRates = Field(default=(), examples=[[0.005, 0.02]])
    """The learning rates η, each once; [] runs the flow alone."""
    steps: Count = Field(default=4000, examples=[4000])
    """Number of steps."""


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
