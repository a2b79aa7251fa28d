"""Which runs of a sweep a number is about: its grid, its learning rates, and the runs that came to an end."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray

from ...dynamics import Outcome

REPETITION, LEARNING_RATE = "repetition", "learning_rate"
NOT_ASKED = -1
_LIMITS = (Outcome.CONVERGED, Outcome.RISK_REACHED, Outcome.FIXED_POINT)


@dataclass(frozen=True)
class Method:
    """Gradient descent with one learning rate, or for `None` the gradient flow; `index` is its place among `count`."""

    learning_rate: float | None
    index: int = 0
    count: int = 1

    @property
    def name(self) -> str:
        """What tables call it."""
        return "GF" if self.learning_rate is None else f"η = {self.learning_rate:.3g}"

    @property
    def threshold(self) -> float:
        """The sharpness 2/η at which descent leaves a minimum, infinite for the flow."""
        return np.inf if self.learning_rate is None else 2 / self.learning_rate


FLOW = Method(None)


def grid(dataset: xarray.Dataset) -> tuple[str, ...]:
    """Return the names of the dimensions that the sweep went over, in its order."""
    return tuple(str(name) for name in dataset["initial_risk"].dims if name != REPETITION)


def cells(dataset: xarray.Dataset, names: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], xarray.Dataset]]:
    """Yield every combination of the values of dimensions `names`, with the part of the data set that belongs to it."""
    sizes = [dataset.sizes[name] for name in names]
    for index in np.ndindex(*sizes):
        part = dataset.isel(dict(zip(names, index, strict=True)))
        yield {name: part[name].item() for name in names}, part


def descents(dataset: xarray.Dataset) -> tuple[Method, ...]:
    """Return gradient descent with every learning rate of the sweep, from the smallest to the largest."""
    rates = dataset[LEARNING_RATE].values if LEARNING_RATE in dataset.coords else []
    return tuple(Method(float(rate), index, len(rates)) for index, rate in enumerate(rates))


def flows(dataset: xarray.Dataset) -> tuple[Method, ...]:
    """Return the gradient flow, where the sweep has it."""
    return (FLOW,) if "flow_outcome" in dataset else ()


def methods(dataset: xarray.Dataset) -> tuple[Method, ...]:
    """Return the flow, where the sweep has it, and all descents."""
    return flows(dataset) + descents(dataset)


def outcomes(dataset: xarray.Dataset, method: Method) -> xarray.DataArray:
    """Return the outcome of every run by `method`, `NOT_ASKED` where there was none."""
    return _of(dataset, method, "outcome")


def asked(dataset: xarray.Dataset, method: Method) -> xarray.DataArray:
    """Tell of every run whether it was asked for and did not fail."""
    return outcomes(dataset, method) != NOT_ASKED


def diverged(dataset: xarray.Dataset, method: Method) -> xarray.DataArray:
    """Tell of every run whether it diverged."""
    return outcomes(dataset, method) == Outcome.DIVERGED


def arrived(dataset: xarray.Dataset, method: Method) -> xarray.DataArray:
    """Tell of every run whether it reached a limit: a small gradient, a small risk, or a step that changes nothing."""
    return outcomes(dataset, method).isin(_LIMITS)


def final(dataset: xarray.Dataset, method: Method, quantity: str) -> xarray.DataArray:
    """Return `quantity` at the end of every run by `method`: at the limit of the flow, after training for descent.

    It is NaN for runs that diverged or were not asked for, and for flows that did not reach their limit.
    """
    counted = arrived(dataset, method) if method.learning_rate is None else ~diverged(dataset, method)
    return _of(dataset, method, quantity).where(counted & asked(dataset, method))


def knows(dataset: xarray.Dataset, quantity: str) -> bool:
    """Tell whether `quantity` is a number at the start of any run."""
    return f"initial_{quantity}" in dataset and bool(np.isfinite(dataset[f"initial_{quantity}"]).any())


def progress_measure(dataset: xarray.Dataset) -> str:
    """Return what tells how far runs have come: the squared distance, else the excess risk, else the risk.

    With fewer samples than features, minimizers implement many regressors, and the distance to one of them says little.
    """
    data = scenario(dataset).get("data", {})
    many = data.get("samples", 1) < data.get("features", 1)
    measures = ("excess_risk",) if many else ("squared_distance", "excess_risk")
    known = (quantity for quantity in measures if knows(dataset, quantity))
    return next(known, "risk")


def scenario(dataset: xarray.Dataset) -> dict[str, Any]:
    """Return the scenario of the sweep as it stands in the attributes."""
    return json.loads(dataset.attrs.get("scenario", "{}"))


def _of(dataset: xarray.Dataset, method: Method, quantity: str) -> xarray.DataArray:
    if method.learning_rate is None:
        return dataset[f"flow_{quantity}"]
    return dataset[f"descent_{quantity}"].isel({LEARNING_RATE: method.index}, drop=True)
