"""The tree of splits that a search made, kept for the checker, which decides every leaf again (docs/checker.md)."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain

import numpy as np

from verify.tasks.histogram.reduction import Row

MOST_PARTS = 1 << 18  # of one certificate; the checker decides some hundreds in a second
RIGHT, WRONG, OPEN, EACH, PLACES, FIRST = range(6)  # from FIRST on: share out a group, halve a cluster, fill a slot
TOO_LARGE = f"more than {MOST_PARTS} parts: the splits are not kept, and `verify check` cannot repeat them"
BY_VARIANCES = "the share is bracketed by means and variances: `verify check` cannot repeat it"


@dataclass(frozen=True)
class RecordedCell:
    """One query token in one row: its clusters of other tokens, and for each own count the root of its tree."""

    row: Row
    t: int
    clusters: list[list[int]]
    roots: dict[int, int]


class Record:
    """The parts of all searches of one model by number; what is split has its parts numbered one after the other.

    It keeps nothing any more as soon as there are more than `most`: then every number is -1.
    """

    def __init__(self, most: int = MOST_PARTS, reason: str = TOO_LARGE) -> None:
        self.most, self.number, self.is_full, self.reason = most, 0, most == 0, reason
        self.codes, self.first, self.parts = (np.full(min(most, 1 << 10), OPEN, dtype=np.int64) for _ in range(3))
        self.cells: list[RecordedCell] = []
        self.listed: dict[int, list[list[int]]] = {}  # of a part whose multisets are decided one by one: the others

    def copy(self) -> Record:
        """The record as it is now, whatever is said later of this one."""
        found = copy(self)
        found.codes, found.first, found.parts = (kept.copy() for kept in (self.codes, self.first, self.parts))
        found.cells, found.listed = [*self.cells], {**self.listed}
        return found

    def roots(self, row: Row, t: int, clusters: list[list[int]], counts: Sequence[int]) -> np.ndarray:
        """The numbers of new roots, one for each own count (B,)."""
        found = self._new(len(counts))
        if not self.is_full:
            self.cells.append(RecordedCell(row, t, clusters, dict(zip(map(int, counts), found.tolist(), strict=True))))
        return found

    def close(self, parts: np.ndarray, code: int) -> None:
        """Says of these parts (B,) that they are RIGHT or WRONG throughout."""
        if not self.is_full:
            self.codes[parts[parts >= 0]] = code

    def split(self, parts: np.ndarray, codes: np.ndarray | int, numbers: np.ndarray) -> np.ndarray:
        """Says how parts (B,) are split, and into how many (B,): the numbers of all of these, part by part."""
        is_kept = (parts >= 0) & (not self.is_full)
        found = np.full(int(numbers.sum()), -1, dtype=np.int64)
        new = self._new(int(numbers[is_kept].sum()))
        if not self.is_full:
            found[np.repeat(is_kept, numbers)] = new
            kept = parts[is_kept]
            self.codes[kept] = np.broadcast_to(codes, parts.shape)[is_kept]
            ends = np.cumsum(numbers[is_kept])
            self.first[kept], self.parts[kept] = self.number - len(new) + ends - numbers[is_kept], numbers[is_kept]
        return found

    def decide_each(self, root: int, multisets: int, left: list[list[int]]) -> np.ndarray:
        """Says of a root that all its multisets are decided one by one but those that are listed: their numbers.

        A multiset is written group by group: how many other tokens, and their indices.
        """
        self.most -= multisets  # the checker decides each of them, as it does a part
        found = self._new(len(left))
        if not self.is_full:
            self.codes[root], self.first[root], self.parts[root] = EACH, self.number - len(found), len(found)
            self.listed[root] = left
        return found

    def _new(self, number: int) -> np.ndarray:
        """The numbers of new parts, which are open."""
        if self.is_full or self.number + number > self.most:
            self.is_full, self.cells, self.listed = True, [], {}
            return np.full(number, -1, dtype=np.int64)
        self.number += number
        if self.number > len(self.codes):
            room = np.full(min(self.most, 2 * self.number) - len(self.codes), OPEN, dtype=np.int64)
            self.codes, self.first, self.parts = (
                np.concatenate([kept, room]) for kept in (self.codes, self.first, self.parts)
            )
        return np.arange(self.number - number, self.number)

    def to_json(self) -> dict[str, object]:
        """What a certificate says of the tree: how many parts, and base64 of compressed JSON, or why there is none.

        The JSON has `rows` (positions, and the slots of each of them group by group) and `cells`: index of the row,
        query token, clusters, and pairs of an own count and its parts in the order in which they are met.
        """
        if self.is_full:
            return {"parts": None, "data": None, "reason": self.reason}
        rows: list[Row] = []
        cells, parts_from = [], self._walk()
        for cell in self.cells:
            index = next((i for i, row in enumerate(rows) if row is cell.row), len(rows))
            if index == len(rows):
                rows.append(cell.row)
            trees = [[k, list(parts_from(root))] for k, root in cell.roots.items()]
            cells.append([index, cell.t, cell.clusters, trees])
        found = {"rows": [[row.positions, row.slots] for row in rows], "cells": cells}
        data = zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 9)
        return {"parts": self.number, "data": base64.b64encode(data).decode(), "reason": None}

    def _walk(self) -> Callable[[int], Iterator[int]]:
        """Gives for a part its code and those of all that it was split into, the first of them first."""
        codes, first, parts = (kept[: self.number].tolist() for kept in (self.codes, self.first, self.parts))

        def walk(root: int) -> Iterator[int]:
            stack = [root]
            while stack:
                part = stack.pop()
                yield codes[part]
                if codes[part] == EACH:
                    yield parts[part]
                    yield from chain.from_iterable(self.listed[part])
                if codes[part] >= EACH:
                    stack += range(first[part] + parts[part] - 1, first[part] - 1, -1)

        return walk


def without() -> Record:
    """A record that keeps nothing."""
    return Record(0)
