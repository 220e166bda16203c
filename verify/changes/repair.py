"""The least change of a readout with which a model is proved, by cutting planes; or why there is none.

The hidden numbers stay, so that right means linear inequalities in the readout. Each round takes the inputs that are
worst for each pair of classes, solves for the least change that mends all taken so far, and rounds it to the model's
dtype. What is then decided anew, by the task's own verifier, are the numbers that are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from torch import nn

from verify.arithmetic.formats import format_of
from verify.arithmetic.outward import float_at_least
from verify.arithmetic.readings import Reading, Real, Rounded
from verify.arithmetic.slack import Array
from verify.changes import programs
from verify.changes.changeable import MOST_NUMBERS, Changeable, Questions, TooMany, one_decision
from verify.changes.farkas import NullCombination, proposed, shown
from verify.changes.programs import Cuts, Relaxed
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import Budget, Deadline, TimeIsUp
from verify.frame.decide import Effort

FLOAT_OFF_BY = 2.0**-40  # relative: what hidden numbers in float64 are off by, with room; verdicts do not rest on it
ROUNDINGS = 512  # of a dtype's run that its margins are first given room for
MORE_ROOM = 4.0  # by which delta grows where the verifier wants more than rounding takes
MORE_FOR_A_DTYPE = 16.0  # the same where it bounds every order of rounding: a verdict that is open takes long
CLOSE = 1.01  # times the bound on every repair: a change that is no larger is not made smaller
INSEPARABLE = 1e-10  # relative margin of the best hyperplane, at or below which two classes look inseparable
GROWN = 1.5  # times the last change: room for a larger one to be rounded
DRAWN = 1 << 19  # questions at most of a domain that is too large to be listed, to begin with
CLOSEST, DESCENTS, TAKEN = 256, 4, 1 << 12  # those whose neighbours are looked at, how often, and how many are taken
AT_ONCE = 100  # inputs of two classes that are added in a round
BITS = 512
NORM = "largest change of a number of the readout"


class RepairOutcome(StrEnum):
    """PROVED after the repair, IMPOSSIBLE for every readout, or UNKNOWN with a reason."""

    PROVED = "PROVED"
    IMPOSSIBLE = "IMPOSSIBLE"
    UNKNOWN = "UNKNOWN"

    @property
    def exit_code(self) -> int:
        return {"PROVED": 0, "IMPOSSIBLE": 2, "UNKNOWN": 3}[self.value]


@dataclass(frozen=True)
class Repair:
    """What came of a repair.

    `change` is the largest difference of a stored number of `tensors` to the old one, exactly; every readout that is
    right in real arithmetic has one of `at_least`, a bound, None where more than the readout may change. `delta` is by
    how much each input was to be right before rounding, at the most. `questions` are all that there are, or those that
    were looked at where not `is_listed`.
    """

    outcome: RepairOutcome
    module: nn.Module | None = None
    certificate: Certificate | None = None
    change: Fraction | None = None
    largest_number: float | None = None
    at_least: float | None = None
    delta: float | None = None
    cuts: int = 0
    rounds: int = 0
    wrong: int = 0
    questions: int = 0
    is_listed: bool = True
    combination: NullCombination | None = None
    reason: str | None = None
    tensors: tuple[str, ...] = ()
    norm: str = NORM

    def __bool__(self) -> bool:
        """True where the model is proved."""
        return self.outcome is RepairOutcome.PROVED

    @property
    def gap(self) -> float | None:
        """The change over the bound on every change, rounded up; None where nothing changed or the bound is 0."""
        if not self.change or not self.at_least:
            return None
        return float_at_least(self.change / Fraction(self.at_least))

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values; bounds are rounded outwards."""
        return {
            "verdict": self.outcome.value,
            "norm": self.norm,
            "tensors": list(self.tensors),
            "change": None if self.change is None else float_at_least(self.change),
            "at_least": self.at_least,
            "gap": self.gap,
            "largest_number": self.largest_number,
            "delta": self.delta,
            "cuts": self.cuts,
            "rounds": self.rounds,
            "wrong": str(self.wrong),
            "questions": str(self.questions),
            "is_listed": self.is_listed,
            "combination": None if self.combination is None else self.combination.to_dict(),
            "reason": self.reason,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


def repair(changeable: Changeable, reading: Reading | None = None, effort: Effort | None = None) -> Repair:
    """Changes the readout as little as it must, so that the model is proved; or shows that no readout can be right.

    Raises: BadInput where the domain has too many questions to be listed.
    """
    search = begun(changeable, reading or Real(), effort or Effort())
    return search if isinstance(search, Repair) else search.repaired()


def begun(changeable: Changeable, reading: Reading, effort: Effort) -> RepairSearch | Repair:
    """The search of a model, or an open end where running its questions takes longer than the search may."""
    over = -effort.deadline().left() if effort.limit.since is not None else -1.0
    try:
        return RepairSearch.of(changeable, reading, effort)
    except TimeIsUp:
        reason = f"the {effort.limit} ended before every question was run"
        if over > 0:
            reason = f"the {effort.limit} ended; tracing alone took {effort.seconds + over:.1f} s"
        return Repair(RepairOutcome.UNKNOWN, reason=reason, tensors=changeable.readout.names)


@dataclass
class RepairSearch:
    """The questions of a model, their hidden numbers in float64, and the cuts taken so far.

    X is the readout that changes are counted from. Shapes: H (n, p + 1), right (n,), X (p + 1, C).
    """

    changeable: Changeable
    reading: Reading
    effort: Effort
    deadline: Deadline
    questions: Questions
    H: Array
    right: np.ndarray
    X: Array
    cuts: Cuts
    is_listed: bool
    last: Array
    rounds: int = 0

    @classmethod
    def of(
        cls, changeable: Changeable, reading: Reading, effort: Effort, like: RepairSearch | None = None
    ) -> RepairSearch:
        """The search of a model; with the questions of another one, and changes counted from its readout, if `like`.

        Raises: TimeIsUp.
        """
        deadline = effort.deadline()
        if like is None:
            questions, is_listed = asked_of(changeable, effort.seed)
            X = changeable.readout.of(changeable.module)
        else:
            questions, is_listed, X = like.questions, like.is_listed, like.X
        return cls(
            changeable, reading, effort, deadline, questions, changeable.hidden(questions, deadline),
            questions.right.numpy(), X,
            Cuts.none(len(X)), is_listed, X,
        )  # fmt: skip

    def repaired(self) -> Repair:
        """The model as it is where it is proved, why no readout is right, or the least change of the readout."""
        effort = one_decision(self.effort, self.deadline)
        before = self.changeable.decide(self.changeable.module, self.reading, effort)
        if before.verdict is Verdict.PROVED:
            return self.kept(before)
        try:
            found = self.inseparable_classes()
        except TimeIsUp:
            return self.unknown("the budget ended")
        return self.mended() if found is None else self.impossible(found)

    @property
    def until(self) -> Deadline | None:
        """When a linear programme ends; never by itself where steps are counted and not seconds."""
        return None if isinstance(self.effort.budget, Budget) and self.effort.budget.steps else self.deadline

    def _take(self, more: Questions) -> None:
        """Looks at these questions too from now on."""
        self.questions = self.questions + more
        self.H = np.vstack([self.H, self.changeable.hidden(more)])
        self.right = self.questions.right.numpy()

    def _met(self, X: Array, size: Array, unit: float) -> bool:
        """Whether questions that are not listed are met of which this readout is short: near the closest, or drawn."""
        sampling = self.changeable.sampling
        if self.is_listed or sampling is None:
            return False
        at = self.questions[programs.shortage(self.H, self.right, X, size, unit).argsort()[:CLOSEST]]
        at = at + sampling.drawn(self.effort.seed + self.rounds + 1, CLOSEST)
        for _ in range(DESCENTS):
            near = sampling.near(at)
            short = programs.shortage(self.changeable.hidden(near), near.right.numpy(), X, size, unit)
            order = short.argsort()[:TAKEN]
            worst = order[short[order] < 0]
            if len(worst):
                self._take(near[worst])
                return True
            at = near[order[:CLOSEST]]
        return False

    def wrong(self, X: Array) -> int:
        """How many questions a readout gets wrong in float64."""
        return int((programs.gaps(self.H, self.right, X).min(1) <= 0).sum())

    def _result(self, outcome: RepairOutcome, **found: object) -> Repair:
        about: dict[str, Any] = {"cuts": len(self.cuts), "rounds": self.rounds, "questions": len(self.questions)}
        about["is_listed"] = self.is_listed
        about["tensors"] = self.changeable.readout.names
        return Repair(outcome, largest_number=float(np.abs(self.X).max()), wrong=self.wrong(self.X), **(about | found))

    def kept(self, certificate: Certificate) -> Repair:
        """The model as it is."""
        module = self.changeable.module
        return self._result(
            RepairOutcome.PROVED, module=module, certificate=certificate, change=Fraction(0), at_least=0.0, delta=0.0
        )

    def impossible(self, found: NullCombination) -> Repair:
        """No readout: by inputs whose vectors add up to nothing. In a dtype the vectors are rounded, and it is open."""
        reason = f"the vectors of {len(found.weights)} inputs add up to nothing with positive weights, {found.checked}"
        if isinstance(self.reading, Rounded):
            return self.unknown(f"no readout is right in real arithmetic: {reason}", combination=found)
        return self._result(RepairOutcome.IMPOSSIBLE, combination=found, reason=reason)

    def unknown(self, reason: str, **found: object) -> Repair:
        """Neither, with what is left at the last readout."""
        left = self.wrong(self.last)
        return self._result(
            RepairOutcome.UNKNOWN, reason=f"{reason}; the last readout is wrong on {left} questions", **found
        )

    def inseparable_classes(self) -> NullCombination | None:
        """A combination of inputs of two classes that no hyperplane separates, where one is found and shown.

        Raises: TimeIsUp.
        """
        for y, c in combinations(np.unique(self.right), 2):
            self.deadline.check()
            index = np.flatnonzero((self.right == y) | (self.right == c))
            sign = np.where(self.right[index] == y, 1.0, -1.0)
            rows = self.H[index] * sign[:, None]
            chosen = inseparable(rows, self.deadline)
            weights = None if chosen is None else proposed(rows[chosen])
            if chosen is None or weights is None:
                continue
            questions = self.questions[index[chosen]]
            rival = np.where(questions.right.numpy() == y, c, y)
            is_in_time = self.changeable.is_traced(self.until)
            found = shown(self.changeable, questions, rival, weights) if is_in_time else None
            if found is not None:
                return found
        return None

    def mended(self) -> Repair:
        """The least change by cutting planes, with more room until the verifier proves what is stored.

        Where no readout has the room that every order of a dtype's rounding may take, less of it is tried.
        """
        fmt = format_of(self.changeable.module.get_parameter(self.changeable.readout.weight).dtype)
        unit, more, is_lowered = fmt.u + FLOAT_OFF_BY, MORE_ROOM, False
        least = unit
        if isinstance(self.reading, Rounded):
            unit, more = unit + ROUNDINGS * self.reading.format.u, MORE_FOR_A_DTYPE
        while True:
            relaxed = self._relaxed(unit)
            if isinstance(relaxed, str):
                if unit < least * MORE_ROOM or self.deadline.is_up():
                    return self._without_relaxed(relaxed)
                unit, is_lowered = unit / MORE_ROOM, True
                continue
            if not self.changeable.is_decided(self.until):
                return self.unknown("the budget ended")
            found = self._decided(relaxed, unit)
            if isinstance(found, Repair):
                return self._sharpened(found, unit)
            if self._told(found, relaxed, unit) and not self.deadline.is_up():
                continue
            if self.deadline.is_up() or unit * more >= 1 or is_lowered:
                return self.unknown(f"the verifier says of the rounded readout: {found}")
            unit *= more

    def _decided(self, relaxed: Relaxed, unit: float) -> Repair | Certificate:
        """What the verifier says of a readout once it is rounded."""
        module = self.changeable.readout.replaced(self.changeable.module, relaxed.X)
        certificate = self.changeable.decide(module, self.reading, one_decision(self.effort, self.deadline))
        return (
            self._proved(module, certificate, relaxed, unit) if certificate.verdict is Verdict.PROVED else certificate
        )

    def _told(self, found: Certificate, relaxed: Relaxed, unit: float) -> bool:
        """Whether a counterexample is a question that was not listed, of which the readout is short before rounding."""
        sampling = self.changeable.sampling
        if self.is_listed or sampling is None or found.counterexample is None:
            return False
        self._take(sampling.of(found.counterexample))
        size = np.abs(self.X) + relaxed.t
        return bool(programs.shortage(self.H[-1:], self.right[-1:], relaxed.X, size, unit)[0] < 0)

    def _sharpened(self, best: Repair, unit: float) -> Repair:
        """The same with less room for rounding, while that is proved too and its change is not close to the bound."""
        while not self.deadline.is_up() and self.changeable.is_decided(self.until):
            assert best.change is not None and best.at_least is not None
            if best.change <= CLOSE * best.at_least:
                break
            unit /= MORE_ROOM
            relaxed = self._relaxed(unit)
            found = None if isinstance(relaxed, str) else self._decided(relaxed, unit)
            if not isinstance(found, Repair) or found.change is None or found.change >= best.change:
                break
            best = found
        return best

    def _relaxed(self, unit: float) -> Relaxed | str:
        """The least change that is right on all questions in float64, or why there is none."""
        best, wrong = Relaxed(self.X, 0.0, np.zeros(0)), max(1, self.wrong(self.X))
        is_solved = not len(self.cuts)  # for these cuts and this room: at first there are none
        while True:
            need = programs.needed(self.H, self.right, np.abs(self.X) + best.t, unit)
            short = programs.gaps(self.H, self.right, best.X) - need
            is_open = self.cuts.add(self.H, self.right, programs.worst(short, self.right)) or not is_solved
            if not is_open and not self._met(best.X, np.abs(self.X) + best.t, unit):
                return best
            if not is_open:
                continue
            if self.deadline.is_up():
                return "the budget ended"
            found = programs.least_change(self.cuts, self.X, unit, GROWN * best.t, self.until)
            self.rounds += 1
            if found is None and self.deadline.is_up():
                return "the budget ended"
            if found is None:
                return "no readout is right on the inputs taken so far with room for rounding"
            if found.t > GROWN * best.t:  # room for the rounding of a larger readout
                found = programs.least_change(self.cuts, self.X, unit, GROWN * found.t, self.until) or found
            best, is_solved, self.last = found, True, found.X
            self.effort.progress(1 - min(1.0, self.wrong(best.X) / wrong))

    def _without_relaxed(self, reason: str) -> Repair:
        """Where no readout has the room that rounding takes: none at all, or one that is not known."""
        if self.deadline.is_up():
            return self.unknown(reason)
        if not self.changeable.is_traced(self.until):
            return self.unknown(f"{reason}; {self.too_long}")
        weights = proposed(self.cuts.rows(self.X.shape[1]))
        if weights is not None:
            found = shown(self.changeable, self.questions[self.cuts.question], self.cuts.rival, weights)
            if found is not None:
                return self.impossible(found)
            reason += (
                "; inputs that look impossible together in floats are not in general position, and not shown to be"
            )
        return self.unknown(reason)

    def _proved(self, module: nn.Module, certificate: Certificate, relaxed: Relaxed, unit: float) -> Repair:
        new = self.changeable.readout.of(module)
        change = max(abs(Fraction(float(a)) - Fraction(float(b)))
                     for a, b in zip(new.flat, self.X.flat, strict=True))  # fmt: skip
        room = programs.needed(self.H, self.right, np.abs(self.X) + relaxed.t, unit)
        is_traced = self.changeable.is_traced(self.until)
        return self._result(
            RepairOutcome.PROVED, module=module, certificate=certificate, change=change,
            at_least=self.at_least() if is_traced else 0.0, delta=float(room.max()),
            reason=None if is_traced else f"no bound on every repair: {self.too_long}",
        )  # fmt: skip

    @property
    def too_long(self) -> str:
        """Why the exact hidden numbers are not looked at."""
        return (
            f"the {self.effort.limit} ends before the model is traced at {self.changeable.length} tokens, which takes "
            f"about {self.changeable.trace_takes:.0f} s"
        )

    def at_least(self) -> float:
        """A bound on every repair, by the multipliers of the least change for the cuts taken so far, in balls.

        Cuts for which there is no time are left out: any multipliers give a bound, 0 at the least.
        """
        relaxed = programs.least_change(self.cuts, self.X, 0.0, 0.0)
        if relaxed is None:
            return 0.0
        used, hidden = np.flatnonzero(relaxed.multipliers), []
        asked = self.questions[self.cuts.question[used]]
        for tokens, position in zip(asked.tokens, asked.position, strict=True):
            if self.deadline.is_up():
                break
            hidden.append(self.changeable.enclosed(tokens, int(position), BITS))
        used, asked = used[: len(hidden)], asked[slice(0, len(hidden))]
        scaled = relaxed.multipliers[used] / self.cuts.size[used]
        return programs.bound_on_every_change(
            hidden, asked.right.tolist(), self.cuts.rival[used].tolist(), scaled, self.X
        )


def asked_of(changeable: Changeable, seed: int) -> tuple[Questions, bool]:
    """All questions, or drawn ones where they are too many to be listed; and whether they are all.

    Raises: BadInput where they are too many, and the task cannot draw them.
    """
    try:
        return changeable.questions(), True
    except TooMany:
        if changeable.sampling is None:
            raise
        row = len(changeable.readout.of(changeable.module)) + changeable.length
        return changeable.sampling.drawn(seed, min(DRAWN, MOST_NUMBERS // row)), False


def inseparable(rows: Array, deadline: Deadline) -> np.ndarray | None:
    """Which of these vectors no w has w . row > 0 for, in floats; None where a w is found, or the time is up."""
    with np.errstate(invalid="ignore"):  # no program is solved with what is no number
        rows = rows / np.maximum(np.abs(rows).max(0), 1e-300)
        rows = rows / np.abs(rows).max(1, keepdims=True)
    chosen = np.unique(np.linspace(0, len(rows) - 1, AT_ONCE).astype(np.int64))
    n = rows.shape[1]
    while not deadline.is_up():
        A = np.hstack([-rows[chosen], np.ones((len(chosen), 1))])
        cost, bounds = np.append(np.zeros(n), -1.0), [(-1, 1)] * n + [(None, 1)]
        found = programs.solved(cost, A, np.zeros(len(chosen)), bounds)
        if found is None:
            return None
        if found.x[-1] <= INSEPARABLE:
            return chosen
        value = rows @ found.x[:-1]
        below = np.flatnonzero(value <= 0)
        if not len(below):
            return None
        worst = below[np.argsort(value[below])[:AT_ONCE]]
        more = np.setdiff1d(worst, chosen)
        if not len(more):
            return None
        chosen = np.append(chosen, more)
    return None
