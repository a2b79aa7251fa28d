"""`python -m flowsim new NAME`: a scenario of one's own, from one that is shipped, with every key explained."""

import argparse
import difflib
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..results import StoreError, refuse_unwritable, write_atomically
from ..scenarios import ScenarioError
from .template import Template, templates
from .word import Word


def new(words: Sequence[str]) -> int:
    """Write the scenario that `words` name, or list those that there are; return the exit code."""
    options = _parser().parse_args(words)
    known = templates()
    if options.name is None:
        print(_listed(known))
        return 0
    if options.name not in known:
        raise ScenarioError(_unknown(options.name, known))
    template = known[options.name]
    path = Path(f"{template.name}.yaml") if options.to is None else options.to
    for made in _write(template, path):
        print(f"wrote {made}")
    print(f"next: python -m flowsim check {shlex.quote(str(path))}")
    return 0


def _write(template: Template, path: Path) -> list[Path]:
    """Write a scenario with the data files that it reads, where they are not there yet, and return their paths.

    Raises `StoreError` for whatever stands there already, and where nothing can be written, before anything is.
    """
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; write --to {path / template.name}.yaml")
    _refuse_existing(path)
    content = {path: template.text().encode()}
    for name in template.files():
        data, target = (template.path.parent / name).read_bytes(), path.parent / name
        if target.is_file() and target.read_bytes() == data:
            continue
        _refuse_existing(target)
        content[target] = data
    for target in content:
        refuse_unwritable(target.parent, option="--to")
    return [_write_new(target, written) for target, written in content.items()]


def _write_new(path: Path, content: bytes) -> Path:
    """Write a file where there is none. Raises `StoreError` where one has come meanwhile, or the system refuses."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)
        _refuse_existing(path)

    return write_atomically(path, write)


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise StoreError(f"{path}: is there already, and is not overwritten; write --to another file")


def _unknown(name: str, known: dict[str, Template]) -> str:
    near = difflib.get_close_matches(name.casefold(), known, n=1)
    write = f"new {near[0]}" if near else "new with one of these names"
    return f"new {name}: found no template of that name; expected one of those below; write {write}\n{_listed(known)}"


def _listed(known: dict[str, Template]) -> str:
    width = max(len(name) for name in known)
    return "\n".join(f"{name:{width}}  {template.shows}" for name, template in known.items())


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim new",
        description="Write a scenario of your own, from one that is shipped: every key stands in it, explained. "
        "Without a name, list the shipped ones.",
        epilog="Exit codes: 0 done, 2 bad input, or a file that is there already.",
    )
    made.add_argument("name", nargs="?", metavar="NAME", help="a shipped scenario, as residual")
    made.add_argument("--to", type=Path, metavar="FILE", help="where to write it (default: NAME.yaml here)")
    return made


NEW = Word("new [NAME]", "write a scenario of your own, every key explained", new)
