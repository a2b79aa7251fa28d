"""Arrays by name, with the names of their dimensions: what runs come to, and what tables are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import xarray

LabelledArrays: TypeAlias = "Columns | xarray.Dataset"
"""Columns, or the data set of xarray that holds the same: a table is made of either."""


class Column(NamedTuple):
    """An array, the names of its dimensions, and its attributes, such as `long_name` and `units`.

    xarray takes such a tuple for a variable.
    """

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns by name, coordinates along their dimensions, and attributes of the whole."""

    data: dict[str, Column]
    coords: dict[str, Column]
    attrs: dict[str, Any]

    @classmethod
    def of(cls, dataset: LabelledArrays) -> "Columns":
        """Return the columns of a data set of xarray, whose arrays they share; columns as they are."""
        if isinstance(dataset, Columns):
            return dataset
        data, coords = (
            {
                str(name): Column(tuple(map(str, array.dims)), array.values, dict(array.attrs))
                for name, array in arrays.items()
            }
            for arrays in (dataset.data_vars, dataset.coords)
        )
        return cls(data, coords, dict(dataset.attrs))

    def to_xarray(self) -> "xarray.Dataset":
        """Return the data set of xarray that holds the same."""
        import xarray

        return xarray.Dataset(self.data, self.coords, self.attrs)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the dimensions by name."""
        columns = (*self.data.values(), *self.coords.values())
        return {name: size for column in columns for name, size in zip(column.dims, column.values.shape, strict=True)}

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self.coords

    def __getitem__(self, name: str) -> Column:
        return self.data[name] if name in self.data else self.coords[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def part(self, dimension: str, place: int) -> "Columns":
        """Return what the columns hold at one place along a dimension, which is gone from them."""

        def at_place(column: Column) -> Column:
            if dimension not in column.dims:
                return column
            axis = column.dims.index(dimension)
            # With the ellipsis a single number stays an array.
            values = column.values[(*[slice(None)] * axis, place, ...)]
            return Column((*column.dims[:axis], *column.dims[axis + 1 :]), values, column.attrs)

        data, coords = (
            {name: at_place(column) for name, column in columns.items()} for columns in (self.data, self.coords)
        )
        return Columns(data, coords, self.attrs)
