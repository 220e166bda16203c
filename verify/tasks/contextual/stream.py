"""What the decoder sees of one position: its score for every prompt and its value, from the stored weights, with balls.

A position's stream depends on its token and on how many of each token precede it, itself included. Where the two
digit counts a, b are free (a >= a0, b >= b0, a + b <= A), the attention's output is a quotient of linear forms in
(a, b) with a positive denominator, so it maps that triangle onto the triangle of its corners' images: three corners
stand for all prefixes. A neuron that is on (or off) at the corners is on (or off) inside; then scores and values are
affine there and extreme at a corner. Other neurons enter as an interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from constructions.contextual_counting_arrays import BOS, CLOSE, ONE, OPEN, WEIGHTS, ZERO
from verify.arithmetic import softmax
from verify.arithmetic.balls import Ball, joined
from verify.arithmetic.readings import Reading
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import finite
from verify.frame.clock import Deadline
from verify.frame.decide import Failure, Provable
from verify.frame.unmade import check_judged
from verify.reduction.domains import Hull
from verify.reduction.leaf import leaf
from verify.tasks.contextual import MODEL
from verify.tasks.contextual.task import StringDomain

if TYPE_CHECKING:
    from verify.tasks.contextual.model import ContextualModel

PIECE = 1 << 26  # products of a matrix product between two looks at the clock


@dataclass(frozen=True)
class StoredContextual:
    """The stored numbers of a model, exactly: W[name] are float64 arrays, R the prompts, g the value's dimension."""

    W: dict[str, Array]
    has_bos: bool

    @property
    def R(self) -> int:
        return len(self.W["P"])

    @property
    def g(self) -> int:
        result: int = self.W["U_V"].shape[1]
        return result

    @property
    def classes(self) -> int:
        return len(self.W["b_out"])

    def ball(self, name: str) -> Ball:
        return Ball.exact(self.W[name])

    @classmethod
    def of(cls, module: ContextualModel) -> StoredContextual:
        """Reads them off a module.

        Raises: BadInput for a dtype that float64 does not hold, and for NaN or infinity.
        """
        check_judged(module, MODEL)
        return cls({name: finite(name, getattr(module, name)) for name in WEIGHTS}, module.has_bos)


class DecidableRegions(Provable, Protocol):
    """What the proofs ask of a problem: the module, its numbers, its strings, and how a failure is described."""

    @property
    def module(self) -> ContextualModel: ...

    @property
    def stored(self) -> StoredContextual: ...

    @property
    def domain(self) -> StringDomain: ...

    def replay(self, item: tuple[int, ...], answer: int, reading: Reading) -> Failure: ...

    def wrong_in_real_arithmetic(self, tokens: list[int], prompt: int) -> Failure: ...


@dataclass(frozen=True)
class Positions:
    """Bounds on what the decoder sees of K kinds of positions.

    Shapes: scores (K, R), values (K, g), each a ball around the range over all prefixes.
    """

    scores: Ball
    values: Ball

    @classmethod
    def joined(cls, pieces: Sequence[Positions]) -> Positions:
        """The kinds of all pieces, in their order."""
        return cls(joined(*(x.scores for x in pieces), axis=0), joined(*(x.values for x in pieces), axis=0))


@dataclass(frozen=True)
class StreamReader:
    """What reads the stream before the feed-forward layer, and its hidden neurons: scores and values, affinely.

    Shapes: direct (d, R + g), hidden (p, R + g), added (1, 1, R + g).
    """

    direct: Ball
    hidden: Ball
    added: Ball

    @classmethod
    def of(cls, stored: StoredContextual, until: Deadline) -> StreamReader:
        """Raises: TimeIsUp."""
        queries = within(stored.ball("P"), stored.ball("U_Q"), until)
        direct = joined(within(stored.ball("U_K"), queries.T, until), stored.ball("U_V"))
        return cls(direct, within(stored.ball("W_2"), direct, until), stored.ball("b_2")[None, None] @ direct)


@dataclass(frozen=True)
class Encoded:
    """The encoder's intermediate results at the corners of K kinds, in real arithmetic.

    Shapes: attended (K, corners, d_h), x (K, corners, d) before the feed-forward layer, pre (K, corners, p).
    """

    attended: Ball
    x: Ball
    pre: Ball


