"""The risk, its excess and its gradient, and the distance of the regressor to the optimal one."""

from jaxtyping import Array, Float

from ..problems import RegularizedRisk
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("risk")
class Risk(Probe):
    """The risk R(W)."""

    label = Label("risk", "risk R(W)", r"risk $R$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return R(W)."""
        return moment.risk


@PROBES.register("unregularized_risk")
class UnregularizedRisk(Probe):
    """The risk R(W) without the weight decay of a `flowsim.RegularizedRisk`; of other problems, the risk."""

    label = Label("unregularized_risk", "risk R(W) without weight decay", r"risk $R$ without decay")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return R(W)."""
        problem = moment.problem
        while isinstance(problem, RegularizedRisk):
            problem = problem.problem
        return moment.risk if problem is moment.problem else problem(moment.network)


@PROBES.register("excess_risk")
class ExcessRisk(Probe):
    """The excess risk R(W) − R_min, NaN where the minimum is not known."""

    label = Label("excess_risk", "excess risk R(W) − R_min", r"excess risk $R - R_\mathrm{min}$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return R(W) − R_min."""
        return moment.excess_risk


@PROBES.register("gradient_norm")
class GradientNorm(Probe):
    """‖∇R(W)‖ over all weights together."""

    label = Label(
        "gradient_norm", "norm of the gradient over all weights, ‖∇R(W)‖", r"gradient norm $\Vert \nabla R \Vert$"
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return ‖∇R(W)‖, which the run knows."""
        return moment.gradient_norm


@PROBES.register("squared_distance")
class SquaredDistance(Probe):
    """‖π − w*‖², NaN without a regressor."""

    label = Label(
        "squared_distance",
        "squared distance of the regressor to the optimum, ‖π − w*‖²",
        r"squared distance $\Vert \pi - w^\star \Vert^2$",
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return ‖π − w*‖²."""
        return moment.problem.squared_distance(moment.network)
