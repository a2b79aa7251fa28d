"""Results on disk: every file appears whole or not at all, and never among those of another scenario."""

import errno
import io
import json
import math
import os
import re
import reprlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from filelock import FileLock, Timeout

from ..formatting.terminal import utf8
from ..runtime.signals import ending_held
from .reading import StoreError as StoreError, read_bytes, read_yaml

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

SCENARIO, SUMMARY, TRAJECTORIES, FIGURES = "scenario.yaml", "summary.json", "trajectories.nc", "figures"
SWEEP, THEORY, PAGE, _LOCK = "sweep.nc", "theory.nc", "report.html", ".lock"
BLOCKS = ".blocks"  # next to the folders of results, and shared by them
FONTS: dict[Any, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42}
"""Settings of Matplotlib for TrueType fonts: journals and conferences refuse Type 3, its default."""
_TEMPORARY = re.compile(r"\..*-[0-9a-f]{16}(\.\w+)?", re.DOTALL)


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Call `write` with a temporary path, then move what it wrote to `path` in one step; return `path`.

    The temporary file stands in the same folder, starts with a dot, and keeps the suffix, by which some
    writers choose a format. Whatever stops the writing, an interrupt included, leaves neither it nor a new
    folder behind, and an older file at `path` as it was. Raises `StoreError` where that fails: no
    permission, a full disk, a folder of that name.
    """
    # The stem is cut because a name near the system's longest would leave no room for the random part.
    temporary = path.with_name(f".{path.stem[:40]}-{secrets.token_hex(8)}{path.suffix}")
    with _writing(path):
        try:
            write(temporary)
            _sync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        with suppress(OSError):  # some systems cannot sync a folder; the file itself is safe by now
            _sync(path.parent)
    return path


def remove_temporaries(folder: Path, *, seconds: float = 0) -> None:
    """Remove what runs that were killed in the middle of a write left in `folder`, if it is older than so long.

    Files are written into `folder` and the folders in it, and nowhere else: links and deeper folders are not followed.
    """
    if not folder.is_dir():
        return
    inside = [place for place in folder.iterdir() if place.is_dir() and not place.is_symlink()]
    for path in (path for place in (folder, *inside) for path in place.glob(".*-*")):
        if _TEMPORARY.fullmatch(path.name):
            with suppress(OSError):  # another run may have been faster
                if time.time() - path.lstat().st_mtime >= seconds:
                    path.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[list[Path]]:
    """Make the folder of a file that is to be written, and provide the folders that are made for it.

    They are taken away again if the body fails. Raises `StoreError` for an `OSError`.
    """
    missing: list[Path] = []
    try:
        missing += [place for place in path.parents if not place.exists()]  # the innermost first
        path.parent.mkdir(parents=True, exist_ok=True)
        yield missing
    except BaseException as error:
        for made in missing:
            with suppress(OSError):  # another process may have written there meanwhile
                made.rmdir()
        if not isinstance(error, OSError):
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room and run this again, or use another --out" if full else "use another --out"
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}; {remedy}") from error


def _sync(path: Path) -> None:
    # A writable descriptor, where a file has one: Windows refuses to sync any other.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def netcdf(dataset: "xarray.Dataset") -> memoryview:
    """Return a data set as netCDF.

    Runs are padded with NaN to the length of the longest: a large variable that is mostly padding is compressed.
    """
    padded = [
        name
        for name, variable in dataset.variables.items()
        if variable.nbytes > 2**16 and variable.dtype.kind == "f" and np.isnan(variable.values).mean() > 0.5
    ]
    return memoryview(dataset.to_netcdf(engine="h5netcdf", encoding={name: {"zlib": True} for name in padded}))


@dataclass
class ResultFolder:
    """The folder of one scenario's results; it comes into being with the first file written.

    Files of other results are removed once the first new file is complete, just before it gets its name: at no moment
    do results stand with a scenario that they are not of.
    """

    path: Path
    """The folder."""
    find_others: Callable[[], list[Path]] = list
    """Returns the files of other results. Raises `StoreError` where they are to stay."""
    _others: list[Path] = field(default_factory=list)
    _held: os.stat_result | None = None  # the file that locks the folder, while it is locked

    @property
    def holds_results(self) -> bool:
        """Whether there are results in it already."""
        return (self.path / SCENARIO).exists()

    @property
    def holds_other_results(self) -> bool:
        """Whether there are results of another scenario, which writing replaces."""
        return bool(self._others)

    def look(self) -> None:
        """Look for other results. Raises `StoreError` where they are to stay."""
        self._others = self.find_others()

    def write_scenario(self, resolved: Mapping[str, Any], environment: Mapping[str, Any], comment: str = "") -> Path:
        """Write scenario.yaml: what ran, under which versions, device and precision, and what its author says of it."""
        said = {"comment": comment} if comment else {}
        content = said | {"scenario": plain(resolved), "environment": plain(environment)}
        return self.write(SCENARIO, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    def write_summary(self, summary: Mapping[str, Any]) -> Path:
        """Write summary.json. JSON has neither NaN nor infinity: both become null."""
        text = json.dumps(plain(summary, null=True), indent=2, ensure_ascii=False, allow_nan=False)
        return self.write(SUMMARY, text + "\n")

    def write_dataset(self, dataset: "xarray.Dataset", name: str = TRAJECTORIES) -> Path:
        """Write trajectories.nc, sweep.nc or theory.nc, in netCDF."""
        # HDF5 that meets a full disk can take the process down with it, so it writes to memory.
        # Let go of at once, also where writing fails: Python 3.12 and 3.13 meet a view that a traceback kept with a
        # complaint at exit, or a crash.
        with netcdf(dataset) as content:
            return self.write(name, content)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder meanwhile. Raises `StoreError` where one is in it already.

        The system opens the lock when the process ends, however it ends.
        """
        path, made = self.path / _LOCK, []
        with ending_held():
            lock = FileLock(path, timeout=0)
        try:
            with ending_held(), _writing(path) as made:
                try:
                    lock.acquire()
                except Timeout:
                    busy = f"{self.path}: another run is at work there; wait for it, or use another --out"
                    raise StoreError(busy) from None
                self._held = path.stat()
            # Whoever held the lock since the folder was opened may have left results.
            self.look()
            remove_temporaries(self.path)
            yield
        finally:
            if lock.is_locked:
                with ending_held():
                    if self._is_locked():  # else the file is another run's, in another folder of this name
                        path.unlink(missing_ok=True)
                    self._held = None
                    lock.release()
                    for folder in made:
                        with suppress(OSError):  # not empty: there are results
                            folder.rmdir()

    def _is_locked(self) -> bool:
        """Whether the folder at this path is still the one that was locked: it may have been removed or replaced."""
        try:
            return self._held is not None and os.path.samestat(self._held, (self.path / _LOCK).stat())
        except OSError:
            return False

    def write_figure(self, name: str, figure: "Figure") -> list[Path]:
        """Write figures/name.png and figures/name.pdf; the same figure gives the same bytes."""
        import matplotlib  # not above: what only stores needs no Matplotlib

        kinds = {"png": {"dpi": 200, "metadata": {"Software": None}}, "pdf": {"metadata": {"CreationDate": None}}}
        paths = []
        for suffix, options in kinds.items():
            # Drawn in memory: Matplotlib's PDF writer fails in another way than the disk that it meets full.
            drawn = io.BytesIO()
            with matplotlib.rc_context(FONTS):
                figure.savefig(drawn, format=suffix, **options)
            paths.append(self.write(f"{FIGURES}/{name}.{suffix}", drawn.getvalue()))
            figure.set_layout_engine("none")  # as it is laid out by now
        return paths

    def write(self, name: str, content: str | bytes | memoryview) -> Path:
        """Write a file of results. Raises `StoreError` where it cannot be written, or the folder is another one now."""
        if self._held is not None and not self._is_locked():
            remedy = "run this again, and leave the folder in place meanwhile"
            raise StoreError(f"{self.path}: was removed or replaced by another program; {remedy}")
        content = utf8(content) if isinstance(content, str) else content

        def fill(temporary: Path) -> None:
            with temporary.open("wb") as file:  # `Path.write_bytes` makes a view of its own, which a traceback keeps
                file.write(content)
            while self._others:
                self._others.pop(0).unlink(missing_ok=True)

        return write_atomically(self.path / name, fill)


