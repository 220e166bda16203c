"""Weights and circuits as HTML for notebooks: matrices as coloured squares, gates as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from torch import Tensor

MOST_ENTRIES = 4096  # of one matrix; a larger one is named with its shape only
MOST_ROWS = 200
SIDE = 7  # of an entry's square, in pixels


def matrices(title: str, weights: Mapping[str, Tensor]) -> str:
    """Every matrix as squares: blue below zero, orange above, white at zero, full colour at its largest entry.

    >>> import torch
    >>> matrices("m", {"b": torch.tensor([0.0, -2.0])}).count("<rect")
    2
    """
    drawn = "".join(
        f'<div style="display:inline-block;margin:4px;vertical-align:top"><code>{escape(name)}</code> '
        f"{' x '.join(map(str, value.shape))}<br>{_squares(value)}</div>"
        for name, value in weights.items()
    )
    return f"<div><b>{escape(title)}</b><br>{drawn}</div>"


def _squares(value: Tensor) -> str:
    rows = value.detach().double().reshape(-1, value.shape[-1])
    most = float(rows.abs().max()) if rows.numel() else 0.0
    scale = f"largest |entry| {most:.4g}"
    if not 0 < rows.numel() <= MOST_ENTRIES:
        return scale
    squares = "".join(
        f'<rect x="{SIDE * column}" y="{SIDE * row}" width="{SIDE}" height="{SIDE}" fill="{_colour(entry, most)}">'
        f"<title>{entry:.6g}</title></rect>"
        for row, entries in enumerate(rows.tolist())
        for column, entry in enumerate(entries)
    )
    width, height = SIDE * rows.shape[1], SIDE * rows.shape[0]
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="border:1px solid #999">{squares}</svg><br>{scale}'


def _colour(entry: float, most: float) -> str:
    """Between white and blue (negative) or vermillion (positive), told apart by the colour-blind as well."""
    if not abs(entry) <= most or most == 0:  # NaN too
        return "#ffffff" if entry == 0 else "#999999"
    share = abs(entry) / most
    full = (0xD5, 0x5E, 0x00) if entry > 0 else (0x00, 0x72, 0xB2)
    return "#" + "".join(f"{round(255 + (channel - 255) * share):02x}" for channel in full)


def table(title: str, said: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table under a title and a line of text; beyond MOST_ROWS rows it says how many more there are.

    >>> table("gates", "one of 2", ["kind"], [["and"]])
    '<b>gates</b>: one of 2<table><tr><th>kind</th></tr><tr><td>and</td></tr></table>'
    """
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        lines.append(f"<td colspan={len(columns)}>and {len(rows) - MOST_ROWS} more</td>")
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<b>{escape(title)}</b>: {escape(said)}<table><tr>{head}</tr>{body}</table>"
