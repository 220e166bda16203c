"""Gated decays on all strings up to a length: real, or every operation rounded in any order (docs/checker.md)."""

from flint import arb, arb_mat, ctx

from verify.checker import formats, gated, held
from verify.checker.ball_rows import least_of, most_of
from verify.checker.computed_gates import after, computed_sums, logit_errors, neuron_sums
from verify.checker.computed_tables import Gates, StoredCell, Table, gates
from verify.checker.formats import BinaryFormat
from verify.checker.one_string import RightClasses
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import Vector, positive_margin
from verify.checker.rounded import BITS, ComputedBalls, Rounding
from verify.checker.rounded_lines import Gaps

Ends = list[tuple[arb, arb]]  # exact numbers

MOST_WORK = 2_000_000  # numbers of states
EXACTLY = BinaryFormat(1 << 12, -(1 << 12), 1 << 12)  # rounds so little that exact results are among its own


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof of all strings up to a length."""
    fmt = EXACTLY if c["reading"] == "real" else formats.named(said)
    with ctx.workprec(BITS):
        net = StoredCell.of(weights, said, fmt)
        require("omega" not in net.rows, "strings of a rotation are not followed", NOT_CHECKABLE)
        ComputedStrings(net, fmt, said).prove(c)


class ComputedStrings:
    """All strings over K types: by how often a type t was read and by the length, a state lies between two numbers."""

    def __init__(self, net: StoredCell, fmt: BinaryFormat, said: LineParameters) -> None:
        self.net, self.fmt = net, fmt
        self.keep, self.add, self.read = _exact(net) if fmt is EXACTLY else gates(net, fmt)
        self.K, self.units = len(self.keep), len(self.keep[0].value)
        self.due = RightClasses(said, self.K, len(net.b))

    def prove(self, c: LineCertificate) -> None:
        length, margin = c["length"], positive_margin(c)
        require(length != "all", "length: strings of every length are not followed", NOT_CHECKABLE)
        assert length != "all"
        require(c.get("inputs_covered") == held.strings(self.K, length), "inputs_covered: another number")
        work = 2 * length * self.K * self.due.C * self.units
        require(self.K > 1 and work <= MOST_WORK, "length: too many states are met", NOT_CHECKABLE)
        for t in range(self.K):
            for n, ends in self._judged(t, length).items():
                right = self.due.of(n) or 0  # of counts up to C all have one
                for j, (low, high) in self._gaps(t, ends, right).items():
                    sentence = f"count {n} of type {t}: class {right} does not win over {j} by {margin}"
                    require(not high < margin, f"{sentence} in any order")
                    require(bool(low >= margin and low > 0), f"{sentence}, or not shown", NOT_CHECKABLE)

    def _judged(self, t: int, length: int) -> dict[int, Ends]:
        """The computed states after the n-th token t, of all strings of up to this length."""
        states, judged = {0: [(arb(0), arb(0))] * self.units}, dict[int, Ends]()
        own, other = ([_around(table, t, is_own) for table in (self.keep, self.add)] for is_own in (True, False))
        for _ in range(length):
            later = dict[int, Ends]()
            for n, ends in states.items():
                counted = self._step(own, ends)
                _join(judged, n + 1, counted)
                if n + 1 < self.due.C:
                    _join(later, n + 1, counted)
                _join(later, n, self._step(other, ends))
            states = later
        return judged

    def _step(self, gates: list[tuple[Ends, Vector]], ends: Ends) -> Ends:
        """Between which numbers f h + a is computed."""
        (keep, off_keep), (add, off_add) = gates
        off = after(
            self.fmt, ComputedBalls(_balls(keep), off_keep), ComputedBalls(_balls(add), off_add), self._at(ends)
        )
        found = []
        for f, h, (a, b), e in zip(keep, ends, add, off.error, strict=True):
            low, high = _product(f, h)
            found.append(((low + a - e).lower(), (high + b + e).upper()))
        return found

    def _at(self, ends: Ends) -> ComputedBalls:
        return ComputedBalls(_balls(ends), [arb(0)] * self.units)

    def _gaps(self, t: int, ends: Ends, right: int) -> Gaps:
        """Between which numbers (right logit) - (each other) is computed after a token t.

        It is linear in the states, but for neurons that may be on or off.
        """
        net, fmt, read, h = self.net, self.fmt, self.read[t], self._at(ends)
        d = self.units
        W: list[list[float]] = [[float(i == k) for k in range(d)] for i in range(d)]
        U, open_ones = [0.0] * d, [arb(0)] * d
        if "layer.W" in net.rows:
            sums = neuron_sums(net, fmt, read, h, t)
            z, is_on = Rounding(fmt).relu(sums), [bool(a > 0) for a in sums.value]
            off = computed_sums(net.V, z, net.b, fmt).error
            W = [row if on else [0.0] * d for row, on in zip(net.rows["layer.W"], is_on, strict=True)]
            U = [u if on else 0.0 for u, on in zip(net.rows["layer.U"][t], is_on, strict=True)]
            open_ones = [arb(0) if on else v for v, on in zip(z.value, is_on, strict=True)]
        else:
            off = logit_errors(net, fmt, read, h)
        D = arb_mat([[arb(v) - arb(w) for v, w in zip(net.V[right], row, strict=True)] for row in net.V])
        slopes, rest = (D * arb_mat(W)).tolist(), D * arb_mat([[u + v] for u, v in zip(U, open_ones, strict=True)])
        found: Gaps = {}
        for j, row in enumerate(slopes):
            moved = [_product((s * r, s * r), h) for s, r, h in zip(row, read.value, ends, strict=True)]
            fixed, error = rest[j, 0] + arb(net.b[right]) - arb(net.b[j]), off[right] + off[j]
            low, high = (sum((x[k] for x in moved), fixed) for k in (0, 1))
            if j != right:
                found[j] = (low - error, high + error)
        return found


def _exact(net: StoredCell) -> Gates:
    """What tokens keep, add and read in real arithmetic."""
    keep, add, read = ([ComputedBalls(row, [arb(0)] * len(row)) for row in x] for x in gated.tables(net.kind, net.rows))
    return keep, add, read


def _around(table: Table, t: int, is_own: bool) -> tuple[Ends, Vector]:
    """Between which numbers the table's are of the type t, or of any other type, and how far they are off."""
    rows = [row for x, row in enumerate(table) if (x == t) == is_own]
    ends: Ends = [(v.lower(), v.upper()) for v in rows[0].value]
    off = rows[0].error
    for row in rows[1:]:
        ends = [(a.min(v.lower()), b.max(v.upper())) for (a, b), v in zip(ends, row.value, strict=True)]
        off = [a.max(b) for a, b in zip(off, row.error, strict=True)]
    return ends, off


def _product(x: tuple[arb, arb], y: tuple[arb, arb]) -> tuple[arb, arb]:
    corners = [a * b for a in x for b in y]
    return least_of(map(arb.lower, corners)), most_of(map(arb.upper, corners))


def _balls(ends: Ends) -> Vector:
    return [a.union(b) for a, b in ends]


def _join(states: dict[int, Ends], n: int, ends: Ends) -> None:
    before = states.get(n, ends)
    states[n] = [(a.min(c), b.max(d)) for (a, b), (c, d) in zip(before, ends, strict=True)]