def encode(stored: StoredContextual, kinds: Kinds) -> Encoded:
    """Up to the hidden neurons."""
    tokens, counts = kinds.tokens, kinds.counts
    attended = attend(stored, tokens, counts, stored.ball("E") @ stored.ball("W_V"))
    x = stored.ball("E")[tokens][:, None, :] + attended @ stored.ball("W_O")
    return Encoded(attended, x, x @ stored.ball("W_1") + stored.ball("b_1"))


def see(stored: StoredContextual, encoded: Encoded, reader: StreamReader) -> Positions:
    """Scores for every prompt, and values."""
    affine = encoded.x @ reader.direct + reader.added
    bounds = leaf(Hull(), encoded.pre, reader.hidden, affine).range
    return Positions(bounds[:, : stored.R], bounds[:, stored.R :])


def at_a_time(products: int) -> int:
    """How many rows of so many products each are worked off between two looks at the clock.

    >>> at_a_time(1 << 20), at_a_time(1 << 40)
    (64, 1)
    """
    return max(1, PIECE // max(1, products))


def pieces(stored: StoredContextual, kinds: Kinds, until: Deadline) -> Iterator[Kinds]:
    """The kinds, some at a time.

    Raises: TimeIsUp.
    """
    p, d, readers = stored.W["W_1"].shape[1], stored.W["W_1"].shape[0], stored.R + stored.g
    step = at_a_time(kinds.counts.shape[1] * (p + readers) * (p + d))
    for at in range(0, len(kinds.tokens), step):
        until.check()
        yield kinds[at : at + step]


def within(x: Ball, y: Ball, until: Deadline) -> Ball:
    """The matrix product, some rows at a time.

    Raises: TimeIsUp.
    """
    pieces, step = [x[:0] @ y], at_a_time(y.mid.size)
    for at in range(0, len(x.mid), step):
        until.check()
        pieces.append(x[at : at + step] @ y)
    return joined(*pieces, axis=0)


def attend(stored: StoredContextual, tokens: np.ndarray, counts: np.ndarray, values: Ball) -> Ball:
    """The encoder's weighted mean (K, corners, n) of values (5, n)."""
    E = stored.ball("E")
    scores = ((E @ stored.ball("W_Q")) @ (E @ stored.ball("W_K")).T)[tokens][:, None, :]
    scores_there = Ball(*(np.broadcast_to(part, counts.shape) for part in (scores.mid, scores.rad)))
    weights = softmax.weights(scores_there, counts > 0) * Ball.exact(counts.astype(np.float64))
    total = weights @ Ball.exact(np.ones((5, 1)))
    return (weights @ values) / total


@dataclass(frozen=True)
class Kinds:
    """The kinds of positions in strings of up to N tokens and M regions: a token after m delimiters, itself included.

    Shapes: tokens, m (K,); counts (K, corners, 5), the position itself included; the corners span the prefixes of a
        kind, and here are three.
    """

    tokens: np.ndarray
    m: np.ndarray
    counts: np.ndarray

    def __getitem__(self, index: slice) -> Kinds:
        return Kinds(self.tokens[index], self.m[index], self.counts[index])

    @classmethod
    def of(cls, N: int, M: int, has_bos: bool) -> Kinds:
        """All kinds that occur.

        >>> len(Kinds.of(16, 2, True).tokens)  # BOS, 4 delimiters, and both digits after 0 to 4 delimiters
        15
        """
        kinds = [(BOS, 0)] if has_bos else []
        for m in range(2 * M + 1):
            delimiter = [(OPEN if m % 2 else CLOSE, m)] if m else []
            kinds += delimiter + [(ZERO, m), (ONE, m)]
        room = {m: N - m - m % 2 for m in range(2 * M + 1)}  # an open region needs one more token
        kinds = [(t, m) for t, m in kinds if room[m] >= (t in (ZERO, ONE))]
        tokens, after = np.array([t for t, _ in kinds]), np.array([m for _, m in kinds])
        counts = np.zeros((len(kinds), 3, 5), dtype=np.int64)
        counts[..., OPEN], counts[..., CLOSE] = ((after + 1) // 2)[:, None], (after // 2)[:, None]
        counts[..., BOS] = has_bos
        a0, b0 = (tokens == ZERO).astype(np.int64), (tokens == ONE).astype(np.int64)
        digits = np.where(tokens == BOS, 0, np.array([room[int(m)] for m in after]))
        counts[..., ZERO] = np.stack([a0, digits - b0, a0], axis=1)
        counts[..., ONE] = np.stack([b0, b0, digits - a0], axis=1)
        counts[tokens == BOS] = np.eye(5, dtype=np.int64)[BOS]
        return cls(tokens, after, counts)
