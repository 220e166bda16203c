"""One-dimensional heads with attention ratios set by hand: which separate, and how good the best threshold is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from bounds.count01_heads import least_w02
from constructions.errors import BadInput
from verify.report.style import BLUE, GREY, VERMILLION, new_figure, style
from verify.tasks.count01.heads.best_threshold import best_share
from verify.tasks.count01.layer_norm.laws import Law

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST, MOST = 1e-3, 1e3  # the ratios that are drawn
FINE, COARSE = 241, 19  # how many of them: of the boundary, and of each curve
SEPARATES, NOT = "#56B4E9", "#EEEEEE"


def ratios(values: Sequence[Fraction], law: Law) -> Figure:
    """Three panels: the phase diagram over (w01, w02), and the best accuracy along w02 = infinity and w01 = 1.

    Claim: H-2 and H-3 in closed form; E, Fig. 7 and 8, and D, Fig. 8 and 9 show them by samples and an SVC.
    Raises: BadInput for a law that is no box with LO < HI.
    """
    if not law.is_uniform or law.low == law.high:
        raise BadInput(f"law={law.name}: must be a box with LO < HI, such as box:0:200:200")
    with style():
        figure, (phase, left, right) = new_figure(11.0, 3.8, ncols=3)
        _phase(phase, values, law)
        _curve(left, "$w_{01}$", "$w_{02} = \\infty$", [(w, None) for w in grid(COARSE)], values, law)
        _curve(right, "$w_{02}$", "$w_{01} = 1$", [(Fraction(1), w) for w in grid(COARSE)], values, law)
        least = least_w02(1, (values[0], values[1], values[2]), (law.low, law.high, law.noise))
        if least is not None and least > 0:
            right.axvline(float(least), color=GREY, linestyle="--", linewidth=0.8, label="separates beyond")
            right.legend(loc="lower right")
        shown = ", ".join(map(str, values))
        figure.suptitle(f"values {shown}; {law.name}: {law}")
    return figure


def grid(points: int) -> list[Fraction]:
    """Ratios evenly spaced on a logarithmic axis, as fractions of few digits.

    >>> grid(3)
    [Fraction(1, 1000), Fraction(1, 1), Fraction(1000, 1)]
    """
    steps = np.linspace(0, np.log(MOST), points // 2 + 1)
    upper = [Fraction(float(np.exp(x))).limit_denominator(50) for x in steps]
    return [1 / x for x in reversed(upper[1:])] + upper


def boundary(values: Sequence[Fraction], law: Law) -> list[tuple[float, float]]:
    """(w01, what w02 must exceed) along the drawn axis: 0 where every ratio works, infinite where none does."""
    v, box = (values[0], values[1], values[2]), (law.low, law.high, law.noise)
    out = []
    for w01 in grid(FINE):
        least = least_w02(w01, v, box)
        out.append((float(w01), float("inf") if least is None else max(0.0, float(least))))
    return out


def _phase(axes: Axes, values: Sequence[Fraction], law: Law) -> None:
    from matplotlib.patches import Patch

    w01, least = (np.array(column) for column in zip(*boundary(values, law), strict=True))
    axes.set_facecolor(NOT)
    axes.fill_between(w01, np.clip(least, LEAST, MOST), MOST, color=SEPARATES, linewidth=0)
    axes.plot(w01, np.where(least > 0, least, np.nan), color=BLUE, linewidth=1)
    a, b, c = values
    if a != b and (c - a) * (b - c) > 0:  # v_2 is the balance point at this ratio alone
        exact = float((b - c) / (c - a))
        if LEAST < exact < MOST:
            axes.axvline(exact, color=BLUE, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlim=(LEAST, MOST), ylim=(LEAST, MOST))
    axes.set(xlabel="$w_{01}$", ylabel="$w_{02}$", title="which ratios separate")
    patches = [
        Patch(facecolor=SEPARATES, label="a threshold separates"),
        Patch(facecolor=NOT, edgecolor=GREY, label="none does"),
    ]
    axes.legend(handles=patches, loc="lower left")


def _curve(
    axes: Axes,
    name: str,
    title: str,
    pairs: Sequence[tuple[Fraction, Fraction | None]],
    values: Sequence[Fraction],
    law: Law,
) -> None:
    shares = [float(best_share(w01, w02, values, law)) for w01, w02 in pairs]
    at = [float(w01 if w02 is None else w02) for w01, w02 in pairs]
    axes.plot(at, shares, ".-", color=VERMILLION, markersize=4)
    axes.set(xscale="log", ylim=(0.45, 1.02), xlabel=name, ylabel="accuracy of the best threshold", title=title)
