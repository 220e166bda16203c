"""Recurrent cells on all strings up to a length, or on one that is wrong: their step followed from token to token.

A cell is a user's, with its first state and an automaton in the certificate, or a network with layers round its cells
on a task, which begins at the state 0 (docs/checker.md).
"""

from collections.abc import Callable
from math import isfinite

from flint import arb, ctx

from verify.checker import captured
from verify.checker.any_order import READING
from verify.checker.captured import CapturedStep
from verify.checker.cell_tasks import OWN, Task, of_automaton, of_network
from verify.checker.formats import BinaryFormat, named, scaled
from verify.checker.graphs import TracedGraph
from verify.checker.reading import NOT_CHECKABLE, Refusal, as_text, require
from verify.checker.records import CellCertificate
from verify.checker.rounded_lines import TokenFollower, is_wrong
from verify.checker.statement import certificate_of, compare, verdict_of
from verify.checker.table import IN_DTYPE, walk

BITS = (128, 512, 2048, 8192)
MOST_STEPS = 20_000  # tokens of all strings together


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("module", weights, certificate, CellCertificate)
    return _checked(weights, c, "cell")


def stacked(weights: bytes, c: CellCertificate) -> tuple[str, list[str]]:
    """The same of a network on a task."""
    return _checked(weights, c, "network")


def _checked(weights: bytes, c: CellCertificate, kind: str) -> tuple[str, list[str]]:
    verdict, reading = verdict_of(c), as_text(c.get("reading"))
    is_known = reading in map(as_text, ("real", READING)) and c.get("method") == "certified"
    require(is_known, f"the reading {reading[:80]} is not checked", NOT_CHECKABLE)
    fmt = None if reading == as_text("real") else named(c["parameters"])
    require("program" in c, "program: is missing; the step was not saved", NOT_CHECKABLE)
    trusted = walk(c, f"{kind}, {verdict.lower()}{IN_DTYPE * (fmt is not None)}")
    program, is_own = c["program"], kind == "cell"
    graph, numbers = captured.of_program(weights, program, OWN if is_own else ())
    classes = CapturedStep(graph, numbers, BITS[0]).classes
    task = of_automaton(program, classes) if is_own else of_network(c["parameters"], classes)
    start = _numbers(program["start"]) if is_own else [0.0] * numbers
    _check_parameters(c, graph, numbers, classes, len(task.tokens), kind)
    cell = FollowedCell(graph, numbers, start, task, fmt)
    if verdict == "PROVED":
        margin, length = c["margin"], c["length"]
        require(length != "all", "sets of states that every token maps into each other are not checked", NOT_CHECKABLE)
        assert length != "all"
        require(margin is None or margin > 0, "margin: is not above zero")
        compare(c, {"inputs_covered": cell.covered(length), "counterexample": None})
        cell.all_right(length, arb(margin or 0.0) / (1 if fmt is None else 2))
    else:
        compare(c, {"inputs_covered": "1"})
        cell.wrong(c)
    return verdict, [*trusted, *["that the automaton says what is right"] * is_own]


def _check_parameters(
    c: CellCertificate, graph: TracedGraph, numbers: int, classes: int, tokens: int, kind: str
) -> None:
    """What the graph's sizes are said to be, and the length."""
    length = c["length"]
    require(length == "all" or type(length) is int and length > 0, f"length: {length!r} is none")
    compare(c["parameters"], {"length": length})
    sizes = {"tokens": tokens, "state": numbers, "classes": classes, "stored_numbers": graph.numbers}
    compare(c["parameters"], sizes if kind == "cell" else {})
    compare(c["graph"], {"operations": graph.operations})
    require(len(c["graph"]["sha256"]) == 1, "graph: has one digest")


def _numbers(found: object) -> list[float]:
    """The first state."""
    if not isinstance(found, list) or not all(type(x) is float and isfinite(x) for x in found):
        raise Refusal("program: the first state is no list of numbers")
    return [*found]


