"""Ordinary networks: work and time of flowsim's default beside the plain ways, at equal error.

    python benchmarks/networks.py [CASE …] [--json FILE] [--show] [--cap SECONDS] [--quick]

Work is gradients + 2 × Hessian–vector products; the error that of the weights at the end of the stretch.
"""

import itertools
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from console import options, start, table
from jax.flatten_util import ravel_pytree
from network_cases import CASES, NetworkCase
from network_path import FlowPath, path_of
from network_rivals import RIVALS, NoResultError, Rival
from plain import relative_error
from timing import once

import flowsim
from flowsim.networks import split

QUICK = ("gru", "logistic", "logistic-long")
# ∫ S dt, the number of steps 1/S, from which a stretch counts as stiff.
STIFF = 1e3
# Attempted steps after which a run of flowsim is given up.
OWN_STEPS = 5000
ROUNDS, ENOUGH = 2, 3.0
NOT_STIFF_TARGET, STIFF_TARGET, RK4_TARGET, ERROR_TARGET = 1.2, 3.0, 5.0, 10.0
_OWN = "flowsim"
# The places of the runs at the default tolerance, without and with records.
_DEFAULT, _RECORDS = 2, 3


@dataclass
class Entry:
    """A method at one tolerance: its run, and what came out; `note` stands for a run without result."""

    method: str
    rtol: float
    run: Callable[[], object] | None = None
    error: float = math.nan
    work: float = math.nan
    seconds: float = math.inf
    note: str = ""
    spent: float = 0.0

    def timed(self) -> object:
        """Run once more, and keep the shortest time."""
        found: list[object] = []
        seconds = once(lambda: found.append(self.run()))
        print(f"{self.method}, {self.rtol:.0e}: {seconds:.3g} s", file=sys.stderr, flush=True)
        self.seconds, self.spent = min(self.seconds, seconds), self.spent + seconds
        return found[0]


@dataclass
class Compared:
    """All runs of one case; the entry of the default tolerance is the third."""

    case: NetworkCase
    path: FlowPath
    ours: list[Entry] = field(default_factory=list)
    plain: dict[str, list[Entry]] = field(default_factory=dict)

    @property
    def stiff(self) -> bool:
        """Whether stability limits explicit steps for long."""
        return self.path.stability_time > STIFF


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all of them unless told: {', '.join(CASES)}")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where to write all numbers, beside those of other cases"
    )
    parser.add_argument("--show", action="store_true", help="only print the summary of the cases in the JSON file")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds that a run of a rival may take (default: 60)")
    if wrong := set(parser.parse_args().cases) - set(CASES):
        parser.error(f"no case {', '.join(sorted(wrong))}: there are {', '.join(CASES)}")
    given = start(parser)
    found = (
        {one["case"]: one for one in json.loads(given.json.read_text())} if given.json and given.json.exists() else {}
    )
    for name in [] if given.show else given.cases or (QUICK if given.quick else CASES):
        compared = compare(CASES[name](), given.cap)
        show(compared)
        found[name] = as_numbers(compared)
        if given.json:
            given.json.write_text(json.dumps(list(found.values()), indent=1))
    summary([found[name] for name in CASES if name in found])


def compare(case: NetworkCase, cap: float) -> Compared:
    """Run flowsim at its tolerances, each rival until it is as exact, and all once more in turns for their times."""
    made = Compared(case, path_of(case))
    made.ours = own_runs(case, made.path)
    most = int(cap / gradient_seconds(case))
    for rival in RIVALS:
        made.plain[rival.name] = list(rival_runs(rival, case, made.path, made.ours[_DEFAULT].error, most, cap))
    entries = [*made.ours, *(entry for entries in made.plain.values() for entry in entries)]
    for _ in range(ROUNDS):
        for entry in entries:
            if not entry.note and entry.spent < ENOUGH:
                entry.timed()
    return made


