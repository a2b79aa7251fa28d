"""What the figures and their claims measure on a sweep: which runs learned, which are shown, and the paper's lines."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...columns import Run
from ...report.sweeps import runs

# The zero network is at squared distance 1 and excess risk a, the limit of the flow at 1e-16 or less in both.
LEARNED = 1e-2


def has_learned(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Return for each run whether it learned: its squared distance, or else its excess risk, ended below 0.01.

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
    """Return 2 over the lower bound of Theorem 2, the smallest of the grid: 1/(La‖w*‖²) for large L."""
    return float(2 / dataset["sharpness_lower_bound"].max())


def drawn_rates(dataset: xarray.Dataset) -> tuple[Run, ...]:
    """Return the descents whose sharpness the paper shows in panel b: those with η < 0.09.

    With the others, near the critical learning rate and beyond, training finds no minimum.
    """
    return tuple(run for run in runs.descents(dataset) if run.learning_rate and run.learning_rate < 0.09)


def upper_bound(dataset: xarray.Dataset) -> np.ndarray | None:
    """Return 8LΛ, the bound of Corollary 2 for ‖w*‖ = 1 on the limit of the flow from a small scale, or `None`.

    It is about perceptrons on data whose covariance has full rank.
    """
    network = runs.scenario(dataset).get("network", {})
    if network.get("kind") != "mlp" or not runs.has_unique_optimum(dataset):
        return None
    return 8 * network["depth"] * dataset["largest_eigenvalue"].values


def over_edge(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Return S·η/2 after training, over (scale, repetition), NaN for runs that diverged."""
    return runs.final(dataset, run, "sharpness") / run.threshold


@dataclass(frozen=True)
class Regression:
    """log₁₀ of the generalization gap regressed on log₁₀ of the sharpness, over `count` runs.

    `p_value` is that of the hypothesis that the slope is not positive. `left_out` counts runs without a positive gap,
    whose logarithm does not exist.
    """

    slope: float
    intercept: float
    r_squared: float
    p_value: float
    count: int
    left_out: int


Points = tuple[Float[np.ndarray, " runs"], Float[np.ndarray, " runs"]]


def gaps(dataset: xarray.Dataset, run: Run) -> Points:
    """Return the sharpness and the generalization gap, test risk − risk, at the end of every run of `run`."""
    names = ("sharpness", "test_risk", "risk")
    sharpness, test, train = (runs.final(dataset, run, name).values.ravel() for name in names)
    known = np.isfinite(sharpness) & np.isfinite(test - train)
    return sharpness[known], (test - train)[known]


def regress(points: Points) -> Regression | None:
    """Return the regression through `points`, or `None` where fewer than three, or one sharpness, are left."""
    sharpness, gap = points
    kept = (sharpness > 0) & (gap > 0)
    x, y = np.log10(sharpness[kept]), np.log10(gap[kept])
    if len(x) < 3 or np.ptp(x) == 0:
        return None
    from scipy.stats import linregress  # takes a moment to import, and is rarely needed

    slope, intercept, r, p, _ = map(float, linregress(x, y, alternative="greater"))
    return Regression(slope, intercept, r**2, p, len(x), int((~kept).sum()))


def regressed_run(dataset: xarray.Dataset) -> Run:
    """Return the descent that Figure 6b is about: that with the smallest learning rate, the paper's η = 0.001."""
    return runs.descents(dataset)[0]


def has_test_risk(dataset: xarray.Dataset) -> bool:
    """Return whether the sweep has flows whose risk was measured on held-out samples."""
    return bool(runs.flows(dataset)) and "final_test_risk" in dataset
