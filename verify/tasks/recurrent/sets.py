"""Any recurrent network on all strings: sets of states that every token maps into each other, and strings one by one.

What a state must say depends on how often each type was read (up to C, or modulo m) and on the last token. One box of
states stands for each such case, and for the last few tokens. The boxes are found by iteration; the proof is one step
from each of them, under each token, into the next, whose judged answers must be right on the whole box. Where no boxes
close, all strings up to a length are followed, each in a box of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from flint import arb, ctx

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.exact_reals import float_above
from verify.arithmetic.margins import margins_of
from verify.arithmetic.slack import Array
from verify.counting.lengths import Counts
from verify.counting.tasks import Task, Tokens
from verify.frame.clock import Deadline
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.chain import cut
from verify.tasks.recurrent.enclosures import Balls, Roundings, least_margins
from verify.tasks.recurrent.network import Network, State, float_step, nonzeros, step
from verify.tasks.recurrent.precise import BITS, Digits, Vector, answers, least_of
from verify.tasks.recurrent.proof import OrbitQuestion

WINDOWS = (1, 2, 3, 4, 6, 8)  # how many last tokens a box stands for
MOST_SETS, MOST_STRINGS = 6000, 60_000
MOST_SAVED = 100_000  # numbers of a certificate's boxes
ROUNDS = 80
WIDER = 2.0**-6  # of a box's width, by which it grows while none is closed
LEAST_WIDER = 2.0**-40
BEAM, LONGEST_TRIED = 400, 160
LENGTHS_AT_A_TIME = 3  # between two looks at the clock
MOST_NUMBERS = 1 << 19  # of the states of all strings of one length, which are followed in floats

Key = tuple[tuple[int, ...], tuple[int, ...]]  # the counts of all types, and the last tokens
Ends = tuple[Array, Array]


@dataclass(frozen=True)
class Trained:
    """A network on a selective task; computed as `at` says, None for real arithmetic.

    Where it `is_periodic`, all counts are judged, modulo m, and not only those up to C. Only the first `types` tokens
    are counted where they are given, and then for ever.
    """

    net: Network
    task: Task
    at: RoundedArithmetic | None
    is_periodic: bool = False
    types: int | None = None

    @property
    def K(self) -> int:
        return len(self.net.tokens)

    def counted(self, counts: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The counts after one more token: modulo m, or at most C + 1, which is not judged."""
        if token >= len(counts):
            return counts
        n = counts[token] + 1
        n = n % (self.task.m or 1) if self.is_periodic else min(n, (self.task.C or 0) + 1)
        return (*counts[:token], n, *counts[token + 1 :])

    def due(self, counts: tuple[int, ...], token: int) -> int | None:
        """The right class after a token, its count included; None where it is not judged."""
        n, m = counts[token], self.task.m
        if not self.is_periodic and n > (self.task.C or 0):
            return None
        return n if m is None else (n - 1) % m

    def is_over(self, counts: tuple[int, ...]) -> bool:
        """Whether no later answer is judged."""
        return not self.is_periodic and self.types is None and min(counts) > (self.task.C or 0)

    def step(self, ends: Ends, token: int, *, of_sets: bool = False) -> Ends:
        """The ends of all computed states (S, size) after one more token; `of_sets` as `Roundings` has it."""
        parts = cut(self.net, Ball.between(*ends))
        if self.at is None:
            after = step(self.net, parts, token, Balls())
            low = np.concatenate([x.lower for x in after], axis=-1)
            return low, np.concatenate([x.upper for x in after], axis=-1)
        on = Roundings(self.at, of_sets=of_sets)
        off = step(self.net, [on.held(x) for x in parts], token, on)
        low = np.concatenate([np.nextafter(x.value.lower - x.error, -np.inf) for x in off], axis=-1)
        return low, np.concatenate([np.nextafter(x.value.upper + x.error, np.inf) for x in off], axis=-1)

    def margins(self, ends: Ends, right: np.ndarray) -> Array:
        """A lower bound on (right logit) - (largest other) on each box (S,)."""
        h = Ball.between(ends[0][:, self.net.read], ends[1][:, self.net.read])
        V, b = self.net.V, self.net.b
        if self.at is None:
            return least_margins(V, b, h, right)
        on = Roundings(self.at)
        return least_margins(V, b, h, right, on.linear(V, on.held(h), b, nonzeros(V, b)).error)


