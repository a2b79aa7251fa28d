"""What the figure and its claims measure: how far the sharpness of each flow rises, and when, as the risk falls."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...report.sweeps import runs
from .course import COLUMNS

# Beyond a fifth of a right angle from one point to the next, the rate is not smooth enough for the rule.
_CONTINUES = 0.95
Records = Float[np.ndarray, " records"]


@dataclass(frozen=True)
class Course:
    """The sharpness along one flow, as `SharpnessCourse` has it, without what stands behind the last record.

    `gained` is the integral of the rate since the record before, NaN at the first.
    """

    depth: int
    scale: float
    time: Records
    risk: Records
    sharpness: Records
    rate: Records
    gained: Records
    overlap: Records

    @property
    def rise(self) -> float:
        """The largest S over S(0), one at least."""
        return float(self.sharpness.max() / self.sharpness[0])

    @property
    def sharpens(self) -> bool:
        """Whether the flow ends sharper than it starts."""
        return bool(self.sharpness[-1] > self.sharpness[0])

    @property
    def fallen(self) -> Records:
        """The part of the fall of the risk, from the start to the limit, that is done."""
        return (self.risk[0] - self.risk) / (self.risk[0] - self.risk[-1])

    @property
    def fallen_at_peak(self) -> float:
        """The part of the fall of the risk that is done where S rises fastest."""
        return float(self.fallen[np.nanargmax(self.rate)])

    @property
    def continues(self) -> np.ndarray:
        """Whether the top eigenvector turns by 18° at most from point to point, between each record and the next."""
        return self.overlap[1:] >= _CONTINUES

    @property
    def errors(self) -> Float[np.ndarray, " intervals"]:
        """How far the integral of the rate is from the change of S between records, in parts of the largest S."""
        return np.abs(self.gained[1:] - np.diff(self.sharpness)) / self.sharpness.max()


def courses_of(sweep: xarray.Dataset) -> list[Course]:
    """Return the courses of a sweep over depth and scale, of every start from which the flow moved."""
    table = sweep[[f"initial_course_{name}" for name in COLUMNS]]
    table = table.stack(start=("depth", "scale", runs.REPETITION))
    columns = {name: table[f"initial_course_{name}"].transpose("start", ...).values for name in COLUMNS}
    found = []
    for row, (depth, scale, _) in enumerate(table["start"].values):
        known = np.isfinite(columns["time"][row])
        if known.any():
            found.append(Course(int(depth), float(scale), **{name: columns[name][row, known] for name in COLUMNS}))
    return found


def by_cell(courses: list[Course], measure: Callable[[Course], float]) -> dict[int, dict[float, float]]:
    """Return the median of a measure over the starts of each cell: of each depth, of each scale."""
    depths, scales = sorted({one.depth for one in courses}), sorted({one.scale for one in courses})
    medians: dict[int, dict[float, float]] = {depth: {} for depth in depths}
    for depth, scale in itertools.product(depths, scales):
        values = [measure(one) for one in courses if (one.depth, one.scale) == (depth, scale)]
        if values:
            medians[depth][scale] = float(np.median(values))
    return medians
