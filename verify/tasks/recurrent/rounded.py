"""One line in a format, in any order: what ellipsoids leave open, by boxes of computed numbers and by single runs."""

from __future__ import annotations

from dataclasses import replace

from verify.arithmetic.any_order import RoundedArithmetic
from verify.frame.clock import Budget, Deadline
from verify.tasks.recurrent import computed
from verify.tasks.recurrent.chain import Rules
from verify.tasks.recurrent.grid import Boxes
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion, finite, for_ever, outcome

ARGUMENT_BOXES = "boxes round all computed states, and one that each turn maps into itself"
ARGUMENT_BOX = "boxes round all computed states of every step"
ARGUMENT_RUN = "one run of those that the reading allows"
ELLIPSOIDS, BOXES = 2 / 5, 1 / 2  # shares of the time, of what is left each


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
    boxed = _boxed(net, line, length, at, until.part(BOXES))
    if boxed is not None and (boxed.wrong_at is not None or boxed.right_to in (None, length)):
        return boxed
    best = found if boxed is None or found.right_to >= (boxed.right_to or 0) else boxed
    return _run(run, line, length, at, until, best)


def _boxed(
    net: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline
) -> OrbitOutcome | None:
    boxes = Boxes(net, line, at)
    if not boxes.can_run:
        return None
    followed = boxes.follow(length, until)
    return replace(outcome(followed), argument=ARGUMENT_BOXES if length is None else ARGUMENT_BOX)


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
    by = None if wrong.margin is None or wrong.margin != wrong.margin else wrong.margin
    return replace(
        known, wrong_at=wrong.wrong_at, wrong_by=by, predicted=wrong.predicted, reason=None,
        argument=ARGUMENT_RUN, evaluation=wrong.rule,
    )  # fmt: skip
