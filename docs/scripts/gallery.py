"""Write the gallery: a card for each scenario and each example, and a page of its own.

A file says itself what it is: the comment with which a scenario begins, and the docstring of an example, have a title,
an empty line, a question of one sentence, and whatever else there is to say. Its pictures are those of results/gallery/
and results/paper/ that are named as the file is, alone or with `_` and a word: `examples_own_loss.png` for own_loss.py.
"""

import ast
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import lecture
import nbformat
import pictures
from PIL import Image

from flowsim.scenarios import header_comment

ROOT = Path(__file__).parents[2]
# A file is in the first group that names it: a new one has a place without any change here.
GROUPS = {
    "First runs": ("scenarios/residual.yaml", "scenarios/small_scale.yaml", "scenarios/diabetes.yaml"),
    "The edge of stability": (
        "scenarios/edge_of_stability.yaml",
        "examples/edge_of_stability.py",
        "scenarios/digits*.yaml",
        "papers/marion_2026/*.yaml",
        "papers/andreyev_2024/*.yaml",
    ),
    "The figures of Marion and Chizat (2024)": ("scenarios/paper/*.yaml", "scenarios/appendix_c.yaml"),
    "The theory of Marion and Chizat (2024)": (
        "scenarios/theory_*.yaml",
        "scenarios/lemma3.yaml",
        "scenarios/multivariate.yaml",
        "scenarios/critical_learning_rate.yaml",
    ),
    "Other papers": ("papers/*/*.yaml",),
    "Your own network, loss, data, module": ("examples/*.py", "examples/*/*.yaml"),
    "More": ("scenarios/*.yaml",),
}
WITHOUT = {ROOT / "scenarios" / "all_keys.yaml"}  # a reference: it computes what residual.yaml does
HEAD = """# Gallery

One question, one file, one command: every scenario and every example that comes with flowsim. The pictures are those of
the runs of these files; each page has the code, and the file to download.
"""
THUMBNAIL = (480, 360)


@dataclass(frozen=True)
class Card:
    """A scenario or an example: its file, what it says of itself, and its pictures, the one of the card first."""

    path: Path
    title: str
    question: str
    told: str
    pictures: tuple[Path, ...]

    @property
    def name(self) -> str:
        """Return the name of its page, which its pictures bear."""
        return _name(self.path)

    @property
    def file(self) -> str:
        """Return its path in the repository."""
        return self.path.relative_to(ROOT).as_posix()


def made() -> Iterator[tuple[str, str | bytes]]:
    """Yield the page of cards, thumbnails, a page for each card, and the files to download."""
    groups = _groups()
    cards = [card for group in groups.values() for card in group]
    items = {title: [_item(card) for card in group] for title, group in groups.items()}
    shown = dict(lecture.shown(nbformat.read(lecture.NOTEBOOK, as_version=4)))
    items[next(iter(GROUPS))].insert(0, _lecture(str(shown.pop("lecture.md"))))
    yield "gallery/index.md", HEAD + "".join(_group(title, listed) for title, listed in items.items())
    first = next(content for name, content in shown.items() if name.endswith(".png"))
    yield "gallery/thumbnails/lecture.png", _thumbnail(io.BytesIO(first))
    yield f"gallery/files/examples/{lecture.NOTEBOOK.name}", lecture.NOTEBOOK.read_bytes()
    for card in cards:
        files = _files(card.path)
        yield f"gallery/{card.name}.md", _page(card, files)
        if card.pictures:
            yield f"gallery/thumbnails/{card.name}.png", _thumbnail(card.pictures[0])
        for file in files:
            yield f"gallery/files/{file.relative_to(ROOT).as_posix()}", file.read_bytes()


def _groups() -> dict[str, list[Card]]:
    """Return the cards of each group."""
    found: dict[Path, str] = {}
    for title, patterns in GROUPS.items():
        for pattern in patterns:
            found |= {path: title for path in sorted(ROOT.glob(pattern)) if path not in found and path not in WITHOUT}
    owned = _pictures(list(found))
    groups: dict[str, list[Card]] = {title: [] for title in GROUPS if title in found.values()}
    for path, title in found.items():
        groups[title].append(Card(path, *said(path), owned[path]))
    return groups


