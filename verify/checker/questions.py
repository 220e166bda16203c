"""What a certificate about a module says is run, on which inputs, with which answers: docs/checker.md."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice, product
from typing import NamedTuple

from flint import arb

from verify.checker.arrays import Array, Open
from verify.checker.graphs import Follower, TracedGraph, read_graph
from verify.checker.reading import NOT_CHECKABLE, Refusal, Tensors, as_text, require, whole

MOST_INPUTS = 1 << 18  # that are followed one by one
Tokens = tuple[int, ...]


class InputsPart(NamedTuple):
    """Inputs of one length in order, where their answers are read, and the right ones where they are listed."""

    graph: TracedGraph
    sets: list[list[int]] | None
    rows: list[Tokens]
    positions: list[int]

    @property
    def inputs(self) -> Iterator[Tokens]:
        return iter(self.rows) if self.sets is None else product(*self.sets)

    @property
    def size(self) -> int:
        size = len(self.rows)
        if self.sets is not None:
            size = 1
            for tokens in self.sets:
                size *= len(tokens)
        return size


class Answered(NamedTuple):
    """An input, the classes that are right, the balls of its logits at each position, and how far each is behind."""

    tokens: Tokens
    due: list[int]
    logits: list[dict[int, arb]]
    gaps: list[arb]

    @classmethod
    def of(cls, tokens: Tokens, due: list[int], logits: list[dict[int, arb]]) -> "Answered":
        gaps = [at[y] - x for at, y in zip(logits, due, strict=True) for c, x in at.items() if c != y]
        return cls(tokens, due, logits, gaps)


Decided = tuple[int, Tokens, Answered | None]


class Statement:
    """What a certificate says is run, on which inputs, with which answers. Raises: Refusal."""

    def __init__(self, found: object, tensors: Tensors) -> None:
        if not isinstance(found, dict) or {*found} == {"reason"}:
            raise Refusal(f"program: was not kept ({as_text(found)[:80]})", NOT_CHECKABLE)
        require({*found} == {"graphs", "inputs", "classes", "answers"}, "program: has other keys")
        require(isinstance(found["graphs"], list) and isinstance(found["inputs"], list), "program: no graphs or inputs")
        graphs = [read_graph(graph, tensors) for graph in found["graphs"]]
        self.follow: Callable[[TracedGraph, int], Follower] = Follower
        self.answer: Callable[[Follower, InputsPart, Tokens, list[int], list[dict[int, arb]]], Answered] = (
            lambda follower, part, *found: Answered.of(*found)
        )
        self.graphs = {graph.length: graph for graph in graphs}
        require(len(self.graphs) == len(graphs) > 0, "program: two graphs of one length")
        self.parts = [self._part(part) for part in found["inputs"]]
        require({part.graph.length for part in self.parts} == {*self.graphs}, "program: a graph without inputs")
        self.size = sum(part.size for part in self.parts)
        self.classes = found["classes"]
        is_list = self.classes is None or _are_whole(self.classes) and len({*self.classes}) == len(self.classes) > 1
        require(is_list, "program: classes are no columns")
        self.answers = found["answers"]
        require(isinstance(self.answers, dict) and len(self.answers) == 1, "program: answers are none")
        table = self.answers.get("table")
        is_table = isinstance(table, list) and len(table) == self.size and all(map(_are_whole, table))
        self.rule = _rule(self.answers.get("rule"))
        require(is_table or self.rule is not None, "program: answers are no table and no known rule")

    def _part(self, found: object) -> InputsPart:
        if not isinstance(found, dict) or {*found} not in ({"sets", "positions"}, {"rows", "positions"}):
            raise Refusal("program: inputs have other keys")
        sets, rows, positions = found.get("sets"), found.get("rows", []), found["positions"]
        listed = rows if sets is None else sets
        require(
            isinstance(listed, list) and all(map(_are_whole, listed)) and bool(listed), "program: inputs are no tokens"
        )
        length = len(listed[0] if sets is None else listed)
        require(length in self.graphs, f"program: no graph for {length} tokens")
        if sets is None:
            require(all(len(row) == length for row in rows), "program: inputs of several lengths in one part")
            rows = [*map(tuple, rows)]
            require(len({*rows}) == len(rows), "program: an input is listed twice")
        else:
            require(all(len({*tokens}) == len(tokens) > 0 for tokens in listed), "program: a token is listed twice")
        is_place = _are_whole(positions) and positions and max(positions) < length
        require(bool(is_place), "program: positions are none of the input's")
        return InputsPart(self.graphs[length], sets, rows or [], positions)

    def only(self, rows: Iterable[Tokens]) -> "Statement":
        """The same about some of the inputs, whose answers a rule gives."""
        (part,), found = self.parts, copy(self)
        sets, rows = part.sets or [], [*rows]
        are_inputs = all(len(row) == len(sets) and all(map(operator.contains, sets, row)) for row in rows)
        require(are_inputs, "an input is none of those that are covered")
        found.parts, found.size = [part._replace(sets=None, rows=rows)], len(rows)
        return found

    @property
    def words(self) -> str:
        """What is right, in words."""
        return f"the {self.answers['rule']}" if "rule" in self.answers else "a table of answers"

    def due(self, tokens: Tokens, number: int) -> list[int]:
        return [*self.answers["table"][number]] if self.rule is None else [self.rule(tokens)]

    def decided(self, bits: int, wanted: set[int] | None) -> Iterator[Decided]:
        """Each input that is wanted with its logits in balls; None where a comparison in the graph is open."""
        start = 0
        for part in self.parts:
            follower, numbered = self.follow(part.graph, bits), enumerate(part.inputs, start)
            chosen = (pair for pair in numbered if wanted is None or pair[0] in wanted)
            while batch := [*islice(chosen, follower.at_once)]:
                yield from self._batch(part, follower, batch)
            start += part.size

    def _batch(self, part: InputsPart, follower: Follower, batch: list[tuple[int, Tokens]]) -> Iterator[Decided]:
        try:
            output = follower.output([tokens for _, tokens in batch])
        except Open:
            if len(batch) == 1:
                yield *batch[0], None
                return
            for pair in batch:
                yield from self._batch(part, follower, [pair])
            return
        rows = output.balls if len(output.rows) > 1 else [output.balls[0]] * len(batch)
        for (number, tokens), row in zip(batch, rows, strict=True):
            due = self.due(tokens, number)
            logits = self.logits(output, row, part)
            require(len(due) == len(logits), "program: an answer is missing")
            are_classes = all(y in at for y, at in zip(due, logits, strict=True))
            require(are_classes, f"program: the answer on {[*tokens]} is no class")
            yield number, tokens, self.answer(follower, part, tokens, due, logits)

    def logits(self, output: Array, row: Sequence[arb], part: InputsPart) -> list[dict[int, arb]]:
        """The logits that take part, at each position that answers."""
        return [{c: row[e] for c, e in at.items()} for at in self.elements(output.shape, part)]

    def elements(self, shape: tuple[int, ...], part: InputsPart) -> list[dict[int, int]]:
        """Where in an output of some shape the logits that take part are, at each position that answers."""
        n = shape[-1] if shape else 0
        is_one = len(shape) == 2 and shape[0] == 1 or len(shape) == 3 and shape[:2] == (1, 1)
        is_one = is_one and len(part.positions) == 1
        require(is_one or shape[:2] == (1, part.graph.length) and len(shape) == 3, f"program: logits of shape {shape}")
        columns = range(n) if self.classes is None else self.classes
        require(max(columns, default=n) < n, "program: classes are beyond the logits")
        starts = [0] if is_one else [n * i for i in part.positions]
        return [{c: start + c for c in columns} for start in starts]


def _are_whole(x: object) -> bool:
    return isinstance(x, list) and all(type(n) is int and 0 <= n < 2**31 for n in x)


def _rule(name: object) -> Callable[[Tokens], int] | None:
    """The function of tokens that a rule names, None where it is not known."""
    words = str(name).split(" modulo ")
    if words[0] == "sum of the tokens" and len(words) == 2:
        modulus = whole(words[1], "answers")
        return None if modulus < 1 else lambda tokens: sum(tokens) % modulus
    return {"largest token": max, "smallest token": min}.get(str(name))
