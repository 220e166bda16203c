"""Inventory counting: what the own token's neuron reads at count k, and why all the others stay off."""

from __future__ import annotations

import sympy

from bounds.counting import CountingBound, L, T, k

ONE = sympy.Integer(1)
E = sympy.E


def lin() -> CountingBound:
    """lin: the own neuron reads a k, any other at most a (L - k) - 1, with a the power of two at or below 1/L.

    Claim: A-4.3 (App. B.3.1, eq. 23-24), where a = 1/L is printed.

    >>> bound = lin()
    >>> [bound.at(bound.gamma, L=10, k=count) for count in (1, 2)]
    [1/16, 1/8]
    """
    a = 2 ** (-sympy.ceiling(sympy.log(L, 2)))
    return CountingBound(gamma=a * k, separation=a, d=T, p=T, off=a * (L - k) - 1, printed=k / L)


def lin_sftm() -> CountingBound:
    """lin+sftm with A = 0: the own neuron reads k / L, any other at most (L - k)/L - 1.

    Claim: A-4.3 (App. B.3.2).

    >>> lin_sftm().gamma
    k/L
    """
    return CountingBound(gamma=k / L, separation=1 / L, d=T, p=T, off=(L - k) / L - 1)


def dot_sftm() -> CountingBound:
    """dot+sftm: with uniform attention the own neuron reads k / L, any other at most (L - k)/L - 1.

    Claim: A-B.1 (App. B.3.3, eq. 27-28), where e k / (e k + L - k) is printed, closest together at the largest counts.

    >>> dot_sftm().gamma, dot_sftm().printed
    (k/L, E*k/(L - k + E*k))
    """
    return CountingBound(gamma=k / L, separation=1 / L, d=T, p=T, off=(L - k) / L - 1, printed=E * k / (E * k + L - k))


def bos_sftm() -> CountingBound:
    """bos+sftm with e_BOS = 0: with uniform attention the own neuron reads k / (L + 1).

    Claim: W-1.

    >>> bos_sftm().gamma, bos_sftm().separation
    (k/(L + 1), 1/(L + 1))
    """
    return CountingBound(gamma=k / (L + 1), separation=1 / (L + 1), d=T, p=T, off=(L - k) / (L + 1) - 1)


def dot() -> CountingBound:
    """dot and bos with p = T: the mixed token is (1 + k) e_t, so the own neuron reads k and the others -1.

    Claim: W-1.

    >>> dot().gamma, dot().off
    (k, -1)
    """
    return CountingBound(gamma=k, separation=ONE, d=T, p=T, off=-ONE)
