"""A decoder's inner workings on a line of equal tokens: heads that look at the first one, components of its states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from constructions.decoder import Decoder
from constructions.errors import BadInput
from verify.arithmetic.slack import Array
from verify.report.style import BLUE, VERMILLION, new_figure, style
from verify.tasks.inductive.traced import TracedLayer, principal_components, spread_of_scores, traced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST = 128  # C's tokens
MOST_LAYERS, MOST_HEADS, MOST_KINDS, MOST_POSITIONS = 6, 8, 128, 1024  # that are drawn


def line_of(model: Decoder, token: int, length: int | None) -> torch.Tensor:
    """A line of equal tokens: as long as it is asked for, or as C's 128 positions and the model's own have room.

    Raises: BadInput for a token or a length that the model has not.
    """
    room = LONGEST if model.pe == "nope" else min(LONGEST, model.positions)
    n = room - model.has_bos if length is None else length
    if not 0 <= token < model.vocabulary:
        raise BadInput(f"--token {token}: the model has the tokens 0 to {model.vocabulary - 1}")
    if not 2 <= n <= room - model.has_bos:
        raise BadInput(f"--length {n}: must be from 2 to {room - model.has_bos} for this model")
    return torch.full((n,), token)


def first_token(model: Decoder, tokens: torch.Tensor) -> Figure:
    """Draws, for each layer, the streams before it, the head that looks at the first token most, and all heads' looks.

    Claim: C, Fig. A1 and A4 (App. D). Left, the first two principal components of the streams, with the first token of
        the stream marked (BOS, where there is one); then the attention of one head; right, the weight on the first
        token, a line for each head. In float64; it proves nothing.
    Raises: BadInput for more layers than are drawn.
    """
    layers = traced(model, tokens)
    if len(layers) > MOST_LAYERS:
        raise BadInput(f"layers={len(layers)}: at most {MOST_LAYERS} are drawn")
    name = "BOS" if model.has_bos else "the first token"
    with style():
        figure, axes = new_figure(9.6, 0.4 + 2.8 * len(layers), nrows=len(layers), ncols=3, squeeze=False)
        for i, (layer, (streams, looks, weights)) in enumerate(zip(layers, axes, strict=True), 1):
            _streams(streams, layer, f"streams before layer {i}")
            _strongest(looks, layer, i)
            _looks(weights, layer, f"weight on {name}")
        figure.suptitle(f"{len(tokens)} tokens {int(tokens[0])}, pe = {model.pe}; star: {name}")
    return figure


def _streams(axes: Axes, layer: TracedLayer, title: str) -> None:
    points, shares = principal_components(layer.before)
    axes.plot(*points[1:].T, ".", color=BLUE, markersize=4)
    axes.plot(*points[0], "*", color=VERMILLION, markersize=9)
    _label_components(axes, shares, title)


def _label_components(axes: Axes, shares: Array, title: str) -> None:
    axes.set(xlabel=f"first ({shares[0]:.0%})", ylabel=f"second ({shares[1]:.0%})", title=title)
    axes.tick_params(labelsize=7)


def strongest(layer: TracedLayer) -> int:
    """The head whose weight on the first token, which all but itself may choose, is largest in the mean."""
    return int(layer.attention[:, 1:, 0].mean(axis=1).argmax())


def _strongest(axes: Axes, layer: TracedLayer, i: int) -> None:
    h = strongest(layer)
    shown = axes.imshow(layer.attention[h], vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
    axes.figure.colorbar(shown, ax=axes)
    axes.set(xlabel="looked at", ylabel="asks", title=f"layer {i}, head {h}")


def _looks(axes: Axes, layer: TracedLayer, title: str) -> None:
    for h, attention in enumerate(layer.attention):
        axes.plot(np.arange(1, len(attention)), attention[1:, 0], linewidth=1, label=f"head {h}")
    axes.set(xlabel="asks", ylim=(-0.03, 1.03), title=title)
    if len(layer.attention) <= MOST_HEADS:
        axes.legend(fontsize=7, loc="best")


def components(model: Decoder, tokens: torch.Tensor, modulus: int) -> Figure:
    """Draws the first two principal components of states on a line, coloured by position modulo m.

    Claim: C, Fig. A3 (App. D): the first layer's output, the last layer's queries, and its neurons, where C has two
        layers. Positions count from 1, as C's answers do. In float64; it proves nothing.
    Raises: BadInput for a modulus below 2.
    """
    if not 2 <= modulus <= 100:
        raise BadInput(f"--modulus {modulus}: must be from 2 to 100")
    layers, own = traced(model, tokens), slice(int(model.has_bos), None)
    residue = np.arange(1, len(tokens) + 1) % modulus
    last = len(layers)
    panels: Sequence[tuple[str, Array | None]] = (
        ("output of layer 1", layers[0].after),
        (f"queries of layer {last}", layers[-1].queries),
        (f"neurons of layer {last}", layers[-1].hidden),
    )
    with style():
        from matplotlib import colormaps

        colours = colormaps["tab10" if modulus <= 10 else "turbo"].resampled(modulus)
        figure, axes = new_figure(9.6, 3.3, ncols=3)
        for panel, (title, states) in zip(axes, panels, strict=True):
            if states is None:
                panel.set_title(f"{title}: none")
                panel.set_axis_off()
                continue
            points, shares = principal_components(states[own])
            shown = panel.scatter(*points.T, c=residue, cmap=colours, vmin=-0.5, vmax=modulus - 0.5, s=12)
            _label_components(panel, shares, title)
        figure.colorbar(shown, ax=axes, label=f"position modulo {modulus}")
        figure.suptitle(f"{len(tokens)} tokens {int(tokens[0])}, pe = {model.pe}")
    return figure


def variation(model: Decoder) -> Figure:
    """Draws how much the first layer's scores q . k vary with the positions of each two tokens, head by head.

    Claim: C, Fig. A6 (App. E): the standard deviation over all positions that two tokens can have, BOS the last token.
        In float64; it proves nothing.
    Raises: BadInput for a model without positions, or more heads, tokens or positions than are drawn.
    """
    if model.pe == "nope":
        raise BadInput("pe=nope: scores do not depend on positions. Take a model that has some.")
    kinds = model.W_E.shape[0]
    if kinds > MOST_KINDS or model.positions > MOST_POSITIONS:
        raise BadInput(
            f"{kinds} tokens, {model.positions} positions: at most {MOST_KINDS} and {MOST_POSITIONS} are drawn"
        )
    found = spread_of_scores(model)
    if len(found) > MOST_HEADS:
        raise BadInput(f"heads={len(found)}: at most {MOST_HEADS} are drawn")
    most = float(np.nanmax(found)) or 1.0
    with style():
        from matplotlib.ticker import MaxNLocator

        figure, axes = new_figure(max(4.2, 2.6 * len(found)), 3.4, ncols=len(found), squeeze=False)
        for h, panel in enumerate(axes[0]):
            shown = panel.imshow(found[h], vmin=0, vmax=most, cmap="Blues")
            panel.set(xlabel="token that is looked at", ylabel="token that asks", title=f"head {h}")
            panel.set_facecolor("#EEEEEE")
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(shown, ax=axes[0].tolist(), label="standard deviation of $q \\cdot k$")
        figure.suptitle(f"scores over {model.positions} positions, pe = {model.pe}")
    return figure
