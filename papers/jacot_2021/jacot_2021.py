"""From saddle to saddle (Jacot et al. 2021): whitened data, starts that scale, the saddles visited, figure, claims."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Array, Float, PyTree
from pydantic import Field
from pydantic_core import PydanticCustomError

from flowsim.curvature import dense_hessian
from flowsim.data import Data, DataSource
from flowsim.dynamics import integrate
from flowsim.kinds import validation_error
from flowsim.networks import DeepLinear, NetworkRecipe, split
from flowsim.probes import Label, Moment, Probe
from flowsim.problems import LinearRegression, Problem
from flowsim.report.panels import Axis, Curve, Guide, Key, Panel, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import shade
from flowsim.report.sweeps import runs
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.solvers import HessianExtrapolation
from flowsim.theory import Claim, listed, unmeasured

AXES = ("network.depth", "network.scale", "network.draw")


class WhitenedTeacher(DataSource):
    """Inputs with XᵀX/n = I, and labels Ax without noise, where A has the `singular_values` and random directions.

    The risk of a network with end-to-end matrix W is then ‖W − A‖².
    """

    samples: int = Field(default=50, ge=1)
    """n, as many as `features` or more."""
    features: int = Field(default=5, ge=1)
    """d, of one sample."""
    outputs: int = Field(default=4, ge=2)
    """m, labels of one sample."""
    singular_values: tuple[float, ...] = Field(default=(9.0, 3.0, 1.0), min_length=1, strict=False)
    """s_1 > s_2 > …, those of A that are not zero; as many as there are outputs or features, or fewer."""

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield that samples are too few to be whitened, or that there are no such singular values."""
        if self.samples < self.features:
            yield validation_error(
                found=f"{self.samples} of {self.features} features, which cannot be whitened",
                expected="as many as there are features, or more",
                write=f"samples: {self.features}",
                at=("samples",),
            )
        values = self.singular_values
        falls = all(larger > smaller for larger, smaller in itertools.pairwise((*values, 0.0)))
        if not falls or len(values) > min(self.features, self.outputs):
            yield validation_error(
                found=f"{list(values)}",
                expected=f"up to {min(self.features, self.outputs)} positive numbers, each smaller than the one before",
                write="singular_values: [9.0, 3.0, 1.0]",
                at=("singular_values",),
            )

    def load(self, rng: np.random.Generator, folder: Path) -> Data:
        """Return X (n, d) and y = XAᵀ (n, m)."""

        def orthonormal(rows: int, columns: int) -> np.ndarray:
            return np.linalg.qr(rng.standard_normal((rows, columns)))[0]

        X = self.samples**0.5 * orthonormal(self.samples, self.features)
        rank = len(self.singular_values)
        left, right = orthonormal(self.outputs, rank), orthonormal(self.features, rank)
        return Data((X, X @ (right * self.singular_values) @ left.T))

    def dimensions(self) -> tuple[int, int]:
        """Return features and outputs."""
        return self.features, self.outputs

    def rough_sizes(self) -> tuple[int, int, int]:
        """Return samples, inputs and outputs."""
        return self.samples, self.features, self.outputs


class ScaledStart(NetworkRecipe):
    """A deep linear network from W_k = scale·N_k, with the same standard Gaussian N_k at every scale."""

    start_options: ClassVar[frozenset[str]] = frozenset({"scale", "draw"})

    depth: int = Field(ge=2, examples=[3])
    """L, number of weight matrices."""
    scale: float = Field(gt=0, examples=[0.01])
    """What all the N_k are multiplied with."""
    width: int = Field(default=5, ge=1)
    """h, of the hidden layers."""
    draw: int = Field(default=0, ge=0)
    """Which N_k: every number is another draw."""

    def build(self, inputs: int, outputs: int, *, key: Array, shared: Any) -> DeepLinear:
        """Return the network; `key`, another one at every point of a sweep, is not used."""
        widths = [inputs, *[self.width] * (self.depth - 1), outputs]
        return DeepLinear.gaussian(widths=widths, scale=self.scale, key=jax.random.fold_in(shared("start"), self.draw))

    def is_linear(self) -> bool:
        """Return that it is."""
        return True

    def count_matrices(self) -> int:
        """Return L."""
        return self.depth


