"""Every valid string at once: ranges of what each kind of position computes, and of what each prompt reads.

A kind is a token at a place after m delimiters, itself included. Given those, its attention is a sum over the other
places of a weight for the token that each holds, and the tokens form a valid string: the least and the largest sum over
all strings are found exactly by going through the places with m as the state. The quotient of two such sums bounds the
attention. From there on intervals; in the decoder, k ones of the asked region and BOS are fixed, and the other
positions together weigh at most their number times the heaviest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from constructions.contextual_counting_arrays import BOS, CLOSE, ONE, OPEN, ZERO
from verify.arithmetic.balls import Ball, ends, joined, relu, stacked
from verify.arithmetic.formats import Format
from verify.arithmetic.slack import ENLARGE, FAINT, INFLATION, OF_FEW, Array, gamma, lost_to_underflow
from verify.frame.clock import Deadline
from verify.tasks.contextual.bidirectional.spans import product, stored, total, weights
from verify.tasks.contextual.readout import LineReadout

TOKENS = 5
STEPS = 1 << 22  # of work on a place, between two looks at the clock
OF_SCORES = 64  # such steps for the weight of a place, beside one for each number of delimiters
KINDS = 1 << 13  # whose scores and values are computed between two looks


@dataclass(frozen=True)
class PromptCell:
    """The margin of count k of prompt r (from 1) over all strings, where it is positive."""

    r: int
    margin: Array  # by count


class StringProof(ABC):
    """Decides one model on all valid strings of up to N tokens and R regions, in real arithmetic or in a format."""

    def __init__(self, W: dict[str, Array], N: int, R: int, fmt: Format | None, until: Deadline | None = None) -> None:
        self.N, self.R, self.fmt, self.until = N, R, fmt, until or Deadline.never()
        self.places = N + 1
        self.W = {name: stored(value, fmt) for name, value in W.items()}
        self.W["positions"] = self.W["positions"][: self.places]
        self.readout = LineReadout(self.W["W_out"].mid, self.W["b_out"].mid, fmt)

    @cached_property
    def x(self) -> Ball:
        """Token plus position (5 places, d): row token * places + place."""
        E, positions = self.W["E"], self.W["positions"]
        spread = [np.repeat(part, self.places, axis=0) for part in (E.mid, E.rad)]
        tiled = [np.tile(part, (TOKENS, 1)) for part in (positions.mid, positions.rad)]
        return total(Ball(*spread), Ball(*tiled), self.fmt)

    @cached_property
    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """The row of x and the number of delimiters m of every kind that occurs in a string.

        The delimiters before it have places, and where a region is open there is one for its end.
        """
        row, m = np.indices((TOKENS * self.places, 2 * self.R + 1))
        token, place = row // self.places, row % self.places
        is_delimiter = (token == OPEN) | (token == CLOSE)
        fits = (place > m - is_delimiter) & ((m % 2 == 0) | (place < self.N))
        is_next = ~is_delimiter | ((m > 0) & ((m % 2 == 1) == (token == OPEN)))
        rows, delimiters = np.nonzero(np.where(token == BOS, (place == 0) & (m == 0), fits & is_next))
        return rows, delimiters

    @cached_property
    def attended(self) -> Ball:
        """Bounds the encoder head's output for every kind (K, h), some rows at a time.

        Raises: TimeIsUp.
        """
        values, found = product(self.x, self.W["W_V"], self.fmt), []
        step = max(1, STEPS // (self.places * (2 * self.R + OF_SCORES)))
        for at in range(0, TOKENS * self.places, step):
            found.append(self._attended(slice(at, min(at + step, TOKENS * self.places)), values))
        return joined(*found, axis=0)

    def _attended(self, rows: slice, values: Ball) -> Ball:
        """The kinds of some rows.

        Raises: TimeIsUp.
        """
        n, places, fmt = TOKENS * self.places, self.places, self.fmt
        low, high = self.weighed(rows)
        sums = [self._sums(rows, low, high, np.ones((n, 1)), np.ones((n, 1)))]
        sums += [
            self._sums(rows, low, high, *(end[:, [h]] for end in ends(values))) for h in range(values.mid.shape[1])
        ]
        D_low, D_high = sums[0]
        slack = 0.0
        size = float(values.magnitude.max())
        if fmt is not None:  # the softmax's total and quotient, the products and their sum
            slack = gamma(2 * places + 8, fmt.u) * size + 8 * places * fmt.tiny * (1 + size)
        columns = []
        with np.errstate(invalid="ignore", divide="ignore"):
            for least, most in sums[1:]:
                quotients = np.array([least / D_low, least / D_high, most / D_low, most / D_high])
                down, up = quotients.min(0), quotients.max(0)
                slacks = slack + OF_FEW * np.maximum(np.abs(down), np.abs(up))
                slacks = slacks + np.where((least == 0) & (most == 0), 0.0, FAINT)  # a quotient may underflow
                is_known = (D_low > 0) & np.isfinite(D_high)
                columns.append(
                    Ball.between(np.where(is_known, down - slacks, -np.inf), np.where(is_known, up + slacks, np.inf))
                )
        return stacked(*columns, axis=1)

    @abstractmethod
    def weighed(self, rows: slice) -> tuple[Array, Array]:
        """The ends of what some rows of x give each other one, up to a factor for the row."""

    def _sums(self, rows: slice, low: Array, high: Array, least: Array, most: Array) -> tuple[Array, Array]:
        """The range, over all strings, of the sum of weight times value, for every kind of some rows.

        A sum of n <= places terms is off by gamma(n) times their sizes, and by what each product lost to underflow.
        Raises: TimeIsUp.
        """
        terms = np.array([w * v.T for w in (low, high) for v in (least, most)])
        terms = np.where(np.isnan(terms), np.inf, terms)
        lost = self.places * max(float(lost_to_underflow(w, v.T).max()) for w in (low, high) for v in (least, most))
        row, m = self.kinds
        is_here = (row >= rows.start) & (row < rows.stop)
        row, m = row[is_here] - rows.start, m[is_here]
        out = []
        for sign, ends_ in ((-1.0, -terms.min(0)), (1.0, terms.max(0))):
            self.until.check()
            extreme = self._extreme(ends_, np.arange(rows.start, rows.stop))[row, m]
            size = float(np.abs(ends_).max()) * self.places
            out.append(sign * (extreme + gamma(4 * self.places) * size + 2 * lost))
        return out[0], out[1]

    def _extreme(self, terms: Array, rows: np.ndarray) -> Array:
        """Maximises a sum of terms (rows, all rows), one for each place, over all strings. Returns (rows, m), -inf
        where none is.
        """
        places, states = self.places, 2 * self.R + 1
        token, place = rows // places, rows % places
        cost = terms.reshape(len(rows), TOKENS, places)
        before = np.full((len(rows), states), -np.inf)
        before[:, 0] = cost[:, BOS, 0]
        until = np.full_like(before, -np.inf)
        for j in range(1, places):
            until[place == j] = before[place == j]
            before = _stepped(before, cost[:, :, j])
        is_end = np.arange(states) % 2 == 0  # a string may end where no region is open
        after = np.where(is_end, 0.0, -np.inf) + np.zeros((len(rows), 1))
        rest = np.where((place == places - 1)[:, None], after, -np.inf)
        for j in range(places - 1, 0, -1):
            after = np.maximum(_stepped_back(after, cost[:, :, j]), np.where(is_end, 0.0, -np.inf))
            rest[place == j - 1] = after[place == j - 1]
        own = cost[np.arange(len(rows)), token, place][:, None]
        out = np.full_like(before, -np.inf)
        for b in (ZERO, ONE, OPEN, CLOSE):
            mine = (token == b) & (place > 0)
            reached = _moved(until[mine], b)
            out[mine] = reached + own[mine] + rest[mine]
        is_first = rows == BOS * places
        out[is_first, 0] = own[is_first, 0] + rest[is_first, 0]
        return out

    @cached_property
    def seen(self) -> tuple[Ball, Ball]:
        """Scores for every prompt (K, R) and values (K, g) of every kind, some at a time.

        Raises: TimeIsUp.
        """
        pieces = [slice(at, at + KINDS) for at in range(0, len(self.kinds[0]), KINDS)]
        scores, values = zip(*(self._seen(piece) for piece in pieces), strict=True)
        return joined(*scores, axis=0), joined(*values, axis=0)

    def _seen(self, kinds: slice) -> tuple[Ball, Ball]:
        """Raises: TimeIsUp."""
        fmt, W, attended = self.fmt, self.W, self.attended[kinds]
        self.until.check()
        x = total(self.x[self.kinds[0][kinds]], product(attended, W["W_O"], fmt), fmt)
        hidden = relu(product(x, W["W_1"], fmt, W["b_1"]))
        fed = product(hidden, W["W_2"], fmt, W["b_2"])
        x = total(x, fed, fmt)
        keys, queries = product(x, W["U_K"], fmt), product(W["P"], W["U_Q"], fmt)
        return product(keys, queries.T, fmt), product(x, W["U_V"], fmt)

    def cells(self, r: int) -> PromptCell:
        """Every count of prompt r: 0 where there is no such region, and each that a string of N tokens has room for.

        Raises: TimeIsUp.
        """
        self.until.check()
        rows, m = self.kinds
        token = rows // self.places
        scores, values = self.seen
        is_bos = token == BOS
        column = scores[None, :, r - 1]
        low, high = (part[0] for part in weights(column, int(is_bos.argmax()), self.fmt))
        target = (token == ONE) & (m == 2 * r - 1)
        k = np.arange(max(0, self.N - 2 * r) + 1) if target.any() else np.arange(1)
        down, up = self.decoded(*self._outputs(low, high, values, is_bos, target, k))
        return PromptCell(r, self.readout.compare(down, up, k, until=self.until).margin)

    @abstractmethod
    def decoded(self, low: Array, high: Array) -> tuple[Array, Array]:
        """What the readout sees (k, g) of the ends of the attention's output."""

    def _outputs(
        self, low: Array, high: Array, values: Ball, is_bos: np.ndarray, target: np.ndarray, k: np.ndarray
    ) -> tuple[Array, Array]:
        """The range of the decoder's output (k, g): a mean of BOS and k ones, moved by the other positions."""
        v_low, v_high = ends(values)
        bos = int(np.nonzero(is_bos)[0][0])
        ones = (low[target].min(), high[target].max()) if target.any() else (0.0, 0.0)
        share = np.stack([low[bos] / (low[bos] + k * ones[1]), high[bos] / (high[bos] + k * ones[0])])
        share = share + np.array([[-1.0], [1.0]]) * OF_FEW
        chosen = target if target.any() else is_bos
        one_low, one_high = v_low[chosen].min(0), v_high[chosen].max(0)
        mean_low = np.min([a[:, None] * v_low[bos] + (1 - a)[:, None] * one_low for a in share], axis=0)
        mean_high = np.max([a[:, None] * v_high[bos] + (1 - a)[:, None] * one_high for a in share], axis=0)
        others = ~is_bos & ~target
        if others.any():
            weight = (self.N - k) * high[others].max() * INFLATION
            least = low[bos] + k * ones[0]
            moved = np.where(least > 0, weight / (least + weight) + FAINT, np.nan)[:, None] * INFLATION
            mean_low = mean_low - moved * np.maximum(mean_low - v_low[others].min(0), 0) * INFLATION
            mean_high = mean_high + moved * np.maximum(v_high[others].max(0) - mean_high, 0) * INFLATION
        size = float(values.magnitude.max())
        slack = (ENLARGE - 1) * size + FAINT * (size > 0)  # the products with values may underflow
        if self.fmt is not None:
            slack += gamma(2 * self.places + 8, self.fmt.u) * size
            slack += 8 * self.places * self.fmt.tiny * (1 + size)
        # a mean of values of one sign has it, however it is rounded
        down = np.where((v_low >= 0).all(0), np.maximum(mean_low - slack, 0.0), mean_low - slack)
        return down, mean_high + slack


