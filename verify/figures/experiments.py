"""Figures of experiments: exact shares over two settings, or beside the sampled ones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from verify.figures.style import BLUE, GREY, VERMILLION, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from verify.experiments.experiment import Result

COLUMNS = 3  # of panels


def heat_maps(results: Sequence[Result], *, panel: str, x: str, y: str, law: str) -> Figure:
    """One panel for each value of a setting: the exact share in per cent, the mean of seeds, rounded down.

    A frame marks models of which one is PROVED; a share that is only bracketed is shown by its least value.
    """
    panels = list(dict.fromkeys(found.settings[panel] for found in results))
    across, along = (sorted({found.settings[name] for found in results}) for name in (x, y))
    lines = -(-len(panels) // COLUMNS)
    with style():
        figure, axes = new_figure(2.6 * min(COLUMNS, len(panels)), 2.5 * lines + 0.3, nrows=lines, ncols=min(
            COLUMNS, len(panels)), squeeze=False, sharex=True, sharey=True)  # fmt: skip
        for place, name in zip(axes.flat, panels, strict=False):
            cells = _cells([found for found in results if found.settings[panel] == name], x, y, law)
            place.imshow([[float(cells.get((a, b), (Fraction(0), False))[0]) for a in across] for b in along],
                origin="lower", cmap="cividis", vmin=0, vmax=1, aspect="auto")  # fmt: skip
            for (a, b), (share, is_proved) in cells.items():
                _write(place, across.index(a), along.index(b), share, is_proved)
            place.set(title=str(name), xticks=range(len(across)), yticks=range(len(along)))
            place.set_xticklabels([str(a) for a in across])
            place.set_yticklabels([str(b) for b in along])
        for place in axes.flat[len(panels) :]:
            place.set_axis_off()
        figure.supxlabel(x)
        figure.supylabel(y)
    return figure


def _cells(results: Sequence[Result], x: str, y: str, law: str) -> dict[tuple[Any, Any], tuple[Fraction, bool]]:
    """The mean share of each pair of settings, and whether one of its models is proved."""
    found: dict[tuple[Any, Any], list[Result]] = {}
    for result in results:
        found.setdefault((result.settings[x], result.settings[y]), []).append(result)
    return {
        pair: (sum((of.exact[law][0] for of in group), Fraction(0)) / len(group), any(of.is_proved for of in group))
        for pair, group in found.items()
    }


def _write(axes: Any, column: int, line: int, share: Fraction, is_proved: bool) -> None:
    from matplotlib.patches import Rectangle

    per_cent = int(100 * share)  # rounded down, so that 100 is 1
    colour = "black" if share > Fraction(1, 2) else "white"
    axes.text(column, line, str(per_cent), ha="center", va="center", fontsize=7, color=colour)
    if is_proved:
        axes.add_patch(Rectangle((column - 0.5, line - 0.5), 1, 1, fill=False, edgecolor=VERMILLION, linewidth=1.5))


def dots(results: Sequence[Result], *, by: Sequence[str], law: str | None) -> Figure:
    """Sampled and exact shares in per cent, one column for each combination of settings, one dot for each model."""
    groups = list(dict.fromkeys(tuple(found.settings[name] for name in by) for found in results))
    with style():
        figure, axes = new_figure(max(4.0, 0.55 * len(groups) + 1.5), 3.2)
        for found in results:
            column = groups.index(tuple(found.settings[name] for name in by))
            axes.plot(column - 0.15, 100 * found.sampled[0] / found.sampled[1], "o", color=GREY, markersize=4)
            if law is not None and law in found.exact:
                low, high = (100 * float(end) for end in found.exact[law])
                axes.plot([column + 0.15] * 2, [low, high], "s-", color=BLUE, markersize=3)
        labels = ["\n".join(map(str, group)) for group in groups]
        axes.set(xticks=range(len(groups)), ylabel="right answers in %", xlabel=", ".join(by))
        axes.set_xticklabels(labels)
        axes.plot([], [], "o", color=GREY, label="sampled")
        if law is not None:
            axes.plot([], [], "s-", color=BLUE, label=f"exact, {law}")
        axes.legend(loc="best")
    return figure
