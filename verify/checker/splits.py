"""Walks a saved tree of splits, has every leaf decided again, and counts what the leaves hold (docs/checker.md)."""

import base64
import binascii
import zlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb
from typing import NamedTuple, TypedDict

from verify.checker.leaves import Group, Leaf, QueryCell, Region, Trail, Work, fillings, is_right_by
from verify.checker.mathematics import Model
from verify.checker.one_by_one import Run
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, read_json, recorded, require

RIGHT, WRONG, OPEN, EACH, PLACES, FIRST = range(6)  # from FIRST on: share out a group, halve a cluster, fill a slot
MOST_BYTES = 1 << 26  # of a tree that is no longer compressed
TOO_MANY = "more than 262144 parts: the splits are not kept, and `verify check` cannot repeat them"
BY_VARIANCES = "the share is bracketed by means and variances: `verify check` cannot repeat it"
NOT_KEPT = [{"parts": None, "data": None, "reason": reason} for reason in (TOO_MANY, BY_VARIANCES)]
EXAMINED = 16  # open cells of which inputs are run: where the weights are wrong, one of the first mostly shows it


class SplitPairs(NamedTuple):
    """(sequence, position) pairs that are wrong, and that are open."""

    wrong: int = 0
    open: int = 0


class SavedTree(TypedDict):
    """Rows of positions and their slots; cells of a row, a token, its clusters, and codes by count."""

    rows: list[tuple[list[int], list[list[list[int]]]]]
    cells: list[tuple[int, int, list[list[int]], list[tuple[int, list[int]]]]]


def halves(cell: QueryCell, region: Region, g: int, node: int) -> list[Region]:
    """A region by how many slots of a cluster hold tokens of its first half."""
    group, S = region.groups[g], len(cell.others)
    is_cluster = S <= node < len(cell.members) and node in group.counts and not region.filled
    require(is_cluster, f"tree: cluster {node} cannot be halved")
    (left, right), n, found = cell.clusters[node - S], group.counts[node], []
    for first in range(n + 1):
        counts = {q: m for q, m in group.counts.items() if q != node}
        for half, more in ((left, first), (right, n - first)):
            counts[half] = counts.get(half, 0) + more
        counts = {q: m for q, m in counts.items() if m}
        groups = (*region.groups[:g], Group(group.slots, group.own, counts), *region.groups[g + 1 :])
        found.append(Region(groups, (), region.place))
    return found


def shared_out(cell: QueryCell, region: Region, g: int, k: int) -> list[Region]:
    """A region by how many slots of a group hold the query token."""
    group = region.groups[g]
    require(group.own is None and cell.is_whole, f"tree: group {g} is shared out twice, or has no clusters")
    missing = k - 1 - sum(other.own or 0 for other in region.groups)
    elsewhere = sum(len(other.slots) for i, other in enumerate(region.groups) if other.own is None and i != g)
    found, size = [], len(group.slots)
    for own in range(max(0, missing - elsewhere), min(size, missing) + 1):
        counts = {len(cell.members) - 1: size - own} if size > own else {}
        found.append(Region((*region.groups[:g], Group(group.slots, own, counts), *region.groups[g + 1 :])))
    return found


def multisets(cell: QueryCell, k: int) -> Iterator[Region]:
    """Every multiset of other tokens in each group."""
    sizes, missing = [len(group) for group in cell.slots[0]], cell.model.L - k
    for levels in product(*(range(min(size, missing) + 1) for size in sizes)):
        if sum(levels) == missing:
            for held in product(*(combinations_with_replacement(range(len(cell.others)), m) for m in levels)):
                yield multiset(cell, held)


def multiset(cell: QueryCell, held: Sequence[Sequence[int]]) -> Region:
    """The region whose groups hold these other tokens."""
    groups = []
    for slots, tokens in zip(cell.slots[0], held, strict=True):
        counts = {token: tokens.count(token) for token in sorted(tokens)}
        groups.append(Group(tuple(slots), len(slots) - len(tokens), counts))
    return Region(tuple(groups))


