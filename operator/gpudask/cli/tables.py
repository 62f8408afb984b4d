"""Rows for people as rich draws them: columns without lines, as kubectl's, that stay readable in a narrow terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

_GAP = 3
_WORDS = ("WHY", "REASON")
_LEAST_WORDS = 30  # columns in which words can be read
_KEYS = ("NAMESPACE", "NAME", "CLUSTER", "POOL")


def table(columns: list[str], rows: list[list[str]], width: int) -> Group:
    """A table, and under it the words of its rows where they have no room in it.

    Args:
        columns: the heads; a last one of words may be cut from the table.
        rows: a cell for each column.
        width: of the terminal, in characters. Cells are never broken: what has no room runs over, as kubectl's.
    """
    from rich.console import Group  # noqa: PLC0415 - help and programs' output do without
    from rich.text import Text  # noqa: PLC0415

    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    taken = sum(size + _GAP for size in widths[:-1])
    has_words = columns[-1] in _WORDS
    if not has_words or taken + min(widths[-1], _LEAST_WORDS) <= width:
        return Group(_drawn(columns, rows, widths, has_words=has_words))
    named = [index for index, column in enumerate(columns) if column in _KEYS]
    notes = [Text(f"{'/'.join(row[index] for index in named)}: {row[-1]}") for row in rows if row[-1]]
    return Group(_drawn(columns[:-1], [row[:-1] for row in rows], widths[:-1], has_words=False), Text(), *notes)


def show(console: Console, drawn: Group) -> None:
    """Print it without cutting what is wider than the terminal."""
    for part in drawn.renderables:
        console.print(part, crop=False)


def _drawn(columns: list[str], rows: list[list[str]], widths: list[int], *, has_words: bool) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - Text, not markup: a message may hold [brackets]

    # Left to itself, rich drops columns that have no room.
    natural = None if has_words else sum(size + _GAP for size in widths) - _GAP
    made = Table(width=natural, box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column, size in zip(columns, widths, strict=True):
        words = has_words and column == columns[-1]
        made.add_column(column, no_wrap=not words, min_width=None if words else size)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made
