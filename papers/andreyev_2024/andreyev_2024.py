"""The stochastic edge of stability (Andreyev and Beneventano 2024): curvatures of minibatches, two figures, claims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray
from jaxtyping import Array, Float, PyTree
from pydantic_core import PydanticCustomError

from flowsim.columns import GRADIENT_DESCENT, RecordedRun, Run, read_runs
from flowsim.dynamics import Outcome
from flowsim.kinds import validation_error
from flowsim.probes import BatchSharpness, Label, MeanSquareSharpness, Moment, Probe, SharpnessGap
from flowsim.problems import Problem
from flowsim.report.panels import INK, Axis, Curve, Guide, Key, Panel, axis_over, ordinates
from flowsim.report.render_paper import figure_of
from flowsim.report.style import THRESHOLD, shade
from flowsim.report.sweeps import runs
from flowsim.report.sweeps.intervals import quartiles
from flowsim.results import Figure, Results
from flowsim.scenarios import Scenario
from flowsim.scenarios.settings import ForkSettings
from flowsim.theory import Claim, mark_outside_sweep, unmeasured

WITHIN = 0.1
"""How near to 2/η a curvature is held there: benchmarks/stochastic_edge.py found the mean-square sharpness at 0.92 to
0.99 of it, still on its way, where S at batches of 4 is at half of it."""
FULL = 0
"""The batch of gradient descent, all samples."""
FIRST = 3e-3
"""The part of the time that is left out of the figure: records of single steps are too dense on its axis."""
_KEYS = {
    "sharpness": Key("sharpness", "S", "$S$", {"color": "black", "marker": "o"}),
    "mean_square": Key("mean_square", "", "mean-square sharpness", {"color": "tab:blue", "marker": "s"}),
    "batch_sharpness": Key("batch_sharpness", "", "batch sharpness", {"color": "tab:orange", "marker": "^"}),
}
_EDGE = Key(INK, "2/η", r"$2/\eta$", THRESHOLD | {"color": "0.3"})
Series = Float[np.ndarray, " records"]
Starts = Float[np.ndarray, " repetitions"]


class BatchCurvatures(Probe):
    """Curvatures of minibatches of several sizes, drawn with replacement, and what the noise of gradients predicts.

    For each batch, the mean-square sharpness, `batches_mean_square_8`, and the batch sharpness, `batches_sharpness_8`.
    Where a run of a sweep begins or ends, also the sharpness at the centre of the oscillation, `batches_centre`, and
    βσ_u²/(4α) of single samples, `batches_noise`: times ηB⁻¹ it is the gap below 2/η predicted for a batch B
    (`flowsim.probes.SharpnessGap`), NaN where nothing sharpens. Raises `ValueError` for batches that cannot be.
    """

    batches: tuple[int, ...] = eqx.field(static=True, default=(4, 8, 16, 32))
    """The numbers of samples in a minibatch, at the starts and ends of the runs of a sweep."""
    along: tuple[int, ...] = eqx.field(static=True, default=(8,))
    """Those that are measured along runs, which takes as long for each of them as for the sharpness."""
    draws: int = eqx.field(static=True, default=128)
    """From up to so many minibatches a batch sharpness is taken."""
    rtol: float = eqx.field(static=True, default=0.05)
    """Half width of its 95 % interval relative to it, at which no more are drawn."""

    def __check_init__(self):
        for batch in (*self.batches, *self.along):
            self._probes(batch)

    @property
    def label(self) -> Label:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the label, with a part for each column."""
        parts = [
            Label("batches_centre", "sharpness at the centre of the oscillation", "$S$", logarithmic=False),
            Label("batches_noise", "gap below 2/η predicted for single samples, over η", r"$\beta\sigma_u^2/4\alpha$"),
        ]
        for batch in dict.fromkeys((*self.batches, *self.along)):
            square, mean = f"mean-square sharpness, batch {batch}", f"batch sharpness, batch {batch}"
            parts += [
                Label(f"batches_mean_square_{batch}", square, square, logarithmic=False),
                Label(f"batches_sharpness_{batch}", mean, mean, logarithmic=False),
            ]
        return Label("batches", "curvatures of minibatches", "curvature", logarithmic=False, parts=tuple(parts))

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a problem of which they cannot be measured."""
        for batch in (*self.batches, *self.along):
            for probe in self._probes(batch):
                probe.check(network, problem)

    def measure(self, moment: Moment) -> dict[str, Array]:
        """Return the curvatures, each a number."""
        ends = moment.state is None
        found: dict[str, Array] = {}
        for batch in self.batches if ends else self.along:
            mean_square, sharpness = self._probes(batch)
            found[f"mean_square_{batch}"] = mean_square.measure(moment)
            found[f"sharpness_{batch}"] = sharpness.measure(moment)["mean"]
        if ends:  # which do not know the learning rate: at η = 1 the gap is 2 − S
            gap = SharpnessGap(1, replacement=True).measure(
                replace(moment, learning_rate=jnp.ones_like(moment.gradient_norm))
            )
            found |= {"centre": 2 - gap["measured"], "noise": gap["predicted"]}
        return found

    def _probes(self, batch: int) -> tuple[MeanSquareSharpness, BatchSharpness]:
        drawn = BatchSharpness(batch, replacement=True, draws=self.draws, rtol=self.rtol)
        return MeanSquareSharpness(batch, replacement=True), drawn


def batch_of(optimizer: Mapping[str, Any]) -> int | None:
    """Return the batch of SGD on independent samples, `FULL` of gradient descent, and `None` for other descents."""
    kind = optimizer["kind"]
    if kind == GRADIENT_DESCENT:
        return FULL
    return int(optimizer["batch"]) if kind == "sgd" and optimizer["replacement"] and not optimizer["momentum"] else None


def name_of(batch: int) -> str:
    """Return what a batch is called."""
    return f"batch {batch}" if batch else "full batch"


@dataclass(frozen=True)
class Curvatures:
    """One run with its `batch` and learning rate, that goes on from another at the time `begins`, or from the start.

    Curvatures stand over `t`; those of minibatches are NaN along a run with other batches than were measured.
    """

    batch: int
    rate: float
    begins: float
    diverged: bool
    t: Series
    sharpness: Series
    mean_square: Series
    batch_sharpness: Series

    def late(self, values: Series) -> float:
        """Return the mean over the second half of the run, in which single records vary, times η/2; else NaN."""
        chosen = values[(self.t >= (self.begins + self.t[-1]) / 2) & np.isfinite(values)]
        return float(np.mean(chosen)) * self.rate / 2 if chosen.size and not self.diverged else np.nan

    def before(self, values: Series, time: float) -> float:
        """Return the mean over the second half of the part before a `time`, without η/2."""
        return float(np.mean(values[(self.t >= time / 2) & (self.t <= time)]))


def courses(results: Results) -> list[Curvatures]:
    """Return the descent of the scenario and its forks, in their order."""
    section, dynamics = results.scenario["descent"], read_runs(results.required("trajectories"))
    optimizers = [section["optimizer"], *(fork["optimizer"] or section["optimizer"] for fork in section["forks"])]
    steps = [0, *(fork["step"] for fork in section["forks"])]
    return [
        _course(one, batch_of(optimizers[one.run.fork]) or FULL, steps[one.run.fork] * section["learning_rates"][0])
        for one in sorted(dynamics.others, key=lambda one: one.run.fork)
    ]


def _course(one: RecordedRun, batch: int, begins: float) -> Curvatures:
    curvatures = [one.along(f"batches_{name}_{batch}") for name in ("mean_square", "sharpness")]
    rate, diverged = one.run.learning_rate or np.nan, one.outcome is Outcome.DIVERGED
    return Curvatures(batch, rate, begins, diverged, one.along("time"), one.along("sharpness"), *curvatures)


@final
class Course(Figure):
    """S(t) with full and smaller batches beside 2/η, and the curvatures of minibatches where η falls in mid-run."""

    name = "course"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield that there is not SGD at one rate with such forks, or no record of its batch."""
        descent = scenario.descent
        batch = batch_of(descent.optimizer.model_dump())
        kinds = [_kind_of_fork(fork, batch, min(descent.learning_rates, default=0)) for fork in descent.forks]
        wanted = ["full batch", "lower rate", "larger batch"]
        if not batch or descent.schedule or len(descent.learning_rates) != 1 or kinds != wanted:
            yield validation_error(
                found=f"{descent.optimizer.kind} at {len(descent.learning_rates)} rates, forks: {', '.join(kinds)}",
                expected="sgd with replacement at one rate, and forks to gradient_descent, a lower rate, and a "
                "larger batch, in this order",
                write="descent: {learning_rates: [0.34], optimizer: {kind: sgd, batch: 8, replacement: true}, forks: "
                "[{step: 1, optimizer: gradient_descent}, {step: 200, learning_rates: [0.17]}, {step: 200, optimizer: "
                "{kind: sgd, batch: 32, replacement: true}}]}",
                at=("descent",),
            )
            return
        yield from _unrecorded(scenario, "along", {batch})

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on the courses, each with the numbers measured."""
        return mark_outside_sweep(course_claims(*courses(results)))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return two panels: the sharpness with three batches; the curvatures of one where the learning rate falls."""
        small, full, lower, larger = courses(results)
        before, sharpness, curvatures = small.t <= lower.begins, [], []
        for place, one in enumerate((small, larger, full)):
            name = name_of(one.batch) + (f", from $t = {one.begins:.3g}$" if one is larger else "")
            shown = one.t <= small.t[-1]
            key = Key("batch", name, name, {"color": shade(2 - place, 3)})
            sharpness.append(Curve(key, one.t[shown], one.sharpness[shown]))
        t = np.concatenate([small.t[before], lower.t])
        for name, key in _KEYS.items():
            values = np.concatenate([getattr(small, name)[before], getattr(lower, name)])
            curvatures.append(Curve(key, t, values, look={"linewidth": 0.8, "marker": "none"}))
        edge = np.array([2 / small.rate, 2 / small.rate, 2 / lower.rate, 2 / lower.rate])
        curvatures.append(Curve(_EDGE, np.array([0, lower.begins, lower.begins, lower.t[-1]]), edge))
        last, corner, at_edge = float(full.t[-1]), {"loc": "lower right"}, [Guide(2 / small.rate, _EDGE)]
        x = Axis("time $t$", "time t", (0.0, last), (FIRST * last, last), logarithmic=True)
        left = axis_over("sharpness $S$", "sharpness", ordinates(sharpness, at_edge), start=0.0)
        right = axis_over("curvature", "curvature", ordinates(curvatures), start=0.0)
        rate, words = rf"$\eta = {small.rate:g}$", "curvature against time"
        then = f"{name_of(small.batch)}, {rate}, then ${lower.rate:g}$"
        panels = [
            Panel("sharpness", "Sharpness", "S against time", x, left, sharpness, at_edge, title=rate, legend=corner),
            Panel("curvature", "Curvature", words, x, right, curvatures, title=then, legend=corner),
        ]
        return figure_of(panels, (6.6, 2.9), columns=2)


