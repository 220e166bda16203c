"""Each head's own classifier, fitted as the documents fit theirs, and then decided exactly as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from verify.tasks.count01 import noisy_majority as task

if TYPE_CHECKING:
    from torch import Tensor

    from constructions.count01 import Count01Transformer

SUCCESSFUL = Fraction(98, 100)  # D's word for a head whose separation accuracy is at least this
Ends = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class FittedHead:
    """How many samples a head's classifier answers rightly, and which share of a law's strings, in real arithmetic.

    `share` is None where a string is too close to a tie; `is_separable` says whether any line separates the law's
    strings by this head's outputs, None where that stayed open; `wrong` is a string that the fitted one gets wrong.
    """

    right: int
    share: Fraction | None
    is_separable: bool | None
    wrong: Mapping[str, object] | None = None


def fitted_heads(module: Count01Transformer, sets: Sequence[Tensor], of: task.DocumentStrings) -> list[FittedHead]:
    """Fits a classifier to each head's outputs on the training set, and decides it on the law of the test set.

    Claim: D, Sec. 5.1 and App. C; E, Def. 5.2: separation accuracy, of single heads.
    """
    import numpy as np
    import torch

    from constructions.count01 import EQUALS, Count01Transformer
    from verify.arithmetic.exact_reals import Undecided
    from verify.tasks.count01.heads.extract import rebuilt
    from verify.tasks.count01.heads.separability import separability
    from verify.tasks.count01.heads.svc import ROUNDS, fit
    from verify.tasks.count01.layer_norm.counting import wrong_after_equals
    from verify.tasks.count01.layer_norm.laws import law_named
    from verify.tasks.count01.layer_norm.numbers import model_numbers

    training, test = sets[0], sets[-1]
    law, numbers = law_named(of.law), model_numbers(module)
    with torch.no_grad():
        outputs = deepcopy(module).double().mixed_at_counts(task.counts_of(training, EQUALS), EQUALS).numpy()
    has_more = np.where(training[:, 1] > training[:, 0], 1.0, -1.0)
    found = []
    for h in range(module.heads):
        centre = outputs[:, h].mean(axis=0)
        w, b, _ = fit(outputs[:, h] - centre, has_more, ROUNDS)
        alone = rebuilt(module, numbers, [h], [w.tolist()], float(b - w @ centre), of.labels)
        runs = alone.made(Count01Transformer)
        right = round(task.share(runs, test, of.labels) * len(test))
        is_separable = separability(numbers.heads[h], law).is_separable
        try:
            wrong, share = wrong_after_equals(model_numbers(alone), law, of.labels)
        except Undecided:
            found.append(FittedHead(right, None, is_separable))
            continue
        case = task.wrong_string(runs, wrong[0].tolist(), of.labels) if len(wrong) else None
        found.append(FittedHead(right, share, is_separable, case))
    return found


def mean_share(heads: Sequence[FittedHead]) -> Ends:
    """The mean of the heads' shares; one that is not known may be anything."""
    known = [(each.share, each.share) if each.share is not None else (Fraction(0), Fraction(1)) for each in heads]
    return _mean([low for low, _ in known]), _mean([high for _, high in known])


def share_from(least: Fraction, heads: Sequence[FittedHead]) -> Ends:
    """The share of heads whose own share is at least `least`.

    >>> share_from(SUCCESSFUL, [FittedHead(9, Fraction(99, 100), False), FittedHead(5, Fraction(1, 2), False)])
    (Fraction(1, 2), Fraction(1, 2))
    """
    low = [each.share is not None and each.share >= least for each in heads]
    return _mean(low), _mean([is_known or each.share is None for is_known, each in zip(low, heads, strict=True)])


def separable_share(heads: Sequence[FittedHead]) -> Ends:
    """The share of heads of which some line separates all strings."""
    return _mean([each.is_separable is True for each in heads]), _mean(
        [each.is_separable is not False for each in heads]
    )


def _mean(numbers: Sequence[Fraction | bool]) -> Fraction:
    return sum((Fraction(x) for x in numbers), Fraction(0)) / len(numbers)
