"""The blocks of code in a page of the documentation, checked, run, and compared with what is shown beneath them.

    python tests/shown_outputs.py README.md docs/start.md     # run them, and write what they print beneath

A page is run from its first block to its last, in one namespace and one folder. A block of `python` is executed, one of
`yaml` read as a scenario (where it is a piece of one, in the place of that piece in residual.yaml), and each command of
`sh` has its words checked. A block of `text` shows what the last
`python` or `sh` above it prints: its commands are run then.
"""

import argparse
import contextlib
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import yaml
from sybil import Document, Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

from flowsim.cli.command import SUBCOMMANDS
from flowsim.cli.new import shipped_scenarios
from flowsim.cli.options import parser
from flowsim.scenarios import parse_overrides, read_scenario

ROOT = Path(__file__).parents[1]
# Pages that docs/scripts/make.py writes, which git ignores.
MADE = set(re.findall(r"^/docs/(.+\.md)$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE))
_MADE_FOLDERS = set(re.findall(r"^/docs/(.+)/$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE))
_BASE = ROOT / "scenarios" / "residual.yaml"
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
# Other versions of JAX and other processors round otherwise, and a run may take a step more or less for that.
_RTOL, _ROUNDING = 0.02, 1e-6
_FENCE = "```text\n"
# As wide as the least terminal, whoever looks.
_COLUMNS = "80"


def pages() -> list[Path]:
    """Return README.md, those of the papers, and the pages that are written by hand."""
    papers = [*(ROOT / "flowsim" / "papers").glob("*/README.md"), *(ROOT / "papers").rglob("README.md")]
    docs, made = ROOT / "docs", MADE | _MADE_FOLDERS
    places = {page: page.relative_to(docs) for page in sorted(docs.rglob("*.md"))}
    written = [page for page, place in places.items() if {place.as_posix(), place.parts[0]}.isdisjoint(made)]
    return [ROOT / "README.md", *sorted(papers), *written]


def with_code(*, how_to: bool) -> list[Path]:
    """Return the pages that run: those of docs/how_to, or the others. Workers share tests by files."""
    running = [
        page for page in pages() if re.search(r"^```(python|text)", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    return [page for page in running if (page.parent.name == "how_to") == how_to]


def read(path: Path, **evaluators: Callable[[Example], str | None]) -> Document:
    """Return the document with the blocks of those languages for which there is an evaluator."""
    return Sybil([CodeBlockParser(language, evaluator) for language, evaluator in evaluators.items()]).parse(path)


def check(path: Path) -> None:
    """Check the blocks that need not run: every scenario can be read, and every command can be given."""
    _evaluate(read(path, yaml=checked_yaml, sh=checked_commands), path.parent)


def run(path: Path, folder: Path, shown: Callable[[Example], str | None] | None = None) -> None:
    """Run the blocks of a page in `folder`, and compare what they print with what is shown (or give it to `shown`)."""
    for name in ("scenarios", "papers", "examples", "results/paper"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(ROOT / name)
    _evaluate(read(path, python=_executed, sh=_noted, text=shown or _compared), folder)


def _evaluate(document: Document, folder: Path) -> None:
    document.namespace["__name__"] = "__main__"
    with contextlib.chdir(folder), mock.patch.dict(os.environ, COLUMNS=_COLUMNS):
        for example in document.examples():
            example.evaluate()


def _executed(example: Example) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        PythonEvaluator()(example)
    example.namespace["_output"] = printed.getvalue


def _noted(example: Example) -> None:
    example.namespace["_output"] = partial(_outputs, str(example.parsed))


def output_of(example: Example) -> str:
    """Return what the last block of python or sh above a block of text prints; commands are run now."""
    if "_output" not in example.namespace:
        raise AssertionError(f"{example.path}, line {example.line}: no block of python or sh above what is shown")
    return example.namespace["_output"]()


def _outputs(text: str) -> str:
    """Return what the commands of flowsim print, without the names of the files that they write."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "COLUMNS": _COLUMNS}
    lines: list[str] = []
    for words in commands(text):
        if words[1:3] == ["-m", "flowsim"]:
            command = [sys.executable, *words[1:]]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            assert done.returncode in (0, 1), done.stderr
            lines += [line.rstrip() for line in done.stdout.splitlines() if not line.startswith("wrote ")]
    return "\n".join(lines) + "\n"


def _compared(example: Example) -> str | None:
    found = difference(example.parsed, output_of(example))
    return found and f"{found}\nrun: python tests/shown_outputs.py {Path(example.path).relative_to(ROOT)}"


def difference(shown: str, printed: str) -> str | None:
    """Return how a shown output differs from what was printed: words have to be the same, numbers nearly."""
    for one, other in zip(_lines(shown), _lines(printed), strict=False):
        close = partial(math.isclose, rel_tol=_RTOL, abs_tol=_ROUNDING)
        if _NUMBER.sub("#", one) != _NUMBER.sub("#", other) or not all(map(close, _numbers(one), _numbers(other))):
            return f"shown:   {one}\nprinted: {other}"
    counts = [len(_lines(text)) for text in (shown, printed)]
    return None if counts[0] == counts[1] else f"{counts[0]} lines are shown, {counts[1]} were printed:\n{printed}"


def _lines(text: str) -> list[str]:
    """Return the lines that are not empty, with one space between words: columns are as wide as their numbers."""
    return [" ".join(re.sub("─+", "─", line).split()) for line in text.splitlines() if line.strip()]


def _numbers(line: str) -> list[float]:
    return [float(found.replace("−", "-")) for found in _NUMBER.findall(line)]


def checked_yaml(example: Example) -> None:
    """Read a scenario, or a piece of one in its place."""
    written = yaml.safe_load(example.parsed)
    whole = written if {"data", "network"} <= set(written) else {**yaml.safe_load(_BASE.read_text()), **written}
    text = yaml.safe_dump(whole, allow_unicode=True)
    if "my_module:" in text:  # a process knows one module of that name
        with tempfile.NamedTemporaryFile("w", dir=ROOT / "examples" / "plug_in", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            read_scenario(file.name)
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").symlink_to(ROOT / "scenarios" / "data")
        (Path(folder) / "shown.yaml").write_text(text)
        read_scenario(Path(folder) / "shown.yaml")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every command, `python` in place of the one of a virtual environment."""
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|\|", line):
            words = shlex.split(command, comments=True)
            if words:
                yield [re.sub(r"^\.venv/bin/|(?<=^python)3$", "", words[0]), *words[1:]]


def checked_commands(example: Example) -> None:
    """Check that every command of a block is one that can be given."""
    for program, *rest in commands(example.parsed):
        _check_command(program, rest)


def _check_command(program: str, rest: list[str]) -> None:
    if program == "python" and rest[:2] == ["-m", "flowsim"]:
        _check_flowsim(rest[2:])
    elif program == "python" and rest[0].endswith(".py"):
        assert (ROOT / rest[0]).is_file(), f"{rest[0]} is not there"
    elif program == "python":
        assert rest[:2] in (["-m", "venv"], ["-m", "pytest"]), rest
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        asked = re.findall(r"\[([a-z]+)\]", " ".join(rest))
        assert set(asked) <= set(extras), f"{asked}: pyproject.toml has {list(extras)}"
    elif program == "nox":
        sessions = re.findall(r"^def ([a-z]\w*)\(session", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
        assert set(rest) - {"-s"} <= set(sessions), f"{rest}: noxfile.py has {sessions}"
    else:
        assert program in ("mkdocs", "dask", "head", "cd", "git"), f"{program}: no command that the test knows"


def _check_flowsim(words: list[str]) -> None:
    if words[:1] and words[0] in SUBCOMMANDS:
        assert words[0] != "new" or set(words[1:2]) <= set(shipped_scenarios()), f"no template {words[1]}"
        return
    options: argparse.Namespace = parser(SUBCOMMANDS.values()).parse_args(words)
    overrides = parse_overrides(options.set)
    for path in options.scenarios:
        for found in sorted(ROOT.glob(str(path))) or [ROOT / path]:
            read_scenario(found, overrides)


def rewritten(path: Path) -> str:
    """Run a page, and return its text with what was printed in place of what is shown."""
    outputs: list[tuple[int, int, str]] = []

    def shown(example: Example) -> None:
        start = example.region.start + len(_FENCE)
        lines = output_of(example).strip("\n").splitlines()
        outputs.append((start, start + len(example.parsed), "".join(f"{line.rstrip()}\n" for line in lines)))

    with tempfile.TemporaryDirectory() as folder:
        run(path, Path(folder), shown)
    text = path.read_text(encoding="utf-8")
    for start, end, printed in reversed(outputs):
        text = text[:start] + printed + text[end:]
    return text


def main(arguments: list[str]) -> None:
    """Write what the blocks of the pages print beneath them."""
    for given in map(Path, arguments):
        given.write_text(rewritten(given.resolve()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
