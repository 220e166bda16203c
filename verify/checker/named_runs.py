"""A wrong length in a format by a run that the certificate names: it is run again, token by token (docs/checker.md).

A run is of a layer of ReLUs, a state space, or an S4. Sums and products of float64 numbers are Python's own, so
rounded to nearest once. Those of float32 numbers are rounded to float32 by storing them there, which rounds the exact
ones once: float64 has 2 * 24 + 2 bits and more (Figueroa), and has such products, and sums near 0, exactly.

A name that leaves open what is rounded and what is kept is that of many runs. Of these the one that rounds every result
is run, with sums in ascending order; where it is right, nothing is said of the others.
"""

import math
from array import array
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from flint import arb, ctx

from verify.checker import linear
from verify.checker.computed_tables import StoredCell
from verify.checker.formats import BinaryFormat, named
from verify.checker.linear import wrong_after
from verify.checker.reading import FAILS, NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import StoredNetwork, due_of, network
from verify.checker.rounded import BITS, stored_in, stored_network
from verify.checker.rounded_lines import ComputedLine, either
from verify.checker.rounded_operations import MOST_OPERATIONS, RoundedOperations
from verify.checker.rounded_runs import FEWEST, Part, Rows, Vector, floats, matrix_of

ROUNDED = "every result rounded once, sums from left to right"
KEPT = "results kept with 53 bits, factors of matrix products rounded, sums from left to right"
RULES = (ROUNDED, KEPT)
AGAINST = "each result rounded or kept, sums sorted, functions off by 2 units in the last place, against one answer"
CELLS = {53: "d", 24: "f"}  # by the bits of a format, what storing rounds to it
MOST_TERMS = 1 << 28  # of all sums of a run: a minute
SLOWER = 2 * MOST_TERMS // MOST_OPERATIONS  # a term that is rounded by two operations in whole numbers

