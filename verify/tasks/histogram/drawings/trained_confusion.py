"""Exact confusion matrices of several models side by side, and the overlaps of their embeddings (A, Fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from verify.report.style import BLUE, VERMILLION, new_figure, style
from verify.tasks.histogram.drawings.confusion import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 12


def side_by_side(models: Sequence[Sequence[tuple[str, Mapping[str, Any]]]]) -> Figure:
    """Two rows of panels for each row of models: shares of the answers within each true count, and the overlaps.

    Each model is its title and what was kept of it: `confusion` and `overlaps`.
    """
    wide = max(len(row) for row in models)
    with style():
        figure, axes = new_figure(2.1 * wide, 3.6 * len(models), nrows=2 * len(models), ncols=wide, squeeze=False)
        for line, row in enumerate(models):
            for column, (title, kept) in enumerate(row):
                matrix(axes[2 * line][column], title, [[*map(Fraction, of)] for of in kept["confusion"]["confusion"]])
                spread(axes[2 * line + 1][column], kept["overlaps"])
        axes[1][0].legend(fontsize=6)
        figure.suptitle("answers (across) at each true count (down), exact; inner products of embeddings below")
    return figure


def matrix(axes: Axes, title: str, shares: Sequence[Sequence[Fraction]]) -> None:
    """One matrix, each row divided by all that is decided of it."""
    rows = [[x / sum(row) if sum(row) else Fraction(0) for x in row] for row in shares]
    axes.imshow([[float(x) for x in row] for row in rows], cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
    for i, row in enumerate(rows):
        for j, x in enumerate(row):
            if x and len(rows) <= BINS:
                colour = "white" if x < Fraction(3, 5) else "black"
                axes.text(j, i, written(x), ha="center", va="center", fontsize=5, color=colour)
    ticks = range(len(rows))
    axes.set(title=title, xticks=ticks, yticks=ticks)
    axes.set_xticklabels([str(k + 1) for k in ticks])
    axes.set_yticklabels([str(k + 1) for k in ticks])
    axes.tick_params(length=0, labelsize=6)


def spread(axes: Axes, overlaps: Mapping[str, Sequence[float]]) -> None:
    """The overlaps of equal tokens and of different ones, as two histograms over one axis."""
    values = [value for of in overlaps.values() for value in of]
    for (name, of), colour in zip(overlaps.items(), (VERMILLION, BLUE), strict=True):
        axes.hist(of, bins=BINS, range=(min(values), max(values)), color=colour, alpha=0.6, label=f"{name} token")
    axes.tick_params(labelsize=6)
