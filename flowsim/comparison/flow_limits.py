"""Where the gradient flow would go from the points of a run: the sharpness of its limit from each of them."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..curvature import default_rtol
from ..dynamics import Stopping, Trajectory, integrate
from ..formatting import Progress, ProgressCallback, report_progress
from ..networks import records as records_of, weight_dtype
from ..probes import Label
from .sharpness_along import spread_over, with_columns

LIMIT = Label(
    "limit_sharpness",
    "sharpness of the limit of the gradient flow from here",
    r"sharpness of the flow's limit from here",
    logarithmic=False,
)
ERROR = Label(
    "limit_sharpness_error",
    "estimated error of the sharpness of the limit of the gradient flow from here",
    r"error of the sharpness of the flow's limit",
)
COLUMNS = (LIMIT, ERROR)


@dataclasses.dataclass(frozen=True)
class FlowLimits:
    """The sharpness that the gradient flow would reach from about `records` of the records of a run.

    Kreisler, Nacson, Soudry and Carmon (2023, "Gradient descent monotonically decreases the sharpness of gradient flow
    solutions in scalar networks and beyond") prove that it falls along descent for scalar networks, where the
    sharpness itself rises and oscillates. For each, a flow runs to its limit, within `rtol` as in `integrate`, and
    `closer` times closer to it than by default; it is NaN where the flow does not come to rest within `max_steps`. A
    second flow, with tolerances `looser` times as large, gives the error: the difference of the two, and the tolerance
    to which the eigenvalue is certified. With less than a hundred, steps that are bounded by stability may have the
    same errors in both. Raises `ValueError` for a number of records below one.
    """

    records: int = 32
    rtol: float | None = None
    max_steps: int = 10_000
    looser: float = dataclasses.field(default=100.0, kw_only=True)
    closer: float = dataclasses.field(default=10.0, kw_only=True)

    def __post_init__(self):
        if not isinstance(self.records, int) or isinstance(self.records, bool) or self.records < 1:
            raise ValueError(f"records is {self.records!r}: expected from how many points flows begin, 1 or more")

    def added_to(self, run: Trajectory, *, progress: bool | ProgressCallback = False) -> Trajectory:
        """Return a run that kept its weights with the sharpness of the flow's limits and its error.

        Among its `diagnostics` that is `limit_sharpness` and `limit_sharpness_error`, NaN at the other records.
        `progress`, as in `integrate`, counts the points. Raises `ValueError` for a run without its weights, and as
        `integrate` does.
        """
        if run.path is None:
            raise ValueError("the run did not keep its weights: pass weights=True to integrate or descend")
        times = np.asarray(run.times, float)
        values, errors = np.full((2, len(times)), np.nan)
        chosen = spread_over(times, self.records, pairs=False)
        with report_progress(progress) as report:
            for done, record in enumerate(chosen):
                report(Progress("limits of the flow", done, len(chosen), "points"))
                values[record], errors[record] = self._limit_from(run, record)
        dtype = np.asarray(run.risk).dtype
        return with_columns(run, {LIMIT: values.astype(dtype), ERROR: errors.astype(dtype)})

    def _limit_from(self, run: Trajectory, record: int) -> tuple[float, float]:
        network = records_of(run.path, np.array(record))
        value, looser = (self._limit(network, run, factor) for factor in (1.0, self.looser))
        return value, abs(value - looser) + default_rtol(weight_dtype(network)) * abs(value)

    def _limit(self, network: PyTree, run: Trajectory, looser: float) -> float:
        """Return the sharpness of the limit, with tolerances that are so many times looser; NaN where there is none."""
        single = weight_dtype(network).itemsize < 8
        rtol, gradient_norm, remaining = (1e-4, 1e-4, 1e-3) if single else (1e-6, 1e-8, 1e-6)
        rtol = rtol if self.rtol is None else self.rtol
        stopping = Stopping(
            gradient_norm=gradient_norm * looser / self.closer, remaining=remaining * looser / self.closer
        )
        options: dict[str, Any] = {"rtol": min(rtol * looser, 0.1), "max_steps": self.max_steps}
        flow = integrate(network, run.problem, ts=np.empty(0), stopping=stopping, **options)
        try:
            return float(flow.final_sharpness) if flow.outcome.settled else np.nan
        except RuntimeError:  # not certified
            return np.nan