class ClosedSets(NamedTuple):
    """Cases, the start first, and boxes of states (cases, size) that every token maps into each other."""

    cases: list[Key]
    low: Array
    high: Array


def closed(trained: Trained, until: Deadline) -> BlockProof:
    """Boxes for every case that are mapped into each other and right, over windows of more and more last tokens."""
    reason = "no sets of states are shown to be mapped into each other"
    for window in WINDOWS:
        keys = _keys(trained, window)
        if keys is None or until.is_up():
            break
        found = _closed(trained, window, keys, until)
        if isinstance(found, ClosedSets):
            margin = _margin(trained, found)
            if margin > 0:
                ends = ends_of([found])
                saved = {name: end for name, (end,) in ends.items()}
                return BlockProof(margin, None, {"window": window, "sets": len(found.cases)} | saved)
            found = "sets of states are mapped into each other, and do not separate the logits"
        reason = found
    return BlockProof(None, reason)


def ends_of(found: Sequence[ClosedSets]) -> dict[str, list[object]]:
    """The ends of each one's boxes for a certificate, in the order of the cases; nothing where they are many.

    A sum with 0.0 has no signed zeros, which JSON could not keep apart.
    """
    if sum(one.low.size for one in found) > MOST_SAVED:
        return {}
    return {"low": [(one.low + 0.0).tolist() for one in found], "high": [(one.high + 0.0).tolist() for one in found]}


def last_token(trained: Trained, until: Deadline) -> ClosedSets | str:
    """Boxes for all counts and the last token, or why there are none."""
    keys = _keys(trained, 1)
    return "the counts are too many" if keys is None else _closed(trained, 1, keys, until)


def _margin(trained: Trained, found: ClosedSets) -> float:
    """The least margin of all boxes whose answer is judged."""
    judged = [(i, c) for i, (n, w) in enumerate(found.cases) if w and (c := trained.due(n, w[-1])) is not None]
    places, right = (np.array(x, dtype=int) for x in zip(*judged, strict=True))
    return float(trained.margins((found.low[places], found.high[places]), right).min())


def _keys(trained: Trained, window: int) -> dict[Key, int] | None:
    """All cases that strings lead to, the start first; None where they are too many."""
    start: Key = ((0,) * (trained.K if trained.types is None else trained.types), ())
    keys, queue = {start: 0}, [start]
    for key in queue:
        for x in range(trained.K) if not trained.is_over(key[0]) else ():
            after = _next(trained, key, x, window)
            if after not in keys:
                keys[after] = len(keys)
                queue.append(after)
        if len(keys) > MOST_SETS:
            return None
    return keys


def _next(trained: Trained, key: Key, token: int, window: int) -> Key:
    return trained.counted(key[0], token), (*key[1], token)[-window:]


def _closed(trained: Trained, window: int, keys: dict[Key, int], until: Deadline) -> ClosedSets | str:
    cases, size = list(keys), trained.net.size
    goes = np.array([[keys.get(_next(trained, key, x, window), -1) for x in range(trained.K)] for key in cases])
    is_live = np.array([not trained.is_over(key[0]) for key in cases])
    low, high = np.full((len(cases), size), np.inf), np.full((len(cases), size), -np.inf)
    low[0] = high[0] = 0.0
    for number in range(ROUNDS):
        known = np.flatnonzero(is_live & (low[:, 0] <= high[:, 0]))
        grown_low, grown_high = low.copy(), high.copy()
        for x in range(trained.K):
            ends = trained.step((low[known], high[known]), x, of_sets=True)
            if not (np.isfinite(ends[0]).all() and np.isfinite(ends[1]).all()):
                return "the sets of states grow without bound"
            np.minimum.at(grown_low, goes[known, x], ends[0])
            np.maximum.at(grown_high, goes[known, x], ends[1])
        if (grown_low >= low).all() and (grown_high <= high).all() and (low[:, 0] <= high[:, 0]).all():
            return ClosedSets(cases, low, high)
        more = np.where(np.isfinite(grown_high), (grown_high - grown_low) * WIDER + LEAST_WIDER, 0.0)
        changed = (grown_low < low) | (grown_high > high)
        wider = more * (number > window + sum(cases[-1][0]))
        low = np.where(changed, grown_low - wider, low)
        high = np.where(changed, grown_high + wider, high)
        low[0] = high[0] = 0.0
        if until.is_up():
            break
    return "the sets of states do not close"


