"""Cells like Mamba, RWKV and diagonal S4, in balls again: h' = keep(x) h + add(x), logits = W (read(x) h) + b."""

from typing import Any

from flint import arb, ctx

from verify.checker import held
from verify.checker.linear import first_wrong
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tensors, require, tables_of
from verify.checker.recurrent import due_of, positive_margin, predicts

KINDS = {"mamba": ("A", "delta", "B", "C"), "rwkv": ("w", "k", "v", "r"), "s4": ("a", "u", "c")}
OF_ALL_TOKENS = ("cell.A", "cell.a", "cell.c")  # that have no row a token
BITS, MOST_STEPS = 400, 20_000


def of_file(weights: bytes, said: dict[str, Any]) -> dict[str, list[list[float]]]:
    """The file's tables by their names, and the readout's."""
    kind = said["model"]
    tensors, about = read_tensors(weights)
    names = [*(f"cell.{name}" for name in KINDS[kind]), "readout.weight", "readout.bias"]
    require(about == {"model": kind}, f"the metadata name another network: {about}")
    require({*tensors} == {*names}, f"the file must hold {', '.join(names)}", UNREADABLE)
    tables = tables_of(tensors, OF_ALL_TOKENS)
    rows = {name.rpartition(".")[2] if "cell" in name else name: tables[name] for name in names}
    V, b = rows["readout.weight"], rows["readout.bias"][0]
    widths = {len(row) for name, table in rows.items() if name != "readout.bias" for row in table}
    heights = {len(rows[name]) for name in KINDS[kind] if f"cell.{name}" not in OF_ALL_TOKENS}
    require(len(widths) == len(heights) == 1 and len(V) == len(b), "shapes do not fit", UNREADABLE)
    shape = {"units": len(V[0]), "layers": 1, "dtype": WORDS[tensors["readout.weight"][0]][0]}
    for name, value in shape.items():
        require(said.get(name) == value, f"parameters: {name} is {said.get(name)!r}, and the file has {value!r}")
    return rows


def is_of_decays(weights: bytes, said: dict[str, Any]) -> bool:
    """Whether a file's states fade by shares; those of an S4 that holds an angle turn."""
    return said.get("model") in KINDS and (said["model"] != "s4" or "cell.omega" not in read_tensors(weights)[0])


def decide(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks a proof, or a wrong input, in real arithmetic."""
    rows = of_file(weights, said)
    V, b = rows["readout.weight"], rows["readout.bias"][0]
    with ctx.workprec(BITS):
        keep, add, read = _tables(said["model"], rows)
        if said.get("task") == "selective":
            K, C = said.get("types"), said.get("max_count")
            is_task = type(K) is int and type(C) is int and K == len(keep) == len(V[0]) and len(b) == C + 1
            require(is_task, "parameters: not one state for each type", NOT_CHECKABLE)
            is_own = all(row[k] == 0 for x, row in enumerate(read) for k in range(len(row)) if x != k)
            require(is_own, "a state is read at another type's token", NOT_CHECKABLE)
            turned = [[list(unit) for unit in zip(*table, strict=True)] for table in (add, keep, read)]
            held.HeldUnits(V, b, int(str(C)), turned[0], turned[1], turned[2], lambda x: x).decide(c)
            return
        require(len(keep) == 1, "the network reads more than one token", NOT_CHECKABLE)
        _line(keep[0], add[0], read[0], V, b, c, said)


def _tables(kind: str, rows: dict[str, list[list[float]]]) -> tuple[held.Table, held.Table, held.Table]:
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


def _line(
    keep: list[arb],
    add: list[arb],
    read: list[arb],
    V: held.Rows,
    b: list[float],
    c: dict[str, Any],
    said: dict[str, Any],
) -> None:
    """One repeated token: right up to a length, or first wrong after so many."""
    due, is_wrong = due_of(len(b), said), c["verdict"] == "REFUTED"
    n, margin, other = first_wrong(c, due, said) if is_wrong else (c["length"], 0.0, 0)
    least = arb(0) if is_wrong else positive_margin(c)
    require(type(n) is int and n <= MOST_STEPS, f"{n} steps are too many to run", NOT_CHECKABLE)
    require(is_wrong or c.get("inputs_covered") == str(n), f"inputs_covered: must be {n}")
    h = [arb(0)] * len(keep)
    for t in range(1, n + 1):
        h = [f * x + a for f, x, a in zip(keep, h, add, strict=True)]
        logits = [
            sum((arb(v) * r * x for v, r, x in zip(row, read, h, strict=True)), arb(y))
            for row, y in zip(V, b, strict=True)
        ]
        right = due(t)
        require(right is not None, f"length {t}: has no right class")
        gaps = {j: logits[right or 0] - x for j, x in enumerate(logits) if j != right}
        if is_wrong and t == n:
            require(bool(gaps[other] <= arb(margin)), f"counterexample: the margin at length {n} is {gaps[other]}")
            predicts(gaps, other, [(*row, x) for row, x in zip(V, b, strict=True)])
            return
        is_right = all(bool(g >= least and g > 0) for g in gaps.values())
        require(is_right, f"length {t}: class {right} does not win by {least}")
