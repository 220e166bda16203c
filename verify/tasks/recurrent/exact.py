"""Networks whose steps are rational, linear ones and ReLUs: in fractions until a state comes again or is steady."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpq, fmpq_mat

from verify.arithmetic.margins import own_and_rival
from verify.arithmetic.outward import float_at_least, float_at_most
from verify.arithmetic.stored import matrix
from verify.frame.clock import Budget
from verify.tasks.recurrent.kinds import has_cells, is_linear, stored
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion
from verify.tasks.recurrent.steady import MOST_POWER, Steady, Until, kept

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

MOST_BITS = 1 << 12  # of a number of the state: beyond it exact runs are too slow
MOST_REPEATS = 100_000
MOST_TURNS = 4  # multiples of the modulus that are tried as a turn


@dataclass(frozen=True)
class Exact:
    """h' = f(A h + B) for each token, with f the identity or ReLU, and logits V h + b."""

    A: fmpq_mat
    B: list[fmpq_mat]
    V: fmpq_mat
    b: fmpq_mat
    is_relu: bool

    @classmethod
    def of(cls, model: AnyModel) -> Exact:
        """Only for linear models and RNNs with one layer of ReLUs.

        Raises: BadInput for numbers that are not finite.
        """
        w = {name: matrix(x if x.ndim == 2 else x[:, None]) for name, x in stored(model).items()}
        V, b = w["readout.weight"], w["readout.bias"]
        if is_linear(model):
            return cls(w["cell.A"], [w["cell.B"]], V, b, False)
        given, W_x = w["cell.bias_ih_l0"] + w["cell.bias_hh_l0"], w["cell.weight_ih_l0"]
        tokens = stored(model).get("embedding.weight", np.eye(model.inputs))
        inputs = [W_x * matrix(row[:, None]) + given for row in tokens]
        return cls(w["cell.weight_hh_l0"], inputs, V, b, True)

    def read(self, h: fmpq_mat, token: int) -> fmpq_mat:
        """What the units read in a step."""
        return self.moved(h) + self.B[token]

    def moved(self, e: fmpq_mat) -> fmpq_mat:
        """By how much that changes where the state changes by e."""
        return self.A * e

    def step(self, h: fmpq_mat, token: int) -> fmpq_mat:
        after = self.read(h, token)
        return after if not self.is_relu else kept(after, [x > 0 for x in after.entries()])

    def logits(self, h: fmpq_mat) -> list[fmpq]:
        return (self.V * h + self.b).entries()

    def shown(self, e: fmpq_mat) -> list[fmpq]:
        """By how much the logits change where the state changes by e."""
        return (self.V * e).entries()


def is_rational(model: AnyModel) -> bool:
    """Whether its steps are rational, so that this file can run it."""
    is_relu = has_cells(model) and model.kind == "rnn" and model.activation == "relu" and model.layers == 1
    return is_linear(model) or is_relu


@dataclass
class Run:
    """The state after t tokens, all of which are answered right, by the margin `least` after `tightest` of them.

    `leaps` are turns that were taken at once: after so many tokens, of so many, and how many turns, None to the end.
    """

    net: Exact
    line: OrbitQuestion
    h: fmpq_mat
    t: int = 0
    least: float = float("inf")
    tightest: int = 0
    leaps: list[tuple[int, int, int | None]] = field(default_factory=list)

    def take(self, low: float, t: int) -> None:
        if low < self.least:
            self.least, self.tightest = low, t

    def step(self) -> OrbitOutcome | None:
        """One token more; what is known, where its answer is wrong."""
        self.h = self.net.step(self.h, self.line.at(self.t))
        self.t += 1
        logits, right = self.net.logits(self.h), self.line.expected(self.t)
        numbered = [(x, j) for j, x in enumerate(logits)]
        (own, _), (best, place) = (
            own_and_rival(numbered, right) if len(logits) > 1 else (numbered[0], (logits[0] - 1, right))
        )
        gap = own - best
        margin = Fraction(int(gap.p), int(gap.q))
        if margin <= 0:
            return self._wrong(min(0.0, float_at_least(margin)), place)
        self.take(float_at_most(margin), self.t)
        return None

    def _wrong(self, by: float, other: int | None) -> OrbitOutcome:
        return OrbitOutcome(self.t - 1, self.least, self.tightest, self.t, by, other, facts=self.facts())

    def facts(self) -> dict[str, object] | None:
        return {"leaps": [{"after": t, "turn": k, "turns": n} for t, k, n in self.leaps]} if self.leaps else None

    def leap(self, length: int | None) -> OrbitOutcome | None:
        """Many turns at once where they change the state steadily; what is known, where that decides it."""
        for turns in range(1, MOST_TURNS + 1):
            k = turns * self.line.period
            if length is not None and self.t + k > length:
                break
            due = [self.line.expected(self.t + 1 + r) for r in range(k)]
            found = Steady.of(self.net, self.h, self.line.token, due)
            until = None if found is None else found.followed()
            if found is not None and until is not None and until.turn != 0:
                return self._leapt(found, until, k, length)
        return None

    def _leapt(self, found: Steady, until: Until, k: int, length: int | None) -> OrbitOutcome | None:
        start, (n, r) = self.t, until.tightest
        self.take(until.least, start + k * n + r + 1)
        last = None if until.turn is None else start + k * until.turn + until.step
        if last is None or (length is not None and last >= length):
            tightest = self.tightest if length is None else min(self.tightest, length)
            self.leaps.append((start, k, None))
            return OrbitOutcome(None, self.least, tightest, turn=k, is_steady=True, facts=self.facts())
        assert until.turn is not None
        if until.is_wrong:
            self.t = last + 1
            self.leaps.append((start, k, None))
            return replace(self._wrong(until.wrong_by, until.other), turn=k, is_steady=True)
        s = found.sum(until.turn) if until.turn < MOST_POWER or found.factor == 1 else None
        if s is not None:
            self.h, self.t = found.x + found.e * s, last
            self.leaps.append((start, k, until.turn))
        return None


def run(model: AnyModel, line: OrbitQuestion, length: int | None, budget: float | Budget) -> OrbitOutcome:
    """Right after each of 1..length tokens, or at every length (None).

    For that a state must come again, or each turn change it steadily.
    """
    net, until = Exact.of(model), Budget.of(budget).deadline()
    on = Run(net, line, fmpq_mat(net.A.nrows(), 1))
    seen = dict[tuple[tuple[str, ...], int], int]()
    settled = max(line.settled + 1, len(line.leading))
    look = settled + line.period
    for _ in range(MOST_REPEATS if length is None else length):
        found = on.step()
        if found is None and length == on.t:
            return OrbitOutcome(None, on.least, on.tightest, facts=on.facts())
        if found is None and on.t >= look:
            look, found = 2 * on.t, on.leap(length)
        if found is not None:
            return found
        entries = on.h.entries()
        if length is None and on.t >= settled:
            key = (tuple(str(x) for x in entries), on.t % line.period)
            if key in seen:
                facts = {"repeats": [seen[key], on.t], **(on.facts() or {})}
                return OrbitOutcome(None, on.least, on.tightest, facts=facts)
            seen[key] = on.t
        if until.is_up() or max(max(int(x.p).bit_length(), int(x.q).bit_length()) for x in entries) > MOST_BITS:
            reason = "time is up" if until.is_up() else "fractions grow too long"
            return OrbitOutcome(on.t, on.least, on.tightest, reason=f"{reason} after {on.t} tokens")
    return OrbitOutcome(on.t, on.least, on.tightest, reason="no state has come again")
