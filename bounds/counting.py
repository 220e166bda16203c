"""What every counting construction has to state: the scalar per count, its separation, and the sizes it needs."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

T, L, k = sympy.symbols("T L k", integer=True, positive=True)


@dataclass(frozen=True)
class CountingBound:
    """Formulas of one construction in T, L and the count k.

    `gamma` is the sum of the hidden neurons at count k, `off` an upper bound on the pre-activation of every
    neuron that must stay off (None where there is none), `separation` the smallest distance between the
    gammas of two counts (for L >= 2), `d` and `p` the sizes that suffice. `printed` is the document's gamma
    where it differs.
    """

    gamma: sympy.Expr
    separation: sympy.Expr
    d: sympy.Expr
    p: sympy.Expr
    off: sympy.Expr | None = None
    printed: sympy.Expr | None = None

    def at(self, expression: sympy.Expr, **values: int) -> sympy.Expr:
        """The exact value of one of the formulas, for example at(bound.gamma, T=32, L=10, k=3)."""
        return expression.subs({T: values.get("T", T), L: values.get("L", L), k: values.get("k", k)})
