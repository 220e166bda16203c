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
from verify.tasks.histogram.tabulating import NARROW, UNDERFLOW, Table, gamma32

Single = NDArray[np.float32]
LANES = 16  # numbers that a loop takes at once
NOTHING = 2.0**-80  # more than a threshold for margins loses to underflow, its factor flushed times a form below NARROW


@dataclass(frozen=True)
class CellForms:
    """CellForms of one query token and own count in float64: `start`, and a step for each other token.

    Shapes: start, reach and error (r,); steps (r, S). No form, in absolute terms, is above `reach`, nor off by more
    than `error`.
    """

    start: Array
    steps: Array
    reach: Array
    error: Array

    @classmethod
    def of(cls, table: Table, k: int) -> CellForms | None:
        """Those of all neurons, and D's; None where slots are not in one group, or there is no other token."""
        if len(table.row.groups) != 1 or not len(table.tokens):
            return None
        m, (base, own, _), a = table.stored.L - k, table.exact, float(table.slots.a[0])
        start, steps = base.mid + (k - 1) * (a * own.mid), a * table.values[:-1].T  # (r,), (r, S)
        reach = (np.abs(start) + (k - 1) * np.abs(a * own.mid) + m * np.abs(steps).max(1)) * ENLARGE_LONG
        return cls(start, steps, reach + np.abs(base.mid) * ENLARGE_LONG + table.form_error, table.form_error)

    def combined(self, parts: Array) -> CellForms:
        """Linear combinations (r', r) of these."""
        size = np.abs(parts)
        reach = size @ self.reach * ENLARGE_LONG
        error = (size @ self.error + gamma(2 * parts.shape[1] + 8) * reach) * ENLARGE_LONG
        lost = UNDERFLOW[np.float64] * (1 + self.steps.shape[0])
        return CellForms(parts @ self.start, parts @ self.steps, reach, error + lost)


@dataclass(frozen=True)
class Narrow:
    """The forms and differences of one query token t and own count k in float32.

    Shapes: larger (n, r) and smaller (n', r) for the two halves of prefixes, leaves (r, n'') with 2 LANES columns of
    zeros behind them; W (r, C - 1); error (C - 1,) rounded upwards; off (r,) what forms may be off by. Where
    it is `in_parts`, the last forms are one for each rival, which is added to what neurons give, W (neurons, rivals).
    """

    prefixes: Prefixes
    larger: Single
    smaller: Single
    leaves: Single
    W: Single
    error: Single
    off: Array

    @property
    def D_error(self) -> float:
        """What the last form may be off by."""
        return float(self.off[-1])

    @classmethod
    def of(cls, table: Table, k: int) -> Narrow | None:
        """The numbers of one cell; None where float32 does not suffice, or the multisets are too many."""
        forms, d = CellForms.of(table, k), table.space.differences(k)
        narrow = cls.of_forms(table, k, forms, d, d)
        if forms is None or narrow is None:
            return None
        least = forms.start[-1] + (table.stored.L - k) * min(forms.steps[-1].min(), 0.0)
        return narrow if least > 4 * narrow.D_error else None  # D is positive, and seen to be

    @classmethod
    def in_parts(cls, table: Table, k: int, readout: Array, is_on: np.ndarray, is_bent: np.ndarray) -> Narrow | None:
        """The differences of a readout (r, C') as sums over neurons that are bent, and one form for those that are on.

        Others are left out. D counts as on.
        """
        forms, number = CellForms.of(table, k), readout.shape[1]
        if forms is None:
            return None
        d = readout[is_bent]
        parts = np.vstack([np.eye(len(readout))[is_bent], (readout * is_on[:, None]).T])
        return cls.of_forms(table, k, forms.combined(parts), d, np.vstack([d, np.eye(number)]))

    @classmethod
    def of_forms(cls, table: Table, k: int, forms: CellForms | None, d: Array, readout: Array) -> Narrow | None:
        """These forms and W = d in float32, with the errors of differences that are read out (r, C') from all forms."""
        if forms is None:
            return None
        m, (r, number) = table.stored.L - k, readout.shape
        start, steps, reach = forms.start, forms.steps, forms.reach
        prefixes = prefixes_of(len(table.tokens), m, table.stored.L - 1, r)
        if prefixes is None or not table.is_narrow or not max(reach.max(), np.abs(readout).max(initial=0)) < NARROW:
            return None
        off = (forms.error + gamma32(6) * reach) * ENLARGE_LONG + UNDERFLOW[np.float32]
        most = np.maximum(start + m * steps.max(1), 0) + gamma(4 * table.stored.L) * reach + off
        linear = 1 if len(d) == r else number
        most[r - linear :] = (reach + off)[r - linear :]
        size = np.abs(readout)
        lost = UNDERFLOW[np.float32] * (r + reach.sum() + size.sum(0))
        error = ((off @ size + gamma32(r + 4) * (most @ size)) * ENLARGE_LONG + lost) * ENLARGE_LONG
        small, large = prefixes.halves
        sums = prefixes.multisets.sums(steps, max(large, prefixes.leaf))
        leaves = np.zeros((r, sums[prefixes.leaf].shape[1] + 2 * LANES), dtype=np.float32)
        leaves[:, : -2 * LANES] = sums[prefixes.leaf]
        larger = np.ascontiguousarray((start[:, None] + sums[large]).T.astype(np.float32))
        smaller = np.ascontiguousarray(sums[small].T.astype(np.float32))
        W = np.ascontiguousarray(d.astype(np.float32))
        return cls(prefixes, larger, smaller, leaves, W, above(error), off)

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
    return np.nextafter(x.astype(np.float32), np.float32(np.inf), dtype=np.float32)
