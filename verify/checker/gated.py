"""Cells like Mamba, RWKV and diagonal S4, in balls again: h' = keep(x) h + add(x), logits = W (read(x) h) + b."""

from collections.abc import Callable
from typing import NamedTuple

from flint import arb, ctx

from verify.checker import held
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tensors, require, tables_of
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.rounded_lines import Gaps, TokenFollower, differences
from verify.checker.statement import compare

KINDS = {"mamba": ("A", "delta", "B", "C"), "rwkv": ("w", "k", "v", "r"), "s4": ("a", "u", "c")}
LAYER = ("layer.W", "layer.U")  # neurons of what is read, and what each token adds to them
OF_ALL_TOKENS = ("cell.A", "cell.a", "cell.c")  # that have no row a token
BITS = 400


def of_file(weights: bytes, said: LineParameters) -> dict[str, list[list[float]]]:
    """The file's tables by their names, and the readout's."""
    kind = said["model"]
    tensors, about = read_tensors(weights)
    names = [*(f"cell.{name}" for name in KINDS[kind]), "readout.weight", "readout.bias"]
    names += LAYER if LAYER[0] in tensors else ()
    require(about == {"model": kind}, f"the metadata name another network: {about}")
    require({*tensors} == {*names}, f"the file must hold {', '.join(names)}", UNREADABLE)
    tables = tables_of(tensors, OF_ALL_TOKENS)
    rows = {name.rpartition(".")[2] if "cell" in name else name: tables[name] for name in names}
    V, b, W, U = rows["readout.weight"], rows["readout.bias"][0], rows.get("layer.W"), rows.get("layer.U", [])
    d, p = len(rows[KINDS[kind][0]][0]), len(V[0])
    widths = {len(row) for name in KINDS[kind] for row in rows[name]} | {len(row) for row in W or []}
    heights = {len(rows[name]) for name in KINDS[kind] if f"cell.{name}" not in OF_ALL_TOKENS} | ({len(U)} - {0})
    is_read = p == (d if W is None else len(W)) and all(len(row) == p for row in U)
    require(widths == {d} and len(heights) == 1 and len(V) == len(b) and is_read, "shapes do not fit", UNREADABLE)
    shape = {"units": d, "layers": 1, "dtype": WORDS[tensors["readout.weight"][0]][0]}
    shape |= {"neurons": p if W else None} if W or "neurons" in said else {}
    compare(said, shape)
    return rows


def is_of_decays(weights: bytes, said: LineParameters) -> bool:
    """Whether a file's states fade by shares; those of an S4 that holds an angle turn."""
    return said.get("model") in KINDS and (said["model"] != "s4" or "cell.omega" not in read_tensors(weights)[0])


class GatedCell(NamedTuple):
    """What each token keeps, adds and reads of each state, and logits V y + b of what is read, or of neurons of it."""

    keep: held.Table
    add: held.Table
    read: held.Table
    V: held.Rows
    b: list[float]
    W: held.Rows | None
    U: held.Rows

    @classmethod
    def of(cls, weights: bytes, said: LineParameters) -> "GatedCell":
        rows = of_file(weights, said)
        with ctx.workprec(BITS):
            of_tokens = tables(said["model"], rows)
        V, b = rows["readout.weight"], rows["readout.bias"][0]
        return cls(*of_tokens, V, b, rows.get("layer.W"), rows.get("layer.U", []))

    @property
    def rows(self) -> list[object]:
        """What each class reads; where it is the same, so are the logits."""
        return [(*row, c) for row, c in zip(self.V, self.b, strict=True)]

    def after(self, h: list[arb], x: int) -> list[arb]:
        """The states after one more token."""
        return [f * y + a for f, y, a in zip(self.keep[x], h, self.add[x], strict=True)]

    def logits(self, h: list[arb], x: int) -> list[arb]:
        y = [r * z for r, z in zip(self.read[x], h, strict=True)]
        if self.W is not None:
            y = [a.lower().max(arb(0)).union(a.upper().max(arb(0))) for a in _sums(self.W, y, self.U[x])]
        return _sums(self.V, y, self.b)


def _sums(W: held.Rows, y: list[arb], b: list[float]) -> list[arb]:
    """W y + b."""
    return [sum((arb(v) * x for v, x in zip(row, y, strict=True)), arb(c)) for row, c in zip(W, b, strict=True)]


def by_balls(cell: GatedCell, h: list[arb] | None = None) -> TokenFollower:
    """What is known of differences of logits after one token, two tokens, and so on."""

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        with ctx.workprec(BITS):
            there = cell.after([arb(0)] * len(cell.keep[0]) if h is None else h, token)
            logits = cell.logits(there, token)
        return lambda k: differences(logits, cell.rows, k), by_balls(cell, there)

    return follow


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof on all strings, or a wrong one, in real arithmetic."""
    with ctx.workprec(BITS):
        cell = GatedCell.of(weights, said)
        keep, add, read, V, b = cell[:5]
        require(cell.W is None, "neurons after a recurrence are not checked on strings", NOT_CHECKABLE)
        K, C = said.get("types"), said.get("max_count")
        is_task = type(K) is int and type(C) is int and K == len(keep) == len(V[0]) and len(b) == C + 1
        require(is_task, "parameters: not one state for each type", NOT_CHECKABLE)
        is_own = all(row[k] == 0 for x, row in enumerate(read) for k in range(len(row)) if x != k)
        require(is_own, "a state is read at another type's token", NOT_CHECKABLE)
        turned = [[list(unit) for unit in zip(*table, strict=True)] for table in (add, keep, read)]
        held.HeldUnits(V, b, int(str(C)), turned[0], turned[1], turned[2], lambda x: x).decide(c)


def tables(kind: str, rows: dict[str, list[list[float]]]) -> tuple[held.Table, held.Table, held.Table]:
    """What each token keeps, adds and reads of each state, [token][state]."""
    if kind == "mamba":
        steps = [[(1 + arb(x).exp()).log() for x in row] for row in rows["delta"]]
        rates = [arb(x).exp() for x in rows["A"][0]]
        keep = [[(-s * a).exp() for s, a in zip(row, rates, strict=True)] for row in steps]
        add = [[s * arb(x) for s, x in zip(row, B, strict=True)] for row, B in zip(steps, rows["B"], strict=True)]
        return keep, add, [[arb(x) for x in row] for row in rows["C"]]
    if kind == "s4":
        add = [[arb(x) for x in row] for row in rows["u"]]
        every_keep, every_read = ([[arb(x) for x in rows[name][0]]] * len(add) for name in ("a", "c"))
        return every_keep, add, every_read
    keep = [[(-arb(x).exp()).exp() for x in row] for row in rows["w"]]
    add = [[arb(x) * arb(y) for x, y in zip(k, v, strict=True)] for k, v in zip(rows["k"], rows["v"], strict=True)]
    return keep, add, [[arb(x) for x in row] for row in rows["r"]]
