"""The risk, and how far above its minimum it is."""

import equinox as eqx
from jaxtyping import Array, Float

from .probe import PROBES, Label, Moment, Probe


@PROBES.register("risk")
class Risk(Probe):
    """The risk R(W)."""

    label: Label = eqx.field(static=True, default=Label("risk", "risk R(W)", r"risk $R$"))

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return R(W)."""
        return moment.problem(moment.network)


@PROBES.register("excess_risk")
class ExcessRisk(Probe):
    """The excess risk R(W) − R_min, NaN where the minimum is not known."""

    label: Label = eqx.field(
        static=True,
        default=Label("excess_risk", "excess risk R(W) − R_min", r"excess risk $R - R_\mathrm{min}$"),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return R(W) − R_min."""
        return moment.problem.excess_risk(moment.network)
