"""What weights of contextual counting read and write, whatever the string: scores, keys, and the output's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from constructions.contextual.positional import PositionalContextualTransformer
from constructions.contextual.transformer import CLOSE, ONE, OPEN, TOKENS, ContextualCountingTransformer
from constructions.contextual_counting import BIASES
from constructions.contextual_with_positions import BASE
from constructions.errors import BadInput
from verify.arithmetic.slack import Array
from verify.report.style import BLUE, GREY, ORANGE, VERMILLION, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = 6  # counts whose distributions are drawn
LONGEST = 512


def output_lines(model: ContextualCountingTransformer, bias: str) -> tuple[Array, Array]:
    """What a 1 of the prompt's region and a bias token add to the logits (classes,), readout and its bias included.

    Claim: B, eq. 3 and Fig. 10: attention weights sum to 1, so the readout's bias is a part of both values.
    """
    W = {name: value.double().numpy() for name, value in model.named_parameters()}
    one, other = (W["E"][token] @ W["U_V"] @ W["W_out"] + W["b_out"] for token in (ONE, BIASES[bias]))
    return one, other


def formula(model: ContextualCountingTransformer, bias: str, number: int, n: int) -> Array:
    """Eq. 3: the logits (classes,) of n ones and `number` bias tokens that weigh alike, and nothing else."""
    one, other = output_lines(model, bias)
    return (n * one + number * other) / (n + number)


def shares(logits: Array) -> Array:
    """The softmax of a row."""
    weights = np.exp(logits - logits.max())
    found: Array = weights / weights.sum()
    return found


def widths(rows: Array) -> Array:
    """The standard deviation of the count under each row (n, classes) of shares."""
    k = np.arange(rows.shape[1])
    return np.sqrt(np.maximum(rows @ k**2 - (rows @ k) ** 2, 0))


def outputs(model: ContextualCountingTransformer, counts: Array) -> Array:
    """The model's own shares (n, classes) at prompt 1, of strings with that many ones in region 1 and R regions."""
    rows = []
    with torch.no_grad():
        for n in counts.tolist():
            tokens = torch.tensor([OPEN, *[ONE] * n, CLOSE] + [OPEN, CLOSE] * (model.R - 1))
            rows.append(shares(model(tokens)[0].double().numpy()))
    return np.stack(rows)


def lines(model: ContextualCountingTransformer, bias: str) -> Figure:
    """Draws the two values of eq. 3, the distributions they make (dots: the model), and how wide those are.

    Claim: B, eq. 3, Fig. 10 and 11 (Fig. 13 with bias ]), of the constructed weights. In them the width grows with the
        count, as the document says of the trained ones, until the last class cuts it off.
    Raises: BadInput for bias 0, which stands in no such string, or too many classes.
    """
    if bias == "0" or len(model.b_out) > LONGEST + 1:
        raise BadInput(f"bias={bias}, {len(model.b_out)} classes: bias BOS or ], and up to {LONGEST + 1} can be drawn.")
    number = model.R if bias == "]" else 1
    most = len(model.b_out) - 1 - 2 * model.R
    if most < 1:
        raise BadInput(
            f"length={len(model.b_out) - 1}: leaves no room for ones in {model.R} regions. Use a longer one."
        )
    chosen = np.unique(np.linspace(0, most, CURVES).round().astype(int))
    every = np.arange(most + 1)
    said = np.stack([shares(formula(model, bias, number, int(n))) for n in every])
    with style():
        figure, (values, made, wide) = new_figure(9.6, 2.9, ncols=3)
        for value, name, colour in zip(output_lines(model, bias), ("1", bias), (BLUE, VERMILLION), strict=True):
            values.plot(value, color=colour, label=f"value of {name}")
        values.set_xlabel("count $k$")
        values.set_ylabel("logit")
        values.set_title("what each token adds (Fig. 10)")
        values.legend()
        for n, row in zip(chosen, outputs(model, chosen), strict=True):
            made.plot(said[n], color=BLUE, linewidth=1)
            made.plot(row, ".", color=ORANGE, markersize=3)
            made.axvline(n, color=GREY, linestyle=":", linewidth=0.7)
        made.set_xlabel("count $k$")
        made.set_ylabel("softmax of the logits")
        made.set_title("lines: eq. 3; dots: the model (Fig. 11)")
        wide.plot(every, widths(said), color=BLUE)
        wide.set_xlabel("ones $n$ in the region")
        wide.set_ylabel("standard deviation")
        wide.set_title("width")
    return figure


