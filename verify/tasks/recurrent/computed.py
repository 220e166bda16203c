"""Two runs of a line in a format, of the many that the reading "dtype, any order" allows.

One rounds every result once, the other keeps results with the bits of float64, and rounds what becomes a factor of a
matrix product. Sums go from left to right, what reads the token first, biases last; tanh and sigmoid are rounded from
more digits than the format has. A wrong answer of such a run refutes that every order is right.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from flint import arb, ctx

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.margins import own_and_rival
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent import compiled
from verify.tasks.recurrent.logged import Logged
from verify.tasks.recurrent.network import BallVector, Later, Network, State, step
from verify.tasks.recurrent.proof import OrbitQuestion

ROUNDED = "every result rounded once, sums from left to right"
KEPT = "results kept with 53 bits, factors of matrix products rounded, sums from left to right"
WIDEST = 25  # bits, whose sums and products float64 holds well enough to be rounded again
STEPS_AT_A_TIME = 16
BITS = 80  # of the functions in float64


def rounds(fmt: Format) -> Callable[[float], float]:
    """A float64 number rounded to the format, ties to even.

    Of sums and products of numbers of at most WIDEST bits the float64 result, rounded, is the exact one, rounded: 53 is
    at least twice the bits and 2 (Figueroa).

    >>> rounds(FORMATS["bfloat16"])(1.005), rounds(FORMATS["float32"])(1e39)
    (1.0078125, inf)
    """
    if fmt is FORMATS["float64"]:
        return lambda x: x
    if fmt is FORMATS["float32"]:
        cell = array("f", [0.0])

        def to_float32(x: float) -> float:
            cell[0] = x
            return cell[0]

        return to_float32
    return lambda x: _rounded(x, fmt)


def _rounded(x: float, fmt: Format) -> float:
    if x == 0 or not math.isfinite(x):
        return x
    quantum = max(math.frexp(x)[1] - 1, fmt.smallest_exponent) - (fmt.p - 1)
    y = math.ldexp(round(math.ldexp(x, -quantum)), quantum)
    beyond = fmt.largest if fmt.saturates else math.inf
    return y if abs(y) <= fmt.largest else math.copysign(beyond, x)


class Computed:
    """Vectors of numbers of a format, as one run computes them."""

    def __init__(self, net: Network, fmt: Format, *, keeps: bool = False) -> None:
        self._factor, self._to = rounds(fmt), rounds(FORMATS["float64"] if keeps else fmt)
        self._is_wide, self._keeps = fmt.p > WIDEST, keeps
        pairs = [(W, b) for layer in net.layers for W, b in ((layer.W_x, layer.b_x), (layer.W_h, layer.b_h))]
        pairs += [(net.W, u) for u in net.U if net.W is not None]
        self._rows = {(id(W), id(b)): _rows(W, b) for W, b in (*pairs, (net.V, net.b))}
        tables = [x for table in net.tables for x in table]
        self._known = {id(x): [self._factor(y) for y in x.near.mid.tolist()] for x in tables}
        self._known |= {id(x): x.near.mid.tolist() for x in (net.sigmoids, net.candidates) if x is not None}

    def linear(self, W: Array, x: Sequence[float] | Array, b: Array, terms: Array | None = None) -> list[float]:
        """Weights 0 are left out where that changes nothing: with an infinite factor their product is NaN."""
        to, found = self._to, []
        vector: Sequence[float] = x.tolist() if isinstance(x, np.ndarray) else x
        if self._keeps:
            vector = [self._factor(y) for y in vector]
        lost = {i for i, y in enumerate(vector) if not math.isfinite(y)}
        for row, constant in self.rows_of(W, b):
            total = 0.0 if not lost or lost <= {i for i, _ in row} else math.nan
            for i, w in row:
                total = to(total + to(w * vector[i]))
            found.append(to(total + constant))
        return found

    def rows_of(self, W: Array, b: Array) -> list[tuple[list[tuple[int, float]], float]]:
        """Of each row of the network's W the weights that are not 0, with their places, and the bias."""
        return self._rows[id(W), id(b)]

    def known(self, x: BallVector) -> list[float]:
        return self._known[id(x)]

    def whole(self, x: Sequence[float], y: Sequence[float]) -> list[float]:
        return self.add(x, y)

    def cut(self, x: Sequence[float], start: int, stop: int) -> Sequence[float]:
        return x[start:stop]

    def add(self, x: Sequence[float], y: Sequence[float]) -> list[float]:
        return [self._to(a + b) for a, b in zip(x, y, strict=True)]

    def multiply(self, x: Sequence[float], y: Sequence[float]) -> list[float]:
        return [self._to(a * b) for a, b in zip(x, y, strict=True)]

    def noted(self, x: list[float]) -> list[float]:
        return x

    def blend(
        self,
        z: Sequence[float],
        n: Sequence[float],
        h: Sequence[float],
        on: Logged[Sequence[float]] | Computed | None = None,
    ) -> Sequence[float]:
        """(1 - z) n + z h, by the operations of `on`, which may be others."""
        on = on or self
        rest = on.noted([self._to(1 - a) for a in z])
        return on.add(on.multiply(rest, n), on.multiply(z, h))

    def tanh(self, x: Sequence[float]) -> list[float]:
        return [self._to(_precisely(arb.tanh, a) if self._is_wide else math.tanh(a)) for a in x]

    def sigmoid(self, x: Sequence[float]) -> list[float]:
        return [self._to(_precisely(_logistic, a) if self._is_wide else _sigmoid(a)) for a in x]

    def relu(self, x: Sequence[float]) -> list[float]:
        return [a if a > 0 or a != a else 0.0 for a in x]