def _kind_of_fork(fork: ForkSettings, batch: int | None, rate: float) -> str:
    """Return which of the three forks this is, or that it is another one."""
    if fork.schedule is None and fork.optimizer is None and len(fork.learning_rates) == 1:
        return "lower rate" if fork.learning_rates[0] < rate else "other"
    other = None if fork.optimizer is None else batch_of(fork.optimizer.model_dump())
    if fork.schedule is not None or fork.learning_rates or other is None:
        return "other"
    return "full batch" if other == FULL else "larger batch" if other > (batch or 0) else "other"


def course_claims(small: Curvatures, full: Curvatures, lower: Curvatures, larger: Curvatures) -> list[Claim]:
    """Return the claims on SGD, the full batch, and what follows from a lower rate and from a larger batch.

    That the batch sharpness is held at 2/η, and moves with it, is Andreyev and Beneventano's; the mean-square sharpness
    in its place is from Mulayoff and Michaeli (2024). All means are over the second half of a run.
    """
    return [
        _at_edge("full-batch gradient descent holds S at 2/η", full.late(full.sharpness)),
        _new_edge("mean-square sharpness", small, lower, "mean_square"),
        _new_edge("batch sharpness", small, lower, "batch_sharpness"),
        _larger_batch(small, larger),
    ]


