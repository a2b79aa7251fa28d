"""Claims of Figures 1a, 4a, 2, 3 and 5: where gradient descent learns, and where it diverges."""

import numpy as np
import xarray

from ..sweeps import runs
from ..sweeps.runs import Method
from .claim import Claim, listed, unmeasured

# The zero network is at squared distance 1 and excess risk a, the limit of the flow at 1e-16 or less in both.
LEARNED = 1e-2
_WIDE = 0.5
_RATIO = (0.8, 1.25)


def learned(dataset: xarray.Dataset, method: Method) -> xarray.DataArray:
    """Tell of every run whether it learned: its squared distance, or else its excess risk, ended below 0.01.

    Where the minimum of the risk is unknown, every run counts that did not diverge.
    """
    measure = runs.progress_measure(dataset)
    values = runs.final(dataset, method, measure)
    return values.notnull() if measure == "risk" else values < LEARNED


def criterion(dataset: xarray.Dataset) -> str:
    """Return in symbols what a run must do to count as having learned."""
    symbols = {"squared_distance": f"‖π − w*‖² < {LEARNED:g}", "excess_risk": f"R − R_min < {LEARNED:g}"}
    return symbols.get(runs.progress_measure(dataset), "no divergence")


def critical_rate(dataset: xarray.Dataset) -> float:
    """Return 2 over the lower bound of Theorem 2, the least of the grid: 1/(La‖w*‖²) for large L."""
    return float(2 / dataset["sharpness_lower_bound"].max())


def learning_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of panel a: success over many scales below the critical learning rate, none above."""
    critical = critical_rate(dataset)
    shares = {method: _learned_share(dataset, method) for method in runs.descents(dataset)}
    below = {method.name: float((share > 0.5).mean()) for method, share in shares.items() if _below(method, critical)}
    above = {method.name: float(share.max()) for method, share in shares.items() if not _below(method, critical)}
    wide = f"‖π − w*‖² < {LEARNED:g} in most runs, at {_WIDE:.0%} of the scales or more"
    none = f"‖π − w*‖² < {LEARNED:g} in at most 10 % of the runs at every scale"
    texts = (
        f"below 1/(La) = {critical:.3g}, learning succeeds over a wide range of scales",
        f"above 1/(La) = {critical:.3g}, learning fails at every scale",
    )
    return [
        Claim(texts[0], wide, "share of scales: " + listed(below), min(below.values()) >= _WIDE, below)
        if below
        else unmeasured(texts[0], wide, "no such learning rate"),
        Claim(texts[1], none, "largest share of runs: " + listed(above), max(above.values()) <= 0.1, above)
        if above
        else unmeasured(texts[1], none, "no such learning rate"),
    ]


def _below(method: Method, critical: float) -> bool:
    return method.learning_rate is not None and method.learning_rate < critical


def _learned_share(dataset: xarray.Dataset, method: Method) -> xarray.DataArray:
    """Return the share of the runs asked for that learned; a run that diverged did not."""
    asked = runs.asked(dataset, method).sum(runs.REPETITION)
    return learned(dataset, method).sum(runs.REPETITION) / asked.where(asked > 0)


def flow_claim(dataset: xarray.Dataset) -> Claim:
    """Return how many of the flows reached their limit, and whether that is a minimizer of the risk."""
    known = runs.progress_measure(dataset) != "risk"
    text = f"the gradient flow reaches a {'global minimum' if known else 'limit'} from every initialization"
    expected = "all flows converge" + (f", with {criterion(dataset)}" if known else "")
    count, total = int(learned(dataset, runs.FLOW).sum()), int(runs.asked(dataset, runs.FLOW).sum())
    if total == 0:
        return unmeasured(text, expected, "no flows")
    return Claim(text, expected, f"{count} of {total}", count == total, {"reached": count, "flows": total})


def jump_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figure 2, one for each depth: training begins to fail at η = 1/(La)."""
    return [_jump_claim(dataset.isel(depth=index)) for index in range(dataset.sizes["depth"])]


def _jump_claim(part: xarray.Dataset) -> Claim:
    line = critical_rate(part)
    text = f"L = {part['depth'].item()}: the squared distance jumps at η = 1/(La) = {line:.3g}"
    expected = f"η where half of the runs fail (‖π − w*‖² ≥ {LEARNED:g}), over 1/(La): {_RATIO[0]} to {_RATIO[1]}"
    rates = part["learning_rate"].values
    shares = np.array([_learned_share(part, method).item() for method in runs.descents(part)])
    failing = np.flatnonzero(shares < 0.5)
    if len(failing) == 0 or failing[0] == 0:
        return unmeasured(text, expected, "the learning rates do not reach across the jump")
    jump = float(np.sqrt(rates[failing[0]] * rates[failing[0] - 1]))
    numbers = {"jump": jump, "one_over_La": line, "ratio": jump / line}
    measured = f"between {rates[failing[0] - 1]:.3g} and {rates[failing[0]]:.3g}: {jump / line:.3g}"
    return Claim(text, expected, measured, _RATIO[0] <= jump / line <= _RATIO[1], numbers)


def divergence_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figures 3 and 5: descent may diverge at large scales, more so with large steps."""
    shares = {method: _diverged_share(dataset, method) for method in runs.descents(dataset)}
    first = {method.name: float(share[0]) for method, share in shares.items()}
    last = {method.name: float(share[-1]) for method, share in shares.items()}
    mean = {method.name: float(share.mean()) for method, share in shares.items()}
    ordered = np.array(list(mean.values()))
    some = max(last.values(), default=0.0) > 0
    return [
        Claim("at the smallest scale no run diverges", "0 for every η", listed(first), max(first.values()) == 0, first),
        Claim("at large scales runs may diverge", "more than 0 at the largest scale", listed(last), some, last),
        Claim(
            "runs diverge more often the larger the learning rate",
            "the mean over scales does not fall with η",
            listed(mean),
            bool(np.all(np.diff(ordered) >= 0)),
            mean,
        ),
    ]


def _diverged_share(dataset: xarray.Dataset, method: Method) -> np.ndarray:
    asked = runs.asked(dataset, method).sum(runs.REPETITION)
    return (runs.diverged(dataset, method).sum(runs.REPETITION) / asked.where(asked > 0)).values
