"""The proof of `bidirectional.proof` with a causal mask, rotations, distances, and an MLP in the decoder."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from constructions.contextual_counting_arrays import BOS
from verify.arithmetic.balls import Ball, ends, relu
from verify.arithmetic.slack import Array
from verify.tasks.contextual.bidirectional.proof import TOKENS, StringProof
from verify.tasks.contextual.bidirectional.spans import product, scaled, stored, total, weights


class PositionalProof(StringProof):
    """Decides one model on all valid strings of up to N tokens and R regions, in real arithmetic or in a format."""

    @cached_property
    def read(self) -> tuple[Ball, Ball]:
        """The queries and keys of all rows."""
        queries, keys = (self.rotated(product(self.x, self.W[name], self.fmt)) for name in ("W_Q", "W_K"))
        return queries, keys

    def scored(self, rows: slice = slice(None)) -> tuple[Ball, np.ndarray]:
        """The score of some rows for each other one, and which are at places after their own."""
        place = np.tile(np.arange(self.places), TOKENS)
        distance = place[rows, None] - place
        queries, keys = self.read[0][rows], self.read[1]
        slope = Ball(*(np.broadcast_to(part, distance.shape) for part in (self.W["slope"].mid, self.W["slope"].rad)))
        away = scaled(slope, stored(distance.astype(np.float64), self.fmt), self.fmt)
        scores = total(product(queries, keys.T, self.fmt), -away, self.fmt)
        return scores, distance < 0

    def weighed(self, rows: slice) -> tuple[Array, Array]:
        """What some rows give each other one: nothing to places after their own."""
        (scores, is_later), first = self.scored(rows), BOS * self.places
        always = scores[:, first : first + 1]
        # the maximum is taken over what is seen, so what is not seen stands in as BOS itself
        scores = Ball(np.where(is_later, always.mid, scores.mid), np.where(is_later, always.rad, scores.rad))
        low, high = weights(scores, first, self.fmt)
        return np.where(is_later, 0.0, low), np.where(is_later, 0.0, high)

    def rotated(self, x: Ball) -> Ball:
        """Queries or keys (5 places, e), each pair turned by its place's angle."""
        tables = (self.W["cosines"], self.W["sines"])
        cosines, sines = (
            Ball(*(np.tile(part[: self.places], (TOKENS, 1)) for part in (table.mid, table.rad))) for table in tables
        )
        first, second = x[:, 0::2], x[:, 1::2]
        turned = (
            total(scaled(first, cosines, self.fmt), -scaled(second, sines, self.fmt), self.fmt),
            total(scaled(first, sines, self.fmt), scaled(second, cosines, self.fmt), self.fmt),
        )
        mid, rad = (np.stack(parts, axis=-1).reshape(x.mid.shape) for parts in zip(*map(parts_of, turned), strict=True))
        return Ball(mid, rad)

    def decoded(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The attention's output and what the decoder's MLP adds to it."""
        z = Ball.between(low, high)
        hidden = relu(product(z, self.W["W_3"], self.fmt, self.W["b_3"]))
        added = product(hidden, self.W["W_4"], self.fmt, self.W["b_4"])
        down, up = ends(total(z, added, self.fmt))
        is_kept = (np.abs(added.mid) + added.rad == 0).all(axis=0)  # exactly 0 is added: nothing is rounded
        if self.fmt is not None:  # but what is below the smallest normal number may be flushed
            low = np.where(np.abs(low) < self.fmt.tiny, np.minimum(low, 0.0), low)
            high = np.where(np.abs(high) < self.fmt.tiny, np.maximum(high, 0.0), high)
        return np.where(is_kept, low, down), np.where(is_kept, high, up)


def parts_of(x: Ball) -> tuple[Array, Array]:
    return x.mid, x.rad
