"""Probes: quantities that are recorded along a run."""

from .batch_sharpness import BatchSharpness as BatchSharpness
from .batches import BatchProbe as BatchProbe
from .critical_sharpness import (
    CriticalSharpness as CriticalSharpness,
    DirectionalSharpness as DirectionalSharpness,
)
from .direction import Alignment as Alignment, Angle as Angle
from .distance import DistanceTravelled as DistanceTravelled
from .gradient_noise import GradientNoise as GradientNoise
from .held_out import HELD_OUT as HELD_OUT, TestAccuracy as TestAccuracy, TestRisk as TestRisk
from .learning_rate import MovingEdge as MovingEdge, ScheduledRate as ScheduledRate
from .margin import Accuracy as Accuracy, Margin as Margin, NormalizedMargin as NormalizedMargin
from .matrices import (
    Balancedness as Balancedness,
    EffectiveRank as EffectiveRank,
    LayerNorms as LayerNorms,
    SingularValues as SingularValues,
)
from .mean_square_sharpness import MeanSquareSharpness as MeanSquareSharpness
from .noise_interaction import NoiseInteraction as NoiseInteraction
from .oscillation import MeanExcessRisk as MeanExcessRisk, MeanRisk as MeanRisk, Oscillation as Oscillation
from .path import Path as Path
from .probe import (
    PROBES as PROBES,
    FunctionProbe as FunctionProbe,
    Label as Label,
    Moment as Moment,
    Probe as Probe,
    columns_of as columns_of,
    probe_of as probe_of,
)
from .risk import (
    ExcessRisk as ExcessRisk,
    GradientNorm as GradientNorm,
    Risk as Risk,
    SquaredDistance as SquaredDistance,
    UnregularizedRisk as UnregularizedRisk,
)
from .sharpness import (
    PreconditionedSharpness as PreconditionedSharpness,
    SelfStabilization as SelfStabilization,
    Sharpening as Sharpening,
    Sharpness as Sharpness,
    TopEigenvalues as TopEigenvalues,
)
from .sharpness_gap import SharpnessGap as SharpnessGap
from .spectrum import LayerSharpness as LayerSharpness, SpectralDensity as SpectralDensity
from .squared_norm import SquaredNorm as SquaredNorm
from .tangent_kernel import TangentKernel as TangentKernel
