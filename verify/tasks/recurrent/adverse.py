"""Runs in a format whose every choice is against one answer: what may be rounded or kept is what lowers its margin.

The reading "dtype, any order" lets each result be rounded to nearest or kept, each sum be taken in any order, and tanh
and sigmoid be off by 2 units in the last place. A gradient along the line says of each result whether more of it lowers
the margin after a given token, and a run takes the greatest or the least that is allowed. Nothing rests on the
gradient: whatever it says, the run is one of those that the reading allows, and its wrong answer refutes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import Format
from verify.arithmetic.margins import margins_of
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.computed import WIDEST, ComputedRun, is_run, judged
from verify.tasks.recurrent.logged import Logged
from verify.tasks.recurrent.network import NEVER, BallVector, Network, State, step
from verify.tasks.recurrent.proof import OrbitQuestion

AGAINST = "each result rounded or kept, sums sorted, functions off by 2 units in the last place, against one answer"
OFF = 1.9375  # units in the last place, and what float64 rounds of a function is far below the rest of 2
BEYOND = 2.0**-20  # of a unit, by which what is to be rounded up is more than half of one
BELOW = 1 - 2.0**-40  # times a number: its unit in the last place, if the number is that power of two by rounding alone
SOON, TURNS = (
    64,
    3,
)  # tokens that are known to be right at most, and turns after them whose answers are attacked one by one
PLACES = 3  # answers of a turn, against which runs go on for ever
AHEAD = 96  # tokens that these look ahead
STEPS_AT_A_TIME = 16

V = TypeVar("V", Array, torch.Tensor)
Signs = list[Array]  # of the results of one step, in their order


@dataclass(frozen=True)
class Sum(Generic[V]):
    """W x + .. + b + .., which other terms may still join."""

    products: tuple[tuple[Array, V], ...]
    added: tuple[Array, ...]

    def cut(self, start: int, stop: int) -> Sum[V]:
        return Sum(tuple((W[start:stop], x) for W, x in self.products), tuple(b[start:stop] for b in self.added))


@dataclass(frozen=True)
class Steered(Generic[V]):
    """Vectors whose every result is passed through a function: of a sum, of one operation, of tanh and sigmoid.

    `tuned` says which n of those that tanh may be is taken by n + z (h - n), which is given z and h.
    """

    total: Callable[[Sum[V]], V]
    result: Callable[[V], V]
    function: Callable[[str, V], V]
    stored: Callable[[Array], V]
    known: Callable[[BallVector], V]
    tuned: Callable[[V, V, V], V]

    def value(self, x: V | Sum[V]) -> V:
        return self.total(x) if isinstance(x, Sum) else x

    def linear(self, W: Array, x: V | Sum[V] | Array, b: Array, terms: Array | None = None) -> Sum[V]:
        return Sum(((W, self.stored(x) if isinstance(x, np.ndarray) else self.value(x)),), (b,))

    def whole(self, x: V | Sum[V], y: V | Sum[V]) -> Sum[V]:
        assert isinstance(x, Sum) and isinstance(y, Sum), "sums, which linear gives"
        return Sum(x.products + y.products, x.added + y.added)

    def add(self, x: V | Sum[V], y: V | Sum[V]) -> V:
        return self.result(self.value(x) + self.value(y))

    def multiply(self, x: V | Sum[V], y: V | Sum[V]) -> V:
        return self.result(self.value(x) * self.value(y))

    def noted(self, x: V) -> V:
        return x

    def blend(
        self, z: V | Sum[V], n: V | Sum[V], h: V | Sum[V], on: Logged[V | Sum[V]] | Steered[V] | None = None
    ) -> V:
        """As n + z (h - n), which drifts where z is 1 and h - n is always rounded the same way."""
        on, z, h = on or self, self.value(z), self.value(h)
        n = self.tuned(z, self.value(n), h)
        on.noted(n)
        return self.value(on.add(n, on.multiply(z, on.add(h, -n))))

    def tanh(self, x: V | Sum[V]) -> V:
        return self.function("tanh", self.value(x))

    def sigmoid(self, x: V | Sum[V]) -> V:
        return self.function("sigmoid", self.value(x))

    def relu(self, x: V | Sum[V]) -> V:
        return self.value(x).clip(0)

    def cut(self, x: V | Sum[V], start: int, stop: int) -> V | Sum[V]:
        return x.cut(start, stop) if isinstance(x, Sum) else x[start:stop]


def zeros(net: Network) -> State[Array]:
    return [np.zeros(net.hidden) for _ in range(net.size // net.hidden)]


# ---- what lowers a margin


def _tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(x))


class Gradient:
    """The line in float64 with a number 0 added to each result, by which margins are differentiated.

    `state` is that after `start` tokens, the state 0 where it is None; margins are those after start + 1, .. tokens.
    """

    def __init__(
        self,
        net: Network,
        line: OrbitQuestion,
        steps: int,
        until: Deadline,
        start: int = 0,
        state: State[Array] | None = None,
    ) -> None:
        self.leaves: list[list[torch.Tensor]] = []
        self.net, self.line, self.margins = net, line, list[torch.Tensor]()
        self._tables = {id(x): torch.zeros(len(x.balls), dtype=torch.float64, requires_grad=True)
                        for table in net.tables for x in table}  # fmt: skip
        on = Steered(self._total, self._added, self._function, _tensor, self._known, lambda z, n, h: n)
        vectors = [_tensor(x) for x in state or zeros(net)]
        V, b = _tensor(net.V), _tensor(net.b)
        for t in range(start, start + steps):
            if until.is_up():
                break
            self.leaves.append([])
            vectors = [on.value(x) for x in step(net, vectors, line.at(t), on)]
            logits = V @ vectors[-net.parts] + b
            self.margins.append(margins_of(logits, torch.tensor(line.expected(t + 1))))
        self.said = [float(x.detach()) for x in self.margins]

    def _known(self, x: BallVector) -> torch.Tensor:
        """What a token keeps, adds and reads is the same number after each token."""
        self.leaves[-1].append(self._tables[id(x)])
        return _tensor(x.near.mid) + self._tables[id(x)]

    def _added(self, x: torch.Tensor) -> torch.Tensor:
        leaf = torch.zeros(x.shape, dtype=torch.float64, requires_grad=True)
        self.leaves[-1].append(leaf)
        return x + leaf

    def _total(self, x: Sum[torch.Tensor]) -> torch.Tensor:
        terms = [*(_tensor(W) @ y for W, y in x.products), *(_tensor(b) for b in x.added)]
        return self._added(torch.stack(terms).sum(0))

    def _function(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self._added(torch.tanh(x) if name == "tanh" else torch.sigmoid(x))

    def against(self, t: int) -> list[Signs]:
        """Of each result of t steps, whether more of it (above 0) or less (below 0) lowers the margin after them."""
        flat = [leaf for row in self.leaves[:t] for leaf in row]
        slopes = torch.autograd.grad(self.margins[t - 1], flat, retain_graph=True, allow_unused=True)
        signs = iter([np.zeros(len(leaf)) if s is None else -s.numpy() for leaf, s in zip(flat, slopes, strict=True)])
        return [[next(signs) for _ in row] for row in self.leaves[:t]]


# ---- the run


class Choosing:
    """Vectors of a run: of what the reading allows, the greatest where a sign is positive, and else the least.

    `exponentials` are by id those tables of the network that end with exp.
    """

    def __init__(self, fmt: Format, exponentials: frozenset[int] = frozenset()) -> None:
        self._fmt, self._signs, self._exponentials = fmt, iter(Signs()), exponentials
        self._least = self._most = np.zeros(0)  # that the last function may be
        self.on = Steered(self._total, self._chosen, self._function, lambda x: x, self._known, self._tuned)

    def steer(self, signs: Signs) -> None:
        """Takes what the results of the next step are to be."""
        self._signs = iter(signs)

    def near(self, x: Array) -> Array:
        return rounded(x, self._fmt)

    def _towards(self, x: Array, is_up: np.ndarray) -> Array:
        """x, rounded or kept with the bits of float64.

        A number half-way between two of the format may have been rounded to there, and is not rounded once more; what
        overflows where it is rounded might be kept, and is not.
        """
        with np.errstate(all="ignore"):
            near = self.near(x)
            beyond = 2 * x - near
            is_kept = (near != x) & (self.near(beyond) == beyond) & np.isfinite(near)
            near = np.where(is_kept, x, near)
        overflows = np.isinf(near) | (self._fmt.saturates & (np.abs(x) > self._fmt.largest))
        return np.where(overflows, near, np.where(is_up, np.maximum(x, near), np.minimum(x, near)))

    def _chosen(self, x: Array) -> Array:
        return self._towards(x, next(self._signs) > 0)

    def _total(self, x: Sum[Array]) -> Array:
        return self.sums(x, next(self._signs) > 0)

    def sums(self, x: Sum[Array], is_up: np.ndarray) -> Array:
        """The greatest or least of sums in ascending and descending order, each result rounded or kept."""
        with np.errstate(all="ignore"):
            products = [self._towards(W * self.near(y), is_up[:, None]) for W, y in x.products]
            terms = np.sort(np.concatenate([*products, *(b[:, None] for b in x.added)], axis=1), axis=1)
            up, down = (self._in_turn(order, is_up) for order in (terms, terms[:, ::-1]))
        return np.where(is_up, np.maximum(up, down), np.minimum(up, down))

    def _in_turn(self, terms: Array, is_up: np.ndarray) -> Array:
        total = terms[:, 0]
        for term in terms[:, 1:].T:
            total = self._towards(total + term, is_up)
        return total

    def _function(self, name: str, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return self._off(np.tanh(x) if name == "tanh" else 1 / (1 + np.exp(-x)))

    def _off(self, y: Array) -> Array:
        """As far from a function's value as is allowed; the value 0, which has no last place, is taken as it is."""
        with np.errstate(all="ignore"):
            unit = np.where(y == 0, 0.0, np.ldexp(OFF, np.frexp(y * BELOW)[1] - self._fmt.p))
            self._least, self._most = y - unit, y + unit
        return np.where(next(self._signs) > 0, self._most, self._least)

    def _known(self, x: BallVector) -> Array:
        if id(x) not in self._exponentials:
            return self._chosen(x.near.mid)
        return np.where(x.near.mid == 0, 0.0, self._off(x.near.mid))

    def _tuned(self, z: Array, n: Array, h: Array) -> Array:
        """The n, of those that the last function may be, for which n + z (h - n) goes furthest where n is taken.

        Tried are both ends, and what makes h - n just more than half-way between two numbers of the format.
        """
        is_up = n == self._most
        sign = np.where(is_up, 1.0, -1.0)
        tried, best = [n], n
        with np.errstate(all="ignore"):
            for end in (self._least, self._most):
                near = self.near(h - end)
                unit = np.ldexp(1.0, np.frexp(near)[1] - self._fmt.p)
                tried += [end, *(h - (near + unit * (half + sign * BEYOND)) for half in (-0.5, 0.5))]
            most = np.full_like(n, -np.inf)
            for m in tried:
                m = np.clip(m, self._least, self._most)
                d = self._towards(h - m, is_up)
                after = sign * self._towards(m + self._towards(z * d, is_up), is_up)
                best, most = np.where(after > most, m, best), np.maximum(after, most)
        return best


