"""Figures of experiments: exact shares over two settings, or beside the sampled ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from verify.figures.style import BLUE, GREY, VERMILLION, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from verify.experiments.experiment import Result, Setting

COLUMNS = 3  # of panels
FLOOR = 1e-15  # of a share on a logarithmic axis


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
        figure.suptitle("right answers in %, rounded down; framed: PROVED")
    return figure


def _cells(results: Sequence[Result], x: str, y: str, law: str) -> dict[tuple[Setting, Setting], tuple[Fraction, bool]]:
    """The mean share of each pair of settings, and whether one of its models is proved; of models with a share."""
    found: dict[tuple[Setting, Setting], list[Result]] = {}
    for result in (each for each in results if law in each.exact):
        found.setdefault((result.settings[x], result.settings[y]), []).append(result)
    return {
        pair: (sum((of.exact[law][0] for of in group), Fraction(0)) / len(group), any(of.is_proved for of in group))
        for pair, group in found.items()
    }


def _write(axes: Axes, column: int, line: int, share: Fraction, is_proved: bool) -> None:
    from matplotlib.patches import Rectangle

    per_cent = int(100 * share)  # rounded down, so that 100 is 1
    colour = "black" if share > Fraction(1, 2) else "white"
    axes.text(column, line, str(per_cent), ha="center", va="center", fontsize=7, color=colour)
    if is_proved:
        axes.add_patch(Rectangle((column - 0.5, line - 0.5), 1, 1, fill=False, edgecolor=VERMILLION, linewidth=1.5))


def dots(results: Sequence[Result], *, by: Sequence[str], law: str | None) -> Figure:
    """Shares of wrong answers, sampled and exact, one column for each combination of settings, one mark for a model.

    What is at most FLOOR, and 0 too, stands at the lower end.
    """
    groups = list(dict.fromkeys(tuple(found.settings[name] for name in by) for found in results))
    with style():
        figure, axes = new_figure(max(4.0, 0.6 * len(groups) + 1.5), 3.2)
        for found in results:
            column = groups.index(tuple(found.settings[name] for name in by))
            sampled = 1 - Fraction(*found.sampled)
            axes.plot(column - 0.15, max(float(sampled), FLOOR), "o", color=GREY, markersize=4)
            if law is not None and law in found.exact:
                ends = [max(float(1 - end), FLOOR) for end in found.exact[law]]
                axes.plot([column + 0.15] * 2, ends, "s-", color=BLUE, markersize=3)
        axes.set_yscale("log")
        ticks = [FLOOR, 1e-12, 1e-9, 1e-6, 1e-3, 1]
        axes.set(xticks=range(len(groups)), yticks=ticks, ylabel="wrong answers", xlabel=", ".join(by))
        axes.set_yticklabels([f"0 to {FLOOR:g}", *(f"{tick:g}" for tick in ticks[1:])])
        axes.set_xticklabels(["\n".join(map(str, group)) for group in groups])
        axes.minorticks_off()
        axes.plot([], [], "o", color=GREY, label="sampled")
        if law is not None:
            axes.plot([], [], "s-", color=BLUE, label=f"exact, {law}")
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def accuracies(results: Sequence[Result], *, by: str, laws: Sequence[str]) -> Figure:
    """One panel for each law: the exact share of right answers in per cent, one mark for a model, by a setting.

    A model without an exact share of a law is not drawn there; filled marks are PROVED models.
    """
    groups = list(dict.fromkeys(found.settings[by] for found in results))
    with style():
        figure, axes = new_figure(
            max(4.0, 0.6 * len(groups) + 1.0), 1.7 * len(laws) + 0.6, nrows=len(laws), squeeze=False, sharex=True
        )
        for place, law in zip(axes.flat, laws, strict=True):
            for found in (each for each in results if law in each.exact):
                column = groups.index(found.settings[by])
                ends = [100 * float(end) for end in found.exact[law]]
                face = BLUE if found.is_proved else "white"
                place.plot([column] * 2, ends, "o-", color=BLUE, markerfacecolor=face, markersize=5)
            place.set(title=law, ylim=(-3, 103), yticks=(0, 25, 50, 75, 100), xticks=range(len(groups)))
            place.set_xticklabels([str(group) for group in groups])
        figure.supxlabel(by)
        figure.supylabel("right answers in %, exact; filled: PROVED")
    return figure


def courses(models: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    """One panel for each model: right answers on validation samples by step, dashed lines where heads are halved.

    Marks at a halving are the exact shares before and after it. A model is its title and what was kept of its course.
    """
    with style():
        figure, axes = new_figure(5.2, 1.8 * len(models) + 0.6, nrows=len(models), squeeze=False, sharex=True)
        for place, (title, kept) in zip(axes.flat, models, strict=True):
            steps = [step for step, _, _ in kept["course"]]
            place.plot(steps, [100 * right / kept["of"] for _, right, _ in kept["course"]], color=GREY, linewidth=1)
            for each in kept["halvings"]:
                place.axvline(each["step"], linestyle="--", color=GREY, linewidth=0.8)
                for side, mark in (("before", "v"), ("after", "^")):
                    if each[side] is not None:
                        place.plot(each["step"], 100 * float(Fraction(each[side])), mark, color=BLUE, markersize=5)
            place.set(title=title, ylim=(-3, 103), yticks=(0, 25, 50, 75, 100))
        axes[0][0].plot([], [], color=GREY, label="sampled, validation")
        for side, mark in (("before", "v"), ("after", "^")):
            axes[0][0].plot([], [], mark, color=BLUE, label=f"exact, {side} a halving")
        axes[0][0].legend(fontsize=6, loc="lower right")
        figure.supxlabel("step")
        figure.supylabel("right answers in %")
    return figure
