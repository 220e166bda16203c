"""A wrong length of an LSTM or a GRU in the run that keeps every result exactly, many turns at once (docs/checker.md).

Only factors of matrix products are rounded, so gates depend on the rounded h alone, and each number of the state (c of
an LSTM) goes its own way: y' = keep y + add, keep > 0. Where the factors of a turn are those of the one before, its
steps make y' = P y + S. Then y after q turns goes one way with q, as turn q changes it by P^q times what the first one
does. So a factor that is the same after no turn and after the last one is the same after all turns between.
"""

from functools import reduce
from typing import NamedTuple

from flint import arb, arb_mat, ctx, fmpq

from verify.checker import named_runs
from verify.checker.computed_tables import StoredCell
from verify.checker.exact_runs import is_wrong
from verify.checker.formats import BinaryFormat, named
from verify.checker.kept_runs import KEPT, KeptRun
from verify.checker.linear import wrong_after
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import StoredNetwork, Vector, due_of, logistic, network
from verify.checker.rounded import stored_in
from verify.checker.rounded_runs import floats, matrix_of

BITS = 1024
SHARES = {  # of u, by which sigmoids are high in a run: less than two units in the last place
    KEPT: arb(0),
    "each sigmoid low by a factor of 1 - 3u/2, " + KEPT: arb(-1.5),
    "each sigmoid high by a factor of 1 + 15u/8, " + KEPT: arb(1.875),
}
OF_53_BITS = {name.replace(KEPT, named_runs.KEPT): share for name, share in SHARES.items() if share != 0}
ENTRIES, PERIODS_OF_TURN = (64, 256, 1024, 4096), (1, 2, 3, 4)  # tokens until turns begin, and how long one is
MOST_TURN = 100


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length: the run that is named answers wrongly there.

    Where the answer is no number, the run that keeps all bits is shown to be wrong in place of that which keeps 53.
    """
    with ctx.workprec(BITS):
        fmt, name = named(said), c["counterexample"]["evaluation"]
        net = stored_in(network(weights, said), fmt.of_one_run)
        require(net.kind in ("gru", "lstm") and len(net.layers) == 1, "such runs are not repeated", NOT_CHECKABLE)
        run, due = KeptGates(net, fmt, (SHARES | OF_53_BITS)[name]), due_of(len(net.b), said)
        n, V, b = c["counterexample"]["length"], matrix_of(net.V), floats(net.b)
        require(n > 0, "counterexample: has no length")
        h, right = run.read_after(n, said.get("modulus", 1)), due(n) or 0
        if name in OF_53_BITS:
            is_open = wrong_after(c, due, said)[2] == -1
            is_beyond = KeptRun(StoredCell(net.kind, {}, V, b), fmt, lambda t: h).is_no_number(n, right)
            require(is_open and is_beyond, "margin: the answer is a number, or right")
            require(not c["counterexample"]["is_first"], "that a run is right before is not checked", NOT_CHECKABLE)
            return
        read = [*map(of_float, run.rounded(h, run.is_shown))]
        require(run.most < arb(2) ** fmt.most, "a factor may overflow", NOT_CHECKABLE)
    logits = [
        sum((of_float(w) * x for w, x in zip(row, read, strict=True)), of_float(y)) for row, y in zip(V, b, strict=True)
    ]
    gaps = {j: logits[right] - y for j, y in enumerate(logits) if j != right}
    is_wrong(c, said, gaps, gaps)


def of_float(x: float) -> fmpq:
    return fmpq(*x.as_integer_ratio())


class GateStep(NamedTuple):
    """What a step keeps and adds of each number, and what of its tanh is h, None where it is h itself."""

    keep: Vector
    add: Vector
    out: Vector | None

    def after(self, y: Vector) -> Vector:
        return [f * v + a for f, v, a in zip(self.keep, y, self.add, strict=True)]

    def shown(self, y: Vector) -> Vector:
        return y if self.out is None else [o * v.tanh() for o, v in zip(self.out, y, strict=True)]


class KeptGates:
    """The run whose sigmoids are high by a share of u, from the state 0."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat, share: arb) -> None:
        self.net, self.fmt, self.high, self.most = net, fmt, 1 + share * fmt.u, arb(0)
        self.known = dict[tuple[float, ...], GateStep]()
        W = net.layers[0].W_h.tolist()
        self.is_read = [any(row[i] != 0 for row in W) for i in range(net.hidden)]
        self.is_shown = [any(row[i] != 0 for row in net.V.tolist()) for i in range(net.hidden)]

    def read_after(self, n: int, period: int) -> Vector:
        """The h after n tokens."""
        y, factors, t = [arb(0)] * self.net.hidden, (0.0,) * self.net.hidden, 0
        for entry in ENTRIES:
            while t < min(entry, n):
                gates, t = self.gates(factors), t + 1
                y = gates.after(y)
                factors = self.rounded(gates.shown(y), self.is_read)
            if t == n:
                return gates.shown(y)
            for k in sorted({period * times for times in PERIODS_OF_TURN}):
                found = self._turned(y, factors, k, n - t) if k <= MOST_TURN else None
                if found is not None:
                    return found
        raise Refusal("the factors of this run do not repeat", NOT_CHECKABLE)

    def _turned(self, y: Vector, factors: tuple[float, ...], k: int, tokens: int) -> Vector | None:
        """The same after so many tokens more, None where turns of k do not all have the same factors."""
        turns, first, now, steps = (tokens - 1) // k, factors, y, list[tuple[GateStep, tuple[float, ...]]]()
        for _ in range(k):
            gates = self.gates(factors)
            now = gates.after(now)
            factors = self.rounded(gates.shown(now), self.is_read)
            steps.append((gates, factors))
        if factors != first or not all(f > 0 for gates, _ in steps for f in (*gates.keep, *(gates.out or ()))):
            return None
        last = [self._after(turns, i, y[i], [gates for gates, _ in steps]) for i in range(len(y))]
        found = Vector()
        for r, (gates, due) in enumerate(steps):
            last = gates.after(last)
            if any(not v.is_finite() for v in last) or self.rounded(gates.shown(last), self.is_read) != due:
                return None
            if r == (tokens - 1) % k:
                found = gates.shown(last)
        return found

    def _after(self, turns: int, i: int, y: arb, steps: list[GateStep]) -> arb:
        """Number i after so many turns."""
        P, S = arb(1), arb(0)
        for gates in steps:
            P, S = P * gates.keep[i], S * gates.keep[i] + gates.add[i]
        power = P**turns
        return power * y + S * (power - 1) / (P - 1)

    def gates(self, factors: tuple[float, ...]) -> GateStep:
        """Of a step that reads these factors."""
        if factors not in self.known:
            self.known[factors] = self._gates(arb_mat(len(factors), 1, [*map(arb, factors)]))
        return self.known[factors]

    def _gates(self, factors: arb_mat) -> GateStep:
        layer, H, x = self.net.layers[0], self.net.hidden, self.net.x
        given, own = layer.W_x * arb_mat(len(x), 1, x), layer.W_h * factors
        a = [v + b for v, b in zip(given.entries(), layer.b_x, strict=True)]
        u = [v + b for v, b in zip(own.entries(), layer.b_h, strict=True)]

        def sigmoid(k: int) -> Vector:
            return [
                self.high * logistic(v + w) for v, w in zip(a[k * H : k * H + H], u[k * H : k * H + H], strict=True)
            ]

        if self.net.kind == "gru":
            r, z = sigmoid(0), sigmoid(1)
            new = [(v + s * w).tanh() for v, s, w in zip(a[2 * H :], r, u[2 * H :], strict=True)]
            return GateStep(z, [(1 - f) * v for f, v in zip(z, new, strict=True)], None)
        i, f, o = sigmoid(0), sigmoid(1), sigmoid(3)
        g = [(v + w).tanh() for v, w in zip(a[2 * H : 3 * H], u[2 * H : 3 * H], strict=True)]
        return GateStep(f, [v * w for v, w in zip(i, g, strict=True)], o)

    def rounded(self, h: Vector, is_used: list[bool]) -> tuple[float, ...]:
        """Numbers as factors, 0 for those that are not used; the largest of all is kept."""
        self.most = reduce(arb.max, (abs(y).upper() for y in h), self.most)  # no number where one is none
        found = [self.fmt.of_ball(y) if used else 0.0 for y, used in zip(h, is_used, strict=True)]
        require(None not in found, "how a factor is rounded does not show", NOT_CHECKABLE)
        return tuple(x for x in found if x is not None)
