"""Models of descent at the edge of stability: flows that follow more of it than the gradient."""

from ..dynamics.flow import MODELS as MODELS, DescentModel as DescentModel
from .central_flow import CentralFlow as CentralFlow
from .centre_flow import CentreFlow as CentreFlow, StableFlow as StableFlow
from .edge_flow import EdgeFlow as EdgeFlow
from .rod_flow import RodFlow as RodFlow
