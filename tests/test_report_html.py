"""The tables of the terminal as HTML."""

import xml.etree.ElementTree as xml

from rich.text import Text

from flowsim.formatting.html import as_html, table_as_html
from flowsim.formatting.terminal import empty_table


def _words(element):
    return " ".join("".join(element.itertext()).split())


def test_a_table_is_html_with_header_cells_remarks_and_divided_bodies_and_without_colours_for_dark_pages():
    table = empty_table("runs & <others>", ["GF by Heun", "a < b"])
    table.add_column("")
    table.add_column("\nexcess\nrisk", justify="right")
    table.add_column("verdict")
    table.add_row("GF", "0.5", Text("fails", style="bold"), end_section=True)
    table.add_row("GD", "–", Text.assemble("held\n", ("expected: 1", "dim")))
    page = xml.fromstring(f"<div>{as_html([table, Text('failed: x < 3')])}</div>")
    headers = page.findall(".//th")
    assert [_words(header) for header in headers] == ["excess risk", "verdict"]
    assert all(header.get("scope") == "col" for header in headers)
    assert len(page.findall(".//thead/tr/*")) == 3  # a column without a name has no header
    assert _words(page.find(".//table/caption")) == "runs & <others>"
    assert _words(page.find(".//figcaption")) == "GF by Heuna < b"
    assert page.find(".//figcaption/br") is not None
    assert [_words(body) for body in page.findall(".//tbody")] == ["GF0.5fails", "GD–heldexpected: 1"]
    assert _words(page.find(".//strong")) == "fails"
    assert _words(page.findall("./*")[-1]) == "failed: x < 3"
    assert "caption" not in table_as_html(empty_table("", []))
    styles = [element.get("style") or "" for element in page.iter()]
    assert not any("color" in style or "background" in style for style in styles)
    assert all("text-align:right" in row.findall("td")[1].get("style") for row in page.findall(".//tbody/tr"))
