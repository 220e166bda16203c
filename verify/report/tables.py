"""One table, five formats: rich, markdown, latex, csv and json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

FORMATS = ("rich", "markdown", "latex", "csv", "json")


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> str:
    """The table as text; None is shown as a dash, and as null in json.

    >>> print(render(["T", "d"], [[32, None]], "markdown"), end="")
    | T | d |
    |---|---|
    | 32 | - |
    """
    if form == "json":
        return json.dumps([dict(zip(columns, row, strict=True)) for row in rows]) + "\n"
    cells = [["-" if value is None else str(value) for value in row] for row in rows]
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([columns, *cells])
        return out.getvalue()
    if form == "markdown":
        lines = ["| " + " | ".join(row) + " |" for row in [list(columns), *cells]]
        return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]]) + "\n"
    if form == "latex":
        body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in [list(columns), *cells]]
        head = rf"\begin{{tabular}}{{{'l' * len(columns)}}}"
        return "\n".join([head, body[0], r"\hline", *body[1:], r"\end{tabular}"]) + "\n"
    return _rich(columns, cells)


def _latex(text: str) -> str:
    for character in "&%#_":
        text = text.replace(character, "\\" + character)
    return text


def _rich(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in cells:
        table.add_row(*row)
    console = Console(file=io.StringIO(), highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
