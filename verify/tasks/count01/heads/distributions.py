"""Distributions over a law, and over groups of heads: what each head adds to the logits, and what groups do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from constructions.count01 import Count01Transformer
from constructions.errors import BadInput
from verify.arithmetic.slack import Array
from verify.report.style import BLUE, GREEN, ORANGE, VERMILLION, new_figure, style
from verify.tasks.count01.heads.auc import Auc
from verify.tasks.count01.heads.joint import Joint
from verify.tasks.count01.heads.separability import separability
from verify.tasks.count01.heads.shapley import separating_subsets
from verify.tasks.count01.heads.subsets import MOST_HEADS, SubsetTable, all_subsets
from verify.tasks.count01.heads.svc import outputs_of
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import ModelNumbers, model_numbers
from verify.tasks.count01.task import EOS, FIVE, FOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN = 12  # subsets of a size whose AUC is computed
ENDS = (5, 25, 50, 75, 95)  # percentiles of a contribution that are drawn


def added(model: Count01Transformer, law: Law) -> Array:
    """What each head adds to the logits of 4, 5 and EOS after "=" (heads, N, 3), for every triple of the law."""
    W_O, W_out = model.W_O.detach().double().numpy(), model.W_out.detach().double().numpy()
    numbers = model_numbers(model)
    parts = [outputs_of(head, law)[0] @ W_O[h] @ W_out[:, [FOUR, FIVE, EOS]] for h, head in enumerate(numbers.heads)]
    return np.stack(parts)


def contributions(model: Count01Transformer, law: Law) -> Figure:
    """Draws the distribution of each head's contribution to the logits of 4, 5 and EOS, by the class that is due.

    Claim: D, Fig. 1 after "=" (Sec. 5: the logits given by single heads), over every triple of the law in place of
        samples: lines from the 5 % to the 95 % quantile, thick from quarter to quarter, a mark at the median.
    Raises: BadInput for a law that weighs its triples.
    """
    found, more = added(model, law), law.has_more_ones
    if law.weights is not None:
        raise BadInput(f"--law {law.name}: weighs its triples, and quantiles here do not. Take another law.")
    with style():
        figure, axes = new_figure(9.6, 3.2, ncols=3, sharex=True)
        for i, token in enumerate(("4", "5", "EOS")):
            for chosen, colour, shift in ((more, BLUE, -0.15), (~more, VERMILLION, 0.15)):
                if chosen.any():
                    _quantiles(axes[i], np.percentile(found[:, chosen, i], ENDS, axis=1).T, shift, colour)
            axes[i].set_title(f"added to the logit of {token}")
            axes[i].set_xlabel("head")
        axes[0].plot([], [], color=BLUE, label="$n_1 > n_0$")
        axes[0].plot([], [], color=VERMILLION, label="$n_1 \\leq n_0$")
        axes[0].legend()
        figure.suptitle(f"{law.name}: {law}")
    return figure


def _quantiles(axes: Axes, ends: Array, shift: float, colour: str) -> None:
    at = np.arange(len(ends)) + shift
    axes.vlines(at, ends[:, 0], ends[:, 4], color=colour, linewidth=1)
    axes.vlines(at, ends[:, 1], ends[:, 3], color=colour, linewidth=3)
    axes.plot(at, ends[:, 2], "_", color="black", markersize=6)


def separating_by_size(a: int, separating: Sequence[int | None]) -> list[Fraction]:
    """The share of the subsets of each size, from 0 on, that are known to separate.

    >>> separating_by_size(2, [0, 1, 0, 1])
    [Fraction(0, 1), Fraction(1, 2), Fraction(1, 1)]
    """
    found = [0] * (a + 1)
    for S, does in enumerate(separating):
        found[S.bit_count()] += does == 1
    return [Fraction(n, comb(a, k)) for k, n in enumerate(found)]


def drawn_aucs(model: ModelNumbers, law: Law, labels: str, seed: int) -> list[list[Fraction]]:
    """The exact AUC of subsets of each size, from 1 on: of all where they are few, of DRAWN at random else."""
    auc, a, rng = Auc(model, law, labels), len(model.heads), random.Random(seed)
    out = []
    for k in range(1, a + 1):
        chosen = list(combinations(range(a), k)) if comb(a, k) <= DRAWN else _drawn(rng, a, k)
        found = [auc.of(heads) for heads in chosen]
        out.append([x for x in found if x is not None])
    return out


def _drawn(rng: random.Random, a: int, k: int) -> list[tuple[int, ...]]:
    return [tuple(sorted(rng.sample(range(a), k))) for _ in range(DRAWN)]


def subsets(model: Count01Transformer, law: Law, labels: str, seed: int = 0) -> Figure:
    """Draws learned accuracy, AUC and separability of groups of heads by size.

    Claim: D, Fig. 4: accuracies and separability of all subsets, exactly; the AUC is exact too, of 12 subsets of each
        size that are drawn from the seed.
    Raises: BadInput for more than 16 heads.
    """
    numbers = model_numbers(model)
    a = len(numbers.heads)
    if a > MOST_HEADS:
        raise BadInput(f"heads={a}: all subsets are drawn for at most {MOST_HEADS}. Take a smaller model.")
    table = all_subsets(numbers, law, labels)
    decided = Joint(numbers, law, [separability(head, law) for head in numbers.heads]).decide
    separating, _ = separating_subsets(a, decided)
    with style():
        figure, (learned, auc, separable) = new_figure(9.6, 3.0, ncols=3, sharex=True)
        _learned(learned, table)
        for k, found in enumerate(drawn_aucs(numbers, law, labels, seed), 1):
            auc.plot([k] * len(found), [float(x) for x in found], ".", color=ORANGE, markersize=4)
        separable.plot([float(x) for x in separating_by_size(a, separating)], ".-", color=GREEN)
        for axes, title in ((learned, "learned accuracy"), (auc, f"ROC AUC of {DRAWN} drawn"), (separable, "separate")):
            axes.set_title(title)
            axes.set_xlabel("heads in the group")
        separable.set_ylim(-0.05, 1.05)
        figure.suptitle(f"{law.name}: {law}")
    return figure


def _learned(axes: Axes, table: SubsetTable) -> None:
    """The least, middle and largest accuracy of the subsets of each size."""
    rows = table.by_size()
    sizes = [int(row["heads"]) for row in rows]
    least, middle, most = ([float(Fraction(row[name])) for row in rows] for name in ("least", "median", "largest"))
    axes.fill_between(sizes, least, most, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(sizes, middle, ".-", color=BLUE)