_MEANINGS = {
    "time": "time of the records along the gradient flow from here",
    "risk": "excess risk at the records along the gradient flow from here",
    "singular_values": "singular values of the end-to-end matrix at these records",
    "teacher": "singular values of the least-squares solution",
    "width": "width of the first hidden layer",
    "stop_time": "time of the smallest gradient of the part of the flow that has learned r singular values",
    "stop_risk": "excess risk there",
    "stop_gradient": "norm of the gradient there",
    "stop_distance": "distance ‖W − A_r‖/‖A‖ to the best map of rank r there",
    "stop_eigenvalues": "smallest eigenvalues of the Hessian there",
}


class SaddleCourse(Probe):
    """The gradient flow that starts here, to its limit, and where it rests before each singular value is learned.

    Singular value i of the end-to-end matrix is learned beyond half of that of the least-squares solution A. Where r of
    them are learned, r = 0, 1, …, the place of the smallest gradient is stop r: its distance from the best map A_r of
    rank r, and the lowest eigenvalues of the Hessian, all of whose p are computed. Between the records next to the
    smallest gradient the flow runs again, with `closer` records, so that stops hardly depend on where steps end. What
    is not there is NaN. Each is a column, `saddles_time` and so on. It is meant for the starts of a sweep: the cost is
    a flow, and as many decompositions of (p, p) as there are stops.
    """

    records: int = eqx.field(static=True, default=512)
    """At how many records of the flow it is looked at, at most."""
    closer: int = eqx.field(static=True, default=129)
    """At how many times around the smallest gradient it is looked at again."""
    rtol: float = eqx.field(static=True, default=1e-8)
    """The relative tolerance of a step of that flow."""
    eigenvalues: int = eqx.field(static=True, default=20)
    """So many of the lowest eigenvalues are kept."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "saddles",
            "saddles along the gradient flow from here",
            "saddles",
            parts=tuple(Label(f"saddles_{name}", meaning, name) for name, meaning in _MEANINGS.items()),
        ),
    )

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for anything but a deep linear network of several outputs with so many eigenvalues."""
        if not isinstance(network, DeepLinear) or not isinstance(problem, LinearRegression) or problem.optimum.ndim < 2:
            raise ValueError("saddles are those of deep linear networks of several outputs: expected such a network")
        count = sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))
        if not 1 <= self.eigenvalues <= count:
            raise ValueError(f"eigenvalues is {self.eigenvalues}: expected from 1 to {count}, one for each weight")

    def measure(self, moment: Moment) -> dict[str, Array]:
        """Return the columns: (records,), (records, q), (q,), (), and of the stops (q + 1,), for q = min(d, m)."""
        problem = moment.problem
        self.check(moment.network, problem)
        assert isinstance(problem, LinearRegression)
        left, teacher, right = jnp.linalg.svd(problem.optimum, full_matrices=False)
        # Of few hundred weights the Hessian is cheap, and of all methods this is the one to pass plateaus with.
        follow = partial(integrate, problem=problem, solver=HessianExtrapolation(), rtol=self.rtol, weights=True)
        run = follow(
            moment.network,
            records=self.records,
            diagnostics={"values": lambda network: jnp.linalg.svd(network.regressor(), compute_uv=False)},
        )
        values = run.diagnostics["values"]
        is_there = teacher > 1e-9 * teacher[0]
        learned = jnp.sum((values > teacher[None] / 2) & is_there[None], axis=1)
        rest = split(moment.network)[1]

        def stop(rank: Array) -> dict[str, Array]:
            within = (learned == rank) & jnp.isfinite(run.times)
            least = jnp.argmin(jnp.where(within, run.gradient_norm, jnp.inf))
            last = jnp.sum(jnp.isfinite(run.times)) - 1
            before, after = jnp.maximum(least - 1, 0), jnp.minimum(least + 1, last)
            time = run.times[before]
            times = jnp.linspace(0, run.times[after] - time, self.closer)
            start = eqx.combine(jax.tree.map(lambda leaf: leaf[before], run.weights), rest)
            near = follow(start, ts=times, t1=times[-1])
            slowest = jnp.nanargmin(near.gradient_norm)
            weights = jax.tree.map(lambda leaf: leaf[slowest], near.weights)
            best = (left * jnp.where(jnp.arange(teacher.size) < rank, teacher, 0)[None]) @ right
            hessian = dense_hessian(lambda moved: problem.objective(eqx.combine(moved, rest)), weights)
            found = {
                "time": time + near.times[slowest],
                "risk": near.excess_risk[slowest],
                "gradient": near.gradient_norm[slowest],
                "distance": jnp.linalg.norm(eqx.combine(weights, rest).regressor() - best) / jnp.linalg.norm(teacher),
                "eigenvalues": jnp.linalg.eigvalsh(hessian)[: self.eigenvalues],
            }
            return {f"stop_{name}": jnp.where(within.any(), value, jnp.nan) for name, value in found.items()}

        width = jnp.asarray(moment.network.weights[0].shape[0], teacher.dtype)
        along = {"time": run.times, "risk": run.excess_risk, "singular_values": values}
        stops = jax.lax.map(stop, jnp.arange(teacher.size + 1))
        return {**along, "teacher": teacher, "width": width, **stops}