def result_folder(out: Path, name: str, resolved: Mapping[str, Any], overwrite: bool = False) -> ResultFolder:
    """Return the folder for the results of a scenario, having written nothing.

    Args:
        out: The folder in which it lies.
        name: Its own name, that of the scenario.
        resolved: The scenario, every default filled in.
        overwrite: Whether results of a different scenario are replaced.

    Returns:
        The folder `out/name`.

    Raises:
        StoreError: If the folder could not be written, and, without `overwrite`, if it holds the results of a different
            scenario.
    """
    if name in ("", ".", "..") or Path(name).name != name:
        raise StoreError(f"{name!r}: is no name for a folder of results; give the scenario file another name")
    if name.casefold() == BLOCKS:
        raise StoreError(f"{name}: is the folder of the blocks of sweeps; give the scenario file another name")
    folder = Path(out) / name
    refuse_obstacles(folder)

    def find_others() -> list[Path]:
        others = _existing(folder)
        if (folder / SCENARIO).exists():
            different = difference(_stored_scenario(folder / SCENARIO), plain(resolved))
            found = f"results of a different scenario ({different})"
            others = [folder / SCENARIO, *others] if different else []
        else:
            there = others[0].relative_to(folder) if others else None
            found = f"other results, which no scenario made ({there} is there)"
        if others and not overwrite:
            raise StoreError(f"{folder}: holds {found}; use --overwrite or another --out")
        return others

    here = ResultFolder(folder, find_others)
    here.look()
    return here


