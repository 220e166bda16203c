"""Units that add at their type's tokens and hold at others, on all strings: LSTMs that see no state, gated decays.

What is kept and added depends on the token alone, so a unit is c' = f(x) c + a(x), and what it is after n own tokens
and T others lies between two numbers that are known. In real arithmetic f < 1, so that every length has its own answer;
where a kernel computes f = 1, holding is exact, and the answer is one for all lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from flint import arb, ctx

from constructions.model_arrays import name_of
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.formats import FORMATS
from verify.tasks.recurrent.enclosures import Off, Roundings, least_margins
from verify.tasks.recurrent.gated import in_balls
from verify.tasks.recurrent.kinds import is_gated, is_residual, stored
from verify.tasks.recurrent.network import Network, nonzeros

if TYPE_CHECKING:
    import torch

    from verify.tasks.recurrent.kinds import AnyModel, OneReadout

BITS = 400
LONGEST = 1 << 64


class WrongString(NamedTuple):
    """n - 1 tokens of `own`, then `others` of `other`, then one of `own`, whose answer is wrong."""

    own: int
    n: int
    other: int
    others: int
    predicted: int
    margin: float

    @property
    def length(self) -> int:
        return self.n + self.others


def fits(model: AnyModel) -> bool:
    """Whether it is of this shape: one unit for each one-hot token, in an LSTM no recurrent weights, and no neurons."""
    is_wide, numbers = model.hidden == model.inputs > 1, stored(model)
    if is_gated(model):
        return is_wide and "layer.W" not in numbers
    if is_residual(model) or model.kind != "lstm" or model.layers != 1 or model.types is not None:
        return False
    return is_wide and not numbers["cell.weight_hh_l0"].any()


@dataclass(frozen=True)
class Gates:
    """Balls [unit][token] of what one step keeps and shows, and what each unit adds at its own token."""

    add: list[arb]
    keep: list[list[arb]]
    show: list[list[arb]]
    squash: Callable[[arb], arb] = arb.tanh

    @classmethod
    def of_gated(cls, model: AnyModel) -> Gates | None:
        """None where a unit adds or is read at another type's token, or may lose its sign."""
        keep, add, read = in_balls(model)
        K, d = len(keep), len(keep[0])
        if d != K or any(not (add[k][k] > 0 and read[k][k] > 0) for k in range(K)):
            return None
        if any(not (add[x][k] == 0 and read[x][k] == 0) for x in range(K) for k in range(K) if x != k):
            return None
        kept, shown = ([[table[x][k] for x in range(K)] for k in range(K)] for table in (keep, read))
        return cls([add[k][k] for k in range(K)], kept, shown, lambda x: x)

    @classmethod
    def of(cls, net: Network) -> Gates | None:
        """None where a unit adds at another type's token, or may lose its sign."""
        layer, K = net.layers[0], net.hidden
        a = [[arb(layer.b_x[r]) + arb(layer.b_h[r]) + arb(layer.W_x[r, t]) for t in range(K)] for r in range(4 * K)]
        i, f, o = ([[_logistic(x) for x in row] for row in a[k * K : (k + 1) * K]] for k in (0, 1, 3))
        g = [[x.tanh() for x in row] for row in a[2 * K : 3 * K]]
        if any(not (g[k][t] > 0 if k == t else g[k][t] == 0) for k in range(K) for t in range(K)):
            return None
        return cls([i[k][k] * g[k][k] for k in range(K)], f, o)


def _logistic(x: arb) -> arb:
    return 1 / (1 + (-x).exp())


