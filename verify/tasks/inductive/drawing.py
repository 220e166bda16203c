"""Modular counting beyond the training length: what weights reach, beside document C's figures and the ceilings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bounds.inductive_limits import longest_with_neurons
from bounds.sine_readout import bracket, is_exact
from constructions.decoder import Decoder
from constructions.errors import BadInput, NotKnown
from constructions.inductive import sine
from constructions.inductive_waves import build
from verify.report.style import BLUE, GREEN, GREY, ORANGE, VERMILLION, new_figure, style
from verify.tasks.inductive.document_c import figure_of_c

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINED, TESTED, MODULUS = 50, 100, 10  # document C's lengths
SAWTEETH = (14, 18)  # neurons with sinusoidal positions, right up to 80 and 100
FITTED = ((50, BLUE), (67, GREEN), (90, ORANGE), (100, VERMILLION))
ENTRIES = ((1.0, BLUE), (10.0, GREEN), (100.0, ORANGE))
DEFAULT_D = 64


def beyond(model: Decoder, first: int = TRAINED + 1, last: int = TESTED) -> list[float]:
    """The share of the positions first..n that the model answers right on a^last, for n = first..last, in percent.

    Without shift; a RoPE decoder's answers do not depend on it in real arithmetic.

    >>> beyond(build(60), 51, 60) == [100.0] * 10
    True
    """
    with torch.no_grad():
        answers = model(torch.zeros(last, dtype=torch.long)).argmax(-1)
    right = (answers == torch.arange(last) % MODULUS)[first - 1 :].double()
    return [float(share) for share in 100 * right.cumsum(0) / torch.arange(1, len(right) + 1)]


def inductive(d_head: int = 128, d: int = DEFAULT_D) -> Figure:
    """Left: RoPE with BOS, one head without an MLP, and SinePE with neurons; right: readouts of sinusoidal positions.

    Claim: C-T6 and C-I7 (ours); the points are those of C, Table A4.
    Raises: BadInput for sizes for which nothing can be drawn.
    """
    if d < 4 or d % 2 or d > 256:
        raise BadInput(f"d={d}: must be even and from 4 to 256")
    with style():
        figure, (left, right) = new_figure(8.2, 3.4, ncols=2)
        _lengths(left, d_head)
        _errors(right, d)
    return figure


def _lengths(axes: Axes, d_head: int) -> None:
    lengths = range(TRAINED + 1, TESTED + 1)
    drawn = 0
    for N, colour in FITTED:
        try:
            model = build(N, d_head=d_head, largest=10.0 if N < TESTED else 100.0, positions=TESTED + 1)
        except NotKnown:
            continue
        drawn += 1
        axes.plot(lengths, beyond(model), color=colour, label=f"RoPE, for 1..{N}")
    for neurons, dashes in zip(SAWTEETH, ("--", ":"), strict=True):
        waves = sine(task="modular", N=longest_with_neurons(MODULUS, neurons), m=MODULUS)
        axes.plot(lengths, beyond(waves), color="k", linestyle=dashes, label=f"SinePE, {neurons} neurons")
    if not drawn:
        raise BadInput(f"d_head={d_head}: no weights are found for {TRAINED} positions; take more")
    for layers, above in ((1, -3), (2, -8), (4, 2)):
        reported = figure_of_c("modular", "rope", layers, bos=True)
        axes.plot(TESTED, reported, "k.", clip_on=False)
        axes.annotate(f"C, {layers}L: {reported:g}", (TESTED, reported), xytext=(6, above), textcoords="offset points",
                      fontsize=7, annotation_clip=False)  # fmt: skip
    axes.axhline(TESTED / MODULUS, color=GREY, linestyle="--", linewidth=0.8)
    axes.annotate("ceiling without BOS", (TRAINED + 1, 11.5), fontsize=7, color=GREY)
    axes.set(xlabel=r"length $n$", ylabel=f"right among {TRAINED + 1}..n (%)", ylim=(0, 104))
    axes.set_title(f"RoPE with BOS, one head of {d_head}, no MLP; SinePE")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.14, 0.78), borderpad=0, handlelength=1.3)


def _errors(axes: Axes, d: int) -> None:
    positions = range(max(2, d // 4), 3 * d // 2 + 1, max(1, d // 16))
    for W, colour in ENTRIES:
        brackets = [bracket(d, P, W, MODULUS) for P in positions]
        lows, highs = [found.low for found in brackets], [found.high for found in brackets]
        axes.fill_between(positions, lows, highs, color=colour, linewidth=1.4, label=f"entries up to {W:g}")
    last = max(P for P in range(1, 2 * d) if is_exact(d, P))
    axes.axvline(last, color=GREY, linestyle="--", linewidth=0.8)
    axes.annotate(
        "exact up to here\nwithout a bound", (last, 0.75), xytext=(4, 0), textcoords="offset points", fontsize=7
    )
    axes.set(xlabel=r"positions $1..P$", ylabel="least largest error", ylim=(0, 1.02))
    axes.set_title(rf"SinePE: linear readouts of $\cos(2\pi p/{MODULUS})$, $d={d}$")
    axes.legend(fontsize=7, loc="upper left")
