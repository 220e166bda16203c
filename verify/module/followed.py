"""A recurrent cell on strings, length by length: one token as a point in balls of many bits, several tokens in boxes.

The states of one token are points: only rounding makes balls round them wider, and more bits make them narrower. All
strings over several tokens are followed in boxes of float64; where a margin stays open there, that string is followed
from its first token in balls of many bits, and its box is narrow again. In a format boxes hold what every order of
evaluation computes, and where they leave a margin open, one evaluation may still be wrong: it is followed as a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import ctx

from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.contract import ARGUMENT_RUN, EVERY, EXACTLY_KEPT
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.margins import margins_between, margins_of
from verify.arithmetic.slack import Array
from verify.engine.exact import MINUS_INFINITY, Entry, Undecidable
from verify.frame.clock import Deadline
from verify.module.recurrence import Precise, StepGraph

BITS = (128, 512, 2048)
LONGEST = 10**9  # tokens: no run is longer
MOST_STRINGS = 1 << 17  # of one length
BEAM, LONGEST_TRIED = 256, 200
OF_BOXES = 1 / 2  # of the time, where one evaluation is followed after them
Tokens = tuple[int, ...]
Line = tuple[Tokens, Sequence[int | None]]  # with the right class after each token, None where none is judged
IsIn = Callable[[int, Precise], bool]


@dataclass(frozen=True)
class Margin:
    """Between what the right logit less the largest other lies, and which other that is where it is wrong.

    `state` are the balls of all numbers of the state there, `bits` what they have.
    """

    low: float = -float("inf")
    high: float = float("inf")
    rival: int | None = None
    state: Precise | None = None
    bits: int = 0


@dataclass
class Known:
    """Right on all strings of up to `right_to` tokens, with what margin where; a wrong string, or why no more is known.

    `rival` is the class that is above the right one there; `is_first` says that all shorter strings are right.
    `bits` are those of the balls of one token; `has_entered` says that a state was where it was asked for. In a format
    `is_one_run` says that the string is wrong by one evaluation, and others may be right.
    """

    right_to: int = 0
    margin: float = float("inf")
    tightest: Tokens = ()
    wrong: Tokens | None = None
    wrong_by: float | None = None
    rival: int | None = None
    is_first: bool = False
    bits: int | None = None
    stuck: str | None = None
    has_entered: bool = False
    is_one_run: bool = False

    def fail(self, margin: Margin, string: Tokens, is_first: bool = True) -> None:
        """Adds a string that is wrong by a margin."""
        self.wrong, self.wrong_by, self.rival, self.is_first = string, margin.high, margin.rival, is_first
        self.stuck = None

    @property
    def evaluation(self) -> str | None:
        """Which evaluations of a format are wrong on the wrong string."""
        return None if self.wrong is None else EXACTLY_KEPT if self.is_one_run else EVERY

    def argument(self, otherwise: str) -> str:
        """How it is known in a format."""
        return ARGUMENT_RUN if self.is_one_run else otherwise

    def or_one_run(self, run: Known | None) -> Known:
        """What is known of every evaluation of a format, and of one that is wrong, if any."""
        if run is not None and run.wrong is not None:
            self.fail(Margin(high=run.wrong_by or 0.0, rival=run.rival), run.wrong, len(run.wrong) == self.right_to + 1)
            self.is_one_run = True
        return self

    def take(self, n: int, low: Array, strings: Sequence[Tokens]) -> None:
        """Adds that all strings of n tokens are right, with these margins."""
        self.right_to, tightest = n, int(low.argmin())
        if low[tightest] < self.margin:
            self.margin, self.tightest = float(low[tightest]), strings[tightest]


def margin(logits: Sequence[Entry], right: int) -> Margin:
    """The margin of logits in balls; nothing is known where one is no number.

    >>> from flint import arb
    >>> margin([arb(1), arb(3)], 0)
    Margin(low=-2.0, high=-2.0, rival=1, state=None, bits=0)
    """
    if logits[right] is MINUS_INFINITY:
        return Margin()
    gaps = [(logits[right] - x, i) for i, x in enumerate(logits) if i != right and x is not MINUS_INFINITY]
    if not all(gap.is_finite() for gap, _ in gaps):
        return Margin()
    low, high = (min((end(gap) for gap, _ in gaps), default=1.0) for end in (float_below, float_above))
    wrong = [(float_above(gap), i) for gap, i in gaps if gap <= 0]
    return Margin(low, high, min(wrong)[1] if wrong else None)


def one_token(graph: StepGraph, steps: int, until: Deadline, is_in: IsIn = lambda t, state: False) -> Known:
    """Follows the only token of a vocabulary for so many steps, with more bits where the sign of a margin is open.

    It ends where the state after t tokens is where `is_in` asks it to be.
    """
    best = Known(stuck="an operation of the cell has no balls of many bits")
    if not graph.has_digits:
        return best
    for bits in BITS:
        with ctx.workprec(bits):
            found = _one_token(graph, steps, until, is_in, Known(bits=bits))
        if found.stuck is None or found.right_to >= best.right_to:
            best = found
        if found.stuck is None or until.is_up():
            break
    return best


def _one_token(graph: StepGraph, steps: int, until: Deadline, is_in: IsIn, found: Known) -> Known:
    (token,), task = graph.task.vocabulary, graph.task
    state, place, tightest = graph.precise_start(), task.expected.start, 0
    for t in range(1, steps + 1):
        if until.is_up():
            found.stuck = f"time is up after {t - 1} tokens"
            break
        try:
            state, logits = graph.precise(state, token)
        except Undecidable:
            found.stuck = f"a comparison in the cell stays open after {t} tokens"
            break
        place = task.expected.after(place, token)
        due = task.due(place, graph.classes)
        here = Margin(float("inf")) if due is None else margin(logits, due)
        if here.high <= 0:
            found.fail(here, (token,) * t)
            break
        if not here.low > 0:
            found.stuck = f"the margin after {t} tokens may have either sign"
            break
        found.right_to, tightest = t, t if here.low < found.margin else tightest
        found.margin = min(found.margin, here.low)
        if is_in(t, state):
            found.has_entered = True
            break
    found.tightest = (token,) * tightest
    return found


def along(graph: StepGraph, steps: int, until: Deadline) -> list[Margin]:
    """The margins after 1, 2, .. tokens of a vocabulary of one, with the states, as far as their signs are known.

    It goes on after wrong answers.
    """
    best = list[Margin]()
    for bits in BITS if graph.has_digits else ():
        with ctx.workprec(bits):
            found = _along(graph, steps, until)
        best = max(best, found, key=len)
        if len(best) == steps or until.is_up():
            break
    return best


def _along(graph: StepGraph, steps: int, until: Deadline) -> list[Margin]:
    (token,), task, found = graph.task.vocabulary, graph.task, list[Margin]()
    state, place = graph.precise_start(), task.expected.start
    while len(found) < steps and not until.is_up():
        try:
            state, logits = graph.precise(state, token)
        except Undecidable:
            break
        place = task.expected.after(place, token)
        due = task.due(place, graph.classes)
        here = Margin(float("inf")) if due is None else margin(logits, due)
        if not (here.low > 0 or here.high <= 0):
            break
        found.append(replace(here, state=state, bits=ctx.prec))
    return found


def after(graph: StepGraph, string: Sequence[int]) -> tuple[Precise, list[Entry]]:
    """The state and the logits after a string, in balls of as many bits as the context has."""
    state, logits = graph.precise_start(), list[Entry]()
    for token in string:
        state, logits = graph.precise(state, token)
    return state, logits


def precisely(graph: StepGraph, string: Sequence[int], due: int) -> Margin:
    """The margin after a string, in balls of as many bits as show its sign."""
    found = Margin()
    for bits in BITS if graph.has_digits else ():
        with ctx.workprec(bits):
            try:
                state, logits = after(graph, string)
            except Undecidable:
                continue
            found = replace(margin(logits, due), state=state, bits=bits)
        if found.low > 0 or found.high <= 0:
            break
    return found


def all_strings(graph: StepGraph, length: int | None, most: int, until: Deadline) -> Known:
    """Follows all strings, as many as `most` of one length: the first wrong one, or up to what length all are right."""
    task, found, K = graph.task, Known(), len(graph.task.vocabulary)
    strings: list[Tokens] = [()]
    places = [task.expected.start]
    mid, rad = graph.first[None], np.zeros((1, graph.size))
    for n in range(1, (LONGEST if length is None else length) + 1):
        if len(strings) * K > most:
            found.stuck = f"there are {K}^{n} strings of {n} tokens"
            return found
        strings = [(*string, x) for x in task.vocabulary for string in strings]
        places = [task.expected.after(place, x) for x in task.vocabulary for place in places]
        due = [task.due(place, graph.classes) for place in places]
        mid, rad, low = _judged(graph, np.tile(mid, (K, 1)), np.tile(rad, (K, 1)), strings, due, found, until)
        if found.wrong is not None or found.stuck is not None:
            return found
        found.take(n, low, strings)
        if until.is_up() and n != length:
            found.stuck = f"time is up at length {n}"
            return found
    return found


def in_format(graph: StepGraph, length: int | None, until: Deadline) -> Known:
    """What is known in a format of all strings of up to so many tokens, or of every length (None)."""
    found = all_strings(graph, length, MOST_STRINGS, until.part(OF_BOXES))
    if found.stuck is None:
        return found
    is_line = len(graph.task.vocabulary) == 1
    run = one_token(graph, length or LONGEST, until) if is_line else wrong_string(graph, length, until)
    return found.or_one_run(run)


def counts(graph: StepGraph, length: int, most: int, until: Deadline) -> list[tuple[int, int, int]]:
    """Of the strings of each length whose last answer is judged, how many are right, wrong and undecided in real
    arithmetic: as far as all strings of a length, as many as `most`, are followed in time.
    """
    assert graph.at is None, "in a format some evaluations may be right and others wrong"
    task, found, strings, places = (
        graph.task,
        list[tuple[int, int, int]](),
        list[Tokens]([()]),
        [graph.task.expected.start],
    )
    mid, rad = graph.first[None], np.zeros((1, graph.size))
    while len(found) < length and len(strings) * len(task.vocabulary) <= most and not until.is_up():
        strings = [(*string, x) for x in task.vocabulary for string in strings]
        places = [task.expected.after(place, x) for x in task.vocabulary for place in places]
        due = [task.due(place, graph.classes) for place in places]
        mid, rad = (np.tile(x, (len(task.vocabulary), 1)) for x in (mid, rad))
        mid, rad, low, high = _stepped(graph, mid, rad, [string[-1] for string in strings], due)
        said = [_answer(graph, *row, until) for row in zip(strings, due, low.tolist(), high.tolist(), strict=True)]
        judged = [x for x, right in zip(said, due, strict=True) if right is not None]
        found.append((judged.count(True), judged.count(False), judged.count(None)))
    return found


def _answer(
    graph: StepGraph, string: Tokens, right: int | None, low: float, high: float, until: Deadline
) -> bool | None:
    """Whether the last answer of a string is right, by the ends of its margin, and where these are open in balls."""
    if right is not None and not (low > 0 or high <= 0) and not until.is_up():
        here = precisely(graph, string, right)
        low, high = here.low, here.high
    return True if low > 0 else False if high <= 0 else None


def given_lines(graph: StepGraph, lines: Sequence[Line], until: Deadline) -> Known:
    """Follows lines, each with the right class after every token, None where none is judged, one length after another.

    `right_to` counts tokens: all lines are right so far, and shorter ones to their ends.
    """
    if graph.at is None:
        return _given_lines(graph, lines, until)
    found = _given_lines(graph, lines, until.part(OF_BOXES))
    return found if found.stuck is None else found.or_one_run(one_run(graph, lines, until))


def _given_lines(graph: StepGraph, lines: Sequence[Line], until: Deadline) -> Known:
    found, longest = Known(), max(len(tokens) for tokens, _ in lines)
    mid, rad = np.tile(graph.first, (len(lines), 1)), np.zeros((len(lines), graph.size))
    for n in range(1, longest + 1):
        still = [i for i, (tokens, _) in enumerate(lines) if len(tokens) >= n]
        strings, due = [lines[i][0][:n] for i in still], [lines[i][1][n - 1] for i in still]
        mid[still], rad[still], low = _judged(graph, mid[still], rad[still], strings, due, found, until)
        if found.wrong is not None or found.stuck is not None:
            return found
        found.take(n, low, strings)
        if until.is_up() and n < longest:
            found.stuck = f"time is up after {n} tokens"
            return found
    return found


def one_run(graph: StepGraph, lines: Sequence[Line], until: Deadline) -> Known | None:
    """The first line, and of lines of one length the first, that the one evaluation of a format answers wrong."""
    for bits in BITS if graph.has_digits else ():
        with ctx.workprec(bits):
            try:
                return _one_run(graph, lines, until)
            except Undecidable:
                continue
    return None


def _one_run(graph: StepGraph, lines: Sequence[Line], until: Deadline) -> Known | None:
    states = [graph.precise_start() for _ in lines]
    for n in range(1, max(len(tokens) for tokens, _ in lines) + 1):
        for i, (tokens, due) in enumerate(lines):
            if until.is_up():
                return None
            right = due[n - 1] if n <= len(tokens) else None
            if n <= len(tokens):
                states[i], logits = graph.precise(states[i], tokens[n - 1])
            here = Margin(float("inf")) if right is None else margin(logits, right)
            if here.high <= 0:
                found = Known()
                found.fail(here, tokens[:n], is_first=False)
                return found
            if not here.low > 0:
                raise Undecidable
    return None


def answers(graph: StepGraph, lines: Sequence[Line], until: Deadline) -> list[list[bool | None]]:
    """Whether the answer after each token of lines is right, after wrong ones, too; None where that is not known.

    A tie is wrong, and so is no answer.
    """
    assert graph.at is None, "in a format some evaluations may be right and others wrong"
    found: list[list[bool | None]] = [[None] * len(tokens) for tokens, _ in lines]
    mid, rad = np.tile(graph.first, (len(lines), 1)), np.zeros((len(lines), graph.size))
    for n in range(1, max(len(tokens) for tokens, _ in lines) + 1):
        still = [i for i, (tokens, _) in enumerate(lines) if len(tokens) >= n]
        if until.is_up():
            break
        due = [lines[i][1][n - 1] for i in still]
        mid[still], rad[still], low, high = _stepped(
            graph, mid[still], rad[still], [lines[i][0][n - 1] for i in still], due
        )
        for i, least, most, right in zip(still, low.tolist(), high.tolist(), due, strict=True):
            if not (least > 0 or most <= 0) and right is not None:
                here = precisely(graph, lines[i][0][:n], right)
                least, most = here.low, here.high
                if here.state is not None:
                    around = Ball.around(here.state)
                    mid[i], rad[i] = around.mid, around.rad
            found[i][n - 1] = True if least > 0 else False if most <= 0 else None
    return found


def _stepped(
    graph: StepGraph, mid: Array, rad: Array, tokens: Sequence[int], labels: Sequence[int | None]
) -> tuple[Array, Array, Array, Array]:
    """Boxes after a token of each row, and between what its margin lies, which is infinite where none is judged."""
    mid, rad = graph.enclosed(mid, rad, tokens)
    judged = np.flatnonzero([label is not None for label in labels])
    due = np.array([label or 0 for label in labels])[judged]
    low, high = np.full(len(tokens), np.inf), np.full(len(tokens), np.inf)
    low[judged], high[judged] = margins_between(*ends(Ball(mid, rad)[judged, graph.size :]), due)
    return mid[:, : graph.size].copy(), rad[:, : graph.size].copy(), low, high


def _judged(
    graph: StepGraph,
    mid: Array,
    rad: Array,
    strings: Sequence[Tokens],
    labels: Sequence[int | None],
    found: Known,
    until: Deadline,
) -> tuple[Array, Array, Array]:
    """Boxes after the last token of each string, and its margin from below; what is wrong or open there is in `found`.

    A string whose margin is open in its box is followed from its first token in balls, and its box is narrow again. In
    a format the box alone speaks for every evaluation.
    """
    n = len(strings[0])
    mid, rad, low, high = _stepped(graph, mid, rad, [string[-1] for string in strings], labels)
    if graph.at is not None:
        wrong = np.flatnonzero(high <= 0)
        if len(wrong):
            found.fail(Margin(high=float(high[wrong[0]])), strings[wrong[0]])
        elif not (low > 0).all():
            first = strings[int((~(low > 0)).argmax())]
            found.stuck = f"boxes leave open which sign the margin after {list(first)} has"
        return mid, rad, low
    for row in np.flatnonzero(~(low > 0)).tolist():
        if until.is_up():
            found.stuck = f"time is up at length {n}"
            break
        here = precisely(graph, strings[row], labels[row] or 0)
        if here.high <= 0:
            found.fail(here, strings[row])
            break
        if not here.low > 0 or here.state is None:
            found.stuck = f"the margin after {list(strings[row])} may have either sign"
            break
        around = Ball.around(here.state)
        low[row], mid[row], rad[row] = here.low, around.mid, around.rad
    return mid, rad, low


def wrong_string(graph: StepGraph, length: int | None, until: Deadline) -> Known | None:
    """A string that is shown to be wrong, met by a beam of those with the least margins."""
    task = graph.task
    beam: list[tuple[Tokens, object]] = [((), task.expected.start)]
    states: Array = graph.first[None]
    for _ in range(min(length or LONGEST_TRIED, LONGEST_TRIED)):
        if until.is_up():
            return None
        K, n = len(task.vocabulary), len(beam)
        grown = [((*s, x), task.expected.after(q, x)) for x in task.vocabulary for s, q in beam]
        tokens = np.repeat(task.vocabulary, n).tolist()
        out, _ = graph.enclosed(np.tile(states, (K, 1)), np.zeros((K * n, graph.size)), tokens)
        worst = np.full(len(grown), np.inf)
        for row, (string, place) in enumerate(grown):
            due = task.due(place, graph.classes)
            if due is None:
                continue
            with np.errstate(invalid="ignore"):  # of two that are infinite
                worst[row] = margins_of(out[row, graph.size :], due)
            if not worst[row] > 0:
                here = precisely(graph, string, due)
                if here.high <= 0:
                    found = Known()
                    found.fail(here, string, is_first=False)
                    return found
        kept = _spread(worst, [place for _, place in grown])
        beam, states = [grown[i] for i in kept], out[kept, : graph.size]
    return None


def _spread(worst: Array, places: Sequence[object]) -> list[int]:
    """Rows with the least margins, some of each state of the automaton."""
    each, taken, kept = max(2, BEAM // len(set(places))), dict[object, int](), list[int]()
    for i in np.argsort(worst, kind="stable").tolist():
        taken[places[i]] = taken.get(places[i], 0) + 1
        if taken[places[i]] <= each and len(kept) < BEAM:
            kept.append(i)
    return kept