def up_to(trained: Trained, length: int | None, until: Deadline) -> tuple[int, float]:
    """The length to which all strings are shown to be right, at most `length`, and the margin up to there.

    Strings after which no answer is judged are followed no further.
    """
    counts = [(0,) * trained.K]
    low, high, least, n = np.zeros((1, trained.net.size)), np.zeros((1, trained.net.size)), np.inf, 0
    while counts and (length is None or n < length) and len(counts) * trained.K <= MOST_STRINGS:
        parts, after, due = [], list[tuple[int, ...]](), list[int | None]()
        for x in range(trained.K):
            parts.append(trained.step((low, high), x))
            after += [trained.counted(c, x) for c in counts]
            due += [trained.due(c, x) for c in after[-len(counts) :]]
        low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
        judged = np.array([d is not None for d in due])
        right = np.array([d or 0 for d in due])[judged]
        margin = float(trained.margins((low[judged], high[judged]), right).min(initial=np.inf))
        if not margin > 0:
            return n, float(least)
        least, n = min(least, margin), n + 1
        is_live = np.array([not trained.is_over(c) for c in after])
        counts = [c for c, lives in zip(after, is_live, strict=True) if lives]
        low, high = low[is_live], high[is_live]
        if until.is_up():
            break
    return (n if counts or length is None else length), float(least)


def counts(trained: Trained, length: int, until: Deadline) -> list[Counts]:
    """Of the strings of each length whose last answer is judged, how many are right, wrong and undecided: as far as all
    strings of a length are followed in time.

    A box of float64 is right where its class wins in all of it, and wrong where another one does; what is open is run
    in balls.
    """
    strings, seen, found = list[Tokens]([()]), [(0,) * trained.K], list[Counts]()
    low, high = np.zeros((1, trained.net.size)), np.zeros((1, trained.net.size))
    while strings and len(found) < length and len(strings) * trained.K <= MOST_STRINGS and not until.is_up():
        parts = [trained.step((low, high), x) for x in range(trained.K)]
        low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
        seen = [trained.counted(c, x) for x in range(trained.K) for c in seen]
        strings = [(*string, x) for x in range(trained.K) for string in strings]
        due = [trained.due(c, string[-1]) for c, string in zip(seen, strings, strict=True)]
        judged = np.flatnonzero([d is not None for d in due])
        right = np.array([due[i] for i in judged], dtype=int)
        is_right, is_wrong = _decided(trained, (low[judged], high[judged]), right)
        for i in np.flatnonzero(~is_right & ~is_wrong).tolist():
            said = None if until.is_up() else _answer(trained.net, strings[judged[i]], int(right[i]))
            is_right[i], is_wrong[i] = said is True, said is False
        decided = int(is_right.sum()), int(is_wrong.sum())
        found.append((*decided, len(judged) - sum(decided)))
        live = [i for i, c in enumerate(seen) if not trained.is_over(c)]
        strings, seen, low, high = [strings[i] for i in live], [seen[i] for i in live], low[live], high[live]
    return found


