"""REFUTED on strings over several tokens in real arithmetic: one string is run in balls, and all shorter ones."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from flint import arb, ctx

from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.recurrent import BITS, StoredNetwork, Vector, margins, network, point, predicts, step

ARGUMENT = "one string, run in balls"  # which certificates come here; what is shown here rests on none of their words
MOST_TOKENS, MOST_STRINGS = 10_000, 4096


def refuted(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks that a string is answered wrongly, and that all shorter ones are right if it is said to be the first."""
    net = network(weights, said)
    due = RightClasses(said, len(net.tokens), len(net.b))
    case, margin, string, n = (
        c["counterexample"],
        c["margin"],
        c["counterexample"]["input"],
        c["counterexample"]["length"],
    )
    is_string = type(string) is list and len(string) == n > 0 and all(0 <= token < due.types for token in string)
    require(is_string and c.get("inputs_covered") == "1", "counterexample: is no string of the task")
    require(n <= MOST_TOKENS, "counterexample: is too long to run", NOT_CHECKABLE)
    require(c["length"] == "all" or n <= c["length"], "counterexample: is longer than the lengths that are judged")
    right, first = due.after(string), int(due.m is not None)
    require(right is not None and case["expected"] == right + first, "counterexample: another answer is expected")
    wrong = case["predicted"] - first
    require(0 <= wrong < len(net.b) and wrong != right, "counterexample: predicts no other class")
    require(margin <= 0 and 0 <= c["right_to"] < n, "margin: is above zero, or right_to is no shorter length")
    rows = [(*net.V.tolist()[j], net.b[j]) for j in range(len(net.b))]
    for bits in BITS:
        with ctx.workprec(bits):
            *_, state = states(net, string)
            gaps = dict(zip((j for j in range(len(net.b)) if j != right), _gaps(net, state, right or 0), strict=True))
            require(not gaps[wrong] > arb(margin), f"counterexample: the margin is {gaps[wrong]}")
            if gaps[wrong] <= arb(margin):
                predicts(gaps, wrong, rows)
                break
    else:
        raise Refusal("counterexample: the margin is not known well enough", NOT_CHECKABLE)
    is_first = case.get("is_first", False)
    is_said = is_first or "is_first" not in case  # that it is not the first is never said
    require(is_said and (not is_first or c["right_to"] == n - 1), "is_first: shorter strings may be wrong")
    if is_first:
        require(due.types ** (n - 1) <= MOST_STRINGS, "is_first: too many strings are shorter", NOT_CHECKABLE)
        with ctx.workprec(BITS[0]):
            for shorter in product(range(due.types), repeat=n - 1):
                _all_right(net, due, shorter)


class RightClasses:
    """How often the last token of a string was read, or its class modulo m."""

    def __init__(self, said: dict[str, Any], tokens: int, classes: int) -> None:
        self.types, self.C, self.m = said["types"], said["max_count"], said.get("modulus")
        require((self.m is not None) == (said["task"] == "selective-modular"), "modulus: is of the other task")
        require(1 < self.types <= tokens, f"types: {self.types!r} of {tokens} tokens")
        is_task = 1 <= self.C < classes if self.m is None else 2 <= self.m <= classes
        require(is_task, f"parameters: no task with {classes} classes")

    def after(self, string: Any) -> int | None:
        """The right class after a string, None where it is not judged."""
        count = sum(token == string[-1] for token in string)
        return None if count > self.C else count if self.m is None else (count - 1) % self.m


def states(net: StoredNetwork, string: Any) -> Iterator[Vector]:
    """The state after each token."""
    state = [arb(0)] * net.size
    for token in string:
        state = step(net.reading(token), point(state)).value
        yield state


def _gaps(net: StoredNetwork, state: Vector, right: int) -> list[arb]:
    return margins(net, state[net.read : net.read + net.hidden], right)


def _all_right(net: StoredNetwork, due: RightClasses, string: Any) -> None:
    """Each judged prefix of the string is right."""
    for n, state in enumerate(states(net, string), 1):
        right = due.after(string[:n])
        found = [] if right is None else _gaps(net, state, right)
        require(not any(gap <= 0 for gap in found), f"is_first: {string[:n]} is wrong, and shorter")
        require(all(gap > 0 for gap in found), "is_first: a margin is not known well enough", NOT_CHECKABLE)
