"""What is left of a merged row: one multiset of tokens, whose arrangement in the slots decides.

Slots are filled one after the other, those whose weights stand out first. The others hold what is left in any order:
by the rearrangement inequality a sum of weights times values is least where one falls as the other rises, so every
pre-activation's range and every linear form's minimum over the orders are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from verify.tasks.histogram.candidate import Candidate, Smallest
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.judging import judge, smaller
from verify.tasks.histogram.record import FIRST, PLACES, RIGHT, WRONG, Record
from verify.tasks.histogram.regions import Regions
from verify.tasks.histogram.relaxation import LogitLines, LogitPairs, Relaxation
from verify.tasks.histogram.stored import Array

BATCH = 1 << 10
Over = Callable[[], bool]


@dataclass
class Filled:
    """Sequences of one position: the first `depth` slots of its order are filled, the others in any order.

    Shapes: k (B,), symbols (B, L - 1) nodes of the tree, or Q for the query token; ways (B,) how many sequences they
    are; rivals (B, C); part (B,) numbers in the record of splits. The symbols of the slots not filled yet increase
    within each group.
    """

    place: int
    depth: int
    k: np.ndarray
    symbols: np.ndarray
    ways: np.ndarray
    rivals: np.ndarray
    part: np.ndarray

    def __len__(self) -> int:
        return len(self.k)

    def __getitem__(self, index: np.ndarray | slice) -> Filled:
        return Filled(self.place, self.depth, *(getattr(self, name)[index] for name in COLUMNS))


COLUMNS = tuple(field.name for field in fields(Filled))[2:]


class Place:
    """One position of a merged row: the order in which its slots are filled, and what its weights are."""

    def __init__(self, relaxation: Relaxation, place: int) -> None:
        row, stored = relaxation.row, relaxation.stored
        assert row.spread is not None and stored.A is not None
        self.position = row.positions[place]
        self.weights = row.spread.weights.mid[self.position]
        self.base = relaxation.bases[place]
        groups = row.slots[place]
        centre = {m: float(np.median(self.weights[list(group)])) for group in groups for m in group}
        group_of = {m: g for g, group in enumerate(groups) for m in group}
        self.order = sorted(centre, key=lambda m: -abs(self.weights[m] - centre[m]))
        self.group = np.array([group_of[m] for m in self.order], dtype=int)
        self.a = self.weights[self.order]
        stands = stored.A[self.position][self.order]
        self.is_alike = [
            all(len(set(stands[depth:][self.group[depth:] == g])) <= 1 for g in range(len(groups)))
            for depth in range(len(self.order) + 1)
        ]

    def open_groups(self, depth: int) -> list[np.ndarray]:
        """The indices into `order` of the slots not filled yet, group by group."""
        later = np.arange(depth, len(self.order))
        return [later[self.group[later] == g] for g in np.unique(self.group[later])]


class Arrangements:
    """The open multisets of one query token in one merged row."""

    def __init__(self, relaxation: Relaxation, exact: ExactForward, t: int, record: Record) -> None:
        self.relaxation, self.exact, self.t, self.record = relaxation, exact, t, record
        self.tree, self.stored = relaxation.tree, relaxation.stored
        members = [nodes[0] for nodes in self.tree.members]
        self.values = np.vstack([relaxation.H[members], relaxation.own_form])  # (Q + 1, r)
        self.token = np.array([int(relaxation.tokens[nodes].min()) for nodes in self.tree.members] + [t])
        self.copies = [int(size) for size in self.tree.size] + [1]
        self.places = [Place(relaxation, place) for place in range(len(relaxation.row.positions))]
        self.whole = np.int64 if self.stored.L**2 * self.stored.T**self.stored.L < 1 << 63 else object
        self.pending: dict[int, list[Filled]] = {}  # by log2 of the sequences
        self.wrong_pairs = 0
        self.margins: dict[int, float] = {}
        self._is_over: Over = lambda: False

    def add(self, points: Regions) -> None:
        """Takes over regions that fix a multiset for each group, and cannot be split."""
        if not len(points):
            return
        held = [self._held(points, g, int(size)) for g, size in enumerate(self.relaxation.row.sizes)]
        parts = self.record.split(points.part, PLACES, np.full(len(points), len(self.places)))
        parts = parts.reshape(len(points), len(self.places))
        for index, place in enumerate(self.places):
            symbols = np.zeros((len(points), len(place.order)), dtype=np.int32)
            for g, nodes in enumerate(held):
                symbols[:, place.group == g] = nodes
            self._push(Filled(index, 0, points.k, symbols, np.zeros(len(points)), points.rivals, parts[:, index]))

    def _held(self, points: Regions, g: int, size: int) -> np.ndarray:
        """The symbols that the slots of a group hold, in increasing order (B, size)."""
        copies = np.hstack([points.counts[:, g], points.own[:, [g]]])
        nodes = np.broadcast_to(np.arange(self.tree.Q + 1), copies.shape)
        return np.repeat(nodes.ravel(), copies.ravel()).reshape(len(points), size)

    def _push(self, parts: Filled) -> None:
        parts.ways = self._ways(parts)
        if parts.ways.dtype == object:  # perhaps beyond what float64 holds
            sizes = np.array([int(ways).bit_length() for ways in parts.ways])
        else:
            sizes = np.frexp(parts.ways.astype(float))[1]
        for size in np.unique(sizes):
            self.pending.setdefault(int(size), []).append(parts[sizes == size])

    def _ways(self, parts: Filled) -> np.ndarray:
        """How many sequences each of these are (B,)."""
        copies = np.array(self.copies, dtype=self.whole)[parts.symbols]
        ways = copies.prod(1)
        for slots in self.places[parts.place].open_groups(parts.depth):
            symbols, run = parts.symbols[:, slots], np.ones(len(parts), dtype=self.whole)
            for u in range(len(slots)):
                same = u > 0 and symbols[:, u] == symbols[:, u - 1]
                run = np.where(same, run + 1, 1) if u else run
                ways = ways * (u + 1) // run  # a multinomial of the first u + 1 symbols, times what was there
        return np.asarray(ways, dtype=self.whole)

    def open_pairs(self) -> int:
        return sum(int(part.ways.sum(dtype=object)) for parts in self.pending.values() for part in parts)

    def take(self, sizes: list[int]) -> list[Filled]:
        """What is pending of these sizes, no longer pending."""
        return [part for size in sizes for part in self.pending.pop(size, [])]

    def take_level(self, level: int) -> list[Filled]:
        """What is pending of at most this many symbols, no longer pending."""
        taken = []
        for part in self.take(list(self.pending)):
            is_low = self.distinct(part) <= level
            taken.append(part[is_low])
            self._push(part[~is_low])
        return [part for part in taken if len(part)]

    def run(self, parts: list[Filled], smallest: Smallest, is_over: Over) -> None:
        """Decides these, or replaces them by their parts."""
        self._is_over = is_over
        for batch in joined(parts):
            for start in range(0, len(batch), BATCH):
                if is_over():
                    self._push(batch[start:])
                    break
                self._decide(batch[start : start + BATCH], smallest)

    def _decide(self, parts: Filled, smallest: Smallest) -> None:
        place = self.places[parts.place]
        lower, upper = self._ranges(parts, place)
        lines = LogitLines.of(lower - self.relaxation.form_error, upper + self.relaxation.form_error)

        def least(i: np.ndarray, of: LogitPairs) -> tuple[Array, Array]:
            form, constant = lines.below(i, of)
            q = form @ self.values.T  # (P, Q + 1)
            at = np.take_along_axis(q, parts.symbols[i], 1)
            total = constant + form @ place.base + at[:, : parts.depth] @ place.a[: parts.depth]
            for slots in place.open_groups(parts.depth):
                total = total + np.sort(at[:, slots], axis=1)[:, ::-1] @ np.sort(place.a[slots])
            return total, np.zeros((len(i), 0))

        judged = judge(self.relaxation, parts.k, parts.rivals, least)
        D_upper = np.ones(len(parts))
        self.margins = smaller(self.margins, judged.margins(D_upper))
        self.record.close(parts.part[judged.right], RIGHT)
        self._add_wrong(parts[judged.wrong], place, smallest)
        left = np.flatnonzero(judged.is_open)
        if len(left):
            parts.rivals = parts.rivals & judged.rivals(self.margins, D_upper)
            self._split(parts[left], place, smallest)

    def _ranges(self, parts: Filled, place: Place) -> tuple[Array, Array]:
        """The range of every linear form over the orders of what is left: (B, r) twice."""
        values = self.values[parts.symbols]  # (B, L - 1, r)
        fixed = place.base + np.einsum("bnr,n->br", values[:, : parts.depth], place.a[: parts.depth])
        lower, upper = fixed, fixed
        for slots in place.open_groups(parts.depth):
            rising, a = np.sort(values[:, slots], axis=1), np.sort(place.a[slots])
            lower = lower + np.einsum("bnr,n->br", rising, a[::-1])
            upper = upper + np.einsum("bnr,n->br", rising, a)
        return lower, upper

    def _split(self, parts: Filled, place: Place, smallest: Smallest) -> None:
        """Fills the next slot in every way; what is the same in every order is judged exactly."""
        is_single = np.full(len(parts), place.is_alike[parts.depth])
        groups = place.open_groups(parts.depth)
        is_single |= np.all([(np.diff(parts.symbols[:, slots], axis=1) == 0).all(1) for slots in groups], axis=0)
        for i in np.flatnonzero(is_single):
            if self._is_over():
                self._push(parts[i : i + 1])
            else:
                self._judge_exactly(parts[i : i + 1], place, smallest)
        parts = parts[~is_single]
        if not len(parts):
            return
        group = place.group[parts.depth]
        slots = next(slots for slots in groups if place.group[slots[0]] == group)
        choices = parts.symbols[:, slots]
        is_first = np.hstack([np.ones((len(parts), 1), dtype=bool), choices[:, 1:] != choices[:, :-1]])
        groups_of_all = len(self.relaxation.row.sizes)
        code = FIRST + groups_of_all * (1 + self.tree.Q) + place.order[parts.depth]
        numbers = np.full(is_first.shape, -1)
        numbers[is_first] = self.record.split(parts.part, code, is_first.sum(1))
        for u in range(len(slots)):
            is_new = is_first[:, u]
            if not is_new.any():
                continue
            child = parts[is_new]
            child.part = numbers[is_new, u]
            symbols = child.symbols.copy()
            symbols[:, slots] = np.hstack([child.symbols[:, slots[[u]]], np.delete(child.symbols[:, slots], u, axis=1)])
            filled = Filled(parts.place, parts.depth + 1, child.k, symbols, child.ways, child.rivals, child.part)
            self._push(filled)

    def _judge_exactly(self, part: Filled, place: Place, smallest: Smallest) -> None:
        candidate = self._first_input(part, place)
        judgement = self.exact.judge(candidate.tokens, candidate.position)
        if judgement.is_right:
            k = int(part.k[0])
            self.margins = smaller(self.margins, {k: judgement.margin[0]})
            self.record.close(part.part, RIGHT)
        else:
            self._add_wrong(part, place, smallest)

    def _add_wrong(self, parts: Filled, place: Place, smallest: Smallest) -> None:
        if len(parts):
            self.wrong_pairs += int(parts.ways.sum(dtype=object))
            self.record.close(parts.part, WRONG)
            smallest.add(self._first_input(parts, place))

    def _first_input(self, parts: Filled, place: Place) -> Candidate:
        """The smallest sequence among these."""
        sequences = np.full((len(parts), self.stored.L), self.t)
        tokens = self.token[parts.symbols]
        sequences[:, place.order[: parts.depth]] = tokens[:, : parts.depth]
        for slots in place.open_groups(parts.depth):
            free = sorted(place.order[u] for u in slots)
            sequences[:, free] = np.sort(tokens[:, slots], axis=1)
        ordered = np.sort(sequences, axis=1)
        distinct = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
        best = np.lexsort([*sequences.T[::-1], distinct])[0]
        return Candidate(int(distinct[best]), tuple(int(x) for x in sequences[best]), place.position)

    def distinct(self, parts: Filled) -> np.ndarray:
        """How many symbols each of these has, the query token among them (B,)."""
        ordered = np.sort(np.hstack([parts.symbols, np.full((len(parts), 1), self.tree.Q)]), axis=1)
        result: np.ndarray = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
        return result


def joined(parts: list[Filled]) -> list[Filled]:
    """The same sequences in one batch for each position and depth."""
    alike: dict[tuple[int, int], list[Filled]] = {}
    for part in parts:
        alike.setdefault((part.place, part.depth), []).append(part)
    return [
        Filled(*key, *(np.concatenate([getattr(part, name) for part in same]) for name in COLUMNS))
        for key, same in alike.items()
    ]
