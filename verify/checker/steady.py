"""Lines of linear networks and ReLUs whose turns change the state steadily, re-checked in fractions (docs/checker.md).

A turn is k steps from the state x; e is the change it makes, and e_(r+1) is A e_r, with zeros at ReLUs that are off. If
e_k = c e with c > 0, then as long as no ReLU changes its side, the state r steps after n more turns is x_r + s_n e_r,
s_n = 1 + c + .. + c^(n-1): a step maps x_r + s e_r to x_(r+1) + s e_(r+1), and x_k + s_n e_k = x + (1 + c s_n) e. So
margins, and what ReLUs read, are affine in s_n, which grows from 0: they are least at an end. Where c < 1, s_n stays
below 1/(1 - c).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flint import arb, fmpq, fmpq_mat

from verify.checker.reading import NOT_CHECKABLE, require

BITS = 4096
MOST_POWER, SHORT_POWER = 1 << 12, 1 << 6  # of a factor that is raised exactly: of a state, and of each number
MOST_TURN = 1000

Due = Callable[[int], int | None]


@dataclass(frozen=True)
class FractionSteps:
    """h' = f(A h + B), f the identity or ReLU, and logits V h + b, in fractions."""

    A: fmpq_mat
    B: fmpq_mat
    V: fmpq_mat
    b: fmpq_mat
    is_relu: bool = False

    def start(self) -> fmpq_mat:
        return fmpq_mat(self.A.nrows(), 1)

    def step(self, h: fmpq_mat) -> fmpq_mat:
        read = self.A * h + self.B
        return kept(read, [x > 0 for x in read.entries()]) if self.is_relu else read

    def gaps(self, h: fmpq_mat, right: int | None) -> dict[int, fmpq]:
        """(right logit) - (logit j) for each other class j."""
        require(right is not None, "a length has no right class")
        logits = (self.V * h + self.b).entries()
        return {j: logits[right or 0] - x for j, x in enumerate(logits) if j != right}


def is_at_least(x: fmpq | arb, y: fmpq | arb) -> bool:
    """Whether x >= y. Raises: Refusal where balls do not tell."""
    require(bool(x >= y) or bool(x < y), f"whether a number is at least {y} does not show", NOT_CHECKABLE)
    return bool(x >= y)


def kept(x: fmpq_mat, is_on: list[bool]) -> fmpq_mat:
    """A vector with zeros where ReLUs are off."""
    return fmpq_mat(x.nrows(), 1, [y if on else fmpq(0) for y, on in zip(x.entries(), is_on, strict=True)])


@dataclass(frozen=True)
class AffineInTurns:
    """c0 + c1 s_n at step r of a turn: a margin over class `other`, or, where that is None, what is never below 0."""

    c0: fmpq
    c1: fmpq
    r: int
    other: int | None = None


class SteadyTurns:
    """The state after t tokens, the change of a turn, its factor, and all that is affine in s_n."""

    def __init__(self, net: FractionSteps, x: fmpq_mat, t: int, k: int, due: Due) -> None:
        self.x, self.t, self.k, self.forms = x, t, k, list[AffineInTurns]()
        states = [x]
        for _ in range(k):
            states.append(net.step(states[-1]))
        self.e = now = states[-1] - x
        for r in range(k):
            read, change = net.A * states[r] + net.B, net.A * now
            if net.is_relu:
                numbers = list(zip(read.entries(), change.entries(), strict=True))
                is_on = [y > 0 or (y == 0 and moved > 0) for y, moved in numbers]
                for on, (y, moved) in zip(is_on, numbers, strict=True):
                    self.forms.append(AffineInTurns(y if on else -y, moved if on else -moved, r))
                change = kept(change, is_on)
            now, right = change, due(t + 1 + r)
            slopes = FractionSteps(net.A, net.B, net.V, 0 * net.b).gaps(now, right)
            self.forms += [AffineInTurns(y, slopes[j], r, j) for j, y in net.gaps(states[r + 1], right).items()]
        factors = {y / x for y, x in zip(now.entries(), self.e.entries(), strict=True) if x != 0}
        self.factor = factors.pop() if factors else fmpq(0)
        is_steady = self.factor > 0 and now == self.e * self.factor
        require(is_steady, f"leaps: turns of {k} tokens after {t} do not change the state steadily")

    def after(self, n: int) -> fmpq_mat:
        """The state after n turns."""
        require(self.factor == 1 or n <= MOST_POWER, "leaps: more turns than a factor is raised to", NOT_CHECKABLE)
        return self.x + self.e * self._sum(n)

    def value(self, form: AffineInTurns, n: int) -> fmpq | arb:
        """A form after n turns: exactly where the fractions are short, else a ball round it."""
        if self.factor == 1 or n <= SHORT_POWER:
            return form.c0 + form.c1 * self._sum(n)
        c = arb(self.factor)
        return arb(form.c0) + arb(form.c1) * ((c**n - 1) / (c - 1))

    def _sum(self, n: int) -> fmpq:
        """s_n."""
        return fmpq(n) if self.factor == 1 else (self.factor**n - 1) / (self.factor - 1)

    def keep_sides(self, tokens: int | None) -> None:
        """For so many tokens more, None for ever, no ReLU changes its side."""
        for form, lowest in self._lowest(tokens):
            kept = form.other is not None or is_at_least(lowest, fmpq(0))
            require(kept, f"leaps: a ReLU changes its side after {self.t + form.r} tokens or more")

    def win(self, tokens: int | None, least: fmpq) -> None:
        """For so many tokens more, None for ever, the right class wins by `least`, and by more than 0."""
        for form, lowest in self._lowest(tokens):
            is_won = form.other is None or is_at_least(lowest, least) and bool(lowest > 0)
            require(is_won, f"leaps: {form.other} is not beaten by {least} after {self.t + form.r + 1} tokens or more")

    def _lowest(self, tokens: int | None) -> Iterator[tuple[AffineInTurns, fmpq | arb]]:
        """All forms of so many tokens more, and a bound on each: its first value, its last, or its limit."""
        for form in self.forms:
            last = None if tokens is None else (tokens - 1 - form.r) // self.k
            if last is not None and last < 0:
                continue
            if form.c1 >= 0 or last == 0:
                yield form, form.c0
            elif last is None:
                require(self.factor < 1, f"leaps: a number falls for ever from {self.t} tokens on")
                yield form, form.c0 + form.c1 / (1 - self.factor)
            else:
                yield form, self.value(form, last)

    def forms_at(self, tokens: int) -> dict[int, AffineInTurns]:
        """The margins after so many tokens more."""
        r = (tokens - 1) % self.k
        return {form.other: form for form in self.forms if form.r == r and form.other is not None}
