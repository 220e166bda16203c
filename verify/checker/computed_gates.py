"""Gated decays and rotations whose every operation rounds, in any order: lines, and all strings (docs/checker.md).

A state is linear in the one before: h' = f h + a for each number of a gated cell, one turn of the plane and 1 for a
rotation. So an error of the state before is multiplied by |f|, or keeps its length, and each step adds its own.
"""

from collections.abc import Callable
from functools import partial

from flint import acb, arb

from verify.checker.computed_orders import exact
from verify.checker.computed_tables import Gates, StoredCell, as_stored, gates
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.recurrent import Vector
from verify.checker.rounded import ComputedBalls, Rounding
from verify.checker.rounded_boxes import Box, ComputedEnds, fractions, relu
from verify.checker.rounded_lines import Gaps, TokenFollower


def rounding(fmt: BinaryFormat, size: arb, terms: int, more: int = 0) -> arb:
    """How far a sum of products of computed numbers is off where it is read, `more` products in each term.

    A term goes through each product and terms - 1 sums. Each of them is rounded, or kept with 2p + 2 bits, or one after
    the other as it is stored or read, which is off by (1 + u) (1 + u^2 / 4) - 1 at most. Each result may be flushed,
    as it is written or where it is read: what is zero by then loses no more. No sum of zeros is off.
    """
    if size == 0:
        return arb(0)
    growth = (1 + fmt.once) ** (terms + more) - 1
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
    return _after_state(net, fmt, tables, as_stored([0.0] * len(tables[0][0].value)))


def _after_state(net: StoredCell, fmt: BinaryFormat, tables: Gates, h: ComputedBalls) -> TokenFollower:
    keep, add, read = tables

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        there = sharp_after(fmt, keep[token], add[token], h)
        return partial(sharp_gaps, net, fmt, read[token], there, token), _after_state(net, fmt, tables, there)

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


def sharp_after(fmt: BinaryFormat, keep: ComputedBalls, add: ComputedBalls, h: ComputedBalls) -> ComputedBalls:
    """The same between the ends of what is computed, which are the exact ones where nothing is rounded."""
    on, there = ComputedEnds(fmt), after(fmt, keep, add, h)
    ends = on.plus(on.times(_ends(keep), _ends(h)), _ends(add))
    apart = [(arb(high) - y).max(y - arb(low)) for y, (low, high) in zip(there.value, ends, strict=True)]
    return ComputedBalls(there.value, [e.min(x).upper() for e, x in zip(there.error, apart, strict=True)])


def gap_ends(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, x: int, right: int) -> Gaps:
    """The same from the ends of all that is read, which sums in any order keep: sharp where nothing is rounded."""
    on = ComputedEnds(fmt)
    y = on.times(_ends(read), _ends(h))
    if "layer.W" in net.rows:
        y = relu(on.sums([(fractions(net.rows["layer.W"]), y, fractions([net.rows["layer.U"][x]])[0])]))
    logits = on.sums([(fractions(net.V), y, fractions([net.b])[0])])
    low, high = logits[right]
    return {j: (arb(low - b), arb(high - a)) for j, (a, b) in enumerate(logits) if j != right}


def _ends(x: ComputedBalls) -> Box:
    pairs = zip(x.value, x.error, strict=True)
    return [(exact((v - e).lower()), exact((v + e).upper())) for v, e in pairs]


def sharp_gaps(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, x: int, right: int) -> Gaps:
    """What `gaps_of` and `gap_ends` say together."""
    ends = gap_ends(net, fmt, read, h, x, right)
    gaps = gaps_of(net, fmt, read, h, x, right)
    return {j: (low.max(ends[j][0]), high.min(ends[j][1])) for j, (low, high) in gaps.items()}


def gaps_of(net: StoredCell, fmt: BinaryFormat, read: ComputedBalls, h: ComputedBalls, x: int, right: int) -> Gaps:
    """Between which numbers (right logit) - (each other) is computed after the token x."""
    if "layer.W" in net.rows:
        return neuron_gaps(net, fmt, read, h, x, right)
    return logit_gaps(net, fmt, read, h, right)


def turning(net: StoredCell, fmt: BinaryFormat) -> TokenFollower:
    """The same of a rotation, whose state is m - m e^(i omega t); a turn keeps the length of an error."""
    omega, (one, zero), own_of = net.rows["omega"][0][0], (arb(1), arb(0)), turn_errors(net, fmt)
    read, h, middle = ComputedBalls([one, one], [zero, zero]), [as_stored([0.0, 0.0])], 1 / (1 - acb(0, omega).exp())

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        own, t = own_of(h[-1].sizes()), len(h)
        turned = h[-1].error[0] + (own[0] ** 2 + own[1] ** 2).sqrt()
        away, z = turned + 3 * fmt.tiny, middle * (1 - acb(0, arb(omega) * t).exp())
        h.append(ComputedBalls([z.real, z.imag], [away.upper()] * 2))
        return partial(logit_gaps, net, fmt, read, h[-1]), follow

    return follow


def turn_errors(net: StoredCell, fmt: BinaryFormat) -> Callable[[Vector], Vector]:
    """How far a computed turn is from the exact one, from a state of at most these sizes."""
    on, omega = Rounding(fmt), as_stored([net.rows["omega"][0][0]])
    c, s = (on.function(omega, f, lambda y: arb(0)) for f in (arb.cos, arb.sin))
    (C, S), (f, g) = (v.sizes()[0] for v in (c, s)), (v.error[0] for v in (c, s))

    def own(sizes: Vector) -> Vector:
        a, b = sizes
        # one rounding more, as each product may read another form of a state
        x, y = rounding(fmt, C * a + S * b + 1, 3, 1), rounding(fmt, S * a + C * b, 2, 1)
        return [f * a + g * b + x, g * a + f * b + y]

    return own
