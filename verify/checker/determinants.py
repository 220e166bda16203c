"""The sign of a determinant whose entries are sums of exponentials (docs/checker.md)."""

from flint import arb_mat, ctx, fmpq

from verify.checker.exponentials import BITS, Sum, ball, sign_of, summed, times


def sign_of_determinant(rows: list[list[Sum]]) -> int:
    """By balls, and exactly where they do not show it."""
    if not rows:
        return 1
    for bits in BITS[:2]:
        with ctx.workprec(bits):
            value = arb_mat([[ball(x, bits) for x in row] for row in rows]).det()
        if value > 0 or value < 0:
            return 1 if value > 0 else -1
    return sign_of(_determinant(rows))


def _determinant(rows: list[list[Sum]]) -> Sum:
    if not rows:
        return {fmpq(0): fmpq(1)}
    out: Sum = {}
    for i, row in enumerate(rows):
        minor = _determinant([other[1:] for j, other in enumerate(rows) if j != i])
        term = times(row[0], minor)
        out = summed([*out.items(), *((x, c if i % 2 == 0 else -c) for x, c in term.items())])
    return out
