"""The trajectories of a comparison as labelled arrays."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..comparison import Comparison
from ..dynamics import Trajectory

if TYPE_CHECKING:
    import xarray

# Nothing here has a unit but 1: data and weights are pure numbers, and so is the time that the flow takes.
_LONG_NAMES = {
    "time": "time t, for gradient descent η·k after k steps",
    "risk": "risk R(W)",
    "excess_risk": "excess risk R(W) − R_min",
    "squared_distance": "squared distance of the regressor to the optimum, ‖π − w*‖²",
    "gradient_norm": "norm of the gradient over all weights, ‖∇R(W)‖",
    "sharpness": "sharpness, the largest eigenvalue of the Hessian of the risk",
    "distance": "distance of the weights to those of gradient flow at equal time, ‖W_GD − W_GF‖",
}


def dataset(comparison: Comparison, attrs: Mapping[str, Any] | None = None) -> "xarray.Dataset":
    """Return all trajectories: `flow_*` over `flow_record`, `descent_*` over (`learning_rate`, `record`).

    Descents are padded with NaN to the longest of them; without descents there are no `descent_*`. `attrs` become
    attributes of the data set, beside the bounds of Theorem 2 and the critical learning rate where they apply.
    """
    import xarray

    variables = {
        f"flow_{name}": ("flow_record", values, _attributes(name))
        for name, values in _quantities(comparison.flow).items()
    }
    coordinates = {}
    if comparison.descents:
        variables |= _descent_variables(comparison)
        rates = np.array([descent.learning_rate for descent in comparison.descents])
        coordinates["learning_rate"] = ("learning_rate", rates, {"units": "1", "long_name": "learning rate η"})
    return xarray.Dataset(variables, coordinates, {**_theory(comparison), **(attrs or {})})


def _descent_variables(comparison: Comparison) -> dict[str, tuple]:
    runs = [{**_quantities(d.trajectory), "distance": np.asarray(d.distance)} for d in comparison.descents]
    return {
        f"descent_{name}": (("learning_rate", "record"), _padded([run[name] for run in runs]), _attributes(name))
        for name in _LONG_NAMES
    }


def _quantities(run: Trajectory) -> dict[str, np.ndarray]:
    along: dict[str, ArrayLike | None] = {
        "time": run.times,
        "risk": run.risk,
        "excess_risk": run.excess_risk,
        "squared_distance": run.squared_distance,
        "gradient_norm": run.gradient_norm,
        "sharpness": run.sharpness,
    }
    return {name: np.asarray(values) for name, values in along.items() if values is not None}


def _padded(lines: Sequence[np.ndarray]) -> Float[np.ndarray, "learning_rate record"]:
    padded = np.full((len(lines), max(map(len, lines))), np.nan, lines[0].dtype)
    for row, line in zip(padded, lines, strict=True):
        row[: len(line)] = line
    return padded


def _attributes(name: str) -> dict[str, str]:
    return {"units": "1", "long_name": _LONG_NAMES[name]}


def _theory(comparison: Comparison) -> dict[str, float]:
    known = {}
    if comparison.bounds is not None:
        known["sharpness_lower_bound"], known["sharpness_upper_bound"] = map(float, comparison.bounds)
    if comparison.critical_learning_rate is not None:
        known["critical_learning_rate"] = float(comparison.critical_learning_rate)
    return known