class RealBalls:
    """What can be said in real arithmetic, in balls."""

    def __init__(self, model: AnyModel, C: int) -> None:
        """Raises: ValueError where the network is not of the shape that is decided."""
        self.K, self.C = model.hidden, C
        numbers = stored(model)
        self.V = [[arb(x) for x in row] for row in numbers["readout.weight"].tolist()]
        self.b = [arb(x) for x in numbers["readout.bias"].tolist()]
        gates = Gates.of_gated(model) if is_gated(model) else Gates.of(Network.of(model))
        if gates is None:
            raise ValueError("a unit does not add at the tokens of its type alone")
        self.gates = gates

    def state(self, i: int, n: int, other: int, others: int) -> arb:
        """c_i after n - 1 own tokens, so many others, and one own."""
        keep, add, c = self.gates.keep[i][i], self.gates.add[i], arb(0)
        for _ in range(n - 1):
            c = keep * c + add
        return keep * self.gates.keep[i][other] ** others * c + add

    def fading(self, i: int) -> int:
        """The token of another type at which unit i loses most: one at which that is not known, if there is one."""
        least = [x.lower() if x.is_finite() else arb("-inf") for x in self.gates.keep[i]]
        return min((t for t in range(self.K) if t != i), key=least.__getitem__)

    def margin(self, i: int, n: int, shown: arb, leak: list[arb]) -> tuple[arb, int]:
        """(logit n) - (largest other) where h_i is `shown`, and the others within [0, leak]; and which other."""
        found = []
        for j in range(len(self.b)):
            if j != n:
                d = [x - y for x, y in zip(self.V[n], self.V[j], strict=True)]
                rest = sum((d[k] * arb(0).union(leak[k]) for k in range(self.K) if k != i), arb(0))
                found.append((d[i] * shown + rest + self.b[n] - self.b[j], j))
        return min(found, key=lambda pair: float_below(pair[0]))

    def holds(self, length: int) -> float | None:
        """A margin of every judged answer in all strings up to a length, None where none above 0 is shown."""
        least = float("inf")
        for i in range(self.K):
            other, show = self.fading(i), self.gates.show
            leak = [show[k][i] for k in range(self.K)]
            for n in range(1, min(self.C, length) + 1):
                low, high = self.state(i, n, other, length - n), self.state(i, n, other, 0)
                squash = self.gates.squash
                shown = show[i][i] * squash(low).union(squash(high))
                least = min(least, float_below(self.margin(i, n, shown, leak)[0]))
                if not least > 0:
                    return None
        return least

    def longest(self) -> int:
        """The largest length that is shown to be right, 0 if none; no more than LONGEST."""
        low, high = 0, LONGEST
        while high - low > 1:
            middle = (low + high) // 2 if high < LONGEST or low else 1 << 20
            middle = max(low + 1, min(middle, high - 1))
            low, high = (middle, high) if self.holds(middle) is not None else (low, middle)
        return low

    def wrong(self, least: int) -> WrongString | None:
        """The shortest wrong string of the shape of `Wrong`, not shorter than `least`."""
        best: WrongString | None = None
        for i in range(self.K):
            for n in range(2, self.C + 1):
                found = self._first(i, n, max(0, least - n), LONGEST if best is None else best.length - n)
                best = found if found is not None else best
        return best

    def _first(self, i: int, n: int, low: int, most: int) -> WrongString | None:
        """With the fewest tokens of the other type between `low` and `most`, where less than the most are needed."""
        if most <= low or self._at(i, n, most - 1) is None:
            return None
        high = most - 1
        while high - low > 0:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._at(i, n, middle) is None else (low, middle)
        return self._at(i, n, high)

    def _at(self, i: int, n: int, others: int) -> WrongString | None:
        """Whether that string is wrong: the other type's unit is c, all further ones are 0."""
        other = self.fading(i)
        c = arb(0)
        if others:
            keep = self.gates.keep[other][other]
            kept = (1 - keep**others) / (1 - keep) if keep < 1 else (keep**others * others).union(arb(others))
            c = self.gates.add[other] * kept
        hidden = self.gates.show[other][i] * self.gates.squash(c * self.gates.keep[other][i])
        shown = self.gates.show[i][i] * self.gates.squash(self.state(i, n, other, others))
        worst: tuple[arb, int] | None = None
        for j in range(len(self.b)):
            if j != n:
                d = [x - y for x, y in zip(self.V[n], self.V[j], strict=True)]
                value = d[i] * shown + d[other] * hidden + self.b[n] - self.b[j]
                if worst is None or float(value.upper()) < float(worst[0].upper()):
                    worst = (value, j)
        assert worst is not None
        top = float_above(worst[0])
        return WrongString(i, n, other, others, worst[1], top) if worst[0] < 0 else None