class Steering(Protocol):
    """Which signs the results of each step have."""

    def __call__(self, t: int, state: State[Array]) -> Signs: ...

    def is_new(self, t: int, state: State[Array]) -> bool:
        """Whether other signs are taken from here on, where a state has come again."""


@dataclass(frozen=True)
class Planned:
    """Signs of each step from the state 0."""

    signs: Sequence[Signs]

    def __call__(self, t: int, state: State[Array]) -> Signs:
        return self.signs[t]

    def is_new(self, t: int, state: State[Array]) -> bool:
        return False


class Onwards:
    """Signs that repeat turn by turn, against one answer of each turn, looked for again when twice as many are done.

    Answers are due up to `last` tokens, for ever where it is None.
    """

    def __init__(self, net: Network, line: OrbitQuestion, place: int, last: int | None) -> None:
        self._net, self._line, self._place, self._last = net, line, place, last
        self._turn, self._look, self._from = list[Signs](), 0, 0

    def __call__(self, t: int, state: State[Array]) -> Signs:
        if t >= self._look:
            self.is_new(t, state)
            self._look = max(2 * t, t + AHEAD)
        return self._turn[(t - self._from) % len(self._turn)]

    def is_new(self, t: int, state: State[Array]) -> bool:
        k, before = self._line.period, self._turn
        least = _ahead(k)
        steps = least + (self._place - t - least) % k
        if before and self._last is not None and t + steps > self._last:
            return False
        own = Gradient(self._net, self._line, steps, NEVER, t, state).against(steps)
        self._turn, self._from = [_summed(own[r::k]) for r in range(k)], t
        return not before or any(
            (np.sign(x) != np.sign(y)).any()
            for old, new in zip(before, self._turn, strict=False)
            for x, y in zip(old, new, strict=False)
        )


