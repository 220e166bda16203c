"""Linear states whose every operation rounds, in any order, at any length (docs/checker.md).

A computed state is h_t + e_t, with e_(t+1) = A e_t + d and |d| at most what a step from such a state rounds. Along the
eigenvectors X of A, with c = |X^-1 d|, e_n is at most the sum over all steps of |l|^(n - t) c, so of max(1, |l|^n) c.
States come round, so that c is taken for each step of a turn, and some turns at once. That states are as near as is
assumed where c is taken is shown by what comes of it, as e_t grows from 0.
"""

from collections.abc import Callable

from flint import acb_mat, arb, ctx

from verify.checker import followers, rounded_lines
from verify.checker.closed_lines import is_right
from verify.checker.computed_gates import logit_gaps, turn_errors
from verify.checker.computed_tables import StoredCell
from verify.checker.formats import named
from verify.checker.linear import KINDS, wrong_after
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import Vector, due_of
from verify.checker.rounded import ComputedBalls, computed_gaps, rounding_of_step, stored_network
from verify.checker.rounded_lines import EVERY, Gaps, is_wrong
from verify.checker.turning import BITS, TurningStates

PIECES = 16  # in which turns are taken

Shown = Callable[[Vector, Vector, int], Gaps]


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a length that is wrong in every order: token by token where no other may be shorter, or in closed form."""
    said_by = c["counterexample"].get("evaluation")
    require(
        said_by in (None, EVERY) and "run" not in c, "runs whose numbers are not saved are not checked", NOT_CHECKABLE
    )
    try:
        by_tokens = rounded_lines.decide if said["model"] in KINDS else followers.line_of_gates
        by_tokens(weights, c, said)
    except Refusal as refusal:
        if refusal.exit_code != NOT_CHECKABLE:
            raise
        in_closed_form(weights, c, said)


def in_closed_form(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """The same at any length; and that all shorter ones are right, if it is the first."""
    with ctx.workprec(BITS):
        A, B, errors, shown, classes = (_of_matrix if said["model"] in KINDS else _of_angle)(weights, said)
        due = due_of(classes, said)
        n, margin, wrong = wrong_after(c, due, said)
        states = ComputedTurns(A, B, errors, shown, said.get("modulus", 1), n)
        is_wrong(lambda k: states.ends(n, n, 1, k), due(n) or 0, margin, wrong, f"length {n}")
        if c["counterexample"].get("is_first", True):
            is_right(states, due, said, n - 1, arb(0))


def _of_matrix(weights: bytes, said: LineParameters) -> tuple[acb_mat, acb_mat, Callable[[Vector], Vector], Shown, int]:
    net, fmt = stored_network(weights, said)
    layer = net.layers[0]

    def shown(h: Vector, e: Vector, right: int) -> Gaps:
        box = [x + arb(0, y) for x, y in zip(h, e, strict=True)]
        found = computed_gaps(net, fmt, box, box, [], right, "a length", is_ball=False)
        return {j: ((gap - off).lower(), (gap + off).upper()) for j, (gap, off) in found.items()}

    A, B = acb_mat(layer.W_h), acb_mat([[x] for x in layer.b_h])
    return A, B, lambda sizes: rounding_of_step(net, [arb(0, x) for x in sizes], fmt), shown, len(net.b)


def _of_angle(weights: bytes, said: LineParameters) -> tuple[acb_mat, acb_mat, Callable[[Vector], Vector], Shown, int]:
    fmt = named(said)
    net, one = StoredCell.of(weights, said, fmt), ComputedBalls([arb(1)] * 2, [arb(0)] * 2)
    omega = arb(net.rows["omega"][0][0])

    def shown(h: Vector, e: Vector, right: int) -> Gaps:
        away = [x + 3 * fmt.tiny for x in e]
        return logit_gaps(net, fmt, one, ComputedBalls(h, away), right)

    A, B = acb_mat([[omega.cos(), -omega.sin()], [omega.sin(), omega.cos()]]), acb_mat([[1], [0]])
    own = turn_errors(net, fmt)
    return A, B, lambda sizes: own([x + 3 * fmt.tiny for x in sizes]), shown, len(net.b)


class ComputedTurns:
    """Between which numbers logits are computed after up to `last` tokens."""

    def __init__(
        self, A: acb_mat, B: acb_mat, errors: Callable[[Vector], Vector], shown: Shown, period: int, last: int
    ) -> None:
        n = A.nrows()
        one = acb_mat([[int(i == j) for j in range(n)] for i in range(n)])
        self.states = TurningStates(A, B, one, [arb(0)] * n)
        self.errors, self.shown, self.period, self.last = errors, shown, period, last
        self.turns, self.work, self.inverse = self.states.turns, self.states.work, self.states.X.inv()
        near = [2 * x for x in self._moved([arb(0)] * n)]
        self.off = self._moved(near)
        is_near = all(bool(x <= y) for x, y in zip(self.off, near, strict=True))
        require(is_near, "how far computed states are from exact ones does not show", NOT_CHECKABLE)

    def gaps(self, low: int, high: int | None, k: int, right: int) -> Gaps:
        require(high is not None, "for ever is not shown so", NOT_CHECKABLE)
        return self.ends(low, high or 0, k, right)

    def ends(self, low: int, high: int, k: int, right: int) -> Gaps:
        """Between which numbers (right logit) - (each other) is at lengths low, low + k, .., high."""
        return self.shown(self.states.values(low, high, k), self.off, right)

    def _moved(self, near: Vector) -> Vector:
        """How far each number of computed states may be from the exact ones, if all before are so near."""
        turns, X = self.last // self.period + 1, self.states.X
        n, size = len(near), -(-turns // PIECES)
        along = [arb(0)] * n
        for p in range(0, turns, size):
            count = min(size, turns - p)
            for r in range(self.period):
                low = r + self.period * p
                box = self.states.values(low, low + self.period * (count - 1), self.period)
                d = self.errors([(abs(x) + y).upper() for x, y in zip(box, near, strict=True)])
                along = [x + count * self._coordinate(i, d) for i, x in enumerate(along)]
        powers = [(abs(rate) ** self.last).max(arb(1)) for rate in self.states.rates]
        grown = [x * y for x, y in zip(along, powers, strict=True)]
        return [sum((abs(X[j, i]) * x for i, x in enumerate(grown)), arb(0)).upper() for j in range(n)]

    def _coordinate(self, i: int, d: Vector) -> arb:
        """|X^-1 d| along an eigenvector, for any signs of d."""
        real, imag = (
            sum((abs(y) * x for y, x in zip(parts, d, strict=True)), arb(0))
            for parts in zip(*((self.inverse[i, j].real, self.inverse[i, j].imag) for j in range(len(d))), strict=True)
        )
        return (real * real + imag * imag).sqrt().upper()
