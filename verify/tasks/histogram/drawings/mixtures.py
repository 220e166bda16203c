"""Figures of a histogram model's hidden layer on mixtures of embeddings, whatever attention makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.report.style import new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

STEPS = 121  # points along each edge of a triangle
SHARES = 401  # of BOS, from 0 to 1


def mixtures(module: HistogramTransformer, tokens: list[int]) -> Figure:
    """The count that f answers on mixtures of three tokens; with BOS, over BOS's share for each pair of tokens.

    Claim: A, Fig. 4 (right columns): f(a_B e_B + a_C e_C + a_D e_D + R) over the triangle of a's, with R each of the
    three embeddings in turn. With BOS A, Fig. 3 (right) and Fig. 13: f(a e_BOS + (1 - a) e_D + e_B) over a.
    Raises: BadInput for other than three different tokens of the model, or two with BOS at least.
    """
    least = 2 if module.has_bos else 3
    is_known = all(0 <= t < module.T for t in tokens) and len(set(tokens)) == len(tokens)
    if not is_known or len(tokens) < least or (not module.has_bos and len(tokens) != 3):
        number = "two tokens or more" if module.has_bos else "three tokens"
        raise BadInput(f"tokens={','.join(map(str, tokens))}: must be {number}, all different, of 0..{module.T - 1}")
    return _over_share(module, tokens) if module.has_bos else _over_triangle(module, tokens)


def answered(module: HistogramTransformer, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The count that the hidden layer and the readout answer, in float64, on mixed tokens (..., d)."""
    W_1, b_1, W_2, b_2 = (w.detach().double().numpy() for w in (module.W_1, module.b_1, module.W_2, module.b_2))
    found: NDArray[np.int64] = (np.maximum(x @ W_1 + b_1, 0) @ W_2 + b_2).argmax(-1) + module.first_count
    return found


def _over_share(module: HistogramTransformer, tokens: list[int]) -> Figure:
    share = np.linspace(0, 1, SHARES)
    E, bos = (w.detach().double().numpy() for w in (module.E, module.e_BOS))
    pairs = [(own, other) for own in tokens for other in tokens if own != other]
    with style():
        figure, axes = new_figure(6.4, 4.0)
        for own, other in pairs:
            x = share[:, None] * bos + (1 - share)[:, None] * E[other] + E[own]
            axes.plot(share, answered(module, x), linewidth=1, label=f"{own} beside {other}")
        axes.set_xlabel("share of BOS")
        axes.set_ylabel("count that is answered")
        if len(pairs) <= 12:
            axes.legend(fontsize=7, ncols=2)
        axes.set_title(_title(module))
    return figure


def _over_triangle(module: HistogramTransformer, tokens: list[int]) -> Figure:
    E = module.E.detach().double().numpy()[tokens]
    i, j = (part.ravel() for part in np.meshgrid(np.arange(STEPS), np.arange(STEPS)))
    i, j = i[i + j < STEPS], j[i + j < STEPS]
    shares = np.stack([STEPS - 1 - i - j, i, j], axis=1) / (STEPS - 1)
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    x, y = (shares @ corners).T
    with style():
        figure, axes = new_figure(9.0, 3.4, ncols=3)
        for panel, (place, token) in zip(axes, enumerate(tokens), strict=True):
            count = answered(module, shares @ E + E[place])
            points = panel.scatter(x, y, c=count, s=3, cmap="viridis", vmin=module.first_count, vmax=module.L)
            for corner, name in zip(corners, tokens, strict=True):
                panel.annotate(
                    str(name), corner, xytext=1.12 * (corner - corners.mean(0)) + corners.mean(0), ha="center"
                )
            panel.set_title(f"$R = e_{{{token}}}$", pad=16)  # above the corner's name
            panel.set_aspect("equal")
            panel.set_axis_off()
        counts = range(module.first_count, module.L + 1, 1 + module.L // 12)
        figure.colorbar(points, ax=list(axes), label="count that is answered", shrink=0.8, ticks=counts)
        figure.suptitle(_title(module))
    return figure


def _title(module: HistogramTransformer) -> str:
    return f"{module.model}, T={module.T}, L={module.L}, d={module.d}, p={module.p}"