@dataclass(frozen=True)
class Course:
    """One flow, as `SaddleCourse` has it, with the k singular values of A that are not zero, `teacher`.

    `risk` and `values` stand over `time`; what follows is at the stops r = 0, …, k, NaN for one that was not made.
    """

    depth: int
    scale: float
    draw: int
    width: int
    teacher: Float[np.ndarray, " k"]
    time: Float[np.ndarray, " records"]
    risk: Float[np.ndarray, " records"]
    values: Float[np.ndarray, "records k"]
    stop_time: Float[np.ndarray, " k+1"]
    stop_risk: Float[np.ndarray, " k+1"]
    stop_gradient: Float[np.ndarray, " k+1"]
    stop_distance: Float[np.ndarray, " k+1"]
    stop_eigenvalues: Float[np.ndarray, "k+1 lowest"]

    @property
    def levels(self) -> Float[np.ndarray, " k+1"]:
        """The excess risk of the best map of rank r, Σ_{i>r} s_i², for r = 0, …, k."""
        return np.append(np.cumsum(self.teacher[::-1] ** 2)[::-1], 0.0)

    @property
    def passed(self) -> slice:
        """The ranks of the saddles that the flow comes to: not 0, where it starts, nor k, where it ends."""
        return slice(1, self.teacher.size)

    @property
    def passes(self) -> bool:
        """Whether the flow was seen at each of them."""
        return bool(np.isfinite(self.stop_risk[self.passed]).all() and self.teacher.size > 1)

    @property
    def lowest(self) -> Float[np.ndarray, " k"]:
        """The lowest eigenvalue of the Hessian at each stop but the last."""
        return self.stop_eigenvalues[:-1, 0]

    @property
    def jumps(self) -> Float[np.ndarray, " k"]:
        """When singular value i passes s_i/2 for good, NaN for never.

        Between records t is the polynomial in log(σ/(s − σ)) through the six nearest. For two balanced layers, whose
        singular vectors are those of A, it is linear (Saxe, McClelland and Ganguli 2014).
        """
        return np.array([self._jump(*pair) for pair in zip(self.values.T, self.teacher, strict=True)])

    def _jump(self, values: Float[np.ndarray, " records"], target: float) -> float:
        below = np.flatnonzero(~(values > target / 2))
        after = below[-1] + 1 if below.size else 0
        if not 0 < after < values.size:
            return np.nan
        near = np.arange(max(0, after - 3), min(values.size, after + 3))
        near = near[(values[near] > 0) & (values[near] < target)]
        place, t = np.log(values[near] / (target - values[near])), self.time[near] - self.time[after]
        return float(self.time[after] + np.polyfit(place, t, near.size - 1)[-1])

    def expected_spectrum(self, rank: int) -> Float[np.ndarray, " index"]:
        """Return the (k − r)(h − r) negative eigenvalues −2s_i, i > r, of two layers at the saddle of `rank` r."""
        return -2 * np.repeat(self.teacher[rank:], self.width - rank)


