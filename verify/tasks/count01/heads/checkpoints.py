"""Checkpoints of Count01 models: what their heads separate, weighted by the readout, beside what the models answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from constructions.count01 import Count01Transformer
from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Undecided
from verify.arithmetic.slack import Array
from verify.report.style import BLUE, GREY, new_figure, style
from verify.tasks.count01.heads.fitted import drawn_triples, separation_accuracies
from verify.tasks.count01.heads.many import HeadForms, check_box
from verify.tasks.count01.layer_norm.counting import wrong_after_equals
from verify.tasks.count01.layer_norm.laws import Law, law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers
from verify.tasks.count01.task import FIVE, FOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRINTED = 0.72  # D, Sec. 6.1: the Pearson correlation
WIDEST = 5.0  # points, of a head that has all the weight


@dataclass(frozen=True)
class Checkpoint:
    """One model: its exact accuracy after "=", each head's separation accuracy, and the readout's weights of them."""

    accuracy: Fraction
    separation: tuple[Fraction, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, model: Count01Transformer, law: Law, labels: str, sample: Array) -> Checkpoint:
        """Judges a model on a box; its heads' classifiers are fitted on the sample.

        Raises: BadInput for a law that is no box, or a triple too close to a tie.
        """
        check_box(law)
        numbers = model_numbers(model)
        try:
            _, accuracy = wrong_after_equals(numbers, law, labels)
        except Undecided as error:
            raise BadInput(f"weights: {error}. Take another --law.") from None
        separation = separation_accuracies(HeadForms.of(numbers.heads), sample, law)
        return cls(accuracy, tuple(separation), tuple(head_weights(model)))

    @property
    def weighted(self) -> float:
        """The mean of the separation accuracies by the readout's weights."""
        return sum(w * float(share) for w, share in zip(self.weights, self.separation, strict=True))


def head_weights(model: Count01Transformer) -> list[float]:
    """The lengths of the heads' weights in (logit 5) - (logit 4), over their sum; all alike where that is 0.

    Claim: D, Sec. 6.1. The output matrix is fused into the readout, as there.

    >>> from constructions.count01 import uniform
    >>> head_weights(uniform())
    [1.0]
    """
    W_O, W_out = (W.detach().double().numpy() for W in (model.W_O, model.W_out))
    lengths = np.linalg.norm(W_O @ (W_out[:, FIVE] - W_out[:, FOUR]), axis=1)
    whole = lengths.sum()
    return (lengths / whole if whole > 0 else np.full(len(lengths), 1 / len(lengths))).tolist()


def correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's correlation; None where one of the two does not vary.

    >>> round(correlation([1, 2, 3], [2, 4, 6]), 9), correlation([1, 1], [2, 3])
    (1.0, None)
    """
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def checkpoints(models: Sequence[Count01Transformer], named: str, labels: str, seed: int = 0) -> Figure:
    """Left: weighted separation accuracy and model accuracy of each model; right: every head's, model after model.

    Claim: D, Fig. 10 (Sec. 6.1), and Fig. 14, right (App. F), of one's own checkpoints, with every share exact under
        the law. On the right a line is a head, its width the readout's weight; a model of another size ends it.
    Raises: BadInput for fewer than two models, or a law that is no box.
    """
    if len(models) < 2:
        raise BadInput("FILE: one checkpoint has no correlation. Name at least two.")
    law = law_named(named)
    check_box(law)
    sample = drawn_triples(law_named("d-train"), seed)
    found = [Checkpoint.of(model, law, labels, sample) for model in models]
    with style():
        figure, (left, right) = new_figure(8.4, 3.6, ncols=2)
        _scatter(left, found)
        _evolution(right, found)
        figure.suptitle(f"{law.name}: {law}")
    return figure


def _scatter(axes: Axes, found: Sequence[Checkpoint]) -> None:
    x, y = [point.weighted for point in found], [float(point.accuracy) for point in found]
    axes.plot(x, y, ".", color=BLUE)
    r = correlation(x, y)
    said = "no correlation: one does not vary" if r is None else f"correlation {r:.2f} (D: {PRINTED:.2f})"
    axes.set(xlabel="heads' separation accuracy, weighted", ylabel="model accuracy", title=said)


def _evolution(axes: Axes, found: Sequence[Checkpoint]) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator

    for i, (before, after) in enumerate(zip(found, found[1:], strict=False), 1):
        if len(before.separation) != len(after.separation):
            continue
        ends = zip(before.separation, after.separation, strict=True)
        lines = [[(i, float(a)), (i + 1, float(b))] for a, b in ends]
        width = [WIDEST * max(w, 0.02) for w in after.weights]
        axes.add_collection(LineCollection(lines, linewidths=width, colors=BLUE, alpha=0.7))
    for i, point in enumerate(found, 1):
        axes.plot([i] * len(point.separation), [float(share) for share in point.separation], ".", color=GREY, ms=3)
    axes.set(xlabel="file", ylabel="heads' separation accuracy", title="width: the readout's weight")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
