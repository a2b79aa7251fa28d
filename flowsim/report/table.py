"""The numbers of a comparison: as rows, as a table for the terminal, and as a summary for a file."""

import math
from typing import Any

from rich.table import Table

from ..comparison import Comparison, DescentBesideFlow
from ..dynamics import Outcome, Trajectory
from .terminal import empty_table

_WIDEST = 8


def rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the numbers of the printed table, the flow first.

    Each row holds `method` ("GF" or "GD"), `learning_rate`, `steps`, `time`, `risk`, `excess_risk`, `sharpness` (at
    the final weights), `ratio` (sharpness over the lower bound of Theorem 2), `two_over_eta`, `distance_to_flow` and
    `outcome` (its name). `None` is what does not apply, NaN what could not be computed.
    """
    flow = {
        "method": "GF",
        "learning_rate": None,
        **_end(comparison.flow, comparison.bounds),
        "two_over_eta": None,
        "distance_to_flow": None,
        "outcome": comparison.flow.outcome.name,
    }
    return [flow, *(_row(descent, comparison.bounds) for descent in comparison.descents)]


def _row(descent: DescentBesideFlow, bounds: tuple[float, float] | None) -> dict[str, Any]:
    return {
        "method": "GD",
        "learning_rate": descent.learning_rate,
        **_end(descent.trajectory, bounds),
        "two_over_eta": 2 / descent.learning_rate,
        "distance_to_flow": descent.distance_to_flow,
        "outcome": descent.trajectory.outcome.name,
    }


def _end(run: Trajectory, bounds: tuple[float, float] | None) -> dict[str, Any]:
    sharpness = _final_sharpness(run)
    return {
        "steps": int(run.steps),
        "time": float(run.time),
        "risk": float(run.risk[-1]),
        "excess_risk": float(run.excess_risk[-1]),
        "sharpness": sharpness,
        "ratio": sharpness / bounds[0] if bounds and bounds[0] > 0 else None,
    }


def _final_sharpness(run: Trajectory) -> float:
    try:
        return run.final_sharpness
    except RuntimeError:  # not certified
        return math.nan


def render(comparison: Comparison, title: str) -> Table:
    """Return the table for the terminal; in 80 columns only the verdict takes a second line."""
    table = empty_table(title, _remarks(comparison))
    limit = "to limit" if comparison.flow.converged else "to GF"
    table.add_column("", no_wrap=True)
    # Where the minimum of the risk is unknown, so is the excess: then the risk itself is shown.
    measure = "risk" if math.isnan(comparison.flow.excess_risk[0]) else "excess_risk"
    for header in (
        "η",
        "steps",
        "time",
        measure.replace("_", "\n"),
        "S",
        "S/\nlower\nbound",
        "2/η",
        f"distance\n{limit}",
    ):
        on_the_ground = "\n" * (2 - header.count("\n")) + header
        table.add_column(on_the_ground, justify="right", no_wrap=True)
    table.add_column("\n\nverdict", min_width=10)
    for row in rows(comparison):
        table.add_row(*_cells(row, measure))
    return table


def _cells(row: dict[str, Any], measure: str) -> list[str]:
    return [
        row["method"],
        format_number(row["learning_rate"], 4),
        str(row["steps"]),
        format_number(row["time"], 4),
        format_number(row[measure], 3),
        format_number(row["sharpness"], 4),
        format_number(row["ratio"], 3),
        format_number(row["two_over_eta"], 4),
        format_number(row["distance_to_flow"], 3),
        _verdict(row),
    ]


def format_number(value: float | None, digits: int) -> str:
    """Return `value` to so many significant digits in at most eight characters; a dash for `None` and NaN."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    shown = f"{value:.{digits}g}"
    if 1 <= abs(value) < 1e6:  # no exponent yet
        shown = f"{float(shown):.10g}"
    return shown if len(shown) <= _WIDEST else f"{value:.{digits - 1}g}"


def _verdict(row: dict[str, Any]) -> str:
    words = row["outcome"].lower().replace("_", " ")
    return f"{words} at step {row['steps']}" if row["outcome"] == Outcome.DIVERGED.name else words


def _remarks(comparison: Comparison) -> list[str]:
    """Return the lines under the table: how the flow was integrated, what Theorem 2 says, and why it ended early."""
    flow = comparison.flow
    gradients = "" if flow.gradients is None else f"{int(flow.gradients)} gradients, "
    remarks = [f"GF by {flow.method}: {gradients}{int(flow.products)} products"]
    if comparison.bounds is not None:
        lower, upper = comparison.bounds
        remarks.append(f"Theorem 2: {lower:.4g} ≤ S_min ≤ {upper:.4g}")
    if comparison.critical_learning_rate is not None:
        remarks[-1] += f"; critical learning rate {comparison.critical_learning_rate:.4g}"
    if not comparison.flow.converged:
        remarks.append(f"The flow did not converge: {comparison.flow.outcome.meaning}")
    return remarks


def summary(comparison: Comparison) -> dict[str, Any]:
    """Return the numbers of the comparison in the types of JSON; `None` for what is not finite or does not apply."""
    flow, bounds = comparison.flow, comparison.bounds
    return {
        "flow": {
            "outcome": flow.outcome.name,
            "meaning": flow.outcome.meaning,
            "time": finite_or_none(flow.time),
            "steps": int(flow.steps),
            "rejected_steps": int(flow.rejected_steps),
            "method": flow.method,
            "gradients": None if flow.gradients is None else int(flow.gradients),
            "products": int(flow.products),
            **_summary_of_end(flow),
        },
        "descent": [_summary_of_descent(descent) for descent in comparison.descents],
        "bounds": None if bounds is None else {"lower": finite_or_none(bounds[0]), "upper": finite_or_none(bounds[1])},
        "critical_learning_rate": finite_or_none(comparison.critical_learning_rate),
    }


def _summary_of_descent(descent: DescentBesideFlow) -> dict[str, Any]:
    run = descent.trajectory
    return {
        "learning_rate": finite_or_none(descent.learning_rate),
        "outcome": run.outcome.name,
        "steps": int(run.steps),
        "time": finite_or_none(run.time),
        **_summary_of_end(run),
        "distance_to_flow": finite_or_none(descent.distance_to_flow),
        "crossing_time": finite_or_none(descent.crossing_time),
        "two_over_eta": finite_or_none(2 / descent.learning_rate),
    }


def _summary_of_end(run: Trajectory) -> dict[str, float | None]:
    return {
        "risk": finite_or_none(run.risk[-1]),
        "excess_risk": finite_or_none(run.excess_risk[-1]),
        "squared_distance": finite_or_none(run.squared_distance[-1]),
        "gradient_norm": finite_or_none(run.gradient_norm[-1]),
        "sharpness": finite_or_none(_final_sharpness(run)),
    }


def finite_or_none(value: Any) -> float | None:
    """Return `value` as a float, `None` for what JSON has no number for."""
    return None if value is None or not math.isfinite(value) else float(value)
