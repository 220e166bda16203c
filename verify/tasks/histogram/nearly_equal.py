"""The share of a cell's wrong inputs by counting all its multisets, where the slots' weights are nearly equal.

A multiset stands for all orders of its tokens, within a radius: it is surely wrong, surely right, or near a tie. All
are counted, and those near a tie by the share of their orders that are wrong, of each position by itself (orders.py).
What is rare is left out and its share known: rivals that are hardly ever ahead, neurons that hardly ever change sides,
and orders that take a difference out of its radius.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from verify.arithmetic.machine_code import is_compiled
from verify.frame.clock import Deadline
from verify.tasks.histogram.loops import Closer, LoopAsked, LoopShape, loop_for, room
from verify.tasks.histogram.moments import Behind
from verify.tasks.histogram.narrow import LANES, Narrow, above
from verify.tasks.histogram.orders import DIFFERENCE, MOST_TERMS, Dominance, Orders
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import CountReadout, Table, number_of_points
from verify.tasks.histogram.unequal_weights import RARELY, usual_radius

CROSSING = 0.001  # share of a cell's inputs, at most, on which neurons that are taken as on or off are not
EACH, EACH_PRODUCT = 4e-9, 2.2e-11  # seconds of a multiset, and of a product in it
A_LOOK = 1 << 22  # multisets between two looks at the clock
MOST_PRODUCTS = 1 << 24  # of positions, slots, own count and rivals, beyond which moments take longer than 3 seconds
OF_SUMS = Fraction(1, 1 << 20)  # of a sum of shares of orders, and of its weights
ENTRIES = 1 << 19  # what makes room for a loop's prefixes, though nothing is entered


@dataclass
class CountedCell:
    """One query token and own count in a row of one group.

    Rivals not counted are ahead on `others` at most; `odd` inputs at most, of each position, are not as counted.
    """

    narrow: Narrow
    orders: Orders
    positions: tuple[int, ...]
    number: int  # of fillings of the slots by other tokens
    others: Fraction
    odd: Fraction

    @classmethod
    def of(cls, table: Table, k: int, behind: Behind, left_out: float) -> CountedCell | None:
        """The cell with as few rivals and neurons as may be; None where float32 does not suffice, or moments take long.

        Rivals that are left out are ahead on at most the share `left_out` of the inputs. Tokens come in order of their
        effect, so that few vectors hold most of the multisets that are near a tie.
        """
        readout = CountReadout.of(table, k)
        if table.slots.away[0].size * k * len(readout.d) > MOST_PRODUCTS or max(table.values.shape) > MOST_TERMS:
            return None
        rivals, multiple, others = _rivals(behind, left_out)
        is_on, is_bent, crossing = _sides(behind)
        table = _by_effect(table, readout.d[rivals[0]] * np.where(is_bent, 0.5, is_on))
        narrow = Narrow.in_parts(table, k, readout.d.T[:, rivals], is_on, is_bent)
        if narrow is None:
            return None
        with np.errstate(all="ignore"):
            chosen = replace(readout, d=readout.d[rivals], error=readout.error[rivals])
            dominance = Dominance.of(narrow, multiple)
            error, apart = (
                above(plain.astype(np.float64) + usual_radius(table, rows, is_on, is_bent))
                for plain, rows in ((narrow.error, chosen), (dominance.apart, dominance.readout(chosen)))
            )
            orders = Orders.of(table, narrow, chosen, is_on, is_bent)
        if not np.isfinite(error).all():
            return None
        apart[0] = np.inf
        number, odd = len(table.tokens) ** (table.stored.L - k), crossing + (2 * len(rivals) - 1) * RARELY
        rest = above(orders.rest + DIFFERENCE * error.astype(np.float64))
        orders = replace(orders, rest=rest, dominance=replace(dominance, apart=apart))
        return cls(replace(narrow, error=error), orders, tuple(table.row.positions), number, others, odd)

    def shares(self, deadline: Deadline, least: float = 0.0) -> list[tuple[Fraction, Fraction]]:
        """At least and at most what share is wrong at each position; all is open that time did not suffice for.

        Vectors of multisets are looked at closer where of as many orders as one has on average at least the share
        `least` is near a tie. Shares of orders are summed in float64, whose error is far less than OF_SUMS for what one
        call of the loop sees, and for all calls.
        """
        prefixes, (_, rivals) = self.narrow.prefixes, self.narrow.W.shape
        orders = replace(self.orders, least=least * self.number * LANES / int(prefixes.until[-1]))
        loop = loop_for(len(self.narrow.leaves), rivals, LoopShape.of(self.narrow, self.orders))
        wrong, near = np.empty(prefixes.number, np.int64), np.empty(prefixes.number, np.int64)
        limit = np.full(prefixes.number, -1, np.int32)
        entries = np.empty((max(ENTRIES, room(self.narrow)), 4), dtype=np.int32)
        weights, positions, first = prefixes.outer.astype(np.float64), len(self.positions), 0
        of_orders = np.zeros((2, positions))
        while first < prefixes.number:
            if deadline.is_up():
                wrong[first:], near[first:] = 0, prefixes.of_leaves[first:]
                break
            before = int(prefixes.until[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(prefixes.until, before + A_LOOK, side="right")))
            zero = np.float32(0)
            closer = Closer(orders, near, weights, np.zeros((2, len(orders.variance))))
            first, _ = loop(LoopAsked(self.narrow, first, last, zero, zero, limit, wrong, entries, closer))
            if not np.isfinite(closer.shares).all():
                return [(Fraction(0), Fraction(1))] * positions
            of_orders += closer.shares[:, :positions]
        surely, is_open = (Fraction(int((prefixes.outer * found).sum()), self.number) for found in (wrong, near))
        most = surely + is_open + self.others + self.odd
        return [
            (
                max(Fraction(0), surely - self.odd + Fraction(low) * (1 - OF_SUMS) / self.number),
                min(Fraction(1), most + Fraction(high) * (1 + OF_SUMS) / self.number),
            )
            for low, high in zip(*of_orders.tolist(), strict=True)
        ]


def _by_effect(table: Table, linear: Array) -> Table:
    """The table with tokens in order of what they add to a linear form (r,), those that add most first."""
    return table.in_order(np.argsort(-table.slots.a[0] * (table.values[:-1] @ linear), kind="stable"))


def seconds_to_count(table: Table, k: int, behind: Behind, left_out: float) -> float:
    """About how long counting a cell takes one core."""
    number = number_of_points(table.row, table.stored.T, [k], table.stored.L)
    forms, rivals = _sides(behind)[1].sum(), len(_rivals(behind, left_out)[0])
    return number * (EACH + EACH_PRODUCT * float(forms + 1) * rivals if is_compiled() else 20 * EACH)


def _rivals(behind: Behind, left_out: float) -> tuple[np.ndarray, Array, Fraction]:
    """The first difference and those that are not positive too often, their multiples, and how often others are not."""
    most = behind.most
    by_share = np.argsort(most[1:]) + 1
    is_left_out = np.cumsum(most[by_share]) <= left_out
    others, kept = by_share[is_left_out], np.append(0, np.sort(by_share[~is_left_out]))
    share = sum((Fraction(float(most[i])) for i in others), Fraction(0))
    return behind.order[kept], behind.multiple[kept], share


def _sides(behind: Behind) -> tuple[np.ndarray, np.ndarray, Fraction]:
    """Neurons that are taken as on, and as either, and at most on what share of the inputs some other one changes."""
    least = np.minimum(behind.on, behind.off)
    by_share = np.argsort(least)
    is_settled = np.zeros(len(least), dtype=bool)
    is_settled[by_share[np.cumsum(least[by_share]) <= CROSSING]] = True
    is_settled[-1] = True
    crossing = sum((Fraction(float(x)) for x in least[is_settled]), Fraction(0))
    return is_settled & (behind.off <= behind.on), ~is_settled, crossing
