"""The phase diagram of (d, bits): where every operation rounded, in any order, still counts right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.frame.clock import NOT_REACHED
from verify.report.style import BLUE, GREY, ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"REFUTED": ORANGE, "UNKNOWN": "#DDDDDD", "PROVED": BLUE, "not built": "white"}
CUT = {NOT_REACHED: "#F4F4F4"}  # shown where there is such a square
MOST_TICKS = 16


def precision(
    title: str, dimensions: Sequence[int], bits: Sequence[int], verdicts: Sequence[Sequence[str | None]]
) -> Figure:
    """One square per d (across) and number of bits (upwards); None where no weights are known, or "not reached".

    Shapes: verdicts has a row for each d, with an entry for each number of bits.
    """
    colours = COLOURS | {name: CUT[name] for name in CUT if any(name in row for row in verdicts)}
    names = list(colours)
    values = [[names.index(verdict or "not built") for verdict in row] for row in verdicts]
    with style():
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

        figure, axes = new_figure(7.2, 4.4)
        axes.imshow(
            list(zip(*values, strict=True)), cmap=ListedColormap(list(colours.values())), vmin=0, vmax=len(names) - 1,
            origin="lower", aspect="auto", interpolation="nearest",
        )  # fmt: skip
        for set_ticks, labels in ((axes.set_xticks, dimensions), (axes.set_yticks, bits)):
            step = -(-len(labels) // MOST_TICKS)
            set_ticks(range(0, len(labels), step), labels[::step])
        axes.set_xlabel(r"embedding size $d$")
        axes.set_ylabel("bits of the significand")
        axes.set_title(title)
        patches = [Patch(facecolor=colour, edgecolor=GREY, label=name) for name, colour in colours.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(names))
    return figure
