"""A folder held for a sweep from Python: what stands there is a part of that sweep, or is given up."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .results import open_results
from .store import SCENARIO, SWEEP, THEORY, TRAJECTORIES, ResultFolder, StoreError, difference, refuse_obstacles

if TYPE_CHECKING:
    import xarray


@contextmanager
def sweep_folder(folder: Path, attrs: Mapping[str, str], *, overwrite: bool = False) -> Iterator[ResultFolder]:
    """Lock a folder for the sweep that `attrs` describe, and provide it.

    Raises `StoreError` where `folder` holds other results than a part of that sweep, unless `overwrite`, and where it
    cannot be written.
    """
    refuse_obstacles(folder)
    with ResultFolder(folder).locked():
        yield ResultFolder(folder, _other_results(folder, json.loads(attrs.get("sweep", "null")), overwrite))


def _other_results(folder: Path, asked: dict[str, Any] | None, overwrite: bool) -> list[Path]:
    """Return the files in `folder` that are not of the sweep `asked` for; refuse them without `overwrite`.

    The sweep of a scenario is `None`, and as such another than all that are there.
    """
    others = [path for path in (folder / name for name in (SCENARIO, TRAJECTORIES, THEORY)) if path.exists()]
    found = f"{others[0].name} is there" if others else None
    if (folder / SWEEP).exists():
        others.append(folder / SWEEP)
        found = found or (None if overwrite else _unlike(open_results(folder).required("sweep"), asked))
    if found is None and not overwrite:
        return []
    if not overwrite:
        raise StoreError(f"{folder}: holds other results ({found}); write overwrite=True, or give another folder")
    return others


def _unlike(stored: "xarray.Dataset", asked: dict[str, Any] | None) -> str | None:
    """Return in words how a stored sweep differs from one that is asked for, None where it is a part of that."""
    there = json.loads(stored.attrs.get("sweep", "null"))
    if there is None or asked is None:
        return "the sweep of a scenario" if there is None else "another sweep"
    here = json.loads(json.dumps(asked))
    for name, values in there["over"].items():
        if name in here["over"] and all(value in here["over"][name] for value in values):
            here["over"][name] = values
    if here["repetitions"] > there["repetitions"]:
        here["repetitions"] = there["repetitions"]
    return difference(there, here, "the sweep")
