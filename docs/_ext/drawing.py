"""Stored weights as labelled matrices: LaTeX arrays with a name for every row and column."""

from dataclasses import fields
from pathlib import Path

from safetensors.torch import load_file

MOST_ROWS, MOST_COLUMNS = 32, 24
MOST_ROWS_IN_FULL = 8  # above, rows of zeros are left out
AXES = {
    "E": ("token", "dim"),
    "e_BOS": ("dim",),
    "A": ("position", "position"),
    "W_Q": ("dim", "head"),
    "W_K": ("dim", "head"),
    "W_1": ("dim", "neuron"),
    "b_1": ("neuron",),
    "W_2": ("neuron", "count"),
    "b_2": ("count",),
}
CONTEXTUAL = AXES | {
    "W_O": ("head", "dim"),
    "W_2": ("neuron", "dim"),
    "b_2": ("dim",),
    "P": ("prompt", "dim"),
    "W_out": ("head", "count from 0"),
    "b_out": ("count from 0",),
}
PREFIX = {"dim": "d_", "position": "x_", "head": "h_", "neuron": "p_", "prompt": "r_"}
FIRST = {"token": 0, "count from 0": 0}  # the others are numbered from 1


def drawings(path: Path) -> str:
    """Every tensor of a safetensors file as markdown: its name, its shape, and the matrix where it is small."""
    tensors = load_file(path)
    label = labels_of(tensors)
    return "\n".join(drawing(name, tensors[name], label) for name in sorted(tensors, key=place))


def place(name: str) -> tuple[str, int]:
    """Embeddings first, then the layers in the order in which they are passed, the readout last."""
    layer, _, own = name.rpartition(".")
    order = [
        "E",
        "P",
        "e_BOS",
        "A",
        "W_Q",
        "W_K",
        "W_V",
        "W_O",
        "W_1",
        "b_1",
        "W_2",
        "b_2",
        "U_Q",
        "U_K",
        "U_V",
        "W_out",
        "b_out",
    ]
    return layer, order.index(own) if own in order else len(order)


def drawing(name, tensor, label):
    shape = " x ".join(map(str, tensor.shape)) or "a single value"
    head = f"**{name.replace('_', chr(92) + '_')}** ({shape})\n"
    matrix = tensor.double()
    while matrix.ndim > 2 and 1 in matrix.shape:  # one head
        matrix = matrix.squeeze(matrix.shape.index(1))
    if matrix.ndim == 1:
        matrix = matrix[None, :]
    if matrix.ndim != 2:
        return head + f": {matrix.item():g}\n" if matrix.ndim == 0 else head
    rows, columns = matrix.shape
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        return head
    row_names, column_names = label(name.rpartition(".")[2], tuple(tensor.shape), rows, columns)
    lines = [" & ".join(["", *(small(c) for c in column_names)]) + r" \\ \hline"]
    for row_name, values in zip(row_names, matrix.tolist(), strict=True):
        if rows > MOST_ROWS_IN_FULL and not any(values):
            continue
        lines.append(" & ".join([small(row_name), *map(number, values)]) + r" \\")
    body = "\n".join(lines)
    return f"{head}\n$$\n\\begin{{array}}{{r|{'r' * columns}}}\n{body}\n\\end{{array}}\n$$\n"


def small(text):
    return rf"\scriptstyle\color{{gray}}{{{text}}}"


def number(x: float) -> str:
    r"""Four significant digits; a dot is an exact zero.

    >>> number(0.0), number(-12.0), number(2.71828182), number(1e-12)
    ('\\cdot', '-12', '2.718', '10^{-12}')
    """
    if x == 0:
        return r"\cdot"
    text = f"{x:.4g}"
    mantissa, exponent, power = text.partition("e")
    if not exponent:
        return text
    return f"10^{{{int(power)}}}" if mantissa == "1" else rf"{mantissa}\cdot 10^{{{int(power)}}}"


def labels_of(tensors):
    """How to name rows and columns, by the task that the tensors' names and shapes show."""
    if "P" in tensors and "W_out" not in tensors:
        from constructions.circuit_simulation import Lanes

        return by_lane(Lanes((tensors["P"].shape[1] - 6) // 3))
    if "W_out" in tensors and tensors["E"].shape[0] == 8:
        from constructions.count01 import TOKENS

        return by_token([rf"\text{{{token}}}" for token in TOKENS])
    return by_axis(CONTEXTUAL if "U_Q" in tensors else AXES)


def by_axis(axes):
    def label(name, shape, rows, columns):
        known = axes.get(name, ("dim", "head"))[-len(shape) :]
        names = [numbered(axis, n) for axis, n in zip(known, shape, strict=True)]
        return names if len(shape) == 2 else [[""], *names]

    return label


def numbered(axis: str, n: int) -> list[str]:
    """d_1, d_2, ...; plain numbers for tokens and counts."""
    return [f"{PREFIX.get(axis, '')}{{{FIRST.get(axis, 1) + i}}}" for i in range(n)]


def by_token(tokens):
    def label(name, shape, rows, columns):
        row_names = tokens if name == "E" else [""] * rows
        column_names = (tokens + [""] * columns)[:columns] if name in ("W_out", "b_out") else [""] * columns
        return row_names, column_names

    return label


def by_lane(lanes):
    names = [""] * lanes.d
    for field in fields(lanes):
        if field.name != "k":
            names[getattr(lanes, field.name)] = rf"{field.name.replace('_', '_{') + '}' * field.name.count('_')}"
    for word in ("id", "a", "b"):
        names[getattr(lanes, word)] = [rf"\text{{{word}}}_{{{j + 1}}}" for j in range(lanes.k)]
    names[lanes.one] = "1"

    def label(name, shape, rows, columns):
        first = 0 if name == "E" else 1  # tokens are 0 and 1
        plain = [[str(first + i) for i in range(n)] if n > 1 else [""] for n in (rows, columns)]
        return tuple(names if n == lanes.d else own for n, own in zip((rows, columns), plain, strict=True))

    return label
