"""Single inputs of one attention layer: logits in float64, all of a batch within one radius for each class."""

from __future__ import annotations

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma
from verify.engine.balls import Arithmetic, Ball
from verify.engine.one_layer.after import NORMS, RMS
from verify.engine.one_layer.bounds import ATTENTION
from verify.engine.one_layer.layer import Affine, Block, Layer
from verify.engine.one_layer.lines import SLOPES, value
from verify.engine.rules.normalisation import layer_norm, rms_norm

AT = Arithmetic()
STRONG = 2.0**-600  # weights below it have errors that are no share of them


class Points:
    """Logits of inputs that are given by the ranks of their tokens.

    Proof of the radius of an atom r = N / Z, computed from tables N', Z' with the sums of x', w'. As N = r Z,
    r' - r = (sum of (x' - x) - r sum of (w' - w)) / Z', and the rounding of sums and quotient. Where a weight is not
    below STRONG, the radii of x and w are at most so many times w', and their sums so many times Z'; the others are
    added up at their largest, and divided by the least Z'.
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        weights, values = layer.weights, layer.values
        places = weights.mid.shape[1]
        self.weights = weights.mid
        strong = weights.mid > STRONG
        safe = torch.where(strong, weights.mid, 1.0)
        g = gamma(places + 8)

        def share(x: Tensor, at: Tensor) -> Tensor:
            """The largest quotient by the weight, where that is strong."""
            return torch.where(strong[at], x / safe[at], 0.0).flatten(1).amax(1) * ENLARGE + LEAST

        def rest(x: Tensor, at: Tensor) -> Tensor:
            """The largest sum over the places of entries whose weight is not strong."""
            return torch.where(strong[at], 0.0, x).amax(-1).sum(-1) * ENLARGE

        heads, at = torch.arange(len(weights.mid)), layer.head
        least = weights.mid.amin(-1).sum(-1)[at] * (1 - g)
        w_share, w_rest = share(weights.radius, heads)[at], rest(weights.radius, heads)[at]
        x_size = values.mid.abs() + values.radius
        r = layer.largest
        by_share = share(values.radius, at) + r * w_share + g * (share(x_size, at) + 2 * r)
        faint = rest(values.radius, at) + r * w_rest + g * rest(x_size, at)
        by_rest = torch.where(faint == 0, 0.0, faint / least)
        self.radius = ((by_share + by_rest) * (1 + g) + g * r) * ENLARGE + 4 * LEAST

    def __call__(self, ranks: Tensor) -> Ball:
        """The logits (inputs, classes) of inputs (inputs, places)."""
        n = len(ranks)
        ranks = torch.cat([ranks, torch.zeros(n, 1, dtype=torch.long)], 1)
        places = torch.arange(ranks.shape[1])
        z = self.layer.weights.mid[:, places, ranks].sum(-1).T  # (inputs, heads)
        atoms = self.layer.values.mid[:, places, ranks].sum(-1).T / z[:, self.layer.head]
        results = {ATTENTION: (atoms, self.radius)}
        for b, block in enumerate(self.layer.blocks):
            results[b] = self._result(block, *self._affine(block.given, results))
        mid, rad = self._affine(self.layer.logits, results)
        return Ball(mid, rad.expand_as(mid))

    def _affine(self, given: Affine, results: dict[int, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The numbers of an affine map, and one radius for each."""
        mid, rad = given.constant.mid, given.constant.radius
        count = sum(part.mid.shape[1] for part in given.parts.values()) + 1
        g, size = gamma(count + len(given.parts) + 8), mid.abs()
        for source, part in given.parts.items():
            x, off = results[source]
            largest = x.abs().amax(0) + off
            absolute = part.mid.abs()
            mid = mid + x @ part.mid.T
            rad = rad + absolute @ off + part.radius @ largest
            size = size + absolute @ largest
        return mid, (rad + g * size) * ENLARGE + 2 * count * LEAST

    def _result(self, block: Block, mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
        ball = Ball(mid, rad.expand_as(mid))
        if block.function in NORMS:
            if block.function == RMS:
                found, *_ = rms_norm(AT, ball, [block.size], None, block.eps)
            else:
                found, *_ = layer_norm(AT, ball, [block.size], None, None, block.eps)
            return found.mid, found.radius.amax(0)
        if block.function not in SLOPES:
            found = value(block.function, ball)
            return found.mid, found.radius.amax(0)
        found = value(block.function, Ball(mid))
        off = SLOPES[block.function] * rad * (1 + 4 * U)
        return found.mid, (found.radius.amax(0) + off) * ENLARGE