def _at_edge(text: str, measured: float) -> Claim:
    expected = f"its late mean within {WITHIN:.0%} of 2/η"
    if np.isnan(measured):
        return unmeasured(text, expected, "the run diverges")
    return Claim(text, expected, f"S = {measured:.3g} · 2/η", abs(measured - 1) <= WITHIN, {"late": measured})


def _new_edge(name: str, small: Curvatures, lower: Curvatures, key: str, *, off: float = 0.25) -> Claim:
    """Return the claim that a curvature goes to the new edge: one a third below both edges would go half of the way."""
    factor = small.rate / lower.rate
    text = f"once η falls to 1/{factor:.3g} of itself, the {name} goes to the new 2/η"
    expected = f"late, in the mean, {1 - off:.0%} to {1 + off:.0%} of the way from where it was before"
    late, begun = lower.late(getattr(lower, key)), small.before(getattr(small, key), lower.begins)
    begun *= lower.rate / 2
    if np.isnan(late + begun) or begun > 1 - off:
        return unmeasured(text, expected, "a run diverges, or there is hardly a way to go")
    way = (late - begun) / (1 - begun)
    of_sharpness = small.before(small.sharpness, lower.begins) * lower.rate / 2, lower.late(lower.sharpness)
    other = (of_sharpness[1] - of_sharpness[0]) / (1 - of_sharpness[0])
    measured = f"from {begun:.3g} to {late:.3g} of the new 2/η, {way:.0%} of the way; S goes {other:.0%}"
    return Claim(text, expected, measured, abs(way - 1) <= off, {"before": begun, "late": late, "way": way, "S": other})


