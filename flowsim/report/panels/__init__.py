"""What figures and the page show, described once: axes, curves, bands, guides and names of every panel."""

from .oscillation import Envelope as Envelope, envelope_of as envelope_of, oscillates as oscillates
from .panel import (
    FURTHEST as FURTHEST,
    INK as INK,
    Axis as Axis,
    Curve as Curve,
    Guide as Guide,
    Key as Key,
    Limits as Limits,
    Panel as Panel,
    subsample as subsample,
)
from .quantities import HEADINGS as HEADINGS, LABELS as LABELS, label_of as label_of
from .trajectories import TrajectoryPanels as TrajectoryPanels
from .view import TimeView as TimeView
