"""One rotation by a stored angle, in real arithmetic: up to which length it counts, and the first at which it does not.

From 0, h_t = c - c e^(i omega t) with c = 1/(1 - e^(i omega)). A difference of two logits is E + rho cos(theta - psi)
at the angle theta = omega t, above 0 within w = acos(-E/rho) of psi. Along t = r, r + m, r + 2m, ... theta moves by
epsilon = m omega - 2 pi k each time, k being the nearest number of circles. So each difference leaves its arc once, at
a t that is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flint import acb, arb, ctx, fmpz

from verify.arithmetic.exact_reals import float_above, float_below
from verify.frame.clock import Deadline
from verify.tasks.recurrent.kinds import stored
from verify.tasks.recurrent.precise import least_of

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

BITS = 400


@dataclass(frozen=True)
class Counted:
    """Right for 1..right_to, by the margin, least at `tightest`; wrong at right_to + 1, where `predicted` wins."""

    right_to: int
    margin: float
    tightest: int
    predicted: int
    wrong_by: float


@dataclass(frozen=True)
class Turning:
    """The stored numbers in balls, and c = 1/(1 - e^(i omega))."""

    omega: arb
    V: list[list[arb]]
    b: list[arb]
    centre: acb

    @classmethod
    def of(cls, model: AnyModel) -> Turning:
        """The numbers of a model, in balls of as many bits as the context has."""
        numbers = stored(model)
        omega = arb(float(numbers["cell.omega"][0]))
        V = [[arb(x) for x in row] for row in numbers["readout.weight"].tolist()]
        return cls(omega, V, [arb(x) for x in numbers["readout.bias"].tolist()], 1 / (1 - acb(0, omega).exp()))

    def margins(self, t: int, right: int) -> dict[int, arb]:
        """The right logit after t tokens, less that of each other class."""
        h = self.centre - self.centre * acb(0, self.omega * t).exp()
        logits = [row[0] * h.real + row[1] * h.imag + bias for row, bias in zip(self.V, self.b, strict=True)]
        return {j: logits[right] - x for j, x in enumerate(logits) if j != right}


def answers(model: AnyModel, m: int, length: int, until: Deadline) -> list[bool | None]:
    """Whether each answer modulo m is right, a tie being wrong; None where a sign is open, or time is up."""
    with ctx.workprec(BITS):
        turning = Turning.of(model)
        return [None if until.is_up() else _is_right(turning.margins(t, (t - 1) % m)) for t in range(1, length + 1)]


def _is_right(gaps: Mapping[int, arb]) -> bool | None:
    if any(gap <= 0 for gap in gaps.values()):
        return False
    return True if all(gap > 0 for gap in gaps.values()) else None


def count(model: AnyModel, m: int, length: int | None = None) -> Counted | None:
    """How far it counts, or up to `length` if that is less; None where some sign is not known."""
    with ctx.workprec(BITS):
        return _count(model, m, length)


def _count(model: AnyModel, m: int, length: int | None) -> Counted | None:
    turning = Turning.of(model)
    omega, V, b, centre = turning.omega, turning.V, turning.b, turning.centre
    two_pi = 2 * arb.pi()
    turns = (m * omega / two_pi + arb(0.5)).floor().unique_fmpz()
    if turns is None:
        return None
    epsilon = m * omega - two_pi * arb(turns)

    first: int | None = None
    pairs = [(r, j) for r in range(1, m + 1) for j in range(len(b)) if j != r - 1]
    for r, j in pairs:
        d = acb(V[r - 1][0] - V[j][0], V[r - 1][1] - V[j][1])
        E = (d.conjugate() * centre).real + b[r - 1] - b[j]
        rho, psi = abs(d * centre), (-(d * centre.conjugate())).arg()
        leaves = _leaves(E, rho, psi, omega, r, epsilon, two_pi, m)
        if leaves is None:
            return None
        first = leaves if first is None else min(first, leaves)
    assert first is not None
    last = first - 1 if length is None else min(length, first - 1)
    least, tightest = None, 1
    for r, j in pairs:  # the cosine has one peak on the arc, so each difference is least at an end of its run
        if r <= last:
            for t in (r, r + (last - r) // m * m):
                value = turning.margins(t, r - 1)[j].lower()
                if least is None or value < least:
                    least, tightest = value, t
    right = (first - 1) % m
    others = turning.margins(first, right)
    worst, predicted = least_of((gap, j) for j, gap in others.items())
    if not worst < 0 or (least is not None and not least > 0):
        return None
    proved = math.inf if least is None else float_below(least)
    wrong_by = min(0.0, float_above(worst))
    return Counted(last, proved, tightest if last else 0, predicted, wrong_by)


def _leaves(E: arb, rho: arb, psi: arb, omega: arb, r: int, epsilon: arb, two_pi: arb, m: int) -> int | None:
    """The first t = r, r + m, ... at which E + rho cos(omega t - psi) is not above 0; None where it is not known."""
    if not abs(E) < rho:
        return None
    w = (-E / rho).acos()
    u = omega * r - psi
    turns = (u / two_pi + arb(0.5)).floor().unique_fmpz()
    if turns is None:
        return None
    u = u - two_pi * arb(turns)
    if not abs(u) < w:
        return r if abs(u) > w else None
    if not (epsilon > 0 or epsilon < 0):
        return None
    steps = ((w - u) / epsilon if epsilon > 0 else (w + u) / -epsilon).ceil().unique_fmpz()
    if steps is None:
        return None
    return r + m * int(fmpz(steps))