def courses_of(sweep: xarray.Dataset) -> list[Course]:
    """Return the course of every start of a sweep over depth, scale and draw, the largest scale first."""
    axes = [next(str(dim) for dim in runs.grid(sweep) if str(dim) in (key, key.rpartition(".")[2])) for key in AXES]
    table = sweep[[f"initial_saddles_{name}" for name in _MEANINGS]].isel({runs.REPETITION: 0}, drop=True)
    found = []
    for place, part in runs.cells(table, tuple(axes)):
        columns = {name: part[f"initial_saddles_{name}"].values for name in _MEANINGS}
        if not np.isfinite(columns["width"]):  # a failure, of which the sweep tells
            continue
        known, there = columns["teacher"] > 1e-9 * columns["teacher"].max(), np.isfinite(columns["time"])
        stops = {name: columns[name][: int(known.sum()) + 1] for name in _MEANINGS if name.startswith("stop_")}
        depth, scale, draw = (place[axis] for axis in axes)
        found.append(
            Course(
                depth=int(depth),
                scale=float(scale),
                draw=int(draw),
                width=int(columns["width"]),
                teacher=columns["teacher"][known],
                time=columns["time"][there],
                risk=columns["risk"][there],
                values=columns["singular_values"][there][:, known],
                **stops,
            )
        )
    return sorted(found, key=lambda one: (one.depth, one.draw, -one.scale))


def pairs_of(courses: list[Course]) -> list[tuple[Course, Course]]:
    """Return the flows from the second smallest and the smallest scale, for every depth and draw that has both."""
    groups = itertools.groupby(courses, key=lambda one: (one.depth, one.draw))
    last = [list(group)[-2:] for _, group in groups]
    return [(pair[0], pair[1]) for pair in last if len(pair) == 2]


