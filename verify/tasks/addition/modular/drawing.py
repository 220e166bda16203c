"""Addition modulo P by rotation: the circle, one pair's logits, and margins against the number of frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from constructions.adder.transformer import AdderTransformer
from constructions.errors import BadInput
from constructions.modular import check_K, check_modulus, clock, pizza, pizza_frequencies
from verify.arithmetic.readings import Real
from verify.frame.decide import certify
from verify.report.style import BLUE, GREEN, GREY, ORANGE, VERMILLION, new_figure, style
from verify.tasks.addition.modular.best import best
from verify.tasks.addition.modular.task import ModularAddition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 300
LARGEST_K = 4  # of the margins that are drawn: a few seconds at P = 113


def modular(P: int, pair: tuple[int, int], K: int) -> Figure:
    """Three panels: averages on one frequency's circle, a pair's logits by pizza and clock, margins against K.

    Claim: E-4.1, W-E4.5, W-E4.6; E, Sec. 4 describes the circle of trained models. Margins are proved lower bounds over
    all P^2 pairs, the clock's of the best sets there are.
    Raises: BadInput for an even P or one beyond 300, a pair that is none, or more frequencies than are drawn.
    """
    check_modulus(P, least=5)
    if P % 2 == 0 or P > LARGEST:
        raise BadInput(f"P={P}: must be odd, as a pizza needs it, and at most {LARGEST}")
    if not all(0 <= x < P for x in pair):
        raise BadInput(f"pair={pair[0]},{pair[1]}: must be two numbers from 0 to {P - 1}")
    check_K(P, K)
    if K > LARGEST_K:
        raise BadInput(f"K={K}: at most {LARGEST_K} are drawn; verify modular --best finds more")
    with style():
        figure, (circle, logits, margins) = new_figure(11.0, 3.8, ncols=3)
        _circle(circle, P, pair)
        _logits(logits, P, pair, K)
        _margins(margins, P, K)
        figure.suptitle(f"a + b modulo {P}")
    return figure


def models(P: int, K: int) -> dict[str, AdderTransformer]:
    """A pizza and a clock of K frequencies."""
    return {
        "pizza": pizza(P=P, frequencies=pizza_frequencies(P, K), m=5 if P <= 117 else 9),
        "clock": clock(P=P, frequencies=best(P, K).frequencies),
    }


def logits_of(model: AdderTransformer, P: int, pair: tuple[int, int]) -> np.ndarray:
    """The logits of every class at "=", as torch computes them."""
    with torch.no_grad():
        return np.asarray(model(torch.tensor([[*pair, P]]))[0, -1].numpy())


def margins_by_K(P: int, K: int) -> dict[str, list[float]]:
    """Proved lower bounds on the margins for 1..K frequencies, 0 where the model is not proved."""
    found: dict[str, list[float]] = {"pizza": [], "clock": []}
    for k in range(1, K + 1):
        for name, model in models(P, k).items():
            certificate = certify(ModularAddition(model, P), Real())
            found[name].append((certificate.margin or 0.0) if certificate else 0.0)
    return found


def _circle(axes: Axes, P: int, pair: tuple[int, int]) -> None:
    angles = 2 * np.pi * np.arange(P) / P
    axes.plot(np.cos(angles), np.sin(angles), ".", color=GREY, markersize=2)
    ends = np.stack([np.cos(angles[list(pair)]), np.sin(angles[list(pair)])])
    axes.plot(*ends, "o-", color=BLUE, markersize=4, linewidth=0.8, label=f"{pair[0]} and {pair[1]}")
    axes.plot(*ends.mean(axis=1), "s", color=ORANGE, markersize=5, label="their average")
    answer = sum(pair) % P
    axes.plot(np.cos(angles[answer]), np.sin(angles[answer]), "*", color=VERMILLION, markersize=9, label=str(answer))
    axes.set(aspect="equal", title="angle doubled: the answer", xticks=[], yticks=[])
    axes.legend(loc="lower left", fontsize=7)


def _logits(axes: Axes, P: int, pair: tuple[int, int], K: int) -> None:
    for (name, model), colour in zip(models(P, K).items(), (ORANGE, GREEN), strict=True):
        axes.plot(range(P), logits_of(model, P, pair), ".-", color=colour, markersize=2, linewidth=0.6, label=name)
    answer = sum(pair) % P
    axes.axvline(answer, color=VERMILLION, linewidth=0.8, linestyle="--")
    axes.set(xlabel="class c", ylabel="logit", title=f"logits of {pair[0]} + {pair[1]}, K = {K}")
    axes.legend(loc="best")


def _margins(axes: Axes, P: int, K: int) -> None:
    bounds = margins_by_K(P, K)
    at: Sequence[int] = range(1, K + 1)
    for (name, values), colour in zip(bounds.items(), (ORANGE, GREEN), strict=True):
        axes.plot(at, values, "o-", color=colour, markersize=4, label=name)
    axes.plot(at, [k * P / (P - 1) for k in at], "--", color=GREY, linewidth=0.8, label="no clock exceeds")
    axes.set(
        yscale="log", xlabel="frequencies K", ylabel="margin, proved on all pairs", title="margins", xticks=list(at)
    )
    axes.legend(loc="best")
