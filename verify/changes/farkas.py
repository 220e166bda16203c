"""No readout can be right: a combination of inputs with positive weights whose vectors add up to nothing.

A readout X is right on an input with hidden numbers h, right class y and rival c where a . X > 0, a = (h, 1) in the
column y and -(h, 1) in the column c. If sum w_i a_i = 0 with all w_i > 0, no X is right on all these inputs, since
sum w_i (a_i . X) = 0 is no sum of positive numbers (Gordan). Positive multiples of the a_i do as well: with softmax
each is taken times its normaliser D. A float solver proposes the inputs; the weights are solved for again: in
rationals, where rational ones make the multiple of every independent number 0 (with softmax that of each e^x); in
numbers u + v sqrt(d) with rational u and v, where the vectors hold these; else in balls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat
from scipy.optimize import linprog

from verify.arithmetic.exact_reals import ONE, SQRT, Basis, Combination, Key, rational
from verify.arithmetic.slack import Array
from verify.changes.changeable import Changeable, Questions

BITS = 4096  # that hold products of stored numbers exactly, and show the signs of other ones
EXACT, WITH_ROOTS, IN_BALLS = "in rationals", "in rationals and roots", "in balls"


@dataclass(frozen=True)
class NullCombination:
    """Inputs with their rivals, and positive weights with which their vectors add up to nothing.

    `weights` are exact; or the middles of balls that hold the true ones, all of them positive.
    """

    questions: Questions
    rival: np.ndarray
    weights: tuple[fmpq | Combination, ...]
    checked: str

    def to_dict(self) -> dict[str, object]:
        rows = zip(self.questions.tokens.tolist(), self.questions.position.tolist(), self.questions.right.tolist(),
                   self.rival.tolist(), self.weights, strict=True)  # fmt: skip
        terms = [
            {"input": tokens, "position": position, "right": right, "rival": rival, "weight": str(weight)}
            for tokens, position, right, rival, weight in rows
        ]
        return {"checked": self.checked, "inputs": terms}


def proposed(rows: Array) -> np.ndarray | None:
    """Weights of these vectors (m, n) that make their sum nothing in floats, few of them not 0; None where none do."""
    with np.errstate(invalid="ignore"):
        scaled = rows / np.abs(rows).max(0, initial=1e-300)
        scaled = scaled / np.abs(scaled).max(1, keepdims=True)
    if not np.isfinite(scaled).all():
        return None
    m, n = scaled.shape
    found = linprog(
        np.zeros(m), A_eq=np.vstack([scaled.T, np.ones(m)]), b_eq=np.append(np.zeros(n), 1.0), bounds=(0, None),
        method="highs-ds", options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    return None if found.status != 0 else np.asarray(found.x)


def shown(
    changeable: Changeable, questions: Questions, rival: np.ndarray, weights: np.ndarray
) -> NullCombination | None:
    """The combination of the questions whose proposed weights are not 0, where it can be shown to be one."""
    support = np.flatnonzero(weights > 0)
    if not len(support):
        return None
    chosen, against = questions[support], rival[support]
    asked = [(t, int(i)) for t, i in zip(chosen.tokens, chosen.position, strict=True)]
    used = sorted({int(c) for c in (*chosen.right.tolist(), *against)})
    sides = zip(chosen.right.tolist(), against.tolist(), strict=True)
    signs = [[(c == y) - (c == r) for c in used[:-1]] for y, r in sides]
    checked, terms = EXACT, [changeable.terms(*at) for at in asked]
    known = [of for of in terms if of is not None]
    found: list[fmpq] | list[Combination] | None = None
    if len(known) == len(terms):
        found = solved_exactly(_by_terms(known, signs))
        if found is None and changeable.root > 1:
            checked, found = WITH_ROOTS, solved_with_roots(_with_roots(known, signs), changeable.root)
    if found is None:
        checked = IN_BALLS
        hidden = [changeable.enclosed(*at, BITS) for at in asked]
        with ctx.workprec(BITS):  # else a sign that is turned rounds a ball
            rows = [[x * sign for sign in of for x in h] for h, of in zip(hidden, signs, strict=True)]
        found = solved_in_balls(rows)
    if found is None:
        return None
    keep = np.flatnonzero([weight.sign() > 0 if isinstance(weight, Combination) else weight > 0 for weight in found])
    return NullCombination(chosen[keep], against[keep], tuple(found[i] for i in keep), checked)


def _by_terms(numbers: Sequence[Sequence[dict[Key, fmpq]]], signs: Sequence[Sequence[int]]) -> list[list[fmpq]]:
    """The vectors of inputs by the rational multiples that their numbers are, class by class but for the last.

    The columns of a vector add up to 0, so that the last one is nothing where the others are. Each input's numbers are
    the hidden ones times a positive number of its own, which changes the weights and not whether there are any.
    """
    places = list(dict.fromkeys((j, key) for of in numbers for j, terms in enumerate(of) for key in terms))
    return [
        [of[j].get(key, fmpq(0)) * sign for sign in own for j, key in places]
        for of, own in zip(numbers, signs, strict=True)
    ]


def solved_exactly(rows: Sequence[Sequence[fmpq]]) -> list[fmpq] | None:
    """Weights w >= 0, not all 0, with sum w_i rows_i = 0, exactly; None where there is not just one ray of solutions.

    >>> solved_exactly([[fmpq(1), fmpq(0)], [fmpq(-2), fmpq(0)]])
    [2/3, 1/3]
    """
    m, n = len(rows), len(rows[0])
    entries = [rows[i][j] for j in range(n) for i in range(m)]
    reduced, rank = fmpq_mat(n, m, entries).rref()
    if rank != m - 1:
        return None
    pivots = [next(j for j in range(m) if reduced[i, j] != 0) for i in range(rank)]
    (free,) = set(range(m)) - set(pivots)
    w = [fmpq(0)] * m
    w[free] = fmpq(1)
    for i, pivot in enumerate(pivots):
        w[pivot] = -reduced[i, free]
    total = sum(w, fmpq(0))
    w = [x / total for x in w] if total != 0 else w
    return w if is_nothing(rows, w) else None


WithRoot = tuple[fmpq, fmpq]  # u + v sqrt(d)


def _with_roots(
    numbers: Sequence[Sequence[dict[Key, fmpq]]], signs: Sequence[Sequence[int]]
) -> list[list[WithRoot]] | None:
    """The vectors of inputs as `_by_terms` has them, in numbers u + v sqrt(d); None where they hold others."""
    if any(key not in (ONE, SQRT) for of in numbers for terms in of for key in terms):
        return None
    zero = fmpq(0)
    return [
        [(terms.get(ONE, zero) * sign, terms.get(SQRT, zero) * sign) for sign in own for terms in of]
        for of, own in zip(numbers, signs, strict=True)
    ]


def solved_with_roots(rows: Sequence[Sequence[WithRoot]] | None, d: int) -> list[Combination] | None:
    """As `solved_exactly`, for vectors and weights of numbers u + v sqrt(d), where no rational weights do.

    (u + v sqrt(d)) (r + s sqrt(d)) is 0 exactly where u r + d v s and u s + v r are. Of the weights on one ray, those
    are taken whose last is 1.

    >>> one, zero = fmpq(1), fmpq(0)
    >>> print(*solved_with_roots([[(zero, one)], [(-one, zero)]], 2))  # sqrt(2) and -1
    1/2*sqrt(2) 1
    """
    if rows is None:
        return None
    m, n, k = len(rows), len(rows[0]), 2 * len(rows) - 2
    entries = [x for j in range(n) for x in (*_interleaved(rows, j, d, 0), *_interleaved(rows, j, d, 1))]
    reduced, rank = fmpq_mat(2 * n, 2 * m, entries).rref()
    if rank != k or any(reduced[i, i] != 1 for i in range(k)):
        return None
    weights = [(-reduced[2 * i, k], -reduced[2 * i + 1, k]) for i in range(m - 1)] + [(fmpq(1), fmpq(0))]
    found = [Combination(Basis(d, False), {ONE: u, SQRT: v}) for u, v in weights]
    sums = [
        (sum((u * row[j][0] + d * v * row[j][1] for (u, v), row in zip(weights, rows, strict=True)), fmpq(0)),
         sum((u * row[j][1] + v * row[j][0] for (u, v), row in zip(weights, rows, strict=True)), fmpq(0)))
        for j in range(n)
    ]  # fmt: skip
    return found if min(w.sign() for w in found) >= 0 and not any(map(any, sums)) else None


def _interleaved(rows: Sequence[Sequence[WithRoot]], j: int, d: int, part: int) -> list[fmpq]:
    """What u and v of each weight are multiplied by in coordinate j: for the rational part 0, or that of sqrt(d), 1."""
    return [x for row in rows for x in ((row[j][0], d * row[j][1]) if part == 0 else (row[j][1], row[j][0]))]


def is_nothing(rows: Sequence[Sequence[fmpq]], w: Sequence[fmpq]) -> bool:
    """Whether w >= 0 is not 0, and the vectors with these weights add up to nothing, exactly."""
    sums = [sum((x * row[j] for x, row in zip(w, rows, strict=True)), fmpq(0)) for j in range(len(rows[0]))]
    return min(w) >= 0 and max(w) > 0 and not any(sums)


def solved_in_balls(rows: Sequence[Sequence[arb]]) -> list[fmpq] | None:
    """As `solved_exactly` for vectors in general position: one more of them than there are coordinates.

    Coordinates that are 0 in all of them are left out. The square system for the other weights, with the last one 1, is
    solved in balls: they hold the one solution for each matrix in the balls given, and must lie above 0.
    """
    m = len(rows)
    kept = [j for j in range(len(rows[0])) if not all(row[j] == 0 for row in rows)]
    if len(kept) != m - 1:
        return None
    with ctx.workprec(BITS):
        matrix = arb_mat([[rows[i][j] for i in range(m - 1)] for j in kept])
        right = arb_mat([[-rows[m - 1][j]] for j in kept])
        try:
            solution = matrix.solve(right)
        except ZeroDivisionError:
            return None
        weights = [solution[i, 0] for i in range(m - 1)]
        if not all(w > 0 for w in weights):
            return None
        return [*(rational(float(w.mid())) for w in weights), fmpq(1)]
