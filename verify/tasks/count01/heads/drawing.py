"""Heads of a Count01 model: the documents' pair matrices, attention ratios, and outputs with a separating line."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from constructions.count01 import Count01Transformer
from verify.report.style import BLUE, GREEN, GREY, VERMILLION, new_figure, style
from verify.tasks.count01.heads.answers import HeadsAnswer, Measure, Measures
from verify.tasks.count01.heads.dissect import HeadsQuestion, dissect
from verify.tasks.count01.heads.svc import outputs_of
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import model_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEPARATES, NEITHER = "#56B4E9", "#EEEEEE"
DRAWN = 4000  # outputs that are drawn, evenly spaced among the law's triples


def heads(model: Count01Transformer, law: Law, labels: str, head: int, *, svc: bool = False) -> Figure:
    """Six panels: learned accuracy, AUC and separability of pairs, ratios (w01, w02), a head's outputs, and its values.

    Claim: D, Fig. 3, 5, 6 and 7; E, Fig. 4 to 7, from samples; here every share is exact under the law. `svc` colours
    the ratios by the separation accuracy of the documents' classifier instead of learned accuracy.
    Raises: BadInput for a head that is not there, or an unbounded law.
    """
    data = dissect(model, HeadsQuestion(law, labels, svc=svc)).data
    with style():
        figure, ((learned, auc, separable), (ratios, outputs, values)) = new_figure(11.0, 7.0, nrows=2, ncols=3)
        _matrix(figure, learned, pair_matrix(data, "learned_accuracy"), "learned accuracy", 0.4)
        _matrix(figure, auc, pair_matrix(data, "auc"), "ROC AUC", 0.5)
        _separable(separable, data)
        _ratios(figure, ratios, data, svc=svc)
        _outputs(outputs, model, law, head, data["heads"][head])
        _outputs(values, model, law, head, data["heads"][head])
        _values(values, data["heads"][head])
        figure.suptitle(f"{law.name}: {law}")
    return figure


def pair_matrix(data: HeadsAnswer, measure: Measure = "learned_accuracy") -> NDArray[np.float64]:
    """A measure of single heads on the diagonal, of pairs beside it; NaN where it stayed open."""
    a = len(data["heads"])
    out = np.full((a, a), np.nan)
    for found in data["heads"]:
        out[found["head"], found["head"]] = _number(found[measure])
    for pair in data["pairs"] or []:
        i, j = pair["heads"]
        out[i, j] = out[j, i] = _number(pair[measure])
    return out


def _number(found: str | bool | None) -> float:
    return float("nan") if found is None else float(Fraction(found))


def _matrix(figure: Figure, axes: Axes, matrix: np.ndarray, title: str, least: float) -> None:
    shown = axes.imshow(matrix, vmin=least, vmax=1, cmap="viridis")
    figure.colorbar(shown, ax=axes)
    _label_heads(axes, len(matrix), title)


def _label_heads(axes: Axes, count: int, title: str) -> None:
    ticks = list(range(0, count, max(1, count // 8)))
    axes.set(xlabel="head", ylabel="head", title=title, xticks=ticks, yticks=ticks)


def _separable(axes: Axes, data: HeadsAnswer) -> None:
    """Which heads and pairs some readout makes right on every triple; dots where neither head does alone."""
    from matplotlib.colors import ListedColormap

    matrix = pair_matrix(data, "separable")
    axes.imshow(matrix, vmin=0, vmax=1, cmap=ListedColormap([NEITHER, SEPARATES]))
    alone = np.diag(matrix) == 1
    for i, j in np.argwhere((matrix == 1) & ~alone[:, None] & ~alone[None, :]):
        axes.plot(i, j, ".", color=VERMILLION, markersize=5)
    _label_heads(axes, len(matrix), "separates (blue); dots: only together")


def _ratios(figure: Figure, axes: Axes, data: HeadsAnswer, *, svc: bool) -> None:
    """Draws each head at its (w01, w02), coloured by its accuracy: a disc where it separates, a cross where it does
    not.
    """
    for is_separable, marker, label in ((True, "o", "separates"), (False, "X", "does not")):
        judged = [h for h in data["heads"] if h["separable"] is is_separable]
        chosen = [(h, w01, w02) for h in judged if (w01 := h["w01"]) and (w02 := h["w02"])]
        at = [w01 for _, w01, _ in chosen], [w02 for *_, w02 in chosen]
        colours = [accuracy_of(h, svc=svc) for h, *_ in chosen]
        shown = axes.scatter(*at, c=colours, vmin=0.4, vmax=1, cmap="viridis", marker=marker, label=label, s=30)
        shown.set_edgecolor("black")
        shown.set_linewidth(0.4)
    figure.colorbar(shown, ax=axes)
    title = "separation accuracy by SVC" if svc else "learned accuracy"
    axes.set(xscale="log", yscale="log", xlabel="$w_{01}$", ylabel="$w_{02}$", title=title)
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.legend(loc="best")


def accuracy_of(head: Measures, *, svc: bool) -> float:
    """A head's learned accuracy, or the lower end of its SVC's bracket; NaN where that is unknown."""
    if not svc:
        return _number(head["learned_accuracy"])
    return _number(head["svc"]["low"]) if isinstance(head["svc"], dict) else float("nan")


def _outputs(axes: Axes, model: Count01Transformer, law: Law, head: int, found: Measures) -> None:
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


def _values(axes: Axes, found: Measures) -> None:
    """The value vectors of 0, 1 and 2 on the same axes as the outputs, which lie between them, BOS's and ='s."""
    for token in ("0", "1", "2"):
        x, *more = np.array(found["values"][token], dtype=np.float64).tolist()
        y = more[0] if more else 0.0
        axes.plot(x, y, "k*", markersize=7)
        axes.annotate(token, (x, y), xytext=(4, 4), textcoords="offset points")
    axes.relim()
    axes.autoscale()
    axes.set_title(f"and its values of 0, 1, 2\n($w_{{01}}$ {found['w01']:.3g}, $w_{{02}}$ {found['w02']:.3g})")


def _line(axes: Axes, w: list[float], b: float, x: np.ndarray, d_h: int) -> None:
    """Draws the line w . r + b = 0 in the first two coordinates. With more coordinates there is no line."""
    limits = axes.get_ylim()
    if d_h == 1 and w[0]:
        axes.axvline(-b / w[0], color=GREEN, label="separator")
    elif d_h == 2 and w[1]:
        ends = np.array([x[:, 0].min(), x[:, 0].max()])
        axes.plot(ends, -(w[0] * ends + b) / w[1], color=GREEN, label="separator")
        axes.set_ylim(limits)
