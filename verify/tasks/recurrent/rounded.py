"""One line in a format, in any order: what ellipsoids leave open, by boxes of computed numbers and by single runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.contract import ARGUMENT_RUN, EVERY, EXACTLY_KEPT
from verify.frame.clock import Budget, Deadline
from verify.tasks.recurrent import computed, decays, exact, representable
from verify.tasks.recurrent.chain import Rules
from verify.tasks.recurrent.enclosures import Roundings
from verify.tasks.recurrent.grid import Boxes
from verify.tasks.recurrent.network import Later, Network
from verify.tasks.recurrent.off import StepErrors
from verify.tasks.recurrent.proof import (
    FINE,
    OrbitOutcome,
    OrbitQuestion,
    crept_along,
    finite,
    first_states,
    for_ever,
    outcome,
)

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

ARGUMENT_BOXES = "boxes round all computed states, and one that each turn maps into itself"
ARGUMENT_BOX = "boxes round all computed states of every step"
ARGUMENT_CREPT = "tubes round polynomials of the number of turns, widened by what rounding adds"
ARGUMENT_CLOSED = "one run of those that the reading allows, in closed form"
EXACT = "every result kept exactly, where no factor of a matrix product is rounded"
LOW, HIGH = -3 / 2, 15 / 8  # shares of u by which functions are off in a run, within 2 units in the last place
SAID_LOW = "each sigmoid low by a factor of 1 - 3u/2, "
SAID_HIGH = "each sigmoid high by a factor of 1 + 15u/8, "
SAID_NEAR = "what a token keeps as float64 has it, "
SAID_KEEPS_LOW = "what a token keeps low by a factor of about 1 - 3u/2, "
SAID_KEEPS_HIGH = "what a token keeps high by a factor of about 1 + 15u/8, "
SAID_PAST = (
    "for at least {} tokens each sigmoid low by a factor of 1 - 15u/8 and each tanh high by 1 + 15u/8, "
    "then the other way round, "
)
FAR = 10_000  # tokens
ELLIPSOIDS, SHARE = 1 / 4, 2 / 5  # of the time, and of what is left for tubes and then boxes
SHARE_OF_TUBES = 9 / 10  # where there are three or four, and no run comes so far
AGAINST_BESIDE = 1 / 2  # where bits are few and functions may be askew
AGAINST, AGAINST_MUCH = 1 / 4, 3 / 4  # of what is then left, for runs against answers, where bits are many and few


def decided(
    net: Network, run: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, budget: float | Budget
) -> OrbitOutcome:
    """Right in every order after each of 1..length tokens, or at every length (None)?

    `net` holds all that its tables may be computed as, `run` what one run has.
    """
    whole = Budget.of(budget)
    until = whole.deadline()
    own = replace(whole, seconds=whole.seconds * ELLIPSOIDS)
    found = for_ever(net, line, Rules(at), own) if length is None else finite(net, line, length, Rules(at), own)
    if found.wrong_at is not None or found.right_to is None or (length is not None and found.right_to >= length):
        return found
    best, late = found, list[OrbitOutcome]()
    for further in (_crept_anyhow, _boxed):
        other = further(net, line, length, at, until.part(SHARE))
        if other is not None and (_is_settled(other) or other.right_to in (None, length)):
            return other
        late += [other] if other is not None and other.wrong_at is not None else []
        if other is not None and other.right_to is not None and other.right_to > (best.right_to or 0):
            best = other
        if further is _crept_anyhow and other is not None and (other.right_to or 0) > FAR:
            share = SHARE_OF_TUBES if _askew(run, at) else SHARE
            kept = _in_tubes(run, line, length, at, until.part(share), best)  # no run comes so far in time
            if kept.wrong_at is not None:
                return kept
    best = replace(best, wrong_at=None, evaluation=None)
    share = AGAINST if at.stored.p >= FINE else AGAINST_BESIDE if _askew(run, at) else AGAINST_MUCH
    ran = _against(net, run, line, length, at, until.part(share), best)
    if ran.wrong_at is None:
        ran = _run_askew(run, line, length, at, until.part(AGAINST if at.stored.p >= FINE else AGAINST_MUCH), best)
    if ran.wrong_at is None:
        ran = _run(run, line, length, at, until.part(1 / 2), best)
    ran = ran if ran.wrong_at is not None or late else _in_tubes(run, line, length, at, until, ran)
    for other in late:
        if ran.wrong_at is None or (other.wrong_at or 0) <= ran.wrong_at:
            ran = replace(other, right_to=best.right_to, margin=best.margin, tightest=best.tightest)
    return ran


def _is_settled(found: OrbitOutcome) -> bool:
    """Whether it is wrong, and no closer look is likely to find an earlier length."""
    if found.wrong_at is None or found.right_to is None:
        return False
    return found.right_to == found.wrong_at - 1 or found.right_to > FAR


@dataclass(frozen=True)
class Askew:
    """An evaluation whose functions are off by a part of what is allowed, and what is said of it."""

    net: Network
    said: str = ""
    later: Later | None = None

    def refuted(self, found: OrbitOutcome) -> OrbitOutcome:
        """What was found, with what the evaluation is."""
        if not self.said:
            return found
        after = self.later.after if self.later else None
        return replace(found, evaluation=self.said.format(after) + str(found.evaluation))


def _askew(run: Network, at: RoundedArithmetic) -> list[Askew]:
    """Evaluations in which gates that are nearly open or shut are so for ever, or are not.

    A GRU's gate z above 1 takes the state away from n, ever faster, to the side of n on which it is. So the last one
    first brings the state near an n that is large, and lets n then be small: the state is past it.
    """
    if run.kind not in ("lstm", "gru") or at.operand is not at.stored:
        return []
    fmt = at.stored
    found = [Askew(run.askew(fmt, sigmoids=by), said) for by, said in ((HIGH, SAID_HIGH), (LOW, SAID_LOW))]
    if run.kind == "gru":
        after = math.ceil(math.log(4 / fmt.u) / (HIGH * fmt.u))
        past = Later(run.askew(fmt, sigmoids=HIGH, candidates=-HIGH), after)
        found.append(Askew(run.askew(fmt, sigmoids=-HIGH, candidates=HIGH), SAID_PAST, past))
    return found


def _in_tubes(
    run: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome:
    """Refuted by a run that keeps every result, with functions as they are or askew; else what is known."""
    if decays.is_closed(run):
        return _in_closed_form(run, line, length, at, until, known)
    tried = [Askew(run), *_askew(run, at)]
    for number, askew in enumerate(tried):
        found = _kept(askew, line, length, at, until.part(1 / (len(tried) - number)), known)
        if found.wrong_at is not None:
            return askew.refuted(found)
    return known


def _in_closed_form(
    run: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome:
    """The same of gated decays, whose exp may be askew."""
    shares = ((0.0, SAID_NEAR), (HIGH, SAID_KEEPS_HIGH), (LOW, SAID_KEEPS_LOW))
    for share, said in shares if at.operand is at.stored else ():
        found = decays.refuted(run, line, length, at.stored, share, until)
        if found is not None:
            return replace(known, wrong_at=found.at, wrong_by=found.by, predicted=found.predicted, reason=None,
                           argument=ARGUMENT_CLOSED, evaluation=said + EXACTLY_KEPT,
                           facts={"run": {"kept": [*found.kept]}})  # fmt: skip
    return known


def _run_askew(
    run: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome:
    """Refuted by a run with functions askew, token by token; else what is known."""
    tried = _askew(run, at) if computed.is_run(at) and at.stored.p <= computed.WIDEST else []
    for number, askew in enumerate(tried):
        own = until.part(1 / (len(tried) - number))
        ran = computed.run(askew.net, line, length, at, own, keeps=True, later=askew.later)
        if ran.wrong_at is not None:
            return askew.refuted(_refuted(known, ran))
    return known


def _crept_anyhow(
    net: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline
) -> OrbitOutcome | None:
    """The line many turns at once, in every order."""
    return _crept(net, line, length, StepErrors(net, Roundings(at), at.stored.u), until)


def _crept(
    net: Network,
    line: OrbitQuestion,
    length: int | None,
    errors: StepErrors,
    until: Deadline,
    later: Later | None = None,
) -> OrbitOutcome | None:
    """The line many turns at once; refuted where every run is wrong."""
    crept = crept_along(net, line, first_states(net, line, until), length, until, errors, later)
    if crept is None:
        return None
    return replace(outcome(crept), argument=ARGUMENT_CREPT, evaluation=None if crept.wrong_at is None else EVERY)


def _kept(
    askew: Askew, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome:
    """Refuted by the run that keeps every result exactly, followed in a tube; else what is known."""
    if at.operand is not at.stored:
        return known
    errors = StepErrors(askew.net, Roundings.of_factors(at.stored), at.stored.u)
    found = _crept(askew.net, line, length, errors, until, askew.later)
    if found is None or found.wrong_at is None:
        return known
    return replace(found, right_to=known.right_to, margin=known.margin, tightest=known.tightest,
                   evaluation=EXACTLY_KEPT)  # fmt: skip


def _boxed(
    net: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline
) -> OrbitOutcome | None:
    boxes = Boxes(net, line, at)
    if not boxes.can_run:
        return None
    followed = boxes.follow(length, until)
    facts: dict[str, object] | None = None if boxes.kept is None else {"boxes": boxes.kept}
    return replace(outcome(followed), argument=ARGUMENT_BOXES if length is None else ARGUMENT_BOX, facts=facts)


def _run(
    net: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome:
    """Refuted by the run that is wrong at the least length; else what is known, with how far runs are right."""
    wrong, right = None, list[str]()
    for found in computed.runs(net, line, length, at, until):
        if found.wrong_at is None:
            right.append(f"{'for ever' if found.repeats else f'up to length {found.steps}'} with {found.rule}")
        elif wrong is None or wrong.wrong_at is None or found.wrong_at < wrong.wrong_at:
            wrong = found
    if wrong is None or wrong.wrong_at is None:
        said = f"; single runs are right {' and '.join(right)}" if right else ""
        return replace(known, reason=f"{known.reason}{said}")
    return _refuted(known, wrong)


def _against(
    net: Network,
    run: Network,
    line: OrbitQuestion,
    length: int | None,
    at: RoundedArithmetic,
    until: Deadline,
    known: OrbitOutcome,
) -> OrbitOutcome:
    """Refuted by the first run against an answer that is wrong; else what is known."""
    from verify.tasks.recurrent import adverse  # loads torch, for its derivatives

    for found in adverse.runs(net, run, line, length, at, known.right_to or 0, until):
        if found.wrong_at is not None:
            return _refuted(known, found)
    return known


def in_fractions(
    model: AnyModel,
    line: OrbitQuestion,
    length: int | None,
    at: RoundedArithmetic,
    budget: float | Budget,
    known: OrbitOutcome,
) -> OrbitOutcome:
    """Refuted by the run in real arithmetic, where all its states are numbers of the format; else what is known."""
    found = exact.run(model, line, length, budget)
    if found.wrong_at is None or not representable.is_run_of(exact.Exact.of(model), found.wrong_at, at.stored):
        return known
    return replace(found, right_to=known.right_to, margin=known.margin, tightest=known.tightest, argument=ARGUMENT_RUN,
                   evaluation=EXACT)  # fmt: skip


def _refuted(known: OrbitOutcome, wrong: computed.ComputedRun) -> OrbitOutcome:
    by = None if wrong.margin is None or wrong.margin != wrong.margin else wrong.margin
    numbers = None if wrong.numbers is None else wrong.numbers()
    return replace(
        known, wrong_at=wrong.wrong_at, wrong_by=by, predicted=wrong.predicted, reason=None,
        argument=ARGUMENT_RUN, evaluation=wrong.rule, facts=None if numbers is None else {"run": numbers},
    )  # fmt: skip
