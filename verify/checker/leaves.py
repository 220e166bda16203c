"""Decides a leaf of a tree of splits, a region of inputs, again in exact integers (docs/checker.md)."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import comb, factorial
from typing import NamedTuple

from flint import fmpz_mat

from verify.checker.mathematics import Interval, Model
from verify.checker.reading import NOT_CHECKABLE, require

MOST_PARTS = 1 << 19  # leaves, and multisets that are decided one by one
FINE = 60  # bits of a slope
IN_REAL = "tree: in a dtype no part is run, or wrong throughout"

Trail = tuple["Region", "Trail"] | None
Choice = Callable[[int, int], bool]


class Group(NamedTuple):
    """Slots, how many of them hold the query token (None: not shared out yet), and how many each cluster's tokens."""

    slots: tuple[int, ...]
    own: int | None
    counts: dict[int, int]  # never zero


class Region(NamedTuple):
    """Inputs of one query token and own count: groups of slots, and slots that are filled (cluster, or -1: own token).

    It speaks of all positions of its row, or of the one with the index `place`.
    """

    groups: tuple[Group, ...]
    filled: tuple[tuple[int, int], ...] = ()
    place: int | None = None


class LeafForm:
    """The terms of a linear form at one position: D (u_t + bias) + (sum of weight u_s over all that is mixed)."""

    def __init__(self, at: "At", u: Sequence[int], bias: int, n: Mapping[int, int]) -> None:
        model, t = at.model, at.cell.t
        rest, (lost, always) = u[t] + bias, model.costs(t, u, n)
        if model.is_softmax:  # D is the sum of the weights
            u = [x + rest for x in u]
        if model.is_linear:
            u, lost = [x - y for x, y in zip(u, lost, strict=True)], [0] * len(u)
        self.base = rest * model.D[rest < 0] + sum(u[s] * weight[u[s] < 0] - lost[s] for weight, s in at.fixed) - always
        self.at = at
        if not model.is_linear:  # each token has a weight of its own
            u = [u[s] * at.weights[s][u[s] < 0] - lost[s] for s in range(model.T)]
        low = [u[s] for s in at.cell.others]
        high = low[:]
        for a, b in at.cell.clusters:
            low.append(min(low[a], low[b]))
            high.append(max(high[a], high[b]))
        self.rest = min(low), max(high)
        self.low, self.high = [*low, u[t]], [*high, u[t]]  # the query token last, which -1 names

    def least(self, region: Region, k: int) -> int:
        """A lower bound over a region."""
        total, missing, gains = self.base, k - 1, list[int]()
        for slot, node in region.filled:
            total += _product(self.at.weight(slot), self.low[node], self.high[node])
            missing -= node == -1
        for slots, own, counts in region.groups:
            if own is None:
                for slot in slots:
                    weight = self.at.weight(slot)
                    rest = _product(weight, *self.rest)
                    total += rest
                    gains.append(_product(weight, self.low[-1], self.high[-1]) - rest)
                continue
            total, missing = total + self._group(slots, own, counts), missing - own
        return total + sum(sorted(gains)[:missing])

    def _group(self, slots: tuple[int, ...], own: int, counts: dict[int, int]) -> int:
        """The least sum over the slots of a group, in whatever order they hold these tokens.

        By the rearrangement inequality weights that fall meet terms that rise; of weights of both signs, a common part
        is taken off first, with which the order does not matter.
        """
        held = [(-1, own), *counts.items()]
        weights = self.at.of_group(slots)
        if len({*weights}) <= 1:
            terms = [n * _product(weights[0], self.low[node], self.high[node]) for node, n in held if n]
            return sum(terms)
        low = sorted(self.low[node] for node, n in held for _ in range(n))
        high = sorted(self.high[node] for node, n in held for _ in range(n))
        falling = sorted((a for a, _ in weights), reverse=True)
        slack = sum(b - a for a, b in weights) * max(abs(low[0]), abs(high[-1]))
        found = []
        for common, terms in ((falling[-1], low), (falling[0], high)):
            apart = sum((a - common) * x for a, x in zip(falling, terms, strict=True))
            total = sum(n * min(common * self.low[node], common * self.high[node]) for node, n in held)
            found.append(total + apart)
        return max(found) - slack


