"""The critical learning rates of a sweep that looked for them."""

import xarray

from .runs import REPETITION


def critical_rates(dataset: xarray.Dataset) -> xarray.DataArray:
    """Return the geometric middle of the brackets of the critical learning rate, repetitions last."""
    product = dataset["critical_learning_rate_lower"] * dataset["critical_learning_rate_upper"]
    return (product**0.5).transpose(..., REPETITION)
