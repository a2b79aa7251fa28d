"""What figures and the page show, described once: axes, curves, bands, guides and names of every panel."""

from .maps import layer_panels as layer_panels, spectrum_panels as spectrum_panels
from .models import model_panels as model_panels
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
    Symlog as Symlog,
    abscissae as abscissae,
    axis_over as axis_over,
    ordinates as ordinates,
    subsample as subsample,
)
from .plane import PATH as PATH, plane_panels as plane_panels
from .side_by_side import SideBySidePanels as SideBySidePanels
from .spectrum import NODES as NODES, Spectra as Spectra, spectrum_panel as spectrum_panel
from .trajectories import TrajectoryPanels as TrajectoryPanels
from .view import TimeView as TimeView
