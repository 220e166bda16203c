"""Figures of a histogram model's tokens and readout: cosines, the class map of two neurons, logits over counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.report.style import BLUE, GREY, ORANGE, VERMILLION, new_figure, style
from verify.tasks.histogram.activations import activation_ranges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

GRID = 241  # points along each side of a class map
MOST_TOKENS = 64  # whose ranges are drawn in one map


def cosines(module: HistogramTransformer) -> Figure:
    """For every token the range of its cosines with all other tokens, its cosine with BOS, and those with the neurons.

    Claim: A, Fig. 3, as ranges over all pairs, crosses for BOS; dashed: the coherence 1/(2L - 3) below which Prop. 4.4
        lets lin count.
    Raises: BadInput for a single token, or one that is zero.
    """
    E, W_1 = (x.detach().double().numpy() for x in (module.E, module.W_1))
    if module.T < 2 or not np.linalg.norm(E, axis=1).all():
        raise BadInput(f"T={module.T}: cosines need two tokens, none of them zero. Choose other weights.")
    e, w = E / np.linalg.norm(E, axis=1)[:, None], W_1 / np.maximum(np.linalg.norm(W_1, axis=0), 1e-300)
    others = (e @ e.T)[~np.eye(module.T, dtype=bool)].reshape(module.T, -1)
    with style():
        figure, (upper, lower) = new_figure(6.4, 4.6, nrows=2, sharex=True)
        _ranges(upper, others, BLUE)
        bos = module.e_BOS.detach().double().numpy() if module.has_bos else np.zeros(module.d)
        if bos.any():
            upper.plot(e @ (bos / np.linalg.norm(bos)), "x", color=VERMILLION, markersize=4, label="with BOS")
            upper.legend()
        _ranges(lower, e @ w, ORANGE)
        if module.L > 2:
            for sign in (-1, 1):
                upper.axhline(sign / (2 * module.L - 3), color=GREY, linestyle="--", linewidth=1)
        upper.set_ylabel("cosine with\nother tokens")
        lower.set_ylabel("cosine with\nneurons")
        lower.set_xlabel("token")
        upper.set_title(f"{module.model}, T={module.T}, L={module.L}, d={module.d}, p={module.p}")
    return figure


def _ranges(axes: Axes, values: NDArray[np.float64], colour: str) -> None:
    t = np.arange(len(values))
    axes.vlines(t, values.min(1), values.max(1), color=colour, linewidth=2)
    axes.plot(t, values.max(1), "_", t, values.min(1), "_", color=colour, markersize=5)
    axes.set_ylim(-1.05, 1.05)


def singular_values(module: HistogramTransformer) -> Figure:
    """The singular values of W_1 in order, with a line behind the first T: more are surplus of counting by inventory.

    Claim: A, Fig. 14, of one model; there of the trained ones with p and d of at least T.
    """
    found = np.linalg.svd(module.W_1.detach().double().numpy(), compute_uv=False)
    with style():
        figure, axes = new_figure(5.6, 3.2)
        axes.plot(np.arange(1, len(found) + 1), found, ".-", color=BLUE)
        if len(found) > module.T:
            axes.axvline(module.T + 0.5, color=GREY, linestyle="--", linewidth=1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("number")
        axes.set_ylabel("singular value of $W_1$")
        axes.set_title(f"{module.model}, T={module.T}, L={module.L}, d={module.d}, p={module.p}")
    return figure


def class_map(module: HistogramTransformer, neurons: tuple[int, int]) -> Figure:
    """Which class wins where two neurons have these values and all others are 0, with the ranges that inputs reach.

    Each frame holds all inputs of one token and count on which no other neuron is on. A's figures have no such map: the
    right of its Fig. 4 maps classes over mixtures of three embeddings, which `mixtures` draws.
    Raises: BadInput for neurons that the model does not have.
    """
    if len(set(neurons)) < 2 or not all(0 <= i < module.p for i in neurons):
        raise BadInput(
            f"neurons={neurons[0]},{neurons[1]}: must be two of 0..{module.p - 1}. A class map needs p >= 2."
        )
    low, high = activation_ranges(module)
    chosen, rest = list(neurons), [i for i in range(module.p) if i not in neurons]
    alone = (high[..., rest] <= 0).all(-1) & (high[..., chosen] > 0).any(-1)
    right = [1.15 * (float(high[..., i][alone].max(initial=0.0)) or 1.0) for i in chosen]
    x, y = (np.linspace(0, end, GRID) for end in right)
    W_2, b_2 = (z.detach().double().numpy() for z in (module.W_2, module.b_2))
    logits = x[None, :, None] * W_2[chosen[0]] + y[:, None, None] * W_2[chosen[1]] + b_2
    with style():
        from matplotlib.patches import Rectangle

        figure, axes = new_figure(5.6, 4.6)
        mesh = axes.pcolormesh(x, y, logits.argmax(-1) + module.first_count, cmap="viridis", shading="nearest")
        for t, k in np.argwhere(alone)[: MOST_TOKENS * module.L]:
            a, b = (low[t, k, i] for i in chosen)
            size = [high[t, k, i] - low[t, k, i] for i in chosen]
            axes.add_patch(Rectangle((a, b), *size, fill=False, edgecolor="white", linewidth=1))
            axes.plot(a + size[0] / 2, b + size[1] / 2, "+", color=VERMILLION, markersize=4, clip_on=False)
        axes.set_xlabel(f"neuron {chosen[0]}")
        axes.set_ylabel(f"neuron {chosen[1]}")
        axes.set_title(f"{module.model}, T={module.T}, L={module.L}, d={module.d}, p={module.p}; other neurons off")
        figure.colorbar(mesh, ax=axes, label="count that is answered")
    return figure


def logits_over_counts(module: HistogramTransformer, token: int) -> Figure:
    """Bounds on every logit of one token at each true count, over all inputs; exact where one neuron is on.

    Claim: A, Fig. 9, with ranges over all inputs in place of single sequences.
    Raises: BadInput for a token that the model does not have.
    """
    if not 0 <= token < module.T:
        raise BadInput(f"token={token}: this model has the tokens 0..{module.T - 1}. Choose one of them.")
    low, high = (ranges[token] for ranges in activation_ranges(module))  # (L, p)
    W_2, b_2 = (z.detach().double().numpy() for z in (module.W_2, module.b_2))
    up, down = np.maximum(W_2, 0), np.minimum(W_2, 0)
    least, most = low @ up + high @ down + b_2, high @ up + low @ down + b_2
    k = np.arange(1, len(low) + 1)
    with style():
        from matplotlib import colormaps

        figure, axes = new_figure(6.4, 4.2)
        colours = colormaps["viridis"](np.linspace(0, 0.92, len(b_2)))
        centre = (most.max(1) / 2 + least.max(1) / 2)[:, None]  # the same shift for all logits of a count
        for c, colour in enumerate(colours):
            axes.fill_between(k, (least - centre)[:, c], (most - centre)[:, c], color=colour, alpha=0.35, linewidth=0)
            axes.plot(
                k, ((least + most) / 2 - centre)[:, c], color=colour, linewidth=1, label=str(c + module.first_count)
            )
        axes.set_xlabel("true count $k$")
        axes.set_ylabel("logit, less the middle of the highest")
        if len(b_2) <= 12:
            axes.legend(title="class", ncols=2, fontsize=7)
        axes.set_title(f"token {token}: {module.model}, T={module.T}, L={module.L}, d={module.d}, p={module.p}")
    return figure
