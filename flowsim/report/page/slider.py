"""A page on which a slider goes through the learning rates of stored runs: what descent does at each of them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from ...columns import RecordedRun
from ...comparison import Comparison
from ...formatting import format_number
from ...results import Results, open_results
from ...results.store import write_atomically
from ...runtime.paths import user_path
from ..panels import INK, PATH, Axis, Curve, Guide, Key, Panel, TrajectoryPanels, plane_panels
from ..panels.panel import LABELS, axis_over
from ..views import StoredRuns
from .page import rendered
from .render import Group, plain

_SCRIPTS = ("draw.js", "view.js", "slider.js")
_ABOUT = (
    "The slider goes through the learning rates. The plots show the runs of one, and the gradient flow as a thick "
    "line; they keep their scales, so that what moves is what the learning rate changes."
)
_ENDS = Key("ends", "descent, at its end", "descent", {"color": "0.45", "linewidth": 1.0, "marker": "o"})


def slider(
    runs: "Comparison | StoredRuns | Results | str | Path", path: str | Path, *, title: str = "Learning rates"
) -> Path:
    """Write a page with a slider through the learning rates of `runs`, and return its path.

    The page is one file, which opens in any browser without a network. At each learning rate it shows the sharpness
    against time with the edge of stability, 2/η of gradient descent, how far the runs came, and where all descents
    ended over η. With the probe `flowsim.probes.Path` it also shows the path of the weights in a plane: of two weights
    that of the weights themselves, of more that of the two principal components of all paths. Nothing is computed.

    Args:
        runs: A comparison, what `open_results` returns, or the folder of stored runs.
        path: The file, as "slider.html"; one that is there is replaced.
        title: The heading of the page.

    Returns:
        The path of the file.

    Raises:
        ValueError: For runs with fewer than two learning rates.
        StoreError: Where the folder holds no runs from one initialization, or the file cannot be written.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> both = flowsim.compare(jnp.array([1.0, 1.0]), bowl, [0.1, 0.3], steps=50, probes=[flowsim.probes.Path()])
        >>> print(flowsim.slider(both, "slider.html"))
        slider.html
    """
    if isinstance(runs, str | Path):
        runs = open_results(runs)
    dataset = runs.required("trajectories") if isinstance(runs, Results) else runs.to_dataset()
    html = slider_page(dataset, title)
    return write_atomically(user_path(path), lambda temporary: temporary.write_text(html, encoding="utf-8"))


def slider_page(dataset: xarray.Dataset, title: str) -> str:
    """Return the page of a data set of trajectories as HTML. Raises `ValueError` for fewer than two learning rates."""
    panels = TrajectoryPanels.of(dataset)
    rates = sorted({run.run.learning_rate for run in panels.shown.others if run.run.learning_rate is not None})
    if len(rates) < 2:
        found = ", ".join(f"{rate:g}" for rate in rates) or "none"
        raise ValueError(f"a slider goes through two learning rates or more, found {found}: compare(..., [0.02, 0.1])")
    drawn = [panels.panel(name) for name in ("sharpness", panels.measure_of_progress)]
    drawn[1:1] = [*(plane_panels(panels)[:1] if PATH in dataset else ()), _ends(panels, rates)]
    keys = [*panels.keys, _ENDS]
    content = Group("rates", title, _ABOUT, drawn, keys).content()
    content["rates"] = plain([_at(panels, rate) for rate in rates])
    return rendered(
        "slider.html",
        title=title,
        group=content,
        rates=content["rates"],
        content=content,
        scripts=_SCRIPTS,
    )


def _at(panels: TrajectoryPanels, rate: float) -> dict[str, Any]:
    """Return which keys are shown at a learning rate, with their sharpness at the end, and what is said of the runs."""
    there = [(key, run) for key, run in panels.keyed_runs if run.run.learning_rate == rate]
    said = "; ".join(_said(run) for _, run in there)
    ends = {key.name: run.number("final_sharpness") for key, run in there if not (run.run.models or run.run.fork)}
    return {"rate": rate, "keys": [key.name for key, _ in there], "ends": ends, "said": said}


def _said(run: RecordedRun) -> str:
    """Return in words how a run ended, and how sharp it is there beside its edge."""
    ended, sharp = run.outcome.words, run.number("final_sharpness")
    edge = run.last_threshold
    said = [f"{run.run.name}: {ended}"]
    said += [f"S = {format_number(sharp, 4)} at the end"] if math.isfinite(sharp) else []
    said += [f"edge {format_number(edge, 4)}"] if math.isfinite(edge) else []
    return ", ".join(said)


def _ends(panels: TrajectoryPanels, rates: Sequence[float]) -> Panel:
    """Return the panel of the sharpness at the ends of all descents over their learning rates, with their edges."""
    descents = [run for run in panels.shown.by_rate if not (run.run.models or run.run.fork)]
    y = np.array([run.number("final_sharpness") for run in descents], float)
    curves = []
    for dynamics in dict.fromkeys(run.run.dynamics for run in descents):
        alike = [run for run in descents if run.run.dynamics == dynamics]
        x = np.array([run.run.learning_rate for run in alike], float)
        curves.append(Curve(_ENDS, x, np.array([run.number("final_sharpness") for run in alike], float), marks=x))
        edges = np.array([run.last_threshold for run in alike], float)
        if all(run.run.has_edge_of_descent and not run.is_scheduled for run in alike):
            x = np.unique([*x, *np.geomspace(x.min(), x.max(), 100)])
            edges = 2 / x
        curves.append(Curve(Key(INK, "", "", {"color": "0.3"}), x, edges))
    guides = [
        Guide(sharp, key, words="gradient flow")
        for key, run in panels.keyed_runs
        if run.run.is_flow and math.isfinite(sharp := run.number("final_sharpness"))
    ]
    top = max([*y[np.isfinite(y)], *(guide.value for guide in guides), 0.0]) or 1.0
    across = axis_over(r"$\eta$", "learning rate η", np.array(rates))
    up = Axis(LABELS["sharpness"], "sharpness S at the end", (0.0, 1.15 * top))
    return Panel(
        "ends",
        "Where descent ends",
        "sharpness at the ends of descents that did not diverge, dotted their edges of stability, dashed the flow's",
        across,
        up,
        tuple(curves),
        tuple(guides),
        told=(("η", "x"), ("S", "y")),
    )
