"""Many gradient descents at once, each exactly as if it ran alone."""

from .descent import Ends as Ends, descend_lanes as descend_lanes