def _larger_batch(small: Curvatures, larger: Curvatures) -> Claim:
    """Return the claim on the gap 1 − ηS/2, which would fall as 1/B if it were small and from noise alone."""
    text = f"once the batch grows from {small.batch} to {larger.batch}, S rises towards 2/η"
    expected = "the gap 1 − ηS/2, late in the run, at most half of what it is without, in size"
    gap, without = 1 - larger.late(larger.sharpness), 1 - small.late(small.sharpness)
    if np.isnan(gap + without) or without <= 0:
        return unmeasured(text, expected, "a run diverges, or has no gap")
    measured = f"gap {gap:.3g}, {without:.3g} without"
    return Claim(text, expected, measured, abs(gap) <= without / 2, {"gap": gap, "without": without})


@dataclass(frozen=True)
class Plateau:
    """Where the runs with one `batch` are after so many `steps` of size `rate`, from every start: (repetitions,).

    Curvatures are times η/2, NaN for a run that diverged. `predicted` is the gap below one, ηβσ_u²/(4α) times η/2.
    """

    batch: int
    steps: int
    rate: float
    sharpness: Starts
    mean_square: Starts
    batch_sharpness: Starts
    gap: Starts
    predicted: Starts

    @property
    def diverged(self) -> int:
        """The number of runs without an end."""
        return int(np.isnan(self.sharpness).sum())


def plateaus(sweep: xarray.Dataset) -> list[Plateau]:
    """Return where the runs of a sweep are, from the smallest batch to the full one, and of each the earliest first."""
    found = []
    entries = {
        (entry["optimizer"]["kind"], rate): entry
        for entry in runs.scenario(sweep)["sweep"]["descent"]
        for rate in entry["learning_rates"]
    }
    for run in runs.others(sweep):
        assert run.learning_rate is not None
        entry = entries[run.dynamics, run.learning_rate]
        batch, half = batch_of(entry["optimizer"]) or FULL, run.learning_rate / 2

        def final(quantity: str, run: Run = run, half: float = half) -> Starts:
            name = runs.name_at_end(sweep, quantity)
            missing = np.full(sweep.sizes[runs.REPETITION], np.nan)
            return half * runs.final(sweep, run, quantity).values if name in sweep else missing

        found.append(
            Plateau(
                batch,
                entry["steps"],
                run.learning_rate,
                final("sharpness"),
                final(f"batches_mean_square_{batch}"),
                final(f"batches_sharpness_{batch}"),
                1 - final("batches_centre"),
                final("batches_noise") * run.learning_rate / batch if batch else 0 * final("batches_centre"),
            )
        )
    return sorted(found, key=lambda one: (one.batch or np.inf, one.steps))


def _late(found: list[Plateau]) -> list[Plateau]:
    """Return those after the most steps."""
    return [one for one in found if one.steps == max(other.steps for other in found)]


def _early(found: list[Plateau]) -> list[Plateau]:
    """Return those of SGD after the fewest steps, where these are fewer than the most."""
    fewest, most = (pick(one.steps for one in found) for pick in (min, max))
    return [one for one in _batches(found) if one.steps == fewest < most]


def _batches(found: list[Plateau]) -> list[Plateau]:
    return [one for one in found if one.batch]


def plateau_claims(found: list[Plateau]) -> Iterable[Claim]:
    """Yield the claims on where S, the curvatures of minibatches and the gap end, medians over the starts."""
    late = _late(found)
    stochastic = _batches(late)
    full = [one for one in late if not one.batch]
    yield _held("full-batch gradient descent holds S at 2/η from every start", full, "sharpness", every=True)
    yield _below(late)
    yield _held("SGD of every batch holds the mean-square sharpness at 2/η", stochastic, "mean_square")
    yield _held("SGD of every batch holds the batch sharpness at 2/η", stochastic, "batch_sharpness")
    yield _same(stochastic)
    yield _predicted(_early(found))
    yield _predicted(stochastic)


