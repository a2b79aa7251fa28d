"""What each figure shows, and what is claimed of it: its panels of the sweep, and a row for each single run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import xarray
from matplotlib.figure import Figure

from ...columns import read_runs
from ...report.panels import Panel
from ...report.render_paper import figure_of
from ...results import Results
from ...theory import Claim
from .edge_claims import noisy_claims, single_run_claims
from .learning_claims import divergence_claims, flow_claims, jump_claims, learning_claims
from .panels import (
    critical_rates,
    divergence_probability,
    generalization,
    sharpness,
    sharpness_over_edge,
    single_run,
    squared_distance,
)
from .sharpness_claims import generalization_claims, sharpness_claims


@dataclass(frozen=True)
class Content:
    """The `panels` of a figure, each a function of a sweep, and the functions that make its claims of a sweep.

    With `single_runs` the trajectories, where there are some, give a row of two more panels for each of their learning
    rates, and claims; `about_flow` tells whether it is claimed that the flow reaches its limits. Curves are medians
    over the runs that did not diverge with their quartiles, as in the table, where the paper has means with
    bootstrapped confidence intervals; the probability of divergence has Wilson's interval.
    """

    panels: Sequence[Callable[[xarray.Dataset], Panel]]
    claimed: Sequence[Callable[[xarray.Dataset], Sequence[Claim]]]
    single_runs: bool = False
    about_flow: bool = True

    def claims(self, results: Results) -> list[Claim]:
        """Return all claims: those of the paper about the sweep and single runs, and what the flow adds."""
        sweep, single = results.required("sweep"), results.trajectories if self.single_runs else None
        return [
            *(claim for claimed in self.claimed for claim in claimed(sweep)),
            *([] if single is None else single_run_claims(single)),
            *(flow_claims(sweep) if self.about_flow else []),
        ]

    def draw(self, results: Results) -> Figure:
        """Return the figure, with the gradient flow in it."""
        sweep, single = results.required("sweep"), results.trajectories if self.single_runs else None
        shown = None if single is None else read_runs(single)
        panels, letters = [panel(sweep) for panel in self.panels], ["a", "b"]
        descents = () if shown is None else [run for run in shown.others if run.run.is_descent]
        for row, descent in enumerate(descents):  # the paper has the two panels of a row in one
            panels += [] if shown is None else single_run(sweep, shown.flow, descent)
            letters += [f"{chr(ord('c') + row)}{column}" for column in (1, 2)]
        if len(panels) > 1:
            panels = [replace(panel, letter=letter) for panel, letter in zip(panels, letters, strict=True)]
        columns, rows = min(len(panels), 2), (len(panels) + 1) // 2
        return figure_of(panels, (3.3 * columns, 2.25 * rows + 0.35), columns=columns)


_OVER_SCALES = Content([squared_distance, sharpness], [learning_claims, sharpness_claims], single_runs=True)
_DIVERGENCE = Content([divergence_probability], [divergence_claims], about_flow=False)
CONTENTS = {
    "figure1": _OVER_SCALES,
    "figure2": Content([critical_rates], [jump_claims]),
    "figure3": _DIVERGENCE,
    "figure4": _OVER_SCALES,
    "figure5": _DIVERGENCE,
    "figure6": Content([sharpness, generalization], [generalization_claims, sharpness_claims]),
    "figure7": Content([sharpness], [sharpness_claims]),
    "appendix_c": Content([sharpness_over_edge], [noisy_claims], about_flow=False),
}
"""By the name of the figure."""
