"""One-dimensional heads with given attention ratios, BOS and "=" zeroed: the verdict of the linear programme."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from flint import arb, ctx

from verify.arithmetic.exact_reals import Combination, exponentials
from verify.tasks.count01.heads.separability import confirmed, ruled_out
from verify.tasks.count01.layer_norm.cone import Constraints, dependencies, rays_of, whitened
from verify.tasks.count01.layer_norm.laws import Law


class Intervened:
    """A head whose weights of 0, 1, 2 are set to rationals and whose BOS and "=" weigh nothing (D, Sec. 5.4)."""

    def __init__(self, weights: Sequence[Fraction], values: Sequence[Fraction]) -> None:
        self.lines = [[w * v, w] for w, v in zip(weights, values, strict=True)]

    def balls(self, bits: int) -> list[list[arb]]:
        with ctx.workprec(bits):
            lines = [[arb(x.numerator) / x.denominator for x in line] for line in self.lines]
            return [[arb(0), arb(0)], *lines]

    def sums(self) -> list[list[Combination]]:
        return [[exponentials({0: 0})] * 2, *([exponentials({0: x}) for x in line] for line in self.lines)]


def decided(w01: Fraction, w02: Fraction | None, values: Sequence[Fraction], law: Law) -> bool:
    """Decides by the linear programme whether a head with these ratios separates a law's triples; w02 None is infinite.

    Claim: H-2 and H-3 predict it in closed form.

    >>> from verify.tasks.count01.layer_norm.laws import law_named
    >>> decided(Fraction(1), None, [Fraction(-1), Fraction(1), Fraction(9)], law_named("box:0:5:9"))
    True
    """
    weights = [w01, Fraction(1), Fraction(0) if w02 is None else w01 / w02]
    head, constraints = Intervened(weights, values), law.constraints()
    rows = Constraints(constraints, head.balls, head.sums)
    if not any(c.asks_strictly for c in constraints):
        return True
    if values[0] == values[1] and (weights[2] == 0 or law.noise == 0 or values[2] == values[0]):
        return False  # every form is a multiple of one that is positive, or zero, everywhere
    white, _ = whitened(rows)
    if confirmed(rows, [ray[1] for ray in rays_of(white)]) is not None:
        return True
    if ruled_out(rows, dependencies(white)) is not None:
        return False
    raise ArithmeticError(f"w01={w01}, w02={w02}, values={values}: neither answer was confirmed")
