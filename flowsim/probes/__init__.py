"""What can be recorded along a run."""

from .accuracy import Accuracy as Accuracy
from .direction import Alignment as Alignment, Angle as Angle
from .gradient import GradientNorm as GradientNorm
from .held_out import HELD_OUT as HELD_OUT, TestAccuracy as TestAccuracy, TestRisk as TestRisk
from .margin import Margin as Margin, NormalizedMargin as NormalizedMargin
from .oscillation import MeanExcessRisk as MeanExcessRisk, MeanRisk as MeanRisk, Oscillation as Oscillation
from .preconditioned_sharpness import PreconditionedSharpness as PreconditionedSharpness
from .probe import (
    PROBES as PROBES,
    FunctionProbe as FunctionProbe,
    Label as Label,
    Moment as Moment,
    Probe as Probe,
    columns_of as columns_of,
    probe_of as probe_of,
)
from .regressor import SquaredDistance as SquaredDistance
from .risk import ExcessRisk as ExcessRisk, Risk as Risk
from .self_stabilization import SelfStabilization as SelfStabilization
from .sharpening import Sharpening as Sharpening
from .sharpness import Sharpness as Sharpness
from .top_eigenvalues import TopEigenvalues as TopEigenvalues
