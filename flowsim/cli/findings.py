"""What came of a job, stored as it was found; and the document of what is stored."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..comparison import Comparison
from ..formatting.terminal import printable
from ..results import SWEEP, THEORY, ResultFolder, TheoryResults, open_results, theory_to_dataset
from ..scenarios import environment, resolved
from ..sweeps import SweepResults
from .jobs import Job

if TYPE_CHECKING:
    from ..report import Document


@dataclass(frozen=True)
class Findings:
    """What came of a job."""

    comparison: Comparison | None
    theory: TheoryResults | None
    sweep: SweepResults | None


def store(job: Job, found: Findings) -> list[Path]:
    """Write the scenario and the data sets into the folder of the job, and return their paths.

    What is not known yet, such as the sharpness at the end, is measured first. Raises `StoreError` as the folder does.
    """
    content = resolved(job.scenario)
    attributes = {"scenario": json.dumps(content)}
    trajectories = None if found.comparison is None else found.comparison.to_dataset(attributes)
    paths = [job.folder.write_scenario(content, environment())]
    if trajectories is not None:
        paths.append(job.folder.write_dataset(trajectories))
    if found.theory is not None:
        paths.append(job.folder.write_dataset(theory_to_dataset(found.theory, attributes), THEORY))
    if found.sweep is not None:
        paths.append(job.folder.write_dataset(found.sweep.dataset, SWEEP))
    return paths


def report(folder: ResultFolder, name: str, written: list[Path], console: Console, *, trust: bool = True) -> "Document":
    """Make the document of what is stored in `folder`, write it there, print it, and return it.

    What a scenario asks for that was just run is trusted.
    """
    with console.status(f"{name}: tables, figures and page"):
        from ..formatting.fitting import fitted  # not above: what only stores needs no Matplotlib
        from ..report import document

        made = document(open_results(folder.path, trust=trust), name)
        written = [*written, *made.write(folder)]
    for table in made.tables:
        console.print(fitted(table, console.width))
    for path in written:
        console.print(f"wrote {printable(str(path))}", soft_wrap=True, highlight=False, markup=False)
    return made