def _decided(trained: Trained, ends: Ends, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the right class wins in a whole box, and where the one that wins in its middle does and is another."""
    middle = (ends[0] + ends[1])[:, trained.net.read] / 2
    ahead = (middle @ trained.net.V.T + trained.net.b).argmax(1)
    return trained.margins(ends, right) > 0, (trained.margins(ends, ahead) > 0) & (ahead != right)


def _answer(net: Network, string: Tokens, right: int) -> bool | None:
    """Whether the last answer of a string is right, in balls; None where that is not known."""
    line = OrbitQuestion(string[:-1], string[-1], lambda t: right)
    return answers(net, line, len(string), Deadline.never())[-1]


def wrong_string(trained: Trained, most: int | None, until: Deadline) -> tuple[int, ...] | None:
    """The shortest string whose last answer is wrong in floats, of those that are run: all while they are few, then a
    beam of those with the least margins, which spreads over all counts.

    Nothing is proved here: `gap` shows whether the string is wrong.
    """
    cases, case, states, worst = _Cases(trained), np.zeros(1, dtype=int), np.zeros((1, trained.net.size)), np.zeros(1)
    before = list[tuple[np.ndarray, np.ndarray]]()  # each level's last tokens, and the rows of the strings before them
    for n in range(LONGEST_TRIED if most is None else min(most, LONGEST_TRIED)):
        if n % LENGTHS_AT_A_TIME == 0 and until.is_up() or not len(case):
            return None
        tokens, rows = np.divmod(np.arange(trained.K * len(case)), len(case))
        states = np.concatenate([float_step(trained.net, states, x) for x in range(trained.K)])
        case, right = cases.after(case[rows], tokens)
        logits = states[:, trained.net.read] @ trained.net.V.T + trained.net.b
        gaps = np.where(right >= 0, margins_of(logits, right), np.inf)
        worst = np.where(worst[rows] == 0, gaps, np.minimum(gaps, worst[rows] + 0.1 * np.abs(worst[rows])))
        before.append((tokens, rows))
        if (gaps < 0).any():
            return _read_back(before, int(np.nanargmin(gaps)))
        kept = np.flatnonzero(cases.goes_on(case))
        if len(kept) > (fit := max(BEAM, MOST_NUMBERS // trained.net.size)):
            kept = kept[_spread(worst[kept], case[kept], fit)]
        case, states, worst, before[-1] = case[kept], states[kept], worst[kept], (tokens[kept], rows[kept])
    return None


class _Cases:
    """Counts of all types, numbered as they are met."""

    def __init__(self, trained: Trained) -> None:
        self._trained, self._counts = trained, [(0,) * trained.K]
        self._number = {self._counts[0]: 0}
        self._after = dict[tuple[int, int], tuple[int, int]]()

    def after(self, case: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The cases after one more token each, and the right classes, -1 where none is judged."""
        pairs, which = np.unique(case * self._trained.K + tokens, return_inverse=True)
        found = np.array([self._one(*divmod(pair, self._trained.K)) for pair in pairs.tolist()])
        return found[which, 0], found[which, 1]

    def _one(self, case: int, token: int) -> tuple[int, int]:
        if (case, token) not in self._after:
            counts = self._trained.counted(self._counts[case], token)
            right = self._trained.due(counts, token)
            if counts not in self._number:
                self._number[counts] = len(self._counts)
                self._counts.append(counts)
            self._after[case, token] = self._number[counts], -1 if right is None else right
        return self._after[case, token]

    def goes_on(self, case: np.ndarray) -> np.ndarray:
        """Where some later answer is judged."""
        found, which = np.unique(case, return_inverse=True)
        result: np.ndarray = np.array([not self._trained.is_over(self._counts[i]) for i in found.tolist()])[which]
        return result


def _spread(worst: Array, case: np.ndarray, most: int) -> np.ndarray:
    """The first ones of every case, so that none is forgotten: BEAM, or two of each, and so many at most."""
    each = max(2, BEAM // len(np.unique(case)))
    order = np.lexsort((worst, case))
    place = np.arange(len(order)) - np.searchsorted(case[order], case[order])
    first = order[place < each]
    return first[np.argsort(worst[first], kind="stable")[:most]]


def _read_back(before: list[tuple[np.ndarray, np.ndarray]], row: int) -> tuple[int, ...]:
    """The string that ends in a row of the last level."""
    string = list[int]()
    for tokens, rows in reversed(before):
        string.append(int(tokens[row]))
        row = int(rows[row])
    return tuple(reversed(string))


def gap(net: Network, string: tuple[int, ...], right: int) -> tuple[float, int | None]:
    """An upper bound on (right logit) - (largest other) after a string in real arithmetic, and which that is."""
    found = math.inf
    for bits in BITS:
        with ctx.workprec(bits):
            numbers = Digits(net)
            parts: State[Vector] = [[arb(0)] * net.hidden for _ in range(net.size // net.hidden)]
            for token in string:
                parts = step(net, parts, token, numbers)
            gaps = numbers.gaps(parts[net.read.start // net.hidden], right)
            least, other = least_of(gaps)
            found, is_known = min(found, float_above(least)), all(x is least or least <= x for x, _ in gaps)
            if is_known and all(x > 0 or x <= 0 for x, _ in gaps):
                break
    return found, other if is_known else None
