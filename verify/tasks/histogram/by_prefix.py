"""Decides all multisets of one cell by their prefixes: in float32, near a tie in float64; what that leaves is `left`.

Prefixes are looked at in parts, by as many threads as there are cores: a loop lets others run, and ends within some
hundredths of a second, after which the clock is looked at. Whatever the order, the wrong pairs are the same whole
number. Of right multisets only the smallest margin counts, so that those surely above it are not looked at closer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import comb
from threading import Event, Lock
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.machine_code import is_compiled
from verify.frame.clock import Deadline
from verify.tasks.histogram.blocks import CellMultisets
from verify.tasks.histogram.candidate import Smallest
from verify.tasks.histogram.loops import NEAR, WRONG, LoopAsked, loop_for, room
from verify.tasks.histogram.narrow import LANES, Narrow
from verify.tasks.histogram.on_device import A_LOOK as DEVICE_LOOK
from verify.tasks.histogram.on_device import SECONDS_EACH, WORTH, DeviceLoop, device_at_hand
from verify.tasks.histogram.reduction import Row
from verify.tasks.histogram.tabulating import CountReadout, Table, Tabulated
from verify.tasks.histogram.task import Progress

if TYPE_CHECKING:
    import torch

A_LOOK = 1 << 22  # multisets between two looks at the clock
FIRST_LOOK = 1 << 10  # at first, until some margin is known
ENTRIES = 1 << 16  # near a tie, or wrong with few different tokens, that a loop has room for
AT_ONCE = 1 << 12  # multisets near a tie that are looked at closer at once
UNSUITED = 16  # where one multiset of so many is near a tie, float32 is no gain
MOST_LEFT = 1 << 11  # multisets of one token, from which on a search is better at what they have in common


def threads() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device() -> torch.device | None:
    """A graphics card, where there is no compiled loop: which of the two is faster was not measured."""
    return None if is_compiled() else device_at_hand()


def has_fast_loop() -> bool:
    """Whether a loop is at hand that is much faster than numpy's."""
    return is_compiled() or device() is not None


def seconds_each(r: int, rivals: int) -> float:
    """About how long one multiset takes, all cores together."""
    if device():
        return SECONDS_EACH
    if is_compiled():
        return (1.5e-9 + 1.1e-11 * r * rivals) / threads()
    return 5e-8 + 1.5e-10 * r * rivals


def is_one_group(row: Row) -> bool:
    """Whether all slots of a row have one weight."""
    return len(row.groups) == 1 and row.spread is None


