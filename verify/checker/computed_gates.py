"""Gated decays and rotations whose every operation rounds, in any order: lines, and all strings (docs/checker.md).

A state is linear in the one before: h' = f h + a for each number of a gated cell, one turn of the plane and 1 for a
rotation. So an error of the state before is multiplied by |f|, or keeps its length, and each step adds its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from flint import acb, arb, ctx

from verify.checker import formats, held
from verify.checker.formats import BinaryFormat
from verify.checker.gated import of_file
from verify.checker.linear import of_rotation
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.recurrent import due_of, positive_margin
from verify.checker.rounded import BITS, ComputedBalls, Rounding
from verify.checker.rounded_lines import ComputedLine, Gaps

FORMULA = 19  # below it torch's softplus is log(1 + e^x), and beyond 20 it is x
MOST_WORK = 1_000_000  # numbers of states

Table = list[ComputedBalls]  # for each token
Gates = tuple[Table, Table, Table]  # what each keeps, adds and reads


class StoredCell(NamedTuple):
    """A network's file: what its tables are, and V, b of its logits V (read h) + b; all rounded once."""

    kind: str
    rows: dict[str, list[list[float]]]
    V: list[list[float]]
    b: list[float]

    @classmethod
    def of(cls, weights: bytes, said: dict[str, Any], fmt: BinaryFormat) -> "StoredCell":
        rows = of_rotation(weights, said) if said["model"] == "s4" else of_file(weights, said)
        rows = {name: fmt.of_weights(table) for name, table in rows.items()}
        return cls(said["model"], rows, rows.pop("readout.weight"), rows.pop("readout.bias")[0])


