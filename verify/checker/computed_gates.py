"""Gated decays and rotations whose every operation rounds, in any order: lines, and all strings (docs/checker.md).

A state is linear in the one before: h' = f h + a for each number of a gated cell, one turn of the plane and 1 for a
rotation. So an error of the state before is multiplied by |f|, or keeps its length, and each step adds its own.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from flint import acb, arb

from verify.checker.formats import BinaryFormat
from verify.checker.gated import is_of_decays, of_file
from verify.checker.linear import of_rotation
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineParameters
from verify.checker.recurrent import Vector
from verify.checker.rounded import ComputedBalls, Rounding
from verify.checker.rounded_lines import Gaps, TokenFollower

FORMULA = 19  # below it torch's softplus is log(1 + e^x), and beyond 20 it is x

Table = list[ComputedBalls]  # for each token
Gates = tuple[Table, Table, Table]  # what each keeps, adds and reads


class StoredCell(NamedTuple):
    """A network's file: what its tables are, and V, b of its logits V (read h) + b; all rounded once."""

    kind: str
    rows: dict[str, list[list[float]]]
    V: list[list[float]]
    b: list[float]

    @classmethod
    def of(cls, weights: bytes, said: LineParameters, fmt: BinaryFormat) -> "StoredCell":
        rows = of_file(weights, said) if is_of_decays(weights, said) else of_rotation(weights, said)
        rows = {name: fmt.of_weights(table) for name, table in rows.items()}
        return cls(said["model"], rows, rows.pop("readout.weight"), rows.pop("readout.bias")[0])


def gates(net: StoredCell, fmt: BinaryFormat) -> Gates:
    """What tokens keep, add and read: exact values, and how far what is computed may be from them."""
    on, cell = Rounding(fmt), {name: [_stored(row) for row in rows] for name, rows in net.rows.items()}

    def exp(x: ComputedBalls) -> ComputedBalls:
        around = [(v - e).union(v + e).exp().upper() for v, e in zip(x.value, x.error, strict=True)]
        error = [(y * e + _off(fmt, y) + fmt.tiny).upper() for y, e in zip(around, x.error, strict=True)]
        return on.checked([v.exp() for v in x.value], error)

    def faded(x: ComputedBalls) -> ComputedBalls:
        return exp(ComputedBalls([-v for v in x.value], x.error))

    def product(x: ComputedBalls, y: ComputedBalls) -> ComputedBalls:
        found, sizes = on.times(x, y), zip(x.sizes(), y.sizes(), strict=True)
        error = [arb(0) if a * b == 0 else e for e, (a, b) in zip(found.error, sizes, strict=True)]
        return ComputedBalls(found.value, error)

    if net.kind == "s4":
        return cell["a"] * len(cell["u"]), cell["u"], cell["c"] * len(cell["u"])
    if net.kind == "rwkv":
        pairs = zip(cell["k"], cell["v"], strict=True)
        return [faded(exp(w)) for w in cell["w"]], [product(k, v) for k, v in pairs], cell["r"]
    rate, steps = exp(cell["A"][0]), [_softplus(on, x) for x in cell["delta"]]
    added = [product(s, x) for s, x in zip(steps, cell["B"], strict=True)]
    return [faded(product(s, rate)) for s in steps], added, cell["C"]


def _off(fmt: BinaryFormat, x: arb) -> arb:
    """How far a function of at most x is off: two units in the last place, and half of one where that is rounded."""
    two = 2 * _unit(fmt, x)
    return two + _unit(fmt, (x + two).upper()) / 2


def _unit(fmt: BinaryFormat, x: arb) -> arb:
    """A unit in the last place of numbers of at most x."""
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

    A term goes through each product and terms - 1 sums. Each of them is rounded, or kept with 2p + 2 bits, or one after
    the other as it is stored or read, which is off by (1 + u) (1 + u^2 / 4) - 1 at most. Each result may be flushed,
    as it is written or where it is read: what is zero by then loses no more. No sum of zeros is off.
    """
    if size == 0:
        return arb(0)
    growth = ((1 + fmt.u) * (1 + fmt.u**2 / 4)) ** (terms + more) - 1
    off = (growth * size + 2 * terms * fmt.tiny * (1 + growth)).upper()
    require(fmt.holds((size + off).upper()), "a computed number may overflow", NOT_CHECKABLE)
    return off


def logit_errors(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls) -> Vector:
    """How far each logit's sum is off, from computed states and exact readings."""
    sizes, shown, off = h.sizes(), read.value, list[arb]()
    for r, x in zip(shown, sizes, strict=True):
        rounding(fmt, abs(r) * x, 1)  # refuses what may overflow where it is read, however small V is
    for row, bias in zip(net.V, net.b, strict=True):
        size = sum((abs(v * r) * x for v, r, x in zip(row, shown, sizes, strict=True)), abs(arb(bias)))
        flushed = sum((abs(arb(v)) for v, r in zip(row, shown, strict=True) if r != 0), arb(0)) * 2 * fmt.tiny
        terms = sum(bool(v) and r != 0 for v, r in zip(row, shown, strict=True)) + bool(bias)
        off.append((rounding(fmt, size, max(1, terms), 1) + flushed).upper())
    return off


def logit_gaps(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, right: int) -> Gaps:
    """Between which numbers (right logit) - (each other) is computed, from computed states and exact readings."""
    off, found = logit_errors(net, fmt, read, h), {}
    for j, (row, bias) in enumerate(zip(net.V, net.b, strict=True)):
        d = [(arb(v) - arb(w)) * r for v, w, r in zip(net.V[right], row, read.value, strict=True)]
        gap = sum((x * y for x, y in zip(d, h.value, strict=True)), arb(net.b[right]) - arb(bias))
        moved = sum((abs(x) * e for x, e in zip(d, h.error, strict=True)), off[right] + off[j])
        if j != right:
            found[j] = (gap - moved, gap + moved)
    return found