def _ahead(k: int) -> int:
    """How many tokens a run for ever looks ahead, with turns of k."""
    return max(AHEAD, 2 * k)


def _summed(steps: Sequence[Signs]) -> Signs:
    return [np.sum(row, axis=0) for row in zip(*steps, strict=True)]


def run(
    net: Network, line: OrbitQuestion, steps: int | None, choosing: Choosing, steering: Steering, until: Deadline
) -> ComputedRun:
    """Runs until an answer is wrong, a state comes again, so many steps are done, or time is up."""
    state, saved, look, t, taken = zeros(net), zeros(net), 1, 0, list[Signs]()
    while steps is None or t < steps:
        if t % STEPS_AT_A_TIME == 0 and until.is_up():
            break
        taken.append(steering(t, state))
        choosing.steer(taken[-1])
        parts: State[Array | Sum[Array]] = [*state]
        state = [choosing.on.value(x) for x in step(net, parts, line.at(t), choosing.on)]
        if net.is_beyond(state):
            break
        t += 1
        right = line.expected(t)
        logits = _logits(net, choosing, state, right)
        margin, predicted = judged(logits, right)
        if not margin > 0:
            again = partial(_logged, net, line, choosing, taken)
            return ComputedRun(AGAINST, t - 1, t, margin, predicted, numbers=again)
        is_again = t > look and (t - look) % line.period == 0 and np.array_equal(state, saved)
        if is_again and not steering.is_new(t, state):
            return ComputedRun(AGAINST, t, repeats=True)
        if is_again or t >= 2 * look:
            saved, look = state, t
    return ComputedRun(AGAINST, t)