def _held(text: str, chosen: list[Plateau], name: str, *, every: bool = False) -> Claim:
    expected = f"{'all' if every else 'medians'} within {WITHIN:.0%} of 2/η"
    if (lost := _lost(chosen)) or not chosen:
        return unmeasured(text, expected, lost or "there is no such run")
    values = {name_of(one.batch): getattr(one, name) for one in chosen}
    medians = {key: float(np.median(row)) for key, row in values.items()}
    looked_at = np.concatenate(list(values.values())) if every else np.array(list(medians.values()))
    parts = [f"{medians[key]:.3g} ({row.min():.3g} to {row.max():.3g}), {key}" for key, row in values.items()]
    return Claim(text, expected, "; ".join(parts), bool((np.abs(looked_at - 1) <= WITHIN).all()), medians)


def _below(late: list[Plateau]) -> Claim:
    text = "with SGD S stays below 2/η, the farther the smaller the batch"
    expected = "from every start ηS/2 < 1, and its median less with each smaller batch than with the next"
    stochastic = _batches(late)
    if (lost := _lost(stochastic)) or len(stochastic) < 2:
        return unmeasured(text, expected, lost or "there is one batch alone")
    table = np.array([one.sharpness for one in stochastic])
    medians = {name_of(one.batch): float(np.median(one.sharpness)) for one in stochastic}
    measured = ", ".join(f"{value:.3g} with {key}" for key, value in medians.items())
    measured += f"; at most {table.max():.3g}"
    ordered = bool((np.diff(list(medians.values())) > 0).all() and (table < 1).all())
    return Claim(text, expected, measured, ordered, medians | {"most": float(table.max())})


def _same(stochastic: list[Plateau], *, share: float = 0.5) -> Claim:
    """Return the claim that batch sharpness is one number for all batches, as S is not: flowsim's measure of it."""
    text = "the batch sharpness depends less on the batch than S"
    expected = f"largest over smallest median, less one, at most {share:g} of that of S"
    if (lost := _lost(stochastic)) or len(stochastic) < 2:
        return unmeasured(text, expected, lost or "there is one batch alone")

    def spread(name: str) -> float:
        medians = [np.median(getattr(one, name)) for one in stochastic]
        return float(max(medians) / min(medians) - 1)

    own, of_all = spread("batch_sharpness"), spread("sharpness")
    measured = f"{own:.3g}, of S {of_all:.3g}, of the mean-square sharpness {spread('mean_square'):.3g}"
    return Claim(text, expected, measured, own <= share * of_all, {"batch": own, "S": of_all})


def _predicted(chosen: list[Plateau], *, factor: float = 2.0, fewest: int = 5) -> Claim:
    """Return the claim that the variance of gradients explains the gap: ηβσ_u²/(4α), Liao et al. (2026).

    It is for where S rises along the edge, α > 0; α is of a single moment, and changes its sign from one to the next.
    """
    text = f"ηβσ²/(4α) is the gap of S below 2/η, after {chosen[0].steps if chosen else 'few'} steps"
    expected = f"within a factor of {factor:g}, in the median over all runs with α > 0"
    if (lost := _lost(chosen)) or not chosen:
        return unmeasured(text, expected, lost or "there are no such runs")
    ratios = np.concatenate([one.predicted / one.gap for one in chosen])
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    if known.size < fewest:
        return unmeasured(text, expected, f"{known.size} runs with α > 0, of {ratios.size}")
    middle, low, high = (float(value) for value in np.quantile(known, (0.5, 0.25, 0.75)))
    measured = f"{middle:.2g} of the gap, quartiles {low:.2g} and {high:.2g}, over {known.size} of {ratios.size} runs"
    measured += f" ({', '.join(map(_ratio_of, chosen))})"
    return Claim(text, expected, measured, 1 / factor <= middle <= factor, {"median": middle, "runs": known.size})


def _ratio_of(one: Plateau) -> str:
    """Return in words the median of the predicted gap over the measured one with a batch, and of how many runs."""
    ratios = one.predicted / one.gap
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    return (
        f"{name_of(one.batch)}: {np.median(known):.2g} of {known.size}" if known.size else f"{name_of(one.batch)}: none"
    )


def _lost(chosen: list[Plateau]) -> str:
    lost = [f"{one.diverged} with {name_of(one.batch)}" for one in chosen if one.diverged]
    return f"runs diverge: {', '.join(lost)}" if lost else ""


