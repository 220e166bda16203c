"""The exact confusion matrix of a histogram model: what it answers at each true count."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from verify.report.style import new_figure, style
from verify.tasks.histogram.confusion import Confusion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_WRITTEN = 16  # counts up to which every share is written in its cell


def confusion_matrix(found: Confusion, title: str) -> Figure:
    """Shares of the answers within each true count, each row summing to 1 with ties and what is undecided.

    Claim: A, Fig. 5, from all inputs in place of samples.
    """
    rows = [[*row, tie, left] for row, tie, left in zip(found.answered, found.tied, found.undecided, strict=True)]
    keep = [*range(len(found.answered[0]))]
    names = [str(c + found.first_count) for c in keep]
    for column, name in ((len(keep), "tie"), (len(keep) + 1, "?")):
        if any(row[column] for row in rows):
            keep, names = [*keep, column], [*names, name]
    shares = [[row[c] / sum(row) if sum(row) else Fraction(0) for c in keep] for row in rows]
    values = np.array([[float(x) for x in row] for row in shares])
    with style():
        side = 1.6 + 0.36 * max(6, len(rows))
        figure, axes = new_figure(side + 1.0, side)
        image = axes.imshow(values, cmap="cividis", vmin=0.0, vmax=1.0)
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                if share and len(rows) <= MOST_WRITTEN:
                    colour = "white" if share < Fraction(3, 5) else "black"
                    axes.text(j, i, written(share), ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(rows)), [str(k + 1) for k in range(len(rows))])
        axes.tick_params(length=0)
        axes.set_xlabel("answer")
        axes.set_ylabel("true count")
        axes.set_title(title)
        figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true count")
    return figure


def written(share: Fraction) -> str:
    """A share in a cell, never rounded to 0 or 1.

    >>> written(Fraction(1)), written(Fraction(1, 3)), written(Fraction(1, 10**9)), written(Fraction(999999, 1000000))
    ('1', '0.33', '~0', '~1')
    """
    if share in (0, 1):
        return str(share)
    text = f"{float(share):.2f}"
    return {"0.00": "~0", "1.00": "~1"}.get(text, text)
