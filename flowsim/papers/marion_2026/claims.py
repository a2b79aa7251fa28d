"""What descents at the edge of stability and their models are said to do, each with the numbers measured."""

import numpy as np

from ...theory import Claim, listed, unmeasured
from .measures import Followed, Model

_EDGE = (0.9, 1.1)
_PERIOD = (0.9, 1.1)
_SMOOTH = 0.1
_CLOSER, _AMPLITUDE = 10.0, 0.1


def edge_claims(descents: list[Followed]) -> list[Claim]:
    """Return the claims about descents, those that come to the edge and those that do not, and about their models."""
    at_edge = [one for one in descents if one.reaches_edge]
    below = [one for one in descents if not one.reaches_edge]
    return [
        _both(below, at_edge),
        _stays(at_edge),
        _alternates(below, at_edge),
        *(
            claim
            for name in dict.fromkeys(model.name for one in descents for model in one.models)
            for claim in (_closer(name, at_edge), _amplitude(name, at_edge))
        ),
    ]


def _both(below: list[Followed], at_edge: list[Followed]) -> Claim:
    text = "a small learning rate stays below the edge, and larger ones come to it"
    expected = "largest S·η/2 at a centre: below 1 for the smallest η, 1 or more for the others"
    largest = {one.name: float(np.nanmax(one.over_threshold)) for one in (*below, *at_edge)}
    ordered = max((one.learning_rate for one in below), default=np.inf) < min(
        (one.learning_rate for one in at_edge), default=-np.inf
    )
    return Claim(text, expected, listed(largest), bool(ordered), largest)


def _stays(at_edge: list[Followed]) -> Claim:
    low, high = _EDGE
    text = "a descent that comes to the edge stays there"
    expected = f"S·η/2 at every centre of the last third of the time: {low} to {high}"
    if not at_edge:
        return unmeasured(text, expected, "none comes to it")
    ranges = {one.name: (one.over_threshold[one.late].min(), one.over_threshold[one.late].max()) for one in at_edge}
    measured = ", ".join(f"{name}: {least:.4g} to {most:.4g}" for name, (least, most) in ranges.items())
    numbers = {f"{name}, least": float(least) for name, (least, _) in ranges.items()}
    numbers |= {f"{name}, most": float(most) for name, (_, most) in ranges.items()}
    return Claim(text, expected, measured, all(low <= a and b <= high for a, b in ranges.values()), numbers)


def _alternates(below: list[Followed], at_edge: list[Followed]) -> Claim:
    low, high = _PERIOD
    text = "at the edge descent is of period two, and below it glides"
    expected = (
        f"|2W_k − W_k₋₁ − W_k₊₁|/2 over the length of a step, median of the last third: {low} to {high} at the edge, "
        f"at most {_SMOOTH} below"
    )
    if not at_edge:
        return unmeasured(text, expected, "none comes to the edge")
    medians = {one.name: float(np.median(one.period_two[one.late])) for one in (*below, *at_edge)}
    holds = all(low <= medians[one.name] <= high for one in at_edge)
    holds &= all(medians[one.name] <= _SMOOTH for one in below)
    return Claim(text, expected, listed(medians), holds, medians)


def _closer(model: str, at_edge: list[Followed]) -> Claim:
    text = f"the {model} flow stays with descent at the edge, where the gradient flow leaves it"
    expected = f"distance of the gradient flow from the centre over that of the model, at the end: {_CLOSER:g} or more"
    factors = {one.name: _last_factor(one, found) for one, found in _with(model, at_edge)}
    if not factors:
        return unmeasured(text, expected, "no descent at the edge has one")
    return Claim(text, expected, listed(factors), min(factors.values()) >= _CLOSER, factors)


def _last_factor(one: Followed, model: Model) -> float:
    """Return how much closer the model is at the last centre that both have, 0 where it has none in the last third."""
    known = np.isfinite(one.flow_distance) & np.isfinite(model.distance) & one.late
    if not known.any():
        return 0.0
    last = np.flatnonzero(known)[-1]
    return float(one.flow_distance[last] / model.distance[last])


def _amplitude(model: str, at_edge: list[Followed]) -> Claim:
    text = f"the {model} flow predicts the amplitude of the oscillation"
    expected = f"predicted over measured, median of the last third: within {_AMPLITUDE:.0%} of 1"
    ratios = {
        one.name: float(np.nanmedian(found.amplitude[one.late] / one.amplitude[one.late]))
        for one, found in _with(model, at_edge)
        if np.isfinite(found.amplitude[one.late]).any()
    }
    if not ratios:
        return unmeasured(text, expected, "no descent at the edge has one")
    return Claim(text, expected, listed(ratios, ".4g"), max(abs(r - 1) for r in ratios.values()) <= _AMPLITUDE, ratios)


def _with(model: str, at_edge: list[Followed]) -> list[tuple[Followed, Model]]:
    return [(one, found) for one in at_edge for found in one.models if found.name == model]
