"""Gated decays, with neurons after them or without, on all strings up to a length: states between two numbers.

For each type t, strings are told apart by how often t was read and by their length alone. What a token keeps and adds
is known, so that for each such pair every state lies between two numbers, and one step leads from pair to pair: t
itself to one more, any other token to the same count. After the n-th token t of strings of all lengths, the right class
must win. There most neurons are surely on or surely off, and the gap over another class is linear in the states but for
those that may be either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from flint import ctx

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, relu, stacked
from verify.arithmetic.slack import ENLARGE_LONG, Array
from verify.counting.tasks import Task
from verify.frame.clock import Deadline
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.enclosures import Balls, Off, Roundings
from verify.tasks.recurrent.gated import BITS, EXACTLY, RoundedTables, in_balls, stored_in
from verify.tasks.recurrent.kinds import stored
from verify.tasks.recurrent.network import BallVector, nonzeros

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

MOST_NUMBERS = 1 << 22  # states of all types and counts at one length
AT_A_TIME = 1 << 21  # differences of rows of the readout

Ends = tuple[Array, Array]


@dataclass(frozen=True)
class CountedStrings:
    """A network on a selective task in all strings of up to a length; computed as `at` says, None for real arithmetic.

    Shapes: keep, add, read (K, d), whose balls hold all that they may be computed as; W (p, d), U (K, p), which are
    the identity and None without neurons; V (classes, p).
    """

    keep: Ball
    add: Ball
    read: Ball
    W: Array
    U: Array | None
    V: Array
    b: Array
    task: Task
    at: RoundedArithmetic | None

    @classmethod
    def of(cls, model: AnyModel, task: Task, at: RoundedArithmetic | None) -> CountedStrings:
        """Raises: BadInput for weights that are not finite, or overflow in the format."""
        held = model if at is None else stored_in(model, at.stored)
        with ctx.workprec(BITS):
            tables = in_balls(held, EXACTLY if at is None else RoundedTables(at))
            rows = [[BallVector.of(row) for row in table] for table in tables]
        keep, add, read = (Balls().known(BallVector((), stacked(*(x.near for x in table)))) for table in rows)
        state = stored(held)
        W, U = state.get("layer.W", np.eye(model.hidden)), state.get("layer.U")
        return cls(keep, add, read, W, U, state["readout.weight"], state["readout.bias"], task, at)

    @property
    def K(self) -> int:
        return len(self.keep.mid)

    @cached_property
    def _roundings(self) -> Roundings | None:
        return None if self.at is None else Roundings(self.at)

    def prove(self, length: int, until: Deadline) -> BlockProof:
        """A margin of every judged answer in all strings of up to so many tokens."""
        most = length if self.task.C is None else min(length, self.task.C)
        size = self.K * (most + 1) * self.keep.mid.shape[1]
        if self.K < 2 or size > MOST_NUMBERS:
            return BlockProof(None, f"{self.K} types with {size} states at one length are not followed")
        reached = self._reached(length, most, until)
        if reached is None:
            return BlockProof(None, "time is up, or states grow without bound")
        token, n = (index.ravel() for index in np.indices(reached[0].shape[:2]))
        low, high = (end.reshape(len(token), -1) for end in reached)
        right = np.array([self.task.class_of(int(count) + 1) for count in n])
        each, least = max(1, AT_A_TIME // self.V.size), float("inf")
        for k in range(0, len(token), each):
            part = slice(k, k + each)
            found = self._margins((low[part], high[part]), token[part], right[part])
            least = min(least, float(np.where(np.isnan(found), -np.inf, found).min()))
            if not least > 0 or until.is_up():
                return BlockProof(None, "what states may be does not separate the logits, or time is up")
        return BlockProof(least, None, {"cases": len(token)})

    def longest(self, length: int, until: Deadline) -> int:
        """The largest length below `length` that is proved in time, doubled first and then bisected; 0 for none."""
        low, high = 0, length
        while high - low > 1:
            middle = min(2 * low + 1, high - 1) if high == length else (low + high) // 2
            if self.prove(middle, until).reason is None:
                low = middle
            elif until.is_up():
                break
            else:
                high = middle
        return low

    def _reached(self, length: int, most: int, until: Deadline) -> Ends | None:
        """The ends (K, most, d) of all states after the n-th token t, n = 1..most, in strings of up to `length`."""
        own = self._tables(lambda table: (table.lower, table.upper))
        other = self._tables(self._of_others)
        low, high = np.zeros((2, self.K, 1, self.keep.mid.shape[1]))
        shape = (self.K, most, self.keep.mid.shape[1])
        seen_low, seen_high = np.full(shape, np.inf), np.full(shape, -np.inf)
        for _ in range(length):
            n = min(low.shape[1], most)  # one token more is judged after at most this count less 1
            counted, kept = self._step((low[:, :n], high[:, :n]), own), self._step((low, high), other)
            seen_low[:, :n] = np.minimum(seen_low[:, :n], counted[0])
            seen_high[:, :n] = np.maximum(seen_high[:, :n], counted[1])
            low, high = _joined(kept, counted, most)
            if until.is_up() or not (np.isfinite(low).all() and np.isfinite(high).all()):
                return None
        return seen_low, seen_high

    def _tables(self, ends: Callable[[Ball], Ends]) -> tuple[Ball, Ball]:
        """What is kept and added (K, 1, d)."""
        keep, add = (Ball.between(*ends(table)) for table in (self.keep, self.add))
        return keep[:, None, :], add[:, None, :]

    def _of_others(self, table: Ball) -> Ends:
        """The ends of a table over all tokens but t, for each t."""
        rows = [np.arange(self.K) != t for t in range(self.K)]
        return np.stack([table.lower[r].min(0) for r in rows]), np.stack([table.upper[r].max(0) for r in rows])

    def _step(self, ends: Ends, tables: tuple[Ball, Ball]) -> Ends:
        """The ends of all computed states keep h + add."""
        on, h = self._roundings, Ball.between(*ends)
        if on is None:
            after = Balls().add(Balls().multiply(tables[0], h), tables[1])
            return after.lower, after.upper
        keep, add, state = (Off(x, np.zeros_like(x.mid)) for x in (*tables, h))
        off = on.add(on.multiply(keep, state), add)
        return np.nextafter(off.value.lower - off.error, -np.inf), np.nextafter(off.value.upper + off.error, np.inf)

    def _margins(self, ends: Ends, token: np.ndarray, right: np.ndarray) -> Array:
        """A lower bound on (right logit) - (largest other) of each case (S,), whose last token is given."""
        rows, h, read = np.arange(len(right)), Ball.between(*ends), self.read[token]
        y, z, z_error, is_on = self._neurons(read, h, token)
        is_open = ~is_on & (z.magnitude > 0)
        d = Ball.exact(self.V[right])[:, None, :] - Ball.exact(self.V)
        line = _only(d, is_on)
        gap = (line @ Ball.exact(self.W)) @ y[..., None]
        if self.U is not None:
            gap = gap + line @ Ball.exact(self.U[token])[..., None]
        gap = gap + _only(d, is_open) @ z[..., None]
        low = (gap[..., 0] + (Ball.exact(self.b[right])[:, None] - Ball.exact(self.b))).lower
        if self._roundings is not None:
            may = (z.magnitude + z_error > 0)[:, None, :] & (self.V != 0)
            off = self._roundings.linear(self.V, Off(z, z_error), self.b, may.sum(-1) + (self.b != 0)).error
            low = np.nextafter(low - (off[rows, right][:, None] + off) * ENLARGE_LONG, -np.inf)
        low[rows, right] = np.inf
        result: Array = low.min(-1)
        return result

    def _neurons(self, read: Ball, h: Ball, token: np.ndarray) -> tuple[Ball, Ball, Array, np.ndarray]:
        """y = read h of all computed h, the exact neurons of it, how far computed ones may be off, and which are on.

        A neuron that is not on, and whose ball is 0, is off.
        """
        exact, error = Balls().multiply(read, h), np.zeros_like(h.mid)
        if self._roundings is not None:
            read_off, h_off = (Off(x, error) for x in (read, h))
            error = self._roundings.multiply(read_off, h_off).error
        if self.U is None:
            return exact, exact, error, np.ones_like(error, dtype=bool)
        U = self.U[token]
        terms = nonzeros(self.W, U)
        a = Balls().linear(self.W, exact, U, terms)
        a_error = np.zeros_like(a.mid)
        if self._roundings is not None:
            a_error = self._roundings.linear(self.W, Off(exact, error), U, terms).error
        is_zero = a.upper + a_error * ENLARGE_LONG <= 0
        return exact, relu(a), np.where(is_zero, 0.0, a_error), a.lower > 0


def _only(x: Ball, is_kept: np.ndarray) -> Ball:
    """The entries of (S, classes, p) where `is_kept` (S, p), and 0 elsewhere."""
    return Ball(*(np.where(is_kept[:, None, :], part, 0.0) for part in (x.mid, x.rad)))


def _joined(kept: Ends, counted: Ends, most: int) -> Ends:
    """The ends for counts 0, 1, ...: of the same count before another token, and of one less before an own one."""
    K, n, d = kept[0].shape
    shape = (K, min(n, most) + 1, d)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    low[:, :n], high[:, :n] = kept
    low[:, 1:], high[:, 1:] = np.minimum(low[:, 1:], counted[0]), np.maximum(high[:, 1:], counted[1])
    return low, high
