"""Units that add at the tokens of their own type and keep a share at each, on all strings in real arithmetic."""

import re
from collections.abc import Callable
from itertools import groupby

from flint import arb

from verify.checker.ball_rows import least_of
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate
from verify.checker.recurrent import positive_margin, predicts
from verify.checker.steady import is_at_least

BITS = 400
MOST_LENGTH = 1 << 64
MOST_BINARY_DIGITS = 12_000  # of how many strings there are

Rows = list[list[float]]
Table = list[list[arb]]


def strings(K: int, length: int) -> str:
    """How many strings over K types there are."""
    require(
        length * K.bit_length() < MOST_BINARY_DIGITS, f"length: {length} is too long to count strings", NOT_CHECKABLE
    )
    return str(K**length)


class HeldUnits:
    """Units [k][token], one for each type: c' = keep(x) c + add(x), seen as show(x) squash(c).

    A unit adds at the tokens of its own type alone, and keeps a share f < 1 at each token. After n own tokens, the last
    of them last, and T others it is at least what it is where all T others stand before that last token and each takes
    as much as any does; and at most what it is without others.
    """

    def __init__(
        self, V: Rows, c: list[float], C: int, add: Table, keep: Table, show: Table, squash: Callable[[arb], arb]
    ) -> None:
        self.V, self.c, self.C, self.K = V, c, C, len(add)
        self.keep, self.show, self.squash = keep, show, squash
        is_own = all((add[k][x] > 0) if k == x else (add[k][x] == 0) for k in range(self.K) for x in range(self.K))
        require(is_own, "a unit does not add at the tokens of its type alone", NOT_CHECKABLE)
        kept = all(0 < x <= 1 for row in keep for x in row)
        require(kept and all(x >= 0 for row in show for x in row), "a gate is not from 0 to 1", NOT_CHECKABLE)
        self.add = [add[k][k] for k in range(self.K)]

    def decide(self, c: LineCertificate) -> None:
        if c["verdict"] == "PROVED":
            length = c["length"]
            require(length != "all", "length: in real arithmetic a unit forgets", NOT_CHECKABLE)
            assert length != "all"
            require(c.get("inputs_covered") == strings(self.K, length), "inputs_covered: another number")
            self._holds(length, positive_margin(c))
        else:
            self._refuted(c)

    def _holds(self, length: int, margin: arb) -> None:
        """Every judged answer of every string up to the length has the margin."""
        K = self.K
        for i in range(K):
            others = (self.keep[i][x].lower() for x in range(K) if x != i)
            fade = least_of(others)  # as exact numbers: as floats all may be 1
            for n in range(1, min(self.C, length) + 1):
                before = arb(0)
                for _ in range(n - 1):
                    before = self.keep[i][i] * before + self.add[i]
                high = self.keep[i][i] * before + self.add[i]
                low = self.keep[i][i] * fade ** (length - n) * before + self.add[i]
                shown = [self.show[i][i] * self.squash(x) for x in (low, high)]
                for j in range(len(self.c)):
                    if j == n:
                        continue
                    d = [arb(a) - arb(b) for a, b in zip(self.V[n], self.V[j], strict=True)]
                    gap = d[i] * (shown[0] if d[i] > 0 else shown[1]) + arb(self.c[n]) - arb(self.c[j])
                    for k in range(K):  # what other units show lies between 0 and their gate
                        if k != i and d[k] < 0:
                            gap += d[k] * self.show[k][i]
                    is_right = bool(gap >= margin and gap > 0)
                    what = f"length {length}, count {n} of type {i}: class {n} is not shown to win over {j}"
                    require(is_right, what, NOT_CHECKABLE)

    def _refuted(self, c: LineCertificate) -> None:
        """A string n - 1 times a, T times b, once a is read wrong; all strings up to `right_to` are right."""
        case, right_to, margin = c["counterexample"], c["right_to"], c["margin"]
        parts = _parts(case["input"])
        require(len(parts) == 3, "counterexample: is no string of three parts", NOT_CHECKABLE)
        (a, before), (b, others), (again, once) = parts
        n = before + 1
        is_string = a == again and a != b and once == 1 and max(a, b) < self.K and n <= self.C
        require(is_string and 0 < others < MOST_LENGTH, "counterexample: another string", NOT_CHECKABLE)
        length = n + others
        is_within = case.get("length") == length and (c["length"] == "all" or length <= c["length"])
        require(is_within and c.get("inputs_covered") == "1", "counterexample: another length")
        require(case.get("expected") == n, "counterexample: another answer is expected")
        state = {a: self._added(a, before) * self.keep[a][b] ** others * self.keep[a][a] + self.add[a]}
        state[b] = self._added(b, others) * self.keep[b][a]
        shown = {k: self.show[k][a] * self.squash(x) for k, x in state.items()}
        j = case.get("predicted")
        require(type(j) is int and 0 <= j < len(self.c) and j != n, "counterexample: predicts no other class")
        assert j is not None
        logits = [sum((arb(x[k]) * h for k, h in shown.items()), arb(y)) for x, y in zip(self.V, self.c, strict=True)]
        gap = logits[n] - logits[j]
        is_so = type(margin) is float and margin <= 0 and is_at_least(arb(margin), gap)
        require(is_so, f"counterexample: margin {gap}")
        gaps = {k: logits[n] - x for k, x in enumerate(logits) if k != n}
        predicts(gaps, j, [(*row, x) for row, x in zip(self.V, self.c, strict=True)])
        require(type(right_to) is int and 0 <= right_to < length, f"right_to: {right_to!r}")
        if right_to:
            self._holds(right_to, arb(0))
        is_first = case.get("is_first", True) is True and ("is_first" not in case or right_to == length - 1)
        require(is_first, f"is_first: strings up to {right_to} are right, and this one has {length} tokens")

    def _added(self, k: int, times: int) -> arb:
        """The unit after so many tokens of its type, from 0."""
        keep = self.keep[k][k]
        return self.add[k] * (1 - keep**times) / (1 - keep) if times else arb(0)


def _parts(shown: list[int] | str) -> list[tuple[int, int]]:
    """Runs of equal tokens: (token, times), no times zero. Words and numbers are as the prover writes them."""
    if isinstance(shown, str):
        runs = [re.fullmatch("token (0|[1-9][0-9]{0,19}) ([1-9][0-9]{0,19}) times", x) for x in shown.split(", ")]
        require(all(runs), "counterexample: its input cannot be read")
        return [(int(run[1]), int(run[2])) for run in runs if run]
    is_list = isinstance(shown, list) and all(type(token) is int and token >= 0 for token in shown)
    require(is_list, "counterexample: its input holds no token")
    return [(token, len([*run])) for token, run in groupby(shown)]
