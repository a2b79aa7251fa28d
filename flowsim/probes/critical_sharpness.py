"""Cheap measures of the edge of stability: how far the risk falls along the gradient, without an eigenvalue."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..curvature import inner_product
from ..curvature.hessian import objective_of, quadratic_form
from ..networks.weights import norm
from .probe import PROBES, Label, Moment, Probe


class _AlongStep(eqx.Module):
    """A step −η `step`, along which the risk falls at the rate `slope`, from what it is `here`."""

    objective: Callable[[PyTree], Array] = eqx.field(static=True)
    weights: PyTree
    step: PyTree
    slope: Float[Array, ""]
    here: Float[Array, ""]

    @classmethod
    def of(cls, moment: Moment) -> "_AlongStep":
        """Return the step along ∇R, or where a preconditioner P is known along P⁻¹∇R."""
        objective, weights = objective_of(moment.network, moment.problem)
        here, gradient = jax.value_and_grad(objective)(weights)
        step = gradient
        if moment.preconditioner is not None:
            step = jax.tree.map(jnp.divide, gradient, moment.preconditioner)
        return cls(objective, weights, step, inner_product(gradient, step), here)

    def rises(self, rate: Float[Array, ""]) -> Bool[Array, ""]:
        """Return whether a step at this learning rate raises the risk."""
        moved = jax.tree.map(lambda w, u: w - rate * u, self.weights, self.step)
        return ~(self.objective(moved) <= self.here)


@PROBES.register("critical_sharpness")
class CriticalSharpness(Probe):
    """2/η_c, with η_c the learning rate from which on a step raises the risk (Kalra et al. 2026, arXiv:2601.16979).

    It takes passes forward alone: η is doubled or halved until the risk begins to rise, and then bisected to the
    relative `precision`. Where the risk along the step rises, falls and rises again, it is one of several such rates. A
    step is along ∇R, or where a preconditioner P is known along P⁻¹∇R: without momentum, and of the full gradient. At
    the ends of the runs of a sweep no preconditioner is known.

    On a quadratic risk that is `DirectionalSharpness`: at most S, and close to S only where the gradient points along
    the top eigenvector, as at the edge of stability. So it does not tell S where descent is below the edge: in
    `scenarios/edge_of_stability.yaml` η = 0.1 comes to rest with 0.99 S, and η = 0.02 and the flow with 0.06 S. Where
    the risk is far from quadratic it may be larger than S, there up to three times on the plateau. NaN where the
    gradient is zero, where no step of up to 2⁶⁰ times the first tried raises the risk, and where changes of the
    risk drown in its rounding.
    """

    precision: float = 1 / 32
    """To what part of itself the critical learning rate is found."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "critical_sharpness",
            "critical sharpness 2/η_c, η_c the learning rate from which on a step along the gradient raises the risk",
            r"critical sharpness $2/\eta_c$",
            logarithmic=False,
        ),
    )
    """What it is called in tables and figures."""

    def __check_init__(self):
        if not 0 < self.precision < 1:
            raise ValueError(f"precision is {self.precision!r}: expected a number between 0 and 1")

    def gradients(self, network: PyTree) -> float:
        """Return about those of a search and a bisection, of passes forward."""
        return 8.0

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the critical sharpness."""
        along = _AlongStep.of(moment)
        first = (_length(along.weights) / _length(along.step)).astype(along.slope.dtype)
        precision = max(self.precision, 8 * float(jnp.finfo(first.dtype).eps))
        rate = _least_that(along.rises, first, precision)
        # A fall by less than rounding looks like a rise: the predicted one must stand out.
        visible = rate * along.slope > 100 * jnp.finfo(along.slope.dtype).eps * jnp.abs(along.here)
        return jnp.where((along.slope > 0) & jnp.isfinite(rate) & visible, 2 / rate, jnp.nan)


@PROBES.register("directional_sharpness")
class DirectionalSharpness(Probe):
    """⟨u, Hu⟩/⟨∇R, u⟩ along a step u, by one product: at 2/η the second order of the risk cancels the first.

    See Kalra et al. (2026, arXiv:2601.16979). Along u = ∇R it is ⟨∇R, H∇R⟩/‖∇R‖², a mean of the eigenvalues by the
    squared components of the gradient: at most S. Where a preconditioner P is known, u = P⁻¹∇R. NaN where the gradient
    is zero.
    """

    label = Label(
        "directional_sharpness",
        "directional sharpness, the curvature along the gradient",
        r"directional sharpness $\langle u, H u \rangle / \langle \nabla R, u \rangle$",
        logarithmic=False,
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the directional sharpness."""
        along = _AlongStep.of(moment)
        curvature = quadratic_form(along.objective, along.weights, along.step)
        return jnp.where(along.slope > 0, curvature / along.slope, jnp.nan)


def _length(tree: PyTree) -> Float[Array, ""]:
    found = norm(tree)
    return jnp.where(found > 0, found, 1)


def _least_that(
    rises: Callable[[Float[Array, ""]], Bool[Array, ""]], first: Float[Array, ""], precision: float, most: int = 60
) -> Float[Array, ""]:
    """Return a number from which on `rises` holds, the next to `first` of powers of two, ∞ where there is none."""
    factor = jnp.where(rises(first), 0.5, 2.0).astype(first.dtype)

    def is_searching(state: tuple) -> Bool[Array, ""]:
        count, rate = state
        return (count < most) & (rises(rate) == (factor < 1))

    count, beyond = jax.lax.while_loop(is_searching, lambda state: (state[0] + 1, state[1] * factor), (0, first))
    low, high = jnp.minimum(beyond, beyond / factor), jnp.maximum(beyond, beyond / factor)

    def halved(bracket: tuple) -> tuple:
        low, high = bracket
        middle = (low + high) / 2
        up = rises(middle)
        return jnp.where(up, low, middle), jnp.where(up, middle, high)

    low, high = jax.lax.while_loop(lambda bracket: bracket[1] > (1 + precision) * bracket[0], halved, (low, high))
    return jnp.where(count < most, (low + high) / 2, jnp.inf)