class At:
    """One position of a cell: its weights, and all linear forms of its pre-activations."""

    def __init__(self, cell: "QueryCell", position: int) -> None:
        model = self.model = cell.model
        self.cell, self.position = cell, position
        scores = model.scores[position if model.is_linear else cell.t]
        top = max(scores) if model.is_softmax else 0
        self.weights = [model.weight(score - top) for score in scores]
        fixed = [position] if model.is_linear else [cell.t, *range(model.T, len(self.weights))]
        self.fixed = [(self.weights[s], cell.t if model.is_linear else s) for s in fixed]
        columns = [*enumerate(zip(model.columns, model.biases, strict=True))]
        self.low = [LeafForm(self, u, b, {i: 1}) for i, (u, b) in columns]
        self.minus_high = [LeafForm(self, [-x for x in u], -b, {i: 1}) for i, (u, b) in columns]
        self.matrix = fmpz_mat(model.columns)

    def weight(self, slot: int) -> Interval:
        return self.weights[slot] if self.model.is_linear else (1, 1)

    def of_group(self, slots: tuple[int, ...]) -> list[Interval]:
        return [self.weights[slot] for slot in slots] if self.model.is_linear else [(1, 1)] * len(slots)

    def ranges(self, region: Region, k: int) -> list[Interval]:
        """Between which numbers D times each pre-activation lies; the last is D."""
        low = [form.least(region, k) for form in self.low]
        return [(x, -form.least(region, k)) for x, form in zip(low, self.minus_high, strict=True)]

    def unshown(self, region: Region, k: int, pairs: Sequence[tuple[int, int]], margin: int, need: int) -> list[int]:
        """Indices of pairs of classes (c, other) of which D (logit c - logit other - margin) >= need is not shown."""
        model, ranges = self.model, self.ranges(region, k)
        slopes = [model.slopes(c, other) for c, other in pairs]
        left = []
        for i, slope in enumerate(slopes):
            slope[-1] -= margin
            ends = ((n, max(0, x), max(0, y)) for n, (x, y) in zip(slope, ranges, strict=True))
            if sum(n * (x if n > 0 else y) for n, x, y in ends) < need:
                left.append(i)
        for choose in (lambda x, y: y > -x, lambda x, y: True, lambda x, y: False):  # the line below a ReLU: z or 0
            if left:
                found = self._relaxed(region, k, [slopes[i] for i in left], ranges, choose)
                # any part of a unit above 0 is enough where the difference must be above 0
                left = [i for i, least in zip(left, found, strict=True) if least < need]
        return left

    def _relaxed(
        self, region: Region, k: int, slopes: list[list[int]], ranges: list[Interval], choose: Choice
    ) -> list[int]:
        """Lower bounds on sum of slope ReLU(z): an undecided ReLU lies above 0 and z, and below its chord."""
        lines = []
        for x, y in ranges:
            if x >= 0 or y <= 0:
                lines.append((y > 0 or x > 0, int(y > 0 or x > 0) << FINE, 0))
                continue
            chord = (y << FINE) // (y - x)
            lines.append((choose(x, y), chord, max(-chord * x, ((1 << FINE) - chord) * y)))
        forms, excesses = [], []
        for slope in slopes:
            pairs = list(zip(slope, lines, strict=True))
            forms.append([n * (under << FINE) if n > 0 else n * over for n, (under, over, _) in pairs])
            excesses.append(sum(n * excess for n, (_, _, excess) in pairs if n < 0))
        values = (fmpz_mat(forms) * self.matrix).tolist()
        return [
            LeafForm(
                self,
                [int(x) for x in u],
                sum(n * b for n, b in zip(form, self.model.biases, strict=True)),
                dict(enumerate(form)),
            ).least(region, k)
            + excess
            for u, form, excess in zip(values, forms, excesses, strict=True)
        ]