def decide_real(model: AnyModel, C: int, length: int | None) -> tuple[float | None, int, WrongString | None]:
    """A margin up to the length, or the largest length that is proved and a wrong string not shorter than it."""
    with ctx.workprec(BITS):
        real = RealBalls(model, C)
        if length is not None:
            margin = real.holds(length)
            if margin is not None:
                return margin, length, None
        right = real.longest()
        wrong = real.wrong(right + 1)
        return None, right, wrong if wrong is not None and (length is None or wrong.length <= length) else None


@dataclass(frozen=True)
class BitByBit:
    """torch's own cell, one token at a time: each unit's numbers after 0..C own tokens, as they are computed."""

    model: OneReadout
    C: int

    def prove(self) -> tuple[float | None, str | None]:
        """A margin of every judged answer of every string of every length, or why there is none.

        Each unit is added, multiplied and rounded on its own, so that one run of all units at the same count says what
        each does at that count, whatever the others are. Beyond C a unit is anything up to `_largest`, which it must
        hold too, so that it shows no more than it then does.
        """
        import torch

        K, C, dtype = self.model.hidden, self.C, self.model.dtype
        full = self._largest()
        if full is None:
            return None, "a unit may overflow"
        counts = [torch.zeros(K, dtype=dtype)]
        for _ in range(C):
            now = counts[-1]
            counts.append(torch.stack([self._step(now, x)[0][x] for x in range(K)]))
        shown, least = np.zeros((C + 1, K)), float("inf")
        for n, c in enumerate((*counts[:-1], full)):
            for x in range(K):
                after, h = self._step(c, x)
                is_other = torch.arange(K) != x
                if not torch.equal(after[is_other], c[is_other]):
                    return None, f"a unit changes at another type's token after {n if n < C else 'many'} own tokens"
                if n < C:
                    shown[n + 1, x] = float(h[x])
        for x in range(K):
            margin = self._margin(x, shown[:, x], full)
            if not margin > 0:
                return None, "the logits are not separated in every order of their sums"
            least = min(least, margin)
        return least, None

    def _largest(self) -> torch.Tensor | None:
        """A number that no unit exceeds; None where one may overflow.

        What is added is at most a, in an LSTM 1. Nothing is kept more than whole, so that a sum only grows while a is
        at least half a unit in its last place: it stays below 2^(p+1) a + a, and rounds to no more than 2^(p+2) a.
        """
        import torch

        from constructions.recurrent.gated import GatedModel

        fmt, most, read = FORMATS[name_of(self.model.dtype)], 1.0, 1.0
        if isinstance(self.model, GatedModel):
            _, most, read = (float(table.abs().max()) for table in self.model.cell.tables())
        size = most * 2.0 ** (fmt.p + 2)
        is_safe = size * max(read, 1.0) < fmt.largest
        return torch.full((self.model.hidden,), size, dtype=self.model.dtype) if is_safe else None

    def _step(self, c: torch.Tensor, x: int) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        from constructions.recurrent.gated import GatedModel

        with torch.no_grad():
            if isinstance(self.model, GatedModel):
                after, h = self.model.step(c[None], torch.tensor([x]))
                return after[0], h[0]
            state = (torch.zeros(1, 1, len(c), dtype=c.dtype), c[None, None].clone())
            _, (h, after) = self.model.cell(self.model.embed(torch.tensor([[x]])), state)
        return after[0, 0], h[0, 0]

    def _margin(self, x: int, shown: np.ndarray, full: torch.Tensor) -> float:
        """The least margin after 1..C tokens of type x, all other h being at most what they show of `full`."""
        C = self.C
        V, b = (p.double().numpy() for p in (self.model.readout.weight, self.model.readout.bias))
        h = self._step(full, x)[1].double().abs().numpy()
        low, high = np.tile(-h, (C, 1)), np.tile(h, (C, 1))
        low[:, x] = high[:, x] = shown[1:]
        box = Ball.between(low, high)
        on = Roundings(RoundedArithmetic.of(FORMATS[name_of(self.model.dtype)]))
        off = on.linear(V, Off(box, np.zeros_like(low)), b, nonzeros(V, b)).error
        return float(least_margins(V, b, box, np.arange(1, C + 1), off).min())