def _rows(W: Array, b: Array) -> list[tuple[list[tuple[int, float]], float]]:
    """Of each row the weights that are not 0, with their places, and the bias."""
    rows = [[(i, w) for i, w in enumerate(row) if w] for row in W.tolist()]
    return list(zip(rows, b.tolist(), strict=True))


def _sigmoid(x: float) -> float:
    e = math.exp(-abs(x))
    return (1.0 if x >= 0 else e) / (1 + e) if x == x else x


def _logistic(x: arb) -> arb:
    return 1 / (1 + (-x).exp())


def _precisely(f: Callable[[arb], arb], x: float) -> float:
    if not math.isfinite(x):
        return math.nan if x != x else float(f(arb(x)).mid()) if f is arb.tanh else float(x > 0)
    with ctx.workprec(BITS):
        return float(f(arb(x)).mid())


@dataclass(frozen=True)
class ComputedRun:
    """Right after each of `steps` tokens, or wrong first after `wrong_at`; `repeats` where a state has come again."""

    rule: str
    steps: int
    wrong_at: int | None = None
    margin: float | None = None
    predicted: int | None = None
    repeats: bool = False
    numbers: Callable[[], dict[str, object] | None] | None = None  # what logs all of a wrong run, by running it again


def is_run(at: RoundedArithmetic) -> bool:
    """Whether this file runs the arithmetic: one format for all, in which float64's results are rounded once."""
    fmt = at.stored
    return at.inner is fmt and at.operand is fmt and (fmt.p <= WIDEST or fmt is FORMATS["float64"])


def runs(
    net: Network, line: OrbitQuestion, steps: int | None, at: RoundedArithmetic, until: Deadline
) -> Iterator[ComputedRun]:
    """The run that rounds every result, with half of the time, and, of few bits, the one that keeps them.

    Where sums have a wider format, no result of a sum is rounded to that of the others, and the second is the only one.
    """
    can_keep = at.operand is at.stored and at.inner.p <= WIDEST
    if is_run(at):
        yield run(net, line, steps, at, until.part(1 / 2) if can_keep else until)
    if can_keep:
        yield run(net, line, steps, at, until, keeps=True)


def run(
    net: Network,
    line: OrbitQuestion,
    steps: int | None,
    at: RoundedArithmetic,
    until: Deadline,
    *,
    keeps: bool = False,
    later: Later | None = None,
) -> ComputedRun:
    """Runs until an answer is wrong, a state comes again, so many steps are done, or time is up.

    A state is compared with one that was saved after a power of two of steps (Brent), so that no others are kept.
    """
    numbers, rule = Computed(net, at.stored, keeps=keeps), KEPT if keeps else ROUNDED
    has_changed = False
    state, saved, look, t, walk = _start(net), None, 1, 0, None
    least = max(compiled.FROM, line.settled, len(line.leading))
    while steps is None or t < steps:
        if t % STEPS_AT_A_TIME == 0 and until.is_up():
            return ComputedRun(rule, t)
        if later is not None and t == later.after:
            net, later, has_changed = later.net, None, True
            numbers = Computed(net, at.stored, keeps=keeps)
            least = t + compiled.FROM
        if walk is not None and saved is not None:
            walked = walk.along(compiled.Walked(state, t, saved, look), steps)
            state, t, saved, look = walked.state, walked.t, walked.saved, walked.look
            if walked.is_again or t == steps:
                return ComputedRun(rule, t, repeats=walked.is_again)
            if until.is_up():
                return ComputedRun(rule, t)
        state = step(net, state, line.at(t), numbers)
        if net.is_beyond(state):
            return ComputedRun(rule, t)
        t += 1
        logits = numbers.linear(net.V, state[-net.parts], net.b)
        margin, predicted = judged(logits, line.expected(t))
        if not margin > 0:
            again = None if has_changed else partial(_logged, net, line, t, numbers)
            return ComputedRun(rule, t - 1, t, margin, predicted, numbers=again)
        if t <= max(line.settled, len(line.leading)) or later is not None:
            continue
        if state == saved and (t - look) % line.period == 0:
            return ComputedRun(rule, t, repeats=True)
        if t >= 2 * look:
            saved, look = state, t
        if t == least:
            walk = compiled.CompiledWalk.of(net, line, numbers, at.stored, keeps=keeps)
    return ComputedRun(rule, t)


def _logged(net: Network, line: OrbitQuestion, steps: int, numbers: Computed) -> dict[str, object] | None:
    """Every number of so many steps, and the logits after them, where they are few enough to be kept."""
    on, state = Logged[Sequence[float]](net, numbers, lambda x: x, steps), _start(net)
    for t in range(steps):
        if on.is_vain:
            return None
        state = on.step(state, line.at(t))
    return on.numbers(numbers.linear(net.V, state[-net.parts], net.b))


def _start(net: Network) -> State[Sequence[float]]:
    return [[0.0] * net.hidden for _ in range(net.size // net.hidden)]


def judged(logits: Sequence[float], right: int) -> tuple[float, int | None]:
    """The margin of the right class, NaN where a logit is, and the class that is said."""
    if any(x != x for x in logits):
        return math.nan, None
    own, best = own_and_rival(logits, right) if len(logits) > 1 else (logits[right], -math.inf)
    margin = 0.0 if own == best else own - best  # of two infinite ones, too
    if own > best and not margin > 0:  # the difference underflows
        margin = math.ulp(0.0)
    return margin, max(range(len(logits)), key=lambda j: logits[j])
