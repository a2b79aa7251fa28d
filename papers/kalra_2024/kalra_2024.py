"""Why warm-up (Kalra and Barkeshli 2024): the largest learning rate over the time of warm-up, S(t) beside 2/η(t)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Float
from pydantic_core import PydanticCustomError

from flowsim.columns import read_runs
from flowsim.dynamics import Outcome
from flowsim.kinds import validation_error
from flowsim.report.panels import INK, Axis, Curve, Guide, Key, Panel, Symlog, abscissae, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import BOUND, THRESHOLD, THRESHOLD_ID, shade
from flowsim.report.sweeps import runs
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.scenarios.values import kind_of
from flowsim.theory import Claim, mark_outside_sweep, unmeasured

SCALE = "network.scale"
STABLE_BELOW, LOST_BEYOND = 2.0, 12.0
"""The catapult of Lewkowycz et al. (2020): from ηS(0) = 2 on, to 4 with two linear layers, and about 12 with ReLU."""
Table = Float[np.ndarray, "times repetitions"]


@dataclass(frozen=True)
class Tolerance:
    """The largest learning rates that the starts of one `scale` tolerate after warm-ups of several `times`.

    `largest` is the largest that does not diverge, NaN where the rates do not tell, and known up to `steps`, the
    largest factor from one rate to the next; `holes` is how many smaller ones diverge all the same, of so many `below`.
    `first` and `last` are the sharpness at the start and where the flow ends.
    """

    scale: float
    times: Float[np.ndarray, " times"]
    steps: Float[np.ndarray, " times"]
    largest: Table
    holes: int
    below: int
    first: Float[np.ndarray, " repetitions"]
    last: Float[np.ndarray, " repetitions"]

    @property
    def median(self) -> Float[np.ndarray, " times"]:
        """The median of the largest rates over the starts, NaN where it is not known for one of them."""
        return np.median(self.largest, axis=1)

    @property
    def gain(self) -> float:
        """The median after the longest warm-up over that without one."""
        return float(self.median[-1] / self.median[0])

    @property
    def sharpens(self) -> bool:
        """Whether the flow ends sharper than it starts, from most starts."""
        return bool(np.median(self.last / self.first) > 1)


def tolerances(sweep: xarray.Dataset) -> list[Tolerance]:
    """Return what the starts of every scale tolerate, from the smallest scale on."""
    (flow,) = runs.flows(sweep)
    descents = {run.learning_rate: run for run in runs.descents(sweep)}
    entries = sorted(runs.scenario(sweep)["sweep"]["descent"], key=_time_of)
    axis = next(str(name) for name in runs.grid(sweep))
    found, first = [], sweep["initial_sharpness"].transpose(axis, runs.REPETITION)
    last = runs.final(sweep, flow, "sharpness").transpose(axis, runs.REPETITION)
    for place in np.argsort(sweep[axis].values):
        largest, smaller = [], []
        for entry in entries:
            rates = np.array(_rates_of(entry))
            ends = [descents[rate] for rate in rates]
            lost = np.array([runs.diverged(sweep, run).isel({axis: place}).values for run in ends])
            known = np.array([runs.asked(sweep, run).isel({axis: place}).values for run in ends]).all(axis=0)
            largest.append(np.where(known, largest_kept(rates, lost), np.nan))
            smaller.append(lost[rates[:, None] < largest[-1]])
        found.append(
            Tolerance(
                float(sweep[axis].values[place]),
                np.array([_time_of(entry) for entry in entries]),
                np.array([np.exp(np.diff(np.log(_rates_of(entry))).max()) for entry in entries]),
                np.array(largest),
                int(np.concatenate(smaller).sum()),
                np.concatenate(smaller).size,
                first.values[place],
                last.values[place],
            )
        )
    return found


def largest_kept(rates: Float[np.ndarray, " rates"], lost: np.ndarray) -> Float[np.ndarray, " repetitions"]:
    """Return the largest of rising `rates` at which a run is not `lost`, (rates, repetitions), or NaN.

    It is NaN where all are lost, and where the largest of all is not.
    """
    place = len(rates) - 1 - np.argmax(~lost[::-1], axis=0)
    return np.where(lost.all(axis=0) | ~lost[-1], np.nan, rates[place])


def _rates_of(entry: dict[str, Any]) -> list[float]:
    return sorted(entry["learning_rates"])


def _time_of(entry: dict[str, Any]) -> float:
    """Return the time of the warm-up of an entry of the sweep, zero without one."""
    return float(sum(factor["time"] for factor in entry["schedule"]))


@final
class WarmUp(Figure):
    """The largest learning rate at which descent does not diverge, over the time of warm-up, from several scales."""

    name = "warm_up"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield why the scenario is not a sweep over scales of the flow, and of descents with warm-ups and without."""
        sweep = scenario.sweep
        if sweep is None or set(sweep.over) != {SCALE} or len(sweep.over[SCALE]) < 2 or not sweep.flow:
            yield validation_error(
                found="no sweep of the flow over two scales or more",
                expected="one, which the figure compares",
                write=f"sweep: {{over: {{{SCALE}: [0.2, 1.0]}}}}",
                at=("sweep",) if sweep else ("figure",),
            )
            return
        schedules = [entry.schedule for entry in sweep.descent]
        warm = [len(one) == 1 and one[0].kind == "warm_up" for one in schedules]
        plain = [not one for one in schedules]
        few = any(len(entry.learning_rates) < 2 or entry.repetitions for entry in sweep.descent)
        other = any(kind_of(entry.optimizer) != "gradient_descent" for entry in sweep.descent)
        if few or other or sum(plain) != 1 or sum(warm) < 1 or sum(plain) + sum(warm) < len(schedules):
            yield validation_error(
                found=f"{sum(plain)} descents without a schedule, {sum(warm)} with a warm_up, of {len(schedules)}",
                expected="one without, and one or more with nothing but a warm_up, all of them gradient descents at "
                "two rates or more, from every start",
                write="descent: [{learning_rates: [0.1, 0.2], steps: 1000}, {learning_rates: [0.11, 0.21], "
                "steps: 2000, schedule: {kind: warm_up, time: 10.0}}]",
                at=("sweep", "descent"),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on the rates that are tolerated, each with the numbers measured."""
        return list(tolerance_claims(tolerances(results.required("sweep"))))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return one panel: medians over the time of warm-up with quartiles, and 2/S(0) in the median."""
        found = tolerances(results.required("sweep"))
        curves, guides = [], []
        for number, one in enumerate(found):
            name = f"scale {one.scale:g}: S {'rises' if one.sharpens else 'falls'} along the flow"
            key = Key("scale", name, name, {"color": shade(number, len(found)), "marker": "o"})
            low, high = np.quantile(one.largest, (0.25, 0.75), axis=1)
            curves.append(Curve(key, one.times, one.median, low, high))
            guides.append(Guide(2 / float(np.median(one.first)), key, dotted=True))
        curves.append(Curve(Key(INK, "2/S(0)", "$2/S(0)$", BOUND | {"color": "0.4"})))
        warm = found[0].times[found[0].times > 0]
        limits = (-0.1 * float(warm.min()), 1.3 * float(warm.max()))
        scale = Symlog(float(warm.min()), limits, 0.5)
        x, name = Axis("time of warm-up $T$", "time of warm-up T", limits, symlog=scale), "largest learning rate"
        y = axis_over(rf"{name} $\eta$", f"{name} η", ordinates(curves, guides), logarithmic=True)
        panel = Panel("rate", "Largest learning rate", f"{name} over {x.words}", x, y, curves, guides)
        return figure_of([panel], (3.3, 2.7))


def tolerance_claims(found: list[Tolerance]) -> Iterable[Claim]:
    """Yield the claims on the largest rates: `found` from flat starts, which sharpen, to sharp ones.

    That warm-up allows for larger rates, and by flatter weights, is the paper's; how much, and all numbers to compare
    with, are flowsim's.
    """
    sharp, flat = found[-1], found[0]
    yield _starts(sharp)
    yield _grows(sharp)
    yield _further_than_the_flow(sharp)
    yield _flat_gains_less(flat, sharp)
    yield _comes_up(flat, sharp)


def _starts(sharp: Tolerance) -> Claim:
    text = "without warm-up the largest rate is set by the sharpness at the start: c/S(0)"
    expected = f"c from {STABLE_BELOW:g} to {LOST_BEYOND:g}, and the same in every start as far as it is known"
    c = sharp.largest[0] * sharp.first
    if np.isnan(c).any():
        return unmeasured(text, expected, "the rates do not reach across the boundary")
    step, spread = sharp.steps[0], sharp.first.max() / sharp.first.min()
    measured = f"c = {np.median(c):.3g} in the median, {c.min():.3g} to {c.max():.3g}, known up to {step:.3g}, "
    measured += f"while S(0) differs by a factor of {spread:.3g}"
    holds = bool(c.min() * step >= STABLE_BELOW and c.max() <= LOST_BEYOND and c.max() <= step**2 * c.min())
    return Claim(text, expected, measured, holds, {"median": float(np.median(c)), "least": c.min(), "most": c.max()})


def _grows(sharp: Tolerance) -> Claim:
    text = "from a sharp start the largest rate grows with the time of warm-up"
    expected = "the median larger after every longer warm-up"
    if np.isnan(sharp.median).any():
        return unmeasured(text, expected, "the rates do not reach across the boundary")
    values = ", ".join(f"{rate:.3g}" for rate in sharp.median)
    measured = f"{values} for T = {', '.join(f'{time:g}' for time in sharp.times)}: {sharp.gain:.3g} times in all"
    measured += f"; {sharp.holes} of the {sharp.below} runs at smaller rates diverge all the same"
    return Claim(
        text, expected, measured, bool((np.diff(sharp.median) > 0).all()), {"gain": sharp.gain, "holes": sharp.holes}
    )


def _further_than_the_flow(sharp: Tolerance) -> Claim:
    """Return the claim that the rate itself makes the risk flatter: with the c of the start, the flow allows c/S(∞)."""
    text = "a long warm-up forces descent further than the flow flattens by itself"
    expected = "from every start, a rate above that without warm-up times S(0)/S(∞)"
    ratio = sharp.largest[-1] / sharp.largest[0] * sharp.last / sharp.first
    if np.isnan(ratio).any():
        return unmeasured(text, expected, "the rates do not reach across the boundary, or a flow has no end")
    fall = np.median(sharp.first / sharp.last)
    measured = f"{ratio.min():.3g} to {ratio.max():.3g} times as large; along the flow S falls {fall:.3g} times"
    return Claim(text, expected, measured, bool(ratio.min() > 1), {"least": ratio.min(), "fall": float(fall)})


def _flat_gains_less(flat: Tolerance, sharp: Tolerance) -> Claim:
    text = "a flat start, whose flow sharpens, gains less from warm-up than a sharp one"
    expected = "the median after the longest over that without: less than from the sharp start"
    if np.isnan([flat.gain, sharp.gain]).any() or not flat.sharpens or sharp.sharpens:
        return unmeasured(text, expected, "the rates do not reach across the boundary, or both flows go the same way")
    measured = f"{flat.gain:.3g} times, and {sharp.gain:.3g} times; each rate is known up to {flat.steps.max():.3g}"
    return Claim(text, expected, measured, flat.gain < sharp.gain, {"flat": flat.gain, "sharp": sharp.gain})


def _comes_up(flat: Tolerance, sharp: Tolerance, *, within: float = 2.0) -> Claim:
    text = "with enough warm-up a sharp start tolerates what a flat one does"
    expected = f"the medians after the longest warm-up within a factor of {within:g}"
    ratio = float(flat.median[-1] / sharp.median[-1])
    if np.isnan(ratio):
        return unmeasured(text, expected, "the rates do not reach across the boundary")
    before = flat.median[0] / sharp.median[0]
    measured = f"{ratio:.3g} times apart, {before:.3g} times without warm-up"
    return Claim(text, expected, measured, 1 / within <= ratio <= within, {"after": ratio, "before": float(before)})


@final
class Course(Figure):
    """The sharpness S(t) of one start after warm-ups of several times, each beside its own edge 2/η(t)."""

    name = "course"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield that there is not one descent with nothing but a warm-up, or that its forks are something else."""
        descent = scenario.descent
        others = [fork for fork in descent.forks if fork.schedule is None or fork.learning_rates or fork.optimizer]
        kinds = [[factor.kind for factor in fork.schedule or ()] for fork in descent.forks]
        warms = [factor.kind for factor in descent.schedule] == ["warm_up"]
        if (
            len(descent.learning_rates) != 1
            or not warms
            or others
            or any(one not in ([], ["warm_up"]) for one in kinds)
        ):
            yield validation_error(
                found="no descent at one rate with a warm_up alone, and forks that differ from it in nothing else",
                expected="such ones, whose sharpness the figure shows",
                write="descent: {learning_rates: [0.15], schedule: {kind: warm_up, time: 100.0}, forks: [{step: 1, "
                "schedule: []}]}",
                at=("descent",),
            )

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on the sharpness along the warm-up."""
        return mark_outside_sweep(course_claims(warm_ups(results)))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return one panel: the sharpness after every warm-up, and 2/η(t) dashed, in the same colour."""
        found, curves = warm_ups(results), []
        for number, one in enumerate(found):
            name = f"$T = {one.time:g}$" + (", diverges" if one.diverged else "")
            key = Key("warm-up", name, name, {"color": shade(number, len(found))})
            shown = (one.t > 0) & (one.sharpness < 1e2 * found[0].sharpness[0])
            edge = (one.t[one.t > 0], one.edge[one.t > 0])
            curves.append(Curve(key, one.t[shown], one.sharpness[shown]))
            curves.append(Curve(key, *edge, named=False, look=THRESHOLD | {"gid": THRESHOLD_ID}))
        x = axis_over("time $t$", "time t", abscissae(curves), logarithmic=True)
        y = axis_over("sharpness $S$", "sharpness S", ordinates(curves), logarithmic=True)
        words = "sharpness against time"
        return figure_of([Panel("sharpness", "Sharpness", words, x, y, curves, edge=r"$2/\eta(t)$")], (3.3, 2.9))


@dataclass(frozen=True)
class Ramp:
    """The records of a descent whose rate rises until `time`: S(t) and 2/η(t): (records,)."""

    time: float
    diverged: bool
    t: Float[np.ndarray, " records"]
    sharpness: Float[np.ndarray, " records"]
    edge: Float[np.ndarray, " records"]


def warm_ups(results: Results) -> list[Ramp]:
    """Return the descents after every time of warm-up, the longest first: of the scenario, and of its forks."""
    stored, section = results.required("trajectories"), results.scenario["descent"]
    schedules = [section["schedule"], *(fork["schedule"] for fork in section["forks"])]
    found = [
        Ramp(
            _time_of({"schedule": schedules[one.run.fork]}),
            one.outcome is Outcome.DIVERGED,
            one.along("time"),
            one.along("sharpness"),
            one.edge_along("sharpness"),
        )
        for one in read_runs(stored).others
        if one.run.learning_rate is not None
    ]
    return sorted(found, key=lambda one: -one.time)


def course_claims(found: list[Ramp], *, within: float = 1.3) -> Iterable[Claim]:
    """Yield the claims on the sharpness along warm-ups of several times, the longest first."""
    longest = found[0]
    yield _follows(longest, within)
    text, expected = "what the longest warm-up leads to is lost with less", "that one stays, all others diverge"
    if len(found) < 2:
        yield unmeasured(text, expected, "there is one warm-up alone")
        return
    lost = ", ".join(f"T = {one.time:g} {'diverges' if one.diverged else 'stays'}" for one in found)
    holds = not longest.diverged and all(one.diverged for one in found[1:])
    yield Claim(text, expected, lost, holds, {f"T = {one.time:g}": float(one.diverged) for one in found})


def _follows(longest: Ramp, within: float) -> Claim:
    """Return the claim on the sharpness from where the edge has fallen onto it, until the rate rises no longer."""
    text = "along the warm-up the sharpness falls with the edge 2/η(t)"
    expected = (
        f"from where they meet until t = {longest.time:g}, S falls as far as the edge within a factor of {within:g}"
    )
    rising = (longest.t <= longest.time) & np.isfinite(longest.sharpness)
    sharpness, edge = longest.sharpness[rising], longest.edge[rising]
    met = np.flatnonzero(sharpness >= edge)
    if longest.diverged or not met.size or edge[met[0]] < 2 * edge[-1]:
        return unmeasured(text, expected, "the descent diverges, or comes to the edge when that hardly falls any more")
    meets = longest.t[rising][met[0]]
    falls = {"edge": float(edge[met[0]] / edge[-1]), "S": float(sharpness[met[0]] / sharpness[-1])}
    ratio = sharpness[met[0] :] / edge[met[0] :]
    measured = f"from t = {meets:.3g} on S falls by a factor of {falls['S']:.3g}, the edge by {falls['edge']:.3g}; "
    measured += f"ηS/2 from {ratio.min():.3g} to {ratio.max():.3g} on the way"
    numbers = falls | {"meets": float(meets), "least": float(ratio.min()), "most": float(ratio.max())}
    return Claim(text, expected, measured, abs(np.log(falls["S"] / falls["edge"])) <= np.log(within), numbers)
