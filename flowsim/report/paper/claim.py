"""One thing that the paper says a figure shows, and what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """What a figure is said to show (`text`), the criterion (`expected`), and what was found.

    `measured` is for reading, `numbers` has the same by name. `holds` is `None` where nothing could be measured, or
    where the number is reported without a criterion.
    """

    text: str
    expected: str
    measured: str
    holds: bool | None
    numbers: Mapping[str, float] = field(default_factory=dict)
