"""The shipped scenarios as templates: where they are, what each is about, and its text with every key explained."""

import re
from dataclasses import dataclass
from pathlib import Path

from ..scenarios.document import read_document
from ..scenarios.reading import read_scenario
from .commented import commented

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Template:
    """A shipped scenario: its `name`, its file, and in one line what it shows."""

    name: str
    path: Path
    shows: str

    def text(self) -> str:
        """Return a scenario with the same values, in which every key is explained."""
        remarks = _remarks(self.path.read_text(encoding="utf-8"))
        beginning = f"{self.shows}.\n\n{remarks['']}"
        return commented(read_document(self.path).value, remarks | {"": beginning})

    def files(self) -> tuple[str, ...]:
        """Return the names of the data files that it reads, as seen from its folder."""
        return tuple(read_scenario(self.path).data.files_read())


def templates() -> dict[str, Template]:
    """Return the shipped scenarios by their names, those of the paper last."""
    folder = scenario_folder()
    paths = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("*/*.yaml"))]
    return {path.stem: Template(path.stem, path, _title(path)) for path in paths}


def scenario_folder() -> Path:
    """Return the folder of the shipped scenarios: inside of an installed package, else beside it in the repository."""
    installed = _PACKAGE / "scenarios"
    return installed if installed.is_dir() else _PACKAGE.parent / "scenarios"


def _title(path: Path) -> str:
    """Return the first line of a scenario file, which says in a few words what it shows."""
    with path.open(encoding="utf-8") as stream:
        return stream.readline().removeprefix("#").strip()


def _remarks(text: str) -> dict[str, str]:
    """Return the comments of a scenario file: that at its beginning under "", others by the key that they stand at."""
    found: dict[str, list[str]] = {"": []}
    key, waiting = "", list[str]()
    for line in text.splitlines()[2:]:  # without the title
        code, _, remark = line.partition("# ") if "# " in line else (line, "", "")
        named = re.match(r"(\w+):", code)
        if named:
            found.setdefault(key if not key else named[1], []).extend(waiting)
            key, waiting = named[1], []
        if remark and not code.strip():
            waiting.append(remark)
        elif remark:
            found.setdefault(key, []).append(remark)
    return {name: "\n".join(said) for name, said in found.items()}
