"""Tables fit the terminal: as wide as it is, names on fewer lines where there is room, no word broken, nothing cut."""

import io
import os

from rich.console import Console
from rich.text import Text
from table_checks import check_fits

from flowsim.formatting.terminal import empty_table, fitted, printed

LONG = "the sharpness of the limit of the flow never rises along descent by more than its error, " * 2


def _table(names, rows, *, texts=()):
    table = empty_table("a title", ["a remark that goes on for longer than the columns are wide wide, or so it seems"])
    for name in names:
        table.add_column(name, justify="left" if name in texts else "right", no_wrap=name not in texts)
    for row in rows:
        table.add_row(*row)
    return table


def _header(table, width):
    lines = printed(table, width).splitlines()
    return lines[1 : next(number for number, line in enumerate(lines) if line.startswith("─"))]


def test_a_name_takes_as_few_lines_as_there_is_room_for_and_ends_on_the_last():
    names = ["", *(f"{word}\nof a\nlong name" for word in ("first", "second", "third"))]
    table = _table(names, [["GF", "1", "2", "3"]])
    one, two, three = (_header(table, width) for width in (80, 48, 36))
    assert [" ".join(line.split()) for line in one] == [
        "first of a long name second of a long name third of a long name"
    ]
    assert len(two) == 2
    assert [line.split() for line in three] == [["first", "second", "third"], ["of", "a"] * 3, ["long", "name"] * 3]
    header = _header(_table(["", "η", "excess\nrisk and\nmore"], [["GF", "1", "2"]]), 15)
    assert [line.split() for line in header] == [["excess"], ["risk", "and"], ["η", "more"]]


def test_text_is_wrapped_between_words_and_the_widest_column_first():
    table = _table(["claim", "margin", "verdict"], [[LONG, "0.25", "assumption not met"]], texts=("claim", "verdict"))
    (text,) = check_fits([table])
    assert "assumption not met" in text  # the shorter text keeps its line
    table = _table(["", "interval", "claim"], [["heavy ball", "[0.1, 0.2]", "a b c d e f g"]], texts=("claim",))
    (text,) = check_fits([table], 30)
    assert any(line.startswith("heavy ball  [0.1, 0.2]  a b c") for line in text.splitlines())


def test_columns_that_do_not_fit_go_below_each_other_with_the_names_of_the_rows():
    names = ["scale", "", *(f"quantity{number}" for number in range(12))]
    rows = [[f"{scale}", "GF", *(f"{scale + number}" for number in range(12))] for scale in (1, 2)]
    (text,) = check_fits([_table(names, rows)])
    pieces = [line for line in text.splitlines() if line.strip().startswith("scale")]
    assert len(pieces) > 1
    assert sum(line.count("quantity") for line in pieces) == 12
    assert all(line.split()[1] == "GF" for line in text.splitlines() if line.strip().startswith(("1 ", "2 ")))


def test_remarks_and_title_are_as_wide_as_the_terminal_and_no_line_ends_in_blanks():
    table = _table(["a", "b"], [["1", ""], ["a longer cell", "2"]])
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(fitted(table, 100))
    lines = console.export_text().splitlines()
    assert lines == printed(table, 100).splitlines()
    assert lines[0] == "a title"
    assert "wide, or so it seems" in lines[-1]
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_width_is_that_of_the_terminal_within_bounds_and_a_hundred_columns_without_one(monkeypatch):
    for columns, width in ((40, 80), (120, 120), (400, 160)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert width - 1 <= _widest_line() <= width

    def none(descriptor):
        raise OSError

    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(os, "get_terminal_size", none)
    assert 99 <= _widest_line() <= 100


def _widest_line():
    """Return the width of a table that would go on for ever."""
    return max(map(len, printed(_table(["claim"], [["a " * 300]], texts=("claim",))).splitlines()))


def test_a_table_is_spelled_before_it_is_laid_out_where_an_encoding_lacks_its_characters():
    table = _table(["", "η", "‖∇R‖"], [["GF", "–", "∞"], ["λ ≤ Σₖ", "1", "漢"]], texts=("",))
    table.caption = None
    stream = io.StringIO()
    Console(file=stream, width=80).print(fitted(table, 80, ["ascii"]))
    assert stream.getvalue().splitlines() == [
        "a title",
        "                  eta  ||grad R||",
        "---------------------------------",
        "GF                  -         inf",
        "lambda <= Sigmak    1           ?",
    ]
    assert "‖∇R‖" in printed(table)


def test_no_text_of_a_table_or_below_it_steers_a_terminal():
    table = empty_table("a\x1b[2Jtitle", ["a\x9bremark"])
    table.add_column("a\x1b]column")
    table.add_row(Text("a\x1b[31mcell", style="red"))
    for shown in (table, Text("a warning \x1b[31m \N{RIGHT-TO-LEFT OVERRIDE}")):
        text = printed(shown)
        assert all(letter.isprintable() or letter == "\n" for letter in text), ascii(text)
        assert "\N{REPLACEMENT CHARACTER}" in text
