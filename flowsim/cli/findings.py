"""What came of a job: as tables, as a summary, and as files."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from .. import report
from ..comparison import Comparison
from ..experiments import SWEEP, SweepResults, TheoryResults, environment, resolved
from .jobs import Job

_MOST_FAILURES = 10


@dataclass(frozen=True)
class Findings:
    """What came of a job."""

    comparison: Comparison | None
    theory: TheoryResults | None
    sweep: SweepResults | None
    claims: tuple[report.Claim, ...] = ()

    @property
    def code(self) -> int:
        """The exit code: 0 where everything arrived where it should, else 1."""
        lost = self.comparison is not None and not self.comparison.flow.converged
        failed = self.theory is not None and self.theory.failed
        incomplete = self.sweep is not None and bool(self.sweep.failures or self.sweep.unconverged)
        return int(lost or failed or incomplete)


def tables(job: Job, found: Findings) -> list[Any]:
    """Return what is to be printed."""
    made = []
    if found.comparison is not None:
        made.append(report.render(found.comparison, title=job.name))
    if found.theory is not None:
        made += report.theory_tables(found.theory, title=job.name)
    if found.sweep is not None:
        made.append(report.sweep_table(found.sweep.dataset, title=job.name))
        if found.claims:
            title = f"{job.name}: what the paper says, and what was measured"
            made.append(report.claims_table(found.claims, title=title))
        made += _complaints(found.sweep)
    return made


def _complaints(sweep: SweepResults) -> Iterator[Text]:
    """Say what a sweep lacks."""
    for failure in sweep.failures[:_MOST_FAILURES]:
        yield Text(f"failed: {failure.cell}: {failure.message}")
    if (more := len(sweep.failures) - _MOST_FAILURES) > 0:
        yield Text(f"failed: {more} more, which are in summary.json")
    if sweep.unconverged:
        yield Text(f"{sweep.unconverged} flows did not reach their limit")


def write(job: Job, found: Findings) -> list[Path]:
    """Write all files into the folder of the job, and return their paths. Raises `StoreError` as the folder does."""
    folder, content = job.folder, resolved(job.scenario)
    attributes = {"scenario": json.dumps(content)}
    # All that can fail for another reason than the disk comes before the first file.
    summary, figures = _summary(job, found), _figures(job, found)
    trajectories = None if found.comparison is None else report.dataset(found.comparison, attributes)
    paths = [folder.write_scenario(content, environment()), folder.write_summary(summary)]
    if trajectories is not None:
        paths.append(folder.write_dataset(trajectories))
    if found.sweep is not None:
        paths.append(folder.write_dataset(found.sweep.dataset, SWEEP))
    for name, figure in figures.items():
        paths.extend(folder.write_figure(name, figure))
    return paths


def _summary(job: Job, found: Findings) -> dict[str, Any]:
    summary = {} if found.comparison is None else report.summary(found.comparison)
    summary["theory"] = None if found.theory is None else report.theory_summary(found.theory)
    if found.sweep is not None:
        failures = [{"cell": failure.cell, "message": failure.message} for failure in found.sweep.failures]
        summary["sweep"] = report.sweep_summary(found.sweep.dataset) | {"failures": failures}
        if found.claims:
            summary["claims"] = report.claims_summary(found.claims)
    return summary


def _figures(job: Job, found: Findings) -> dict[str, Any]:
    figures = {} if found.comparison is None else report.figures(found.comparison)
    if found.theory is not None:
        figures |= report.theory_figures(found.theory)
    if found.sweep is None:
        return figures
    if (number := job.scenario.figure) is not None:
        return figures | {f"figure{number}": report.paper_figure(number, found.sweep.dataset, found.comparison)}
    return figures | {f"sweep_{name}": figure for name, figure in report.sweep_figures(found.sweep.dataset).items()}
