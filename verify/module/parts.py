"""A search by cells in parts that other processes decide, each to its end or until one deadline of all.

The first batches are decided here. What they met is handed to all parts, which know nothing of each other: so they say
the same in whatever order, and by however many processes, they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial

from verify.frame.clock import Deadline
from verify.module.cells import Aim, Cell, Remembered, Search
from verify.module.decision import Tally
from verify.module.layered import Layered
from verify.module.resumed import identity, read, written

PARTS = 64
BATCHES = 16  # that are decided before anything is sent, at most


@dataclass(frozen=True)
class CellsPart:
    """Some cells of a search, and the digest of all that their answer depends on."""

    at: int
    length: int
    aim: Aim
    remembers: bool
    identity: str
    cells: bytes


Run = Callable[[list[CellsPart], Deadline], Iterable[tuple[CellsPart, bytes]]]


def decided(layer: Layered, part: CellsPart, deadline: Deadline) -> bytes:
    """What is decided of a part, and the cells that are left of it."""
    search, tally = begun(layer, part.aim, part.remembers), Tally()
    read(part.cells, search, tally)
    layer.by_cells(search, tally, deadline, lambda done: None)
    return written(search, tally)


def begun(layer: Layered, aim: Aim, remembers: bool) -> Search:
    search = layer.search(aim)
    search.remembered = Remembered() if remembers else None
    return search


def identity_of(layer: Layered) -> str:
    """The digest of the graph, its numbers, question, inputs, specification and program."""
    assert layer.chart is not None
    return identity(layer.layer.graph, layer.layer.question, layer.part, layer.chart)


def decide(
    run: Run,
    layer: Layered,
    search: Search,
    tally: Tally,
    deadline: Deadline,
    progress: Callable[[int], None],
    keep: Callable[[bool], None],
) -> None:
    """Decides the cells of a search as `Layered.by_cells` does; those of parts that have not begun in time are left."""
    if not tally.seen:  # else it goes on from what was kept
        layer.by_cells(search, tally, deadline, progress, keep, batches=search.first_batches(BATCHES))
    if search.is_enough or deadline.is_up():
        return
    own = dealt(search)

    def steps() -> Iterator[Callable[[], None]]:
        asked = list(asked_for(layer, search, own))
        for part, data in run(asked, deadline) if asked else ():
            found = begun(layer, search.aim, part.remembers)
            counted = Tally()
            read(data, found, counted)
            yield partial(take, search, tally, own, part.at, found, counted)
            if search.is_enough:
                return

    layer.in_steps(steps(), search, tally, progress, keep)


Dealt = list[list[list[Cell]]]  # by part, and by choice of the fixed positions' tokens


def dealt(search: Search) -> Dealt:
    """The cells that are left in so many parts, which depends on nothing else; cells that wait stay with theirs."""
    own: Dealt = [[[] for _ in search.left] for _ in range(PARTS)]
    heaps = -(-PARTS // len(search.left))
    for i, (ranks, cells) in enumerate(search.left):
        if heaps > 1 and cells:
            search.of_token(ranks, cells)  # finds those
        for j in range(heaps):
            own[(i * heaps + j) % PARTS][i] = cells[j::heaps]
    return own


def asked_for(layer: Layered, search: Search, own: Dealt) -> Iterator[CellsPart]:
    """The parts that have cells."""
    name, remembers = identity_of(layer), search.remembered is not None
    for at, of_part in enumerate(own):
        if any(of_part):
            only = copy(search)
            only.bounded, only.remembered = 0, None
            only.left = [(ranks, cells) for (ranks, _), cells in zip(search.left, of_part, strict=True)]
            yield CellsPart(at, layer.part.length, search.aim, remembers, name, written(only, Tally()))


def take(search: Search, tally: Tally, own: Dealt, at: int, found: Search, counted: Tally) -> None:
    """Moves what is decided of a part from the cells of a search to its tally."""
    own[at] = [cells for _, cells in found.left]
    for i, (_, cells) in enumerate(search.left):
        cells[:] = [cell for of_part in own for cell in of_part[i]]
    tally.take(counted)
    search.bounded += found.bounded
    if search.remembered is not None and found.remembered is not None:
        search.remembered.add(found.remembered.wrong, found.remembered.undecided)
    if (found.met, found.tightest or []) < (search.met, search.tightest or []):
        search.met, search.tightest = found.met, found.tightest
    search.failing = min((one.failing for one in (search, found) if one.failing is not None), default=None)
