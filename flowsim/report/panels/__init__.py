"""What figures and the page show, described once: axes, curves, bands, guides and names of every panel."""

from .oscillation import envelope_of as envelope_of, oscillates as oscillates
from .panel import (
    FURTHEST as FURTHEST,
    HEADINGS as HEADINGS,
    INK as INK,
    LABELS as LABELS,
    Axis as Axis,
    Curve as Curve,
    Guide as Guide,
    Key as Key,
    Panel as Panel,
    subsample as subsample,
)
from .side_by_side import SideBySidePanels as SideBySidePanels
from .trajectories import TrajectoryPanels as TrajectoryPanels
from .view import TimeView as TimeView