def own_runs(case: NetworkCase, path: FlowPath) -> list[Entry]:
    """Return flowsim's entries at all tolerances, and with its records at the default; say what ran."""
    problem, made, said = case.problem, [], []
    for rtol, ts in [*((rtol, []) for rtol in case.tolerances), (case.tolerances[-1], None)]:

        def run(rtol: float = rtol, ts: list | None = ts) -> flowsim.Trajectory:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                end = flowsim.integrate(case.network, problem, t1=case.t, ts=ts, rtol=rtol, max_steps=OWN_STEPS)
            return jax.block_until_ready(end)

        entry = Entry(_OWN + (", its records" if ts is None else ""), rtol, run)
        began = time.perf_counter()
        run()
        first, end = time.perf_counter() - began, entry.timed()
        entry.error = relative_error(np.asarray(ravel_pytree(split(end.network)[0])[0]), path.end)
        entry.work = float(end.gradients) + 2 * float(end.products)
        if end.outcome == flowsim.Outcome.STEP_LIMIT:
            entry.note = f"under way at t = {float(end.time):.3g}"
        made.append(entry)
        counts = [int(number) for number in (end.steps, end.rejected_steps, end.gradients, end.products)]
        said.append((entry.method, rtol, end.method, end.outcome.name, float(end.time), *counts, first))
    columns = ("run", "rtol", "method", "outcome", "t", "steps", "rejected", "gradients", "products", "first call, s")
    table(f"{case.name}: what ran", columns, said)
    return made


def rival_runs(rival: Rival, case: NetworkCase, path: FlowPath, error: float, most: int, cap: float):
    """Yield a rival's entries at finer and finer tolerances, until one is as exact as `error` or takes too long."""
    if case.start.size > rival.largest:
        yield Entry(rival.name, math.nan, note="p × p")
        return
    solve = rival.start(case, path, most)
    for rtol in rival.tolerances:
        entry = Entry(rival.name, rtol, lambda rtol=rtol: solve(rtol))
        try:
            weights, work = entry.timed()
            entry.error, entry.work = relative_error(weights, path.end), float(work)
            entry.note = "" if entry.error < 1 else "diverged"
        except NoResultError as reason:
            entry.note = str(reason)
        yield entry
        if entry.error <= error or entry.note.startswith(">") or entry.spent > cap / 2:
            return


def gradient_seconds(case: NetworkCase) -> float:
    compiled = jax.jit(jax.grad(case.risk()))
    arguments = jax.numpy.asarray(case.start), case.data(case.dtype)
    return min(once(lambda: compiled(*arguments)) for _ in range(4))


@dataclass(frozen=True)
class Level:
    """What a method needs for some error."""

    method: str
    work: float
    seconds: float


def at_error(entries: Sequence[Entry], error: float) -> Level | None:
    """Return what a method needs for an error, between its runs by a straight line in logarithms.

    That of its cheapest run that is exact enough, where none is less exact; `None` where none is exact enough.
    """
    done = [entry for entry in entries if not entry.note]
    levels = [Level(entry.method, entry.work, entry.seconds) for entry in done if entry.error <= error]
    for coarse, fine in itertools.pairwise(done):
        if coarse.error > error >= fine.error:
            share = math.log(coarse.error / error) / math.log(coarse.error / fine.error)
            work, seconds = (
                math.exp((1 - share) * math.log(before) + share * math.log(after))
                for before, after in ((coarse.work, fine.work), (coarse.seconds, fine.seconds))
            )
            levels.append(Level(fine.method, work, seconds))
    return min(levels, key=lambda level: level.work, default=None)


def best_explicit(compared: Compared, error: float) -> Level | None:
    """Return the plain explicit method with adaptive steps that needs the least work for an error."""
    explicit = [rival.name for rival in RIVALS if rival.explicit]
    levels = [at_error(compared.plain[name], error) for name in explicit]
    return min((level for level in levels if level is not None), key=lambda level: level.work, default=None)


def at_rk4(compared: Compared) -> float | None:
    """Return the work of RK4 with steps 1/S over flowsim's at the same error, `None` where one has no result."""
    done = [
        entry
        for name, entries in compared.plain.items()
        if name.startswith("RK4")
        for entry in entries
        if not entry.note
    ]
    ours = at_error(compared.ours[: _DEFAULT + 1], done[0].error) if done else None
    return None if ours is None else done[0].work / ours.work


