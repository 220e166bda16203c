"""The documents' exact weights, with e as a symbol, as a model the exact procedure can decide."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from bounds import count01 as bounds
from verify.arithmetic.exact_reals import Combination, exponentials
from verify.tasks.count01.real import ExactModel
from verify.tasks.count01.task import EQUALS, FIVE, FOUR


def symbolic_model(N: int, labels: str, skip: bool = True) -> ExactModel:
    """The exact weights of `bounds.count01.tables`: logits are multiplied by 1 + e > 0, which clears a.

    >>> from verify.tasks.count01.real import largest_noise
    >>> largest_noise(symbolic_model(10, "majority-ones"), "majority-ones", max_digits=None)
    1497
    """
    tables = bounds.tables(N, labels, skip)
    embedding = [Fraction(int(x)) for x in tables["E"]]
    scale = exponentials({0: 1, 1: 1})
    W_out = [scale * Fraction(int(w)) for w in tables["W_out"]]
    b_out = [scaled(b) for b in tables["b_out"]]
    queries = (EQUALS, FOUR, FIVE)
    return ExactModel(
        classes=len(b_out),
        scores=({last: [embedding[last] * x for x in embedding] for last in queries},),
        values=([[w * x for w in W_out] for x in embedding],),
        constant={
            last: [b + (w * embedding[last] if skip else 0) for w, b in zip(W_out, b_out, strict=True)]
            for last in queries
        },
        scale=scale,
    )


def scaled(x: sp.Expr) -> Combination:
    """(1 + e) x as a sum of powers of e."""
    polynomial = sp.Poly(sp.cancel(sp.sympify(x) * (1 + sp.E)), sp.E)
    return exponentials({k: Fraction(int(c.p), int(c.q)) for (k,), c in polynomial.terms()})
