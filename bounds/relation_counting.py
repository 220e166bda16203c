"""Relation counting: what the one neuron reads at count k, and how far apart two counts are."""

from __future__ import annotations

import sympy

from bounds.counting import CountingBound, L, T, k

ONE = sympy.Integer(1)


def dot() -> CountingBound:
    """dot, and bos with a zero BOS embedding: the neuron reads the count itself.

    Claim: A-4.2 (App. B.2.1, eq. 15): before the bias -(1 + L(T+2)) it reads k + 1 + L(T+2).

    >>> dot().gamma
    k
    """
    return CountingBound(gamma=k, separation=ONE, d=T, p=ONE)


def bos() -> CountingBound:
    """bos: the neuron reads T + k + 1 before its bias -(T + 1).

    Claim: A-4.1 (App. B.2.3). The printed bias -T gives k + 1, one class too high for every k < L.

    >>> bos().gamma, bos().printed
    (k, k + 1)
    """
    before_bias = T + k + 1
    return CountingBound(
        gamma=sympy.expand(before_bias - (T + 1)), separation=ONE, d=T, p=ONE, printed=sympy.expand(before_bias - T)
    )


def bos_sftm() -> CountingBound:
    """bos+sftm: the neuron reads the attention paid to BOS, 1/(k + 1), closest together at the largest counts.

    Claim: A-4.1 (App. B.2.2, eq. 19): before the bias -1 the printed weights read a(T - 1) + 2 with
        a = e/((k+1)e + L - k). Ours, for T >= 4, pay nothing to other tokens: less than L e^-32 is left out here.

    >>> bound = bos_sftm()
    >>> difference = bound.gamma.subs(k, L - 1) - bound.gamma.subs(k, L) - bound.separation
    >>> sympy.simplify(difference)
    0
    """
    a = sympy.E / ((k + 1) * sympy.E + L - k)
    return CountingBound(gamma=1 / (k + 1), separation=1 / (L * (L + 1)), d=T, p=ONE, printed=a * (T - 1) + 1)


def dot_sftm_common_direction() -> sympy.Expr:
    """dot+sftm: the mixed token's component along a direction w with <e_t, w> = c for all t.

    Claim: A-neg (Sec. 4.1.1): the residual gives c, and softmax weights sum to one, so mixing gives c again.
    The count does not occur in it.

    >>> dot_sftm_common_direction()
    2*c
    """
    c, same, other = sympy.symbols("c w_same w_other", positive=True)
    D = k * same + (L - k) * other
    return sympy.simplify(c + (k * same * c + (L - k) * other * c) / D)
