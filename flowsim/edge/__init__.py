"""Models of descent at the edge of stability: flows that follow more of it than the gradient."""

from .central_flow import CentralFlow as CentralFlow
from .descent_model import MODELS as MODELS, DescentModel as DescentModel
from .edge_flow import EdgeFlow as EdgeFlow
