"""Small cases of W-16 to W-18 by exhaustive search over patterns: every one is decided in exact rationals.

Each pattern leaves a system of linear inequalities. A rational solution says that the argument's inequalities leave
this pattern open, Farkas' multipliers that they exclude it: theory and enumeration must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, permutations, product

from verify.arithmetic.linear_programs import Farkas, Row, decide_system

Neurons = frozenset[int]


@dataclass(frozen=True)
class Searched:
    """How many patterns were decided, and what the search found out."""

    patterns: int
    found: object


def largest_family(p: int) -> Searched:
    """The most tokens whose sets of active neurons can all differ enough, by search over all families of sets (W-16).

    >>> [largest_family(p).found for p in (1, 2)]
    [1, 3]
    """
    sets = [frozenset(one) for size in range(p + 1) for one in combinations(range(p), size)]
    patterns, compatible = 0, set()
    for S, R in combinations_with_replacement(sets, 2):
        decided = list(_segments(S, R, p))
        patterns += len(decided)
        if any(decided):
            compatible |= {(S, R), (R, S)}
    most, together = 0, [frozenset[Neurons]()]
    while together:  # families grow by one set at a time; a set that suits itself would grow for ever
        most = max(map(len, together))
        if any((S, S) in compatible for S in sets):
            raise AssertionError("two tokens with the same neurons pass, which the argument excludes")
        together = list({
            family | {S} for family in together for S in sets
            if S not in family and all((S, R) in compatible for R in family)
        })  # fmt: skip
    return Searched(patterns, most)


def _segments(S: Neurons, R: Neurons, p: int) -> Iterator[bool]:
    """For every pattern between a_t (neurons S) and a_s (neurons R): whether class L can lose to class 1 between them.

    A pattern says which changing neurons are on at a_t + x (a_s - a_t), and the sign of each one's readout. With
    f = (logit of L) - (logit of 1), times 1 - x at a_t and x at a_s, all conditions are linear: what is always on adds
    B0, B1 at the ends and B0 + B1 between; a falling neuron adds y and between v from 0 to y; a rising one z and w.
    """
    changing = [i for i in range(p) if (i in S) != (i in R)]
    is_affine_free = bool(S & R)
    for is_on in product((False, True), repeat=len(changing)):
        for sign in product((1, -1), repeat=len(changing)):
            for bias in (0,) if is_affine_free else (1, -1):
                yield not isinstance(decide_system(*_system(changing, S, is_on, sign, bias)), Farkas)


def _system(
    changing: list[int], S: Neurons, is_on: tuple[bool, ...], sign: tuple[int, ...], bias: int
) -> tuple[list[Row], list[int]]:
    """The inequalities A x >= b of one pattern; x holds B0, B1 and two numbers for each changing neuron."""
    n = 2 + 2 * len(changing)
    rows: list[Row] = []
    right: list[int] = []

    def ask(coefficients: dict[int, int], least: int) -> None:
        rows.append([coefficients.get(j, 0) for j in range(n)])
        right.append(least)

    at_t, at_s, between = {0: 1}, {1: 1}, {0: -1, 1: -1}
    for j, neuron in enumerate(changing):
        end, middle = 2 + 2 * j, 3 + 2 * j
        (at_t if neuron in S else at_s)[end] = 1
        ask({end: sign[j]}, 0)
        ask({middle: sign[j]}, 0)
        ask({end: sign[j], middle: -sign[j]}, 0)
        if is_on[j]:
            between[middle] = -1
        else:
            ask({middle: -sign[j]}, 0)
    ask(at_t, 1)
    ask(at_s, 1)
    ask(between, 0)  # class L does not win strictly there: a tie is allowed, and still is no way out
    if bias:  # nothing is always on: both ends hold the same bias, in an unknown ratio
        ask({0: bias}, 0)
        ask({1: bias}, 0)
    return rows, right


def orders_of_counts(T: int, L: int) -> Searched:
    """The orders of the counts 1..L on one neuron's line that a token's readings allow, and whether they are even.

    A reading is a constant less the sum of D_s over the L - k slots that hold other tokens s. `found` lists the orders
    for which some D separates all counts, each of which makes (L-1) min|D| > (L-2) max|D| (steps 1 and 2 of W-17).

    >>> orders_of_counts(3, 3)
    Searched(patterns=6, found=((1, 2, 3), (3, 2, 1)))
    """
    allowed = []
    for order in permutations(range(1, L + 1)):
        rows = _separations(order, T - 1, L)
        if isinstance(decide_system(rows, [1] * len(rows)), Farkas):
            continue
        allowed.append(order)
        sign = 1 if order[0] == 1 else -1  # D > 0 where the reading grows with the count
        for s, r in product(range(T - 1), repeat=2):
            uneven = [sign * ((L - 2) * (j == s) - (L - 1) * (j == r)) for j in range(T - 1)]
            if not isinstance(decide_system([*rows, uneven], [1] * len(rows) + [0]), Farkas):
                raise AssertionError(f"the order {order} allows uneven D, which the argument excludes")
    return Searched(len(list(permutations(range(L)))), tuple(allowed))


def _separations(order: tuple[int, ...], S: int, L: int) -> list[Row]:
    """The differences of readings of neighbouring counts in this order, for all multisets of other tokens."""
    rows: list[Row] = []
    for low, high in zip(order, order[1:], strict=False):
        for fewer in combinations_with_replacement(range(S), L - low):
            for more in combinations_with_replacement(range(S), L - high):
                rows.append([fewer.count(s) - more.count(s) for s in range(S)])
    return rows


def kernel_signs(T: int, L: int) -> Searched:
    """The numbers of positive entries for which some u that sums to 0 has (2L-2)|u_t| < sum|u| for all t.

    By W-17 and W-18 such a u exists where d = T - 2 is not excluded: iff L - 1 < floor(T/2). `found` says which signs
    leave one, up to renaming tokens.

    >>> kernel_signs(4, 2), kernel_signs(4, 3)
    (Searched(patterns=3, found=(2,)), Searched(patterns=3, found=()))
    """
    found = []
    for plus in range(1, T):
        signs = [1] * plus + [-1] * (T - plus)
        rows: list[Row] = [[int(j == t) for j in range(T)] for t in range(T)]  # |u_t| >= 0
        rows += [signs, [-x for x in signs]]  # the sum is 0
        rows += [[1 - (2 * L - 2) * (j == t) for j in range(T)] for t in range(T)]
        if not isinstance(decide_system(rows, [0] * (T + 2) + [1] * T), Farkas):
            found.append(plus)
    return Searched(T - 1, tuple(found))
