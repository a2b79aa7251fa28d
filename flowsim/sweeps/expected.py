"""How much work a sweep is, before any of it is done."""

from dataclasses import dataclass
from pathlib import Path

from ..scenarios.runner import environment
from ..scenarios.scenario import Scenario
from .block import plan
from .store import BlockStore


@dataclass(frozen=True)
class SweepWork:
    """The blocks of a sweep, how many of them are `stored`, and about the `seconds` that the others take one core.

    `structures` is how many shapes of network and data there are among those: each is compiled for.
    """

    blocks: int
    stored: int
    seconds: float
    structures: int


def sweep_work(scenario: Scenario, folder: Path, store: BlockStore) -> SweepWork:
    """Plan the sweep of a scenario, and look which of its blocks are stored; nothing is computed or written."""
    here = environment()
    blocks = [placed.block for placed in plan(scenario, folder)]
    missing = [block for block in blocks if not store.holds(block.address(here))]
    seconds, structures = sum(block.cost for block in missing), len({block.structure for block in missing})
    return SweepWork(len(blocks), len(blocks) - len(missing), seconds, structures)
