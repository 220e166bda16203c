"""Selective counting on all strings over K types, re-checked from the stored numbers (docs/checker.md).

The units of type i stand together, and whatever the units of other types are is allowed at every step, so that a proof
for one token, one type and one count at a time is one for all strings of all lengths, by induction.
"""

from dataclasses import dataclass

from flint import arb, ctx

from verify.checker import formats, held
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, as_text, read_tensors, require, tables_of
from verify.checker.records import FoundInBlocks, LineCertificate, LineParameters
from verify.checker.recurrent import GATES, positive_margin
from verify.checker.statement import compare

BITS = 128
MOST_UNITS, MOST_STATES = 1024, 10_000
TENSORS = ("cell.weight_ih_l0", "cell.weight_hh_l0", "cell.bias_ih_l0", "cell.bias_hh_l0", "readout.weight",
           "readout.bias")  # fmt: skip

Rows = list[list[float]]
Interval = tuple[arb, arb]


@dataclass(frozen=True)
class StoredSelective:
    """One layer over one-hot tokens and its readout, exactly; K types, counts up to C or modulo m."""

    kind: str
    activation: str
    W_x: Rows
    W_h: Rows
    b: list[tuple[float, float]]
    V: Rows
    c: list[float]
    K: int
    C: int
    m: int | None
    fmt: BinaryFormat | None


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof for all strings, or a wrong string."""
    net = _stored(weights, c, said)
    if net.kind == "lstm":
        require(net.fmt is None and net.m is None, "an LSTM is checked in real arithmetic", NOT_CHECKABLE)
        with ctx.workprec(held.BITS):
            _held(net).decide(c)
        return
    with ctx.workprec(BITS):
        margin = positive_margin(c)
        length = c["length"]
        covered = "infinite" if length == "all" else held.strings(net.K, length)
        require(c.get("inputs_covered") == covered, f"inputs_covered: must be {covered}")
        found = c["invariant_found"]
        if net.activation == "relu":
            _rings(net, margin, found, length)
        else:
            require(net.m is None, "no proof is known for this network", NOT_CHECKABLE)
            _Thermometer(net, found).check(margin)


def _stored(data: bytes, c: LineCertificate, said: LineParameters) -> StoredSelective:
    tensors, about = read_tensors(data)
    kind, activation = about.get("model"), about.get("activation")
    require(kind in ("rnn", "lstm") and activation in ("tanh", "relu"), f"the metadata name no network: {about}")
    require({*tensors} == {*TENSORS}, "the file must hold one layer on one-hot tokens", NOT_CHECKABLE)
    tables = tables_of(tensors, ())
    rows = [tables[name] for name in TENSORS]
    dtype, H = WORDS[tensors["readout.weight"][0]][0], len(rows[4][0])
    shape: dict[str, object] = {"model": kind, "units": H, "layers": 1, "dtype": dtype}
    shape |= {"activation": activation} if kind == "rnn" else {}
    compare(said, shape)
    K, C, m = said.get("types"), said.get("max_count"), said.get("modulus")
    require(type(K) is int and K > 1 and type(C) is int and C >= 1, "parameters: no number of types or counts")
    is_modular = said.get("task") == "selective-modular"
    require(type(m) is int and m >= 2 if is_modular else m is None, f"modulus: {m!r} in {said.get('task')!r}")
    fmt = None if c.get("reading") == "real" else formats.named(said)
    W_x, W_h, b_x, b_h, V, b = rows if fmt is None else [fmt.of_weights(x) for x in rows]
    n = GATES[str(kind)] * H
    sizes = [len(W_x), len(W_h), len(b_x[0]), len(b_h[0])] == [n] * 4 and len(W_x[0]) == K and len(W_h[0]) == H
    require(sizes and len(V) == len(b[0]) == (m or C + 1), "shapes do not fit the task", UNREADABLE)  # type: ignore
    require(H <= MOST_UNITS, f"{H} units are too many to check", NOT_CHECKABLE)
    both = list(zip(b_x[0], b_h[0], strict=True))
    return StoredSelective(str(kind), str(activation), W_x, W_h, both, V, b[0], int(str(K)), int(str(C)), m, fmt)


def _ends(terms: list[tuple[float, Interval]]) -> Interval:
    """The ends of a sum of weights times intervals."""
    low, high = arb(0), arb(0)
    for w, (a, b) in terms:
        if w:
            low, high = low + (a * w if w > 0 else b * w), high + (b * w if w > 0 else a * w)
    return low.lower(), high.upper()


def _size(terms: list[tuple[float, Interval]]) -> arb:
    return sum((abs(arb(w)) * abs(a).max(abs(b)) for w, (a, b) in terms if w), arb(0)).upper()


class _Thermometer:
    """2KC + 1 tanh units: u_i1..u_iC and v_i1..v_iC of each type, then s.

    With count c, u_i1..u_ic are at least `least` and the other u_i at most -least; v_ic is at least `least` where the
    last token was the c-th of type i, all other v_i are at most -least; s is nearly 1.
    """

    def __init__(self, net: StoredSelective, found: FoundInBlocks) -> None:
        K, C, least = net.K, net.C, found["least_sign"]
        due = {"least_sign": least, "cases": K * K * (C + 1)}
        require(as_text(found) == as_text(due), "invariant_found: has other fields")
        require(type(least) is float and 0 < least < 1, f"invariant_found: a least sign of {least!r}")
        require(len(net.W_h) == 2 * K * C + 1, "the network has another number of units", NOT_CHECKABLE)
        self.net, self.least = net, arb(least)
        self.top = arb(1) if net.fmt is None else (1 + 8 * net.fmt.u + net.fmt.tiny).upper()
        self.started = (2 - self.top - arb(2) ** -20).lower()

    def signs(self, i: int, count: int, is_read: bool) -> dict[int, bool]:
        """Which of the units of type i are positive."""
        C, first = self.net.C, 2 * self.net.C * i
        own = {first + c - 1: c <= count for c in range(1, C + 1)}
        return own | {first + C + c - 1: c == count and is_read for c in range(1, C + 1)}

    def box(self, signs: dict[int, bool], v_of: int | None = None) -> list[Interval]:
        """Intervals of all units: those of unknown sign, and the v of type `v_of`, anywhere in the range."""
        C = self.net.C
        anywhere, up, down = (-self.top, self.top), (self.least, self.top), (-self.top, -self.least)
        found = [(up if signs[j] else down) if j in signs else anywhere for j in range(len(self.net.W_h))]
        if v_of is not None:
            found[2 * C * v_of + C : 2 * C * (v_of + 1)] = [anywhere] * C
        found[-1] = (self.started, self.top)
        return found

    def check(self, margin: arb) -> None:
        K, C = self.net.K, self.net.C
        start = [(arb(0), arb(0))] * len(self.net.W_h)
        for token in range(K):
            for i in range(K):
                is_read = i == token
                self._leads(start, token, self.signs(i, int(is_read), is_read), f"the first token {token}")
                for count in range(C + 1):
                    is_read = i == token and count < C
                    before = self.box(self.signs(i, count, False), v_of=i)
                    after = self.signs(i, count + is_read, is_read)
                    self._leads(before, token, after, f"count {count} of type {i}, token {token}")
        for i in range(K):
            for n in range(1, C + 1):
                signs = self.signs(i, n, True)
                for k in range(K):
                    if k != i:
                        signs |= {2 * C * k + C + c: False for c in range(C)}
                self._wins(self.box(signs), n, margin, f"count {n} of type {i}")

    def _leads(self, before: list[Interval], token: int, after: dict[int, bool], where: str) -> None:
        """One step leads from the box to these signs, and to an s that is nearly 1."""
        for j, sign in (*after.items(), (len(before) - 1, None)):
            low, high = self._unit(before, token, j)
            if sign is None:
                is_in = low >= self.started and high <= self.top
            else:
                is_in = (low >= self.least if sign else high <= -self.least) and -low <= self.top and high <= self.top
            require(bool(is_in), f"invariant: with {where}, unit {j} may leave its box")

    def _unit(self, before: list[Interval], token: int, j: int) -> Interval:
        """Where the unit is after one more token, as computed."""
        net, one = self.net, (arb(1), arb(1))
        terms = [(w, x) for w, x in zip(net.W_h[j], before, strict=True) if w]
        terms += [(w, one) for w in (net.W_x[j][token], *net.b[j]) if w]
        low, high = _ends(terms)
        fmt = net.fmt
        if fmt is None:
            return low.tanh().lower(), high.tanh().upper()
        count = sum(w != 0 for w in (*net.W_h[j], *net.W_x[j], *net.b[j]))
        size = _size(terms)
        off = fmt.of_sum(size, count, len(net.W_h) + net.K)
        require(fmt.holds((size + off).upper()), f"unit {j} may overflow", NOT_CHECKABLE)
        low, high = (low - off).tanh().lower(), (high + off).tanh().upper()
        return (low - fmt.of_function(abs(low))).lower(), (high + fmt.of_function(abs(high))).upper()

    def _wins(self, box: list[Interval], right: int, margin: arb, where: str) -> None:
        net, one = self.net, (arb(1), arb(1))
        off = [arb(0)] * len(net.c)
        if net.fmt is not None:
            for j, (row, c) in enumerate(zip(net.V, net.c, strict=True)):
                size = _size([*zip(row, box, strict=True), (c, one)])
                off[j] = net.fmt.of_sum(size, sum(w != 0 for w in (*row, c)), len(row))
                require(net.fmt.holds((size + off[j]).upper()), f"logit {j} may overflow", NOT_CHECKABLE)
        for j in range(len(net.c)):
            if j != right:
                pairs = [(arb(a) - arb(b), x) for a, b, x in zip(net.V[right], net.V[j], box, strict=True) if a != b]
                low = arb(net.c[right]) - arb(net.c[j]) - off[right] - off[j]
                for w, (a, b) in pairs:
                    low += a * w if w > 0 else b * w
                require(bool(low >= margin), f"{where}: class {right} does not win over {j} by {margin}")


def _rings(net: StoredSelective, margin: arb, found: FoundInBlocks, length: int | str) -> None:
    """ReLU units in K blocks that do not see each other, all numbers integers: every state of each block.

    Modulo m all counts are judged, in strings of all lengths; else those up to C, in strings up to a length.
    """
    K, H = net.K, len(net.W_h)
    most = None if net.m is not None or length == "all" else int(length)
    bits = 50 if net.fmt is None else min(net.fmt.p, net.fmt.most + 1)
    numbers = [x for rows in (net.W_x, net.W_h, net.V, [net.c], net.b) for row in rows for x in row]
    require(all(x == int(x) and abs(x) < 2.0**30 for x in numbers), "the numbers are not all integers", NOT_CHECKABLE)
    size = H // K
    require(size * K == H, "the units are not blocks of one size", NOT_CHECKABLE)
    is_apart = all(w == 0 for r, row in enumerate(net.W_h) for q, w in enumerate(row) if r // size != q // size)
    require(is_apart, "the units of different types see each other", NOT_CHECKABLE)
    blocks = [_reached(net, i, size, bits, most) for i in range(K)]
    due = {"states": sum(len(b) for b in blocks)}
    require(as_text(found) == as_text(due), "invariant_found: has another number of states")
    highest = [max((h[q] for h, _, _ in block), default=0) for block in blocks for q in range(size)]
    for row, c in zip(net.V, net.c, strict=True):
        total = sum(abs(int(w)) * x for w, x in zip(row, highest, strict=True)) + abs(int(c))
        require(total <= 2**bits, "a sum of logits is not exact")
    for i in range(K):
        for a in range(net.m or net.C):
            for j in range(len(net.c)):
                if j != a + (net.m is None):
                    gap = _least_gap(net, blocks, i, a, j, size)
                    require(gap is None or bool(arb(gap) >= margin), f"type {i}: class {a} does not win over {j}")


Reached = set[tuple[tuple[int, ...], int, int]]


def _reached(net: StoredSelective, i: int, size: int, bits: int, most: int | None) -> Reached:
    """(state, count - 1 modulo m or at most C, last token) of block i after one token or more, and at most `most`."""
    own = range(i * size, (i + 1) * size)
    W = [[int(net.W_h[r][q]) for q in own] for r in own]
    given = [[int(net.W_x[r][x]) for r in own] for x in range(net.K)]
    bias = [(int(net.b[r][0]), int(net.b[r][1])) for r in own]
    largest = [max(abs(int(w)) for w in net.W_x[r]) + sum(map(abs, map(int, net.b[r]))) for r in own]
    queue, seen, reached = [((0,) * size, -1, 0)], {((0,) * size, -1)}, set()
    for h, a, n in queue:  # in the order of the shortest strings
        if most is not None and n >= most:
            break
        sums = [sum(abs(w) * x for w, x in zip(row, h, strict=True)) + y for row, y in zip(W, largest, strict=True)]
        require(max(sums) <= 2**bits, f"type {i}: a partial sum is not exact")
        for token in range(net.K):
            rows = zip(W, given[token], bias, strict=True)
            after = tuple(
                max(0, sum(w * x for w, x in zip(row, h, strict=True)) + g + b[0] + b[1]) for row, g, b in rows
            )
            count = a if token != i else (a + 1) % net.m if net.m is not None else min(a + 1, net.C)
            reached.add((after, count, token))
            if (after, count) not in seen:
                seen.add((after, count))
                queue.append((after, count, n + 1))
        require(len(seen) <= MOST_STATES, f"type {i}: too many states", NOT_CHECKABLE)
    return reached


def _least_gap(net: StoredSelective, blocks: list[Reached], i: int, a: int, j: int, size: int) -> int | None:
    """The least gap over logit j where the last token is of type i and its count less 1 is a; None if that never is."""
    right = a + (net.m is None)
    total = int(net.c[right]) - int(net.c[j])
    for k, block in enumerate(blocks):
        d = [int(net.V[right][q]) - int(net.V[j][q]) for q in range(k * size, (k + 1) * size)]
        values = [
            sum(w * x for w, x in zip(d, h, strict=True))
            for h, count, token in block
            if token == i and (k != i or count == a)
        ]
        if not values:
            return None
        total += min(values)
    return total


def _held(net: StoredSelective) -> held.HeldUnits:
    """LSTM units without recurrent weights, one for each type: c' = f(x) c + i(x) g(x), shown as o(x) tanh c."""
    K = net.K
    require(len(net.W_h[0]) == K, "the LSTM has not one unit for each type", NOT_CHECKABLE)
    require(not any(w for row in net.W_h for w in row), "the LSTM has recurrent weights", NOT_CHECKABLE)

    def gate(k: int) -> list[list[arb]]:
        rows = range(k * K, (k + 1) * K)
        return [[arb(net.b[r][0]) + arb(net.b[r][1]) + arb(net.W_x[r][x]) for x in range(K)] for r in rows]

    i, keep, show = ([[1 / (1 + (-x).exp()) for x in row] for row in gate(k)] for k in (0, 1, 3))
    g = [[x.tanh() for x in row] for row in gate(2)]
    add = [[i[k][x] * g[k][x] for x in range(K)] for k in range(K)]
    return held.HeldUnits(net.V, net.c, net.C, add, keep, show, arb.tanh)
