"""Heads of a Count01 model: the documents' pair matrices, attention ratios, and outputs with a separating line."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from constructions.count01 import Count01Transformer
from verify.count01.heads.dissect import Question, dissect
from verify.count01.heads.laws import Law
from verify.count01.heads.numbers import model_numbers
from verify.count01.heads.svc import outputs_of
from verify.figures.style import BLUE, GREEN, GREY, VERMILLION, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN = 4000  # outputs that are drawn, evenly spaced among the law's triples


def heads(model: Count01Transformer, law: Law, labels: str, head: int) -> Figure:
    """Three panels: learned accuracy of heads and pairs, w01 against w02, and one head's outputs.

    Claim: D, Fig. 3, 5 and 6; E, Fig. 4 to 7, from samples; here every share is exact under the law.
    Raises: BadInput for a head that is not there, or an unbounded law.
    """
    data = dissect(model, Question(law, labels)).data
    with style():
        figure, (matrix, ratios, outputs) = new_figure(11.0, 3.8, ncols=3)
        _matrix(figure, matrix, data)
        _ratios(ratios, data)
        _outputs(outputs, model, law, head, data["heads"][head])
        figure.suptitle(f"{law.name}: {law}")
    return figure


def pair_matrix(data: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Learned accuracies: single heads on the diagonal, pairs beside it."""
    a = len(data["heads"])
    out = np.full((a, a), np.nan)
    for found in data["heads"]:
        out[found["head"], found["head"]] = _share(found["learned_accuracy"])
    for found in data["pairs"] or []:
        i, j = found["heads"]
        out[i, j] = out[j, i] = _share(found["learned_accuracy"])
    return out


def _share(text: str | None) -> float:
    return float("nan") if text is None else float(Fraction(text))


def _matrix(figure: Figure, axes: Axes, data: dict[str, Any]) -> None:
    shown = axes.imshow(pair_matrix(data), vmin=0.4, vmax=1, cmap="viridis")
    figure.colorbar(shown, ax=axes, label="learned accuracy")
    for pair in data["pairs"] or []:
        alone = any(data["heads"][h]["separable"] for h in pair["heads"])
        if pair["separable"] and not alone:
            i, j = pair["heads"]
            axes.plot([i, j], [j, i], "w.", markersize=3)
    axes.set(xlabel="head", ylabel="head", title="pairs (dots: separate only together)")
    ticks = list(range(0, len(data["heads"]), max(1, len(data["heads"]) // 8)))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)


def _ratios(axes: Axes, data: dict[str, Any]) -> None:
    for is_separable, colour, label in ((True, BLUE, "separates"), (False, VERMILLION, "does not")):
        chosen = [h for h in data["heads"] if h["separable"] is is_separable and h["w01"] and h["w02"]]
        axes.plot([h["w01"] for h in chosen], [h["w02"] for h in chosen], "o", color=colour, label=label, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="$w_{01}$", ylabel="$w_{02}$", title="attention ratios")
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.legend(loc="best")


def _outputs(axes: Axes, model: Count01Transformer, law: Law, head: int, found: dict[str, Any]) -> None:
    numbers = model_numbers(model).heads[head]
    r, _ = outputs_of(numbers, law)
    step = max(1, len(r) // DRAWN)
    x, more = r[::step], law.has_more_ones[::step]
    y = x[:, 1] if r.shape[1] > 1 else law.triples[::step, 2]
    for chosen, colour, label in ((more, BLUE, "$n_1 > n_0$"), (~more, VERMILLION, "$n_1 \\leq n_0$")):
        axes.plot(x[chosen, 0], y[chosen], ".", color=colour, markersize=1.5, label=label)
    separator = found["separator"]
    if separator is not None and found["separable"]:
        _line(axes, separator["w"], separator["b"], x, r.shape[1])
    second = "second coordinate" if r.shape[1] > 1 else "$n_2$"
    axes.set(xlabel="first coordinate", ylabel=second, title=f"outputs of head {head}")
    axes.legend(loc="best", markerscale=5)


def _line(axes: Axes, w: list[float], b: float, x: Any, d_h: int) -> None:
    """Where w . r + b = 0, in the first two coordinates; with more there is no line to draw."""
    limits = axes.get_ylim()
    if d_h == 1 and w[0]:
        axes.axvline(-b / w[0], color=GREEN, label="separator")
    elif d_h == 2 and w[1]:
        ends = np.array([x[:, 0].min(), x[:, 0].max()])
        axes.plot(ends, -(w[0] * ends + b) / w[1], color=GREEN, label="separator")
        axes.set_ylim(limits)
