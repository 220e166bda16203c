"""One table, five formats: rich, markdown, latex, csv and json."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence

from verify.frame.schema import named
from verify.report.console import columns as width_of
from verify.report.console import folded

FORMS = ("rich", "markdown", "latex", "csv", "json")
NARROWEST = 6  # columns of a terminal below which a cell is hard to read


def render(columns: Sequence[str], rows: Sequence[Sequence[object]], form: str) -> str:
    """The table as text; None is shown as a dash, and as null in json.

    >>> print(render(["T", "d"], [[32, None]], "markdown"), end="")
    | T | d |
    |---|---|
    | 32 | - |
    """
    if form == "json":
        return json.dumps([named(dict(zip(columns, row, strict=True))) for row in rows]) + "\n"
    cells = [["-" if value is None else str(value) for value in row] for row in rows]
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([columns, *cells])
        return out.getvalue()
    if form == "markdown":
        lines = ["| " + " | ".join(map(_markdown, row)) + " |" for row in [list(columns), *cells]]
        return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]]) + "\n"
    if form == "latex":
        body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in [list(columns), *cells]]
        head = ["% needs \\usepackage{booktabs}", rf"\begin{{tabular}}{{{'l' * len(columns)}}}", r"\toprule"]
        return "\n".join([*head, body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]) + "\n"
    return _for_people(columns, cells)


# What LaTeX would read as a command, or set as another sign; the rest of Unicode is for its engines.
LATEX = {character: "\\" + character for character in "&%#_${}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "\n": " ", "≤": r"$\le$", "≥": r"$\ge$", "×": r"$\times$",
}  # fmt: skip


def _latex(text: str) -> str:
    r"""The text as LaTeX sets it letter by letter; a formula in dollars stays one.

    >>> _latex("50% of x_1^2 <= {a}")
    '50\\% of x\\_1\\textasciicircum{}2 \\textless{}= \\{a\\}'
    """
    if len(text) > 1 and text.startswith("$") and text.endswith("$"):
        return text
    return "".join(LATEX.get(character, character) for character in text)


def _markdown(text: str) -> str:
    """The text of one cell: a bar would end it, and a line end the row.

    >>> _markdown("(0|1)*1")
    '(0\\\\|1)*1'
    """
    return text.replace("|", "\\|").replace("\n", " ")


def _for_people(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Prints a row on one line where it fits, and always in a pipe. Else cells fold, or rows become lists."""
    cells = [[cell.replace("\n", "\\n") for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    width = width_of(sys.stdout)
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        return _plain(columns, cells, widths)
    if sum(min(NARROWEST, n) + 3 for n in widths) + 1 > width:
        return _lists(columns, cells, width)
    return _folding(columns, cells, width)


def _plain(columns: Sequence[str], cells: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)) for row in [columns, *cells]]
    return "".join(line.rstrip() + "\n" for line in lines)


def _lists(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> str:
    """Each row as lines "column: cell"."""
    rows = ([f"{name}: {cell}" for name, cell in zip(columns, row, strict=True)] for row in cells)
    return "\n".join("".join(f"{part}\n" for line in row for part in folded(line, width)) for row in rows)


def _folding(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    for name in columns:
        table.add_column(Text(name), overflow="fold", min_width=min(NARROWEST, len(name)))
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(file=sys.stdout, highlight=False, width=width)
    with console.capture() as capture:
        console.print(table)
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())
