"""What each figure shows, and what is claimed of it: its panels of the sweep, and a row for each single run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report.panels.sweep import MEDIANS, SHARES
from ...report.render_paper import legend_above, name_statistic
from ...report.style import STYLE, Drawing
from ...results import Results
from ...results.runs import read_runs
from ...theory import Claim
from .edge_claims import noisy_claims, single_run_claims
from .learning_claims import divergence_claims, flow_claims, jump_claims, learning_claims
from .panels import (
    draw_critical_rates,
    draw_divergence_probability,
    draw_generalization,
    draw_over_edge,
    draw_sharpness,
    draw_single_run,
    draw_squared_distance,
)
from .sharpness_claims import generalization_claims, sharpness_claims


@dataclass(frozen=True)
class Content:
    """The `panels` of a figure, each a function that draws a sweep, and the functions that make its claims of a sweep.

    With `single_runs` the trajectories, where there are some, give a row of two more panels for each of their learning
    rates, and claims; `about_flow` tells whether it is claimed that the flow reaches its limits. With `bounds` the
    legend names the bounds, and it calls the dashed lines `edge`, where there are some. `statistic` stands below the
    panels: curves are medians over the runs that did not diverge with their quartiles, as in the table, where the paper
    has means with bootstrapped confidence intervals; the probability of divergence has Wilson's interval.
    """

    panels: Sequence[Callable[[Axes, xarray.Dataset], None]]
    claimed: Sequence[Callable[[xarray.Dataset], Sequence[Claim]]]
    single_runs: bool = False
    about_flow: bool = True
    bounds: bool = False
    edge: str = ""
    statistic: str = MEDIANS

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
        descents = () if shown is None else tuple(run for run in shown.others if run.run.is_descent)
        count = len(self.panels) + 2 * len(descents)
        with matplotlib.rc_context(STYLE):
            columns, rows = min(count, 2), (count + 1) // 2
            figure = Drawing(figsize=(3.3 * columns, 2.25 * rows + 0.35), layout="constrained")  # 0.35 for the legend
            axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
            for draw, ax in zip(self.panels, axes, strict=False):
                draw(ax, sweep)
            if shown is not None:
                for row, descent in enumerate(descents, start=1):
                    draw_single_run(axes[2 * row], axes[2 * row + 1], sweep, shown.flow, descent)
            if count > 1:
                _letter(axes, len(self.panels))
            name_statistic(figure, self.statistic)
            legend_above(figure, edge=self.edge, bounds=self.bounds)
        return figure


def _letter(axes: list[Axes], panels: int) -> None:
    """Write the paper's letter of each panel at its top left, c1 and c2 where the paper has a row in one."""
    for index, ax in enumerate(axes):
        row, column = divmod(index - panels, 2)
        letter = chr(ord("a") + index) if index < panels else f"{chr(ord('a') + panels + row)}{column + 1}"
        ax.set_title(f"({letter})", loc="left", fontsize=8)


_EDGE = r"$2/\eta$"
_OVER_SCALES = Content(
    [draw_squared_distance, draw_sharpness],
    [learning_claims, sharpness_claims],
    single_runs=True,
    bounds=True,
    edge=_EDGE,
)
_DIVERGENCE = Content([draw_divergence_probability], [divergence_claims], about_flow=False, statistic=SHARES)
CONTENTS = {
    "figure1": _OVER_SCALES,
    "figure2": Content([draw_critical_rates], [jump_claims], edge="$1/(La)$"),
    "figure3": _DIVERGENCE,
    "figure4": _OVER_SCALES,
    "figure5": _DIVERGENCE,
    "figure6": Content(
        [draw_sharpness, draw_generalization], [generalization_claims, sharpness_claims], bounds=True, edge=_EDGE
    ),
    "figure7": Content([draw_sharpness], [sharpness_claims], bounds=True, edge=_EDGE),
    "appendix_c": Content([draw_over_edge], [noisy_claims], about_flow=False, statistic="medians; points: runs"),
}
"""By the name of the figure."""
