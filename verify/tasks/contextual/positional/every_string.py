"""Every string of one length and number of regions, prefix by prefix: the share on which a causal model is right.

The stream at a place depends on the tokens up to it alone, so that all strings that begin alike share it, and what the
decoder has summed up so far. All is computed in float64, and how far that is off is bounded once, for all strings, from
the sizes of what is computed. A prompt whose lead is beyond the bound is decided, and any other one by itself, in balls
of 400 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import torch
from torch import Tensor

from constructions.contextual.positional import PositionalContextualTransformer
from constructions.contextual.transformer import BOS, CLOSE, ONE, OPEN, ZERO
from constructions.errors import BadInput
from verify.arithmetic import elementary, softmax
from verify.arithmetic.balls import Ball, joined
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.margins import margins_of
from verify.arithmetic.slack import INFLATION, LOST, Array, U, gamma
from verify.arithmetic.stored import check_finite
from verify.tasks.contextual import exact
from verify.tasks.contextual.accuracy import PairShare, RandomStrings
from verify.tasks.contextual.bidirectional.spans import product, rounding
from verify.tasks.contextual.positional.proof import PositionalProof
from verify.tasks.contextual.positional.task import Positional
from verify.tasks.contextual.task import answers

MOST_STRINGS = 50_000_000
MOST_OPEN = 2000  # strings with a prompt too near a tie for float64, decided by themselves
PIECE = 1 << 14  # prefixes that are gone on with at once
READOUT = ("W_3", "b_3", "W_4", "b_4", "W_out", "b_out")
FAINT_WEIGHT = 2.0**-50  # below it a weight's error is counted by itself, not as a part of it
TINY = FORMATS["float64"].tiny


@dataclass(frozen=True)
class PromptShares:
    """The shares of strings on which each prompt is right, and the first string, in the order of tokens, that is not.

    `wrong` is the string and the prompt (from 0).
    """

    shares: tuple[PairShare, ...]
    wrong: tuple[list[int], int] | None

    @property
    def whole(self) -> PairShare:
        """Over pairs of a string and a prompt."""
        n = len(self.shares)
        return PairShare(
            sum(s.right for s in self.shares) / Fraction(n), sum(s.open for s in self.shares) / Fraction(n)
        )


@dataclass(frozen=True)
class SizedNumbers:
    """Numbers that are computed: at most `size` in absolute value, and off by at most `error`, entry by entry."""

    size: Array
    error: Array

    @classmethod
    def of(cls, x: Ball) -> SizedNumbers:
        """Any row of stored midpoints, of what lies within their radii."""
        rows = np.atleast_2d(np.abs(x.mid)), np.atleast_2d(x.rad)
        return cls(rows[0].max(0), rows[1].max(0))

    def and_(self, other: SizedNumbers) -> SizedNumbers:
        return SizedNumbers(np.concatenate([self.size, other.size]), np.concatenate([self.error, other.error]))

    def through(self, W: Ball, added: SizedNumbers) -> SizedNumbers:
        """The product with the midpoints of W, in any order of its sums, and what is added to it.

        Proof. |x' W' - x W| <= |x' - x| |W| + |x'| |W' - W|, and n products and n sums are rounded.
        """
        size_W = np.abs(W.mid) + W.rad
        size = (self.size + self.error) @ size_W + added.size + added.error
        spread = self.error @ size_W + self.size @ W.rad + added.error
        lost = rounding(size, np.full(size.shape, len(W.mid) + 1.0), np.ones(size.shape, bool), None)
        error = (spread + lost) * INFLATION + TINY
        return SizedNumbers((size + error) * INFLATION, error)

    def plus(self, other: SizedNumbers) -> SizedNumbers:
        size = self.size + other.size
        error = (self.error + other.error + U * size) * INFLATION
        return SizedNumbers((size + error) * INFLATION, error)

    def averaged(self, relative: float, absolute: float, terms: int) -> SizedNumbers:
        """A weighted mean of up to so many of them, the quotient of two sums. One weight is at least 1/2.

        Each computed weight w is off by at most `relative` w + `absolute`, up to a factor that all share.

        Proof. Let m be the exact mean, at most V. Dashes are computed, and W = sum w' >= 1/2. Then the absolute value
        of sum w' v' / W - m = (sum (w' v' - w v) - m sum (w' - w)) / W is at most the error of a value and 2 V times
        relative + 2 n absolute. Rounded are n products, n - 1 sums above and below, and a quotient; n + 1 of them may
        underflow, by less than TINY in all.
        """
        V = self.size + self.error
        rounded = 2 * (relative + 2 * terms * absolute) + gamma(2 * terms + 8)
        error = (self.error + V * rounded) * INFLATION + TINY if rounded < inf else np.full(V.shape, inf)
        return SizedNumbers((V + error) * INFLATION, error)


@dataclass(frozen=True)
class Beginnings:
    """Beginnings of strings, and what the decoder has summed up over BOS and their tokens.

    Shapes: tokens (n, length); weights (n, M); values (n, M, g).
    """

    tokens: Tensor
    weights: Tensor
    values: Tensor

    def __getitem__(self, rows: Tensor | slice) -> Beginnings:
        return Beginnings(self.tokens[rows], self.weights[rows], self.values[rows])


def together(parts: list[Beginnings]) -> Beginnings:
    """All prefixes of several groups, of one length."""
    columns = zip(*((part.tokens, part.weights, part.values) for part in parts), strict=True)
    return Beginnings(*(torch.cat(column) for column in columns))


class Walk:
    """The tables of one model, and the walk over all strings of N tokens with M regions.

    Shapes: a kind is a token at a place, number token * places + place. mixed (kinds, kinds, h + 1): for a query's kind
        and a key's, the weighted value and the weight; before (kinds, p), seen (kinds, M + g): what does not depend on
        the attention; to_hidden (h, p), to_seen (h + p, M + g).
    """

    def __init__(self, module: PositionalContextualTransformer, N: int, M: int) -> None:
        problem = Positional.of(module, length=N, regions=M)
        check_finite(module.named_parameters())
        self.numbers, self.N, self.M = problem.weights, N, M
        proof = PositionalProof(problem.weights, N, M, None)
        W, self.places, self.W = proof.W, N + 1, proof.W
        scores, is_later = proof.scored()
        w, v = softmax.weights(scores, ~is_later, scores.mid[:, [self.bos]]), product(proof.x, W["W_V"], None)
        prompts = product(W["P"][:M], W["U_Q"], None)
        read = joined(product(W["U_K"], prompts.T, None), W["U_V"])
        before = product(proof.x, W["W_1"], None, W["b_1"])
        added = product(W["b_2"][None], read, None)
        seen = product(proof.x, read, None, added)
        to_hidden = product(W["W_O"], W["W_1"], None)
        parts = product(W["W_O"], read, None), product(W["W_2"], read, None)
        to_seen = joined(*(part.T for part in parts)).T
        ones = np.concatenate([v.mid, np.ones((len(v.mid), 1))], axis=1)
        self.mixed, self.before = torch.tensor(w.mid[:, :, None] * ones), torch.tensor(before.mid)
        self.seen, self.to_hidden = torch.tensor(seen.mid), torch.tensor(to_hidden.mid)
        self.to_seen = torch.tensor(to_seen.mid)
        self.readout = {name: torch.tensor(W[name].mid) for name in READOUT}
        self.radius = self._radius(w, v, (before, to_hidden), (seen, to_seen))
        self.reference = self._of_bos()[:, :M]

    @property
    def bos(self) -> int:
        return BOS * self.places

    def _radius(self, w: Ball, v: Ball, hidden: tuple[Ball, Ball], seen: tuple[Ball, Ball]) -> float:
        """How far any computed lead is off."""
        is_small = w.mid < FAINT_WEIGHT
        relative = float(np.where(is_small, 0.0, w.rad / np.where(is_small, 1.0, w.mid)).max() * INFLATION)
        absolute = float(np.where(is_small, w.rad, 0.0).max())
        mean = SizedNumbers.of(v).averaged(relative, absolute, self.places)
        if not (np.isfinite(mean.error).all() and (w.mid[:, self.bos] >= 0.5).all()):
            return inf
        pre = mean.through(hidden[1], SizedNumbers.of(hidden[0]))
        found = mean.and_(pre).through(seen[1], SizedNumbers.of(seen[0]))
        scores, values = (SizedNumbers(found.size[at], found.error[at]) for at in (slice(self.M), slice(self.M, None)))
        eta = float((scores.error + 2 * U * scores.size).max() * INFLATION)  # less BOS's, another score
        if not eta <= 1:
            return inf
        # e^eta - 1 <= eta (1 + eta), and an exponential is off by a factor of 1 + exp_error
        of_exp = elementary.exp_error()
        relative = (eta * (1 + eta) * (1 + 2 * of_exp) + 2 * of_exp) * INFLATION
        z = values.averaged(relative, LOST, self.places)
        again = z.through(self.W["W_3"], SizedNumbers.of(self.W["b_3"])).through(
            self.W["W_4"], SizedNumbers.of(self.W["b_4"])
        )
        logits = z.plus(again).through(self.W["W_out"], SizedNumbers.of(self.W["b_out"]))
        return float(logits.error.max() * 2 * INFLATION)

    def leads(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All strings (n, N), their right counts (n, M) and leads (n, M), piece by piece."""
        ahead = [self._begun()]
        while ahead:
            prefixes = ahead.pop()
            if prefixes.tokens.shape[1] == self.N:
                yield self._read(prefixes)
                continue
            longer = together(list(self._longer(prefixes)))
            ahead += [longer[at : at + PIECE] for at in range(0, len(longer.tokens), PIECE)]

    def _begun(self) -> Beginnings:
        """BOS alone: its weight is 1 for every prompt."""
        out = self._of_bos()
        weights = self._weights(out)
        return Beginnings(torch.zeros(1, 0, dtype=torch.long), weights, weights[:, :, None] * out[:, None, self.M :])

    def _of_bos(self) -> Tensor:
        """Scores and values (1, M + g) of BOS, which attends to itself."""
        return self._out(self.bos, self.mixed[self.bos, self.bos][None])

    def _weights(self, out: Tensor) -> Tensor:
        return elementary.exp(out[:, : self.M] - self.reference)

    def _out(self, kind: int, sums: Tensor) -> Tensor:
        """Scores and values (n, M + g) of a kind, from its attention's sums (n, h + 1)."""
        mean = sums[:, :-1] / sums[:, -1:]
        hidden = torch.relu(torch.addmm(self.before[kind], mean, self.to_hidden))
        return torch.addmm(self.seen[kind], torch.cat([mean, hidden], 1), self.to_seen)

    def _longer(self, prefixes: Beginnings) -> Iterator[Beginnings]:
        """Each prefix with every token that a valid string may have next."""
        place = prefixes.tokens.shape[1] + 1
        m = (prefixes.tokens >= OPEN).sum(1)
        for token in (ZERO, ONE, OPEN, CLOSE):
            after = m + int(token >= OPEN)
            may = (2 * self.M - after <= self.N - place) & (after <= 2 * self.M)
            if token >= OPEN:
                may &= (m % 2 == 0) == (token == OPEN)
            rows = may.nonzero()[:, 0]
            if len(rows):
                yield self._with(prefixes[rows], token, place)

    def _with(self, prefixes: Beginnings, token: int, place: int) -> Beginnings:
        kind = token * self.places + place
        mixed, tokens = self.mixed[kind], prefixes.tokens
        sums = (mixed[self.bos] + mixed[kind]).expand(len(tokens), -1).clone()
        for before in range(1, place):
            sums += mixed[tokens[:, before - 1] * self.places + before]
        out = self._out(kind, sums)
        weights = self._weights(out)
        return Beginnings(
            torch.cat([tokens, torch.full((len(tokens), 1), token)], 1),
            prefixes.weights + weights,
            prefixes.values + weights[:, :, None] * out[:, None, self.M :],
        )

    def _read(self, strings: Beginnings) -> tuple[Tensor, Tensor, Tensor]:
        z = strings.values / strings.weights[:, :, None]
        W = self.readout
        z = z + (torch.relu(z @ W["W_3"] + W["b_3"]) @ W["W_4"] + W["b_4"])
        right = counts(strings.tokens, self.M)
        return strings.tokens, right, margins_of(z @ W["W_out"] + W["b_out"], right)

    def by_itself(self, tokens: list[int], prompt: int) -> bool | None:
        """Whether one string is right at a prompt, in balls of 400 bits; None where even they do not tell."""
        lead = exact.margins(self.numbers, tokens, answers(tokens, len(self.numbers["P"])), is_causal=True)[prompt]
        return True if lead > 0 else False if lead <= 0 else None


def counts(tokens: Tensor, M: int) -> Tensor:
    """The ones of each region of valid strings (n, N): (n, M).

    >>> counts(torch.tensor([[1, 2, 1, 3, 2, 3], [2, 1, 1, 3, 0, 1]]), 2).tolist()
    [[1, 0], [2, 0]]
    """
    opened, closed = (tokens == OPEN).cumsum(1), (tokens == CLOSE).cumsum(1)
    inside = [(tokens == ONE) & (opened == r) & (closed == r - 1) for r in range(1, M + 1)]
    return torch.stack([ones.sum(1) for ones in inside], 1)


def decide(
    module: PositionalContextualTransformer, N: int, M: int, advance: Callable[[float], None] = lambda share: None
) -> PromptShares:
    """Every string of N tokens with M >= 1 regions, and the prompts of these regions.

    Raises: BadInput for more regions than prompts, for a length that the model has no places or classes for or that
        does not hold the regions, and for too many strings.

    >>> from constructions.contextual_with_positions import build
    >>> decide(build(8, 2, "rope"), 8, 2).whole
    PairShare(right=Fraction(1, 1), open=Fraction(0, 1))
    """
    if not 1 <= M <= min(module.R, N // 2):
        raise BadInput(f"regions={M}: must be from 1 to {min(module.R, N // 2)}: {module.R} prompts, {N} tokens")
    number, done = RandomStrings(N, M).number(), 0
    if number > MOST_STRINGS:
        raise BadInput(f"length={N}: has {number} strings of {M} regions, and at most {MOST_STRINGS} are run")
    walk = Walk(module, N, M)
    right, unsure = np.zeros(M, dtype=np.int64), np.zeros(M, dtype=np.int64)
    first: tuple[list[int], int] | None = None
    near: list[tuple[list[int], int]] = []
    for tokens, _, leads in walk.leads():
        is_right, is_wrong = leads > walk.radius, leads < -walk.radius
        right += is_right.sum(0).numpy()
        is_open = ~(is_right | is_wrong)  # NaN too
        unsure += is_open.sum(0).numpy()
        if len(near) <= MOST_OPEN:
            rows = is_open.nonzero()[: MOST_OPEN + 1 - len(near)]
            near += [(tokens[row].tolist(), prompt) for row, prompt in rows.tolist()]
        first = earlier(first, tokens, is_wrong)
        done += len(tokens)
        advance(done / number)
    assert done == number, "every string is one of those that are counted"
    for tokens_, prompt in near[:MOST_OPEN]:
        known = walk.by_itself(tokens_, prompt)
        unsure[prompt] -= known is not None
        right[prompt] += known is True
        if known is False and (first is None or (tokens_, prompt) < first):
            first = tokens_, prompt
    shares = [PairShare(Fraction(int(a), number), Fraction(int(b), number)) for a, b in zip(right, unsure, strict=True)]
    return PromptShares(tuple(shares), first)


def earlier(first: tuple[list[int], int] | None, tokens: Tensor, is_wrong: Tensor) -> tuple[list[int], int] | None:
    """The first of a string that is wrong and of these."""
    rows = is_wrong.any(1).nonzero()[:, 0]
    if not len(rows):
        return first
    places = 4 ** torch.arange(tokens.shape[1] - 1, -1, -1)
    row = rows[(tokens[rows] * places).sum(1).argmin()]
    found = tokens[row].tolist(), int(is_wrong[row].int().argmax())
    return found if first is None or found < first else first
