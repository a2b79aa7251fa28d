"""A certified eigenvalue in a few words, whatever its leaves are: numbers, batches, tracers, or no arrays at all."""

from typing import Any

import numpy as np
from jax.core import Tracer

Rows = dict[str, tuple[Any, Any, Any]]
"""Eigenvalues by name: each with its residual, and whether it converged."""


def table_text(rows: Rows, products: Any) -> str:
    """Return the table of eigenvalues for the terminal."""
    from ..formatting import printed  # not above, as in the next function: rich takes a moment to import
    from .eigenvalues_table import eigenvalues_table

    return printed(eigenvalues_table(rows, products))


def table_html(rows: Rows, products: Any) -> str:
    """Return the table of eigenvalues for a notebook."""
    from ..formatting import table_as_html
    from .eigenvalues_table import eigenvalues_table

    return table_as_html(eigenvalues_table(rows, products))


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
