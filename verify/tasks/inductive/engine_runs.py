"""Bounds by the engine, by one run for each shift and line: a causal run says all prefixes at once.

The graph of one run is traced once. What a shift changes is which row of a table of positions comes first, so that the
run of another shift is the same graph on a table whose first rows were left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from constructions.model_arrays import module_of
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import Array
from verify.counting.tasks import Line
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph, capture
from verify.engine.margins import margins
from verify.engine.run import enclosed_weights, evaluate
from verify.frame.clock import Deadline
from verify.tasks.inductive.runs import MarginBounds, Runs, padded

TABLES = ("W_pos", "rotation.cos", "rotation.sin")
MODELS = ("balls", "l2")
NEVER = Deadline.never()
ENTRIES_AT_ONCE = 2**18  # of one tensor: what a processor's cache holds, and a fraction of a second
WORTH_A_GRAPH = 48  # so many runs of half the length save the time that it takes to trace their graph


class EnclosedGraph(NamedTuple):
    """A graph, and its stored tensors as an arithmetic reads them: what all runs of one length share."""

    graph: Graph
    at: Arithmetic
    stored: dict[str, Ball | Tensor]


def bounds(runs: Runs, reading: Real | Rounded, until: Deadline = NEVER) -> Iterator[MarginBounds]:
    """Bounds at every shift; by balls as long as they leave nothing open, from then on in the l2 norm.

    Raises: TimeIsUp where the time is up between two pieces of the work.
    """
    name = MODELS[0]
    for length, shifts in _by_length(runs):
        graph = capture(module_of(runs.model), length, is_real=isinstance(reading, Real))
        enclosed = _enclosed(graph, reading, name)
        for some in _groups(shifts, max(1, at_once(graph) // len(runs.lines(shifts[0])))):
            found = _at(runs, enclosed, some, name, until)
            is_open = any(bool((~((b.low > 0) | (b.high <= 0))).any()) for b in found)
            if name == MODELS[0] and is_open and not until.is_up():
                name = MODELS[1]
                enclosed = _enclosed(graph, reading, name)
                found = _at(runs, enclosed, some, name, until)
            yield from found


def _by_length(runs: Runs) -> Iterator[tuple[int, list[int]]]:
    """The shifts in order, in runs of one length that their longest lines need: it is halved where that pays."""
    needed = [max(len(line.tokens) for line in runs.lines(shift)) for shift in runs.shifts]
    first = 0
    while first < len(needed):
        length = needed[first]
        later = next((i for i, n in enumerate(needed) if i >= first and 2 * n <= length), len(needed))
        last = later if len(needed) - later >= WORTH_A_GRAPH else len(needed)
        yield length, list(runs.shifts[first:last])
        first = last


def _at(runs: Runs, enclosed: EnclosedGraph, shifts: list[int], name: str, until: Deadline) -> list[MarginBounds]:
    """Bounds at some shifts, run together."""
    lines = [runs.lines(shift) for shift in shifts]
    low, high = _run(runs, enclosed, lines, shifts, until)
    ends = np.cumsum([len(part) for part in lines])[:-1]
    alone = [range(shift, shift + 1) for shift in shifts]
    parts = zip(alone, lines, np.split(low, ends), np.split(high, ends), strict=True)
    return [MarginBounds(*part, name) for part in parts]


def of_strings(runs: Runs, strings: list[tuple[int, ...]], shift: int, reading: Real | Rounded) -> tuple[Array, Array]:
    """Bounds on the margins of strings of one length at one shift."""
    graph = capture(module_of(runs.model), len(strings[0]), is_real=isinstance(reading, Real))
    lines = [Line(None, string) for string in strings]
    low = high = np.zeros(1)
    for name in MODELS:
        low, high = _run(runs, _enclosed(graph, reading, name), [lines], [shift])
        if bool(((low > 0) | (high <= 0)).all()):
            break
    return low, high


def _run(
    runs: Runs, enclosed: EnclosedGraph, lines: list[list[Line]], shifts: list[int], until: Deadline = NEVER
) -> tuple[Array, Array]:
    """Bounds on the margins of the lines of each shift, one after the other."""
    graph, at, stored = enclosed
    tokens, answers = map(
        torch.from_numpy, padded(runs.task, (line.tokens for part in lines for line in part), graph.length)
    )
    moved = torch.tensor([shift for shift, part in zip(shifts, lines, strict=True) for _ in part])
    tables = [name for name, target in graph.names.items() if target.endswith(TABLES)] if any(shifts) else []
    balls = {name: ball for name in tables if isinstance(ball := stored[name], Ball)}

    def one(row: Tensor, right: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
        of = {name: (parts[2 * i], parts[2 * i + 1]) for i, name in enumerate(tables)}
        here = {name: Ball(mid, None if balls[name].rad is None else rad) for name, (mid, rad) in of.items()}
        output = evaluate(graph, {**stored, **here}, row, at)
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
            parts = [shifted(part, moved[rows]) for name in tables for part in (balls[name].mid, balls[name].radius)]
            found.append(many(tokens[rows], answers[rows], *parts))
    low, high = (torch.cat(column).numpy() for column in zip(*found, strict=True))
    return low, high


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


def shifted(table: Tensor, shifts: Tensor) -> Tensor:
    """A table of positions for the run at each shift: from row `shift` on, and zero after its end.

    Rows past the end belong to positions that no input has; attention is causal, so that they touch no other.

    >>> shifted(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 2])).squeeze(-1).tolist()
    [[1.0, 2.0, 3.0], [3.0, 0.0, 0.0]]
    """
    rows = shifts[:, None] + torch.arange(len(table))
    kept = rows < len(table)
    return torch.where(kept[..., None], table[rows.clamp(max=len(table) - 1)], torch.zeros((), dtype=table.dtype))
