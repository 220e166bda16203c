"""Saturated units that count each type, one step from box to box (docs/checker.md)."""

from flint import arb

from verify.checker.reading import NOT_CHECKABLE, as_text, require
from verify.checker.records import FoundInBlocks
from verify.checker.stored_selective import StoredSelective

Interval = tuple[arb, arb]


def _ends(terms: list[tuple[float, Interval]]) -> Interval:
    """The ends of a sum of weights times intervals."""
    low, high = arb(0), arb(0)
    for w, (a, b) in terms:
        if w:
            low, high = low + (a * w if w > 0 else b * w), high + (b * w if w > 0 else a * w)
    return low.lower(), high.upper()


def _size(terms: list[tuple[float, Interval]]) -> arb:
    return sum((abs(arb(w)) * abs(a).max(abs(b)) for w, (a, b) in terms if w), arb(0)).upper()


class StoredThermometer:
    """2KC + 1 tanh units: u_i1..u_iC and v_i1..v_iC of each type, then s.

    With count c, u_i1..u_ic are at least `least` and the other u_i at most -least; v_ic is at least `least` where the
    last token was the c-th of type i, all other v_i are at most -least; s is nearly 1.
    """

    def __init__(self, net: StoredSelective, found: FoundInBlocks) -> None:
        require("least_sign" in found, "invariant_found: has no least sign")
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
            require(bool(is_in), f"invariant: with {where}, unit {j} may leave its box", NOT_CHECKABLE)

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
                what = f"{where}: class {right} is not shown to win over {j} by {margin}"
                require(bool(low >= margin), what, NOT_CHECKABLE)