class QueryCell:
    """One query token in one row of positions."""

    def __init__(
        self, model: Model, t: int, clusters: list[list[int]], positions: list[int], slots: list[list[list[int]]]
    ) -> None:
        self.model, self.t, self.positions, self.slots = model, t, positions, slots
        self.others = [s for s in range(model.T) if s != t]
        S = len(self.others)
        self.Q, self.clusters = 2 * S - 1, [(a, b) for a, b in clusters]
        require(len(self.clusters) in (0, S - 1), f"tree: {len(self.clusters)} clusters of {S} tokens")
        self.members = [{s} for s in self.others]
        for a, b in self.clusters:
            is_pair = (
                0 <= a < len(self.members) and 0 <= b < len(self.members) and not self.members[a] & self.members[b]
            )
            require(is_pair, f"tree: clusters {a} and {b} cannot be joined")
            self.members.append(self.members[a] | self.members[b])
        self.is_whole = S == 1 or bool(self.clusters)  # then the last cluster holds all other tokens
        self._at: dict[int, At] = {}

    def at(self, place: int) -> At:
        """What is known of one position; positions that mix alike share it."""
        if not self.model.is_linear:
            place = 0
        if place not in self._at:
            self._at[place] = At(self, self.positions[place])
        return self._at[place]

    @cached_property
    def classes(self) -> dict[int, int]:
        """An index of each kind of positions, with how many there are: the same weights in each group in some order."""
        if not self.model.is_linear:
            return {0: self.model.L}
        kinds: dict[object, list[int]] = {}
        for place, (position, groups) in enumerate(zip(self.positions, self.slots, strict=True)):
            scores = self.model.scores[position]
            kinds.setdefault((scores[position], *(tuple(sorted(scores[m] for m in g)) for g in groups)), []).append(
                place
            )
        return {places[0]: len(places) for places in kinds.values()}

    def looked_at(self, region: Region) -> list[int]:
        return [*self.classes] if region.place is None else [region.place]

    def everything(self) -> Region:
        """All inputs, no group shared out yet."""
        return Region(tuple(Group(tuple(slots), None, {}) for slots in self.slots[0]))

    def root(self, k: int) -> Region:
        """All inputs; a single group is shared out, since the own count says how."""
        whole, missing = self.everything(), self.model.L - k
        if len(whole.groups) != 1:
            return whole
        require(self.is_whole or not missing, "tree: no clusters")
        return Region((Group(whole.groups[0].slots, k - 1, {len(self.members) - 1: missing} if missing else {}),))

    def placed(self, region: Region, place: int) -> Region:
        """The region at one of its positions."""
        if region.place is not None:
            return region
        slots = [tuple(group) for group in self.slots[place]]
        groups = (Group(own, *group[1:]) for own, group in zip(slots, region.groups, strict=True))
        return Region(tuple(groups), (), place)

    def ways(self, region: Region, k: int) -> int:
        """How many (sequence, position) pairs a region holds."""
        found, free, missing = len(self.positions) if region.place is None else 1, 0, k - 1
        for _, node in region.filled:
            found, missing = found * (1 if node == -1 else len(self.members[node])), missing - (node == -1)
        for slots, own, counts in region.groups:
            if own is None:
                free += len(slots)
                continue
            found, missing = found * factorial(len(slots)) // factorial(own), missing - own
            for node, n in counts.items():
                found = found // factorial(n) * len(self.members[node]) ** n
        total: int = found * comb(free, missing) * (self.model.T - 1) ** (free - missing)
        return total

    def is_alike(self, node: int) -> bool:
        """Whether the tokens of a cluster act exactly alike."""
        first, *rest = sorted(self.members[node])
        model, weights = self.model, self.at(0).weights
        if any(model.V[s] != model.V[first] for s in rest):
            return False
        return model.is_linear or all(
            model.scores[self.t][s] == model.scores[self.t][first] and weights[s] == weights[first] for s in rest
        )


