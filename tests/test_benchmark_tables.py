"""The tables of benchmarks/README.md are those that the benchmarks kept."""

import json
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TWO = {
    "command": "python benchmarks/some.py --save",
    "machine": "2 cores",
    "tables": [
        {"title": "first", "columns": ["case"], "rows": [["a"]]},
        {"title": "second", "columns": ["case", "error", "ms"], "rows": [["a", 3.14e-7, 12.34], ["b", 0.0, 123456.0]]},
    ],
}


@pytest.fixture
def modules(monkeypatch):
    """Return the modules `saved` and `tables` of the benchmarks."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("saved"), import_module("tables")


@pytest.fixture
def tables(modules, monkeypatch, tmp_path):
    """Return the module `tables`, with results of a benchmark called `some`."""
    saved, tables = modules
    monkeypatch.setattr(saved, "RESULTS", tmp_path)
    (tmp_path / "some.json").write_text(json.dumps(TWO))
    return tables


def test_the_readme_says_all_that_is_stored_and_nothing_else(modules):
    saved, tables = modules
    readme = tables.README.read_text(encoding="utf-8")
    assert tables.written(readme) == readme, "run: python benchmarks/tables.py"
    assert tables.named(readme) == {file.stem for file in saved.RESULTS.glob("*.json")}
    assert readme.count("<!--") == len(tables.MARK.findall(readme)), "a mark is alone between empty lines"


def test_a_mark_is_filled_again_and_the_rest_left(tables):
    text = "before\n\n<!-- table: some 1, case | error -->\n\n| old |\n|---|\n\nafter\n\n<!-- run: some -->\n\nmore\n"
    filled = tables.written(text)
    assert filled == (
        "before\n\n<!-- table: some 1, case | error -->\n\n"
        "| case | error  |\n|------|--------|\n| a    | 3.1e-7 |\n| b    | 0      |\n\n"
        "after\n\n<!-- run: some -->\n\n`python benchmarks/some.py --save`: 2 cores.\n\nmore\n"
    )
    assert tables.written(filled) == filled


@pytest.mark.parametrize("mark", ["table: some 2", "table: some 1, speed", "table: other 0", "run: other"])
def test_what_was_not_kept_is_not_made_up(tables, mark):
    with pytest.raises((IndexError, ValueError, FileNotFoundError)):
        tables.written(f"<!-- {mark} -->\n\n")


def test_tables_are_kept_as_they_grow(modules, monkeypatch, tmp_path):
    saved, _ = modules
    monkeypatch.setattr(saved, "RESULTS", tmp_path / "results")
    kept = saved.Saved("some", TWO["command"], TWO["machine"])
    first, second = TWO["tables"]
    kept.add(first["title"], first["columns"], first["rows"])
    kept.add(second["title"], second["columns"], second["rows"][:1])
    kept.add(second["title"], second["columns"], second["rows"])
    assert saved.read("some") == TWO
