"""A wrong length in a format by a run that keeps every result exactly (docs/checker.md).

It is the run in real arithmetic where every number of every state is of the format, as no factor of a matrix product is
rounded then; and else one whose states are rounded as the next step reads them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from flint import ctx, fmpq

from verify.checker import linear, steady
from verify.checker.formats import BinaryFormat, named, scaled
from verify.checker.named_runs import MOST_TERMS, plain_network
from verify.checker.reading import NOT_CHECKABLE, read_tensors, require, tables_of
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import due_of, predicts
from verify.checker.rounded import BITS
from verify.checker.rounded_runs import floats, matrix_of
from verify.checker.steady import SteadyTurns

EXACT = "every result kept exactly, where no factor of a matrix product is rounded"
MOST_STEPS = 1000  # before the turns


def in_fractions(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length of ReLUs: turns that change the state evenly lead to it, all of numbers of the format."""
    fmt = named(said)
    with ctx.workprec(BITS):
        is_relu = plain_network(weights, said, fmt).activation == "relu"
    require(is_relu, "such runs of state spaces are not checked", NOT_CHECKABLE)
    net = linear.stepped(weights, said)
    stored = [x for rows in tables_of(read_tensors(weights)[0], ()).values() for row in rows for x in row]
    require(all(fmt.closest(*scaled(x)) == x for x in stored), "a weight is rounded to the format", NOT_CHECKABLE)
    due, leaps = due_of(net.V.nrows(), said), linear.leaps_of(c, said)
    n = c["counterexample"]["length"]
    is_one = len(leaps) == 1 and leaps[0]["turns"] is None and leaps[0]["after"] <= min(MOST_STEPS, n - 1)
    require(is_one, "leaps: runs other than by even turns to the end are not checked", NOT_CHECKABLE)
    h, states = net.start(), list[list[EvenNumbers]]()
    for _ in range(leaps[0]["after"]):
        h = net.step(h)
        states.append([EvenNumbers(x, fmpq(0), fmpq(0)) for x in h.entries()])
    with ctx.workprec(steady.BITS):
        turns = SteadyTurns(net, h, leaps[0]["after"], leaps[0]["turn"], due)
        require(turns.factor == 1, "leaps: of turns that change the state evenly only", NOT_CHECKABLE)
        turns.keep_sides(n - turns.t)
        last = fmpq((n - 1 - turns.t) // turns.k)
        read = [EvenNumbers(form.c0, form.c1, last) for form in turns.forms if form.other is None]
        d = len(h.entries())
        states += [read[i : i + d] for i in range(0, len(read), d)]
        _are_of(fmt, net, states)
        forms = turns.forms_at(n - turns.t)
        gaps = {j: form.c0 + form.c1 * last for j, form in forms.items()}
    is_wrong(c, said, gaps, {j: (form.c0, form.c1) for j, form in forms.items()})


def by_steps(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length of ReLUs or a state space: its steps are sums in fractions, rounded as factors.

    All numbers of the format are multiples of its smallest one.
    """
    with ctx.workprec(BITS):
        fmt = named(said)
        net = plain_network(weights, said, fmt)
        places, layer, due = fmt.p - 1 - fmt.least, net.layers[0], due_of(len(net.b), said)

    def whole(x: float) -> int:
        require(abs(x) < 2.0**fmt.most, "a factor may overflow", NOT_CHECKABLE)
        n, k = scaled(x)
        return n << places - k

    def sums(rows: list[list[int]], h: list[int], b: list[int]) -> list[int]:
        return [sum((w * h[i] for i, w in enumerate(row) if w), y) for row, y in zip(rows, b, strict=True)]

    W_x, W_h, V = ([[*map(whole, row)] for row in matrix_of(W)] for W in (layer.W_x, layer.W_h, net.V))
    b_x, b_h, b = ([whole(x) << places for x in floats(y)] for y in (layer.b_x, layer.b_h, net.b))
    given = sums(W_x, [*map(whole, floats(net.x))], [x + y for x, y in zip(b_x, b_h, strict=True)])
    n, h = c["counterexample"]["length"], [0] * len(W_h)
    require(n * places * len(h) ** 2 <= MOST_TERMS, "the run is too long to be run again", NOT_CHECKABLE)
    for _ in range(n):
        read = sums(W_h, h, given)
        h = [whole(fmt.closest(max(0, x) if net.activation == "relu" else x, 2 * places)) for x in read]
    logits, right = [fmpq(y, 1 << 2 * places) for y in sums(V, h, b)], due(n) or 0
    gaps = {j: logits[right] - y for j, y in enumerate(logits) if j != right}
    is_wrong(c, said, gaps, gaps)


def is_wrong(c: LineCertificate, said: LineParameters, gaps: Mapping[int, fmpq], rows: Mapping[int, object]) -> None:
    """Checks that one class, -1 for any, wins over the right one by the margin, and over all others."""
    n, margin, wrong = linear.wrong_at(c, due_of(len(gaps) + 1, said), said, may_be_open=True)
    require(not c["counterexample"]["is_first"], "that a run is right before is not checked", NOT_CHECKABLE)
    require(c["right_to"] < n - 1, "right_to: all shorter lengths are right, and it is not the first")
    require(wrong in gaps or wrong == -1, "counterexample: predicts no class")
    gap = min(gaps.values()) if wrong == -1 else gaps[wrong]
    require(gap <= fmpq(*margin.as_integer_ratio()), f"margin: at length {n} it is {gap}")
    if wrong != -1:
        predicts(gaps, wrong, rows)


class EvenNumbers(NamedTuple):
    """All of first + s change, s = 0, 1, .., last."""

    first: fmpq
    change: fmpq
    last: fmpq

    @property
    def size(self) -> fmpq:
        return max(abs(self.first), abs(self.first + self.change * self.last))

    @property
    def unit(self) -> int | None:
        """The largest e with all of them multiples of 2^e, None where all are 0; stored numbers have one."""
        q = max(int(self.first.q), int(self.change.q))
        n = int((self.first * q).p) | int((self.change * q).p)
        return (n & -n).bit_length() - q.bit_length() if n else None


def _are_of(fmt: BinaryFormat, net: steady.FractionSteps, states: list[list[EvenNumbers]]) -> None:
    """Checks that all states are of the format, multiples of 2^e up to 2^(e + p), and no sum over- or underflows."""
    least, largest = fmt.least - fmt.p + 1, fmpq(2) ** (fmt.most + 1) - fmpq(2) ** (fmt.most + 1 - fmt.p)
    for state in states:
        for x in state:
            is_of = x.unit is None or (x.unit >= least and x.size <= fmpq(2) ** (x.unit + fmt.p))
            require(is_of, "a state may be none of the format", NOT_CHECKABLE)
        for W, b in ((net.A, net.B), (net.V, net.b)):
            for row, y in zip(W.tolist(), b.entries(), strict=True):
                terms = [EvenNumbers(w * x.first, w * x.change, x.last) for w, x in zip(row, state, strict=True)]
                size = sum((x.size for x in terms), abs(y))
                is_kept = all(x.unit is None or x.unit >= least for x in terms) and size <= largest
                require(is_kept, "a result may overflow or underflow", NOT_CHECKABLE)