class FollowedCell:
    """A cell from its first state on, in real arithmetic or in a format, and what is right."""

    def __init__(
        self, graph: TracedGraph, numbers: int, start: list[float], task: Task, fmt: BinaryFormat | None
    ) -> None:
        require(len(start) == numbers, "program: the first state has other numbers")
        is_there = fmt is None or all(fmt.closest(*scaled(x)) == x for x in start)
        require(is_there, "program: the first state has numbers that are none of the format", NOT_CHECKABLE)
        self.graph, self.numbers, self.start, self.task, self.fmt = graph, numbers, start, task, fmt
        self.met = 0

    def covered(self, length: int) -> str:
        """How many strings of one token to so many there are."""
        K = len(self.task.tokens)
        require(length * K.bit_length() < MOST_STEPS, "length: more strings than are followed", NOT_CHECKABLE)
        return str(length if K == 1 else (K ** (length + 1) - K) // (K - 1))

    def shown(self, decide: Callable[[TokenFollower], None], *, as_run: bool = False) -> None:
        """Decides in balls of more and more bits; in a format in boxes, and with errors that are kept."""
        is_exact = self.fmt is None or as_run
        ways = [(bits, False) for bits in BITS] if is_exact else [(BITS[0], False), (BITS[0], True)]
        for bits, are_kept in ways:
            try:
                with ctx.workprec(bits):
                    step = CapturedStep(self.graph, self.numbers, bits, self.fmt, as_run=as_run, are_kept=are_kept)
                    decide(step.follower(step.start(self.start)))
                return
            except Refusal as refusal:
                if refusal.exit_code != NOT_CHECKABLE or (bits, are_kept) == ways[-1]:
                    raise

    def all_right(self, length: int, margin: arb) -> None:
        """Every judged string of up to so many tokens has the margin, and more than 0."""
        self.shown(lambda follow: self._all_right(follow, length, margin))

    def _all_right(self, follow: TokenFollower, length: int, margin: arb) -> None:
        left, met = [(follow, self.task.start, 0)], 0
        while left:
            now, place, n = left.pop()
            for token in self.task.tokens if n < length else ():
                met += 1
                require(met <= MOST_STEPS, "more strings than are followed", NOT_CHECKABLE)
                gaps, later = now(token)
                there = self.task.after(place, token)
                right = self.task.due(there)
                for low, high in gaps(right).values() if right is not None else ():
                    sentence = f"margin: of a string of {n + 1} tokens that ends in {token} is not {margin}"
                    require(not high < margin and not high <= 0, sentence)
                    require(bool(low >= margin and low > 0), f"{sentence}, or not shown", NOT_CHECKABLE)
                left.append((later, there, n + 1))

    def wrong(self, c: CellCertificate) -> None:
        """The string of a counterexample is wrong, and all shorter ones are right if it is said to be the first."""
        case, margin = c["counterexample"], c["margin"]
        string, n = case["input"], case["length"]
        require(isinstance(string, list), "a string that is not spelled out is not run", NOT_CHECKABLE)
        assert isinstance(string, list)
        require(0 < n == len(string) and {*string} <= {*self.task.tokens}, "counterexample: is no string of the task")
        require(n <= MOST_STEPS, "counterexample: is too long to run", NOT_CHECKABLE)
        require(c["length"] == "all" or n <= c["length"], "counterexample: is longer than the lengths that are judged")
        place = self.task.start
        for token in string:
            place = self.task.after(place, token)
        right, predicted = self.task.due(place), case["predicted"]
        require(right is not None and case["expected"] == right, "counterexample: another answer is expected")
        wrong = -1 if predicted is None else predicted
        require(wrong != right and margin is not None and margin <= 0, "counterexample: is right")
        is_first = case.get("is_first", False)
        require(is_first or "is_first" not in case, "is_first: shorter strings may be wrong")
        require("right_to" not in c or 0 <= c["right_to"] < n, "right_to: is no shorter length")
        require(not is_first or c.get("right_to") == n - 1, "is_first: shorter strings may be wrong")

        def at_end(follow: TokenFollower) -> None:
            for token in string:
                gaps, follow = follow(token)
            is_wrong(gaps, right or 0, margin or 0.0, wrong, f"length {n}")

        self.shown(at_end, as_run=self.fmt is not None)
        if is_first:
            self.all_right(n - 1, arb(0))
