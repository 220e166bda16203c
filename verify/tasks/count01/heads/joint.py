"""Whether several heads together separate n1 > n0 from n1 <= n0 on the triples of a law, with a certificate.

D differs from head to head, so no small set of corners decides: constraints are generated. A linear programme on some
triples proposes a separator, the triples it gets wrong join them, until none is wrong or the programme has no
solution; then its dual names at most d + 2 triples that rule every separator out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, arb_mat, ctx, fmpq
from numpy.typing import NDArray

from constructions.maximin import maximin
from verify.arithmetic.slack import Array
from verify.tasks.count01.heads.everywhere import positive_polynomial, spread_triples
from verify.tasks.count01.heads.separability import Separability, separated
from verify.tasks.count01.layer_norm.accuracy import positive
from verify.tasks.count01.layer_norm.laws import JudgedTriples, Law
from verify.tasks.count01.layer_norm.numbers import SEEN, HeadNumbers, ModelNumbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.layer_norm.tables import Differences, KeptTables, column, corners
from verify.tasks.count01.task import EQUALS, Triple

JOINT_SEPARATOR, JOINT_GORDAN = "joint separator", "joint gordan"
ROUNDS = 60
ADDED = 24  # triples that join in one round
DIGITS = 192
LEAST = 1e-11  # the least product of a separator that is more than the noise of a programme


def joint(model: ModelNumbers, heads: Sequence[int], law: Law, single: Sequence[Separability]) -> Separability:
    """Decides a subset; `single` are the decisions of the heads alone: one that separates is enough.

    >>> from constructions.count01 import documents
    >>> from verify.tasks.count01.heads.separability import separability
    >>> from verify.tasks.count01.layer_norm.laws import law_named
    >>> from verify.tasks.count01.layer_norm.numbers import model_numbers
    >>> numbers, law = model_numbers(documents(5)), law_named("box:0:9:9")
    >>> joint(numbers, [0], law, [separability(head, law) for head in numbers.heads]).is_separable
    True
    """
    return Joint(model, law, single).decide(heads)


class Joint:
    """The subsets of one model's heads under one law: what several of them need is computed once."""

    def __init__(self, model: ModelNumbers, law: Law, single: Sequence[Separability]) -> None:
        self.model, self.law, self.single = model, law, single
        self.outputs = HeadOutputs(model, spread_triples() if law.is_unbounded else law)

    def decide(self, heads: Sequence[int]) -> Separability:
        """Whether these heads together separate."""
        for h in heads:
            if self.single[h].is_separable:
                return _alone(self.model, heads, h, self.single[h])
        if len(heads) == 1:
            return self.single[heads[0]]
        if not any(self.model.heads[h].d_h for h in heads):
            return Separability(None, None, reason="no head has a dimension")
        found = _generated(self.outputs, heads)
        if not self.law.is_unbounded or found.is_separable is False:
            return found
        return positive_polynomial([self.model.heads[h] for h in heads], heads)


def _alone(model: ModelNumbers, heads: Sequence[int], h: int, found: Separability) -> Separability:
    """The separator of one head, the others with weight zero."""
    return Separability(True, {"kind": "one head", "head": h, "certificate": found.certificate}, found.w, found.b)


@dataclass(frozen=True)
class Features:
    """The heads' outputs on all triples, shifted and mixed so that floats serve: (outputs - shift) @ mix, then 1."""

    values: Array
    shift: tuple[Fraction, ...]
    mix: Array

    def separator(self, x: Array) -> tuple[list[Fraction], Fraction]:
        """(w, b) over the heads' own outputs of a separator over the features, exactly."""
        w = [
            sum((Fraction(float(m)) * Fraction(float(v)) for m, v in zip(row, x[:-1], strict=True)), Fraction(0))
            for row in self.mix
        ]
        b = Fraction(float(x[-1])) - sum((a * s for a, s in zip(w, self.shift, strict=True)), Fraction(0))
        return w, b


@dataclass(frozen=True)
class Output:
    """One head's outputs on all triples, less a shift that makes their means about 0; NaN beyond floats."""

    values: Array
    shift: tuple[Fraction, ...]