def split(cell: QueryCell, region: Region, k: int, code: int) -> list[Region]:
    """The parts of a region that is split as a code says."""
    if code == PLACES:
        require(region.place is None, "tree: split by position twice")
        return [cell.placed(region, place) for place in range(len(cell.positions))]
    n, G = code - FIRST, len(region.groups)
    if n < G:
        return shared_out(cell, region, n, k)
    n -= G
    return halves(cell, region, *divmod(n, cell.Q)) if n < G * cell.Q else fillings(region, n - G * cell.Q)


def walk(cell: QueryCell, k: int, codes: Iterator[int], work: Work) -> SplitPairs:
    """What the tree of one own count holds, after every leaf has been decided again."""
    leaf, wrong, unknown = Leaf(cell, k), 0, 0
    stack: list[tuple[Region | None, Trail]] = [(None, None)]
    while stack:
        region, trail = stack.pop()
        code = next(codes)
        work.part()
        if code == EACH:
            require(region is None, "tree: multisets are decided one by one only from the root on")
            listed = [_listed(cell, codes) for _ in range(next(codes))]
            wrong += _each(leaf, listed, work)
            stack += [(part, None) for part in reversed(listed)]
            continue
        if code == OPEN:
            unknown += cell.ways(region or cell.everything(), k)
            continue
        region = region or cell.root(k)
        if code in (RIGHT, WRONG):
            holds = leaf.is_right(region, trail) if code == RIGHT else leaf.is_wrong(region)
            require(holds, *_unshown(leaf, region, code))
            wrong += cell.ways(region, k) * code
        else:
            stack += [(part, (region, trail)) for part in reversed(split(cell, region, k, code))]
    return SplitPairs(wrong, unknown)


def _listed(cell: QueryCell, codes: Iterator[int]) -> Region:
    held = [[next(codes) for _ in range(next(codes))] for _ in cell.slots[0]]
    fits = all(len(tokens) <= len(slots) for tokens, slots in zip(held, cell.slots[0], strict=True))
    require(fits and all(s < len(cell.others) for tokens in held for s in tokens), "tree: no such multiset")
    return multiset(cell, held)


def _each(leaf: Leaf, listed: list[Region], work: Work) -> int:
    """How many pairs of all multisets are wrong that are not listed."""
    sizes, missing = [len(group) for group in leaf.cell.slots[0]], leaf.model.L - leaf.k
    S, numbers = len(leaf.cell.others), [1] + [0] * missing
    for size in sizes:
        ways = [comb(S - 1 + m, m) for m in range(size + 1)]
        numbers = [sum(numbers[m - i] * ways[i] for i in range(min(m, size) + 1)) for m in range(missing + 1)]
    work.more(numbers[missing] * len(leaf.cell.classes))
    left, wrong = {_key(region) for region in listed}, 0
    require(len(left) == len(listed), "tree: a multiset is listed twice")
    found = 0
    for place, alike in leaf.cell.classes.items():
        run, here = Run(leaf, leaf.cell.at(place)), 0
        for region in multisets(leaf.cell, leaf.k):
            if _key(region) in left:
                found += 1
            else:
                here += run.settle(leaf.cell.placed(region, place), work)
        wrong += alike * (here + run.decide())
    is_met = found == len(left) * len(leaf.cell.classes)
    require(is_met, "tree: a multiset is listed that is none of this count")
    return wrong


def _key(region: Region) -> object:
    return tuple(tuple(sorted(group.counts.items())) for group in region.groups)


def _unshown(leaf: Leaf, region: Region, code: int) -> tuple[str, int]:
    """Why a leaf is refused: an input that is not as it says, or that its bound does not show it.

    What real arithmetic makes of an input says nothing where roundings are taken off: they may help.
    """
    place = leaf.cell.looked_at(region)[0]
    at, here = leaf.cell.at(place), leaf.cell.placed(region, place)
    where = f"tree: position {at.position}, token {leaf.cell.t}, count {leaf.k}"
    if not leaf.model.roundings and all(group.own is not None for group in here.groups):
        tokens = leaf.an_input(at, here)
        if is_right_by(leaf.model, tokens, at.position, Fraction(leaf.margin, leaf.model.one)) != (code == RIGHT):
            return f"{where}: {tokens} is not {('right by the margin', 'wrong')[code]}", FAILS
    return f"{where}: a leaf is not shown to be {('right', 'wrong')[code]} throughout", NOT_CHECKABLE


