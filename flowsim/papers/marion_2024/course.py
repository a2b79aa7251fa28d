"""A probe that measures the sharpness and its rate along the whole gradient flow from the weights it is given."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from ...curvature import inner_product, sharpness_gradient
from ...dynamics import Stopping, integrate
from ...networks import split
from ...probes import Label, Moment, Probe
from ...problems import Problem

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# From each node to the next, and to the end of the interval, in parts of its length.
_GAPS = np.diff([-1, *_NODES, 1]) / 2
_MEANINGS = {
    "time": "time of the records along the gradient flow from here",
    "risk": "risk at the records along the gradient flow from here",
    "sharpness": "sharpness at the records along the gradient flow from here",
    "rate": "rate dS/dt = −⟨∇S, ∇R⟩ at the records along the gradient flow from here",
    "gained": "integral of dS/dt over the time from the record before",
    "overlap": "least |⟨u, u'⟩| of the top eigenvectors at neighbouring points since the record before",
}
COLUMNS = tuple(_MEANINGS)
"""What is measured, each under its name after course_."""


class SharpnessCourse(Probe):
    """The sharpness S(t) and its rate dS/dt = −⟨∇S, ∇R⟩ along the gradient flow that starts here, to its limit.

    There are up to `records` + 1 records, spread over plateau, fall and approach, and NaN after the last. `gained` is
    the integral of the rate from each record to the next, by Gauss–Legendre quadrature of eight nodes. Where `overlap`
    is far below one, another eigenvector becomes the top one in between, and the rate jumps. Each is a column,
    `course_time` and so on. All are NaN where no time passes, as at a limit. The cost is two flows, and nine searches
    for two eigenpairs per record: it is meant for the starts of a sweep. Raises `ValueError` for fewer than 4 records.
    """

    records: int = eqx.field(static=True, default=128)
    """At how many records of the flow the sharpness and its rate are measured."""
    rtol: float = eqx.field(static=True, default=1e-9)
    """The relative tolerance of a step of that flow."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "course",
            "course of the sharpness along the gradient flow from here",
            "course",
            parts=tuple(Label(f"course_{name}", meaning, name) for name, meaning in _MEANINGS.items()),
        ),
    )

    def __check_init__(self):
        if self.records < 4:
            raise ValueError(f"records is {self.records}: expected 4 or more")

    def measure(self, moment: Moment) -> dict[str, Float[Array, " records"]]:
        """Return the columns, of `records` + 1 numbers each; nothing is gained before the first record."""
        breaks = self._breaks(moment.network, moment.problem)
        empty = jnp.full((self.records + 1,), jnp.nan, breaks.dtype)
        return jax.lax.cond(
            (breaks[1] > 0) & jnp.isfinite(breaks[1]),
            lambda: self._along(moment.network, moment.problem, breaks),
            lambda: dict.fromkeys(_MEANINGS, empty),
        )

    def _breaks(self, network: PyTree, problem: Problem) -> Float[Array, " records"]:
        """Return the times of the records, infinite behind the last."""
        times = integrate(network, problem, records=self.records).times
        times = jnp.concatenate([times, jnp.full((self.records + 1,), jnp.nan, times.dtype)])[: self.records + 1]
        return jnp.where(jnp.isnan(times), jnp.inf, times)

    def _along(self, network: PyTree, problem: Problem, breaks: Float[Array, " records"]) -> dict[str, Array]:
        """Return the columns of the flow through the times `breaks`, the first of which is 0."""
        known = jnp.isfinite(breaks)
        lengths = jnp.where(known[1:], jnp.where(known, breaks, 0)[1:] - jnp.where(known, breaks, 0)[:-1], jnp.nan)
        gaps = jnp.outer(lengths, jnp.asarray(_GAPS))
        first = _slope(network, problem)
        start = (network, first["vector"])
        _, inside = jax.lax.scan(partial(_next_point, problem=problem, rtol=self.rtol), start, gaps.ravel())
        inside = {name: values.reshape(self.records, -1) for name, values in inside.items()}
        at_breaks = {name: _after(first[name], inside[name][:, -1]) for name in ("risk", "sharpness", "rate")}
        gained = inside["rate"][:, :-1] @ _WEIGHTS * lengths / 2
        between = {"gained": gained, "overlap": jnp.min(inside["overlap"], axis=1)}
        between = {name: _after(jnp.nan, part) for name, part in between.items()}
        return {"time": jnp.where(known, breaks, jnp.nan), **at_breaks, **between}


def _after(first: ArrayLike, rest: Float[Array, " n"]) -> Float[Array, " n+1"]:
    return jnp.concatenate([jnp.reshape(jnp.asarray(first, rest.dtype), (1,)), rest])


def _next_point(
    before: tuple[PyTree, PyTree], gap: Float[Array, ""], *, problem: Problem, rtol: float
) -> tuple[tuple[PyTree, PyTree], dict[str, Array]]:
    """Follow the flow for the time `gap`, NaN for no further; return where it is, and what is measured there."""
    network, vector = before

    def moved() -> tuple[tuple[PyTree, PyTree], dict[str, Array]]:
        options = {"t1": gap, "ts": np.empty(0), "rtol": rtol, "stopping": Stopping(gradient_norm=None)}
        run = integrate(network, problem, **options)
        found = _slope(run.network, problem)
        found["overlap"] = jnp.abs(inner_product(found["vector"], vector))
        return (run.network, found.pop("vector")), found

    nothing = dict.fromkeys(("risk", "sharpness", "rate", "overlap"), jnp.full_like(gap, jnp.nan))
    return jax.lax.cond(jnp.isfinite(gap), moved, lambda: (before, nothing))


def _slope(network: PyTree, problem: Problem) -> dict[str, Array]:
    """Return the risk, the sharpness, its rate, NaN where it has none, and the top eigenvector, as the weights."""
    weights, rest = split(network)
    found = sharpness_gradient(network, problem, dense=False)
    gradient = jax.grad(lambda moved: problem.objective(eqx.combine(moved, rest)))(weights)
    rate = jnp.where(found.converged, -inner_product(found.gradient, gradient), jnp.nan)
    return {"risk": problem(network), "sharpness": found.value, "rate": rate, "vector": found.vector}
