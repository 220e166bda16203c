"""Prompts of digits to add, and what the first layer's attention gives and rounds of each token (docs/checker.md).

Attention looks at places alone. So the errors of the stream are a sum over places as the stream is.
"""

from collections.abc import Sequence
from operator import add

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.adder import Adder
from verify.checker.ball_rows import most_of
from verify.checker.carried_digits import Balls
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import Head, chosen
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.roundoff import FLUSHED, Roundoff, exact, largest

TOO_FAR = "a softmax is too far off in the format"


class Prompt:
    """Which tokens may stand at each place up to a query, and what the first layer's heads give each of them."""

    def __init__(self, model: Adder, n: int, B: int, query: int) -> None:
        self.model, self.n, self.B, self.query = model, n, B, query
        tokens = {n: [B], 2 * n + 1: [B + 1]}  # "+" and "=": at all other places any digit may stand
        self.rows = [(at, t) for at in range(query + 1) for t in tokens.get(at, [*range(B)])]
        self.x = fmpq_mat([model.embedded(t, at) for at, t in self.rows])

    def scores(self, head: Head) -> list[fmpq]:
        """What the token at the query gives each position: the same whatever the digits are."""
        queries, keys = self.x * head[0], (self.x * head[1]).tolist()
        places = [next(r for r, (at, _) in enumerate(self.rows) if at == place) for place in range(self.query + 1)]
        of_query = queries.tolist()[places[-1] :]
        is_same = all(row == of_query[0] for row in of_query)
        is_same = is_same and all(keys[r] == keys[places[at]] for r, (at, _) in enumerate(self.rows))
        require(is_same, "scores depend on digits, which is not checked", NOT_CHECKABLE)
        return [sum((a * b for a, b in zip(of_query[0], keys[r], strict=True)), fmpq(0)) for r in places]

    def shares(self, head: Head) -> list[arb]:
        """The softmax of these, for each row."""
        scores = self.scores(head)
        weights = [arb(score - max(scores)).exp() for score in scores]
        total = sum(weights, arb(0))
        return [weights[at] / total for at, _ in self.rows]


def off_terms(fmt: BinaryFormat | None, prompt: Prompt) -> list[Balls]:
    """By how much what each token at each place adds to the stream at the query is off: by row and coordinate."""
    if fmt is None:
        return [[arb(0)] * prompt.x.ncols() for _ in prompt.rows]
    return RoundedPrompt(Roundoff(fmt), prompt).off()


class RoundedPrompt:
    """What attention rounds of each token at each place."""

    def __init__(self, on: Roundoff, prompt: Prompt) -> None:
        self.on, self.prompt, self.slots, model = on, prompt, prompt.query + 1, prompt.model
        self.own = [r for r, (at, _) in enumerate(prompt.rows) if at == prompt.query]
        tokens, places = model.E.tolist(), model.positions.tolist()
        read = [[tokens[t] for _, t in prompt.rows], [places[at] for at, _ in prompt.rows]]
        self.x = on.total([], [exact(fmpq_mat(rows)) for rows in read])
        self.few = arb(2) ** -(on.fmt.factors or 0) * bool(on.fmt.factors)  # what reading as a factor does to a number

    def off(self) -> list[Balls]:
        """By row and coordinate: the size of a term, grown by all that rounds it, less that size.

        What is lost below the normal numbers is counted with the query's own token, as one of these is always there.
        """
        fmt, heads, x = self.on.fmt, self.prompt.model.layers[0].heads, sizes(self.prompt.x)
        is_own = [int(r in self.own) for r in range(x.nrows())]
        real, grown = _kept(x, is_own), _kept(x + self.x.error, is_own)
        terms = 1 + sum(head[3].nrows() for head in heads)
        lost, summed = arb_mat([[(2 * terms + 6) * fmt.tiny] * x.ncols()]), 1 + fmt.growth(terms + 1)
        for head in heads:
            of_head = self._of_head(head)
            real, grown, lost = real + of_head[0], grown + of_head[1], lost + of_head[2]
        grown = (grown + _kept(arb_mat(lost.tolist() * x.nrows()), is_own)) * summed
        is_held = fmt.holds(4 * self.slots * x.ncols() * (1 + largest(grown)))
        require(is_held, "a sum may overflow in the format", NOT_CHECKABLE)
        return [[y.upper() for y in row] for row in (grown - real).tolist()]

    def _of_head(self, head: Head) -> tuple[arb_mat, arb_mat, arb_mat]:
        """The sizes of what it writes of each row, what they may grow to, and what is lost besides.

        A term is a share, a value and a number of W_O. The shares are divided by a sum, before or after that of the
        values, as in `Roundoff.mean`; each of the three is read as a factor, and the mean is one again.
        """
        on, fmt, shares, W_O = self.on, self.on.fmt, self.prompt.shares(head), head[3]
        v, g, read = on.read(on.total([(self.x, head[2])], [])), fmt.growth(self.slots + 1), on.read(exact(W_O)).size
        require(bool(g < 0.5), TOO_FAR, NOT_CHECKABLE)
        once = (1 + g / (1 - g)) * (1 + fmt.growth(3)) * (1 + g) * (1 + self.few) ** 2
        values = sizes(self.prompt.x * head[2])
        grown = _kept(
            values + v.error, [s * (1 + a) * once for s, a in zip(shares, self._moved(head, shares), strict=True)]
        )
        lost = 4 * FLUSHED * self.slots * fmt.tiny * (1 + largest(v.size) + largest(v.error)) * once
        return _kept(values, shares) * sizes(W_O), grown * read, arb_mat([[lost] * W_O.nrows()]) * read

    def _moved(self, head: Head, shares: Balls) -> Balls:
        """By which share of itself each row's weight is off.

        Exponentials off by shares a have weights off by (a - mean) / (1 + mean), the mean being that of all a. What an
        argument rounds is as small as the scores are apart, so that what weighs much is off by little.
        """
        on, rows, scores = self.on, self.prompt.rows, self.prompt.scores(head)
        q, k = (on.total([(self.x, W)], []) for W in head[:2])
        computed, real = on.scores(chosen(q, self.own), k), [arb(scores[at]) for at, _ in rows]
        tops = [most_of(map(add, real, off)) for off in computed.error.tolist()]
        apart = [[top - y + e for y, e in zip(real, off, strict=True)]
                 for top, off in zip(tops, computed.error.tolist(), strict=True)]  # fmt: skip
        tilts = [most_of(column).upper() for column in zip(*on.tilts(computed, apart), strict=True)]
        worst = dict[int, arb]()
        for (at, _), share, a in zip(rows, shares, tilts, strict=True):
            worst[at] = worst.get(at, arb(0)).max(share * a)
        mean = sum(worst.values(), arb(0)).upper()
        require(bool(mean < 0.5), TOO_FAR, NOT_CHECKABLE)
        return [(a + mean) / (1 - mean) for a in tilts]


def sizes(x: fmpq_mat) -> arb_mat:
    return arb_mat([[abs(arb(y)) for y in row] for row in x.tolist()])


def _kept(x: arb_mat, shares: Sequence[arb | int]) -> arb_mat:
    """A share of each row."""
    return arb_mat([[s * y for y in row] for s, row in zip(shares, x.tolist(), strict=True)])
