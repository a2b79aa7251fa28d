"""What the figures and their claims measure on a sweep: which runs learned, which are shown, and the paper's lines."""

import numpy as np
import xarray

from ...report.sweeps import runs
from ...results.runs import Run

# The zero network is at squared distance 1 and excess risk a, the limit of the flow at 1e-16 or less in both.
LEARNED = 1e-2
# Panel b leaves out the learning rates from here on: near the critical one and beyond, they find no minimum.
_FIRST_RATE_LEFT_OUT = 0.09


def learned(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Tell of every run whether it learned: its squared distance, or else its excess risk, ended below 0.01.

    Where the minimum of the risk is unknown, every run counts that did not diverge.
    """
    measure = runs.progress_measure(dataset)
    values = runs.final(dataset, run, measure)
    return values.notnull() if measure == "risk" else values < LEARNED


def criterion(dataset: xarray.Dataset) -> str:
    """Return in symbols what a run must do to count as having learned."""
    symbols = {"squared_distance": f"‖π − w*‖² < {LEARNED:g}", "excess_risk": f"R − R_min < {LEARNED:g}"}
    return symbols.get(runs.progress_measure(dataset), "no divergence")


def critical_rate(dataset: xarray.Dataset) -> float:
    """Return 2 over the lower bound of Theorem 2, the least of the grid: 1/(La‖w*‖²) for large L."""
    return float(2 / dataset["sharpness_lower_bound"].max())


def drawn_rates(dataset: xarray.Dataset) -> tuple[Run, ...]:
    """Return the descents whose sharpness the paper shows: those with η < 0.09."""
    return tuple(m for m in runs.descents(dataset) if m.learning_rate and m.learning_rate < _FIRST_RATE_LEFT_OUT)


def upper_bound(dataset: xarray.Dataset) -> np.ndarray | None:
    """Return 8LΛ, the bound of Corollary 2 for ‖w*‖ = 1 on the limit of the flow from a small scale, or `None`.

    It is about perceptrons on data whose covariance has full rank.
    """
    content = runs.scenario(dataset)
    network, data = content.get("network", {}), content.get("data", {})
    if network.get("kind") != "mlp" or data.get("samples", 0) < data.get("features", 0):
        return None
    return 8 * network["depth"] * dataset["largest_eigenvalue"].values
