"""Lines of recurrent networks that creep, up to a length in a format, or wrong at one."""

from functools import partial

from flint import arb, ctx

from verify.checker import computed_turns, linear, rounded_lines
from verify.checker.arguments import first_shown
from verify.checker.computed_creeps import BITS, ComputedCreeps
from verify.checker.creeping import MOST_NUMBERS
from verify.checker.creeping_pieces import CreepingLine
from verify.checker.linear import wrong_after
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import PERIODS, due_of, positive_margin
from verify.checker.rounded import SHORT, stored_network


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line up to a length, or a length that is wrong: token by token and by turns, what says more first."""
    wrong, is_linear = c["verdict"] == "REFUTED", said["model"] in linear.KINDS
    n = c["counterexample"]["length"] if wrong else c["length"]
    ways = [(computed_turns if is_linear and wrong else rounded_lines).decide, by_turns]
    ways = ways[:: 1 if is_linear or type(n) is not int or n <= SHORT else -1]
    first_shown(partial(way, weights, c, said) for way in ways)


def by_turns(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line, or a length that is wrong in every order."""
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
        n, margin, wrong = wrong_after(c, due, said)
        line = partial(CreepingLine, ComputedCreeps(net, fmt, due, arb(0)), period)
        line().wrong_at(n, due(n) or 0, margin, wrong)
        if c["counterexample"].get("is_first", True):
            line().right_to(n - 1)
