"""Block invariants: whatever was read, the units of each type stay where the count of that type says.

The units of type i are treated on their own; those of the other types may be anything in their range at each step. So
K (C + 1) K steps decide all strings of all lengths, by induction over the tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import Array
from verify.tasks.recurrent.enclosures import Balls, Off, Roundings, tanh
from verify.tasks.recurrent.network import CellNumbers, Network, X, nonzeros

SIGNS = (1 - 2.0**-16, 0.98, 0.95, 0.9, 0.8)  # least absolute values of a sign that are tried, one after the other
MOST_STATES = 10_000  # of one type's units
LARGEST = 1 << 20  # of integers that are followed


Reached = tuple[tuple[int, ...], int, int]  # a block's state, (its count - 1) mod m, and the last token


class BlockProof(NamedTuple):
    """A margin that every judged answer has, or the reason why nothing is proved; `facts` are the invariant's."""

    margin: float | None
    reason: str | None = None
    facts: dict[str, object] | None = None


class OfAnyNumbers(Protocol):
    """A part of a step, in numbers of any kind."""

    def __call__(self, on: CellNumbers[X], x: X, /) -> X: ...


@dataclass(frozen=True)
class Thermometer:
    """2KC + 1 tanh units: u_i1..u_iC and v_i1..v_iC of each type, then s; rounded as `at` says, None for not."""

    net: Network
    K: int
    C: int
    at: RoundedArithmetic | None

    def prove(self) -> BlockProof:
        """Tries boxes of signs until one is invariant; no rounded number of a proof is left out."""
        proof = BlockProof(None, "no boxes were tried")
        for least in SIGNS:
            proof = self._with(least)
            if proof.reason is None:
                break
        return proof

    def _with(self, least: float) -> BlockProof:
        """The boxes [least, R] and [-R, -least] of signs, and [2 - R, R] of s."""
        R = 1 + (8 * self.at.stored.u if self.at is not None else 0.0) + 2.0**-20
        K, C, N = self.K, self.C, 2 * self.K * self.C + 1
        wide = np.full(N, R)

        def box(i: int, count: int, is_read: bool) -> tuple[Array, Array]:
            """Ends of the units of type i with this count, and of s; all other units anywhere in their range."""
            low, high = -wide, wide.copy()
            signs = np.concatenate([np.arange(1, C + 1) <= count, (np.arange(1, C + 1) == count) & is_read])
            own = slice(2 * C * i, 2 * C * (i + 1))
            low[own], high[own] = np.where(signs, least, -R), np.where(signs, R, -least)
            low[-1] = 2 - R
            return low, high

        cases = [(i, c) for i in range(K) for c in range(C + 1)]
        low, high = (np.stack(ends) for ends in zip(*(box(i, c, False) for i, c in cases), strict=True))
        for row, (i, _) in enumerate(cases):
            v = slice(2 * C * i + C, 2 * C * (i + 1))
            low[row, v], high[row, v] = -R, R  # the token before left anything there
        start = np.zeros((1, N))
        for token in range(K):
            first, ends = self._step(start, start, token), self._step(low, high, token)
            for i in range(K):
                is_read = i == token
                if not self._inside(first, 0, i, box(i, int(is_read), is_read)):
                    return BlockProof(
                        None, f"the first token {token} may leave the units of type {i} outside their box"
                    )
            for row, (i, c) in enumerate(cases):
                is_read = i == token and c < C
                if not self._inside(ends, row, i, box(i, c + is_read, is_read)):
                    return BlockProof(None, f"with count {c} of type {i}, token {token} may lead out of the boxes")
        margin = self._margin(box, least)
        if not margin > 0:
            return BlockProof(None, "the boxes are invariant, and do not separate the logits")
        return BlockProof(margin, None, {"least_sign": least, "cases": K * len(cases)})

    def _margin(self, box: Callable[[int, int, bool], tuple[Array, Array]], least: float) -> float:
        """A bound on the margins after the n-th token of a type, the v of all other types being negative."""
        K, C = self.K, self.C
        read = [(i, n) for i in range(K) for n in range(1, C + 1)]
        low, high = (np.stack(ends) for ends in zip(*(box(i, n, True) for i, n in read), strict=True))
        for row, (i, _) in enumerate(read):
            for k in range(K):
                if k != i:
                    high[row, 2 * C * k + C : 2 * C * (k + 1)] = -least
        V, b = self.net.V, self.net.b
        below, above = self._computed(lambda on, x: on.linear(V, x, b, nonzeros(V, b)), low, high)
        rows, right = np.arange(len(read)), np.array([n for _, n in read])
        others = above.copy()
        others[rows, right] = -np.inf
        return float(np.nextafter(below[rows, right] - others.max(-1), -np.inf).min())

    def _step(self, low: Array, high: Array, token: int) -> tuple[Array, Array]:
        layer, given = self.net.layers[0], self.net.tokens[token]
        n = layer.terms
        below, above = self._computed(
            lambda on, x: on.whole(
                on.linear(layer.W_x, given, layer.b_x, n), on.linear(layer.W_h, x, layer.b_h, n)
            ),
            low, high,
        )  # fmt: skip
        return self._tanh(below, above)

    def _tanh(self, below: Array, above: Array) -> tuple[Array, Array]:
        """The ends of tanh as it is computed, which is increasing but for its own rounding, largest at an end."""
        if self.at is None:
            return tanh(Ball.exact(below)).lower, tanh(Ball.exact(above)).upper
        on, zero = Roundings(self.at), np.zeros_like(below)
        ends = [on.tanh(Off(Ball.exact(x), zero)) for x in (below, above)]
        error = np.maximum(ends[0].error, ends[1].error)
        return (
            np.nextafter(ends[0].value.lower - error, -np.inf),
            np.nextafter(ends[1].value.upper + error, np.inf),
        )

    def _computed(self, run: OfAnyNumbers, low: Array, high: Array) -> tuple[Array, Array]:
        """The ends of all computed results over boxes of states."""
        box = Ball.between(low, high)
        if self.at is None:
            exact: Ball = run(Balls(), box)
            return exact.lower, exact.upper
        off: Off = run(Roundings(self.at), Off(box, np.zeros_like(low)))
        return np.nextafter(off.value.lower - off.error, -np.inf), np.nextafter(off.value.upper + off.error, np.inf)

    def _inside(self, ends: tuple[Array, Array], row: int, i: int, target: tuple[Array, Array]) -> bool:
        """Whether the units of type i, and s, are in the target; NaN is not."""
        own = np.r_[2 * self.C * i : 2 * self.C * (i + 1), 2 * self.K * self.C]
        return bool((ends[0][row, own] >= target[0][own]).all() and (ends[1][row, own] <= target[1][own]).all())


