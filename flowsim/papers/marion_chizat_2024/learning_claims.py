"""Claims of Figures 1a, 4a, 2, 3 and 5: where gradient descent learns, and where it diverges."""

import numpy as np
import xarray

from ...columns import Run
from ...report.sweeps import runs
from ...theory import Claim, listed, unmeasured
from .measures import LEARNED, criterion, critical_rate, has_learned


def learning_claims(dataset: xarray.Dataset, *, wide: float = 0.5, rare: float = 0.1) -> list[Claim]:
    """Return the claims of panel a: success over many scales below the critical learning rate, none above.

    Success at a scale is that most runs learn, and failure that at most a share `rare` does. "A wide range of scales",
    as the paper puts it, is read as a share `wide` of the grid, half of it.
    """
    critical = critical_rate(dataset)
    shares = {run: _learned_share(dataset, run) for run in runs.descents(dataset)}
    below = {run.name: float((share > 0.5).mean()) for run, share in shares.items() if _below(run, critical)}
    above = {run.name: float(share.max()) for run, share in shares.items() if not _below(run, critical)}
    succeeds = (
        f"below 1/(La) = {critical:.3g}, learning succeeds over a wide range of scales",
        f"‖π − w*‖² < {LEARNED:g} in most runs, at {wide:.0%} of the scales or more",
    )
    fails = (
        f"above 1/(La) = {critical:.3g}, learning fails at every scale",
        f"‖π − w*‖² < {LEARNED:g} in at most {100 * rare:g} % of the runs at every scale",
    )
    return [
        Claim(*succeeds, "share of scales: " + listed(below), min(below.values()) >= wide, below)
        if below
        else unmeasured(*succeeds, "no such learning rate"),
        Claim(*fails, "largest share of runs: " + listed(above), max(above.values()) <= rare, above, of_absence=True)
        if above
        else unmeasured(*fails, "no such learning rate"),
    ]


def _below(run: Run, critical: float) -> bool:
    return run.learning_rate is not None and run.learning_rate < critical


def _learned_share(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Return the share of the runs asked for that learned; a run that diverged did not."""
    asked = runs.asked(dataset, run).sum(runs.REPETITION)
    return has_learned(dataset, run).sum(runs.REPETITION) / asked.where(asked > 0)


def flow_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claim that all flows reach their limit, or the risk that ends them, and learn; none without flows."""
    return [_flow_claim(dataset)] if runs.flows(dataset) else []


def _flow_claim(dataset: xarray.Dataset) -> Claim:
    known = runs.progress_measure(dataset) != "risk"
    stopped, total = (int(of(dataset, runs.FLOW).sum()) for of in (runs.as_asked, runs.asked))
    reached = ("a global minimum" if known else "a limit") + (", or the risk asked for," if stopped else "")
    text = f"the gradient flow reaches {reached} from every initialization"
    expected = f"all flows converge{' or stop as asked' if stopped else ''}"
    expected += f", with {criterion(dataset)}" if known else ""
    if total == 0:
        return unmeasured(text, expected, "no flows")
    count = int(has_learned(dataset, runs.FLOW).sum())
    measured = f"{count} of {total}" + (f", {stopped} of them at the risk asked for" if stopped else "")
    return Claim(text, expected, measured, count == total, {"reached": count, "flows": total, "as_asked": stopped})


def jump_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figure 2, one for each depth: training begins to fail at η = 1/(La)."""
    return [_jump_claim(dataset.isel(depth=index)) for index in range(dataset.sizes["depth"])]


def _jump_claim(part: xarray.Dataset, *, least: float = 0.8, most: float = 1.25) -> Claim:
    """Return the claim about one depth; learning rates of the paper's grid are a factor of 1.18 apart."""
    line = critical_rate(part)
    text = f"L = {part['depth'].item()}: the squared distance jumps at η = 1/(La) = {line:.3g}"
    expected = f"η where half of the runs fail (‖π − w*‖² ≥ {LEARNED:g}), over 1/(La): {least} to {most}"
    rates = np.array([run.learning_rate for run in runs.descents(part)])
    shares = np.array([_learned_share(part, run).item() for run in runs.descents(part)])
    failing = np.flatnonzero(shares < 0.5)
    if len(failing) == 0 or failing[0] == 0:
        return unmeasured(text, expected, "the learning rates do not reach across the jump")
    jump = float(np.sqrt(rates[failing[0]] * rates[failing[0] - 1]))
    numbers = {"jump": jump, "one_over_La": line, "ratio": jump / line}
    measured = f"between {rates[failing[0] - 1]:.3g} and {rates[failing[0]]:.3g}: {jump / line:.3g}"
    return Claim(text, expected, measured, least <= jump / line <= most, numbers)


def divergence_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figures 3 and 5: descent may diverge at large scales, more so with large steps."""
    shares = {run: _diverged_share(dataset, run) for run in runs.descents(dataset)}
    first = {run.name: float(share[0]) for run, share in shares.items()}
    last = {run.name: float(share[-1]) for run, share in shares.items()}
    mean = {run.name: float(share.mean()) for run, share in shares.items()}
    ordered = np.array(list(mean.values()))
    some = max(last.values(), default=0.0) > 0
    return [
        Claim(
            "at the smallest scale no run diverges",
            "0 for every η",
            listed(first),
            max(first.values()) == 0,
            first,
            of_absence=True,
        ),
        Claim("at large scales runs may diverge", "more than 0 at the largest scale", listed(last), some, last),
        Claim(
            "runs diverge more often the larger the learning rate",
            "the mean over scales does not fall with η",
            listed(mean),
            bool(np.all(np.diff(ordered) >= 0)),
            mean,
        ),
    ]


def _diverged_share(dataset: xarray.Dataset, run: Run) -> np.ndarray:
    asked = runs.asked(dataset, run).sum(runs.REPETITION)
    return (runs.diverged(dataset, run).sum(runs.REPETITION) / asked.where(asked > 0)).values
