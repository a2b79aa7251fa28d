"""The phase diagram as a kind of figure: what it asks of a scenario, what it is said to show, and how it is drawn."""

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
    from .claims import Single

_AXIS = "network.width"
_HOME = __name__.rpartition(".")[0]


@final
class Phases(Figure):
    """Lazy, catapult and divergent: sharpness after training and largest risk over ηS(0) (Lewkowycz et al. 2020).

    Points are the descents of a sweep over the width and those from one start, beside the exact recursion.
    """

    name = "phases"

    def validation_errors(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the scenario is not a sweep of two layers on one sample over their width, with descents."""
        for section, kind in (("data", "OneSample"), ("network", "TwoLayers")):
            if (found := getattr(scenario, section).kind) != f"{_HOME}:{kind}":
                yield validation_error(
                    found=f"{section} of kind {found}",
                    expected="what the recursion is about",
                    write=f"kind: {_HOME}:{kind}, or figure: null",
                    at=(section, "kind"),
                )
        if not scenario.squares:
            wording = {"expected": "squared_error, which the recursion is about", "write": "loss: squared_error"}
            yield validation_error(found=f"the loss {scenario.loss.kind}", **wording, at=("loss",))
        if scenario.sweep is None or set(scenario.sweep.over) != {_AXIS} or not scenario.sweep.descent:
            yield validation_error(
                found="no sweep over the width alone with gradient descent",
                expected="one, which the figure shows",
                write=f"sweep: {{over: {{{_AXIS}: [64, 1024]}}, descent: [{{learning_rates: [1, 3], steps: 4000}}]}}",
                at=("sweep",) if scenario.sweep else ("figure",),
            )

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says of the three phases, each with the numbers measured."""
        from ...theory import beside_sweep
        from .claims import descents_of, peak_claim, phase_claims

        single = _single(results)
        return (
            *phase_claims(descents_of(results.required("sweep"))),
            *beside_sweep([peak_claim(single)] if single else []),
        )

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the exact recursion in it."""
        from .claims import descents_of
        from .panels import phase_diagram

        return phase_diagram(descents_of(results.required("sweep")), _single(results))


def _single(results: Results) -> "Single | None":
    """Return the descents from one start, `None` where there are none."""
    from .claims import single_of

    found = results.trajectories
    if found is None or not results.scenario["descent"]["learning_rates"]:
        return None
    return single_of(found, results.scenario["network"]["width"])