@final
class Plateaus(Figure):
    """Where SGD keeps the curvatures below 2/η over the batch, and the gap of S beside what is predicted."""

    name = "plateaus"

    def validation_errors(self, scenario: Scenario) -> Iterable[PydanticCustomError]:
        """Yield that there is no sweep of gradient descent and of SGD with two batches or more, or no record of it."""
        sweep = scenario.sweep
        entries = sweep.descent if sweep else ()
        batches = [batch_of(entry.optimizer.model_dump()) for entry in entries]
        rates = [rate for entry in entries for rate in entry.learning_rates]
        several = len({batch for batch in batches if batch}) > 1 and FULL in batches and None not in batches
        scheduled = any(entry.schedule or entry.repetitions for entry in entries)
        if not sweep or sweep.over or scheduled or not several or max(rates) > 1.01 * min(rates):
            yield validation_error(
                found=f"{'a' if sweep else 'no'} sweep with {len(entries)} descents",
                expected="one over nothing but starts, of gradient_descent and of sgd with replacement with two "
                "batches or more, all at one rate up to 1 %",
                write="sweep: {repetitions: 8, descent: [{learning_rates: [0.17], steps: 8000}, {learning_rates: "
                "[0.17], steps: 8000, optimizer: {kind: sgd, batch: 4, replacement: true}}, {learning_rates: "
                "[0.1701], steps: 8000, optimizer: {kind: sgd, batch: 8, replacement: true}}]}",
                at=("sweep",) if sweep else ("figure",),
            )
            return
        yield from _unrecorded(scenario, "batches", {batch for batch in batches if batch})

    def claims(self, results: Results) -> list[Claim]:
        """Return the claims on where the curvatures end, each with the numbers measured."""
        return list(plateau_claims(plateaus(results.required("sweep"))))

    def draw(self, results: Results) -> matplotlib.figure.Figure:
        """Return two panels over the batch: curvatures times η/2, and the gap; medians over the starts, quartiles."""
        found = plateaus(results.required("sweep"))
        late, gaps = _batches(_late(found)), []
        curvatures = [_over_batches(late, name, key) for name, key in _KEYS.items()]
        for chosen, colour in ((_early(found), "0.6"), (late, "black")):
            for name, words, marker, line in (("gap", "measured", "o", "-"), ("predicted", "predicted", "D", ":")):
                if chosen:
                    label = f"{words}, step {chosen[0].steps}"
                    key = Key(name, label, label, {"color": colour, "marker": marker, "linestyle": line})
                    gaps.append(_over_batches(chosen, name, key))
        at = tuple(float(one.batch) for one in late)
        x, words = axis_over("batch", "batch", np.array(at), logarithmic=True, at=at), "curvature times η/2"
        edge = [Guide(1.0, _EDGE)]
        left = axis_over(r"curvature $\times\, \eta/2$", words, ordinates(curvatures, edge), start=0.0)
        right = axis_over(r"gap $1 - \eta S/2$", "gap 1 − ηS/2", ordinates(gaps), logarithmic=True)
        panels = [
            Panel("curvature", "Curvature", f"{words} over the batch", x, left, curvatures, edge, edge=_EDGE.label),
            Panel("gap", "Gap below 2/η", "gap below 2/η over the batch", x, right, gaps),
        ]
        return figure_of(panels, (6.6, 2.7), columns=2)


def _over_batches(chosen: list[Plateau], name: str, key: Key) -> Curve:
    """Return the curve of medians over the starts, with quartiles as a band."""
    values = quartiles(np.array([getattr(one, name) for one in chosen]))
    return Curve(key, np.array([one.batch for one in chosen], float), values.estimate, values.low, values.high)


def _unrecorded(scenario: Scenario, option: str, batches: set[int]) -> Iterable[PydanticCustomError]:
    """Yield that the scenario does not record the curvatures of some `batches`, by an `option` of the probe."""
    probes = [entry.make() for entry in scenario.record if not entry.given]
    recorded = {batch for probe in probes if isinstance(probe, BatchCurvatures) for batch in getattr(probe, option)}
    if missing := batches - recorded:
        wanted = ", ".join(map(str, sorted(recorded | batches)))
        yield validation_error(
            found=f"no record of the curvatures of batches of {', '.join(map(str, sorted(missing)))}",
            expected="one of every batch that the figure shows",
            write=f'record: [{{kind: "andreyev_2024:BatchCurvatures", {option}: [{wanted}]}}]',
            at=("record",),
        )
