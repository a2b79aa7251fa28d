"""The schema of columns of runs: their names, attributes and codes."""

import enum
import json
from typing import Any

import numpy as np

from ..dynamics import Outcome
from ..probes import Label

RUN, RECORD = "run", "record"
DYNAMICS, LEARNING_RATE = "dynamics", "learning_rate"
THRESHOLD, CURVATURE, MODELLED, BRANCH = "stability_threshold", "threshold_of", "models", "branch"
SHARPNESS = "sharpness"

MEASURES = ("risk", "excess_risk", "squared_distance", "gradient_norm", "sharpness")
"""What is known of every network at every record, start and end."""
BOUNDS, CRITICAL = ("sharpness_lower_bound", "sharpness_upper_bound"), "critical_learning_rate"
"""What theory says of the minimum, among the attributes."""
NOT_ASKED, FAILED = -1, -2
"""In place of the outcome of a run: it was not requested, or could not be computed."""


class CriticalStatus(enum.IntEnum):
    """How the search for a critical learning rate ended.

    Either the rate is DETERMINED, or no rate is known for what descent does at the last rate tried, its state after
    the last step.
    """

    DETERMINED = 0
    STILL_FALLING = 1
    AT_REST = 2
    UNSTABLE = 3
    REACHED = 4

    @property
    def meaning(self) -> str:
        """One sentence: what happened and, where there is one, the remedy."""
        return _MEANINGS[self]


_MEANINGS = {
    CriticalStatus.DETERMINED: "the largest learning rate that reaches the minimum is known to the precision",
    CriticalStatus.STILL_FALLING: "at every stable learning rate the risk is still falling after the last step: "
    "write a larger sweep.critical.steps",
    CriticalStatus.AT_REST: "at every stable learning rate the gradient vanishes at an excess risk above "
    "sweep.critical.excess_risk, such as near a saddle: start from a larger scale, or write more steps or a "
    "larger excess_risk",
    CriticalStatus.UNSTABLE: "descent diverges or oscillates at every learning rate tried: write a smaller "
    "sweep.critical.lowest",
    CriticalStatus.REACHED: "descent reaches the minimum at every learning rate tried: write a larger "
    "sweep.critical.highest, or a smaller excess_risk",
}

# Nothing here has a unit but 1: data and weights are pure numbers, and so is the time that the flow takes.
_LONG_NAMES = {
    "time": "time t, for gradient descent η·k after k steps",
    "risk": "risk R(W)",
    "excess_risk": "excess risk R(W) − R_min",
    "squared_distance": "squared distance of the regressor to the optimum, ‖π − w*‖²",
    "gradient_norm": "norm of the gradient over all weights, ‖∇R(W)‖",
    "sharpness": "sharpness, the largest eigenvalue of the Hessian of the risk",
    "test_risk": "risk on samples that training does not see",
    "distance": "distance of the weights to those of gradient flow at equal time, ‖W − W_GF‖",
    "records": "number of records along the path; what follows them is padding",
    "outcome": "how the run ended",
    "steps": "number of steps made",
    "steps_asked": "number of steps asked for, −1 for a run to its limit, and for a model of descent",
    "rejected_steps": "number of steps that the step control rejected",
    "end_time": "time at the end of the run, for gradient descent η·k after k steps",
    "distance_to_flow": "distance of the weights at the end to those at the end of gradient flow",
    "distance_at_common_time": "distance of the weights to those of gradient flow, at the last time that both reached",
    "distance_time": "last time that both the run and gradient flow reached, at which their distance is taken",
    "crossing_time": "time at which the sharpness first reaches 2/η, NaN if it never does",
    "held_within": "part of 2/η within which a model of descent holds the sharpness there, NaN where it does not",
    "solver": "name of the solver",
    "gradients": "number of evaluations of the gradient, NaN where it was not counted",
    "products": "number of Hessian-vector products, or rows of the Jacobian of the outputs",
    "loosened": "largest factor by which the tolerance was loosened, as the gradient jumps",
    "order": "order to which the risk is flat at the end of the run, 2 unless that is a degenerate point",
    "minimal_risk": "least risk of all linear regressors",
    "largest_eigenvalue": "largest eigenvalue of the empirical covariance, Λ",
    "smallest_eigenvalue": "smallest eigenvalue of the empirical covariance, λ",
    "covariance_nullity": "dimension of the null space of the covariance, 0 if one regressor alone is optimal",
    "optimum_norm": "norm of the optimal regressor, ‖w*‖",
    "sharpness_lower_bound": "lower bound on the least sharpness of all minimizers (Theorem 2)",
    "sharpness_upper_bound": "upper bound on the least sharpness of all minimizers (Theorem 2)",
    "critical_learning_rate_lower": "largest learning rate known to reach the minimum, from this initialization",
    "critical_learning_rate_upper": "smallest learning rate above it known to miss the minimum",
    "critical_status": "how the search for the critical learning rate ended",
}
_CODES: dict[str, type[enum.IntEnum]] = {"outcome": Outcome, "critical_status": CriticalStatus}
_PLACES = {"initial_": "at initialization", "final_": "at the end of the run"}


def attributes(name: str, label: Label | None = None) -> dict[str, Any]:
    """Return `long_name` and `units` of the variable `name`, which may begin with initial_ or final_.

    A probe's come from its `label`, with the symbol that figures use, and whether their axis is to be logarithmic.
    """
    prefix = next((prefix for prefix in _PLACES if name.startswith(prefix)), "")
    place = f", {_PLACES[prefix]}" if prefix else ""
    if label is not None:
        attrs = {"long_name": label.meaning + place, "units": label.unit, "symbol": label.symbol}
        rows = {"rows": json.dumps(label.rows)} if label.rows else {}
        return attrs | {"logarithmic": int(label.logarithmic), "drawn": label.drawn} | rows
    base = name.removeprefix(prefix)
    attrs = {"long_name": _LONG_NAMES.get(base, base.replace("_", " ")) + place, "units": "1"}
    if name in _CODES:
        # As the CF conventions want codes and their names.
        names = {FAILED: "FAILED", NOT_ASKED: "NOT_ASKED"} | {int(code): code.name for code in sorted(_CODES[name])}
        attrs |= {"flag_values": np.array(list(names), np.int64), "flag_meanings": " ".join(names.values())}
    return attrs
