"""How far a row's unequal weights take logit differences from where one weight for all slots puts them, on most inputs.

Let the slots' weights be a + x_s, with one a for the row. A form is then off by e_i, the shift of its position plus the
sum of x_s v_i(token of slot s), and ReLU(z_i) by a share of e_i between 0 and 1: all of it for a neuron that is on, and
half of e_i up to half of |e_i| for one that may be either. So a difference with readout d is off by a linear form of
the tokens, its mean over all inputs and what varies, and by at most 1/2 sum |d_i| |e_i| over those that may be either,
where |e_i| is at most the absolute value of its mean and that of what varies.

Tokens are independent but for which slots hold the query token, and all choices of these are equally likely. So even
moments of a sum over slots are known exactly, roots of the same moment add up at most, and by Markov's inequality a
number is, in absolute terms, above a multiple of such a root, TIMES, on at most RARELY of the inputs. The less of two
multiples holds as well: that of the sixteenth moment is less for most laws, that of the eighth where rounding, of which
the root is taken too, is not far less than the moment.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial

import numpy as np

from verify.arithmetic.slack import FAINT, INFLATION, gamma
from verify.tasks.histogram.stored import Array
from verify.tasks.histogram.tabulating import UNDERFLOW, CountReadout, Table

TIMES = {8: Fraction(7, 2), 16: Fraction(15, 8)}  # roots of which moment
MOMENT = max(TIMES)
RARELY = max(times**-moment for moment, times in TIMES.items())  # 0.00004


def usual_radius(table: Table, readout: CountReadout, is_on: np.ndarray, is_bent: np.ndarray) -> Array:
    """What each difference (C - 1,) is off by, but for RARELY of each position's inputs, for one group of slots.

    Neurons that are neither on nor bent are off, and D counts as on.
    """
    x, values, shifts = table.slots.away[0], table.values, table.shifts
    own, n = readout.k - 1, table.stored.L - readout.k
    linear = readout.d * is_on + readout.d * is_bent / 2  # (C - 1, r)
    bent, d_bent = values[:, is_bent], np.abs(readout.d[:, is_bent]) / 2
    q = values @ linear.T  # (S + 1, C - 1)
    mean, of_q, of_bent = (_mean(v, own, n) for v in (values, q, bent))
    drift = x.sum(1, keepdims=True)  # (positions, 1)
    away = np.abs(shifts @ linear.T + drift * of_q)  # (positions, C - 1)
    away += np.abs(shifts[:, is_bent] + drift * of_bent) @ d_bent.T
    of_linear, of_sizes = roots_of_moments(q - of_q, x, own), roots_of_moments(bent - of_bent, x, own)
    varies = [float(times) * (of_linear[moment] + of_sizes[moment] @ d_bent.T) for moment, times in TIMES.items()]
    found = (away + np.minimum.reduce(varies)).max(0)
    size = np.abs(shifts).max(0) + np.abs(x).sum(1).max() * 8 * (np.abs(values).max(0) + np.abs(mean))
    rounding = 8 * gamma(4 * len(x[0]) + 4 * len(size) + len(values) + 40) * (np.abs(readout.d) @ size)
    lost = UNDERFLOW[np.float64] * (len(size) + np.abs(readout.d).sum(1) + size.sum()) * (1 + np.abs(x).sum())
    result: Array = (found + rounding + lost + readout.error[:, 0]) * INFLATION
    return np.where(np.isfinite(result), result, np.inf)


def _mean(values: Array, own: int, n: int) -> Array:
    """The mean of values (S + 1, m) over a slot's tokens, where `own` of own + n slots hold the last one."""
    result: Array = (n * values[:-1].mean(0) + own * values[-1]) / (own + n)
    return result


def roots_of_moments(values: Array, x: Array, own: int) -> dict[int, Array]:
    """Bounds the roots (positions, m) of even moments of sums of x (positions, slots) times values (S + 1, m).

    `own` of the slots, any of them, hold the last value, and each other one any of the rest. Numbers are divided by
    their largest, so that all sums are at most 1, and rounding is absolute. Moments are kept divided by factorials.
    """
    size = np.abs(x).sum(1, keepdims=True)
    scaled = np.divide(x, size, out=np.zeros_like(x), where=size > 0)
    largest = np.abs(values).max(0)
    unit = np.divide(values, largest, out=np.zeros_like(values), where=largest > 0)
    orders = range(MOMENT + 1)
    others, of_own = (
        np.array([(rows**j).mean(0) / factorial(j) for j in orders]) for rows in (unit[:-1], unit[-1:])
    )  # (orders, m)
    found = np.zeros((own + 1, MOMENT + 1, len(x), values.shape[1]))  # by how many slots have held the last value
    found[0, 0] = 1.0
    for slot in scaled.T:
        powers = np.array([slot**j for j in orders])[:, :, None]
        by_others, by_own = powers * others[:, None], powers * of_own[:, None]
        before, found = found, np.zeros_like(found)
        for i in orders:
            found[:, i:] += before[:, : MOMENT + 1 - i] * by_others[i]
            found[1:, i:] += before[:-1, : MOMENT + 1 - i] * by_own[i]
    slots = x.shape[1]
    rounding = gamma(slots * (len(values) + 8 * MOMENT) + 200)
    result = {}
    for moment in TIMES:
        most = np.maximum(found[own, moment] / comb(slots, own) * factorial(moment), 0.0) + rounding
        for _ in range(moment.bit_length() - 1):
            most = np.sqrt(most)
        result[moment] = (most * (size * largest) + FAINT) * INFLATION
    return result