@final
class SaddleToSaddle(Figure):
    """The risk over time from several scales, and the lowest eigenvalue at each saddle over the scale, by depth."""

    name = "saddle_to_saddle"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the scenario is not a sweep over depth, scale and draw that measures `SaddleCourse`."""
        sweep, probe = scenario.sweep, f"{__name__}:SaddleCourse"
        if sweep is None or set(sweep.over) != set(AXES) or len(sweep.over[AXES[1]]) < 2:
            yield validation_error(
                found=f"no sweep over {', '.join(AXES)} alone, of two scales or more",
                expected="one, which the figure shows",
                write=f"sweep: {{over: {{{AXES[0]}: [2, 3], {AXES[1]}: [0.1, 0.01], {AXES[2]}: [0]}}}}",
                at=("sweep",) if sweep else ("figure",),
            )
        for section, kind in ((scenario.data, WhitenedTeacher), (scenario.network, ScaledStart)):
            if not isinstance(section, kind):
                place = "data" if kind is WhitenedTeacher else "network"
                yield validation_error(
                    found=f"{place} of kind {section.kind}",
                    expected="whitened inputs, and starts that are the same but for their scale",
                    write=f'{place}: {{kind: "{__name__}:{kind.__name__}"}}',
                    at=(place,),
                )
        rank = len(getattr(scenario.data, "singular_values", ()))
        if isinstance(scenario.network, ScaledStart) and scenario.network.width < rank:
            yield validation_error(
                found=f"{scenario.network.width}, of which no map has a rank above that",
                expected=f"{rank} or more, one for each singular value of the teacher",
                write=f"width: {rank}",
                at=("network", "width"),
            )
        if sweep is not None and sweep.repetitions > 1:
            yield validation_error(
                found=f"{sweep.repetitions}, of which all start from the same weights",
                expected="1, and several draws",
                write=f"repetitions: 1, and {AXES[2]}: [0, 1] in over",
                at=("sweep", "repetitions"),
            )
        if probe not in {entry.kind for entry in scenario.record}:
            yield validation_error(
                found="no saddles among what is recorded",
                expected="those along the flow, which the figure shows",
                write=f'record: ["{probe}"]',
                at=("record",),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return what the theory says of order, levels, times and Hessians, each with the numbers measured."""
        return claims(courses_of(results.required("sweep")))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return two panels for each depth: the risk over time, and below −λ_min at each saddle over the scale."""
        return saddle_to_saddle(courses_of(results.required("sweep")))


def saddle_to_saddle(courses: list[Course]) -> matplotlib.figure.Figure:
    """Return the figure; the risks are those of the first draw."""
    by_depth = [list(group) for _, group in itertools.groupby(courses, key=lambda one: one.depth)] or [[]]
    scales = sorted({one.scale for one in courses}, reverse=True)
    below = [_eigenvalues(here, scales) for here in by_depth]
    values = np.concatenate([ordinates(panel.curves, panel.guides) for panel in below])
    y = axis_over(r"$-\lambda_{\min}$ of the Hessian", "−λ_min of the Hessian", values, logarithmic=True)
    panels = [*(_risks(here, scales) for here in by_depth), *(replace(panel, y=y) for panel in below)]
    return figure_of(panels, (6.6, 3.6), columns=len(by_depth), sharey="row")


def _risks(courses: list[Course], scales: list[float]) -> Panel:
    """Return the risk from each scale, the smaller the darker, its stops, and the levels of the saddles."""
    first = [one for one in courses if one.draw == courses[0].draw]  # none where every start failed
    jumps = np.concatenate([np.zeros(0), *(one.jumps for one in first)])
    known = jumps[np.isfinite(jumps)]
    begin, end = (float(known.min()) / 10, 3 * float(known.max())) if known.size else (1e-3, 1.0)
    levels = [Guide(float(level), dotted=True) for one in first[:1] for level in one.levels[:-1]]
    limits = (levels[-1].value / 30, 3 * levels[0].value) if levels else (0.1, 1.0)
    stop = {"marker": "o", "markersize": 2.8, "markeredgecolor": "black", "zorder": 3.0}
    curves = []
    for one in first:
        name = f"scale {one.scale:g}"
        key = Key("scale", name, name, {"color": shade(len(scales) - 1 - scales.index(one.scale), len(scales))})
        curves.append(Curve(key, np.maximum(one.time, begin), one.risk))
        curves.append(Curve(key, one.stop_time[1:-1], one.stop_risk[1:-1], line=False, named=False, look=stop))
    least = Key("stop", "", r"least $\Vert\nabla R\Vert$ between jumps", {"color": "white", **stop})
    curves.append(Curve(least, line=False))
    return Panel(
        "risk",
        "Excess risk",
        "excess risk against time",
        Axis("time $t$", "time t", (0.0, end), (begin, end), logarithmic=True),
        Axis("excess risk", "excess risk", limits, limits, logarithmic=True),
        curves,
        levels,
        title=f"$L = {courses[0].depth}$" if courses else "",
    )


def _eigenvalues(courses: list[Course], scales: list[float]) -> Panel:
    """Return −λ_min at each stop over the scale, a line for each draw, and 2s_(r+1) for two layers."""
    groups, curves, guides = itertools.groupby(courses, key=lambda one: one.draw), [], []
    for number, group in enumerate(list(group) for _, group in groups):
        across = np.array([one.scale for one in group])
        for rank, lowest in enumerate(np.array([-one.lowest for one in group]).T):
            look = {"color": f"C{rank}", "marker": "os^Dv<P"[rank % 7], "markersize": 2.6}
            key = Key("rank", f"rank {rank}", f"rank {rank}", look)
            curves.append(Curve(key, across, lowest, alpha=0.45 if number else 1.0, named=not number))
    if courses and courses[0].depth == 2:
        guides = [Guide(2 * float(target), dotted=True) for target in courses[0].teacher]
    x = axis_over("scale", "scale", np.array(scales), logarithmic=True)
    y = Axis("", "", (0.0, 1.0))  # that of all depths
    return Panel("lowest", "Lowest eigenvalue", "−λ_min over the scale", x, y, curves, guides)


def claims(courses: list[Course]) -> list[Claim]:
    """Return the claims on the flows of a sweep; limits are looked for at the smallest scales of every depth."""
    pairs = pairs_of(courses)
    ends = [smaller for _, smaller in pairs]
    shallow, deep = ([pair for pair in pairs if (pair[0].depth == 2) is two] for two in (True, False))
    return [
        _order(courses, ends),
        _levels(ends),
        _closeness(courses),
        _delays(shallow),
        _times(deep),
        _index([smaller for _, smaller in shallow]),
        _flatness(deep),
    ]


_UNSEEN = "fewer than two scales, or a saddle that is not seen between two jumps"


def _order(courses: list[Course], ends: list[Course]) -> Claim:
    text = "the flow learns the singular values one after the other, the largest first"
    expected = "each passes half its value later than those before, in every flow from the smallest scale"
    if not ends:
        return unmeasured(text, expected, "fewer than two scales")

    def share(those: list[Course]) -> float:
        return float(np.mean([np.isfinite(one.jumps).all() and (np.diff(one.jumps) > 0).all() for one in those]))

    numbers = {"smallest": share(ends), "all": share(courses)}
    measured = f"in {numbers['smallest']:.0%} of {len(ends)}; in {numbers['all']:.0%} of {len(courses)} from all scales"
    return Claim(text, expected, measured, numbers["smallest"] == 1, numbers)


def _levels(ends: list[Course], *, within: float = 0.01) -> Claim:
    text = "where it rests in between, the risk is that of the best map of rank r, Σ_{i>r} s_i²"
    expected = f"within {within:.0%} where the gradient is smallest between jumps, from the smallest scale"
    if not ends or not all(one.passes for one in ends):
        return unmeasured(text, expected, _UNSEEN)
    off = np.max([np.abs(one.stop_risk[one.passed] / one.levels[one.passed] - 1) for one in ends], axis=0)
    measured = f"off by {off.max():.2g} at most, in {len(ends)} flows"
    numbers = {f"rank {rank}": float(value) for rank, value in enumerate(off, start=1)}
    return Claim(text, expected, measured, bool(off.max() <= within), numbers)


def _closeness(courses: list[Course]) -> Claim:
    text = "the smaller the scale, the closer it comes to these maps"
    expected = "‖W − A_r‖/‖A‖ where the gradient is smallest between jumps falls with the scale, in each flow"
    groups = [list(group) for _, group in itertools.groupby(courses, key=lambda one: (one.depth, one.draw))]
    groups = [group for group in groups if len(group) > 1]
    if not groups or not all(one.passes for group in groups for one in group):
        return unmeasured(text, expected, _UNSEEN)
    falls = [np.diff([one.stop_distance[one.passed] for one in group], axis=0) < 0 for group in groups]
    numbers: dict[str, float] = {}
    for one in (group[-1] for group in groups):
        name = f"L = {one.depth}"
        numbers[name] = max(numbers.get(name, 0.0), float(one.stop_distance[one.passed].max()))
    measured = f"{np.mean(falls):.0%} fall; farthest from the smallest scale, {listed(numbers, '.2g')}"
    return Claim(text, expected, measured, bool(np.all(falls)), numbers)


def _delays(pairs: list[tuple[Course, Course]], *, within: float = 0.01) -> Claim:
    """Return the claim on L = 2: a mode of value s grows as e^{4st} from scale², also while others are learned."""
    text = "with two layers, a smaller scale delays the jump of s_i by ln(ratio of scales)/(2s_i)"
    expected = f"within {within:.0%}, between the two smallest scales"
    if not pairs:
        return unmeasured(text, expected, "no depth 2 with two scales")
    delays = [2 * one.teacher * (other.jumps - one.jumps) / np.log(one.scale / other.scale) for one, other in pairs]
    off = np.abs(np.array(delays) - 1).max(axis=0)
    if not np.isfinite(off).all():
        return unmeasured(text, expected, "some singular value is not learned")
    numbers = {f"s_{i}": float(value) for i, value in enumerate(off, start=1)}
    measured = "off by " + ", ".join(f"{value:.2g} for {name}" for name, value in numbers.items()) + " at most"
    return Claim(text, expected, measured, bool(off.max() <= within), numbers)


def _times(pairs: list[tuple[Course, Course]], *, about: float = 0.01) -> Claim:
    """Return the claim on jumps for L ≥ 3.

    Weights of the order of the scale, near a saddle, obey a flow that is homogeneous of degree L − 1: multiplied by c
    they take the same way in c^-(L-2) times the time. The jump itself takes a time that no scale changes.
    """
    text = "with L ≥ 3 layers, every jump comes at a time T of order scale^-(L-2)"
    expected = f"log T over log scale has a slope of 2 − L ± {about:g}, between the two smallest"
    return _powers(text, expected, pairs, lambda one: one.jumps, -1, about)


def _flatness(pairs: list[tuple[Course, Course]], *, about: float = 0.05) -> Claim:
    """Return the claim that the saddles of L ≥ 3 are not strict."""
    text = "with L ≥ 3 layers, no curvature is negative in the limit: λ_min is of order scale^(L-2)"
    expected = f"log −λ_min over log scale has a slope of L − 2 ± {about:g} between jumps, and the two smallest"
    return _powers(text, expected, pairs, lambda one: -one.lowest[one.passed], 1, about)


def _powers(
    text: str,
    expected: str,
    pairs: list[tuple[Course, Course]],
    measure: Callable[[Course], np.ndarray],
    sign: int,
    about: float,
) -> Claim:
    """Return the claim that what is measured is of order scale^(sign·(L − 2))."""
    values = [(one.depth, one.scale / other.scale, measure(one), measure(other)) for one, other in pairs]
    if not values or not all((larger > 0).all() and (smaller > 0).all() for *_, larger, smaller in values):
        return unmeasured(text, expected, "no depth of 3 or more from two scales, or not all at each of them")
    farthest: dict[str, float] = {}
    off: dict[str, float] = {}
    for depth, ratio, larger, smaller in values:
        name, slopes = f"L = {depth}", np.log(larger / smaller) / np.log(ratio)
        away = np.abs(slopes - sign * (depth - 2))
        if away.max() >= off.get(name, 0.0):
            off[name], farthest[name] = float(away.max()), float(slopes[away.argmax()])
    measured = f"farthest from it, {listed(farthest, '.4f')}"
    return Claim(text, expected, measured, max(off.values()) <= about, farthest)


def _index(ends: list[Course], *, within: float = 0.02) -> Claim:
    """Return the claim on the Hessian of two layers near each saddle, by eigenvalues below −s_k.

    At the saddle of rank r it has −2s_i, i > r, each h − r times, and no other negative ones: those that mix learned
    and unlearned values are 2(s_j ± s_i) > 0. As −s_k is in the middle between zero and the last of them, their number
    is the same wherever the Hessian is within s_k of that at the saddle, in the spectral norm (Weyl).
    """
    text = "with two layers, the saddle of rank r has (k − r)(h − r) negative eigenvalues, −2s_i for i > r"
    expected = f"so many below −s_k, within {within:.0%} of these, from the smallest scale"
    if not ends:
        return unmeasured(text, expected, "no depth 2 with two scales")
    counts, right, off = set[tuple[int, ...]](), True, 0.0
    for one in ends:
        spectra = [one.expected_spectrum(rank) for rank in range(one.teacher.size + 1)]
        if spectra[0].size >= one.stop_eigenvalues.shape[1]:
            return unmeasured(text, expected, f"no more than {one.stop_eigenvalues.shape[1]} eigenvalues are kept")
        found = tuple(int(np.sum(lowest < -one.teacher[-1])) for lowest in one.stop_eigenvalues)
        counts.add(found)
        right &= found == tuple(spectrum.size for spectrum in spectra)
        for lowest, spectrum in zip(one.stop_eigenvalues[:-1], spectra[:-1], strict=True):
            off = max(off, float(np.abs(lowest[: spectrum.size] / spectrum - 1).max(initial=0.0)))
    measured = " or ".join(", ".join(map(str, found)) for found in sorted(counts))
    return Claim(
        text, expected, f"{measured} at r = 0, 1, …; off by {off:.2g} at most", right and off <= within, {"off": off}
    )
