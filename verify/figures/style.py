"""One look for all figures, and files that are the same bytes from run to run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import BytesIO
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput
from constructions.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind as well
BLUE, ORANGE, GREEN, VERMILLION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#999999"
FORMATS = ("svg", "png")
SETTINGS = {
    "svg.hashsalt": "weightproof",  # else the ids in an SVG are random
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.dpi": 150,
}


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


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure as SVG or PNG, without the date."""
    stream = BytesIO()
    with style():
        figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return stream.getvalue()


def format_of(output: str, name: str = "output") -> str:
    """The format that a file's name asks for.

    Raises: BadInput for a name that ends otherwise.
    """
    kind = output.rpartition(".")[2].lower()
    if kind not in FORMATS or "." not in output:
        raise BadInput(f"{name}={output!r}: must end in .svg or .png")
    return kind


def save(figure: Figure, output: str, name: str = "output") -> None:
    """Writes the figure beside its place, then renames it."""
    write_whole(output, rendered(figure, format_of(output, name)), name)
