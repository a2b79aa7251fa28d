"""Which run of a data set is which: its dynamics and its learning rate, coordinates along the dimension `run`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray

RUN, DYNAMICS, LEARNING_RATE = "run", "dynamics", "learning_rate"
THRESHOLD, CURVATURE = "stability_threshold", "threshold_of"
SHARPNESS = "sharpness"
GRADIENT_FLOW, GRADIENT_DESCENT = "gradient_flow", "gradient_descent"
_ABBREVIATIONS = {GRADIENT_FLOW: "GF", GRADIENT_DESCENT: "GD"}


@dataclass(frozen=True)
class Edge:
    """The `threshold` up to which a run is stable, NaN where it is not known, and of which `curvature` it is one."""

    threshold: float
    curvature: str = SHARPNESS


@dataclass(frozen=True)
class Run:
    """A run by its dynamics, under the name that YAML knows it by, and its learning rate, `None` where it has none.

    `index` is the place of its learning rate among the `count` learning rates of the same dynamics. `own_edge` is its
    edge of stability where that is another than the sharpness 2/η of gradient descent.
    """

    dynamics: str
    learning_rate: float | None = None
    index: int = 0
    count: int = 1
    own_edge: Edge | None = None

    @property
    def is_flow(self) -> bool:
        """Whether this is the gradient flow, beside which the other runs are seen."""
        return self.dynamics == GRADIENT_FLOW

    @property
    def is_descent(self) -> bool:
        """Whether this is gradient descent, which in a table and a legend goes by its learning rate alone."""
        return self.dynamics == GRADIENT_DESCENT

    @property
    def method(self) -> str:
        """The dynamics in a word or two: GF, GD, and for `my_module:HeavyBall` HeavyBall."""
        words = self.dynamics.rpartition(":")[2].replace("_", " ")
        return _ABBREVIATIONS.get(self.dynamics, words)

    @property
    def name(self) -> str:
        """What tables call it: GF, η = 0.02, or HeavyBall, η = 0.02."""
        return self._named("η = {:.3g}")

    @property
    def label(self) -> str:
        """What legends call it, as `name` in Matplotlib's mathematics."""
        return self._named(r"$\eta = {:.3g}$")

    @property
    def edge(self) -> Edge:
        """The edge of stability: its own, or the sharpness 2/η; infinite where there is no learning rate."""
        if self.own_edge is not None:
            return self.own_edge
        return Edge(np.inf if self.learning_rate is None else 2 / self.learning_rate)

    @property
    def threshold(self) -> float:
        """The sharpness at which the run leaves a minimum: 2/η for gradient descent; infinite without a learning rate.

        NaN where it is not known, or decided by another curvature.
        """
        return self.threshold_of(SHARPNESS)

    def threshold_of(self, curvature: str) -> float:
        """Return the threshold of a curvature by its name, NaN where that is not what the edge is of."""
        return self.edge.threshold if self.edge.curvature == curvature else np.nan

    def _named(self, form: str) -> str:
        if self.learning_rate is None:
            return self.method
        rate = form.format(self.learning_rate)
        return rate if self.is_descent else f"{self.method}, {rate}"


FLOW = Run(GRADIENT_FLOW)


def run_coordinates(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the coordinates of `runs` along the dimension `run`: dynamics, and learning rate, NaN where there is none.

    The thresholds of stability, and the curvatures that they are of, are there where one is not the sharpness 2/η.
    Nothing where there are no runs.
    """
    if not runs:
        return {}
    rates = np.array([np.nan if run.learning_rate is None else run.learning_rate for run in runs], float)
    known: dict[str, Any] = {
        DYNAMICS: (RUN, [run.dynamics for run in runs], {"long_name": "dynamics", "units": "1"}),
        LEARNING_RATE: (RUN, rates, {"long_name": "learning rate η", "units": "1"}),
    }
    if all(run.own_edge is None for run in runs):
        return known
    edges = [run.edge for run in runs]
    meaning = "curvature up to which a quadratic mode is stable, NaN where it is not known"
    known[THRESHOLD] = (RUN, np.array([edge.threshold for edge in edges]), {"long_name": meaning, "units": "1"})
    named = {"long_name": "the curvature that the threshold is of", "units": "1"}
    return known | {CURVATURE: (RUN, [edge.curvature for edge in edges], named)}


def runs_of(dataset: "xarray.Dataset") -> tuple[Run, ...]:
    """Return the runs of a data set, in its order."""
    if RUN not in dataset.dims:
        return ()
    names = [str(name) for name in dataset[DYNAMICS].values]
    rates = dataset[LEARNING_RATE].values.astype(float)
    ranks = {name: np.sort(rates[[other == name for other in names]]) for name in names}
    return tuple(
        Run(name, None, 0, len(ranks[name]))
        if np.isnan(rate)
        else Run(name, float(rate), int(np.searchsorted(ranks[name], rate)), len(ranks[name]), edge)
        for name, rate, edge in zip(names, rates, _own_edges(dataset), strict=True)
    )


def _own_edges(dataset: "xarray.Dataset") -> list[Edge | None]:
    """Return the edge of stability of every run where it is not the sharpness 2/η."""
    if THRESHOLD not in dataset.coords:
        return [None] * dataset.sizes[RUN]
    known = zip(dataset[THRESHOLD].values.tolist(), dataset[CURVATURE].values, strict=True)
    edges = [Edge(threshold, str(curvature)) for threshold, curvature in known]
    rates = dataset[LEARNING_RATE].values.tolist()
    return [None if edge == Edge(2 / rate) else edge for edge, rate in zip(edges, rates, strict=True)]


def place_of(dataset: "xarray.Dataset", run: Run) -> int:
    """Return where `run` stands along the dimension `run`. Raises `KeyError` where the data set does not have it."""
    known = [(other.dynamics, other.learning_rate) for other in runs_of(dataset)]
    if (run.dynamics, run.learning_rate) not in known:
        raise KeyError(f"no run of {run.name} here: there are {', '.join(other.name for other in runs_of(dataset))}")
    return known.index((run.dynamics, run.learning_rate))
