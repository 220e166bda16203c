"""The phase diagrams of provable sizes (d, p), of one layer and of two, on the axes of A's Figures 1 and 20."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from constructions.histogram import check_sizes
from verify.report.style import BLUE, GREY, ORANGE, new_figure, style
from verify.tasks.histogram.phase import Corner, Excluded, corners, corners_of_two, excluded, excluded_of_two

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The document's grid of d and p (Fig. 1).
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 23, 32, 45, 64, 91, 128)
PANELS = (("dot+sftm", "bos+sftm", "lin+sftm"), ("dot", "bos", "lin"))
PROVED, OPEN, IMPOSSIBLE, REGIME = "#56B4E9", "#EEEEEE", ORANGE, "#F5D9A8"
OF_ONE, OF_ONE_EDGE = "#CFE8F7", "#8A5A00"
LEAST, FURTHER = 0.7, 1.3  # where the axes begin, and by what factor they go on


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
                found, most = corners(model, T, L), largest * FURTHER
                _fill(axes, found, most, PROVED)
                _hatch(axes, excluded(model, T, L), most, ((REGIME, ".."), (IMPOSSIBLE, "///")), "white")
                _panel(axes, model, T, largest, found)
        _name_axes(rows, r"hidden neurons $p$")
        legend = [
            Patch(facecolor=PROVED, label="proved right on all inputs"),
            Patch(facecolor=OPEN, edgecolor=GREY, label="open"),
            Patch(facecolor=IMPOSSIBLE, hatch="///", edgecolor="white", label="impossible for all weights"),
            Patch(facecolor=REGIME, hatch="..", edgecolor="white", label="impossible in the regime of W-18"),
        ]
        figure.legend(handles=legend, loc="outside lower center", ncols=4)
        figure.suptitle(f"T = {T}, L = {L}; dashed: d = T and p = T")
    return figure


def _name_axes(rows: np.ndarray, neurons: str) -> None:
    """Names the axes of the panels below and on the left."""
    for axes in rows[1]:
        axes.set_xlabel(neurons)
    for axes in rows[:, 0]:
        axes.set_ylabel(r"embedding size $d$")


def phase_of_two(T: int, L: int) -> Figure:
    """Draws six panels for two layers of one size: proved, proved for one layer only, impossible for one or two, open.

    Hatched blue is the difference: sizes with which two layers count and no one layer does (W-26).
    Claim: A, Fig. 20 shows trained models of two layers, Fig. 21 their difference to one; A-E.8, W-26.
    Raises: BadInput for sizes that make no sense.
    """
    check_sizes("lin", T=T, L=L, d=1, p=1)
    largest = max(GRID[-1], 2 * T)
    with style():
        from matplotlib.patches import Patch

        figure, rows = new_figure(8.2, 5.9, nrows=2, ncols=3, sharex=True, sharey=True)
        for axes, model in zip(rows.flat, (model for models in PANELS for model in models), strict=True):
            found, most = corners_of_two(model, T, L), largest * FURTHER
            _fill(axes, corners(model, T, L), most, OF_ONE)
            _fill(axes, found, most, PROVED)
            too_small = [region for region in excluded(model, T, L) if region.is_for_all_weights]
            _hatch(axes, excluded_of_two(model, T, L), most, ((None, ""), (IMPOSSIBLE, "")), "white")
            _hatch(axes, too_small, most, ((None, ""), (None, "///")), OF_ONE_EDGE)
            _panel(axes, model, T, largest, found)
        _name_axes(rows, r"hidden neurons $p$ of each layer")
        legend = [
            Patch(facecolor=PROVED, label="two layers: proved"),
            Patch(facecolor=OF_ONE, label="one layer: proved; two: open"),
            Patch(facecolor="none", hatch="///", edgecolor=OF_ONE_EDGE, label="one layer: impossible"),
            Patch(facecolor=IMPOSSIBLE, label="two: impossible"),
            Patch(facecolor=OPEN, edgecolor=GREY, label="two: open"),
        ]
        figure.legend(handles=legend, loc="outside lower center", ncols=3)
        figure.suptitle(f"Two layers, T = {T}, L = {L}; dashed: d = T and p = T")
    return figure


def _fill(axes: Axes, found: tuple[Corner, ...], most: float, colour: str) -> None:
    """Fills every size from a corner on: a size n fills the stretch from its own value, so that a corner shows."""
    from matplotlib.patches import Rectangle

    for corner in found:
        axes.add_patch(Rectangle((corner.p, corner.d), most, most, facecolor=colour, linewidth=0))


def _hatch(
    axes: Axes,
    too_small: Iterable[Excluded],
    most: float,
    looks: tuple[tuple[str | None, str], tuple[str | None, str]],
    edge: str,
) -> None:
    """Hatches sizes that are too small: by the first of `looks` in a regime, by the second for all weights."""
    from matplotlib.patches import Rectangle

    for region in sorted(too_small, key=lambda region: region.is_for_all_weights):
        width, height = (most if n is None else n + 0.35 - LEAST for n in (region.p, region.d))
        colour, hatch = looks[region.is_for_all_weights]
        face = "none" if colour is None else colour
        axes.add_patch(
            Rectangle((LEAST, LEAST), width, height, edgecolor=edge, linewidth=0, facecolor=face, hatch=hatch)
        )


def _panel(axes: Axes, model: str, T: int, largest: int, found: tuple[Corner, ...]) -> None:
    """Marks the corners and the lines of T, and scales the axes."""
    from matplotlib.ticker import NullLocator, ScalarFormatter

    axes.set_facecolor(OPEN)
    for corner in found:
        axes.plot(corner.p, corner.d, "o", color=BLUE, markersize=5, zorder=4)
        is_right = corner.p > largest / 8
        axes.annotate(
            f"d={corner.d}, p={corner.p}\n{corner.claim}",
            (corner.p, corner.d),
            xytext=(-4 if is_right else 6, 4 if corner.d == 1 else -4),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="bottom" if corner.d == 1 else "top",
            fontsize=8,
        )
    axes.axhline(T, color="black", linestyle="--", linewidth=0.8)
    axes.axvline(T, color="black", linestyle="--", linewidth=0.8)
    ticks = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048) if n <= largest]
    for axis, set_limits in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_ticks(ticks)
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_locator(NullLocator())
        set_limits(LEAST, largest * FURTHER)
    axes.set_title(model)
