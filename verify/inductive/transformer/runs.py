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
from verify.engine.balls import Arithmetic
from verify.engine.capture import Graph, capture
from verify.engine.margins import margins
from verify.engine.run import ENTRIES_AT_ONCE, enclosed_weights, evaluate
from verify.inductive.tasks import Line, Task

TABLES = ("W_pos", "rotation.cos", "rotation.sin")
MODELS = ("balls", "l2")


class Bounds(NamedTuple):
    """Bounds on the margins of some lines at one shift: (lines, positions), infinite where no answer is judged."""

    shift: int
    lines: list[Line]
    low: Tensor
    high: Tensor
    decided_by: str


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
        """How many different inputs there are: prefixes of lines, at all shifts."""
        return sum(sum(1 for _ in self.prefixes(shift)) for shift in self.shifts)

    def prefixes(self, shift: int) -> Iterator[tuple[int, ...]]:
        """Every input at a shift once, line by line."""
        before: tuple[int, ...] = ()
        for line in self.lines(shift):
            shared = next((i for i, (a, b) in enumerate(zip(before, line.tokens, strict=False)) if a != b), None)
            first = min(len(before), len(line.tokens)) if shared is None else shared
            yield from (line.tokens[:n] for n in range(first + 1, len(line.tokens) + 1))
            before = line.tokens

    def bounds(self, reading: Real | Rounded) -> Iterator[Bounds]:
        """Bounds at every shift; by balls as long as they leave nothing open, from then on in the l2 norm."""
        longest = max(len(line.tokens) for line in self.lines(0))
        graph = capture(self.model, longest, is_real=isinstance(reading, Real))
        models = {name: _arithmetic(reading, name == "l2") for name in MODELS}
        stored = {name: enclosed_weights(graph, at) for name, at in models.items()}
        name = MODELS[0]
        for shift in self.shifts:
            lines = self.lines(shift)
            low, high = self._run(graph, shifted(graph, stored[name], shift), models[name], lines)
            if name == MODELS[0] and bool((~((low > 0) | (high <= 0))).any()):
                name = MODELS[1]
                low, high = self._run(graph, shifted(graph, stored[name], shift), models[name], lines)
            yield Bounds(shift, lines, low, high, name)

    def of_strings(self, strings: list[tuple[int, ...]], shift: int, reading: Real | Rounded) -> tuple[Tensor, Tensor]:
        """Bounds on the margins of strings of one length at one shift."""
        graph = capture(self.model, len(strings[0]), is_real=isinstance(reading, Real))
        lines = [Line(None, string) for string in strings]
        low = high = torch.zeros(1)
        for name in MODELS:
            at = _arithmetic(reading, name == "l2")
            stored = shifted(graph, enclosed_weights(graph, at), shift)
            low, high = self._run(graph, stored, at, lines)
            if bool(((low > 0) | (high <= 0)).all()):
                break
        return low, high

    def _run(self, graph: Graph, stored: dict[str, Any], at: Arithmetic, lines: list[Line]) -> tuple[Tensor, Tensor]:
        tokens, answers = padded(self.task, (line.tokens for line in lines), graph.length)

        def one(row: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
            output = evaluate(graph, stored, row, at)
            logits = type(output)(output.mid[0], output.radius[0])
            low, high = margins(logits, right.clamp(min=0))
            nothing = torch.full_like(low, torch.inf)
            return torch.where(right >= 0, low, nothing), torch.where(right >= 0, high, nothing)

        many = torch.vmap(one)
        at_once = max(1, ENTRIES_AT_ONCE // max(graph.widest, graph.output.numel()))
        with torch.no_grad():
            parts = [many(*p) for p in zip(*(torch.split(x, at_once) for x in (tokens, answers)), strict=True)]
        low, high = (torch.cat(column) for column in zip(*parts, strict=True))
        return low, high


def _arithmetic(reading: Real | Rounded, has_norms: bool) -> Arithmetic:
    if isinstance(reading, Real):
        return Arithmetic(has_norms=has_norms)
    return Arithmetic(reading.format, reading.accumulate, has_norms)


def padded(task: Task, strings: Iterable[tuple[int, ...]], length: int) -> tuple[Tensor, Tensor]:
    """Strings as rows of one length, and their right classes, -1 where none is judged or the string has ended."""
    tokens, answers = [], []
    for string in strings:
        rest = length - len(string)
        tokens.append([*string, *[string[-1]] * rest])
        answers.append([-1 if a is None else a for a in task.answers(string)] + [-1] * rest)
    return torch.tensor(tokens), torch.tensor(answers)


def shifted(graph: Graph, stored: dict[str, Any], shift: int) -> dict[str, Any]:
    """The stored tensors of the run at a shift: tables of positions from row `shift` on, zero after their end.

    Rows past the end belong to positions that no input has; attention is causal, so that they touch no other.
    """
    if not shift:
        return stored
    out = dict(stored)
    for name, target in graph.names.items():
        if target.endswith(TABLES):
            table = stored[name]
            out[name] = type(table)(_moved(table.mid, shift), None if table.rad is None else _moved(table.rad, shift))
    return out


def _moved(table: Tensor, shift: int) -> Tensor:
    return torch.cat([table[shift:], torch.zeros_like(table[:shift])])
