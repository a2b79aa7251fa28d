"""Progressive sharpening along the gradient flow, an open problem of Marion (2024): `SharpnessCourse`, `Sharpening`."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Array, ArrayLike, Float, PyTree
from pydantic_core import PydanticCustomError

from flowsim.curvature import inner_product, sharpness_gradient
from flowsim.dynamics import Stopping, integrate
from flowsim.kinds import validation_error
from flowsim.networks import split
from flowsim.probes import Label, Moment, Probe
from flowsim.problems import Problem
from flowsim.report.panels import Axis, Curve, Guide, Key, Panel, abscissae, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import shade
from flowsim.report.sweeps import runs
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.theory import Claim, listed, unmeasured

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


@final
class Sharpening(Figure):
    """The sharpness and its rate dS/dt against the fall of the risk, and the rise of S over scale and depth."""

    name = "sharpening"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the scenario is not a sweep over depth and scale that measures `SharpnessCourse`."""
        depth, scale, probe = "network.depth", "network.scale", f"{__name__}:SharpnessCourse"
        if scenario.sweep is None or set(scenario.sweep.over) != {depth, scale}:
            yield validation_error(
                found="no sweep over depth and scale alone",
                expected="one, which the figure shows",
                write=f"sweep: {{over: {{{depth}: [2, 5], {scale}: [0.1, 0.3]}}}}, or figure: null",
                at=("sweep",) if scenario.sweep else ("figure",),
            )
        if probe not in {entry.kind for entry in scenario.record}:
            yield validation_error(
                found="no course of the sharpness among what is recorded",
                expected="one, which the figure shows",
                write=f'record: ["{probe}"]',
                at=("record",),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on progressive sharpening, each with the numbers measured."""
        return sharpening_claims(curves_of(results.required("sweep")))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return three panels: sharpness and rate from each scale at a middle depth, and the rise in all flows."""
        return sharpening(curves_of(results.required("sweep")))


def sharpening(curves: "list[SharpnessCurve]") -> matplotlib.figure.Figure:
    """Return the figure: above, the first flow from each scale at a middle depth; below, all of them."""
    depths = sorted({one.depth for one in curves})
    shown = depths[len(depths) // 2] if depths else None  # where no flow moved
    first = {one.scale: one for one in reversed(curves) if one.depth == shown}
    sharpness, rates, rises = [], [], []
    for number, (scale, one) in enumerate(sorted(first.items())):
        key = Key("scale", f"{scale:g}", f"{scale:g}", {"color": shade(number, len(first)), "linewidth": 1.2})
        inside = (one.fallen > 0) & (one.fallen < 1)
        sharpness.append(Curve(key, one.fallen[inside], (one.sharpness / one.sharpness[-1])[inside]))
        rates.append(Curve(key, one.fallen[inside], (one.rate / np.nanmax(np.abs(one.rate)))[inside], named=False))
    medians = cell_medians(curves, lambda one: one.rise)
    for number, depth in enumerate(depths):
        look = {"color": shade(number, len(depths)), "marker": "os^Dv<P"[number % 7]}
        key, flows = Key("depth", f"L = {depth}", f"L = {depth}", look), [one for one in curves if one.depth == depth]
        aside = 1 + 0.012 * (number - (len(depths) - 1) / 2)
        points = np.array([(one.scale * aside, one.rise) for one in flows]).T
        rises.append(Curve(key, *points, alpha=0.35, line=False, named=False, look={"markersize": 1.8}))
        rises.append(Curve(key, *np.array(list(medians[depth].items())).T))
    at = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    fall = "fraction of risk reduction"
    x = Axis(fall, fall, (at[0], at[-1]), logit=True, at=at, ticks=tuple(f"{tick:g}" for tick in at))
    scale = axis_over("scale of the initialization", "scale of the initialization", abscissae(rises))
    ratios = {"ncols": 2, "loc": "lower right", "handlelength": 1.2, "title": "scale", "title_fontsize": 7}
    zero, start = [Guide(0.0, dotted=True)], [Guide(1.0, dotted=True)]
    up = axis_over(r"sharpness $S/S(\infty)$", "sharpness", ordinates(sharpness), logarithmic=True)
    rate = axis_over(r"rate $\dot S/\max|\dot S|$", "rate", ordinates(rates, zero))
    rise = axis_over(r"rise $\max S/S(0)$", "rise", ordinates(rises, start), logarithmic=True)
    title = f"L = {shown}" if depths else ""
    above = Panel("sharpness", "Sharpness", f"sharpness over the {fall}", replace(x, label=""), up, sharpness)
    panels = [
        replace(above, title=title, legend=ratios),
        Panel("rate", "Rate", f"rate over the {fall}", x, rate, rates, zero),
        Panel("rise", "Rise", "rise over the scale", scale, rise, rises, start, legend={"loc": "upper right"}),
    ]
    return figure_of(panels, (3.3, 5.4))


Records = Float[np.ndarray, " records"]


@dataclass(frozen=True)
class SharpnessCurve:
    """The sharpness along one flow, as `SharpnessCourse` has it, without what stands behind the last record.

    `gained` is the integral of the rate since the record before, NaN at the first.
    """

    depth: int
    scale: float
    time: Records
    risk: Records
    sharpness: Records
    rate: Records
    gained: Records
    overlap: Records

    @property
    def rise(self) -> float:
        """The largest S over S(0), one at least."""
        return float(self.sharpness.max() / self.sharpness[0])

    @property
    def sharpens(self) -> bool:
        """Whether the flow ends sharper than it starts."""
        return bool(self.sharpness[-1] > self.sharpness[0])

    @property
    def fallen(self) -> Records:
        """The part of the fall of the risk, from the start to the limit, that is done."""
        return (self.risk[0] - self.risk) / (self.risk[0] - self.risk[-1])

    @property
    def fallen_at_peak(self) -> float:
        """The part of the fall of the risk that is done where S rises fastest."""
        return float(self.fallen[np.nanargmax(self.rate)])

    @property
    def continues(self) -> np.ndarray:
        """Whether the top eigenvector turns by 18° at most from point to point, between each record and the next.

        Where it turns further, |⟨u, u'⟩| < 0.95, the rate is not smooth enough for the rule that integrates it.
        """
        return self.overlap[1:] >= 0.95

    @property
    def errors(self) -> Float[np.ndarray, " intervals"]:
        """How far the integral of the rate is from the change of S between records, in parts of the largest S."""
        return np.abs(self.gained[1:] - np.diff(self.sharpness)) / self.sharpness.max()


def curves_of(sweep: xarray.Dataset) -> list[SharpnessCurve]:
    """Return the curves of a sweep over depth and scale, of every start from which the flow moved."""
    table = sweep[[f"initial_course_{name}" for name in COLUMNS]]
    table = table.stack(start=("depth", "scale", runs.REPETITION))
    columns = {name: table[f"initial_course_{name}"].transpose("start", ...).values for name in COLUMNS}
    found = []
    for row, (depth, scale, _) in enumerate(table["start"].values):
        known = np.isfinite(columns["time"][row])
        if known.any():
            series = {name: columns[name][row, known] for name in COLUMNS}
            found.append(SharpnessCurve(int(depth), float(scale), **series))
    return found


def cell_medians(
    curves: list[SharpnessCurve], measure: Callable[[SharpnessCurve], float]
) -> dict[int, dict[float, float]]:
    """Return the median of a measure over the starts of each cell: of each depth, of each scale."""
    depths, scales = sorted({one.depth for one in curves}), sorted({one.scale for one in curves})
    medians: dict[int, dict[float, float]] = {depth: {} for depth in depths}
    for depth, scale in itertools.product(depths, scales):
        values = [measure(one) for one in curves if (one.depth, one.scale) == (depth, scale)]
        if values:
            medians[depth][scale] = float(np.median(values))
    return medians


def sharpening_claims(curves: list[SharpnessCurve]) -> list[Claim]:
    """Return the claims about flows from several scales, at several depths."""
    return [
        _integral(curves),
        _rises_from_small_scales(curves),
        _from_the_start(curves),
        _smaller_is_stronger(curves),
        _deeper_is_stronger(curves),
        _while_the_risk_falls(curves),
    ]


def _integral(curves: list[SharpnessCurve], *, tolerance: float = 1e-6) -> Claim:
    """Return the claim that rate and sharpness agree, to a thousand times the tolerance of a step of the flow."""
    text = "the integral of dS/dt = −⟨∇S, ∇R⟩ over time is the change of S"
    expected = f"within {tolerance:g} of the largest S between records, where the top eigenvector turns by 18° or less"
    smooth = np.concatenate([one.errors[one.continues] for one in curves] or [np.empty(0)])
    others = np.concatenate([one.errors[~one.continues] for one in curves] or [np.empty(0)])
    if not len(smooth):
        return unmeasured(text, expected, "no flow moved")
    worst = float(smooth.max())
    measured = f"at most {worst:.2g} in {len(smooth)} stretches"
    if len(others):
        measured += f"; at most {others.max():.2g} in the {len(others)} in which it turns further"
    numbers = {"largest": worst, "stretches": len(smooth), "turns": len(others)}
    return Claim(text, expected, measured, worst <= tolerance, numbers)


def _rises_from_small_scales(curves: list[SharpnessCurve]) -> Claim:
    text = "flows from a small scale end sharper than they start, and flows from a large one flatter"
    expected = "S(∞) > S(0) in every flow from the smallest scale, and in less than half of those from the largest"
    if not curves:
        return unmeasured(text, expected, "no flow moved")
    scales = [one.scale for one in curves]
    small = [one.sharpens for one in curves if one.scale == min(scales)]
    large = [one.sharpens for one in curves if one.scale == max(scales)]
    every = [one.sharpens for one in curves]
    measured = (
        f"{sum(small)} of {len(small)} at {min(scales):g}, {sum(large)} of {len(large)} at {max(scales):g}; "
        f"{np.mean(every):.0%} of all {len(every)}"
    )
    numbers = {"smallest": float(np.mean(small)), "largest": float(np.mean(large)), "all": float(np.mean(every))}
    return Claim(text, expected, measured, bool(all(small) and np.mean(large) < 0.5), numbers)


def _from_the_start(curves: list[SharpnessCurve]) -> Claim:
    text = "where the sharpness rises, it does so from the start"
    expected = "dS/dt > 0 at t = 0 in more than half of the flows with S(∞) > S(0)"
    rising = [one for one in curves if one.sharpens]
    if not rising:
        return unmeasured(text, expected, "no flow ends sharper than it starts")
    first = np.mean([one.rate[0] > 0 for one in rising])
    least = np.median([one.sharpness.min() / one.sharpness[0] for one in rising])
    measured = f"{first:.0%} of {len(rising)}; S falls first, to {least:.3g} of S(0) in the median"
    return Claim(text, expected, measured, bool(first > 0.5), {"share": float(first), "least": float(least)})


def _smaller_is_stronger(curves: list[SharpnessCurve]) -> Claim:
    text = "the smaller the scale, the stronger the sharpening, at every depth"
    expected = "median of max S/S(0) falls with the scale until it is 1"
    cells = cell_medians(curves, lambda one: one.rise)
    rows = {depth: list(row.values()) for depth, row in cells.items() if len(row) > 1}
    if not rows:
        return unmeasured(text, expected, "fewer than two scales")
    falls = all(later < earlier or later == 1 for row in rows.values() for earlier, later in itertools.pairwise(row))
    measured = ", ".join(f"L = {depth}: {row[0]:.3g} to {row[-1]:.3g}" for depth, row in rows.items())
    numbers = {f"L = {depth}, scale {scale:g}": rise for depth, row in cells.items() for scale, rise in row.items()}
    return Claim(text, expected, measured, falls, numbers)


def _deeper_is_stronger(curves: list[SharpnessCurve]) -> Claim:
    text = "the deeper the network, the stronger the sharpening, at the smallest scale"
    expected = "median of max S/S(0) rises with the depth"
    smallest = min((one.scale for one in curves), default=np.nan)
    cells = cell_medians([one for one in curves if one.scale == smallest], lambda one: one.rise)
    rises = {depth: row[smallest] for depth, row in cells.items()}
    if len(rises) < 2:
        return unmeasured(text, expected, "fewer than two depths")
    holds = all(after > before for before, after in itertools.pairwise(rises.values()))
    numbers = {f"L = {depth}": rise for depth, rise in rises.items()}
    return Claim(text, expected, listed(numbers), holds, numbers)


def _while_the_risk_falls(curves: list[SharpnessCurve], *, low: float = 0.05, high: float = 0.95) -> Claim:
    """Return the claim on when S rises fastest: after the part `low` of the risk's fall, and before the part `high`."""
    text = "the sharpness rises fastest while the risk falls, neither on the plateau before nor in the approach after"
    expected = f"part of the fall that is done where dS/dt peaks, median of flows with S(∞) > S(0): {low} to {high}"
    rising = [one for one in curves if one.sharpens]
    if not rising:
        return unmeasured(text, expected, "no flow ends sharper than it starts")
    done = np.array([one.fallen_at_peak for one in rising])
    middle = float(np.median(done))
    inside = float(np.mean((done >= low) & (done <= high)))
    measured = f"{middle:.3g}, from {done.min():.3g} to {done.max():.3g}; {inside:.0%} of {len(done)} within"
    numbers = {"median": middle, "least": float(done.min()), "most": float(done.max()), "within": inside}
    return Claim(text, expected, measured, low <= middle <= high, numbers)
