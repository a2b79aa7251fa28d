"""Risk against time as a kind of figure: what it asks of a scenario, what it is said to show, and its panel."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from ...kinds import validation_error
from ...probes import NormalizedMargin
from ...results import Figure, Results
from ...scenarios import Scenario

# What draws and measures is imported where it is used: a scenario is validated without Matplotlib.
if TYPE_CHECKING:
    import matplotlib.figure
    from pydantic_core import PydanticCustomError

    from ...theory import Claim

_MARGIN = NormalizedMargin().label.name


@final
class RiskOverTime(Figure):
    """The risk against t = ηk, for the flow and several learning rates on one axis (Wu et al. 2024).

    Descents oscillate at first where η is large, and fall like the flow does after that: 1/(γ²t), dotted.
    """

    name = "risk_over_time"

    def validation_errors(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the runs are not descents of one linear layer, with a loss without minimizer and their margins."""
        if scenario.loss.kind != "logistic":
            wording = {"expected": "logistic, which the figure is about", "write": "loss: logistic, or figure: null"}
            yield validation_error(found=f"the loss {scenario.loss.kind}", **wording, at=("loss",))
        if not (scenario.network.is_linear() and scenario.network.count_matrices() == 1):
            yield validation_error(
                found="another network than one linear layer",
                expected="one, for which the rate is known",
                write="network: {kind: mlp, depth: 1, scale: 0.0}, or figure: null",
                at=("network",),
            )
        if scenario.data.model_dump().get("samples") is None:
            wording = {"expected": "their number, on which the claims depend", "write": "samples: 300, or figure: null"}
            yield validation_error(found="data that do not say how many samples there are", **wording, at=("data",))
        if not scenario.descent.learning_rates:
            wording = {"expected": "learning rates, which the figure shows", "write": "learning_rates: [0.5, 50]"}
            yield validation_error(found="no descent", **wording, at=("descent",))
        if _MARGIN not in {entry.kind for entry in scenario.record}:
            wording = {"expected": "the margin, from which the rate follows", "write": f"record: [{_MARGIN}]"}
            yield validation_error(found=f"no {_MARGIN} among what is recorded", **wording, at=("record",))

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what is said of large steps on separable classes, each with the numbers measured."""
        from ...theory import beside_sweep
        from .claims import logistic_claims, risk_curves_of

        samples = results.scenario["data"]["samples"]
        return beside_sweep(logistic_claims(*risk_curves_of(results.required("trajectories")), samples))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .panel import risk_over_time

        return risk_over_time(results.required("trajectories"))