def copy_results(source: Path, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the files of the results in `source` into `folder`, and return their paths.

    Raises `StoreError` where results are there already, unless `overwrite`, and where it cannot be written.
    """
    refuse_obstacles(folder)
    if folder.resolve() == source.resolve():
        raise StoreError(f"{folder}: is the folder that these results were read from; give another one")

    def find_others() -> list[Path]:
        others = _existing(folder, SCENARIO)
        if others and not overwrite:
            raise StoreError(f"{folder}: holds other results; write overwrite=True, or give another folder")
        return others

    here, written = ResultFolder(folder, find_others), []
    here.look()
    with here.locked():
        for path in _existing(source, SCENARIO):
            written.append(here.write(str(path.relative_to(source)), read_bytes(path)))
    return written


def refuse_obstacles(folder: Path) -> None:
    """Raise `StoreError` where a file of results could not be written into `folder`, one that stands there included."""
    refuse_unwritable(folder)
    refuse_unwritable(folder / FIGURES)
    if (folder / FIGURES).is_symlink():
        raise StoreError(f"{folder / FIGURES}: is a link, and figures belong here; remove it, or use another --out")
    if (folder / _LOCK).is_symlink():
        raise StoreError(f"{folder / _LOCK}: is a link, and would be written through; remove it, or use another --out")
    for path in (folder / _LOCK, folder / SCENARIO, *_results(folder)):
        if path.exists() and not path.is_file() and not path.is_symlink():  # a link is replaced
            what = "a folder" if path.is_dir() else "a pipe or a device"
            raise StoreError(f"{path}: is {what} in the place of a file; remove it, or use another --out")


def refuse_unwritable(folder: Path, *, option: str = "--out") -> None:
    """Raise `StoreError` if `folder` could not be made, or no file written there; `option` is what chooses it."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        what = "a file" if nearest.exists() else "a link that leads nowhere"
        raise StoreError(f"{nearest}: is {what}; files need a folder: use another {option}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(f"{nearest}: no permission to write there; use another {option}")


def _stored_scenario(path: Path) -> Any:
    """Return what stands under `scenario:` in `path`, None where nothing legible does."""
    try:
        return read_yaml(path).get("scenario")
    except StoreError:
        return None


def difference(stored: Any, wanted: Any, key: str = "scenario") -> str | None:
    """Return in words the first difference between two scenarios, or other plain content, None where there is none."""
    if stored is None and isinstance(wanted, dict):
        return f"{key} is not legible there"
    if not isinstance(stored, dict) or not isinstance(wanted, dict):
        there, here = reprlib.repr(stored), reprlib.repr(wanted)
        return None if stored == wanted else f"{key} is {there} there and {here} here"
    for name in {**wanted, **stored}:
        found = difference(stored.get(name), wanted.get(name), f"{key}.{name}")
        if found:
            return found.removeprefix("scenario.")
    return None


def _results(folder: Path) -> list[Path]:
    place = folder / FIGURES
    figures = [path for suffix in ("png", "pdf") if not place.is_symlink() for path in place.glob(f"*.{suffix}")]
    return [*(folder / name for name in (SUMMARY, TRAJECTORIES, SWEEP, THEORY, PAGE)), *sorted(figures)]


def _existing(folder: Path, *names: str) -> list[Path]:
    """Return the files of these names and of results that are there."""
    return [path for path in (*(folder / name for name in names), *_results(folder)) if path.exists()]


def plain(value: Any, *, null: bool = False) -> Any:
    """Return `value` in the types of YAML and JSON: arrays and their scalars become lists and numbers.

    With `null`, NaN and infinity become `None`.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(entry, null=null) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, null=null) for entry in value]
    return None if null and isinstance(value, float) and not math.isfinite(value) else value