def decide(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks a proof of lines or strings up to a length, or the first length at which every order is wrong."""
    fmt = formats.named(said)
    with ctx.workprec(BITS):
        net = StoredCell.of(weights, said, fmt)
        if said["task"] == "selective":
            require(net.kind != "s4" and c["verdict"] == "PROVED", "only proofs are checked", NOT_CHECKABLE)
            ComputedStrings(net, fmt, said).prove(c)
            return
        gaps = turning(net, fmt) if net.kind == "s4" else fading(net, fmt)
        ComputedLine(due_of(len(net.b), said), gaps).decide(c, said)


def gates(net: StoredCell, fmt: BinaryFormat) -> Gates:
    """What tokens keep, add and read: exact values, and how far what is computed may be from them."""
    on, cell = Rounding(fmt), {name: [_stored(row) for row in rows] for name, rows in net.rows.items()}

    def exp(x: ComputedBalls) -> ComputedBalls:
        moved = [e + fmt.tiny for e in x.error]
        around = [(v - e).union(v + e).exp().upper() for v, e in zip(x.value, moved, strict=True)]
        error = [(y * e + 3 * _unit(fmt, y) + fmt.tiny).upper() for y, e in zip(around, moved, strict=True)]
        return on.checked([v.exp() for v in x.value], error)

    def faded(x: ComputedBalls) -> ComputedBalls:
        return exp(ComputedBalls([-v for v in x.value], x.error))

    def product(x: ComputedBalls, y: ComputedBalls) -> ComputedBalls:
        found, sizes = on.times(x, y), zip(x.sizes(), y.sizes(), strict=True)
        flushed = [(e + (a + b) * fmt.tiny).upper() for e, (a, b) in zip(found.error, sizes, strict=True)]
        return on.checked(found.value, flushed)

    if net.kind == "rwkv":
        pairs = zip(cell["k"], cell["v"], strict=True)
        return [faded(exp(w)) for w in cell["w"]], [product(k, v) for k, v in pairs], cell["r"]
    rate, steps = exp(cell["A"][0]), [_softplus(on, x) for x in cell["delta"]]
    added = [product(s, x) for s, x in zip(steps, cell["B"], strict=True)]
    return [faded(product(s, rate)) for s in steps], added, cell["C"]


def _unit(fmt: BinaryFormat, x: arb) -> arb:
    """A unit in the last place of numbers of at most x. A result within two is, rounded, within three."""
    mantissa, exponent = x.man_exp()
    return arb(2) ** max(int(exponent) + int(mantissa).bit_length() - fmt.p, fmt.least - fmt.p + 1)


def _stored(row: list[float]) -> ComputedBalls:
    return ComputedBalls([arb(x) for x in row], [arb(0)] * len(row))


def _softplus(on: Rounding, x: ComputedBalls) -> ComputedBalls:
    """Of stored numbers. Where x itself may be taken, that is off by log(1 + e^-x)."""
    found = on.function(x, lambda v: v.exp().log1p(), lambda y: arb(1))
    taken = [(-v).exp().log1p() if not v < FORMULA else arb(0) for v in x.value]
    return on.checked(found.value, [(e + y).upper() for e, y in zip(found.error, taken, strict=True)])


def rounding(fmt: BinaryFormat, size: arb, terms: int, more: int = 0) -> arb:
    """How far a sum of products of computed numbers is off where it is read, `more` products in each term.

    A term is rounded as each product and in terms - 1 sums, and once more, as the result is stored or read. Numbers
    that are read may be flushed, and so may each result.
    """
    growth = fmt.growth(terms + 1 + more)
    off = (growth * size + (4 * terms + 4) * fmt.tiny * (1 + growth)).upper()
    require(fmt.holds((size + off).upper()), "a computed number may overflow", NOT_CHECKABLE)
    return off


def logit_gaps(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, right: int) -> Gaps:
    """Between which numbers (right logit) - (each other) is computed, from computed states and exact readings."""
    sizes, shown = h.sizes(), read.value
    off = []
    for r, x in zip(shown, sizes, strict=True):
        rounding(fmt, abs(r) * x, 1)  # refuses what may overflow where it is read, however small V is
    for row, bias in zip(net.V, net.b, strict=True):
        size = sum((abs(v * r) * x for v, r, x in zip(row, shown, sizes, strict=True)), abs(arb(bias)))
        flushed = sum((abs(v) * (1 + abs(r)) for v, r in zip(row, shown, strict=True)), arb(0)) * 2 * fmt.tiny
        terms = sum(bool(v) and r != 0 for v, r in zip(row, shown, strict=True)) + bool(bias)
        off.append((rounding(fmt, size, max(1, terms), 1) + flushed).upper())
    found = {}
    for j, (row, bias) in enumerate(zip(net.V, net.b, strict=True)):
        d = [(arb(v) - arb(w)) * r for v, w, r in zip(net.V[right], row, shown, strict=True)]
        gap = sum((x * y for x, y in zip(d, h.value, strict=True)), arb(net.b[right]) - arb(bias))
        moved = sum((abs(x) * e for x, e in zip(d, h.error, strict=True)), off[right] + off[j])
        if j != right:
            found[j] = (gap - moved, gap + moved)
    return found


def fading(net: StoredCell, fmt: BinaryFormat) -> Callable[[int], Gaps]:
    """What is known of the logits of a gated cell after one token, two tokens, and so on."""
    keep, add, read = gates(net, fmt)
    require(len(keep) == 1, "the network reads more than one token", NOT_CHECKABLE)
    h = [_stored([0.0] * len(net.V[0]))]

    def gaps(right: int) -> Gaps:
        h[0] = _after(fmt, keep[0], add[0], h[0])
        return logit_gaps(net, fmt, read[0], h[0], right)

    return gaps


def _after(fmt: BinaryFormat, keep: ComputedBalls, add: ComputedBalls, h: ComputedBalls) -> ComputedBalls:
    """f h + a. What is computed as (f + d) (h + e) + a + g is off by f e + d (h + e) + g, and its roundings."""
    value = [f * x + a for f, x, a in zip(keep.value, h.value, add.value, strict=True)]
    error = list[arb]()
    for f, d, e, g, x, k, a in zip(
        keep.value, keep.error, h.error, add.error, h.sizes(), keep.sizes(), add.sizes(), strict=True
    ):
        error.append((abs(f) * e + d * x + g + rounding(fmt, k * x + a, 2)).upper())
    return ComputedBalls(value, error)


def turning(net: StoredCell, fmt: BinaryFormat) -> Callable[[int], Gaps]:
    """The same of a rotation, whose state is m - m e^(i omega t); a turn keeps the length of an error."""
    omega, (one, zero), on = net.rows["omega"][0][0], (arb(1), arb(0)), Rounding(fmt)
    c, s = (on.function(_stored([omega]), f, lambda y: zero) for f in (arb.cos, arb.sin))
    (C, S), (f, g) = (v.sizes()[0] for v in (c, s)), (v.error[0] for v in (c, s))
    read, h, middle = ComputedBalls([one, one], [zero, zero]), [_stored([0.0, 0.0])], 1 / (1 - acb(0, omega).exp())

    def gaps(right: int) -> Gaps:
        (a, b), t = h[-1].sizes(), len(h)
        own = [f * a + g * b + rounding(fmt, C * a + S * b + 1, 3), g * a + f * b + rounding(fmt, S * a + C * b, 2)]
        away, z = h[-1].error[0] + (own[0] ** 2 + own[1] ** 2).sqrt(), middle * (1 - acb(0, arb(omega) * t).exp())
        h.append(ComputedBalls([z.real, z.imag], [away.upper()] * 2))
        return logit_gaps(net, fmt, read, h[-1], right)

    return gaps


class ComputedStrings:
    """All strings over K types: by how often a type t was read and by the length, each state lies in a ball."""

    def __init__(self, net: StoredCell, fmt: BinaryFormat, said: dict[str, Any]) -> None:
        self.net, self.fmt, self.C = net, fmt, said.get("max_count")
        self.keep, self.add, self.read = gates(net, fmt)
        self.K, self.units = len(self.keep), len(net.V[0])
        is_task = said.get("types") == self.K and type(self.C) is int and self.C >= 1 and len(net.b) == self.C + 1
        require(is_task and self.K > 1, "parameters: other types or counts than the file's", NOT_CHECKABLE)

    def prove(self, c: dict[str, Any]) -> None:
        length, margin = c["length"], positive_margin(c)
        require(length != "all", "length: strings of every length are not followed", NOT_CHECKABLE)
        require(c.get("inputs_covered") == held.strings(self.K, length), "inputs_covered: another number")
        require(length * self.K**2 * self.C * self.units <= MOST_WORK, "length: too many states are met", NOT_CHECKABLE)
        for t in range(self.K):
            for n, h in self._judged(t, length).items():
                state = ComputedBalls(h, [arb(0)] * self.units)
                for j, (low, _) in logit_gaps(self.net, self.fmt, self.read[t], state, n).items():
                    is_right = bool(low >= margin and low > 0)
                    require(is_right, f"count {n} of type {t}: that class {n} wins over {j} by {margin} is not shown")

    def _judged(self, t: int, length: int) -> dict[int, list[arb]]:
        """The computed states after the n-th token t, of all strings of up to this length."""
        states, judged = {0: [arb(0)] * self.units}, dict[int, list[arb]]()
        for _ in range(length):
            after = dict[int, list[arb]]()
            for n, h in states.items():
                for x in range(self.K):
                    reached = self._step(x, h)
                    if x == t:
                        _join(judged, n + 1, reached)
                    if n + (x == t) < int(str(self.C)):
                        _join(after, n + (x == t), reached)
            states = after
        return judged

    def _step(self, x: int, h: list[arb]) -> list[arb]:
        found = _after(self.fmt, self.keep[x], self.add[x], ComputedBalls(h, [arb(0)] * self.units))
        return [(v - e).union(v + e) for v, e in zip(found.value, found.error, strict=True)]


def _join(states: dict[int, list[arb]], n: int, h: list[arb]) -> None:
    states[n] = [x.union(y) for x, y in zip(states.get(n, h), h, strict=True)]
