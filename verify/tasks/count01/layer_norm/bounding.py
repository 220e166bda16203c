"""What a model answers on whole boxes of counts: floats with a radius at their corners, many boxes at once."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from verify.arithmetic.slack import ENLARGE_LONG, Array, U
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.tables import LOST_IN_QUOTIENTS, QUOTIENT_ERROR, SMALLEST_NORMALISER, nearest
from verify.tasks.count01.task import kinds

Integers = NDArray[np.int64]
CORNERS = np.array(list(product((0, 1), repeat=3)))


class BoxMargins:
    """(expected logit) - (each other logit) after `last`, on boxes low <= (n0, n1, n2) <= high.

    Each head's share is a quotient of linear forms with a positive denominator, so it is extreme at the corners.
    """

    def __init__(self, model: ModelNumbers, last: int, expected: int) -> None:
        rivals, tokens = [j for j in range(model.classes) if j != expected], kinds(last)
        constant = model.constant[last]
        self.constant = np.array([nearest(constant[expected] - constant[j]) for j in rivals])
        self.weights, self.added, radius = [], [], np.zeros(len(rivals))
        for h, head in enumerate(model.heads):
            self.weights.append(head.nearest_weights(last, tokens))
            added = [[model.difference(h, expected, j, t).nearest() for j in rivals] for t in tokens]
            self.added.append(np.array(added).reshape(len(tokens), len(rivals)))
            radius += QUOTIENT_ERROR * np.abs(self.added[-1]).max(axis=0) + LOST_IN_QUOTIENTS
        size = np.abs(self.constant) + sum(np.abs(x).max(axis=0) for x in self.added)
        self.radius = (radius + (len(model.heads) + 3) * 2 * U * size) * ENLARGE_LONG
        self.kinds = len(tokens)

    def decided(self, low: Integers, high: Integers) -> Integers:
        """1 for each box (K, 3) that is right throughout, -1 where a rival is larger throughout, 0 where open."""
        points = low[:, None] + CORNERS * (high - low)[:, None]
        one = np.ones((*points.shape[:2], 1))
        counts = np.concatenate([one, points.astype(float), *[one] * (self.kinds - 4)], axis=2)
        least, most = np.zeros((len(low), len(self.constant))), np.zeros((len(low), len(self.constant)))
        with np.errstate(all="ignore"):
            for w, added in zip(self.weights, self.added, strict=True):
                D = counts @ w
                found: Array = counts @ (w[:, None] * added) / np.where(D > SMALLEST_NORMALISER, D, np.nan)[..., None]
                found[np.isinf(found)] = np.nan  # an overflow bounds nothing
                least, most = least + found.min(axis=1), most + found.max(axis=1)
            is_right = (least + self.constant > self.radius).all(axis=1)
            is_wrong = (most + self.constant < -self.radius).any(axis=1)
        sides: Integers = is_right.astype(np.int64) - is_wrong
        return sides
