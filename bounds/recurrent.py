"""How far narrow recurrent models can count modulo m at all."""

from __future__ import annotations


def one_unit(m: int) -> int | None:
    """The longest length to which one unit with a monotone activation can count modulo m; None for every length.

    Claim: C-R1. The winning set of a class is an interval of the one number h. With w >= 0 the states h_1, h_2, ...
    are monotone, so no class comes again after another: at most m. With w < 0 the states of odd and those of even
    lengths are monotone. For even m >= 4 the odd lengths ask for classes 0, 2, ..., 0: at most m. For odd m they come
    to class 0 again at 2m + 1: at most 2m. At m = 2 both are constant.

    >>> [one_unit(m) for m in (2, 3, 4, 10)]
    [None, 6, 4, 10]
    """
    return None if m == 2 else m if m % 2 == 0 else 2 * m


def decays(m: int, s: int) -> int:
    """The longest length to which s positive decays and a linear readout can count modulo m.

    Claim: C-R2. A difference of two logits is c_0 + sum of c_i alpha_i^t, which changes its sign at most s times.
    Classes 0 and 1 must change places at lengths 1, 2, m + 1, m + 2, ...: with s even that is s + 1 times at
    ms/2 + 2. Any two classes change places 2q times by mq + 1, which is s + 1 for odd s and q = (s + 1)/2.

    >>> [decays(10, s) for s in (1, 2, 3, 4)]
    [10, 11, 20, 21]
    """
    return m * (s + 1) // 2 if s % 2 else m * s // 2 + 1


def decays_and_neurons(m: int, s: int, p: int) -> int:
    """The longest length to which s positive decays, p ReLU neurons that see them, and a linear readout count modulo m.

    Claim: C-R23. What a neuron sees changes its sign at most s times, so the lengths fall into at most p s + 1 parts in
    each of which every neuron is on or off. There a difference of two logits is c_0 + sum of c_i alpha_i^t, which
    changes its sign at most s times; as it is continuous over all real t, that is at most s (p s + 1) times in all.
    The rest is as in C-R2.

    >>> [decays_and_neurons(10, 1, p) for p in (0, 1, 18, 19)]
    [10, 11, 100, 101]
    """
    return decays(m, s * (p * s + 1))


def totient(m: int) -> int:
    """Euler's phi, the degree of the m-th cyclotomic polynomial.

    >>> [totient(m) for m in range(2, 13)]
    [1, 2, 2, 4, 2, 6, 4, 6, 4, 10, 4]
    """
    from math import gcd

    return sum(gcd(k, m) == 1 for k in range(1, m + 1))


def rotation_limit(m: int, omega: float) -> float:
    """A rotation by omega a step counts modulo m to (2 pi/m)/|omega - 2 pi/m| + 2m + 1 at most, rounded up.

    Claim: C-R15. For |omega - 2 pi/m| < pi/m^2. The states after t = r, r + m, ... tokens move along the circle by
    m omega - 2 pi at a time. A difference of two logits has at most two zeros on the circle, so the states of one class
    and those of the next do not come in turn twice: the run of a class ends at the latest one state after the first
    state of the next class, 2 pi/m away.

    >>> rotation_limit(10, 0.62890625) < 1100
    True
    """
    from flint import arb, ctx

    with ctx.workprec(300):
        apart = 2 * arb.pi() / m
        found: float = float((apart / abs(arb(omega) - apart) + 2 * m + 1).upper()) * (1 + 2.0**-50)
        return found