def said(path: Path) -> tuple[str, str, str]:
    """Return the title of a file, its question, and what else it says. Raises `ValueError` where it has no question."""
    scenario = path.suffix == ".yaml"
    text = header_comment(path) if scenario else ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title, _, rest = text.partition("\n\n")
    return title.rstrip("."), *_question(path, "comment at its top" if scenario else "docstring", rest)


def _question(path: Path, place: str, rest: str) -> tuple[str, str]:
    """Return the question with which the words after a title begin, and what follows it."""
    question, mark, told = rest.partition("?")
    if not mark or re.search(r"[.!:]\s", question):
        found = " ".join(rest.split())[:60] or "nothing"
        raise ValueError(
            f"{path}: after its title the {place} says {found!r}; expected a question, for its card in the gallery; "
            "write a title, an empty line, and a sentence that ends with '?'"
        )
    return " ".join(question.split()) + "?", told.strip()


def _pictures(paths: list[Path]) -> dict[Path, tuple[Path, ...]]:
    """Return the stored pictures of each file, what is named as the file is, or shows its sharpness, first."""
    owned: dict[Path, list[Path]] = {path: [] for path in paths}
    names = {_name(path): path for path in paths}
    if len(names) < len(paths):
        raise ValueError(f"two files of the gallery would have one name: {sorted(map(_name, paths))}")
    for folder in ("gallery", "paper"):
        for picture in sorted(ROOT.glob(pictures.FOLDERS[folder])):
            owners = [name for name in names if picture.stem == name or picture.stem.startswith(f"{name}_")]
            if not owners:
                raise ValueError(f"{picture}: of no scenario and no example; name it as the file whose run it shows")
            owned[names[max(owners, key=len)]].append(picture)
    return {
        path: tuple(sorted(found, key=lambda one: (one.stem != _name(path), not one.stem.endswith("_sharpness"))))
        for path, found in owned.items()
    }


def _name(path: Path) -> str:
    folder = path.parent.relative_to(ROOT).parts
    return "_".join((*folder, path.stem) if folder[0] == "examples" else (path.stem,))


def _files(path: Path) -> list[Path]:
    """Return the file and what it needs beside it: modules that it names, and data."""
    text = path.read_text(encoding="utf-8")
    modules = [module for module in sorted(path.parent.glob("*.py")) if re.search(rf"\b{module.stem}:\w", text)]
    data = [path.parent / word for word in re.findall(r"[\w/]+\.(?:csv|npz)", text)]
    return [path, *modules, *(file for file in data if file.is_file())]


def _group(title: str, items: list[str]) -> str:
    listed = "\n".join(items)
    return f'\n## {title}\n\n<div class="grid cards gallery" markdown>\n\n{listed}\n</div>\n'


def _item(card: Card) -> str:
    pictured, without = f"![](thumbnails/{card.name}.png)", "*no picture is stored*{ .none }"
    shown = pictured if card.pictures else without
    return _card(shown, card.title, f"{card.name}.md", card.question)


def _lecture(page: str) -> str:
    """Return the card of the lecture, whose page begins with its title, a note, and a question."""
    title, _, told = page.removeprefix("# ").partition("\n")
    question, _ = _question(lecture.NOTEBOOK, "first cell", told.replace(lecture.NOTE, ""))
    return _card("![](thumbnails/lecture.png)", title, "../lecture.md", question)


def _card(shown: str, title: str, page: str, question: str) -> str:
    return f"-   {shown}\n\n    **[{_plain(title)}]({page})**\n\n    {_plain(question)}\n"


def _page(card: Card, files: list[Path]) -> str:
    scenario = card.path.suffix == ".yaml"
    described = _descriptions()
    lines = [f"# {_plain(card.title)}\n", f"**{_plain(card.question)}** [All of the gallery](index.md)\n"]
    for picture in card.pictures:
        words = described.get(picture.name, card.title)
        folder = "gallery" if picture.parent.name == "gallery" else "paper"
        lines += [f"![{_plain(words)}](../pictures/{folder}/{picture.name}){{ .picture }}\n"]
    lines += [f"{_plain(part)}\n" for part in card.told.split("\n\n") if not part.startswith("python ")]
    command = f"python {'-m flowsim ' if scenario else ''}{card.file}"
    lines += ["## Run it\n", f"```sh\n{command}\n```\n", *_links(card, files)]
    for file in files:
        language = {".yaml": "yaml", ".py": "python"}.get(file.suffix)
        if language and (file == card.path or file.is_relative_to(ROOT / "examples")):
            lines += [f"## {file.name}\n", f"```{language}\n{_code(file)}\n```\n"]
    return "\n".join(lines)


