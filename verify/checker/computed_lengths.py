"""Lines of recurrent networks that creep, up to a length in a format, or wrong at one (docs/checker.md).

A length is wrong in every order, or in the run that keeps every result exactly and rounds factors of matrix products,
whose sigmoids may all be off by as much as they may.
"""

from dataclasses import replace

from flint import arb, ctx

from verify.checker import computed_turns, linear, rounded_lines
from verify.checker.computed_creeps import BITS, ComputedCreeps
from verify.checker.computed_decays import EVERY, wrong_after
from verify.checker.creeping import MOST_NUMBERS
from verify.checker.creeping_pieces import CreepingLine
from verify.checker.kept_runs import KEPT
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import PERIODS, due_of, positive_margin
from verify.checker.rounded import MOST_ENTRY, stored_network

SHARES = {  # of u, by which each sigmoid is high in a run
    "": arb(0), "each sigmoid low by a factor of 1 - 3u/2, ": arb(-1.5),
    "each sigmoid high by a factor of 1 + 15u/8, ": arb(1.875),
}  # fmt: skip


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line up to a length, or a length that is wrong: in another way where that says more, or by turns."""
    wrong = c["counterexample"] if c["verdict"] == "REFUTED" else None
    said_by, is_linear = wrong and wrong.get("evaluation"), said["model"] in linear.KINDS
    n = wrong["length"] if wrong else c["length"]
    is_short = said_by is None and (is_linear or type(n) is not int or n <= MOST_ENTRY)
    if is_short or is_linear and said_by == EVERY:
        try:
            (computed_turns if is_linear and wrong else rounded_lines).decide(weights, c, said)
        except Refusal as refusal:
            if refusal.exit_code != NOT_CHECKABLE or not _is_by_turns(weights, c, said):
                raise
    else:
        by_turns(weights, c, said)


def _is_by_turns(weights: bytes, c: LineCertificate, said: LineParameters) -> bool:
    """Whether it holds. Raises: Refusal where it does not, and not where it is not checkable."""
    try:
        by_turns(weights, c, said)
    except Refusal as refusal:
        if refusal.exit_code != NOT_CHECKABLE:
            raise
        return False
    return True


def by_turns(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line, or a length that is wrong in every order or in the run that keeps every result."""
    require(said["task"] in PERIODS, "parameters: the task does not go on for many turns", NOT_CHECKABLE)
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said)
        require(net.size <= MOST_NUMBERS, f"{net.size} numbers of state are too many for turns", NOT_CHECKABLE)
        due, period, length = due_of(len(net.b), said), said.get("modulus", 1), c["length"]
        if c["verdict"] == "PROVED":
            assert length != "all"
            require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
            CreepingLine(ComputedCreeps(net, fmt, due, positive_margin(c)), period).right_to(length)
            return
        n, margin, wrong = wrong_after(c, said, len(net.b))
        said_by, run = c["counterexample"].get("evaluation", EVERY), ComputedCreeps(net, fmt, due, arb(0))
        every = CreepingLine(run, period)
        if said_by != EVERY:
            high = SHARES[said_by.removesuffix(KEPT)] * fmt.u
            run = ComputedCreeps(replace(net, sigmoids=1 + high), fmt.of_kept_run, due, arb(0))
        CreepingLine(run, period).wrong_at(n, due(n) or 0, margin, wrong)
        if c["counterexample"].get("is_first", True):
            every.right_to(n - 1)


def is_named(evaluation: str) -> bool:
    """Whether it is one that is looked at here."""
    return evaluation == EVERY or evaluation in {prefix + KEPT for prefix in SHARES}
