"""Sums of exponentials of rationals: their balls, and their signs, which are never left open by a tie."""

from collections.abc import Iterable, Sequence

from flint import arb, ctx, fmpq

from verify.checker.reading import NOT_CHECKABLE, Refusal

BITS = (128, 1024, 8192)
Sum = dict[fmpq, fmpq]  # exponent -> coefficient: the sum of c e^x


def summed(terms: Iterable[tuple[fmpq, fmpq]]) -> Sum:
    """Equal exponents joined, zeros dropped."""
    out: Sum = {}
    for x, c in terms:
        out[x] = out.get(x, fmpq(0)) + c
    return {x: c for x, c in out.items() if c != 0}


def scaled(sums: Sequence[Sum], factors: Sequence[int]) -> Sum:
    return summed((x, c * k) for s, k in zip(sums, factors, strict=True) for x, c in s.items())


def times(a: Sum, b: Sum) -> Sum:
    return summed((x + y, c * d) for x, c in a.items() for y, d in b.items())


def ball(s: Sum, bits: int) -> arb:
    with ctx.workprec(bits):
        return sum((arb(c) * arb(x).exp() for x, c in s.items()), arb(0))


def sign_of(s: Sum) -> int:
    """The exact sign: e^x for distinct rational x are linearly independent, so zero shows in the coefficients."""
    signs = {1 if c > 0 else -1 for c in s.values()}
    if len(signs) < 2:  # nothing cancels
        return sum(signs)
    for bits in (*BITS, 1 << 16):
        value = ball(s, bits)
        if value > 0 or value < 0:
            return 1 if value > 0 else -1
    raise Refusal("the sign of a sum of exponentials does not show", NOT_CHECKABLE)