def _code(path: Path) -> str:
    """Return what stands in a file, of a scenario below the comment at its top, which the page says already."""
    text = path.read_text(encoding="utf-8")
    return (re.sub(r"\A(?:#.*\n)+", "", text) if path.suffix == ".yaml" else text).strip()


def _links(card: Card, files: list[Path]) -> Iterator[str]:
    places = {file.relative_to(card.path.parent).as_posix(): file.relative_to(ROOT).as_posix() for file in files}
    loads = ", ".join(f"[{shown}](files/{place}){{ download }}" for shown, place in places.items())
    yield f"* To download{', into one folder' if len(files) > 1 else ''}: {loads}"
    if paper := _paper(card.path):
        yield f"* The paper: {paper}"
    pages = ", ".join(f"[{title}](../{page})" for page, title in _mentions(card))
    yield f"* More on it: {pages}\n"


def _paper(path: Path) -> str | None:
    """Return the citation with which the README of the paper begins, of which the file is a part or speaks."""
    folder = path.parent
    if "Marion and Chizat (2024)" in path.read_text(encoding="utf-8"):
        folder = ROOT / "flowsim" / "papers" / "marion_chizat_2024"
    if not (folder / "README.md").is_file() or folder == ROOT / "scenarios":
        return None
    return " ".join((folder / "README.md").read_text(encoding="utf-8").split("\n\n")[1].split())


def _mentions(card: Card) -> list[tuple[str, str]]:
    """Return the pages, with titles, that name the file or show a picture of it, and how such files are written."""
    names = [card.file, *(f"/{picture.name}" for picture in card.pictures)]
    pages = {page: text for page, text in _pages().items() if any(name in text for name in names)}
    own = f"how_to/{card.path.stem.removeprefix('own_')}.md"
    how_to = "how_to/scenario.md" if card.path.suffix == ".yaml" else own if own in _pages() else "start.md"
    if card.path.parent == ROOT / "scenarios" / "paper":
        pages["results/paper.md"] = _pages()["results/paper.md"]
    pages[how_to] = _pages()[how_to]
    return [(page, text.partition("\n")[0].removeprefix("# ")) for page, text in pages.items() if page != "index.md"]


@cache
def _pages() -> dict[str, str]:
    """Return the pages that are written by hand, and the words of those that are made of results, by their place."""
    docs = ROOT / "docs"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8")
    paths = [path.relative_to(docs) for path in sorted(docs.rglob("*.md"))]
    written = [path for path in paths if f"/docs/{path.as_posix()}\n" not in ignored and path.parts[0] != "gallery"]
    return {
        path.as_posix().replace("scripts/", "results/"): (docs / path).read_text(encoding="utf-8") for path in written
    }


def _descriptions() -> dict[str, str]:
    """Return the words with which pages describe a stored picture, by its name."""
    texts = [*_pages().values(), *(path.read_text(encoding="utf-8") for path in ROOT.glob("papers/*/README.md"))]
    return {name: words for text in texts for words, name in re.findall(r"!\[([^]]+)\]\([^)]*/(\w+\.png)\)", text)}


def _plain(words: str) -> str:
    """Return words of a file as Markdown that shows them as they are, on one line."""
    escaped = re.sub(r"([\\`*_{}\[\]$#|])", r"\\\1", " ".join(words.split()))
    return escaped.replace("<", "&lt;")


def _thumbnail(source: Path | io.BytesIO) -> bytes:
    """Return a picture made small, in few colours."""
    with Image.open(source) as picture:
        small = picture.convert("RGBA")
    white = Image.new("RGBA", small.size, "white")
    white.alpha_composite(small)
    white.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
    written = io.BytesIO()
    white.convert("RGB").quantize(64).save(written, "PNG", optimize=True)
    return written.getvalue()