def token_scores(model: ContextualCountingTransformer | PositionalContextualTransformer) -> Array:
    """The encoder's scores (5, 5) of query tokens for key tokens at one place."""
    W = {name: getattr(model, name).double().numpy() for name in ("E", "W_Q", "W_K")}
    found: Array = (W["E"] @ W["W_Q"]) @ (W["E"] @ W["W_K"]).T
    return found


def keys_of_ones(model: ContextualCountingTransformer) -> tuple[Array, list[int]]:
    """The decoder's keys (2R + 1, e) of 1s before, in and after each region, and the region of each (0: outside)."""
    tokens = [ONE] + [OPEN, ONE, CLOSE, ONE] * model.R
    with torch.no_grad():
        keys = (model.double().encode(torch.tensor(tokens)) @ model.double().U_K).numpy()[int(model.has_bos) :]
    places = [i for i, t in enumerate(tokens) if t == ONE]
    return keys[places], [(i + 1) // 2 if i % 2 else 0 for i in range(len(places))]


def projected(rows: Array) -> Array:
    """Two principal components (n, 2) of rows (n, e); zeros where they have fewer."""
    centred = rows - rows.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((len(rows), 2))
    found[:, : min(2, len(s))] = (u * s)[:, :2]
    return found


def by_rotation(model: PositionalContextualTransformer) -> Array:
    """The largest size of a score that each pair of head coordinates takes part in (pairs,), at one place."""
    E, W_Q, W_K = (getattr(model, name).double().numpy() for name in ("E", "W_Q", "W_K"))
    q, k = E @ W_Q, E @ W_K
    return np.array([np.abs(q[:, a : a + 2] @ k[:, a : a + 2].T).max() for a in range(0, q.shape[1], 2)])


def encoder(model: ContextualCountingTransformer, rotating: PositionalContextualTransformer | None = None) -> Figure:
    """Draws the encoder's scores by tokens and the decoder's keys of the 1s; of a model that rotates, scores by pair.

    Claim: B, Fig. 6, Fig. 9 and Fig. 25, of the constructed weights: 1s attend to BOS and delimiters only, keys tell
        the regions apart and put everything outside at one point, and of RoPE's rotations only the slowest is used.
    """
    with style():
        figure, axes = new_figure(6.4 if rotating is None else 9.2, 2.9, ncols=2 if rotating is None else 3)
        _scores(axes[0], token_scores(model if rotating is None else rotating))
        keys, regions = keys_of_ones(model)
        points = projected(keys)
        for point, region in zip(points, regions, strict=True):
            axes[1].plot(*point, "o", color=BLUE if region else GREY, markersize=4)
            if region:
                axes[1].annotate(str(region), point, xytext=(4, 3), textcoords="offset points", fontsize=8)
        axes[1].set_title("keys of 1s by region (Fig. 9)")
        axes[1].set_xlabel("first principal component")
        axes[1].set_ylabel("second")
        if rotating is not None:
            _rotations(axes[2], by_rotation(rotating))
    return figure


def _scores(axes: Axes, scores: Array) -> None:
    axes.imshow(scores, cmap="cividis")
    names = ["B" if t == "BOS" else t for t in TOKENS]
    axes.set_xticks(range(5), names)
    axes.set_yticks(range(5), names)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    middle = (scores.min() + scores.max()) / 2
    for i in range(5):
        for j in range(5):
            colour = "white" if scores[i, j] < middle else "black"
            axes.text(j, i, f"{scores[i, j]:.0f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_title("encoder's scores (Fig. 6)")


def _rotations(axes: Axes, sizes: Array) -> None:
    pairs = np.arange(len(sizes))
    axes.bar(pairs, sizes, color=BLUE, label="largest score")
    axes.set_xlabel("pair of coordinates")
    axes.set_ylabel("largest score")
    other = axes.twinx()
    other.semilogy(pairs, BASE ** (-pairs / len(sizes)), color=ORANGE)
    other.set_ylabel("rotation per place")
    axes.set_title("scores by rotation (Fig. 25)")
