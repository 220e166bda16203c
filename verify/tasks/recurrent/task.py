"""A recurrent network on a homogeneous task of document C: what is judged, how it is proved, run and replayed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import Kernel, Reading, Real, Rounded
from verify.counting.lengths import as_json as as_counts
from verify.counting.lengths import counted
from verify.counting.tasks import LARGEST, STARTED
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget, Deadline
from verify.frame.decide import Batch, Effort, Failure, Finding, Item, is_wrong_in_its_ball
from verify.tasks.recurrent import exact, gated, shares
from verify.tasks.recurrent.assumed import assumptions, blocks
from verify.tasks.recurrent.chain import Rules
from verify.tasks.recurrent.gated import formula
from verify.tasks.recurrent.invariant import as_json
from verify.tasks.recurrent.kinds import has_cells, is_gated, is_linear, is_residual, is_rotation, module_of
from verify.tasks.recurrent.looked import logits_at_end, one_run
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import answers
from verify.tasks.recurrent.problem import RecurrentTask
from verify.tasks.recurrent.proof import ARGUMENT_FOR_EVER, OrbitOutcome, OrbitQuestion, finite, for_ever

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

ARGUMENT_FINITE = "ellipsoids round the states of every step"
ARGUMENT_PRECISE = "balls of {} bits round the state after every token"
ARGUMENT_SLOW = "tubes round polynomials of the number of turns, a turn being {} tokens"
ARGUMENT_EXACT = "states in exact fractions, until one comes again or the length is reached"
ARGUMENT_STEADY = "exact fractions, until each turn of {} tokens changes the state by one vector, times a power"
ARGUMENT_ROTATION = "each difference of two logits is a cosine of the state's angle, which moves evenly"
ARGUMENT_GATED = "balls round the states of every step"
ARGUMENT_REPEATED = "the run until its state repeats"
ARGUMENT_RAN = "the run of every line"
RIGHT = "right means: after every token, the class of the right answer has strictly the largest logit"
LONGEST_TRACED = 32
LONGEST_SHOWN = 10_000  # tokens that a counterexample spells out
MOST_FOLLOWED = 100_000  # tokens of whole blocks in a format


Decided = Callable[[OrbitQuestion, int | None, Effort], OrbitOutcome]


@dataclass
class Homogeneous(RecurrentTask):
    """A network on a homogeneous task: a `Decidable`.

    An input is a line's prefix; one run of the line judges all of them.
    """

    counts_answers = True

    def check_sizes(self) -> None:
        if self.length is not None and not 1 <= self.length <= LARGEST:
            raise BadInput(f"length={self.length}: must be a whole number from 1 to {LARGEST}, or None for all lengths")
        if self.model.classes < self.which.classes:
            option = "--modulus" if self.which.m is not None else "--vocabulary"
            size = self.model.classes - (0 if self.which.m is not None else 1)
            raise BadInput(
                f"weights: the readout has {self.model.classes} classes, and {self.which.name} has "
                f"{self.which.classes} answers. Give {option} {size}, or another file."
            )
        reads_one = self.model.inputs == 1 and not is_residual(self.model)
        if not reads_one and self.model.vocabulary < self.which.vocabulary:
            raise BadInput(
                f"weights: reads {self.model.vocabulary} tokens, and {self.which.name} has {self.which.vocabulary}."
            )

    @cached_property
    def lines(self) -> list[tuple[int, ...]]:
        """All tokens of the longest inputs; of infinite ones the first."""
        room = None if self.longest is not None else 1
        return [line.tokens for line in self.which.lines(self.longest, room=room)]

    def size(self) -> int | None:
        return None if self.longest is None else sum(len(tokens) for tokens in self.lines)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        tokens = (
            "the input is the constant 1"
            if self.model.inputs == 1 and not self.model.types
            else "tokens " + ("are embedded" if self.model.types else "are one-hot")
        )
        network = f"torch's {self.model.kind.upper()} from the state 0, {tokens}; logits = W h + b of the last layer"
        if is_linear(self.model):
            network = "h' = A h + B from the state 0; logits = W h + b"
        if is_rotation(self.model):
            network = "h' = e^(i omega) h + 1 from the state 0; logits = W (Re h, Im h) + b"
        if is_gated(self.model):
            network = formula(self.model)
        if is_residual(self.model):
            network = blocks(self.model)
            assert isinstance(reading, Kernel) or self.step  # captured before the search
        return assumptions(reading, self.model, network, run="CPU, one token at a time", right=RIGHT)

    def found(self, reading: Reading, effort: Effort) -> Finding:
        if not self.by_length:
            return self._decided(reading, effort)
        shares.check(self.longest, reading)
        until = effort.deadline()
        found = self._decided(reading, effort.share(1 / 2))
        counts = counted(self._answers(Budget.of(effort.left(until).budget).deadline()))
        return replace(found, extra=found.extra | as_counts(counts, self._length(1)))

    def _answers(self, until: Deadline) -> list[list[bool | None]]:
        """Whether each answer of all lines is right, also after wrong ones, in balls."""
        if is_residual(self.model):
            from verify.module import followed  # loads torch's tracer

            return followed.answers(self.step, [(line, self.which.answers(line)) for line in self.lines], until)
        if is_rotation(self.model):
            from verify.tasks.recurrent import rotation

            assert self.which.m is not None, "a rotation is decided on modular"
            return [rotation.answers(self.model, self.which.m, len(tokens), until) for tokens in self.lines]
        net = gated.network(self.model) if is_gated(self.model) else network_of(self.model)
        return [answers(net, self._line(tokens), len(tokens), until) for tokens in self.lines]

    def _decided(self, reading: Reading, effort: Effort) -> Finding:
        if isinstance(reading, Kernel):
            return self._repeated(effort)
        if is_residual(self.model):
            assert isinstance(reading, Real | Rounded)
            return self._followed_whole(reading, effort)
        if is_rotation(self.model):
            return self._rotated(reading, effort)
        if is_gated(self.model):
            return self._gated(self.model, reading, effort)
        is_exact = isinstance(reading, Real) and exact.is_rational(self.model)
        until = effort.deadline()
        worst = self._worst(reading, effort.share(1 / 2) if is_exact else effort, is_exact)
        if is_exact and worst.verdict is Verdict.UNKNOWN:
            return self._worst(reading, effort.left(until), False)  # perhaps a cycle, or an orbit that creeps
        return worst

    def _followed_whole(self, reading: Real | Rounded, effort: Effort) -> Finding:
        """Whole blocks, by their captured step."""
        from verify.tasks.recurrent import residual  # loads torch's tracer

        if self.which.vocabulary == 1 and isinstance(reading, Real):
            return residual.finding(self.step, self.which, self.longest, effort)
        lines = [(line, self.which.answers(line)) for line in self._long_lines()]
        known = residual.of_lines(self.step, lines, reading, effort)
        told = known.wrong or known.tightest
        by_length = sorted(self._long_lines(), key=len, reverse=True)
        line = next(line for line in by_length if known.stuck or line[: len(told)] == told)
        found = OrbitOutcome(
            known.right_to, known.margin, len(known.tightest), len(told) if known.wrong else None, known.wrong_by,
            known.rival, reason=known.stuck or f"{known.right_to} tokens were followed",
            argument=residual.ARGUMENT_LINES,
        )  # fmt: skip
        if isinstance(reading, Rounded):
            found = replace(found, evaluation=known.evaluation, argument=known.argument(residual.ARGUMENT_LINES))
        return self._finding(found, line)

    def _long_lines(self) -> list[tuple[int, ...]]:
        """All lines; of infinite ones more tokens than are followed in time."""
        if self.longest is not None:
            return self.lines
        return [line.tokens for line in self.which.lines(None, room=MOST_FOLLOWED)]

    def _rotated(self, reading: Reading, effort: Effort) -> Finding:
        """In closed form, at any length; in a format by tubes and single runs."""
        from verify.tasks.recurrent import rotation, turned

        model, m = self.model, self.which.m
        if m is None:
            raise BadInput(f"task={self.which.name}: a rotation is decided on --task modular.")
        if isinstance(reading, Rounded):
            at = RoundedArithmetic.of(reading.format, reading.accumulate)
            line = OrbitQuestion((), 0, lambda t: (t - 1) % m, m)
            if not turned.is_format(at):
                raise BadInput(
                    f"precision={reading.format.name}: a rotation is judged in one format of 8 to 25 bits, or float64."
                )
            return self._over_lines(lambda _, length, own: turned.decided(model, line, length, at, own.budget), effort)

        def decided(line: OrbitQuestion, length: int | None, effort: Effort) -> OrbitOutcome:
            found = rotation.count(model, m, length)
            if found is None:
                return OrbitOutcome(0, float("inf"), 0, reason="the sign of a margin is not known with 400 bits")
            if length is not None and found.right_to >= length:
                return OrbitOutcome(length, found.margin, found.tightest)
            wrong = found.right_to + 1
            return OrbitOutcome(found.right_to, found.margin, found.tightest, wrong, found.wrong_by, found.predicted)

        return self._over_lines(decided, effort)

    def _gated(self, model: AnyModel, reading: Reading, effort: Effort) -> Finding:
        """In balls, token by token, and as an orbit where that is long."""
        if isinstance(reading, Rounded):
            from verify.tasks.recurrent import rounded

            at = RoundedArithmetic.of(reading.format, reading.accumulate)
            net, run = gated.network(model, at), gated.network(gated.stored_in(model, at.stored))
            return self._over_lines(lambda line, n, own: rounded.decided(net, run, line, n, at, own.budget), effort)

        known = gated.GatedBalls.of(model)

        def decided(line: OrbitQuestion, length: int | None, effort: Effort) -> OrbitOutcome:
            until = effort.deadline()
            found = gated.run(known, line, length, effort.budget)
            if found is not None:
                return found
            return in_time(gated.network(model), line, length, effort.left(until))

        return self._over_lines(decided, effort)

    def _worst(self, reading: Reading, effort: Effort, is_exact: bool) -> Finding:
        """Decides every line, in fractions or by ellipsoids, and returns the first wrong one, or the worst."""
        model = self.model
        if is_exact:
            return self._over_lines(lambda line, n, own: exact.run(model, line, n, own.budget), effort)
        net = network_of(model)
        if isinstance(reading, Rounded):
            from verify.tasks.recurrent import rounded

            at = RoundedArithmetic.of(reading.format, reading.accumulate)
            near = net.rounded(at.stored)

            def decided(line: OrbitQuestion, n: int | None, own: Effort) -> OrbitOutcome:
                until = own.deadline()
                found = rounded.decided(near, near, line, n, at, own.share(7 / 8).budget)
                if found.wrong_at is not None or found.right_to in (None, n) or not exact.is_rational(model):
                    return found
                is_stored = at.operand is at.stored and net.is_same(near)
                return rounded.in_fractions(model, line, n, at, own.left(until).budget, found) if is_stored else found

            return self._over_lines(decided, effort)
        return self._over_lines(lambda line, n, own: in_time(net, line, n, own), effort)

    def _over_lines(self, decided: Decided, effort: Effort) -> Finding:
        """The shortest wrong input of all lines, or the line of which least is known.

        Each has an equal part of what is left of the budget, and after a wrong input only shorter ones are asked for.
        """
        until, shorter = effort.deadline(), math.inf
        found = list[tuple[tuple[int, ...], OrbitOutcome]]()
        for number, line in enumerate(self.lines):
            own = effort if len(self.lines) == 1 else effort.left(until).share(1 / (len(self.lines) - number))
            tokens = line if len(line) < shorter else line[: int(shorter) - 1]
            if tokens:
                outcome = decided(self._line(tokens), None if self.longest is None else len(tokens), own)
                found.append((tokens, outcome))
                shorter = min(shorter, outcome.wrong_at or shorter)
            effort.progress((number + 1) / len(self.lines))
        known = [self._known(*one) for one in found]
        for tokens, outcome in found:
            if outcome.wrong_at == shorter:
                return self._finding(replace(outcome, right_to=int(min(shorter - 1, *known))), tokens)
        if min(known) < math.inf:
            tokens, least = found[int(np.argmin(known))]
            return self._finding(least, tokens)
        tokens, tight = min(found, key=lambda one: one[1].margin)
        return self._finding(tight, tokens)

    def _known(self, tokens: tuple[int, ...], outcome: OrbitOutcome) -> float:
        """After how many tokens every prefix is known to be right; infinity for a line that is right as a whole."""
        is_up_to_length = self.longest is not None and (outcome.right_to or 0) >= len(tokens)
        if outcome.wrong_at is None and (outcome.right_to is None or is_up_to_length):
            return math.inf
        return outcome.right_to or 0  # no float, which beyond 2^53 is another

    def _line(self, tokens: tuple[int, ...]) -> OrbitQuestion:
        """The line that starts so, its last token for ever."""
        if self.which.m is not None:
            m = self.which.m
            return OrbitQuestion((), self.read(tokens[:1])[0], lambda t: (t - 1) % m, m)
        same = len(tokens)
        while same > 1 and tokens[same - 2] == tokens[-1]:
            same -= 1
        if self.which.name != "first-homogeneous":
            answers = self.which.answers(tokens)
            leading, last = self.read(tokens[: same - 1]), self.read(tokens[-1:])[0]
            settled = len(tokens)  # answers that grow do not repeat
            return OrbitQuestion(leading, last, lambda t: int(answers[t - 1] or 0), 1, settled)
        return OrbitQuestion((), self.read(tokens)[0], lambda t: int(t == 1), 1, 1)

    def _finding(self, outcome: OrbitOutcome, tokens: tuple[int, ...]) -> Finding:
        argument = ARGUMENT_FOR_EVER if self.longest is None else ARGUMENT_FINITE
        argument = ARGUMENT_ROTATION if is_rotation(self.model) else argument
        is_short = outcome.invariant is None and outcome.reason is None
        argument = ARGUMENT_GATED if is_gated(self.model) and is_short else argument
        if outcome.argument is not None:
            argument = outcome.argument
        elif outcome.is_steady:
            argument = ARGUMENT_STEADY.format(outcome.turn)
        elif outcome.turn is not None:
            argument = ARGUMENT_SLOW.format(outcome.turn)
        elif outcome.bits is not None:
            argument = ARGUMENT_PRECISE.format(outcome.bits)
        elif exact.is_rational(self.model) and outcome.invariant is None:
            argument = ARGUMENT_EXACT
        extra: dict[str, object] = {}
        if outcome.wrong_at is not None:
            case = self._case(tokens, outcome.wrong_at, outcome.predicted)
            if outcome.right_to == outcome.wrong_at - 1 or outcome.evaluation is not None:
                extra |= self._right_to(outcome.right_to or 0)
                case["is_first"] = outcome.right_to == outcome.wrong_at - 1
            if outcome.evaluation is not None:
                case["evaluation"] = outcome.evaluation
            extra |= outcome.facts or {}
            return Finding.refuted(argument, Failure(case, outcome.wrong_by), extra=extra)
        extra |= outcome.facts or {}
        if outcome.invariant is not None:
            extra["invariant"] = as_json(outcome.invariant)
        if self._known(tokens, outcome) == math.inf:
            tightest = {"length": self._length(outcome.tightest), "margin": outcome.margin}
            can_run = 0 < outcome.tightest <= LONGEST_SHOWN
            telling = ((self._extended(tokens, outcome.tightest), outcome.tightest - 1),) if can_run else ()
            named = tightest if outcome.tightest else None
            return Finding.proved(argument, outcome.margin, tightest=named, telling=telling, extra=extra)
        extra |= self._right_to(outcome.right_to or 0)
        known = f"right up to length {extra['right_to']}" if "right_to" in extra else "right up to no length"
        return Finding.open(argument, f"{known}; {outcome.reason}", extra=extra)

    def _right_to(self, t: int) -> dict[str, object]:
        """The length up to which every input is right, of one that is right after t tokens; nothing where none is."""
        return {"right_to": self._length(t)} if self._length(t) >= 0 else {}

    def _length(self, t: int) -> int:
        """n of a prefix of t tokens: a leading number word does not count."""
        return t - int(self.which.name in STARTED)

    def _case(self, tokens: tuple[int, ...], t: int, predicted: int | None) -> dict[str, object]:
        """A wrong input, replayed in float64 beside it."""
        whole = self._extended(tokens, min(t, LONGEST_SHOWN))
        expected = self._expected(tokens, t)
        shown: object = list(whole) if t <= LONGEST_SHOWN else f"token {whole[-1]}, {t} times"
        start = {"start": whole[0]} if self.which.name in STARTED else {}
        said = logits_at_end(self.model, self.read(whole)).argmax() if t <= LONGEST_SHOWN else None
        return {
            "input": shown,
            "length": self._length(t),
            **start,
            "expected": self.which.said(expected),
            "predicted": None if predicted is None else self.which.said(predicted),
            "float64_predicts": None if said is None else self.which.said(int(said)),
        }

    def _extended(self, tokens: tuple[int, ...], t: int) -> tuple[int, ...]:
        return tokens[:t] if t <= len(tokens) else tokens + (tokens[-1],) * (t - len(tokens))

    def due(self, item: Item) -> list[int]:
        if self.longest is not None:
            return [int(right or 0) for right in self.which.answers(item)]
        line = self._line(item)
        return [line.expected(t) for t in range(1, len(item) + 1)]

    def _expected(self, tokens: tuple[int, ...], t: int) -> int:
        return self._line(tokens).expected(t) if self.longest is None else int(self.which.answers(tokens)[t - 1] or 0)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        """The line in float64 must have the proved margin."""
        tokens = item[: answer + 1]
        return one_run(self.model, self.read(tokens), self._expected(tokens, len(tokens)), reading)

    def _repeated(self, effort: Effort) -> Finding:
        """torch's runs, one token at a time, of every line, or until the state and what is due come again."""
        return self._over_lines(self._ran, effort)

    def _ran(self, line: OrbitQuestion, steps: int | None, effort: Effort) -> OrbitOutcome:
        """One line."""
        from verify.tasks.recurrent.repeated import run_for_ever  # loads torch, which runs

        ran = run_for_ever(module_of(self.model), line, effort.budget, steps)
        found = OrbitOutcome(ran.steps, ran.margin, 0, argument=ARGUMENT_REPEATED)
        if ran.wrong_at is not None:
            wrong_by = ran.margin if np.isfinite(ran.margin) else None
            return replace(found, wrong_at=ran.wrong_at, wrong_by=wrong_by, predicted=ran.predicted)
        if ran.steps == steps:
            return replace(found, right_to=None, argument=ARGUMENT_RAN)
        if ran.repeats is None:
            return replace(found, reason="no state has come again" if steps is None else "time is up")
        facts: dict[str, object] = {"repeats": {"state_after": ran.repeats[0], "comes_again_after": ran.repeats[1]}}
        return replace(found, right_to=None, facts=facts | ({} if ran.states is None else {"states": ran.states}))

    def batches(self) -> Iterator[Batch]:
        if self.longest is None:
            raise BadInput("length=all: infinitely many inputs cannot all be run. Give a length.")
        for tokens in self.lines:
            yield [tokens]

    def draw(self, rng: random.Random) -> Item:
        line = rng.choice(self.lines)
        return self._extended(line, rng.randrange(1, 200 if self.longest is None else len(line) + 1))

    def smaller(self, item: Item) -> Iterator[Item]:
        for n in (len(item) // 2, len(item) - 1):
            if n >= 1:
                yield item[:n]

    def first(self, batch: Batch, is_wrong: np.ndarray) -> tuple[int, Item, int]:
        """The shortest wrong prefix of a batch."""
        ends = np.where(is_wrong.any(1), is_wrong.argmax(1), is_wrong.shape[1])
        row = int(ends.argmin())
        return int(ends[row]), tuple(batch[row]), int(ends[row])

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        """By tracing the module; a long line takes minutes to trace, and is followed in balls of the stored numbers."""
        tokens = item[: answer + 1]
        if is_residual(self.model):
            from verify.tasks.recurrent import residual

            return residual.is_wrong(self.step, self.read(tokens), self._expected(tokens, len(tokens)))
        if len(tokens) > LONGEST_TRACED and (has_cells(self.model) or is_linear(self.model)):
            return answers(network_of(self.model), self._line(tokens), len(tokens), Deadline.never())[-1] is False
        return is_wrong_in_its_ball(module_of(self.model), self.read(tokens), self._expected(tokens, len(tokens)))

    def case(self, tokens: Item, predicted: int | None) -> dict[str, object]:
        return self._case(tokens, len(tokens), predicted)


def network_of(model: AnyModel) -> Network:
    """The stored numbers of a network with cells, or of a linear one."""
    return Network.of_linear(model) if is_linear(model) else Network.of(model)


def in_time(net: Network, line: OrbitQuestion, length: int | None, effort: Effort) -> OrbitOutcome:
    """Right up to a length, or at every one (None), in real arithmetic?"""
    if length is None:
        return for_ever(net, line, Rules(), effort.budget)
    return finite(net, line, length, Rules(), effort.budget)
