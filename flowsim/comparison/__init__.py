"""Several dynamics from one initialization, on one time axis, and what theory says of them."""

from .compare import Interrupted as Interrupted, compare as compare
from .comparison import Comparison as Comparison
from .edge_statements import (
    EdgeCriteria as EdgeCriteria,
    RunStatements as RunStatements,
    StatementsOfRuns as StatementsOfRuns,
    edge_statements as edge_statements,
)
from .flow_limits import FlowLimits as FlowLimits
from .sharpness_along import SharpnessAlong as SharpnessAlong
