"""The phase diagram of provable sizes (d, p), on the axes of document A's Figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.histogram import check_sizes
from verify.figures.style import BLUE, GREY, ORANGE, new_figure, style
from verify.tasks.histogram.phase import Corner, Excluded, corners, excluded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The document's grid of d and p (Fig. 1).
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 23, 32, 45, 64, 91, 128)
PANELS = (("dot+sftm", "bos+sftm", "lin+sftm"), ("dot", "bos", "lin"))
PROVED, OPEN, IMPOSSIBLE, REGIME = "#56B4E9", "#EEEEEE", ORANGE, "#F5D9A8"


def phase(T: int, L: int) -> Figure:
    """Draws six panels, softmax above: proved (with its corners), proved impossible (for all weights, in a regime),
    open.

    Claim: A, Fig. 1 shows where training found accurate weights; this shows where weights are proved right.
    Raises: BadInput for sizes that make no sense.
    """
    check_sizes("lin", T=T, L=L, d=1, p=1)
    largest = max(GRID[-1], 2 * T)
    with style():
        from matplotlib.patches import Patch

        figure, rows = new_figure(8.2, 5.9, nrows=2, ncols=3, sharex=True, sharey=True)
        for axes_row, models in zip(rows, PANELS, strict=True):
            for axes, model in zip(axes_row, models, strict=True):
                _panel(axes, model, T, largest, corners(model, T, L), excluded(model, T, L))
        for axes in rows[1]:
            axes.set_xlabel(r"hidden neurons $p$")
        for axes in rows[:, 0]:
            axes.set_ylabel(r"embedding size $d$")
        legend = [
            Patch(facecolor=PROVED, label="proved right on all inputs"),
            Patch(facecolor=OPEN, edgecolor=GREY, label="open"),
            Patch(facecolor=IMPOSSIBLE, hatch="///", edgecolor="white", label="impossible for all weights"),
            Patch(facecolor=REGIME, hatch="..", edgecolor="white", label="impossible in the regime of W-18"),
        ]
        figure.legend(handles=legend, loc="outside lower center", ncols=4)
        figure.suptitle(f"T = {T}, L = {L}; dashed: d = T and p = T")
    return figure


def _panel(
    axes: Axes, model: str, T: int, largest: int, found: tuple[Corner, ...], too_small: tuple[Excluded, ...]
) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import NullLocator, ScalarFormatter

    least, most = 0.7, largest * 1.3
    axes.set_facecolor(OPEN)
    for corner in found:
        # a size n fills the stretch from its own value on, so that a corner shows where it is
        axes.add_patch(Rectangle((corner.p, corner.d), most, most, facecolor=PROVED, linewidth=0))
    for corner in found:
        axes.plot(corner.p, corner.d, "o", color=BLUE, markersize=5, zorder=4)
        is_right = corner.p > largest / 8
        axes.annotate(
            f"d={corner.d}, p={corner.p}\n{corner.claim}",
            (corner.p, corner.d),
            xytext=(-4 if is_right else 6, -4),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="top",
            fontsize=8,
        )
    for region in sorted(too_small, key=lambda region: region.is_for_all_weights):
        width, height = (most if n is None else n + 0.35 - least for n in (region.p, region.d))
        colour, hatch = (IMPOSSIBLE, "///") if region.is_for_all_weights else (REGIME, "..")
        axes.add_patch(
            Rectangle((least, least), width, height, edgecolor="white", linewidth=0, facecolor=colour, hatch=hatch)
        )
    axes.axhline(T, color="black", linestyle="--", linewidth=0.8)
    axes.axvline(T, color="black", linestyle="--", linewidth=0.8)
    ticks = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048) if n <= largest]
    for axis, set_limits in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_ticks(ticks)
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_locator(NullLocator())
        set_limits(least, most)
    axes.set_title(model)