class Leaf:
    """Decides regions of one cell and own count."""

    def __init__(self, cell: QueryCell, k: int) -> None:
        self.cell, self.model, self.k = cell, cell.model, k
        self.right = self.model.right(k)
        self.others = [c for c in self.model.classes if c != self.right]
        self.margin, self.need = self.model.margins[k - 1], self.model.need

    def is_right(self, region: Region, trail: Trail = None) -> bool:
        """Whether the right logit is ahead of each other one by the margin, here or in a region around this one."""
        for place in self.cell.looked_at(region):
            at, left, around, outside = self.cell.at(place), self.others, region, trail
            while left:
                pairs = [(self.right, c) for c in left]
                found = at.unshown(self.cell.placed(around, place), self.k, pairs, self.margin, self.need)
                left = [left[i] for i in found]
                if outside is None:
                    break
                around, outside = outside
            if left and not self._is_right_exactly(at, self.cell.placed(region, place)):
                return False
        return True

    def is_wrong(self, region: Region) -> bool:
        """Whether some other logit is never below the right one."""
        require(not self.model.roundings, IN_REAL, NOT_CHECKABLE)
        pairs = [(c, self.right) for c in self.others]
        for place in self.cell.looked_at(region):
            at, here = self.cell.at(place), self.cell.placed(region, place)
            if len(at.unshown(here, self.k, pairs, 0, 0)) == len(pairs) and not self._is_wrong_exactly(at, here):
                return False
        return True

    def _is_right_exactly(self, at: At, region: Region) -> bool:
        if self.model.roundings or not self.is_one_input(at, region):
            return False
        return is_right_by(self.model, self.an_input(at, region), at.position, Fraction(self.margin, self.model.one))

    def _is_wrong_exactly(self, at: At, region: Region) -> bool:
        if not self.is_one_input(at, region) or not self.others:
            return False
        return self.model.sign(self.model.judge(self.an_input(at, region), at.position)[1]) <= 0

    def is_one_input(self, at: At, region: Region) -> bool:
        """Whether all inputs of a region give the same logits, since what differs acts exactly alike."""
        for slots, own, counts in region.groups:
            if own is None or not all(map(self.cell.is_alike, counts)):
                return False
            if len(symbols_of(Group(slots, own, counts))) > 1 and len({*at.of_group(slots)}) > 1:
                return False
        return all(node == -1 or self.cell.is_alike(node) for _, node in region.filled)

    def an_input(self, at: At, region: Region) -> list[int]:
        """One input of a region: the smallest token of each cluster."""
        t, tokens = self.cell.t, [self.cell.t] * self.model.L
        held: list[tuple[tuple[int, ...], dict[int, int]]] = []
        held += [((slot,), {node: 1}) for slot, node in region.filled if node != -1]
        for slots, own, counts in region.groups:
            held.append((slots[own or 0 :], counts))
        for slots, counts in held:
            symbols = [min(self.cell.members[node]) for node, n in counts.items() for _ in range(n)]
            for slot, token in zip(slots, symbols, strict=False):
                tokens[slot] = token
        require(tokens[at.position] == t, "tree: a slot is the position itself")
        return tokens


class Work:
    """Counts parts, and what is decided besides, and refuses where it is too much."""

    def __init__(self) -> None:
        self.parts = self.done = 0

    def part(self) -> None:
        self.parts += 1
        self.more(1)

    def more(self, number: int) -> None:
        self.done += number
        require(self.done <= MOST_PARTS, f"tree: more than {MOST_PARTS} parts are to be decided", NOT_CHECKABLE)


def _product(weight: Interval, low: int, high: int) -> int:
    """The least product of a weight and a number between these."""
    a, b = weight
    return min(a * low, a * high) if a == b else min(a * low, a * high, b * low, b * high)


def held_by(group: Group) -> list[tuple[int, int]]:
    """What a group's slots hold, each with how many of them: clusters, and -1 for the query token, which comes last."""
    return [*sorted(group.counts.items()), *([(-1, group.own)] if group.own else [])]


def symbols_of(group: Group) -> list[int]:
    """The clusters that a group's slots hold, and -1 for the query token, which comes last."""
    return [node for node, _ in held_by(group)]


def fillings(region: Region, slot: int) -> list[Region]:
    """A region by what a slot holds, in increasing order and the query token last."""
    index = next((i for i, group in enumerate(region.groups) if slot in group.slots), None)
    is_open = index is not None and region.place is not None and region.groups[index].own is not None
    require(is_open, f"tree: slot {slot} cannot be filled")
    group, found = region.groups[index or 0], []
    rest = tuple(m for m in group.slots if m != slot)
    for node in symbols_of(group):
        own = (group.own or 0) - (node == -1)
        counts = {q: n - (q == node) for q, n in group.counts.items() if n > (q == node)}
        groups = (*region.groups[:index], Group(rest, own, counts), *region.groups[(index or 0) + 1 :])
        found.append(Region(groups, (*region.filled, (slot, node)), region.place))
    return found


def is_right_by(model: Model, tokens: list[int], position: int, margin: Fraction) -> bool:
    """Whether one input is right by a margin, or without one right at all."""
    _, difference, D = model.judge(tokens, position)
    return model.compare(difference, D, margin) >= 0 and model.sign(difference) > 0
