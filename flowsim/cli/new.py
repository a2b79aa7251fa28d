"""`python -m flowsim new NAME`: a scenario of one's own, as a copy of one that is shipped."""

import argparse
import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ..results import StoreError, refuse_unwritable, write_atomically
from ..runtime.paths import user_path
from ..runtime.signals import ending_at_once
from ..scenarios import ScenarioError, header_comment
from .options import Subcommand

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class ShippedScenario:
    """A shipped scenario: its `name`, its file, and in one line what it shows."""

    name: str
    path: Path
    shows: str

    def data_files(self) -> tuple[str, ...]:
        """Return the names of the data files that it reads, as seen from its folder."""
        with ending_at_once():
            from ..scenarios import read_scenario  # not above: it brings JAX

        return tuple(read_scenario(self.path).data.files_read())


def shipped_scenarios() -> dict[str, ShippedScenario]:
    """Return the shipped scenarios by their names, those of the paper last."""
    folder = scenario_folder()
    paths = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("*/*.yaml"))]
    titles = [header_comment(path).partition("\n")[0] for path in paths]
    return {path.stem: ShippedScenario(path.stem, path, title) for path, title in zip(paths, titles, strict=True)}


def scenario_folder() -> Path:
    """Return the folder of the shipped scenarios: inside of an installed package, else beside it in the repository."""
    installed = _PACKAGE / "shipped" / "scenarios"
    return installed if installed.is_dir() else _PACKAGE.parent / "scenarios"


def new(arguments: Sequence[str]) -> int:
    """Copy the scenario that is named, or list those that there are; return the exit code."""
    options = _parser().parse_args(arguments)
    known = shipped_scenarios()
    if options.name is None:
        print(_list(known))
        return 0
    if options.name not in known:
        near = difflib.get_close_matches(options.name.casefold(), known, n=1)
        write = f"python -m flowsim new {near[0]}" if near else "python -m flowsim new with one of these names"
        found = f"new {options.name}: found no template of that name; expected one of those below"
        raise ScenarioError(f"{found}; write {write}\n{_list(known)}")
    path = Path(f"{options.name}.yaml") if options.to is None else options.to
    for written in _copy(known[options.name], path):
        print(f"wrote {written}")
    print(f"next: python -m flowsim check {shlex.quote(str(path))}")
    return 0


def _copy(shipped: ShippedScenario, path: Path) -> list[Path]:
    """Copy a scenario with the data files that it reads, where they are not there yet, and return the new paths.

    Raises `StoreError` for whatever stands there already, and where nothing can be written, before anything is.
    """
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; write --to {shlex.quote(f'{path / shipped.name}.yaml')}")
    other = next(
        path.with_stem(f"{path.stem}_{n}") for n in count(2) if not path.with_stem(f"{path.stem}_{n}").exists()
    )
    _check_free(path, write=f"--to {shlex.quote(str(other))}")
    content = {path: shipped.path.read_bytes()}
    for name in shipped.data_files():
        data, target = (shipped.path.parent / name).read_bytes(), path.parent / name
        if target.is_file() and target.read_bytes() == data:
            continue
        _check_free(target, write="--to a file in another folder")
        content[target] = data
    for target in content:
        refuse_unwritable(target.parent, option="--to")
    for target, data in content.items():

        def write(temporary: Path, target: Path = target, data: bytes = data) -> None:
            temporary.write_bytes(data)
            _check_free(target, write="--to another file")  # one may have come meanwhile

        write_atomically(target, write)
    return list(content)


def _check_free(path: Path, *, write: str) -> None:
    if path.exists() or path.is_symlink():
        raise StoreError(f"{path}: is there already, and is not overwritten; write {write}")


def _list(known: dict[str, ShippedScenario]) -> str:
    width = max(len(name) for name in known)
    return "\n".join(f"{name:{width}}  {shipped.shows}" for name, shipped in known.items())


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim new",
        description="Write a scenario of your own, as a copy of one that is shipped, with its data. Without a name, "
        "list the shipped ones; in all_keys every key is explained.",
        epilog="Exit codes: 0 done, 2 bad input, or a file that is there already.",
    )
    made.add_argument("name", nargs="?", metavar="NAME", help="a shipped scenario, as residual")
    made.add_argument("--to", type=user_path, metavar="FILE", help="where to write it (default: NAME.yaml here)")
    return made


NEW = Subcommand("new [NAME]", "write a scenario of your own, from one that is shipped", new)