def show(compared: Compared) -> None:
    """Print all runs of a case, and each rival's beside flowsim's default at equal error."""
    case, path, default = compared.case, compared.path, compared.ours[_DEFAULT]
    rows = []
    for entry in [*compared.ours, *(entry for entries in compared.plain.values() for entry in entries)]:
        found = (entry.note, "", "") if entry.note else (entry.error, f"{entry.work:.0f}", entry.seconds)
        rows.append((entry.method, "–" if math.isnan(entry.rtol) else f"{entry.rtol:.0e}", *found))
    title = (
        f"{case.name}: {case.what}, {type(case.loss).__name__}, p = {case.start.size}, n = {len(case.X)}, "
        f"{case.dtype}, t = {case.t:g}, S = {path.sharpness[0]:.3g} … {path.largest:.3g} … {path.sharpness[-1]:.3g}, "
        f"∫S dt = {path.stability_time:.4g}"
    )
    table(title, ("method", "rtol", "error", "g + 2p", "s"), rows)
    rows = []
    for entries in [] if default.note else compared.plain.values():
        level = at_error(entries, default.error)
        if level is not None:
            rows.append(
                (level.method, level.work, level.seconds, level.work / default.work, level.seconds / default.seconds)
            )
    columns = ("method", "g + 2p", "s", "g + 2p over flowsim's", "s over flowsim's")
    table(f"{case.name}: at the error of flowsim's default, {default.error:.1e}", columns, rows)


def verdicts(compared: Compared) -> dict[str, float | bool | str | None]:
    """Return the numbers that the targets are about, and whether each is met, `None` where no rival has come there."""
    default, records = compared.ours[_DEFAULT], compared.ours[_RECORDS]
    best = best_explicit(compared, default.error)
    rk4 = at_rk4(compared)
    ratio = None if best is None else default.work / best.work
    bound = 1 / STIFF_TARGET if compared.stiff else NOT_STIFF_TARGET
    return {
        "best": None if best is None else best.method,
        "best_work": None if best is None else best.work,
        "best_seconds": None if best is None else best.seconds,
        "work_ratio": ratio,
        "seconds_ratio": None if best is None else default.seconds / best.seconds,
        "work_target": None if ratio is None else ratio <= bound,
        "rk4_ratio": rk4,
        "rk4_target": None if rk4 is None else rk4 >= RK4_TARGET,
        "error_over_rtol": default.error / default.rtol,
        "error_target": default.error <= ERROR_TARGET * default.rtol,
        "records_ratio": records.seconds / default.seconds,
    }


def summary(found: Sequence[dict]) -> None:
    """Print a row for each case, at flowsim's default tolerance, of the numbers that JSON holds."""
    columns = ("case", "p", "dtype", "∫S dt", "max S · t", "rtol", "error", "g + 2p", "s", "best plain explicit")
    columns += ("its g + 2p", "its s", "work: ours / its", "s: ours / its")
    columns += (f"≤ {NOT_STIFF_TARGET}, stiff ≤ 1/{STIFF_TARGET:g}", "RK4 at 1/S: work / ours", f"≥ {RK4_TARGET:g}")
    columns += ("error / rtol", f"≤ {ERROR_TARGET:g}", "s with records / without")
    table(f"summary; stiff: ∫S dt > {STIFF:g}", columns, [summary_row(one) for one in found])


def summary_row(numbers: dict) -> tuple:
    default = numbers["runs"][_DEFAULT]
    size = (numbers["case"], numbers["p"], numbers["dtype"], numbers["stability_time"])
    head = (*size, numbers["largest_sharpness"] * numbers["t"], f"{default['rtol']:.0e}")
    if default["note"]:
        return (*head, default["note"], *[""] * 13)
    said = {True: "met", False: "missed", None: "–"}
    met = [said[numbers[name]] for name in ("work_target", "rk4_target", "error_target")]
    best = ("best", "best_work", "best_seconds", "work_ratio", "seconds_ratio")
    ours, its = (default["error"], round(default["work"]), default["seconds"]), [numbers[name] or "–" for name in best]
    rest = (met[0], numbers["rk4_ratio"] or "–", met[1], numbers["error_over_rtol"], met[2], numbers["records_ratio"])
    return (*head, *ours, *its, *rest)


def as_numbers(compared: Compared) -> dict:
    """Return all that was measured, for JSON."""
    case, path = compared.case, compared.path
    entries = [*compared.ours, *(entry for entries in compared.plain.values() for entry in entries)]
    return {
        "case": case.name,
        "what": case.what,
        "loss": type(case.loss).__name__,
        "p": case.start.size,
        "n": len(case.X),
        "dtype": str(case.dtype),
        "t": case.t,
        "stability_time": path.stability_time,
        "largest_sharpness": path.largest,
        "runs": [
            {name: value for name, value in vars(entry).items() if name not in ("run", "spent")} for entry in entries
        ],
        **verdicts(compared),
    }


if __name__ == "__main__":
    main()
