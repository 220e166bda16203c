"""Every input of a homogeneous task by one run for each shift and line: a causal run says all prefixes at once.

The graph of one run is traced once. What a shift changes is which row of a table of positions comes first, so that the
run of another shift is the same graph on a table whose first rows were left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constructions.decoder import Decoder
from verify.arithmetic.readings import Real, Rounded
from verify.counting.tasks import Line, Task
from verify.engine.balls import Arithmetic
from verify.engine.capture import Graph, capture
from verify.engine.margins import margins
from verify.engine.run import enclosed_weights, evaluate
from verify.frame.clock import Deadline

TABLES = ("W_pos", "rotation.cos", "rotation.sin")
MODELS = ("balls", "l2")
UNBOUNDED = "nothing"  # decided it: the time was up
NEVER = Deadline.never()
ENTRIES_AT_ONCE = 2**20  # of one tensor: what a processor's cache holds
WORTH_A_GRAPH = 48  # so many runs of half the length save the time that it takes to trace their graph


class MarginBounds(NamedTuple):
    """Bounds on the margins of some lines at some shifts: (lines, positions), infinite where no answer is judged.

    Lines are those of the first shift; at a later one each ends where the positions do.
    """

    shifts: range
    lines: list[Line]
    low: Tensor
    high: Tensor
    decided_by: str


class EnclosedGraph(NamedTuple):
    """A graph, and its stored tensors as an arithmetic reads them: what all runs of one length share."""

    graph: Graph
    at: Arithmetic
    stored: dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """A decoder on the lines of a task, with shift + positions at most `room` and BOS counted."""

    model: Decoder
    task: Task
    length: int | None
    room: int | None

    @property
    def shifts(self) -> range:
        """Every shift at which an input fits; without positions there is one."""
        return range(1 if self.room is None else self.room - self.model.has_bos)

    def lines(self, shift: int) -> list[Line]:
        """The longest inputs at a shift; a line without room for a token is none."""
        room = None if self.room is None else self.room - self.model.has_bos - shift
        return list(self.task.lines(self.length, room=room))

    def inputs(self) -> int:
        """How many different inputs there are: prefixes of lines, at all shifts.

        Lines at a shift are those of the first, cut where the positions end, and so is what neighbours share.
        """
        lines = self.lines(0)
        pairs = zip([(), *(line.tokens for line in lines)], (line.tokens for line in lines), strict=False)
        ends = torch.tensor([(len(tokens), _shared(before, tokens)) for before, tokens in pairs])
        times = self.times(self.shifts, int(ends.max())).cumsum(0)
        length, shared = (torch.cat([torch.zeros(1, dtype=torch.int64), times])[part] for part in ends.T)
        return int((length - shared).sum())

    def times(self, shifts: range, length: int) -> Tensor:
        """At how many of the shifts each of the first `length` places of a line is within the positions: (length,)."""
        if self.room is None:
            return torch.full((length,), len(shifts))
        last = self.room - self.model.has_bos - 1 - torch.arange(length)  # shift at which a place is the last position
        return (last - shifts.start + 1).clamp(0, len(shifts))

    def prefixes(self, shift: int) -> Iterator[tuple[int, ...]]:
        """Every input at a shift once, line by line."""
        before: tuple[int, ...] = ()
        for line in self.lines(shift):
            yield from (line.tokens[:n] for n in range(_shared(before, line.tokens) + 1, len(line.tokens) + 1))
            before = line.tokens

    def bounds(self, reading: Real | Rounded, until: Deadline = NEVER) -> Iterator[MarginBounds]:
        """Bounds at every shift; by balls as long as they leave nothing open, from then on in the l2 norm.

        Raises: TimeIsUp where the time is up between two pieces of the work.
        """
        name = MODELS[0]
        for length, shifts in self._by_length():
            graph = capture(self.model, length, is_real=isinstance(reading, Real))
            enclosed = _enclosed(graph, reading, name)
            for some in _groups(shifts, max(1, at_once(graph) // len(self.lines(shifts[0])))):
                found = self._at(enclosed, some, name, until)
                is_open = any(bool((~((b.low > 0) | (b.high <= 0))).any()) for b in found)
                if name == MODELS[0] and is_open and not until.is_up():
                    name = MODELS[1]
                    enclosed = _enclosed(graph, reading, name)
                    found = self._at(enclosed, some, name, until)
                yield from found

    def _by_length(self) -> Iterator[tuple[int, list[int]]]:
        """The shifts in order, in runs of one length that their longest lines need: it is halved where that pays."""
        needed = [max(len(line.tokens) for line in self.lines(shift)) for shift in self.shifts]
        first = 0
        while first < len(needed):
            length = needed[first]
            later = next((i for i, n in enumerate(needed) if i >= first and 2 * n <= length), len(needed))
            last = later if len(needed) - later >= WORTH_A_GRAPH else len(needed)
            yield length, list(self.shifts[first:last])
            first = last

    def unbounded(self, shifts: range) -> MarginBounds:
        """What is known of the lines at some shifts, up to the last one, before any is run: nothing."""
        lines = self.lines(shifts.start)
        _, answers = padded(self.task, (line.tokens for line in lines), max(len(line.tokens) for line in lines))
        low = torch.where(answers >= 0, -torch.inf, torch.inf).double()
        return MarginBounds(shifts, lines, low, torch.full_like(low, torch.inf), UNBOUNDED)

    def _at(self, enclosed: EnclosedGraph, shifts: list[int], name: str, until: Deadline) -> list[MarginBounds]:
        """Bounds at some shifts, run together."""
        lines = [self.lines(shift) for shift in shifts]
        low, high = self._run(enclosed, lines, shifts, until)
        sizes = [len(part) for part in lines]
        alone = [range(shift, shift + 1) for shift in shifts]
        parts = zip(alone, lines, torch.split(low, sizes), torch.split(high, sizes), strict=True)
        return [MarginBounds(*part, name) for part in parts]

    def of_strings(self, strings: list[tuple[int, ...]], shift: int, reading: Real | Rounded) -> tuple[Tensor, Tensor]:
        """Bounds on the margins of strings of one length at one shift."""
        graph = capture(self.model, len(strings[0]), is_real=isinstance(reading, Real))
        lines = [Line(None, string) for string in strings]
        low = high = torch.zeros(1)
        for name in MODELS:
            low, high = self._run(_enclosed(graph, reading, name), [lines], [shift])
            if bool(((low > 0) | (high <= 0)).all()):
                break
        return low, high

    def _run(
        self,
        enclosed: EnclosedGraph,
        lines: list[list[Line]],
        shifts: list[int],
        until: Deadline = NEVER,
    ) -> tuple[Tensor, Tensor]:
        """Bounds on the margins of the lines of each shift, one after the other."""
        graph, at, stored = enclosed
        tokens, answers = padded(self.task, (line.tokens for part in lines for line in part), graph.length)
        moved = torch.tensor([shift for shift, part in zip(shifts, lines, strict=True) for _ in part])
        tables = [name for name, target in graph.names.items() if target.endswith(TABLES)] if any(shifts) else []

        def one(row: Tensor, right: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
            of = {name: (parts[2 * i], parts[2 * i + 1]) for i, name in enumerate(tables)}
            here = {
                name: type(stored[name])(mid, None if stored[name].rad is None else rad)
                for name, (mid, rad) in of.items()
            }
            output = evaluate(graph, stored | here, row, at)
            logits = type(output)(output.mid[0], output.radius[0])
            low, high = margins(logits, right.clamp(min=0))
            nothing = torch.full_like(low, torch.inf)
            return torch.where(right >= 0, low, nothing), torch.where(right >= 0, high, nothing)

        many = torch.vmap(one)
        found: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for rows in torch.split(torch.arange(len(tokens)), at_once(graph)):
                if found:
                    until.check()
                parts = [
                    shifted(part, moved[rows]) for name in tables for part in (stored[name].mid, stored[name].radius)
                ]
                found.append(many(tokens[rows], answers[rows], *parts))
        low, high = (torch.cat(column) for column in zip(*found, strict=True))
        return low, high


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many tokens two strings have in common at their starts."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def at_once(graph: Graph) -> int:
    """How many rows are run at a time."""
    return max(1, ENTRIES_AT_ONCE // max(graph.widest, graph.output.numel()))


def _groups(shifts: list[int], size: int) -> Iterator[list[int]]:
    """The shifts in order, the first alone, then `size` at a time: what it shows of the bounds is used by the rest."""
    yield shifts[:1]
    yield from (shifts[i : i + size] for i in range(1, len(shifts), size))


def _enclosed(graph: Graph, reading: Real | Rounded, name: str) -> EnclosedGraph:
    has_norms = name == "l2"
    if isinstance(reading, Real):
        at = Arithmetic(has_norms=has_norms, kept={})
    else:
        at = Arithmetic(reading.format, reading.accumulate, has_norms, kept={})
    return EnclosedGraph(graph, at, enclosed_weights(graph, at))


def padded(task: Task, strings: Iterable[tuple[int, ...]], length: int) -> tuple[Tensor, Tensor]:
    """Strings as rows of one length, and their right classes, -1 where none is judged or the string has ended."""
    tokens, answers = [], []
    for string in strings:
        rest = length - len(string)
        tokens.append([*string, *[string[-1]] * rest])
        answers.append([-1 if a is None else a for a in task.answers(string)] + [-1] * rest)
    return torch.tensor(tokens), torch.tensor(answers)


def shifted(table: Tensor, shifts: Tensor) -> Tensor:
    """A table of positions for the run at each shift: from row `shift` on, and zero after its end.

    Rows past the end belong to positions that no input has; attention is causal, so that they touch no other.

    >>> shifted(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 2])).squeeze(-1).tolist()
    [[1.0, 2.0, 3.0], [3.0, 0.0, 0.0]]
    """
    rows = shifts[:, None] + torch.arange(len(table))
    kept = rows < len(table)
    return torch.where(kept[..., None], table[rows.clamp(max=len(table) - 1)], torch.zeros((), dtype=table.dtype))
