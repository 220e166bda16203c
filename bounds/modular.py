"""Addition modulo P: margins of frequency sets, the phase error of doubled angles, and what is impossible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flint import arb, ctx

if TYPE_CHECKING:
    import sympy as sp


def average_margin() -> sp.Expr:
    """An upper bound on the margin of any K frequencies: their average over the P - 1 wrong answers.

    Claim: W-E4.6 (ours). The sum over r != 0 of 1 - cos(2 pi w r/P) is P for every w that is no multiple of P.

    >>> average_margin()
    K*P/(P - 1)
    """
    import sympy as sp  # which those who ask for numbers do not load

    P, K = sp.symbols("P K", positive=True)
    return K * P / (P - 1)


def clock_margin(modulus: int, frequencies: Iterable[int], bits: int = 128) -> arb:
    """min over r != 0 of sum_k (1 - cos(2 pi w_k r/P)), as a ball.

    >>> clock_margin(113, (1,)) < arb("0.0015455") and clock_margin(113, (1,)) > arb("0.0015454")
    True
    """
    frequencies = tuple(frequencies)
    with ctx.workprec(bits):
        values = [
            sum((1 - (arb(2 * (w * r % modulus)) / modulus).cos_pi() for w in frequencies), arb(0))
            for r in range(1, modulus // 2 + 1)
        ]
        least = values[0]
        for value in values[1:]:
            least = least.min(value)
        return least


def phase_error(neurons: int, bits: int = 128) -> arb:
    """e(m), the largest error of the angle that m neurons double, as a ball; m odd.

    Claim: W-E4.5 (ours). Between two directions of which one starts to see the average, the output is proportional to
    sin(h - t) + sin(t) e^(2ih), h = pi/m, which has the phase 2t up to e(m). Its largest value is where the
    derivative of the phase is 2.

    >>> phase_error(5) * 118 < arb.pi() < phase_error(5) * 119
    True
    """
    with ctx.workprec(bits):
        h = arb.pi() / neurons
        # tan of the phase: X = sin(h-t) + sin(t) cos(2h), Y = sin(t) sin(2h). The derivative of the phase is
        # (X Y' - Y X') / (X^2 + Y^2) = sin(h) sin(2h) / (X^2 + Y^2), and X^2 + Y^2 = sin^2(h-t) + sin^2(t)
        # + 2 sin(h-t) sin(t) cos(2h). With 2 sin(h-t) sin(t) = cos(h-2t) - cos(h) and sin^2(h-t) + sin^2(t)
        # = 1 - cos(h) cos(h-2t) it is 2 where c = cos(h-2t) satisfies the following line.
        c = (h.sin() * (2 * h).sin() / 2 - 1 + h.cos() * (2 * h).cos()) / ((2 * h).cos() - h.cos())
        at = (h - c.acos()) / 2
        x, y = (h - at).sin() + at.sin() * (2 * h).cos(), at.sin() * (2 * h).sin()
        return abs((y / x).atan() - 2 * at)  # x > 0: the phase is between 0 and 2h


def largest_modulus(neurons: int) -> int:
    """The largest odd P for which one frequency with m neurons is proved right: P e(m) < pi.

    Claim: W-E4.5 (ours).

    >>> [largest_modulus(m) for m in (5, 7, 9)]
    [117, 341, 743]
    """
    limit = (arb.pi() / phase_error(neurons)).floor().unique_fmpz()
    if limit is None:
        raise AssertionError("more bits are needed")
    return int(limit) - (int(limit) + 1) % 2


def neurons_needed(modulus: int) -> int:
    """The least odd m >= 5 that is proved enough for one frequency.

    >>> neurons_needed(113), neurons_needed(119)
    (5, 7)
    """
    neurons = 5
    while largest_modulus(neurons) < modulus:
        neurons += 2
    return neurons


def binary_kinks(modulus: int) -> dict[int, int]:
    """By bit, how often it bends as a function of a + b = 0..2P-2: the neurons that an exact binary output asks for.

    A piecewise linear function through all 2P - 1 values of a bit bends at every z whose second difference is not 0.

    >>> binary_kinks(4)
    {0: 5, 1: 5}
    """
    values = [z % modulus for z in range(2 * modulus - 1)]
    out = {}
    for bit in range((modulus - 1).bit_length()):
        b = [v >> bit & 1 for v in values]
        out[bit] = sum(b[z + 1] - 2 * b[z] + b[z - 1] != 0 for z in range(1, len(b) - 1))
    return out
