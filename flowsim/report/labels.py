"""What the axes of quantities are called in Matplotlib's mathematics."""

from collections.abc import Mapping
from typing import Any

LABELS = {
    "squared_distance": r"squared distance $\Vert \pi - w^\star \Vert^2$",
    "excess_risk": r"excess risk $R - R_\mathrm{min}$",
    "risk": r"risk $R$",
    "sharpness": r"sharpness $S$",
    "gradient_norm": r"gradient norm $\Vert \nabla R \Vert$",
}


def label_of(name: str, attributes: Mapping[Any, Any]) -> str:
    """Return what the axis of the variable `name` is called: a probe brings its symbol along."""
    return LABELS.get(name) or str(attributes.get("symbol", name.removeprefix("final_").replace("_", " ")))