class Proof(StringProof):
    """The proof of a bidirectional model: every place is attended to, and the readout sees the attention's output."""

    @cached_property
    def keys(self) -> Ball:
        return product(self.x, self.W["W_K"], self.fmt)

    def weighed(self, rows: slice) -> tuple[Array, Array]:
        scores = product(product(self.x[rows], self.W["W_Q"], self.fmt), self.keys.T, self.fmt)
        return weights(scores, BOS * self.places, self.fmt)

    def decoded(self, low: Array, high: Array) -> tuple[Array, Array]:
        return low, high


def _moved(before: Array, token: int) -> Array:
    """The states after a token: another digit, one more delimiter where the string stays valid."""
    if token in (ZERO, ONE):
        return before
    out = np.full_like(before, -np.inf)
    start = 0 if token == OPEN else 1
    out[:, start + 1 :: 2] = before[:, start:-1:2]
    return out


def _moved_back(after: Array, token: int) -> Array:
    """The same backwards: what follows where a token is the next one."""
    if token in (ZERO, ONE):
        return after
    out = np.full_like(after, -np.inf)
    start = 0 if token == OPEN else 1
    out[:, start:-1:2] = after[:, start + 1 :: 2]
    return out


def _stepped(before: Array, cost: Array) -> Array:
    tokens = (ZERO, ONE, OPEN, CLOSE)
    found: Array = np.max([_moved(before, b) + cost[:, [b]] for b in tokens], axis=0)
    return found


def _stepped_back(after: Array, cost: Array) -> Array:
    tokens = (ZERO, ONE, OPEN, CLOSE)
    found: Array = np.max([_moved_back(after, b) + cost[:, [b]] for b in tokens], axis=0)
    return found
