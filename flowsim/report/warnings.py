"""What did not go as it should, in sentences: what a reader has to know before any number."""

from collections import Counter
from collections.abc import Iterator, Sequence

import xarray

from ..comparison import edge_statements
from ..dynamics import Outcome
from ..formatting import format_number
from ..results import TheoryResults
from ..results.runs import read_runs
from ..theory import Claim, Statement, Verdict
from .sweeps import runs
from .table import risk_remarks


def warnings_of_runs(dataset: xarray.Dataset) -> Iterator[str]:
    """Yield how each run ended that came neither to its limit nor to what was asked, and what fails at the edge."""
    shown = read_runs(dataset)
    for run in shown.runs:
        if not (run.outcome.converged or run.outcome.as_asked):
            words = run.outcome.name.lower().replace("_", " ")
            at = f"step {run.steps}" if run.outcome == Outcome.DIVERGED else f"t = {format_number(run.end_time, 4)}"
            yield f"{run.run.name}: {words} at {at} ({run.outcome.meaning})"
    yield from risk_remarks(shown)
    for about in edge_statements(dataset):
        for statement in about.statements:
            if statement.verdict is Verdict.FAILS:
                yield f"{about.run.name}: {_fails(statement)}"


def _fails(statement: Statement) -> str:
    return f"{statement.name} fails ({statement.claim})"


def warnings_of_theory(found: TheoryResults) -> Iterator[str]:
    """Yield every statement that fails, once, with the number of flows of which it does."""
    checked = [
        *(one for flow in found.flows for one in flow.statements),
        *(one.statement() for one in found.large_products),
    ]
    failed = Counter(_fails(statement) for statement in checked if statement.verdict is Verdict.FAILS)
    for words, count in failed.items():
        yield words if count == 1 else f"{words}, {count} times"


def warnings_of_sweep(dataset: xarray.Dataset, *, most: int = 10) -> Iterator[str]:
    """Yield which cells of a sweep failed, and how many flows did not reach their limit."""
    failures = runs.failures(dataset)
    for failure in failures[:most]:
        yield f"failed: {failure['cell']}: {failure['message']}"
    if (more := len(failures) - most) > 0:
        yield f"failed: {more} more, which are in summary.json"
    if unconverged := runs.unconverged(dataset):
        yield f"{unconverged} flows did not reach their limit"


def warnings_of_claims(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield the claims of figures that do not hold, with what was measured, and how many are not decided, and why."""
    for claim in claims:
        if claim.verdict is Verdict.FAILS:
            yield f"does not hold: {claim.text} ({claim.measured})"
    for reason, count in Counter(claim.undecided for claim in claims if claim.undecided).items():
        yield f"{count} of {len(claims)} claims are not decided: {reason}"
