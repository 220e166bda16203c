"""Block invariants: whatever was read, the units of each type stay where the count of that type says.

The units of type i are treated on their own; those of the other types may be anything in their range at each step. So
K (C + 1) K steps decide all strings of all lengths, by induction over the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from verify.arithmetic.slack import Array
from verify.tasks.recurrent.network import Network

MOST_STATES = 10_000  # of one type's units
LARGEST = 1 << 20  # of integers that are followed


Reached = tuple[tuple[int, ...], int, int]  # a block's state, (its count - 1) mod m, and the last token


class BlockProof(NamedTuple):
    """A margin that every judged answer has, or the reason why nothing is proved; `facts` are the invariant's."""

    margin: float | None
    reason: str | None = None
    facts: dict[str, object] | None = None


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
