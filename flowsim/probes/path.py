"""The path of the weights in few coordinates, to be drawn in a plane."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import inner_product, top_eigenpairs
from ..curvature.vectors import scattered_like
from ..networks import split
from ..networks.weights import weight_count
from .probe import OF_EIGENPAIR, PROBES, Label, Moment, Probe


@PROBES.register("path")
class Path(Probe):
    """W(t) − W(0) in at most `count` coordinates, and with `sharpest` the top eigenvector of the Hessian in the same.

    Of no more weights than that they are the weights themselves. Of more, they are inner products with as many random
    vectors, the same ones for all runs, scaled so that squared lengths are kept in the mean: to a part √(2/count) of
    them, one standard deviation (Johnson and Lindenstrauss 1984), and inner products of vectors to 1/√count of the
    product of their lengths. So a movement along the sharpest direction is seen there where it is larger than 6 % of
    the whole path, for the default. The axes of the figures name the projections. `report` draws the paths of all runs
    in the plane of their two principal components, and with `sharpest` in that of the sharpest direction where the
    first run ends and the first component across it. Each record takes `count` passes over the weights, and a search
    for an eigenvector.
    NaN where the start of a run is not known.
    """

    count: int = 256
    """In how many numbers the weights are recorded."""
    sharpest: bool = False
    """Whether the top eigenvector of the Hessian is recorded beside them."""
    start: PyTree = None
    """The network at which the run began."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "path",
            "path of the weights in few coordinates",
            "path",
            parts=(
                Label("path_weights", "coordinates of W(t) − W(0)", "", "1", False, drawn="nothing"),
                Label("path_sharpest", "those of the top eigenvector", "", "1", False, drawn="nothing"),
            ),
        ),
    )
    """What it is called in tables and figures."""

    def __check_init__(self):
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 2:
            raise ValueError(f"count is {self.count!r}: expected in how many numbers weights are recorded, 2 or more")

    def begin(self, network: PyTree) -> Self:
        """Return the probe of a run that begins at this network."""
        if self.start is not None:
            return self
        projected = f"of {self.count} random projections" if weight_count(network) > self.count else ""
        parts = tuple(replace(part, symbol=projected) for part in self.label.parts)
        return replace(self, start=split(network)[0], label=replace(self.label, parts=parts))

    def gradients(self, network: PyTree) -> float:
        """Return about those of a search, where the sharpest direction is recorded."""
        return OF_EIGENPAIR * self.sharpest + 1.0

    def measure(self, moment: Moment) -> dict[str, Float[Array, " coordinates"]]:
        """Return the coordinates."""
        weights = split(moment.network)[0]
        if self.start is None:
            here = jnp.full(min(self.count, weight_count(moment.network)), jnp.nan, moment.gradient_norm.dtype)
        else:
            here = self._coordinates(jax.tree.map(jnp.subtract, weights, self.start))
        if not self.sharpest:
            return {"weights": here}
        pairs = top_eigenpairs(moment.network, moment.problem, count=1, dense=False)
        sharpest = self._coordinates(pairs.pair(0).vector)
        return {"weights": here, "sharpest": jnp.where(pairs.converged[0], sharpest, jnp.nan)}

    def _coordinates(self, vector: PyTree) -> Float[Array, " coordinates"]:
        flat = ravel_pytree(vector)[0] if sum(leaf.size for leaf in jax.tree.leaves(vector)) <= self.count else None
        if flat is not None:
            return flat

        def along(number: Int[Array, ""]) -> Float[Array, ""]:
            return inner_product(scattered_like(vector, _FIRST_SEED + number), vector)

        # A number that is uniform between −1 and 1 has the variance 1/3.
        return jax.lax.map(along, jnp.arange(self.count)) * (3 / self.count) ** 0.5


_FIRST_SEED = 2**22
"""The first seed of the random vectors, beyond those of other uses."""
