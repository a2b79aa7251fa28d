"""Write the tables of benchmarks/README.md from what the benchmarks kept with `--save`.

    python benchmarks/tables.py

A mark of the README is a comment, alone between empty lines, and what is written stands beneath it: `run: NAME` for the
command and the machine, `table: NAME NUMBER` for a table, counted from 0, and `table: NAME NUMBER, COLUMN | COLUMN` for
some of its columns.
"""

import re
from pathlib import Path

from saved import markdown, read

README = Path(__file__).parent / "README.md"
# With what was written last time: lines of a table, or a command.
MARK = re.compile(r"^(<!-- (run|table): (.+?) -->\n\n)(?:(?:\||`python )[^\n]*\n)*\n?", re.MULTILINE)


def written(text: str) -> str:
    """Return the README with what belongs beneath its marks.

    Raises `FileNotFoundError` where a benchmark kept nothing, `IndexError` or `ValueError` where it kept no such table
    or column.
    """
    return MARK.sub(lambda found: f"{found[1]}{_KINDS[found[2]](found[3])}\n\n", text)


def named(text: str) -> set[str]:
    """Return the names of the benchmarks that the marks of the README ask for."""
    return {re.split(r"[ ,]", found[3])[0] for found in MARK.finditer(text)}


def _run(name: str) -> str:
    kept = read(name)
    return f"`{kept['command']}`: {kept['machine']}."


def _table(what: str) -> str:
    which, _, chosen = what.partition(", ")
    name, number = which.split()
    kept = read(name)["tables"][int(number)]
    if not chosen:
        return markdown(kept["columns"], kept["rows"])
    columns = chosen.split(" | ")
    places = [kept["columns"].index(column) for column in columns]
    return markdown(columns, [[row[place] for place in places] for row in kept["rows"]])


_KINDS = {"run": _run, "table": _table}


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
