"""What the stored numbers are called, and what their codes mean: the attributes of every variable of a data set."""

from typing import Any

import numpy as np

from ..dynamics import Outcome
from ..probes import Label

MEASURES = ("risk", "excess_risk", "squared_distance", "gradient_norm", "sharpness")
"""What is known of every network at every record, start and end."""
NOT_ASKED = -1
"""The outcome of a run that was not asked for, or could not be computed."""

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
    "steps": "number of steps made",
    "steps_asked": "number of steps asked for, −1 for a run to its limit",
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
    "minimal_risk": "least risk of all linear regressors",
    "largest_eigenvalue": "largest eigenvalue of the empirical covariance, Λ",
    "smallest_eigenvalue": "smallest eigenvalue of the empirical covariance, λ",
    "optimum_norm": "norm of the optimal regressor, ‖w*‖",
    "sharpness_lower_bound": "lower bound on the least sharpness of all minimizers (Theorem 2)",
    "sharpness_upper_bound": "upper bound on the least sharpness of all minimizers (Theorem 2)",
    "critical_learning_rate_lower": "largest learning rate known to reach the minimum",
    "critical_learning_rate_upper": "smallest learning rate known to miss the minimum",
}
_PLACES = {"initial_": "at initialization", "final_": "at the end of the run"}


def attributes(name: str, label: Label | None = None) -> dict[str, Any]:
    """Return `long_name` and `units` of the variable `name`, which may begin with initial_ or final_.

    A probe's come from its `label`, with the symbol that figures use, and whether their axis is to be logarithmic.
    """
    if label is not None:
        place = next((f", {place}" for prefix, place in _PLACES.items() if name.startswith(prefix)), "")
        said = {"long_name": label.meaning + place, "units": label.unit, "symbol": label.symbol}
        return said | {"logarithmic": int(label.logarithmic)}
    if name == "outcome":
        return {"long_name": "how the run ended", "units": "1", **_outcome_flags()}
    for prefix, place in _PLACES.items():
        if name.startswith(prefix):
            return {"long_name": f"{_long_name(name.removeprefix(prefix))}, {place}", "units": "1"}
    return {"long_name": _long_name(name), "units": "1"}


def _long_name(name: str) -> str:
    return _LONG_NAMES.get(name, name.replace("_", " "))


def _outcome_flags() -> dict[str, Any]:
    """Return the codes of an outcome and their names, as the CF conventions want them."""
    names = {NOT_ASKED: "NOT_ASKED"} | {int(outcome): outcome.name for outcome in Outcome}
    return {"flag_values": np.array(list(names), np.int64), "flag_meanings": " ".join(names.values())}
