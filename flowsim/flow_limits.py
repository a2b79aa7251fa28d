"""Where the gradient flow would go from the points of a run: the sharpness of its limit from each of them."""

import dataclasses

import jax
import numpy as np

from .dynamics import Trajectory, integrate
from .networks import records as records_of
from .probes import Label
from .sharpness_course import spread_over

LIMIT = Label(
    "flow_sharpness",
    "sharpness of the limit of the gradient flow from here",
    r"sharpness of the flow's limit from here",
    logarithmic=False,
)


@dataclasses.dataclass(frozen=True)
class FlowLimits:
    """The sharpness that the gradient flow would reach from about `records` of the records of a run.

    Kreisler, Nacson, Soudry and Carmon (2023, "Gradient descent monotonically decreases the sharpness of gradient flow
    solutions in scalar networks and beyond") prove that it falls along descent for scalar networks, where the
    sharpness itself rises and swings. Each takes a flow to its limit, within `rtol` as in `integrate`; it is NaN where
    the flow does not converge within `max_steps`. Raises `ValueError` for a number of records below one.
    """

    records: int = 32
    rtol: float | None = None
    max_steps: int = 10_000

    def __post_init__(self):
        if not isinstance(self.records, int) or isinstance(self.records, bool) or self.records < 1:
            raise ValueError(f"records is {self.records!r}: expected from how many points flows begin, 1 or more")

    def added_to(self, run: Trajectory) -> Trajectory:
        """Return a run that kept its weights with the sharpness of the flow's limits, as `flow_sharpness`.

        Raises `ValueError` for a run without its weights, and as `integrate` does.
        """
        if run.path is None:
            raise ValueError("the run did not keep its weights: pass weights=True to integrate or descend")
        times = np.asarray(run.times, float)
        values = np.full(len(times), np.nan)
        for place in spread_over(times, self.records, pairs=False):
            values[place] = self._from(run, place)
        known = {LIMIT.name: jax.device_put(values.astype(np.asarray(run.risk).dtype))}
        return dataclasses.replace(run, diagnostics=run.diagnostics | known, labels=run.labels | {LIMIT.name: LIMIT})

    def _from(self, run: Trajectory, place: int) -> float:
        network = records_of(run.path, np.array(place))
        flow = integrate(network, run.problem, ts=np.empty(0), rtol=self.rtol, max_steps=self.max_steps)
        try:
            return float(flow.final_sharpness) if flow.converged else np.nan
        except RuntimeError:  # not certified
            return np.nan
