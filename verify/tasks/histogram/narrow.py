"""One cell's forms in float32 with a proved radius: what decides nearly all multisets of a row with one group of slots.

A form of a multiset is the sum of three numbers of tables, each computed in float64 and rounded once: the larger
tokens of its prefix (with what does not change), the smaller ones, and its leaf. A difference of logits is a sum of r
products, in any order, fused or not. With e = `form_error` of the table and R the sum of a form's absolute terms:

    a form is off by at most e + gamma32(6) (R + e): three parts and two sums are rounded, each at most R + e and once;
    a difference by at most sum |W| off + gamma32(r + 4) sum |W| (most + off): W is rounded, then r products and sums,

where `most` is above what the ReLU of a form can be, and ReLU moves no two numbers further apart. A number that float32
stores, or a product, may underflow, or be flushed to zero, by at most 2^-126: UNDERFLOW is far above all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.slack import ENLARGE_LONG, gamma
from verify.tasks.histogram.prefixes import Prefixes, prefixes_of
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import UNDERFLOW, Table, gamma32

Single = NDArray[np.float32]
LANES = 16  # numbers that a loop takes at once
NOTHING = 2.0**-80  # more than a threshold for margins loses to underflow, its factor flushed times a form below NARROW


@dataclass(frozen=True)
class Narrow:
    """The forms and differences of one query token t and own count k in float32.

    Shapes: larger (n, r) and smaller (n', r) for the two halves of prefixes, leaves (r, n'') with 2 LANES columns of
    zeros behind them; W (r, C - 1); error (C - 1,) rounded upwards; D_error is what the last form may be off by.
    """

    prefixes: Prefixes
    larger: Single
    smaller: Single
    leaves: Single
    W: Single
    error: Single
    D_error: float

    @classmethod
    def of(cls, table: Table, k: int) -> Narrow | None:
        """The numbers of one cell; None where float32 does not suffice, or the multisets are too many."""
        m, S, r = table.stored.L - k, len(table.tokens), len(table.start)
        if len(table.row.groups) != 1 or not S:
            return None
        prefixes = prefixes_of(S, m, table.stored.L - 1, r)
        if prefixes is None or not table.is_narrow:
            return None
        (base, own, _), a = table.exact, float(table.slots.a[0])
        start, steps = base.mid + (k - 1) * (a * own.mid), a * table.values[:-1].T  # (r,), (r, S)
        d = table.space.differences(k)
        reach = (np.abs(start) + (k - 1) * np.abs(a * own.mid) + m * np.abs(steps).max(1)) * ENLARGE_LONG
        reach = reach + np.abs(base.mid) * ENLARGE_LONG + table.form_error
        off = (table.form_error + gamma32(6) * reach) * ENLARGE_LONG + UNDERFLOW[np.float32]
        most = np.maximum(start + m * steps.max(1), 0) + gamma(4 * table.stored.L) * reach + off
        most[-1] = reach[-1] + off[-1]
        size = np.abs(d)
        lost = UNDERFLOW[np.float32] * (len(d) + reach.sum() + size.sum(0))
        error = ((off @ size + gamma32(r + 4) * (most @ size)) * ENLARGE_LONG + lost) * ENLARGE_LONG
        if not start[-1] + m * min(steps[-1].min(), 0.0) > 4 * off[-1]:  # D is positive, and seen to be
            return None
        small, large = prefixes.halves
        sums = prefixes.multisets.sums(steps, max(large, prefixes.leaf))
        leaves = np.zeros((r, sums[prefixes.leaf].shape[1] + 2 * LANES), dtype=np.float32)
        leaves[:, : -2 * LANES] = sums[prefixes.leaf]
        larger = np.ascontiguousarray((start[:, None] + sums[large]).T.astype(np.float32))
        smaller = np.ascontiguousarray(sums[small].T.astype(np.float32))
        W = np.ascontiguousarray(d.astype(np.float32))
        return cls(prefixes, larger, smaller, leaves, W, above(error), float(off[-1]))

    def threshold(self, margin: float) -> tuple[np.float32, np.float32]:
        """What a difference has to be above, a number times the last form and another, for its margin to be above this.

        Proof. With both enlarged by 2^-20, their computed sum is above margin (D + D_error) by more than U32 of it,
        since D and D_error are positive; and the difference less its error is rounded to within U32 of itself.
        """
        if not margin > 0:
            return np.float32(0), np.float32(0)
        slope, rest = (above(np.array([x * (1 + 2.0**-20)]))[0] for x in (margin, margin * self.D_error + NOTHING))
        return slope, rest


def above(x: Array) -> Single:
    """Numbers of float32 that are not below x."""
    result: Single = np.nextafter(x.astype(np.float32), np.float32(np.inf), dtype=np.float32)
    return result
