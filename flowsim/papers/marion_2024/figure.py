"""When and where flows sharpen as a kind of figure: what it asks of a scenario, and what it is said to show."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from ...kinds import validation_error
from ...results import Figure, Results
from ...scenarios import Scenario

# What draws and measures is imported where it is used: a scenario is validated without Matplotlib.
if TYPE_CHECKING:
    import matplotlib.figure
    from pydantic_core import PydanticCustomError

    from ...theory import Claim

_AXES = ("network.depth", "network.scale")
_COURSE = f"{__name__.rpartition('.')[0]}:SharpnessCourse"


@final
class Sharpening(Figure):
    """The sharpness and its rate dS/dt against the fall of the risk, and the rise of S over scale and depth."""

    name = "sharpening"

    def validation_errors(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the scenario is not a sweep over depth and scale that measures the course of the sharpness."""
        if scenario.sweep is None or set(scenario.sweep.over) != set(_AXES):
            yield validation_error(
                found="no sweep over depth and scale alone",
                expected="one, which the figure shows",
                write=f"sweep: {{over: {{{_AXES[0]}: [2, 5], {_AXES[1]}: [0.1, 0.3]}}}}, or figure: null",
                at=("sweep",) if scenario.sweep else ("figure",),
            )
        if _COURSE not in {entry.kind for entry in scenario.record}:
            yield validation_error(
                found="no course of the sharpness among what is recorded",
                expected="one, which the figure shows",
                write=f'record: ["{_COURSE}"]',
                at=("record",),
            )

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what is asked about progressive sharpening, each with the numbers measured."""
        from .claims import curves_of, sharpening_claims

        return sharpening_claims(curves_of(results.required("sweep")))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure."""
        from .claims import curves_of
        from .panels import sharpening

        return sharpening(curves_of(results.required("sweep")))
