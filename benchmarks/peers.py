"""Time to the limit at matched accuracy of the final weights: flowsim beside all that could be used instead."""

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import diagrams
import scaling
from console import options, start, table
from courses import COURSES, Course, NoResultError, Run, course
from rivals import RIVALS, Rival

ACCURACIES = (1e-4, 1e-6, 1e-8)
ROUNDS = 6
# Seconds after which one method at one setting has been timed often enough.
_ENOUGH = 0.6
_NUMBERS = "peers.json"
_QUICK_CASES, _QUICK_SETTINGS, _QUICK_CAP = ["residual"], 2, 1.0


@dataclass
class Entry:
    """A method at one setting on one course: its run, and what came out; `note` stands for a run without result."""

    rival: Rival
    setting: float
    run: Run | None = None
    note: str = ""
    error: float = math.nan
    sharpness_error: float = math.nan
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The shortest time."""
        return min(self.seconds, default=math.nan)


def main() -> None:
    parser = arguments()
    given = start(parser)
    if given.redraw and given.figures is None:
        parser.error("--redraw needs --figures DIR, a folder that holds peers.json")
    if given.redraw:
        draw(given.figures)
        return
    cap = _QUICK_CAP if given.quick else given.cap
    races = {}
    for name in _QUICK_CASES if given.quick else given.cases:
        raced = course(name)
        races[name] = race(raced, entries(given), cap)
        show(raced, races[name])
    for accuracy in ACCURACIES:
        summary(races, accuracy)
    swept = {} if given.no_sweeps else scaling.sweeps(quick=given.quick)
    if given.figures:
        write(given.figures, {name: points(finished) for name, finished in races.items()}, swept)


def write(folder: Path, curves: dict[str, diagrams.Curves], swept: dict[str, list[scaling.Cost]]) -> None:
    """Write the numbers that the figures show, and the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {"races": curves, "sweeps": {name: [vars(cost) for cost in costs] for name, costs in swept.items()}}
    (folder / _NUMBERS).write_text(json.dumps(numbers, indent=1))
    draw(folder)


def draw(folder: Path) -> None:
    """Draw the figures of the numbers in a folder."""
    numbers = json.loads((folder / _NUMBERS).read_text())
    swept = {name: [scaling.Cost(**cost) for cost in costs] for name, costs in numbers["sweeps"].items()}
    for name, figure in diagrams.figures(numbers["races"], swept).items():
        figure.savefig(folder / f"{name}.pdf")
        figure.savefig(folder / f"{name}.png", dpi=150)


def arguments() -> argparse.ArgumentParser:
    parser = options("peers: time to the limit at matched accuracy of the final weights")
    parser.add_argument(
        "--cases", nargs="+", choices=COURSES, default=list(COURSES), metavar="CASE", help=", ".join(COURSES)
    )
    parser.add_argument(
        "--peers", nargs="+", choices=RIVALS, default=list(RIVALS), metavar="PEER", help=", ".join(RIVALS)
    )
    parser.add_argument("--tolerances", nargs="+", type=float, help="rtol of every method that has one")
    parser.add_argument("--cap", type=float, default=10.0, help="seconds that one run of a peer may take (default: 10)")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="where to write the figures, as PDF and PNG")
    parser.add_argument("--redraw", action="store_true", help="only draw again what --figures DIR holds the numbers of")
    parser.add_argument("--no-sweeps", action="store_true", help="leave out the cost against κ and p")
    return parser


def entries(given: argparse.Namespace) -> list[Entry]:
    """Return what is to run, flowsim's default first: all ratios are to it."""
    made = []
    for name in dict.fromkeys(["default", *given.peers]):
        settings = RIVALS[name].settings
        if given.tolerances and RIVALS[name].what == "rtol":
            settings = tuple(given.tolerances)
        if given.quick:
            settings = settings[:_QUICK_SETTINGS]
        made += [Entry(RIVALS[name], setting) for setting in settings]
    return made


def race(raced: Course, started: list[Entry], cap: float) -> list[Entry]:
    """Run every entry once for its error, then all in turns for their times."""
    for before, entry in zip([None, *started], started, strict=False):
        if before is not None and before.rival is entry.rival and too_long(before, cap):
            entry.note = f"> {cap:g} s"
        else:
            first_run(raced, entry, cap)
    for _ in range(ROUNDS):
        for entry in started:
            if entry.seconds and sum(entry.seconds) < _ENOUGH:
                timed(entry)
    return started


