"""Classification: the share of samples on the right side, and by how much the worst one is."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..networks import split
from ..networks.weights import norm
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("accuracy")
class Accuracy(Probe):
    """The share of samples whose prediction decides for the right class; NaN where the targets stand for none."""

    label = Label("accuracy", "share of samples whose prediction decides for the right class", "accuracy", "1", False)

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the share of samples of positive margin; a tie is no decision."""
        margins = moment.problem.margins(moment.network)
        return jnp.mean(jnp.where(jnp.isnan(margins), jnp.nan, (margins > 0).astype(margins.dtype)))


@PROBES.register("margin")
class Margin(Probe):
    """min_i y_i f(x_i) for labels ±1, and for classes min_i (f_y − max_{k≠y} f_k)(x_i); NaN where there are none."""

    label = Label("margin", "least margin of all samples", r"margin $\min_i m_i$", logarithmic=False)

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the least margin of all samples."""
        return jnp.min(moment.problem.margins(moment.network))


@PROBES.register("normalized_margin")
class NormalizedMargin(Probe):
    """The least margin over ‖W‖^L, for a network with f(cW) = c^L f(W), c > 0 (Lyu and Li 2020).

    Without `degree`, L is found by Euler's theorem, ⟨∇m, W⟩ = L m for the least margin m, and the value is NaN where
    that is no whole number, as for a network with a smooth activation: give such a one the degree to divide by.
    """

    degree: int | None = None
    """The degree L by which the network is homogeneous; null: found by Euler's theorem."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "normalized_margin",
            "least margin of all samples over the power of ‖W‖ with which it grows",
            r"normalized margin $\min_i m_i / \Vert W \Vert^L$",
            logarithmic=False,
        ),
    )
    """What it is called in tables and figures."""

    def __check_init__(self):
        if self.degree is not None and (isinstance(self.degree, str | bool) or jnp.ndim(self.degree)):
            raise ValueError(f"degree must be a number, or None to find it by itself, got {self.degree!r}")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the normalized margin, NaN at W = 0."""
        weights, rest = split(moment.network)

        def margin(moved: eqx.Module) -> Float[Array, ""]:
            return jnp.min(moment.problem.margins(eqx.combine(moved, rest)))

        if self.degree is not None:
            return margin(weights) / norm(weights) ** self.degree
        least, growth = jax.jvp(margin, (weights,), (weights,))
        degree = jnp.round(growth / least)
        # Homogeneous is a network for which that is a whole number, to three digits.
        homogeneous = jnp.abs(growth / least - degree) <= 1e-3
        return jnp.where(least == 0, 0, jnp.where(homogeneous, least / norm(weights) ** degree, jnp.nan))
