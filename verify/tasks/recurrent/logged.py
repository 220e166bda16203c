"""Keeps every number of a run, so that others can ask of each one whether it may be computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, TypeAlias, cast

import numpy as np

from verify.arithmetic.slack import Array
from verify.tasks.recurrent.network import BallVector, CellNumbers, Network, X, step

MOST_NUMBERS = 100_000
KINDS = ("rnn", "gru", "lstm")


@dataclass(frozen=True)
class Pending(Generic[X]):
    """A sum that other terms may still join."""

    of: X


@dataclass(frozen=True)
class Factor(Generic[X]):
    """By which values of a function are multiplied at once, where an evaluation computes them low or high."""

    of: X


Part: TypeAlias = Pending[X] | Factor[X] | X


class Blending(CellNumbers[X], Protocol[X]):
    """Numbers whose blend is made by other operations, where they are given."""

    def blend(self, z: X, n: X, h: X, on: Logged[X] | None = None) -> X: ...


class Logged(Generic[X]):
    """The operations of a run, which keeps what each of them returns: `rows` has the numbers of every step.

    `value` is what a sum is when nothing more joins it. A run is logged by running it again, once it is worth it.
    """

    def __init__(self, net: Network, on: Blending[X], value: Callable[[X], X], steps: int) -> None:
        self._net, self._on, self._value, self._steps, self._numbers = net, on, value, steps, 0
        self.rows = list[list[float]]()

    @property
    def is_vain(self) -> bool:
        """Whether the numbers of all steps are too many, or of a network whose runs nobody reads."""
        is_read = self._net.kind in KINDS or self._net.W is None  # a run with neurons is not
        return not is_read or self._numbers * self._steps > MOST_NUMBERS * len(self.rows)

    def step(self, state: Sequence[X], token: int) -> list[X]:
        """The state after one more token."""
        self.rows.append([])
        parts: Sequence[Part[X]] = state
        return [self.plain(x) for x in step(self._net, parts, token, self)]

    def numbers(self, logits: list[float]) -> dict[str, object] | None:
        """All of the run, and the logits after its last step; None where one is not finite."""
        is_finite = all(map(math.isfinite, chain(logits, *self.rows)))
        return {"numbers": self.rows, "logits": logits} if is_finite else None

    def noted(self, x: X) -> X:
        """A vector, whose numbers are kept."""
        numbers = [float(v) for v in cast(Iterable[float], x)]
        self.rows[-1] += numbers
        self._numbers += len(numbers)
        return x

    def plain(self, x: Part[X]) -> X:
        """A vector, which a pending sum becomes."""
        assert not isinstance(x, Factor)
        return self.noted(self._value(x.of)) if isinstance(x, Pending) else x

    def linear(self, W: Array, x: Part[X] | Array, b: Array, terms: Array) -> Pending[X]:
        return Pending(self._on.linear(W, x if isinstance(x, np.ndarray) else self.plain(x), b, terms))

    def known(self, x: BallVector) -> Factor[X] | X:
        return Factor(self._on.known(x)) if self._net.kind in KINDS else self.noted(self._on.known(x))

    def whole(self, x: Part[X], y: Part[X]) -> Pending[X]:
        assert isinstance(x, Pending) and isinstance(y, Pending), "sums, which linear gives"
        return Pending(self._on.whole(x.of, y.of))

    def cut(self, x: Part[X], start: int, stop: int) -> Part[X]:
        if isinstance(x, Pending):
            return Pending(self._on.cut(x.of, start, stop))
        return self._on.cut(self.plain(x), start, stop)

    def add(self, x: Part[X], y: Part[X]) -> X:
        return self.noted(self._on.add(self.plain(x), self.plain(y)))

    def multiply(self, x: Part[X], y: Part[X]) -> X:
        """Of a function's values and a factor only the products are kept: they are the function as it is computed."""
        if isinstance(x, Factor):
            found = self._on.multiply(x.of, self.plain(y))
            count = sum(1 for _ in cast(Iterable[float], found))
            del self.rows[-1][-count:]
            self._numbers -= count
            return self.noted(found)
        return self.noted(self._on.multiply(self.plain(x), self.plain(y)))

    def blend(self, z: Part[X], n: Part[X], h: Part[X]) -> X:
        return self._on.blend(self.plain(z), self.plain(n), self.plain(h), self)

    def tanh(self, x: Part[X]) -> X:
        return self.noted(self._on.tanh(self.plain(x)))

    def sigmoid(self, x: Part[X]) -> X:
        return self.noted(self._on.sigmoid(self.plain(x)))

    def relu(self, x: Part[X]) -> X:
        return self.noted(self._on.relu(self.plain(x)))
