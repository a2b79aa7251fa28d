"""A certified eigenvalue in a few words, whatever its leaves are: numbers, batches, tracers, or no arrays at all."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.core import Tracer

if TYPE_CHECKING:
    from rich.table import Table

Rows = dict[str, tuple[Any, Any, Any]]
"""Eigenvalues by name: each with its residual, and whether it converged."""


@dataclass(frozen=True)
class _EigenvaluesView:
    rows: Rows | None
    products: Any

    def tables(self) -> "list[Table] | None":
        from .eigenvalues_table import eigenvalues_table  # not above: rich takes a moment to import

        return None if self.rows is None else [eigenvalues_table(self.rows, self.products)]


def view_of_rows(found: Any) -> _EigenvaluesView:
    """Return the view of certified eigenvalues that have `_rows` and `products`: their table."""
    return _EigenvaluesView(found._rows(), found.products)


def certified(value: Any, residual: Any, converged: Any) -> str:
    """Return "4.512 ± 2e-11", with a word where the residual is too large; of what is no number, its shape."""
    number, error, sure = _scalar(value), _scalar(residual), _scalar(converged)
    if number is None or error is None or sure is None:
        return shape_of(value)
    return f"{number:.6g} ± {error:.1g}{'' if sure else ', not converged'}"


def after(products: Any) -> str:
    """Return ", 24 products", nothing where that is no number."""
    return "" if is_no_number(products) else f", {scalar_of(products)} products"


def is_no_number(leaf: Any) -> bool:
    """Tell whether a leaf is anything but one number: a batch, traced, or gone."""
    return _scalar(leaf) is None


def scalar_of(leaf: Any, form: str = ".6g") -> str:
    """Return a number, or the shape of what is none."""
    number = _scalar(leaf)
    return shape_of(leaf) if number is None else f"{number:{form}}"


def shape_of(leaf: Any) -> str:
    """Return type and shape as JAX writes them, float64[3,2], or the type of what has none."""
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return type(leaf).__name__
    return f"{getattr(leaf, 'dtype', 'no numbers')}[{','.join(map(str, shape))}]"


def numbers_of(leaf: Any) -> np.ndarray | None:
    """Return an array on the host, `None` for what holds no numbers (any more)."""
    if leaf is None or isinstance(leaf, Tracer):
        return None
    try:
        found = np.asarray(leaf)
    except Exception:  # an array that was donated, or lies on another host
        return None
    return found if found.dtype.kind in "biuf" else None


def _scalar(leaf: Any) -> float | None:
    found = numbers_of(leaf)
    return None if found is None or found.ndim else float(found)
