"""One layer that adds two numbers digit by digit: linear forms over all pairs, column by column (docs/checker.md)."""

from functools import cache

from flint import arb, fmpq, fmpq_mat

from verify.checker.adder import Adder
from verify.checker.forwards import Head
from verify.checker.reading import FAILS, NOT_CHECKABLE, require

BITS = 256
FINE = 64  # bits by which a bound must miss to be called false
Cells = dict[tuple[int, int], int]  # by a column's sum of two digits and the carry into it: a bound, over 2^BITS


class Prompt:
    """Which tokens may stand at each place up to a query, and what the first layer's heads give each of them."""

    def __init__(self, model: Adder, n: int, B: int, query: int) -> None:
        self.model, self.n, self.B, self.query = model, n, B, query
        tokens = {n: [B], 2 * n + 1: [B + 1]}  # "+" and "=": at all other places any digit may stand
        self.rows = [(at, t) for at in range(query + 1) for t in tokens.get(at, [*range(B)])]
        self.x = fmpq_mat([model.embedded(t, at) for at, t in self.rows])

    def shares(self, head: Head) -> list[arb]:
        """What the token at the query gives each row's position: the same whatever the digits are."""
        queries, keys = self.x * head[0], (self.x * head[1]).tolist()
        places = [next(r for r, (at, _) in enumerate(self.rows) if at == place) for place in range(self.query + 1)]
        of_query = queries.tolist()[places[-1] :]
        is_same = all(row == of_query[0] for row in of_query)
        is_same = is_same and all(keys[r] == keys[places[at]] for r, (at, _) in enumerate(self.rows))
        require(is_same, "scores depend on digits, which is not checked", NOT_CHECKABLE)
        scores = [sum((a * b for a, b in zip(of_query[0], keys[r], strict=True)), fmpq(0)) for r in places]
        weights = [arb(score - max(scores)).exp() for score in scores]
        total = sum(weights, arb(0))
        return [weights[at] / total for at, _ in self.rows]


class DigitColumn:
    """The answer's digit of column i (0 the last one, n the leading one), read at the digit before it or at "="."""

    def __init__(self, model: Adder, n: int, B: int, i: int) -> None:
        self.model, self.n, self.B, self.i = model, n, B, i
        prompt = Prompt(model, n, B, 3 * n + 1 - i)
        x, self.rows = prompt.x, prompt.rows
        self.own = x, [int(at == prompt.query) for at, _ in self.rows]
        self.written = [(prompt.shares(head), x * head[2] * head[3]) for head in model.layers[0].heads]

    def least(self, v: tuple[fmpq, ...], constant: fmpq) -> Cells:
        """The least value of (stream v) + constant over all pairs of numbers, for each sum and carry of the column.

        The stream is a sum of one term for each position, so that the least sum follows column by column, the carry
        being all that columns know of each other.
        """
        n, B, i, direction = self.n, self.B, self.i, fmpq_mat(len(v), 1, [*v])
        parts = [(shares, (values * direction).entries()) for shares, values in self.written]
        own, is_own = (self.own[0] * direction).entries(), self.own[1]
        f: dict[int, dict[int, int]] = {}
        for r, (at, t) in enumerate(self.rows):
            term = sum((shares[r] * values[r] for shares, values in parts), arb(own[r] * is_own[r]))
            f.setdefault(at, {})[t] = _floor(term)
        base = _floor(arb(constant)) + f[n][B] + f[2 * n + 1][B + 1]
        pairs = [
            [min(f[n - 1 - j][d] + f[2 * n - j][s - d] for d in range(max(0, s - B + 1), min(s, B - 1) + 1))
             for s in range(2 * B - 1)] for j in range(n)
        ]  # fmt: skip
        below: dict[int, int] = {0: base}  # by the carry into a column: the least sum of all columns below
        for j in range(i):
            after: dict[int, int] = {}
            for k, so_far in below.items():
                for s, pair in enumerate(pairs[j]):
                    out = int(s + k >= B)
                    after[out] = min(after.get(out, so_far + pair), so_far + pair)
            below = after
        if i == n:
            return {(0, k): value for k, value in below.items()}
        above = [f[2 * n + 2][k] for k in (0, 1)]  # the leading digit is the carry
        for j in range(n - 1, i, -1):
            answers = f[3 * n + 2 - j]
            above = [min(x + answers[(s + k) % B] + above[int(s + k >= B)] for s, x in enumerate(pairs[j]))
                     for k in (0, 1)]  # fmt: skip
        return {(s, k): value + pairs[i][s] + above[int(s + k >= B)]
                for k, value in below.items() for s in range(2 * B - 1)}  # fmt: skip

    def prove(self, margin: fmpq) -> None:
        """Every cell's right digit is ahead of all others by the margin, times 2^BITS."""
        layer, W_out, b_out = self.model.layers[0], self.model.W_out, self.model.b_out
        neurons, d = range(layer.b_1.ncols()), range(W_out.nrows())
        into = [tuple(layer.W_1[m, a] for m in d) for a in neurons]
        low = [self.least(v, layer.b_1[0, a]) for a, v in enumerate(into)]
        minus = [self.least(tuple(-y for y in v), -layer.b_1[0, a]) for a, v in enumerate(into)]

        @cache
        def ahead(right: int, other: int, on: tuple[int, ...]) -> Cells:
            """(right logit - the other), where these neurons count as their readings and all others as zero."""
            v = [W_out[m, right] - W_out[m, other] for m in d]
            constant = b_out[0, right] - b_out[0, other]
            for a in on:
                gain = gain_of(a, right, other)
                v, constant = [y + gain * z for y, z in zip(v, into[a], strict=True)], constant + gain * layer.b_1[0, a]
            return self.least(tuple(v), constant)

        @cache
        def gain_of(a: int, right: int, other: int) -> fmpq:
            return sum((layer.W_2[a, m] * (W_out[m, right] - W_out[m, other]) for m in d), fmpq(0))

        for s, k in low[0] if low else self.least((fmpq(0),) * len(d), fmpq(0)):
            on = tuple(a for a in neurons if low[a][s, k] >= 0)
            open_ = [a for a in neurons if low[a][s, k] < 0 < -minus[a][s, k]]
            right = k if self.i == self.n else (s + k) % self.B
            for other in {*range(self.B)} - {right}:
                harm = sum((min(fmpq(0), gain_of(a, right, other) * -minus[a][s, k]) for a in open_), fmpq(0))
                found = ahead(right, other, on)[s, k] + harm
                is_shown, both = found >= margin, (on, tuple(sorted((*on, *open_))))
                if not is_shown and len(open_) == 1:  # 0 and its reading are the two that it may be
                    is_shown = all(ahead(right, other, chosen)[s, k] >= margin for chosen in both)
                is_refuted = not open_ and found < margin - fmpq(2) ** (BITS - FINE)  # some pair attains it
                what = f"margin: column {self.i}, sum {s}, carry {k}: that over {other} does not show"
                require(is_shown, what, FAILS if is_refuted else NOT_CHECKABLE)


def _floor(x: arb) -> int:
    """A whole number over 2^BITS that is at most x."""
    found = (x * arb(2) ** BITS).lower().floor().unique_fmpz()
    require(found is not None, "a sum whose digits do not show", NOT_CHECKABLE)
    return int(found)  # type: ignore[arg-type]
