"""What quantities are called: headings, and the names of their axes in plain text and in Matplotlib's mathematics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xarray

from ...comparison.flow_limits import LIMIT
from ...results.recorded import Recorded


@dataclass(frozen=True)
class QuantityNames:
    """The heading of a panel, what it shows in a sentence, and the name of its axis, in plain text and mathematics."""

    heading: str
    description: str
    words: str
    label: str


LABELS = {
    "squared_distance": r"squared distance $\Vert \pi - w^\star \Vert^2$",
    "excess_risk": r"excess risk $R - R_\mathrm{min}$",
    "risk": r"risk $R$",
    "sharpness": r"sharpness $S$",
    "gradient_norm": r"gradient norm $\Vert \nabla R \Vert$",
}
HEADINGS = {
    "squared_distance": ("Squared distance to the optimum", "‖π − w*‖²"),
    "excess_risk": ("Excess risk", "R − R_min"),
    "risk": ("Risk", "R"),
    "sharpness": ("Sharpness", "sharpness S"),
    "distance": ("Distance from the gradient flow", "‖W − W_GF‖"),
    "gradient_norm": ("Gradient norm", "‖∇R‖"),
    LIMIT.name: ("Sharpness of the flow's limit from there", "sharpness of the limit"),
}
"""Heading and name in plain text of what every run may record, in the order of the page."""


def label_of(name: str, attributes: Mapping[Any, Any]) -> str:
    """Return what the axis of the variable `name` is called: a probe brings its symbol along."""
    return LABELS.get(name) or str(attributes.get("symbol", name.removeprefix("final_").replace("_", " ")))


def quantity_names(quantity: str, dataset: xarray.Dataset, shown: Recorded) -> QuantityNames:
    """Return what a quantity of a data set of trajectories is called."""
    words = quantity.replace("_", " ")
    attributes = dataset[quantity].attrs if quantity in dataset else {}
    heading, plain = HEADINGS.get(quantity, (words.capitalize(), words))
    label = label_of(quantity, attributes)
    if quantity == "distance":
        descents = all(other.run.is_descent for other in shown.others)
        theirs = r"W_\mathrm{GD}(t/\eta)" if descents else "W(t)"
        label = rf"$\Vert {theirs} - W_\mathrm{{GF}}(t) \Vert$"
    return QuantityNames(heading, str(attributes.get("long_name", words)), plain, label)