@dataclass
class ByPrefix:
    """One cell (row, t, k): what its multisets give, to which every thread adds under `lock`.

    Shapes: wrong (prefixes,) the sums that a loop writes.
    """

    table: Table
    k: int
    narrow: Narrow
    smallest: Smallest
    margin: float
    found: Tabulated = field(default_factory=Tabulated)
    done: int = 0
    near: int = 0
    is_unsuited: bool = False
    lock: Lock = field(default_factory=Lock)
    is_over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.prefixes, self.readout = self.narrow.prefixes, CountReadout.of(self.table, self.k)
        at_hand = device() if self.prefixes.until[-1] > WORTH else None
        self.loop = DeviceLoop(at_hand) if at_hand else loop_for(*self.narrow.W.shape)
        self.look = DEVICE_LOOK if at_hand else A_LOOK
        self.wrong = np.empty(self.prefixes.number, dtype=np.int64)
        self.limit = np.empty(self.prefixes.number, dtype=np.int32)
        self.entries = max(ENTRIES, room(self.narrow), self.look // LANES if at_hand else 0)
        self.each = comb(self.table.stored.L - 1, self.k - 1) * len(self.table.row.positions)

    def run(self, deadline: Deadline, progress: Progress) -> bool:
        """Decides all multisets; whether time sufficed."""
        total = int(self.prefixes.until[-1])
        number = threads() if is_compiled() and self.look == A_LOOK < total else 1
        if number == 1:
            for first, last in self._parts():
                if deadline.is_up() or self.is_over.is_set():
                    break
                self._decide(first, last)
                progress(self.done / total)
        else:
            self._run_threads(number, deadline, progress)
        return not self.is_unsuited and (self.done == total or self._has_many_left())

    def _run_threads(self, number: int, deadline: Deadline, progress: Progress) -> None:
        total = int(self.prefixes.until[-1])
        with ThreadPoolExecutor(number) as pool:
            try:
                pending = []
                for first, last in self._parts():
                    pending.append(pool.submit(self._decide, first, last))
                    if len(pending) > 2 * number:
                        pending.pop(0).result()
                        progress(self.done / total)
                    if deadline.is_up() or self.is_over.is_set():
                        break
                for future in pending:
                    if deadline.is_up():
                        self.is_over.set()
                    future.result()
            finally:
                self.is_over.set()

    def _has_many_left(self) -> bool:
        return sum(map(len, self.found.left)) > MOST_LEFT

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Prefixes first..last-1 with about as many multisets as between two looks, fewer of them at first."""
        until, first, most = self.prefixes.until, 0, FIRST_LOOK
        while first < len(until):
            before = int(until[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(until, before + most, side="right")))
            yield first, last
            first, most = last, min(2 * most, self.look)

    def _decide(self, first: int, last: int) -> None:
        """Decides the multisets of some prefixes, unless it is over."""
        entries = np.empty((self.entries, 4), dtype=np.int32)
        while first < last and not self.is_over.is_set():
            begin = first
            with self.lock:
                slope, rest = self.narrow.threshold(0.0 if self.smallest.candidate else self.margin)
                self._limit(begin, last)
            first, number = self.loop(LoopAsked(self.narrow, begin, last, slope, rest, self.limit, self.wrong, entries))
            wrong = int((self.prefixes.outer[begin:first] * self.wrong[begin:first]).sum())
            near, low = (self._points(entries[:number], kind) for kind in (NEAR, WRONG))
            with self.lock:
                self.found.wrong_pairs += wrong * self.each
                self._add_smallest(*low)
                self.near += len(near[0])
                if UNSUITED * (self.near - AT_ONCE) > self.done + self.look:
                    self.is_unsuited = True
                    self.is_over.set()
            for start in range(0, len(near[0]), AT_ONCE):
                self._look_closer(*(index[start : start + AT_ONCE] for index in near))
                if self.is_over.is_set():
                    return
            with self.lock:
                before = int(self.prefixes.until[begin - 1]) if begin else 0
                self.done += int(self.prefixes.until[first - 1]) - before if first > begin else 0

    def _limit(self, first: int, last: int) -> None:
        """How many different tokens a wrong leaf may have to be the smallest; it may share one with its prefix."""
        best = self.smallest.candidate
        most = (self.table.stored.L if best is None else best.distinct) - 1
        self.limit[first:last] = most + 1 - self.prefixes.distinct[first:last]
        self.limit[first:last][self.prefixes.distinct[first:last] > most] = -1

    def _points(self, entries: np.ndarray, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """The prefixes and leaves of a loop's entries of one kind."""
        chosen = entries[entries[:, 3] == kind]
        i, lane = np.nonzero(chosen[:, 2, None] >> np.arange(LANES) & 1)
        return chosen[i, 0].astype(np.int64), chosen[i, 1] + lane

    def _add_smallest(self, prefixes: np.ndarray, leaves: np.ndarray) -> None:
        """Keeps the smallest input of multisets that are wrong."""
        if not len(prefixes):
            return
        of_leaf = self.prefixes.multisets.distinct[self.prefixes.leaf][leaves]
        distinct = 1 + self.prefixes.distinct[prefixes] + of_leaf - (leaves >= self.prefixes.unshared[prefixes])
        best, least = self.smallest.candidate, int(distinct.min())
        if best is None or least <= best.distinct:
            is_low = distinct == least
            self.smallest.add(self.table.smallest_of(self._as_points(prefixes[is_low], leaves[is_low])))

    def _as_points(self, prefixes: np.ndarray, leaves: np.ndarray) -> CellMultisets:
        return CellMultisets(self.k, len(prefixes), (self.prefixes.tokens(prefixes, leaves),))

    def _look_closer(self, prefixes: np.ndarray, leaves: np.ndarray) -> None:
        """Decides multisets near a tie by float64 and their own terms; what that leaves is `left`."""
        points = self._as_points(prefixes, leaves)
        bounds = self.table.singly(points, self.readout)
        with self.lock:
            is_wrong = self.readout.settle(points, bounds, self.found)
            self.margin = min(self.margin, self.found.margins.get(self.k, np.inf))
            self.found.wrong_pairs += self.prefixes.pairs(prefixes[is_wrong], leaves[is_wrong]) * self.each
            self._add_smallest(prefixes[is_wrong], leaves[is_wrong])
            if self._has_many_left():
                self.is_over.set()
