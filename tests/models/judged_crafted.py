"""What is said of crafted networks, in real arithmetic and in formats, and all that is known against it."""

from __future__ import annotations

import mpmath
import torch
from mpmath import isfinite, mp
from oracles import exact_lines, slow_units
from oracles.slow_units import Cell

from constructions.recurrent.linear import RotationModel
from tests.clocks import looks
from verify.arithmetic import contract
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.checker.inductive import check as checked
from verify.checker.reading import FAILS, Refusal
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import rounded
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.task import Homogeneous

MANY, LOOKS = 500, 2000  # networks, and looks at the clock for each: some 3 CPU s
RUN, LONGEST_RUN = 1000, 20_000  # tokens of torch's run: all, and where more are said to be right or wrong
PREFIXES = {"": None, rounded.SAID_LOW: rounded.LOW, rounded.SAID_HIGH: rounded.HIGH, rounded.SAID_NEAR: 0.0,
            rounded.SAID_KEEPS_LOW: rounded.LOW, rounded.SAID_KEEPS_HIGH: rounded.HIGH}  # fmt: skip
SHARE_OF = {said + contract.EXACTLY_KEPT: share for said, share in PREFIXES.items()}


def decided(case, name, number=LOOKS):
    """The verdict in real arithmetic or a format, after so many looks."""
    reading = None if name == "real" else Rounded(FORMATS[name])
    return certify(Homogeneous(case.model, case.task, None), reading, Effort(budget=looks(number)))


def first_margins(case, n):
    """The margins of the first tokens in many digits, where the cell is one that the closed form reads."""
    if not hasattr(case.model.cell, "weight_ih_l0") and not hasattr(case.model.cell, "A"):
        return []
    with mpmath.mp.workdps(60):
        cell = Cell(case.model)
        state, found = cell.start(), []
        for right in case.task.answers((0,) * n):
            state = cell.step(state)
            found.append(cell.margin(cell.shown(state), right))
        return found


def faults_in_real(case, found, wrong):
    """What is not true of a verdict, where the first wrong length is known; a run knows none beyond LONGEST."""
    if found.verdict is Verdict.REFUTED:
        n = found.counterexample["length"]
        is_beyond = case.by_run and wrong is None and n > exact_lines.LONGEST
        yield n != wrong and not is_beyond, f"wrong first at {wrong}, and {n} is said"
        is_first = found.counterexample.get("is_first", True) and found.extra.get("right_to", n - 1) == n - 1
        yield found.margin > 0 or not is_first, "no first, where it is said to be"
    elif found.verdict is Verdict.PROVED:
        yield wrong is not None, f"wrong at {wrong}, and proved"
        margins = first_margins(case, 40 if case.task.M is None else case.task.M)
        yield any(found.margin > x for x in margins), "its margin is too large"
    else:
        yield wrong is not None and found.extra["right_to"] >= wrong, "said to be right where it is wrong"


def asked(case):
    """What is due after t tokens, the tokens of a turn, and where the line ends."""
    if case.task.m is not None:
        return lambda t, m=case.task.m: (t - 1) % m, case.task.m, 10**24
    if case.task.M is not None:
        return lambda t: t, case.task.M, case.task.M
    return lambda t: int(t == 1), 1, 10**24


def worth_running(found):
    """How many tokens say most of a verdict: RUN, or up to what it says of a length, if that is not too far."""
    said = {Verdict.REFUTED: lambda: found.counterexample["length"], Verdict.PROVED: lambda: LONGEST_RUN}
    return min(LONGEST_RUN, max(RUN, said.get(found.verdict, lambda: found.extra["right_to"] or 0)()))


def margins_in_torch(case, name, tokens=RUN):
    """The margins of the first answers, as torch runs the module in the format."""
    due, _, last = asked(case)
    n = min(tokens, last)
    logits = slow_units.in_format(case.model, FORMATS[name]).to(getattr(torch, name))(
        torch.zeros(1, n, dtype=torch.long)
    )
    right = torch.tensor([[due(t)] for t in range(1, n + 1)])
    logits = logits[0].double()
    best = logits.scatter(1, right, -torch.inf).max(1).values
    return (logits.gather(1, right)[:, 0] - best).tolist()


def kept(case, name, share=None):
    """The cell in the run that keeps every result exactly, where that has a closed form."""
    if isinstance(case.model, RotationModel):
        return None
    with mp.workdps(slow_units.DIGITS):
        cell = slow_units.KeptCell(case.model, FORMATS[name], share)
    return cell if cell.is_alone() else None


def faults(case, name, found):
    """What is not true of a verdict, by two runs that the reading allows, and the run that it names."""
    due, turn, most = asked(case)
    margins, cell = margins_in_torch(case, name, worth_running(found)), kept(case, name)
    wrong = [next((t for t, x in enumerate(margins, 1) if not x > 0), None)]
    wrong += [] if cell is None else [slow_units.first_wrong(cell, due, turn, most)]
    wrong = [t for t in wrong if t is not None]
    if found.verdict is Verdict.PROVED:
        yield bool(wrong), f"proved, and runs are wrong at {wrong}"
        yield found.margin > min(margins), "its margin is too large"
        return
    right = found.extra["right_to"] or 0
    yield any(t <= right for t in wrong), f"right to {right}, and runs are wrong at {wrong}"
    if found.verdict is not Verdict.REFUTED:
        return
    n, said = found.counterexample["length"], found.counterexample.get("evaluation", contract.EVERY)
    yield not right < n or found.counterexample["is_first"] is not (right == n - 1), "not first, or first and not said"
    if said == contract.EVERY:
        yield n <= len(margins) and margins[n - 1] > 0, f"torch is right at {n}"
        yield cell is not None and slow_units.margin_after(cell, n, due, turn) > 0, f"a run is right at {n}"
    if said in SHARE_OF and cell is not None:
        margin = slow_units.margin_after(kept(case, name, SHARE_OF[said]), n, due, turn)
        yield isfinite(margin) and margin > 0, f"the run that is named is right at {n}"


def refused_by_checker(case, found):
    """Whether the checker, which shares nothing with the proofs, says that the certificate does not hold."""
    return said_by_checker(case, found)[0] == FAILS


def said_by_checker(case, found):
    """The exit code of `verify check` of this certificate, and why where that is not 0."""
    weights = bytes_of(case.model)
    try:
        checked(weights, found.about(weights).to_json().encode())
    except Refusal as refusal:
        return refusal.exit_code, str(refusal)
    return 0, None
