"""Results read back from the folder that a run left: the data sets, the scenario and the summary."""

import re
import reprlib
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formatting.presentation import Shown, view_of
from ..kinds.registry import OUTSIDE
from ..runtime.paths import user_path
from .reading import AGAIN, ForeignContentError, StoreError, damaged, read_dataset, read_json, read_yaml, refuse_missing
from .schema import faults_of_sweep, faults_of_texts, faults_of_trajectories
from .store import SCENARIO, SUMMARY, SWEEP, THEORY, TRAJECTORIES, copy_results
from .theory import faults_of_theory

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DATASETS = {
    "trajectories": (TRAJECTORIES, faults_of_trajectories),
    "sweep": (SWEEP, faults_of_sweep),
    "theory": (THEORY, faults_of_theory),
}
"""The file of each data set, and what speaks against its content."""


@dataclass(frozen=True, repr=False)
class Results(Shown):
    """What stands in a folder of results; a data set that the run did not make is `None`.

    `comparison` and `swept` answer as the `Comparison`, the `Trajectory` and the `Sweep` that were stored do, but for
    networks and weights, which are not stored.

    Printed, it is the tables of the command line, and so it is in a notebook; `repr` is a line. Nothing is computed.
    `left_out` names the figures that are not drawn without `trust`.
    """

    folder: Path
    """The folder."""
    trajectories: "xarray.Dataset | None"
    """The runs from one initialization over (run, record)."""
    sweep: "xarray.Dataset | None"
    """Those of a grid over (grid, repetition, run)."""
    theory: "xarray.Dataset | None"
    """The statements that were checked."""
    trust: bool = False
    """Whether modules other than flowsim's own may be imported, for a figure that needs one."""

    @property
    def comparison(self) -> Any:
        """The runs from one initialization, a `flowsim.report.StoredRuns`: it shows itself as a `Comparison` does."""
        return view_of(self).comparison

    @property
    def swept(self) -> Any:
        """The runs of a grid, a `flowsim.report.StoredSweep`: it shows itself as a `flowsim.Sweep` does."""
        return view_of(self).swept

    @property
    def _main(self) -> Any:
        """What a question about one data set is answered by. Raises `StoreError` where there is neither."""
        main = self.swept or self.comparison
        if main is None:
            raise StoreError(f"{self.folder}: holds no runs, only statements of the theory: look at .theory; {AGAIN}")
        return main

    def to_dataset(self) -> "xarray.Dataset":
        """Return the labelled arrays: those of the sweep where there is one, of the runs otherwise.

        Raises `StoreError` for results that are statements of the theory alone, as `to_dataframe` and `plot` do.
        """
        return self._main.to_dataset()

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the data set of `to_dataset` as a table of pandas: see `Comparison` and `Sweep`."""
        return self._main.to_dataframe()

    def plot(self, quantity: str, ax: "Axes | None" = None) -> "Axes":
        """Draw one quantity of the data set of `to_dataset`: see `Comparison` and `Sweep`."""
        return self._main.plot(quantity, ax)

    def figures(self) -> "dict[str, Figure]":
        """Return all figures by name: those of each data set, and those that the scenario asks for."""
        return view_of(self).figures()

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write a copy of the results into `folder`, and return the paths of its files.

        Raises `StoreError` where the folder holds something, unless `overwrite`, and where it cannot be written.
        """
        return copy_results(self.folder, user_path(folder), overwrite=overwrite)

    def __repr__(self) -> str:
        parts = [repr(part) for part in (self.comparison, self.swept) if part is not None]
        parts += [] if self.theory is None else ["statements of the theory"]
        return f"Results({str(self.folder)!r}: {', '.join(parts)})"

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario that ran, every default filled in; empty for results that no scenario made."""
        return self._run["scenario"]

    @property
    def environment(self) -> dict[str, Any]:
        """The versions, the device and the platform that it ran on."""
        return self._run["environment"]

    @property
    def comment(self) -> str:
        """What the scenario's file says of itself in its first lines: a title, then what it shows; or nothing."""
        return self._run["comment"]

    @property
    def is_first_look(self) -> bool:
        """Whether the sweep took fewer steps and repetitions than it was to, as `--quick` makes it."""
        sweep = self.scenario.get("sweep")
        return isinstance(sweep, dict) and bool(sweep.get("first_look"))

    @property
    def asked_figures(self) -> tuple[str, ...]:
        """The names of the figures that the scenario asks for, but for those `left_out`."""
        return tuple(name for name in self._run["figures"] if name not in self.left_out)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The figures in modules that are not flowsim's, which are run only where these results are trusted."""
        outside = (name for name in self._run["figures"] if re.fullmatch(OUTSIDE, name))
        return () if self.trust else tuple(name for name in outside if not name.startswith("flowsim."))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The numbers of the tables. Raises `StoreError` where there is no legible summary."""
        return read_json(self.folder / SUMMARY)

    def required(self, name: str) -> "xarray.Dataset":
        """Return the data set `name`: trajectories, sweep or theory. Raises `StoreError` where there is none."""
        found = {"trajectories": self.trajectories, "sweep": self.sweep, "theory": self.theory}[name]
        if found is None:
            raise StoreError(f"{self.folder / _DATASETS[name][0]}: is missing, and needed for what is asked; {AGAIN}")
        return found

    @cached_property
    def _run(self) -> dict[str, Any]:
        """The scenario, the environment, the comment, and the names of all figures that the scenario asks for.

        Raises `StoreError` for a file that holds something else in their place.
        """
        path = self.folder / SCENARIO
        stored = read_yaml(path) if path.exists() else {}
        scenario, environment = (stored.get(name) or {} for name in ("scenario", "environment"))
        sections = {"scenario": scenario, "environment": environment}
        if isinstance(scenario, dict):
            sections |= {name: scenario.get(name) or {} for name in ("data", "network")}
        for name, section in sections.items():
            if not isinstance(section, dict):
                raise damaged(path, ValueError(f"{name} is {reprlib.repr(section)}, not a section of keys"))
        figures = scenario.get("figure")
        figures = [figures] if isinstance(figures, str) else figures or []
        if not isinstance(figures, list) or not all(isinstance(name, str) for name in figures):
            raise damaged(path, ValueError(f"figure is {reprlib.repr(figures)}, not a list of names"))
        comment = stored.get("comment") or ""
        if not isinstance(comment, str):
            raise damaged(path, ValueError(f"comment is {reprlib.repr(comment)}, not a text"))
        return {"scenario": scenario, "environment": environment, "comment": comment, "figures": tuple(figures)}


def open_results(folder: str | Path, *, trust: bool = False) -> Results:
    """Read the results in `folder`, as `python -m flowsim` and `Comparison.save` leave them.

    Args:
        folder: Where they lie.
        trust: Whether modules of the scenario's author are imported, which runs what stands in them, for the figures
            that the scenario asks for. Otherwise these are left out, and named in `left_out`.

    Returns:
        What is stored there, which shows itself as what was saved did.

    Raises:
        StoreError: With one line that says what to do, for a folder without results, and for files that are damaged or
            hold what flowsim does not write.

    Examples:
        >>> import tempfile, flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> folder = tempfile.mkdtemp() + "/mine"
        >>> both = flowsim.compare(jnp.array([1.0, 1.0]), bowl, [0.1], steps=50)
        >>> _ = both.save(folder)
        >>> print(flowsim.open_results(folder).trajectories["dynamics"].values)
        ['gradient_flow' 'gradient_descent']
    """
    folder = user_path(folder)
    refuse_missing(folder)
    found: dict[str, Any] = dict.fromkeys(_DATASETS)
    for name, (file, faults) in _DATASETS.items():
        path = folder / file
        if path.exists():
            found[name] = stored = read_dataset(path)
            if (fault := next(chain(faults_of_texts(stored), faults(stored)), None)) is not None:
                raise damaged(path, ForeignContentError(fault))
    if not any(dataset is not None for dataset in found.values()):
        names = ", ".join(file for file, _ in _DATASETS.values())
        raise StoreError(f"{folder}: holds none of {names}; give the folder of one scenario's results, or {AGAIN}")
    return Results(folder, **found, trust=trust)