class HeadOutputs:
    """The outputs of each head of a model on the triples of a law."""

    def __init__(self, model: ModelNumbers, law: JudgedTriples) -> None:
        self.model, self.law = model, law
        self._corners, self._kept = corners(law.counts), KeptTables[Output]()

    def of(self, h: int) -> Output:
        head = self.model.heads[h]
        return self._kept.get(h, head.d_h * len(self.law.counts), lambda: self._output(head))

    def _output(self, head: HeadNumbers) -> Output:
        values, shift = np.empty((len(self.law.counts), head.d_h)), []
        for k in range(head.d_h):
            found = column(head, [head.values[t][k] for t in SEEN], self.law.counts, self._corners)
            values[:, k] = np.nan_to_num(found.values)
            with np.errstate(over="ignore"):
                middle = float(values[:, k].mean())
            centre = found.centre.nearest()
            if math.isfinite(centre) and math.isfinite(middle):
                shift.append(Fraction(centre) + Fraction(middle))
                values[:, k] -= middle
            else:
                shift.append(Fraction(0))
                values[:, k] = np.nan
        return Output(values, tuple(shift))


def features(outputs: HeadOutputs, heads: Sequence[int]) -> Features | None:
    """The features of a subset: outputs of unit size and, as far as floats go, orthogonal; None beyond floats."""
    found = [outputs.of(h) for h in heads]
    if not all(np.isfinite(output.values).all() for output in found):
        return None
    raw = np.concatenate([output.values for output in found], axis=1)
    scale = np.maximum(np.abs(raw).max(axis=0), 1e-300)
    _, sizes, turned = np.linalg.svd((raw / scale)[:: max(1, len(raw) // 20000)], full_matrices=False)
    sizes = np.maximum(sizes, max(sizes[0] * 1e-12, 1e-300))
    with np.errstate(all="ignore"):
        mix = (turned.T / sizes * np.sqrt(len(raw))) / scale[:, None]
        mixed = raw @ mix
    if not (np.isfinite(mixed).all() and np.isfinite(mix).all()):
        return None
    shift = tuple(x for output in found for x in output.shift)
    return Features(np.concatenate([mixed, np.ones((len(mixed), 1))], axis=1), shift, mix)


def _generated(outputs: HeadOutputs, heads: Sequence[int]) -> Separability:
    """Constraint generation over the triples; on all of N^3, over a spread of them, of which only a no counts."""
    model, law = outputs.model, outputs.law
    found, due = features(outputs, heads), law.has_more_ones
    if found is None:
        return Separability(None, None, reason="the heads' outputs are beyond what floats compare")
    turned = found.values * np.where(due, 1.0, -1.0)[:, None]
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    active = _first(turned)
    for _ in range(ROUNDS):
        x, support = _programme(turned[active] / lengths[active])
        if x is None:
            certificate = _gordan(model, heads, law, active[support])
            return Separability(False, certificate) if certificate else _unconfirmed("no separator was found")
        products = turned @ x
        worst = np.argpartition(products, min(ADDED, len(products) - 1))[:ADDED]
        if products[worst].min() > 0:
            w, b = found.separator(x)
            if is_separator(model, heads, law, w, b):
                return separated(_certificate(model, heads, w, b), [*w, b])
        joined = np.union1d(active, worst[products[worst] <= 1e-9])
        if len(joined) == len(active):
            return _unconfirmed("a separator was found and could not be confirmed")
        active = joined
    return _unconfirmed(f"neither was confirmed in {ROUNDS} rounds")


def _unconfirmed(reason: str) -> Separability:
    return Separability(None, None, reason=f"{reason}; the triples are too close to the boundary for its floats")


def _first(turned: Array) -> NDArray[np.int64]:
    """The triples that are extreme in each feature, and some between."""
    extreme = [f(turned[:, k]) for k in range(turned.shape[1]) for f in (np.argmin, np.argmax)]
    return np.unique(np.concatenate([extreme, np.linspace(0, len(turned) - 1, 200).astype(np.int64)])).astype(np.int64)


def _programme(rows: Array) -> tuple[Array | None, NDArray[np.int64]]:
    """A separator of these rows with the largest least product, or None and the rows of a dual solution."""
    found = maximin(rows)
    if found is not None and found[1] > LEAST:
        return found[0], np.empty(0, dtype=np.int64)
    from scipy.optimize import linprog  # which takes as long to load as a whole command

    n, size = rows.shape
    # max t with rows x >= t, |x| <= 1
    answer = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.concatenate([-rows, np.ones((n, 1))], axis=1),
        b_ub=np.zeros(n),
        bounds=[(-1, 1)] * size + [(None, 1)],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status == 0 and -answer.fun > LEAST:
        return answer.x[:-1], np.empty(0, dtype=np.int64)
    # lambda >= 0 with sum lambda row = 0, sum lambda = 1: a basic solution has at most size + 1 rows
    dual = linprog(
        np.zeros(n),
        A_eq=np.concatenate([rows.T, np.ones((1, n))]),
        b_eq=np.append(np.zeros(size), 1.0),
        bounds=(0, None),
        method="highs-ds",
    )
    if dual.status != 0:
        return (answer.x[:-1] if answer.status == 0 else None), np.empty(0, dtype=np.int64)
    return None, np.flatnonzero(dual.x > 0)


def is_separator(
    model: ModelNumbers, heads: Sequence[int], law: JudgedTriples, w: Sequence[Fraction], b: Fraction
) -> bool:
    """Whether w . r + b has the sign of n1 - n0 - 1/2 on every triple of the law, digits included."""
    numbers, start = [], 0
    for h in heads:
        head = model.heads[h]
        part = [fmpq(x.numerator, x.denominator) for x in w[start : start + head.d_h]]
        start += head.d_h
        numbers.append(HeadNumbers(head.scores, head.values, [[_product(part, v)] for v in head.values]))
    scored = ModelNumbers(tuple(numbers), {EQUALS: [fmpq(b.numerator, b.denominator)]})
    answers = positive(Differences(scored, law.counts, 0, None), range(len(heads)), law)
    return bool(answers.right.all()) and not answers.open


def _product(w: Sequence[fmpq], v: Sequence[Surd]) -> Surd:
    out = Surd({})
    for a, x in zip(w, v, strict=True):
        out = out + Surd.rational(a) * x
    return out


def _certificate(model: ModelNumbers, heads: Sequence[int], w: Sequence[Fraction], b: Fraction) -> dict[str, object]:
    parts, start = [], 0
    for h in heads:
        parts.append([str(x) for x in w[start : start + model.heads[h].d_h]])
        start += model.heads[h].d_h
    return {"kind": JOINT_SEPARATOR, "heads": list(heads), "w": parts, "b": str(b)}


def _gordan(
    model: ModelNumbers, heads: Sequence[int], law: JudgedTriples, support: NDArray[np.int64]
) -> dict[str, object] | None:
    """The triples of a combination that rules every separator out, once balls show its signs."""
    triples = [(a, b, c) for a, b, c in law.triples[support].tolist()]
    more = law.has_more_ones[support].tolist()
    size = sum(model.heads[h].d_h for h in heads) + 1
    if len(triples) != size + 1:
        return None
    shares = combination(model, heads, triples, more)
    if shares is None:
        return None
    return {
        "kind": JOINT_GORDAN,
        "heads": list(heads),
        "rows": [list(n) for n in triples],
        "more_ones": more,
        "shares": shares,
    }


def combination(
    model: ModelNumbers, heads: Sequence[int], triples: Sequence[Triple], more: Sequence[bool]
) -> list[float] | None:
    """The positive shares with which the turned outputs (r, 1) of d + 2 triples add up to zero; None if not shown.

    The outputs and -1 times their sides are solved for in balls; the combination is unique up to its length.
    """
    for bits in (DIGITS, 4 * DIGITS, 16 * DIGITS):
        with ctx.workprec(bits):
            rows = [outputs(model, heads, n, bits) for n in triples]
            turned = [
                [x * (1 if is_more else -1) for x in (*row, arb(1))] for row, is_more in zip(rows, more, strict=True)
            ]
            try:
                solved = arb_mat(turned[:-1]).transpose().solve(arb_mat([[-x] for x in turned[-1]]))
            except ZeroDivisionError:
                continue
            found = [solved[i, 0] for i in range(len(triples) - 1)]
            if all(x > 0 for x in found):
                whole = sum(found, arb(1))
                return [float((x / whole).mid()) for x in (*found, arb(1))]
            if any(x < 0 for x in found):
                return None
    return None


def outputs(model: ModelNumbers, heads: Sequence[int], n: Triple, bits: int) -> list[arb]:
    """The heads' outputs on one triple, one after the other."""
    out = []
    for h in heads:
        head = model.heads[h]
        w = [head.weight(t, EQUALS, bits) * k for t, k in zip(SEEN, (1, *n, 1), strict=True)]
        D = sum(w, arb(0))
        for k in range(head.d_h):
            values = (head.values[t][k].ball(bits) for t in SEEN)
            out.append(sum((x * v for x, v in zip(w, values, strict=True)), arb(0)) / D)
    return out