def decide(model: Model, tree: object) -> SplitPairs:
    """What a tree holds, after its leaves have been decided again, and all else that its vertices do not show."""
    held, covered = SplitPairs(), set[tuple[int, int, int]]()
    if tree is not None and tree not in NOT_KEPT:
        held, covered = _decide_tree(model, tree)
    left = [cell for cell in model.open_cells() if cell not in covered]
    for position, t, k in left[: 0 if model.roundings else EXAMINED]:
        for s in {*range(model.T)} - {t}:
            tokens = [t] * (k - 1) + [s] * (model.L - k)
            tokens.insert(position, t)
            margin = Fraction(model.margins[k - 1], model.one)
            is_right = is_right_by(model, tokens, position, margin)
            require(is_right, f"margin_per_count: position {position} of {tokens} is not right by {float(margin)}")
    why = "what roundings may do is too much" if model.roundings else "split cases are not kept"
    require(not left, f"position, token, count {left[:1]}: {why}", NOT_CHECKABLE)
    return held


def _decide_tree(model: Model, tree: object) -> tuple[SplitPairs, set[tuple[int, int, int]]]:
    """What all trees hold, and which positions, query tokens and own counts they are about."""
    if not isinstance(tree, dict) or {*tree} != {"parts", "data", "reason"}:
        raise Refusal("tree: must have parts, data and reason")
    try:
        saved = _read(tree["data"])
        covered, held, work = set[tuple[int, int, int]](), SplitPairs(), Work()
        for index, t, clusters, trees in saved["cells"]:
            _whole([index, t, *(n for pair in clusters for n in pair)])
            positions, slots = saved["rows"][index]
            require(t < model.T, f"tree: no token {t}")
            _check_row(model, positions, slots)
            cell = QueryCell(model, t, clusters, positions, slots)
            for k, numbers in trees:
                require(type(k) is int and 1 <= k <= model.L, f"tree: no count {k}")
                mine = {(position, t, k) for position in positions}
                require(not covered & mine, f"tree: token {t} with count {k} is decided twice")
                covered |= mine
                codes = iter(_whole(numbers))
                found = walk(cell, k, codes, work)
                require(next(codes, None) is None, f"tree: parts of token {t} with count {k} are left over")
                held = SplitPairs(held.wrong + found.wrong, held.open + found.open)
    except (TypeError, ValueError, LookupError, StopIteration, zlib.error, binascii.Error) as error:
        raise Refusal(f"tree: cannot be read ({type(error).__name__}), or a part is missing") from None
    is_said = type(tree["parts"]) is int and tree["parts"] == work.parts and tree["reason"] is None
    require(is_said, f"tree: has {work.parts} parts, and says {tree['parts']!r}")
    return held, covered


def _read(data: str) -> SavedTree:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(base64.b64decode(data, validate=True), MOST_BYTES)
    require(unpacking.eof and not unpacking.unused_data, f"tree: is cut, or longer than {MOST_BYTES} bytes")
    found = read_json(text, "the tree")
    require({*found} == {"rows", "cells"}, "tree: must have rows and cells")
    return recorded(found, SavedTree)


def _whole(numbers: object) -> list[int]:
    if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
        raise Refusal("tree: no whole numbers")
    return numbers


def _check_row(model: Model, positions: list[int], slots: list[list[list[int]]]) -> None:
    """Positions that are there, and for each of them its other positions in groups of the same sizes."""
    require(
        len({*_whole(positions)}) == len(positions) == len(slots) > 0, "tree: a row without positions, or twice one"
    )
    if not model.is_linear:
        require(positions == [*range(model.L)], "tree: without a mixing matrix all positions are one row")
    for position, groups in zip(positions, slots, strict=True):
        own = position if model.is_linear else 0
        found = sorted(m for group in groups for m in [*_whole(group), *([-1] if not group else [])])
        require(
            own < model.L and found == [m for m in range(model.L) if m != own], "tree: slots that are not the others"
        )
        require([*map(len, groups)] == [*map(len, slots[0])], "tree: groups of other sizes at another position")
        require(model.is_linear or len(groups) < 2, "tree: without a mixing matrix all slots are one group")
