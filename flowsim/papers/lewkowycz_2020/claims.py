"""What the phase diagram is said to show, each with the numbers measured."""

import numpy as np

from ...theory import Claim, unmeasured
from .measures import Descents, Single

LAZY_ENDS, DIVERGENT_BEGINS = 2.0, 4.0
# The phases are those of infinite width: S(0) is λ + √(λ² + 12f²/n), and in the lazy phase S falls by some 1/√n.
_KEPT, _ABOUT = 0.9, 0.05
# Rounding grows as the risk does, to 10⁶ times what it was; and a run ends with some f left, of which λ depends on f².
_EXACT = 1e-6


def phase_claims(descents: Descents) -> list[Claim]:
    """Return the claims about all descents of a sweep over the width."""
    return [_recursion(descents), _lazy(descents), _catapult(descents), _divergent(descents)]


def _recursion(descents: Descents) -> Claim:
    """Compare λ at the ends, which is S/2 there, with that of the recursion."""
    text = "descent ends where the exact recursion from the same start does"
    expected = f"λ within {_EXACT:g} of it in every run that came to rest, and the same runs diverge"
    resting = descents.those(descents.settled & ~descents.exact.diverged)
    other = int((descents.diverged != descents.exact.diverged).sum())
    if not len(resting.kept):
        return unmeasured(text, expected, "no run came to rest")
    apart = float(np.abs(resting.ends / resting.exact.kernel - 1).max())
    measured = f"at most {apart:.2g} apart in {len(resting.kept)} runs; {other} differ in whether they diverge"
    numbers = {"apart": apart, "resting": len(resting.kept), "other_outcome": other}
    return Claim(text, expected, measured, apart <= _EXACT and other == 0, numbers)


def _lazy(descents: Descents) -> Claim:
    width = descents.width.max()
    text = f"lazy, ηS(0) < {LAZY_ENDS:g}: the sharpness stays as it was, at n = {width:g}"
    expected = f"S/S(0) at least {_KEPT:g}"
    lazy = descents.those((descents.product < LAZY_ENDS) & (descents.width == width))
    if not len(lazy.kept):
        return unmeasured(text, expected, "no such learning rate")
    least = float(np.nan_to_num(lazy.kept).min())
    measured = f"least {least:.3g} in {len(lazy.kept)} runs"
    return Claim(text, expected, measured, least >= _KEPT, {"least": least}, of_absence=True)


def _catapult(descents: Descents) -> Claim:
    text = f"catapult, {LAZY_ENDS:g} < ηS(0) < {DIVERGENT_BEGINS:g}: descent ends flatter, below its own 2/η"
    expected = "S/S(0) below one, and ηS/2 below one, in every run"
    # Where ηS(0) is within 1/n of a boundary, that of infinite width is not that of the run.
    low, high = LAZY_ENDS * (1 + _ABOUT), DIVERGENT_BEGINS * (1 - _ABOUT)
    inside = descents.those((descents.product > low) & (descents.product < high))
    if not len(inside.kept):
        return unmeasured(text, expected, "no such learning rate")
    kept = np.where(inside.diverged, np.inf, inside.kept)
    largest, edge = float(kept.max()), float((kept * inside.product / 2).max())
    measured = f"S/S(0) at most {largest:.3g}, median {np.median(kept):.3g}; ηS/2 at most {edge:.3g}"
    numbers = {"largest": largest, "median": float(np.median(kept)), "largest_over_threshold": edge}
    return Claim(text, expected, measured, largest < 1 and edge < 1, numbers)


def _divergent(descents: Descents) -> Claim:
    """Say between which ηS(0) runs begin to diverge; for 2ηλ in its place, the boundary 4 is exact."""
    text = f"divergent: runs diverge beyond ηS(0) = {DIVERGENT_BEGINS:g}, and none before"
    expected = f"the boundary within {_ABOUT:.0%} of {DIVERGENT_BEGINS:g}, and for 2ηλ(0) at {DIVERGENT_BEGINS:g}"
    lost = descents.diverged
    if lost.all() or not lost.any():
        return unmeasured(text, expected, "the learning rates do not reach across the boundary")
    last, first = float(descents.product[~lost].max()), float(descents.product[lost].min())
    kernel = descents.start.product
    exact = (kernel[~lost].max() <= DIVERGENT_BEGINS) & (kernel[lost].min() >= DIVERGENT_BEGINS)
    near = max(last / DIVERGENT_BEGINS - 1, 1 - first / DIVERGENT_BEGINS) <= _ABOUT
    measured = (
        f"largest ηS(0) that stays {last:.4g}, least that diverges {first:.4g}; 2ηλ(0): {kernel[~lost].max():.4g} and "
        f"{kernel[lost].min():.4g}"
    )
    numbers = {
        "last_bounded": last,
        "first_divergent": first,
        "last_bounded_kernel": float(kernel[~lost].max()),
        "first_divergent_kernel": float(kernel[lost].min()),
    }
    return Claim(text, expected, measured, bool(near and exact), numbers)


def peak_claim(single: Single) -> Claim:
    """Return the claim about the risk on the way: it rises in the catapult phase alone."""
    text = "the risk rises on the way in the catapult phase, and not in the lazy one"
    expected = "largest R/R(0): one below ηS(0) = 2, more above"
    lazy, beyond = single.product < LAZY_ENDS, (single.product > LAZY_ENDS) & ~np.isnan(single.kept)
    if not (lazy.any() and beyond.any()):
        return unmeasured(text, expected, "no such learning rates")
    below, above = float(single.peak[lazy].max()), float(single.peak[beyond].min())
    measured = f"lazy at most {below:.3g}; catapult {above:.3g} to {single.peak[beyond].max():.3g}"
    return Claim(text, expected, measured, below <= 1 < above, {"lazy": below, "catapult_least": above})
