"""The fewest parameters with which each histogram model is proved to count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.histogram import check_sizes
from verify.report.style import BLUE, new_figure, style
from verify.tasks.histogram.parameters import fewest_parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def parameters(T: int, L: int) -> Figure:
    """One bar per model, with the proved (d, p) and the claim that it comes from.

    Claim: A, Fig. 2, with proved weights in place of trained ones.
    Raises: BadInput for sizes that make no sense.
    """
    check_sizes("lin", T=T, L=L, d=1, p=1)
    found = fewest_parameters(T, L)[::-1]
    most = max(one.parameters for one in found)
    with style():
        figure, axes = new_figure(6.4, 3.2)
        axes.barh([one.model for one in found], [one.parameters for one in found], color=BLUE, height=0.6)
        for i, one in enumerate(found):
            label = f" {one.parameters}: d={one.d}, p={one.p} ({one.claim})"
            axes.text(one.parameters, i, label, va="center", fontsize=8)
        axes.set_xlim(0, 1.6 * most)
        axes.set_xlabel("parameters")
        axes.set_title(f"fewest parameters proved to count, T = {T}, L = {L}")
    return figure
