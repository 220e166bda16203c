"""Contextual counting on one string: the contextual position of every token, and where each prompt attends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from constructions.contextual.transformer import BOS, CLOSE, ONE, OPEN, TOKENS, ZERO, ContextualCountingTransformer
from constructions.contextual_counting import POSITION
from constructions.errors import BadInput
from verify.report.style import BLUE, GREEN, GREY, ORANGE, VERMILLION, new_figure, style
from verify.tasks.contextual.task import answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LEVELS = 14  # names of positions that fit above one another
LONGEST_STRING = 80  # tokens that can still be told apart
LOOKS = {ZERO: ("o", GREY), ONE: ("D", BLUE), OPEN: (">", GREEN), CLOSE: ("<", ORANGE), BOS: ("s", VERMILLION)}


def contextual(model: ContextualCountingTransformer, tokens: list[int]) -> Figure:
    """Above, each token's contextual position after the encoder's attention; below, the decoder's attention.

    Claim: B, Fig. 7 and 8, of the constructed weights: position 1/(2r) inside region r (1/(2r-1) without BOS), 0
        outside, and prompt r attends to the ones of region r and the bias token.
    Raises: BadInput for an empty string, or one that is too long to read.
    """
    if not 1 <= len(tokens) <= LONGEST_STRING:
        raise BadInput(f"string: has {len(tokens)} tokens, and 1 to {LONGEST_STRING} can be drawn. Choose another.")
    positions, attention, counts = contextual_quantities(model, tokens)
    shown = [BOS] * model.has_bos + tokens
    with style():
        figure, (upper, lower) = new_figure(
            max(5.5, 0.19 * len(shown) + 2.4),
            2.9 + 0.27 * model.R,
            nrows=2,
            sharex=True,
            height_ratios=(2.2, 0.4 * model.R),
        )
        _positions(upper, positions, shown, model)
        image = lower.imshow(attention, cmap="cividis", vmin=0, aspect="auto")
        lower.set_yticks(range(model.R), [str(r + 1) for r in range(model.R)])
        lower.set_ylabel(r"prompt $r$")
        lower.set_xticks(range(len(shown)), [TOKENS[t] if t != BOS else "B" for t in shown], fontsize=7)
        lower.set_xlabel("token of the string (B: the token BOS)" if model.has_bos else "token of the string")
        lower.tick_params(length=0)
        lower.spines[:].set_visible(False)
        figure.colorbar(image, ax=lower, label="attention", pad=0.02)
        said = ", ".join(f"{r + 1}: {count}" for r, count in enumerate(counts))
        wrong = "" if counts == answers(tokens, model.R) else " (wrong)"
        upper.set_title(f"ones counted in region {said}{wrong}")
    return figure


def contextual_quantities(
    model: ContextualCountingTransformer, tokens: list[int]
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The position lane after attention (n,), the decoder's attention (R, n), and the counts, in float64."""
    exact = model.to(torch.float64)
    with torch.no_grad():
        x = exact.E[[BOS] * exact.has_bos + tokens]
        future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        scores = ((x @ exact.W_Q) @ (x @ exact.W_K).T).masked_fill(future, -torch.inf)
        positions = (torch.softmax(scores, -1) @ (x @ exact.W_V) @ exact.W_O)[:, POSITION]
        stream = exact.encode(torch.tensor(tokens))
        attention = torch.softmax((exact.P @ exact.U_Q) @ (stream @ exact.U_K).T, -1)
        counts = exact.decode(stream).argmax(-1).tolist()
    return positions.numpy(), attention.numpy(), counts


def _positions(axes: Axes, positions: np.ndarray, shown: list[int], model: ContextualCountingTransformer) -> None:
    for token, (marker, colour) in LOOKS.items():
        places = [i for i, t in enumerate(shown) if t == token]
        if places:
            axes.plot(places, positions[places], marker, color=colour, markersize=4, label=TOKENS[token])
    for r in range(1, model.R + 1):
        axes.axhline(1 / (2 * r - (not model.has_bos)), color=GREY, linestyle=":", linewidth=0.8, zorder=0)
    levels = [2 * r - (not model.has_bos) for r in range(1, model.R + 1)]
    least = (max(positions.max(), 1 / levels[0]) - min(0.0, positions.min())) / MOST_LEVELS
    named = [n for i, n in enumerate(levels) if i == 0 or 1 / levels[i - 1] - 1 / n >= least]
    axes.set_yticks([0, *(1 / n for n in named)], ["0", *(f"1/{n}" if n > 1 else "1" for n in named)])
    axes.set_ylabel(r"contextual position $y$")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, title="token")