def neuron_sums(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, x: int) -> ComputedBalls:
    """W y + U of what is read, y, where neurons are relu of it: off by its roundings and by what its terms are."""
    value = [r * z for r, z in zip(read.value, h.value, strict=True)]
    error = [
        (abs(r) * e + rounding(fmt, abs(r) * size, 1)).upper()
        for r, e, size in zip(read.value, h.error, h.sizes(), strict=True)
    ]
    return computed_sums(net.rows["layer.W"], ComputedBalls(value, error), net.rows["layer.U"][x], fmt)


def neuron_gaps(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, x: int, right: int) -> Gaps:
    """The same where the logits are V relu(W y + U) + b of what is read, y."""
    z = Rounding(fmt).relu(neuron_sums(net, fmt, read, h, x))
    off, found = computed_sums(net.V, z, net.b, fmt).error, {}
    for j, row in enumerate(net.V):
        d = [arb(v) - arb(w) for v, w in zip(net.V[right], row, strict=True)]
        gap = sum((a * b for a, b in zip(d, z.value, strict=True)), arb(net.b[right]) - arb(net.b[j]))
        if j != right:
            found[j] = (gap - off[right] - off[j], gap + off[right] + off[j])
    return found


def computed_sums(W: list[list[float]], x: ComputedBalls, b: list[float], fmt: BinaryFormat) -> ComputedBalls:
    """W x + b."""
    value, error = list[arb](), list[arb]()
    for row, c in zip(W, b, strict=True):
        own = [(abs(arb(w)), e, size) for w, e, size in zip(row, x.error, x.sizes(), strict=True) if w and size != 0]
        size = sum((w * s for w, _, s in own), abs(arb(c)))
        moved = sum((w * e for w, e, _ in own), arb(0))
        value.append(sum((arb(w) * v for w, v in zip(row, x.value, strict=True)), arb(c)))
        error.append((moved + rounding(fmt, size, len(own) + bool(c) or 1)).upper())
    return ComputedBalls(value, error)


def fading(net: StoredCell, fmt: BinaryFormat) -> TokenFollower:
    """What is known of the logits of a gated cell after one token, two tokens, and so on."""
    tables = gates(net, fmt)
    return _after_state(net, fmt, tables, _stored([0.0] * len(tables[0][0].value)))


def _after_state(net: StoredCell, fmt: BinaryFormat, tables: Gates, h: ComputedBalls) -> TokenFollower:
    keep, add, read = tables

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        there = after(fmt, keep[token], add[token], h)
        return partial(gaps_of, net, fmt, read[token], there, token), _after_state(net, fmt, tables, there)

    return follow


def after(fmt: BinaryFormat, keep: ComputedBalls, add: ComputedBalls, h: ComputedBalls) -> ComputedBalls:
    """f h + a. What is computed as (f + d) (h + e) + a + g is off by f e + d (h + e) + g, and its roundings."""
    value = [f * x + a for f, x, a in zip(keep.value, h.value, add.value, strict=True)]
    error = list[arb]()
    for f, d, e, g, x, k, a in zip(
        keep.value, keep.error, h.error, add.error, h.sizes(), keep.sizes(), add.sizes(), strict=True
    ):
        terms = 1 if a == 0 else 2  # a sum with zero is exact
        error.append((abs(f) * e + d * x + g + rounding(fmt, k * x + a, terms)).upper())
    return ComputedBalls(value, error)


def gaps_of(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, x: int, right: int) -> Gaps:
    """Between which numbers (right logit) - (each other) is computed after the token x."""
    if "layer.W" in net.rows:
        return neuron_gaps(net, fmt, read, h, x, right)
    return logit_gaps(net, fmt, read, h, right)


def turning(net: StoredCell, fmt: BinaryFormat) -> TokenFollower:
    """The same of a rotation, whose state is m - m e^(i omega t); a turn keeps the length of an error."""
    omega, (one, zero), own_of = net.rows["omega"][0][0], (arb(1), arb(0)), turn_errors(net, fmt)
    read, h, middle = ComputedBalls([one, one], [zero, zero]), [_stored([0.0, 0.0])], 1 / (1 - acb(0, omega).exp())

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        own, t = own_of(h[-1].sizes()), len(h)
        turned = h[-1].error[0] + (own[0] ** 2 + own[1] ** 2).sqrt()
        away, z = turned + 3 * fmt.tiny, middle * (1 - acb(0, arb(omega) * t).exp())
        h.append(ComputedBalls([z.real, z.imag], [away.upper()] * 2))
        return partial(logit_gaps, net, fmt, read, h[-1]), follow

    return follow


def turn_errors(net: StoredCell, fmt: BinaryFormat) -> Callable[[Vector], Vector]:
    """How far a computed turn is from the exact one, from a state of at most these sizes."""
    on, omega = Rounding(fmt), _stored([net.rows["omega"][0][0]])
    c, s = (on.function(omega, f, lambda y: arb(0)) for f in (arb.cos, arb.sin))
    (C, S), (f, g) = (v.sizes()[0] for v in (c, s)), (v.error[0] for v in (c, s))

    def own(sizes: Vector) -> Vector:
        a, b = sizes
        # one rounding more, as each product may read another form of a state
        x, y = rounding(fmt, C * a + S * b + 1, 3, 1), rounding(fmt, S * a + C * b, 2, 1)
        return [f * a + g * b + x, g * a + f * b + y]

    return own
