"""Sums of rationals over square roots: what layer norm and a division by sqrt(d_h) make of stored numbers."""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb, ctx, fmpq

Number = fmpq | int


@dataclass(frozen=True)
class Surd:
    """The sum of c / sqrt(r) over `terms` {r: c}, with rational c and rational r > 0.

    >>> half = Surd.rational(1) * Surd.over_root(fmpq(1), fmpq(4))
    >>> half.is_rational, (half + half).terms
    (True, {1: 1})
    >>> (Surd.over_root(fmpq(3), fmpq(2)) * Surd.over_root(fmpq(1), fmpq(2))).terms
    {1: 3/2}
    """

    terms: dict[fmpq, fmpq]

    @classmethod
    def rational(cls, x: Number) -> Surd:
        return cls({fmpq(1): fmpq(x)} if x != 0 else {})

    @classmethod
    def over_root(cls, c: fmpq, r: fmpq) -> Surd:
        """c / sqrt(r), rational where r is a square."""
        root = _root(r)
        if c == 0:
            return cls({})
        return cls({r: c}) if root is None else cls({fmpq(1): c / root})

    @property
    def is_rational(self) -> bool:
        return set(self.terms) <= {fmpq(1)}

    @property
    def value(self) -> fmpq:
        """The rational number that it is.

        Raises: ValueError where it has a root.
        """
        if not self.is_rational:
            raise ValueError("has a square root")
        return self.terms.get(fmpq(1), fmpq(0))

    def __add__(self, other: Surd) -> Surd:
        joined = dict(self.terms)
        for r, c in other.terms.items():
            joined[r] = joined.get(r, fmpq(0)) + c
        return Surd({r: c for r, c in joined.items() if c != 0})

    def __sub__(self, other: Surd) -> Surd:
        return self + Surd({r: -c for r, c in other.terms.items()})

    def __mul__(self, other: Surd) -> Surd:
        out = Surd({})
        for r, c in self.terms.items():
            for q, b in other.terms.items():
                out = out + Surd.over_root(c * b, r * q)
        return out

    def ball(self, bits: int) -> arb:
        """An enclosure computed with this many bits."""
        with ctx.workprec(bits):
            return sum((arb(c) if r == 1 else arb(c) / arb(r).sqrt() for r, c in self.terms.items()), arb(0))

    def nearest(self) -> float:
        """The nearest float, infinite beyond the largest.

        >>> Surd.over_root(fmpq(1), fmpq(2)).nearest()
        0.7071067811865476
        """
        with ctx.workprec(128):
            return float(self.ball(256).mid())


def _root(r: fmpq) -> fmpq | None:
    """The rational square root, or None."""
    from math import isqrt

    p, q = isqrt(int(r.p)), isqrt(int(r.q))
    return fmpq(p, q) if p * p == int(r.p) and q * q == int(r.q) else None