@dataclass(frozen=True)
class Rings:
    """ReLU units in K blocks of one size that do not see each other, all numbers integers; p bits hold them.

    What is judged are all counts modulo m, or without m those up to C, in all strings of up to `length` (None: all).
    """

    net: Network
    K: int
    m: int | None
    p: int
    C: int | None = None
    length: int | None = None

    @property
    def judged(self) -> range:
        """Counts less 1, modulo m, that are judged."""
        return range(self.m if self.m is not None else self.C or 0)

    def _right(self, a: int) -> int:
        """The class of a count less 1."""
        return a if self.m is not None else a + 1

    def _counted(self, a: int) -> int:
        """The count less 1 after one more token of this type; C for all that are not judged."""
        return (a + 1) % self.m if self.m is not None else min(a + 1, self.C or 0)

    def prove(self) -> BlockProof:
        """Finds all states of each block, and adds the worst of each."""
        layer, K = self.net.layers[0], self.K
        numbers = (layer.W_x, layer.W_h, layer.b_x, layer.b_h, self.net.V, self.net.b)
        if any(not (x == np.round(x)).all() or np.abs(x).max() > LARGEST for x in numbers):
            return BlockProof(None, "the numbers are not all integers, and no other proof is known")
        if self.net.hidden % K:
            return BlockProof(None, f"{self.net.hidden} units are not {K} blocks of one size")
        block = np.arange(self.net.hidden) // (self.net.hidden // K)
        if layer.W_h[block[:, None] != block[None, :]].any():
            return BlockProof(None, "the units of different types see each other, and no proof is known")
        found = [self._reached(i, block == i) for i in range(K)]
        if any(reached is None for reached in found):
            return BlockProof(None, "the states are too many or too large to be followed")
        reached = [x for x in found if x is not None]
        largest = [np.abs(np.array([h for h, _, _ in r])).max(0) for r in reached]
        size = np.abs(self.net.V) @ np.concatenate(largest) + np.abs(self.net.b)
        if size.max() > 2.0**self.p:
            return BlockProof(None, f"a sum of logits may exceed the integers that {self.p} bits hold")
        after = [[_after(states, x) for x in range(K)] for states in reached]
        margin = min(
            self._least(after, i, a, j)
            for i in range(K)
            for a in self.judged
            for j in range(len(self.net.b))
            if self._right(a) != j
        )
        if not margin > 0:
            return BlockProof(None, "the blocks' states do not separate the logits")
        return BlockProof(float(margin), None, {"states": sum(len(r) for r in reached)})

    def _reached(self, i: int, own: np.ndarray) -> set[Reached] | None:
        """States of a block after one token or more, with the count's class and the last token; None beyond limits."""
        layer = self.net.layers[0]
        W, W_x, b = layer.W_h[np.ix_(own, own)], layer.W_x[own], layer.b_x[own] + layer.b_h[own]
        sizes = np.abs(W), (np.abs(layer.W_x).max(1) + np.abs(layer.b_x) + np.abs(layer.b_h))[own]
        queue: list[tuple[tuple[int, ...], int]] = [((0,) * len(W), -1)]
        seen, reached, lengths = set(queue), set[Reached](), {queue[0]: 0}
        for h, a in queue:  # in the order of the shortest strings that lead there
            n = lengths[h, a]
            if self.length is not None and n >= self.length:
                break
            state = np.array(h, dtype=float)
            if (sizes[0] @ state + sizes[1]).max() > 2.0 ** min(self.p, 50):
                return None  # a partial sum may be rounded
            for token in range(self.K):
                after = np.maximum(W @ state + W_x[:, token] + b, 0)
                key = tuple(int(x) for x in after), self._counted(a) if token == i else a
                reached.add((*key, token))
                if key not in seen:
                    seen.add(key)
                    queue.append(key)
                    lengths[key] = n + 1
            if len(seen) > MOST_STATES:
                return None
        return reached

    def _least(self, after: list[list[tuple[Array, Array]]], i: int, a: int, j: int) -> float:
        """The least gap over logit j where the last token is of type i, and its count less 1 is a; inf if never."""
        right, size = self._right(a), self.net.hidden // self.K
        d, total = self.net.V[right] - self.net.V[j], float(self.net.b[right] - self.net.b[j])
        for k in range(self.K):
            states, counts = after[k][i]
            if k == i:
                states = states[counts == a]
            total += float((states @ d[k * size : (k + 1) * size]).min(initial=np.inf))
        return total


def _after(states: set[Reached], token: int) -> tuple[Array, Array]:
    """The states that this token may lead to, and the counts."""
    found = [(h, c) for h, c, x in states if x == token]
    size = len(next(iter(states))[0])
    return np.array([h for h, _ in found], dtype=float).reshape(-1, size), np.array([c for _, c in found])