def too_long(entry: Entry, cap: float) -> bool:
    """Tell whether the settings after this one, which take longer, are not to be tried."""
    return entry.note.startswith(">") or (bool(entry.seconds) and entry.best > cap)


def first_run(raced: Course, entry: Entry, cap: float) -> None:
    """Compile, run, and compare the final weights with the limit."""
    if raced.case.size > entry.rival.largest:
        entry.note = "p × p"
        return
    try:
        entry.run = entry.rival.start(raced, entry.setting, cap)
        weights = timed(entry)
    except NoResultError as reason:
        entry.note = str(reason)
        return
    entry.error = raced.error(weights)
    if not entry.error < 1:
        entry.note, entry.seconds = "diverged", []
    elif entry.rival.what == "η =":
        sharpness = raced.sharpness(raced.limit)
        entry.sharpness_error = abs(raced.sharpness(weights) - sharpness) / sharpness


def timed(entry: Entry):
    began = time.perf_counter()
    weights = entry.run()
    entry.seconds.append(time.perf_counter() - began)
    return weights


def fastest(finished: Sequence[Entry], error: float) -> Entry | None:
    """Return the fastest entry at least as exact as `error`."""
    exact = [entry for entry in finished if entry.seconds and entry.error <= error]
    return min(exact, key=lambda entry: entry.best, default=None)


def ratio(finished: Sequence[Entry], entry: Entry) -> float:
    """Return an entry's time over that of flowsim's fastest default that is at least as exact."""
    ours = fastest([other for other in finished if other.rival.own], entry.error)
    return math.nan if ours is None else entry.best / ours.best


def show(raced: Course, finished: Sequence[Entry]) -> None:
    columns = ("method", "setting", "error", "ms", "time / flowsim's at that error", "error of the sharpness")
    rows = []
    for entry in finished:
        name = (entry.rival.name, f"{entry.rival.what} {entry.setting:.2g}")
        compared = ratio(finished, entry)
        known = (entry.error, 1e3 * entry.best, "–" if math.isnan(compared) else compared)
        sharpness = "" if math.isnan(entry.sharpness_error) else entry.sharpness_error
        rows.append((*name, *(known if entry.seconds else (entry.note, "", "")), sharpness))
    title = f"{raced.name}: {raced.case.name}, p = {raced.case.size}, to time {raced.end:.4g}; limit: {raced.reference}"
    table(f"{title}, {raced.agreement:.0e} from flowsim's at rtol 1e-11", columns, rows)


def summary(races: dict[str, list[Entry]], accuracy: float) -> None:
    """Print the time of each method's fastest run with that accuracy over that of flowsim's default."""
    title = (
        f"fastest run with an error ≤ {accuracy:.0e}, its time / flowsim's; in brackets: the error, if all are larger"
    )
    ours = [fastest([entry for entry in finished if entry.rival.own], accuracy) for finished in races.values()]
    rows = [("flowsim, default: ms", *("" if entry is None else 1e3 * entry.best for entry in ours))]
    for rival in {entry.rival.name: entry.rival for finished in races.values() for entry in finished}.values():
        if not rival.own:
            rows.append((rival.name, *(cell(finished, rival, accuracy) for finished in races.values())))
    table(title, ("method", *races), rows)


def cell(finished: Sequence[Entry], rival: Rival, accuracy: float) -> object:
    tried = [entry for entry in finished if entry.rival is rival]
    found = fastest(tried, accuracy)
    ours = fastest([entry for entry in finished if entry.rival.own], accuracy)
    if found is not None:
        return found.best / ours.best if ours is not None else math.nan
    coarse = [entry for entry in tried if entry.seconds]
    if coarse:
        best = min(coarse, key=lambda entry: entry.error)
        return f"{ratio(finished, best):.3g} ({best.error:.0e})"
    return tried[0].note


def points(finished: Sequence[Entry]) -> dict[str, list[tuple[float, float]]]:
    """Return error and seconds of every run with a result, by method."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for entry in finished:
        if entry.seconds:
            curves.setdefault(entry.rival.name, []).append((entry.error, entry.best))
    return curves


if __name__ == "__main__":
    main()
