"""Several dynamics from one initialization, on one time axis, and what theory says of them."""

from .compare import Interrupted as Interrupted, compare as compare
from .comparison import Comparison as Comparison
from .edge_statements import (
    EdgeCriteria as EdgeCriteria,
    RunStatements as RunStatements,
    StatementsOfRuns as StatementsOfRuns,
    edge_statements as edge_statements,
)
from .measure import FlowLimits as FlowLimits, SharpnessAlong as SharpnessAlong
from .plan import Fork as Fork
