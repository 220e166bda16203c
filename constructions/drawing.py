"""Weights and circuits as HTML for notebooks: matrices as coloured squares, gates as a table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from constructions.circuits.circuit import Circuit

MOST_ENTRIES = 4096  # of one matrix; a larger one is named with its shape only
MOST_GATES = 200
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


def gates(circuit: Circuit) -> str:
    """The gates in order, with what they read, and the outputs."""
    lines = [
        f"<tr><td>{escape(gate.name)}</td><td>{gate.kind.upper()}</td>"
        f"<td>{escape(', '.join(circuit.name_of(node) for node in gate.fan_in))}</td></tr>"
        for gate in circuit.gates[:MOST_GATES]
    ]
    if len(circuit.gates) > MOST_GATES:
        lines.append(f"<tr><td colspan=3>and {len(circuit.gates) - MOST_GATES} more</td></tr>")
    outputs = ", ".join(f"{name} = {circuit.name_of(node)}" for name, node in circuit.outputs)
    head = f"<b>{escape(circuit.name)}</b>: inputs {escape(', '.join(circuit.inputs))}; outputs {escape(outputs)}"
    return f"{head}<table><tr><th>gate</th><th>kind</th><th>reads</th></tr>{''.join(lines)}</table>"
