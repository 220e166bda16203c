"""A search by cells kept in a folder: what it has decided and which cells it has left, so that it can go on later."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from constructions.errors import BadInput
from constructions.written_files import made_folder, write_whole
from verify.engine.capture import Graph
from verify.engine.margins import Question
from verify.frame.clock import Clock
from verify.frame.program import code
from verify.module.automaton import Chart, Mask
from verify.module.cells import Cell, Remembered, Search
from verify.module.decision import Tally
from verify.module.inputs import Product
from verify.module.specification import Traced

FORMAT = 2  # of the file; another one is another search
OFTEN = 20.0  # seconds after which what was found is written again
REMEMBERED = ("wrong", "undecided")
SEARCHED = ("met", "tightest", "failing", "bounded")


class Kept:
    """One file of a folder for each graph with its stored numbers, question, domain and specification.

    Raises: BadInput where no folder can be made.
    """

    def __init__(
        self, folder: str | os.PathLike[str], graph: Graph, question: Question, part: Product, clock: Clock
    ) -> None:
        self.folder, self.graph, self.question, self.part = made_folder(folder, "resume"), graph, question, part
        self.clock, self.written = clock, clock()
        self.seen = 0  # inputs that are decided in the file

    def place(self, chart: Chart | Traced) -> Path:
        """The file."""
        return self.folder / f"cells-{identity(self.graph, self.question, self.part, chart)[:32]}.npz"

    def read(self, search: Search, tally: Tally) -> bool:
        """Whether there is such a search, which then goes on in these two.

        Raises: BadInput for a file that is damaged: each input is counted once, or in one cell.
        """
        place = self.place(search.chart)
        if not place.exists():
            return False
        try:
            read(place.read_bytes(), search, tally)
            self.seen = tally.seen
        except (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, BadZipFile) as error:
            raise BadInput(f"resume: {str(place)!r} is damaged ({error}); delete it to start again") from None
        if not tally.adds_up(search):
            raise BadInput(f"resume: {str(place)!r} is damaged: its inputs do not add up; delete it to start again")
        return True

    def write(self, search: Search, tally: Tally, is_due: bool = True) -> None:
        """Writes both, whole or not at all; where that is not due, only once some seconds are over."""
        if not is_due and self.clock() - self.written < OFTEN:
            return
        write_whole(self.place(search.chart), written(search, tally), "resume")
        self.written, self.seen = self.clock(), tally.seen


def identity(graph: Graph, question: Question, part: Product, chart: Chart | Traced) -> str:
    """A digest of all that the numbers of a search depend on, this program among it."""
    said = [FORMAT, code(), graph.digest, repr(question), part.sets]
    found = hashlib.sha256(json.dumps(said).encode())
    for name, value in sorted(graph.stored.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode() + bytes_of(value))
    found.update(chart.identity)
    return found.hexdigest()


def written(search: Search, tally: Tally) -> bytes:
    """What is decided, and the cells that are left."""
    said = {"tally": vars(tally), "search": {name: getattr(search, name) for name in SEARCHED}}
    file = io.BytesIO()
    arrays: dict[str, Any] = {"said": np.frombuffer(json.dumps(said).encode(), dtype=np.uint8), **packed(search)}
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read(data: bytes, search: Search, tally: Tally) -> None:
    """Has both go on from what is written, with nothing decided before."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        said = json.loads(found["said"].tobytes())
        left = unpacked(found, search)
        kept = Remembered(*(list(masks_in(found, name, search)) for name in REMEMBERED))
    assert tally.seen == 0
    vars(tally).update(said["tally"])
    vars(search).update(said["search"])
    search.left = left
    if search.remembered is not None:
        search.remembered = kept


def packed(search: Search) -> dict[str, NDArray[np.bool_ | np.uint8 | np.int64 | np.float64]]:
    """The cells that are left, as arrays; those that wait for others come by themselves."""
    cells = [(i, one) for i, (_, some) in enumerate(search.left) for cell in some for one in (cell, *cell.alike)]
    classes = max((len(cell.rivals) for _, cell in cells if cell.rivals is not None), default=0)
    rivals = np.zeros((len(cells), classes), dtype=bool)
    for row, (_, cell) in zip(rivals, cells, strict=True):
        row[:] = cell.rivals if cell.rivals is not None else True
    return {
        "of": np.array([i for i, _ in cells], dtype=np.int64),
        "masks": packed_masks([cell.mask for _, cell in cells], search),
        **{name: packed_masks(getattr(search.remembered or Remembered(), name), search) for name in REMEMBERED},
        "has_answer": np.array([cell.answer is not None for _, cell in cells], dtype=bool),
        "answers": np.array([cell.answer or 0 for _, cell in cells], dtype=np.int64),
        "rivals": rivals,
        "beaten": np.array([cell.beaten for _, cell in cells], dtype=np.float64),
    }


def packed_masks(masks: list[Mask], search: Search) -> NDArray[np.uint8]:
    return np.packbits(np.array(masks, dtype=bool).reshape(len(masks), *search.whole.shape), axis=-1)


def masks_in(found: Mapping[str, np.ndarray], name: str, search: Search) -> Mask:
    masks: Mask = np.unpackbits(found[name], axis=-1, count=search.whole.shape[1]).astype(bool)
    if (masks & ~search.whole).any():
        raise ValueError("a cell is beyond the domain")
    return masks


def unpacked(found: Mapping[str, np.ndarray], search: Search) -> list[tuple[tuple[int, ...], list[Cell]]]:
    """The cells by the tokens of the fixed positions."""
    masks = masks_in(found, "masks", search)
    left: list[tuple[tuple[int, ...], list[Cell]]] = [(ranks, []) for ranks in search.owns()]
    names = ("of", "has_answer", "answers", "rivals", "beaten")
    for mask, i, has_answer, answer, rivals, beaten in zip(masks, *(found[name] for name in names), strict=True):
        kept = rivals if len(rivals) else None
        left[i][1].append(search._cell(mask, int(answer) if has_answer else None, kept, float(beaten)))
    return left


def bytes_of(value: Tensor) -> bytes:
    """A tensor's numbers."""
    plain = value.detach().cpu().contiguous().flatten()
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