Terms = list[tuple[float, int]]  # weights that are not 0, and of which number of the state
Row = tuple[Terms, float, float]  # what it reads, its own bias, and what it reads of a token


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length: the run that is named answers wrongly there; and all shorter ones, if it is the first."""
    with ctx.workprec(BITS):
        fmt, name = named(said), c["counterexample"]["evaluation"]
        is_one = name in RULES
        run = NamedRun.of(weights, said, fmt, name) if is_one else SortedRun(plain_network(weights, said, fmt), fmt)
        due = due_of(run.classes, said)
        n, _, wrong = wrong_after(c, due, said)
        require(n * run.terms <= MOST_TERMS, "the run is too long to be run again", NOT_CHECKABLE)
        check_answer(c, run.logits(n), due(n) or 0, wrong, FAILS if is_one else NOT_CHECKABLE)
        if c["counterexample"]["is_first"]:
            net, _ = stored_network(weights, said)
            either(net, fmt, lambda gaps: ComputedLine(due, gaps).right_to(n - 1, arb(0)))


def check_answer(c: LineCertificate, logits: Vector, right: int, wrong: int, exit_code: int) -> None:
    """Checks that these logits have no margin above zero, that it is the one that is said, and which class wins."""
    gaps = [0.0 if logits[right] == y else logits[right] - y for j, y in enumerate(logits) if j != right]
    gap = math.nan if any(map(math.isnan, logits)) else min(gaps, default=math.inf)
    require(not gap > 0, f"counterexample: the answer is right, by {gap}", exit_code)
    is_said = c["margin"] == (gap if math.isfinite(gap) else None)
    require(is_said, f"margin: is not {gap}, that of the run", exit_code)
    is_best = not math.isnan(gap) and 0 <= wrong < len(logits) and logits[wrong] == max(logits)
    require(wrong == -1 or is_best, "counterexample: another class is predicted", exit_code)


class NamedRun(NamedTuple):
    """h' = f(W h + what a token adds), and logits V (read h) + b, all as one run computes them.

    `cell` rounds what is stored there, `factor` what a matrix product reads; what is kept of a gated cell is no factor.
    """

    rows: list[Row]
    is_relu: bool
    is_gated: bool
    read: Vector
    readout: list[Row]
    cell: "array[float]"
    factor: Callable[[float], float]

    @classmethod
    def of(cls, weights: bytes, said: LineParameters, fmt: BinaryFormat, rule: str) -> "NamedRun":
        """The run of a rule. Raises: Refusal where it is none that is run again."""
        is_kept = rule == KEPT
        is_read = rule in RULES and (fmt.p <= FEWEST if is_kept else fmt.p in CELLS)
        require(is_read, "runs of such a name or format are not run again", NOT_CHECKABLE)
        cell = array("d" if is_kept else CELLS[fmt.p], [0.0])
        factor = RoundedOperations(fmt, fmt, False).tensor if is_kept else float
        if said.get("model") == "s4":
            net = StoredCell.of(weights, said, fmt.of_one_run)
            require("layer.W" not in net.rows, "runs with neurons are not run again", NOT_CHECKABLE)
            keep, add, read = (net.rows[name][0] for name in ("a", "u", "c"))
            rows = [([(f, i)], a, 0.0) for i, (f, a) in enumerate(zip(keep, add, strict=True))]
            return cls(rows, False, True, read, rows_of(net.V, net.b), cell, factor)
        whole = plain_network(weights, said, fmt)
        layer, V = whole.layers[0], rows_of(matrix_of(whole.V), floats(whole.b))
        of_token = cls(rows_of(matrix_of(layer.W_x), floats(layer.b_x)), False, False, [], V, cell, factor)
        given = of_token.sums(of_token.rows, floats(whole.x))
        rows = rows_of(matrix_of(layer.W_h), floats(layer.b_h), given)
        return of_token._replace(rows=rows, is_relu=whole.activation == "relu")

    @property
    def classes(self) -> int:
        """How many logits there are."""
        return len(self.readout)

    @property
    def terms(self) -> int:
        """Of the sums of a step, where they are not 0."""
        return sum(2 + sum(w != 0 for w, _ in terms) for terms, _, _ in self.rows)

    def logits(self, n: int) -> Vector:
        """After so many tokens."""
        h, rows = [0.0] * len(self.rows), [([w for w in terms if w[0]], b, a) for terms, b, a in self.rows]
        for _ in range(n):
            x = h if self.is_gated else [*map(self.factor, h)]
            if not math.isfinite(sum(x)):
                rows = self.rows  # a weight 0 times infinity is no number
            h = self.sums(rows, x)
            if self.is_relu:
                h = [y if y > 0 or math.isnan(y) else 0.0 for y in h]
        y = [self.rounded(r * x) for r, x in zip(self.read, h, strict=True)] if self.is_gated else h
        return self.sums(self.readout, [*map(self.factor, y)])

    def rounded(self, x: float) -> float:
        self.cell[0] = x
        return self.cell[0]

    def sums(self, rows: list[Row], x: Vector) -> Vector:
        """From left to right, each result rounded."""
        cell, found = self.cell, Vector()
        for terms, b, given in rows:
            total = 0.0
            for w, i in terms:
                cell[0] = w * x[i]
                cell[0] += total
                total = cell[0]
            cell[0] = total + b
            cell[0] += given
            found.append(cell[0])
        return found


class SortedRun:
    """The run of a layer of ReLUs or a state space that rounds every result, with the least terms of a sum first."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat) -> None:
        self.on, self.is_relu, layer = RoundedOperations(fmt, fmt, False), net.activation == "relu", net.layers[0]
        self.of_token = [(matrix_of(layer.W_x), floats(net.x), floats(layer.b_x))]
        self.W_h, self.b_h, self.V, self.b = matrix_of(layer.W_h), floats(layer.b_h), matrix_of(net.V), floats(net.b)
        self.classes = len(self.b)

    @property
    def terms(self) -> int:
        """Of the sums of a step, each as many as another run has in its time."""
        (W_x, _, _), *_ = self.of_token
        return SLOWER * sum(len(row) + 1 for W in (W_x, self.W_h) for row in W)

    def logits(self, n: int) -> Vector:
        """After so many tokens."""
        h = [0.0] * len(self.W_h)
        for _ in range(n):
            h = self.sums([*self.of_token, (self.W_h, h, self.b_h)])
            if self.is_relu:
                h = [y if y > 0 or math.isnan(y) else 0.0 for y in h]
        return self.sums([(self.V, h, self.b)])

    def sums(self, parts: list[Part]) -> Vector:
        """Every row of W x + b + .. in ascending order; one with a term that is no number is none in any order."""
        found = Vector()
        for i in range(len(parts[0][2])):
            terms = (y for W, x, b in parts for y in (*map(self.on.times, W[i], x), b[i]))
            found.append(reduce(self.on.add, sorted(terms)))
        return found


def plain_network(weights: bytes, said: LineParameters, fmt: BinaryFormat) -> StoredNetwork:
    """A state space, or one layer of ReLUs, as one run has its numbers. Raises: Refusal for any other."""
    is_space = said.get("model") in linear.KINDS
    require(is_space or said.get("model") == "rnn", "runs of such cells are not run again", NOT_CHECKABLE)
    net = stored_in((linear.as_layer if is_space else network)(weights, said), fmt.of_one_run)
    is_plain = len(net.layers) == 1 and net.activation in ("relu", "none")
    require(is_plain, "runs of more layers or of tanh are not run again", NOT_CHECKABLE)
    return net


def rows_of(W: Rows, b: Vector, given: Vector | None = None) -> list[Row]:
    """The rows of a sum, which reads all numbers."""
    more = given or [0.0] * len(b)
    return [([(w, i) for i, w in enumerate(row)], c, a) for row, c, a in zip(W, b, more, strict=True)]