def _logits(net: Network, choosing: Choosing, state: State[Array], right: int) -> list[float]:
    """The right logit as small, and the others as large, as sums may be."""
    total = choosing.on.linear(net.V, state[-net.parts], net.b)
    logits: list[float] = choosing.sums(total, np.arange(len(net.b)) != right).tolist()
    return logits


def _logged(net: Network, line: OrbitQuestion, choosing: Choosing, taken: Sequence[Signs]) -> dict[str, object] | None:
    """Every number of the run that takes these signs, and the logits after it, where they are few enough to be kept."""
    on, state = Logged(net, choosing.on, choosing.on.value, len(taken)), zeros(net)
    for t, signs in enumerate(taken):
        if on.is_vain:
            return None
        choosing.steer(signs)
        state = [choosing.on.value(x) for x in on.step(state, line.at(t))]
    return on.numbers(_logits(net, choosing, state, line.expected(len(taken))))


def runs(
    net: Network,
    run_as: Network,
    line: OrbitQuestion,
    steps: int | None,
    at: RoundedArithmetic,
    right_to: int,
    until: Deadline,
) -> Iterator[ComputedRun]:
    """Runs against the answers after the first tokens that are open, and against those of later ones, for ever.

    `net` holds all that its tables may be computed as, `run_as` what one run has.
    """
    if not is_run(at) or at.stored.p > WIDEST:
        return
    k, choosing = line.period, Choosing(at.stored, _exponentials(net, run_as, at.stored))
    if right_to < SOON:
        most = right_to + TURNS * k
        along = Gradient(run_as, line, most if steps is None else min(most, steps), until)
        for t in range(right_to + 1, len(along.margins) + 1):
            if until.is_up():
                return
            yield run(run_as, line, t, choosing, Planned(along.against(t)), until)
    first = max(line.settled, len(line.leading))
    if steps is not None and first + _ahead(k) + k > steps:
        return
    ahead = Gradient(run_as, line, first + _ahead(k) + k, until)
    ends = sorted(range(1, k + 1), key=lambda r: ahead.said[-r]) if len(ahead.said) > k else []
    for number, r in enumerate(ends[:PLACES]):
        steering = Onwards(run_as, line, len(ahead.said) + 1 - r, steps)
        yield run(run_as, line, steps, choosing, steering, until.part(1 / (min(PLACES, len(ends)) - number)))


def _exponentials(net: Network, run_as: Network, fmt: Format) -> frozenset[int]:
    """Those tables of what is kept that are computed, and so end with exp."""
    pairs = ((kept[0].near, own[0]) for kept, own in zip(net.tables, run_as.tables, strict=True))
    return frozenset(id(own) for x, own in pairs if ((x.rad > fmt.u * x.mid) & (x.mid > 2 * fmt.tiny)).any())
