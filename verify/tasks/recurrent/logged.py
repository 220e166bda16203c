"""Keeps every number of a run, so that others can ask of each one whether it may be computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from verify.arithmetic.slack import Array
from verify.tasks.recurrent.network import BallVector, CellNumbers, Network, State, X, step

MOST_NUMBERS = 100_000
KINDS = ("rnn", "gru", "lstm")


@dataclass(frozen=True)
class Pending:
    """A sum that other terms may still join."""

    of: Any


@dataclass(frozen=True)
class Factor:
    """By which values of a function are multiplied at once, where an evaluation computes them low or high."""

    of: Any


class Blending(CellNumbers[Any], Protocol):
    """Numbers whose blend is made by other operations, where they are given."""

    def blend(self, z: Any, n: Any, h: Any, on: Any = None) -> Any: ...


class Logged:
    """The operations of a run, which keeps what each of them returns: `rows` has the numbers of every step.

    `value` is what a sum is when nothing more joins it. A run is logged by running it again, once it is worth it.
    """

    def __init__(self, net: Network, on: Blending, value: Callable[[Any], Any], steps: int) -> None:
        self._net, self._on, self._value, self._steps, self._numbers = net, on, value, steps, 0
        self.rows = list[list[float]]()

    @property
    def is_vain(self) -> bool:
        """Whether the numbers of all steps are too many, or of a network whose runs nobody reads."""
        is_read = self._net.kind in KINDS and self._net.activation != "none"
        return not is_read or self._numbers * self._steps > MOST_NUMBERS * len(self.rows)

    def step(self, state: State[X], token: int) -> State[X]:
        """The state after one more token."""
        self.rows.append([])
        return [self.plain(x) for x in step(self._net, state, token, self)]

    def numbers(self, logits: list[float]) -> dict[str, object] | None:
        """All of the run, and the logits after its last step; None where one is not finite."""
        is_finite = all(map(math.isfinite, chain(logits, *self.rows)))
        return {"numbers": self.rows, "logits": logits} if is_finite else None

    def noted(self, x: Any) -> Any:
        self.rows[-1] += [float(v) for v in x]
        self._numbers += len(x)
        return x

    def plain(self, x: Any) -> Any:
        """A vector, which a pending sum becomes."""
        return self.noted(self._value(x.of)) if isinstance(x, Pending) else x

    def linear(self, W: Array, x: Any, b: Array, terms: Array | None = None) -> Pending:
        return Pending(self._on.linear(W, self.plain(x), b, terms))  # type: ignore[arg-type]

    def known(self, x: BallVector) -> Factor:
        return Factor(self._on.known(x))

    def whole(self, x: Pending, y: Pending) -> Pending:
        return Pending(self._on.whole(x.of, y.of))

    def cut(self, x: Any, start: int, stop: int) -> Any:
        return Pending(self._on.cut(x.of, start, stop)) if isinstance(x, Pending) else self._on.cut(x, start, stop)

    def add(self, x: Any, y: Any) -> Any:
        x, y = self.plain(x), self.plain(y)
        return self.noted(self._on.add(x, y))

    def multiply(self, x: Any, y: Any) -> Any:
        """Of a function's values and a factor only the products are kept: they are the function as it is computed."""
        if isinstance(x, Factor):
            del self.rows[-1][-len(y) :]
            self._numbers -= len(y)
            return self.noted(self._on.multiply(x.of, y))
        x, y = self.plain(x), self.plain(y)
        return self.noted(self._on.multiply(x, y))

    def blend(self, z: Any, n: Any, h: Any) -> Any:
        return self._on.blend(z, n, h, self)

    def tanh(self, x: Any) -> Any:
        return self.noted(self._on.tanh(self.plain(x)))

    def sigmoid(self, x: Any) -> Any:
        return self.noted(self._on.sigmoid(self.plain(x)))

    def relu(self, x: Any) -> Any:
        return self.noted(self._on.relu(self.plain(x)))
