"""One look for all figures, and files that are the same bytes from run to run."""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput
from constructions.written_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind as well
BLUE, ORANGE, GREEN, VERMILLION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#999999"
DRAWN_WITH = "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"
FILE_TYPES = ("svg", "png", "pdf")
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
SMALLEST, LARGEST = 0.5, 50.0  # inches of a side
DPI, FEWEST_DPI, MOST_DPI = 150, 20, 2400
UNDATED = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
SETTINGS = {
    "svg.hashsalt": "weightproof",  # else the ids in an SVG are random
    "svg.fonttype": "path",  # shapes, so that no font is needed to show it
    "pdf.fonttype": 42,  # TrueType embedded, as venues ask for; 3 would be refused by many
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
}


def load() -> None:
    """Loads what figures are drawn with, which takes longer than drawing one, before a search whose seconds count."""
    for name in DRAWN_WITH:
        import_module(name)


def style() -> AbstractContextManager[None]:
    """The settings under which figures are drawn.

    Raises: BadInput where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise BadInput(
            "figures: matplotlib is not installed. Install it with pip install 'weightproof[figures]'."
        ) from None
    return matplotlib.rc_context(dict[Any, Any](SETTINGS))


def new_figure(width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure in inches with its axes, made without any window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """Shows itself in notebooks, whether or not they have set up matplotlib."""

        def _repr_svg_(self) -> str:
            return rendered(self, "svg").decode()

    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(**options)


@dataclass(frozen=True)
class Look:
    """How a figure is put on paper: its size in inches, the pixels per inch of a PNG, and whether it has titles."""

    size: tuple[float, float] | None = None
    dpi: int = DPI
    has_title: bool = True

    @classmethod
    def of(cls, size: str | None, dpi: int | None, no_title: bool) -> Look:
        """Parses --size, --dpi and --no-title.

        Raises: BadInput for a size or a resolution that makes no figure.

        >>> Look.of("8.255x6.1cm", None, True).size
        (3.25, 2.401574803149606)
        """
        if dpi is not None and not FEWEST_DPI <= dpi <= MOST_DPI:
            raise BadInput(f"--dpi {dpi}: must be from {FEWEST_DPI} to {MOST_DPI}")
        return cls(None if size is None else inches(size), dpi or DPI, not no_title)


def inches(text: str) -> tuple[float, float]:
    """Width and height in "3.25x2.4in", "8x6cm" or "80x60mm", in inches.

    Raises: BadInput for anything else.
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)x(\d+\.?\d*|\.\d+)(in|cm|mm)", text)
    if not found:
        raise BadInput(f"--size {text[:40]!r}: must be width x height and a unit, as in 3.25x2.4in or 80x60mm")
    width, height = (float(side) * INCHES[found[3]] for side in found.group(1, 2))
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise BadInput(f"--size {text[:40]}: each side must be from {SMALLEST:g}in to {LARGEST:g}in")
    return width, height


def rendered(figure: Figure, kind: str, look: Look | None = None) -> bytes:
    """The figure as SVG, PNG or PDF, without the date."""
    stream, look = BytesIO(), look or Look()
    if look.size is not None:
        _resize(figure, look.size)
    if not look.has_title:
        figure.suptitle("")
        if len(figure.axes) == 1 or all(axes.get_title() == "" for axes in figure.axes[1:]):
            figure.axes[0].set_title("")
    with style():
        figure.savefig(stream, format=kind, dpi=look.dpi, metadata=UNDATED[kind])
    return stream.getvalue()


def _resize(figure: Figure, size: tuple[float, float]) -> None:
    """Gives a figure its size on paper. Text shrinks with the root of the figure's scale, down to 6 points."""
    from matplotlib.text import Text

    before = figure.get_size_inches()
    scale = min(1.0, math.sqrt(min(new / old for new, old in zip(size, before, strict=True))))
    for text in figure.findobj(Text):
        text.set_fontsize(max(6.0, float(text.get_fontsize()) * scale))
    for axes in figure.axes:
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_wrap(True)
    figure.set_size_inches(*size)


def format_of(output: str, name: str = "out") -> str:
    """The format that a file's name asks for.

    Raises: BadInput for a name that ends otherwise.
    """
    kind = output.rpartition(".")[2].lower()
    if kind not in FILE_TYPES or "." not in output:
        raise BadInput(f"{name}={output!r}: must end in .svg, .png or .pdf")
    return kind


def save(figure: Figure, output: str, name: str = "out", look: Look | None = None) -> None:
    """Writes the figure beside its place, then renames it."""
    write_whole(output, rendered(figure, format_of(output, name), look), name)
