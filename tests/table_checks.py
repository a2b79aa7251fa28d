"""What every printed table of the house is to be: as wide as the terminal at most, nothing cut, no word broken."""

from collections.abc import Sequence

from rich.table import Table

from flowsim.formatting.terminal import printed


def check_fits(tables: Sequence[Table], width: int = 80) -> list[str]:
    """Assert that `tables` fit `width` columns, with every word whole, and return their texts."""
    texts = [printed(table, width) for table in tables]
    for text, table in zip(texts, tables, strict=True):
        assert max(map(len, text.splitlines())) <= width, text
        assert words_of(text) <= _words(table), text
    return texts


def words_of(text: str) -> set[str]:
    """Return the words of a printed table, its rules apart."""
    return {word for word in text.split() if set(word) != {"─"}}


def _words(table: Table) -> set[str]:
    cells = [cell for column in table.columns for cell in (column.header, *column.cells)]
    return {word for cell in (table.title, table.caption, *cells) for word in str(cell).split()}
