"""Sharpness and oscillation at the edge as a kind of figure: what it asks of a scenario, and what is said of it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from ...comparison.models import GRADIENT
from ...kinds import validation_error
from ...results import Figure, Results
from ...scenarios import Scenario

# What draws and measures is imported where it is used: a scenario is validated without Matplotlib.
if TYPE_CHECKING:
    import matplotlib.figure
    from pydantic_core import PydanticCustomError

    from ...theory import Claim


@final
class AtTheEdge(Figure):
    """The sharpness at the centre of descent's oscillation, and its amplitude, beside what models say of both.

    One learning rate or more stay below the edge 2/η, and one or more come to it and stay there.
    """

    name = "at_the_edge"

    def validation_errors(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield that there is no model of descent, or that the sharpness is not followed."""
        if not [model for model in scenario.flow.models if model != GRADIENT]:
            yield validation_error(
                found="no model of descent beside the gradient flow",
                expected="one or more, which the figure shows",
                write="models: [gradient, central, edge], or figure: null",
                at=("flow", "models"),
            )
        if scenario.sharpness is not None and scenario.sharpness.make().at_the_end_alone:
            yield validation_error(
                found="the sharpness at the end of the runs alone",
                expected="its course, which the figure shows",
                write="sharpness: true, or figure: null",
                at=("sharpness",),
            )

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what is said of descent at the edge and of its models, each with the numbers measured."""
        from ...theory import beside_sweep
        from .claims import descents_of, edge_claims

        return beside_sweep(edge_claims(descents_of(results.required("trajectories"))))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .panels import at_the_edge

        return at_the_edge(results.required("trajectories"))
