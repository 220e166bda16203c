"""One head behind LayerNorm whose tokens all weigh alike, as exact numbers a + b sqrt(q) with one q.

Token t enters the head as (embedding less mean) / sqrt(r_t), r_t its variance and eps. Where all tokens that the head
reads have one r, every logit is rational but for multiples of 1/sqrt(r), and times the number of tokens a linear form
in the counts. So the argument of `verify.tasks.count01.real` holds: q is no square, as then the root is rational, and
a + b sqrt(q) is 0 only where a = b = 0.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from flint import fmpq

from verify.arithmetic.exact_reals import ONE, SQRT, Basis, Combination, exponentials
from verify.tasks.count01.layer_norm.numbers import HeadNumbers, model_numbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.real import ExactModel

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model


def exact_model(model: Count01Model) -> ExactModel | None:
    """The model's numbers, None where its tokens weigh differently or are divided by different roots.

    Raises: BadInput for a weight that is NaN or infinite.

    >>> from constructions.count01 import normed
    >>> exact_model(normed()).heads
    1
    """
    if model.heads != 1:
        return None
    numbers = model_numbers(model)
    (head,) = numbers.heads
    roots = {r for row in head.logits for x in row for r in x.terms if r != 1}
    if len(roots) > 1 or not _weighs_alike(head):
        return None
    basis = Basis(_radicand(roots.pop()) if roots else 1, exponents_over_root=False)
    values = [[_combination(x, basis) for x in row] for row in head.logits]
    constant = {last: [exponentials({0: x}) for x in row] for last, row in numbers.constant.items()}
    alike = {last: [Fraction(0)] * len(row) for last, row in head.scores.items()}
    return ExactModel(numbers.classes, (alike,), (values,), constant, exponentials({0: 1}))


def _weighs_alike(head: HeadNumbers) -> bool:
    """Whether all scores of each query are one number, which softmax does not see."""
    return all(not (score - row[0]).terms for row in head.scores.values() for score in row)


def _radicand(r: fmpq) -> int:
    """The q with 1/sqrt(r) = sqrt(q) / p, where r = p / (q / p): the product of both."""
    return int(r.p) * int(r.q)


def _combination(x: Surd, basis: Basis) -> Combination:
    """a + c / sqrt(p/q) as a + (c/p) sqrt(p q)."""
    terms = {ONE if r == 1 else SQRT: c if r == 1 else c / int(r.p) for r, c in x.terms.items()}
    return Combination(basis, {key: c for key, c in terms.items() if c != 0})
