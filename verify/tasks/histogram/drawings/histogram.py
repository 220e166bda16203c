"""Figures of a histogram model: attention on one sequence, what a neuron reads per count, margins per count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.arithmetic.outward import below
from verify.frame.certificate import Certificate, Verdict
from verify.report.style import BLUE, GREY, VERMILLION, new_figure, style
from verify.tasks.histogram.activations import activation_ranges, thresholds
from verify.tasks.histogram.look import mixing_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NUMBERS = 12  # positions up to which every entry of a matrix is printed in it
RANGE, POINT = "range over all inputs", "all inputs, one value"
LABEL = 0.035  # of the axis that a number beside a line needs
LONGEST_SEQUENCE = 64  # positions that can still be told apart


def attention(module: HistogramTransformer, tokens: list[int]) -> Figure:
    """The token mixing matrix A(x) of one sequence; pairs of equal tokens are framed.

    Claim: A, Fig. 4 (left), from the stored weights in float64.
    Raises: BadInput for a sequence that the model does not read.
    """
    L = len(tokens)
    if (
        not 1 <= L <= LONGEST_SEQUENCE
        or not all(0 <= t < module.T for t in tokens)
        or (module.is_linear and L != module.L)
    ):
        length = str(module.L) if module.is_linear else f"1 to {LONGEST_SEQUENCE}"
        raise BadInput(f"sequence={','.join(map(str, tokens))[:60]}: must be {length} tokens in 0..{module.T - 1}")
    A = mixing_matrix(module, tokens)
    names = ["BOS"] * (A.shape[1] - L) + [str(t) for t in tokens]
    with style():
        size = 1.6 + 0.42 * max(L, 6)
        figure, axes = new_figure(size + 1.0, size)
        most = float(np.abs(A).max()) or 1.0
        signed = bool((A < 0).any())
        image = axes.imshow(A, cmap="PuOr_r" if signed else "cividis", vmin=-most if signed else 0.0, vmax=most)
        for row in range(L):
            for column in range(A.shape[1]):
                _entry(axes, A[row, column], row, column, most, signed, L)
        _frame_equal_tokens(axes, tokens, A.shape[1] - L)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(L), [str(t) for t in tokens])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xlabel(r"token $x_m$ that is attended to")
        axes.set_ylabel(r"token $x_\ell$ at the position")
        axes.set_title(rf"{module.model}: mixing $a_{{\ell m}}$; framed where $x_\ell = x_m$")
        figure.colorbar(image, ax=axes, shrink=0.8, label=r"$a_{\ell m}$")
    return figure


def _entry(axes: Axes, value: float, row: int, column: int, most: float, signed: bool, L: int) -> None:
    if L > MOST_NUMBERS:
        return
    is_dark = abs(value) > 0.6 * most if signed else value < 0.6 * most
    axes.text(column, row, entry(value), ha="center", va="center", fontsize=7, color="white" if is_dark else "black")


def entry(value: float) -> str:
    """A number in a cell: two digits, and "~0" for what is too small to be told from zero beside the others.

    >>> entry(0.0), entry(-0.25), entry(4.4e-21)
    ('0', '-0.25', '~0')
    """
    return "~0" if 0 < abs(value) < 0.005 else f"{value:.2g}"


def _frame_equal_tokens(axes: Axes, tokens: list[int], shift: int) -> None:
    from matplotlib.patches import Rectangle

    for row, t in enumerate(tokens):
        for m, s in enumerate(tokens):
            if s == t:
                corner = (m + shift - 0.46, row - 0.46)
                axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=VERMILLION, linewidth=1.4))


def activation(module: HistogramTransformer, neuron: int = 0) -> Figure:
    """One neuron: the logits as lines over its value, and below its exact range at each count.

    Claim: A, Fig. 8, with the ranges over all inputs in place of single values.
    Raises: BadInput for a neuron that the model does not have.
    """
    if not 0 <= neuron < module.p:
        raise BadInput(f"neuron={neuron}: this model has the neurons 0..{module.p - 1}. Choose one of them.")
    low, high = (ranges[..., neuron] for ranges in activation_ranges(module))
    slopes, intercepts = (getattr(module, name).detach().double().numpy() for name in ("W_2", "b_2"))
    winners, crossings = thresholds(slopes[neuron], intercepts)
    own = (high > 0).any(1)  # the tokens for which it is ever on: all, or the one that it counts
    L, right = low.shape[1], float(high.max()) or 1.0
    with style():
        figure, (upper, lower) = new_figure(6.4, 5.4, nrows=2, sharex=True, height_ratios=(1, 1.1))
        _logit_lines(upper, slopes[neuron], intercepts, winners, crossings, right, module.first_count)
        for k in range(1, L + 1):
            if own.any():
                _range_bar(lower, low[own, k - 1].min(), high[own, k - 1].max(), k, right)
        if not own.all():
            lower.plot(0, 0, "s", color=GREY, clip_on=False, label="off for the other tokens, at every count")
        for x in crossings:
            for axes in (upper, lower):
                axes.axvline(x, color=GREY, linestyle=":", linewidth=1)
        lower.set_yticks(range(1, L + 1) if L <= 16 else range(1, L + 1, -(-L // 12)))
        lower.set_ylabel(r"count $k$")
        whose = f"token {int(own.argmax())}" if own.sum() == 1 else f"{int(own.sum())} tokens"
        lower.set_xlabel(rf"hidden activation $\gamma$ of neuron {neuron}, range over all inputs ({whose})")
        lower.set_xlim(-0.03 * right, 1.06 * right)
        lower.legend(loc="best")
        size = f"{module.model}, T={module.T}, L={module.L}, d={module.d}, p={module.p}"
        upper.set_title(size if module.p == 1 else f"{size}; logits with the other neurons off")
    return figure


def _range_bar(axes: Axes, low: float, high: float, k: int, right: float) -> None:
    """The interval as a bar, or as a line of its own look where it is too narrow to be seen."""
    named = axes.get_legend_handles_labels()[1]
    if high - low < 0.01 * right:
        label = None if POINT in named else POINT
        axes.plot((low + high) / 2, k, "|", color=BLUE, markersize=9, markeredgewidth=2, label=label)
    else:
        label = None if RANGE in named else RANGE
        axes.plot([low, high], [k, k], color=BLUE, linewidth=5, solid_capstyle="butt", label=label)


def _logit_lines(
    axes: Axes,
    slopes: np.ndarray,
    intercepts: np.ndarray,
    winners: list[int],
    crossings: list[float],
    right: float,
    first_count: int,
) -> None:
    """Every logit minus the best one, so that the winner of each piece is the line at zero."""
    from matplotlib import colormaps

    x = np.unique(np.concatenate([np.linspace(0, 1.06 * right, 400), [c for c in crossings if c < 1.06 * right]]))
    lines = slopes[:, None] * x + intercepts[:, None]
    best = lines.max(0)
    colours = colormaps["viridis"](np.linspace(0, 0.92, len(slopes)))
    for c, line in enumerate(lines):
        axes.plot(x, line - best, color=colours[c], linewidth=1.6 if c in winners else 0.8)
    depth = np.sort(best - lines, axis=0)[1].max() if len(lines) > 1 else 1.0
    axes.set_ylim(-4 * depth, 0.9 * depth)
    ends, last = [0.0, *crossings, max([1.06 * right, *crossings])], -right
    for c, a, b in zip(winners, ends, ends[1:], strict=False):
        middle = (a + min(b, 1.06 * right)) / 2
        if a < 1.06 * right and middle - last > LABEL * right:
            last = middle
            axes.text(middle, 0.3 * depth, str(c + first_count), ha="center", color=colours[c], fontsize=9)
    axes.set_ylabel("logit $c_i$ $-$ largest logit")


def margins(certificate: Certificate) -> Figure:
    """The proved margin at each count; the smallest one is marked.

    Raises: BadInput where nothing was proved.
    """
    if certificate.margin_per_count is None or certificate.margin is None:
        advice = "Choose" if certificate.verdict is Verdict.REFUTED else "Raise --budget, or choose"
        raise BadInput(
            f"margin: the verdict is {certificate.verdict.value}, and only a proof has margins. {advice} other weights."
        )
    values = np.array([np.nan if m is None else m for m in certificate.margin_per_count])
    k = np.arange(1, len(values) + 1)
    with style():
        figure, axes = new_figure(6.4, 3.4)
        axes.vlines(k, 0, values, color=BLUE, linewidth=2)
        axes.plot(k, values, "o", color=BLUE, markersize=5, label="proved for all inputs")
        smallest = int(np.nanargmin(values))
        axes.plot(
            k[smallest],
            values[smallest],
            "D",
            color=VERMILLION,
            markersize=7,
            label=f"smallest: at least {below(values[smallest], 4)}, at k = {k[smallest]}",
        )
        if np.nanmax(values) > 50 * np.nanmin(values):
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.25 * np.nanmax(values))
        axes.set_xticks(k if len(k) <= 20 else k[:: -(-len(k) // 12)])
        axes.set_xlabel(r"count $k$")
        axes.set_ylabel("margin: right logit $-$ largest other")
        p = certificate.parameters
        axes.set_title(
            f"{p['model']}, T={p['T']}, L={p['L']}, d={p['d']}, p={p['p']}: all ${p['T']}^{{{p['L']}}}$ inputs"
        )
        axes.legend(loc="best")
    return figure
