"""Sines and cosines by position that a decoder makes itself: a certificate has them, as torch computed them.

They are compared with the real ones, of which they may be off by what computing and storing them rounds.
"""

from typing import TypeVar

from flint import arb, ctx, fmpq, fmpq_mat

from verify.checker.formats import NAMED, BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, Refusal, require

BASE = 10_000  # of the wavelengths
NAMES = {"rope": ("cos", "sin"), "sine": ("W_pos",)}
FEW = arb(2) ** -48  # by which share of its angle, and of 1, a sine in float64 may be off
BITS = 128
N = TypeVar("N", arb, fmpq)


def tables_of(said: object, pe: str, positions: int, size: int, dtype: str) -> dict[str, fmpq_mat]:
    """The tables of a certificate: of pairs that are turned by an angle, or of rows that are added. Raises: Refusal."""
    if pe not in NAMES:
        require(said is None, f"tables: a decoder with {pe} makes none")
        return {}
    require(said is not None, f"tables of {pe} are not in the certificate", NOT_CHECKABLE)
    if not isinstance(said, dict) or {*said} != {*NAMES[pe]}:
        raise Refusal(f"tables: must be {NAMES[pe]}")
    with ctx.workprec(BITS):
        return {name: _table(said[name], name, positions, size, BinaryFormat(*NAMED[dtype])) for name in NAMES[pe]}


def _table(rows: object, name: str, positions: int, size: int, fmt: BinaryFormat) -> fmpq_mat:
    width = size // 2 if name != "W_pos" else size
    listed = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    is_table = isinstance(rows, list) and len(rows) == len(listed) == positions
    is_table = is_table and all([type(x) for x in row] == [float] * width for row in listed)
    require(is_table, f"tables.{name}: must be {positions} rows of {width} numbers")
    for n, row in enumerate(listed, 1):
        for j, x in enumerate(row):
            pair, is_cosine = (j, name == "cos") if name != "W_pos" else (j // 2, j % 2 == 1)
            angle = n * arb(BASE) ** (arb(-2 * pair) / size)
            is_there = name != "W_pos" or j < size - size % 2  # a last column without a partner is 0
            real = (angle.cos() if is_cosine else angle.sin()) if is_there else arb(0)
            off = (FEW * (1 + angle) + fmt.u * abs(real).max(fmt.tiny)) if is_there else arb(0)
            is_stored = bool(abs(arb(x) - real) <= off) and fmt.nearest(x) == x
            require(is_stored, f"tables.{name}: row {n} has {x!r}, where {real.str(8)} is due")
    return fmpq_mat(positions, width, [fmpq(*x.as_integer_ratio()) for row in listed for x in row])


def turns(cos: list[N], sin: list[N], heads: int) -> list[list[N]]:
    """The matrix that turns the pair (x_i, x_(i + d/2)) of each head by its angle: (a cos - b sin, b cos + a sin)."""
    half, d = len(cos), 2 * len(cos)
    found = [[0 * cos[0]] * (heads * d) for _ in range(heads * d)]
    for h in range(heads):
        for i in range(half):
            a, b = h * d + i, h * d + half + i
            found[a][a], found[b][a], found[b][b], found[a][b] = cos[i], -sin[i], cos[i], sin[i]
    return found
