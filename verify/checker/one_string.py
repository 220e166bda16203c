"""Strings over several tokens: one wrong string, and all of them up to a length, each run (docs/checker.md)."""

from __future__ import annotations

from collections.abc import Callable

from flint import arb, ctx

from verify.checker.followers import Way, way_of
from verify.checker.held import strings
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import positive_margin
from verify.checker.rounded import BITS as FEW_BITS
from verify.checker.rounded_lines import Gaps, TokenFollower, is_wrong

ARGUMENT = "one string, run in balls"  # which certificates come here; what is shown here rests on none of their words
EACH = "boxes round the states after each string"
MOST_TOKENS, MOST_STRINGS = 10_000, 60_000


def refuted(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks that a string is answered wrongly, and that all shorter ones are right if it is said to be the first."""
    with ctx.workprec(FEW_BITS):
        way, tokens, classes = way_of(weights, c, said)
        _refuted(way, RightClasses(said, tokens, classes), c, classes)


def _refuted(way: Way, due: RightClasses, c: LineCertificate, classes: int) -> None:
    case, margin = c["counterexample"], c["margin"]
    string, n = case["input"], case["length"]
    is_string = type(string) is list and len(string) == n > 0 and all(0 <= token < due.types for token in string)
    require(is_string and c.get("inputs_covered") == "1", "counterexample: is no string of the task")
    assert isinstance(string, list)
    require(n <= MOST_TOKENS, "counterexample: is too long to run", NOT_CHECKABLE)
    require(c["length"] == "all" or n <= c["length"], "counterexample: is longer than the lengths that are judged")
    right, first = due.after(string), int(due.m is not None)
    require(right is not None and case["expected"] == right + first, "counterexample: another answer is expected")
    predicted = case["predicted"]
    may_be_open = "evaluation" in case  # in which runs differ
    require(predicted is not None or may_be_open, "counterexample: the class that is predicted is not said")
    wrong = -1 if predicted is None else predicted - first
    is_other = predicted is None or 0 <= wrong < classes and wrong != right
    require(is_other, "counterexample: predicts no other class")
    require(margin <= 0 and 0 <= c["right_to"] < n, "margin: is above zero, or right_to is no shorter length")
    way(lambda follow: is_wrong(_at_end(follow, string), right or 0, margin, wrong, f"length {n}"))
    is_first = case.get("is_first", False)
    is_said = is_first or "is_first" not in case  # that it is not the first is never said
    require(is_said and (not is_first or c["right_to"] == n - 1), "is_first: shorter strings may be wrong")
    if is_first:
        way(lambda follow: all_right(follow, due, n - 1, arb(0)))


class RightClasses:
    """How often the last token of a string was read, or its class modulo m."""

    def __init__(self, said: LineParameters, tokens: int, classes: int) -> None:
        self.types, self.C, self.m = said["types"], said["max_count"], said.get("modulus")
        require((self.m is not None) == (said["task"] == "selective-modular"), "modulus: is of the other task")
        require(self.types == tokens, f"types: {self.types!r} of {tokens} tokens")
        is_task = self.C >= 1 and classes == (self.C + 1 if self.m is None else self.m)
        require(is_task, f"parameters: no task with {classes} classes")

    @classmethod
    def of_all(cls, c: LineCertificate, said: LineParameters, tokens: int, classes: int) -> RightClasses:
        """Those of a proof on all strings, whose certificate says how many they are."""
        due, length = cls(said, tokens, classes), c["length"]
        covered = "infinite" if length == "all" else strings(due.types, length)
        require(c.get("inputs_covered") == covered, f"inputs_covered: must be {covered}")
        return due

    def after(self, string: list[int]) -> int | None:
        """The right class after a string, None where it is not judged."""
        return self.of(sum(token == string[-1] for token in string))

    def of(self, count: int) -> int | None:
        """The right class after a token that was read so often."""
        return None if count > self.C else count if self.m is None else (count - 1) % self.m

    def is_over(self, counts: tuple[int, ...]) -> bool:
        """Whether no answer is judged any more."""
        return bool(min(counts) >= self.C)


def _at_end(follow: TokenFollower, string: list[int]) -> Callable[[int], Gaps]:
    """Between which numbers differences of logits are after a string."""
    for token in string:
        gaps, follow = follow(token)
    return gaps


def all_right(first: TokenFollower, due: RightClasses, length: int, margin: arb) -> None:
    """Every judged prefix of every string of so many tokens has the margin, and more than 0."""
    open_ones, met = [(first, (0,) * due.types, 0)], 0
    while open_ones:
        follow, counts, n = open_ones.pop()
        for token in range(due.types if n < length and not due.is_over(counts) else 0):
            after = (*counts[:token], counts[token] + 1, *counts[token + 1 :])
            met += 1
            require(met <= MOST_STRINGS, "more strings are judged than are run", NOT_CHECKABLE)
            gaps, later = follow(token)
            right, where = due.of(after[token]), f"length {n + 1}, counts {after}"
            for j, (low, high) in gaps(right).items() if right is not None else ():
                sentence = f"{where}: class {right} does not win over {j} by {margin}"
                require(not high < margin and not high <= 0, sentence)
                require(bool(low >= margin and low > 0), f"{sentence}, or not shown", NOT_CHECKABLE)
            open_ones.append((later, after, n + 1))


def proved(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks that all strings up to a length are right."""
    length, margin = c["length"], positive_margin(c)
    require(length != "all", "length: strings of every length are not run", NOT_CHECKABLE)
    assert length != "all"
    with ctx.workprec(FEW_BITS):
        way, tokens, classes = way_of(weights, c, said)
        due = RightClasses.of_all(c, said, tokens, classes)
        way(lambda follow: all_right(follow, due, length, margin))
