"""Networks of ReLUs, and linear ones, whose states in real arithmetic are numbers of a format, for so many tokens."""

from __future__ import annotations

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.arithmetic.any_order import NO_UNIT
from verify.arithmetic.formats import Format
from verify.tasks.recurrent.exact import Exact

BITS = 128
LONGEST = 1 << 64  # tokens: what grows for so long has more bits than any format


def is_run_of(net: Exact, steps: int, fmt: Format) -> bool:
    """Whether the real run of so many tokens, whose stored numbers are of the format, is one that any order allows.

    If number i of each state is a multiple of 2^e_i and at most 2^(e_i + p), it is a number of the format. Factors of
    matrix products are then not rounded, subnormal ones are kept, and all results may be kept as they are.
    """
    units = _units(net)
    if units is None or steps >= LONGEST:
        return False
    least, large = fmt.smallest_exponent - (fmt.p - 1), arb(fmt.largest)
    products = [_unit(net.V[r, i]) + e for r in range(net.V.nrows()) for i, e in enumerate(units) if net.V[r, i] != 0]
    if min((*units, *products)) < least:
        return False
    with ctx.workprec(BITS):
        sizes, read = _sizes(net, steps)
        is_fine = [x <= arb(2) ** (e + fmt.p) for x, e in zip(sizes, units, strict=True)]
        return all(is_fine) and all(x <= large for x in (*sizes, *read))


def _units(net: Exact) -> list[int] | None:
    """The largest e_i with number i of every state a multiple of 2^e_i; None where they grow finer and finer.

    W_ij h_j is a multiple of 2^(u_ij + e_j), and a sum of the least of its terms' powers. The state 0 is one of all.
    """
    n, units = net.A.nrows(), [NO_UNIT] * net.A.nrows()
    for _ in range(n + 2):
        own = [min(_unit(B[i, 0]) for B in net.B) for i in range(n)]
        after = [
            min([own[i], *(_unit(net.A[i, j]) + units[j] for j in range(n) if net.A[i, j] != 0 and units[j] < NO_UNIT)])
            for i in range(n)
        ]
        if after == units:
            return units
        units = after
    return None


def _unit(x: fmpq) -> int:
    """The largest e with x a multiple of 2^e; stored numbers are whole numbers over powers of two."""
    if x == 0:
        return NO_UNIT
    p, q = int(x.p), int(x.q)
    assert q & (q - 1) == 0, "a stored number is dyadic"
    return (p & -p).bit_length() - q.bit_length()


def _sizes(net: Exact, steps: int) -> tuple[list[arb], list[arb]]:
    """Upper bounds on the absolute values of the states up to so many tokens, and on any part of a sum.

    Of ReLUs h <= A+ h + B+, with the positive parts of A and B; of others |h| <= |A| |h| + |B|. Both grow with the
    number of tokens, from 0.
    """
    n, zero = net.A.nrows(), fmpq(0)

    def part(x: fmpq) -> fmpq:
        return max(x, zero) if net.is_relu else abs(x)

    rows = [[part(net.A[i, j]) for j in range(n)] + [max(part(B[i, 0]) for B in net.B)] for i in range(n)]
    whole = arb_mat(fmpq_mat([*rows, [zero] * n + [fmpq(1)]])) ** steps
    sizes = [whole[i, n].upper() for i in range(n)]
    held = arb_mat(n, 1, sizes)
    sums = [(net.A, [max(abs(B[i, 0]) for B in net.B) for i in range(n)]), (net.V, [abs(x) for x in net.b.entries()])]
    read = [
        (arb_mat(fmpq_mat([[abs(x) for x in row] for row in W.tolist()])) * held)[i, 0] + arb(b[i])
        for W, b in sums
        for i in range(W.nrows())
    ]
    return sizes, [x.upper() for x in read]
