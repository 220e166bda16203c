"""One rotation by a stored angle in a format: cosine and sine are computed, so that each run turns by its own angle.

The cell computes Re h' = c Re h - s Im h + 1 and Im h' = s Re h + c Im h, with c and s within 2 units in the last
place of cos omega and sin omega. Where c and s are numbers of the format, a run of the linear network whose matrix has
the rows (c, -s) and (s, c) is one of these runs, and so is the one that keeps each state as the real numbers it is, so
that only the readout's factors are rounded. What is wrong there is wrong here.

What holds of every run is found in tubes of the linear network with the numbers C and S nearest to cos omega and sin
omega, widened by what follows.

Lemma. Let c be what a product of a run reads as cos omega, and y the form of a number x of the state that it reads.
Then |c y - C x| <= LOOSE (1 + |x|) with LOOSE = 12 u + 8 tiny, if u <= 2^-8. Proof: 2 units in the last place of a
number v are at most 4 u |v|, and a result may be rounded once when it is stored and once when it is read, so that c is
off cos omega by at most 6.1 u |cos omega| + 2 tiny, C by u |cos omega| + tiny, and y off x by u |x| + tiny. With |C| at
most 1 + u the sum is at most (7.1 + 1.1) u |x| + 4 tiny (1 + |x|). The rest, 3 u |x|, is more than what sums round of
it: at most three roundings of a term that is off by 9 u |x|.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from flint import acb, arb, ctx

from constructions.recurrent.arrays import LINEAR, of_one_token
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.contract import EVERY
from verify.arithmetic.exact_reals import float_below
from verify.arithmetic.formats import Format
from verify.arithmetic.rounding import rounded
from verify.frame.clock import Budget, Deadline
from verify.tasks.recurrent import computed, slow
from verify.tasks.recurrent.enclosures import Roundings
from verify.tasks.recurrent.kinds import stored
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.off import StepErrors
from verify.tasks.recurrent.proof import OrbitOutcome, OrbitQuestion, outcome

if TYPE_CHECKING:
    from verify.tasks.recurrent.kinds import AnyModel

LEAST_BITS = 8
MOST_TRIED = 3  # angles by which runs turn
EVERY_SHARE = 2 / 5  # of the time, for what holds of all runs
BITS = 256
ARGUMENT = "tubes round polynomials of the number of turns, widened by what cosine, sine and rounding add"
TURNED = "cosine {!r} and sine {!r}, within 2 units in the last place, "
KEPT = "every state kept exactly, and factors of the readout rounded"


def is_format(at: RoundedArithmetic) -> bool:
    """Whether this file judges a rotation in that arithmetic: one format for all, of enough bits."""
    return computed.is_run(at) and at.stored.p >= LEAST_BITS


def decided(
    model: AnyModel, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, budget: float | Budget
) -> OrbitOutcome:
    """Right in every order after each of 1..length tokens, or at every length (None)? Answers repeat at each turn."""
    until, fmt = Budget.of(budget).deadline(), at.stored
    net = _network(model, fmt, *_nearest(model, fmt))
    known = _crept(net, line, length, _errors(net, at), until.part(EVERY_SHARE))
    if known.wrong_at is not None or (length is not None and (known.right_to or 0) >= length):
        return replace(known, evaluation=None if known.wrong_at is None else EVERY)
    for c, s in _turning(model, fmt, line.period):
        wrong = _wrong_run(_network(model, fmt, c, s), line, length, at, until, known)
        if wrong is not None:
            return replace(wrong, evaluation=TURNED.format(c, s) + str(wrong.evaluation))
    return known


def _errors(net: Network, at: RoundedArithmetic) -> StepErrors:
    """How far any run may be from the network whose matrix has the nearest numbers: the lemma above."""
    fmt = at.stored
    return StepErrors(net, Roundings(at), fmt.u, loose=12 * fmt.u + 8 * fmt.tiny)


def _crept(net: Network, line: OrbitQuestion, length: int | None, errors: StepErrors, until: Deadline) -> OrbitOutcome:
    """The line turn by turn in a tube, and many turns at once."""
    k = line.period
    steps = None if length is None else max(length, k + 2)  # a tube begins where a whole turn is asked
    found = slow.creep(net, line, k, 0, steps, until, errors)
    assert found is not None
    return replace(outcome(slow.up_to(length, found)), argument=ARGUMENT)


def _wrong_run(
    net: Network, line: OrbitQuestion, length: int | None, at: RoundedArithmetic, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome | None:
    """What a run of a linear network is wrong at: one that keeps its states, or one token by token."""
    errors = StepErrors(net, Roundings.of_factors(at.stored), at.stored.u, keeps_steps=True)
    found = _crept(net, line, length, errors, until.part(1 / 2))
    if found.wrong_at is not None:
        return replace(found, right_to=known.right_to, margin=known.margin, tightest=known.tightest, evaluation=KEPT)
    ran = computed.run(net, line, length, at, until.part(1 / 2))
    if ran.wrong_at is None:
        return None
    by = None if ran.margin is None or ran.margin != ran.margin else ran.margin
    return replace(
        known, wrong_at=ran.wrong_at, wrong_by=by, predicted=ran.predicted, reason=None, evaluation=ran.rule
    )  # fmt: skip


def _angle(model: AnyModel, fmt: Format) -> arb:
    """omega as the format stores it."""
    return arb(float(rounded(stored(model)["cell.omega"][:1], fmt)[0]))


def _nearest(model: AnyModel, fmt: Format) -> tuple[float, float]:
    """Numbers of the format about nearest to cos omega and sin omega."""
    with ctx.workprec(BITS):
        omega = _angle(model, fmt)
        c, s = rounded(np.array([float(omega.cos().mid()), float(omega.sin().mid())]), fmt).tolist()
    return c, s


def _turning(model: AnyModel, fmt: Format, m: int) -> list[tuple[float, float]]:
    """Numbers of the format that cosine and sine may be computed as: those that turn furthest off first."""
    with ctx.workprec(BITS):
        omega = _angle(model, fmt)
        pairs = list(product(_candidates(omega.cos(), fmt), _candidates(omega.sin(), fmt)))
        pairs.sort(key=lambda pair: -abs(_off_turns(pair, m)))
    return pairs[:MOST_TRIED]


def _off_turns(pair: tuple[float, float], m: int) -> float:
    """By which part of a circle m turns by such an angle miss whole circles."""
    circles = m * acb(*pair).arg() / (2 * arb.pi())
    return float(circles - (circles + arb(0.5)).mid().floor())


def _candidates(value: arb, fmt: Format) -> list[float]:
    """Numbers of the format that are within 2 units in the last place of a value."""
    least = abs(value).lower()
    if not least > fmt.tiny:
        return [float(rounded(np.array(float(value.mid())), fmt))]
    unit = math.ldexp(1.0, math.frexp(float_below(least))[1] - fmt.p)
    near = float(rounded(np.array(float(value.mid())), fmt))
    tried = [near + i * unit for i in (-2, -1, 0, 1, 2)]
    return [x for x in tried if float(rounded(np.array(x), fmt)) == x and abs(arb(x) - value) <= 2 * arb(unit)]


def _network(model: AnyModel, fmt: Format, c: float, s: float) -> Network:
    """h' = A h + (1, 0) with the rows (c, -s) and (s, c) of A, and the model's readout."""
    cell, numbers = {"A": np.array([[c, -s], [s, c]]), "B": np.array([1.0, 0.0])}, stored(model)
    turning = of_one_token(LINEAR, "s4", cell, numbers["readout.weight"], numbers["readout.bias"], "float64")
    return Network.of_linear(turning).rounded(fmt)
