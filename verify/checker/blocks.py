"""Selective tasks on all strings, type by type: saved boxes of the units that see one type, which every token maps on.

A unit sees a type if its step reads it, or reads a unit that sees it. Where each sees one at most, the units of a type
and those that see none take steps of their own, for which all other tokens are one. A case is how often the type was
read, as far as that is judged, and whether the last token is of it. So by induction each state is in its case's box.
"""

from dataclasses import replace

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.closed_sets import least_gap
from verify.checker.computed_orders import exact
from verify.checker.one_string import RightClasses
from verify.checker.reading import NOT_CHECKABLE, recorded, require
from verify.checker.records import LineCertificate, LineParameters, SetsOfTypes
from verify.checker.recurrent import GATES, PARTS, StoredLayer, StoredNetwork, network, positive_margin
from verify.checker.rounded import BITS, stored_network
from verify.checker.rounded_boxes import Box, ComputedBoxes, is_within

MOST_COUNTS = 1000
OWN, OTHER = 0, 1  # what the last token is; None before the first

Case = tuple[int, int | None]  # the count, and the last token


def proved(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks each block's boxes as sets of states are, and the right answer on all blocks' boxes together."""
    found, margin = recorded(c["sets_found"], SetsOfTypes), exact(positive_margin(c))
    require(said["model"] in GATES, f"sets of states of {said['model']!r} are not checked", NOT_CHECKABLE)
    with ctx.workprec(BITS):
        net, fmt = (network(weights, said), None) if c["reading"] == "real" else stored_network(weights, said)
        due = RightClasses.of_all(c, said, len(net.tokens), len(net.b))
        require(due.C <= MOST_COUNTS and (due.m or 0) <= MOST_COUNTS, "more counts than are followed", NOT_CHECKABLE)
        units, cases = _units(net), _cases(due)
        require(len(found["low"]) == len(found["high"]) == due.types, "sets_found: must have boxes for each type")
        require(found["sets"] == due.types * len(cases), "sets_found: has another number of sets")
        blocks = []
        for i, own in enumerate(units):
            boxes = _boxes(found["low"][i], found["high"][i], cases, PARTS[net.kind] * len(own))
            _closed(ComputedBoxes(_block(net, own, i), fmt), boxes, due)
            blocks.append(boxes)
        on = ComputedBoxes(net, fmt)
        for i in range(due.types):
            for n in {n for n, last in cases if last == OWN}:
                right = due.of(n) if due.m is None else (n - 1) % due.m
                box = [] if right is None else _whole(net, units, blocks, i, n)
                for j in range(len(net.b)) if right is not None else ():
                    gap = margin if j == right else least_gap(on, box, right or 0, j)
                    what = f"count {n} of type {i}: class {right} is not shown to win over {j}"
                    require(gap >= margin, what, NOT_CHECKABLE)


def _units(net: StoredNetwork) -> list[list[int]]:
    """For each type the units that see no other."""
    H, K, (layer, *more) = net.hidden, len(net.tokens), net.layers
    is_one_hot = [[float(x) for x in row] for row in net.tokens] == [
        [float(i == j) for j in range(K)] for i in range(K)
    ]
    require(is_one_hot and not more, "units of several layers, or that read no one-hot tokens", NOT_CHECKABLE)
    gates = range(GATES[net.kind])
    seen = [{x for x in range(K) for g in gates if layer.W_x[g * H + u, x] != 0} for u in range(H)]
    read = [{v for v in range(H) for g in gates if layer.W_h[g * H + u, v] != 0} for u in range(H)]
    for _ in range(H):  # so many steps reach all that any number does
        seen = [own.union(*(seen[v] for v in others)) for own, others in zip(seen, read, strict=True)]
    require(max(map(len, seen)) <= 1, "a unit sees several types", NOT_CHECKABLE)
    return [[u for u in range(H) if seen[u] <= {i}] for i in range(K)]


def _block(net: StoredNetwork, own: list[int], i: int) -> StoredNetwork:
    """These units, which read a 1 at tokens of type i, and a 0 at others."""
    layer, rows = net.layers[0], [g * net.hidden + u for g in range(GATES[net.kind]) for u in own]
    W_x, W_h = arb_mat([[layer.W_x[r, i]] for r in rows]), arb_mat([[layer.W_h[r, v] for v in own] for r in rows])
    b_x, b_h = ([b[r] for r in rows] for b in (layer.b_x, layer.b_h))
    V, tokens = arb_mat([[net.V[j, u] for u in own] for j in range(len(net.b))]), ([arb(1)], [arb(0)])
    return replace(net, layers=[StoredLayer(W_x, W_h, b_x, b_h)], V=V, x=tokens[OWN], tokens=tokens)


def _next(due: RightClasses, case: Case, token: int) -> Case:
    n = case[0] + (token == OWN)
    return min(n, due.C + 1) if due.m is None else n % due.m, token


def _cases(due: RightClasses) -> list[Case]:
    """Every case that strings lead to, the start first."""
    found: list[Case] = [(0, None)]
    for case in found:
        found += [after for x in (OWN, OTHER) if (after := _next(due, case, x)) not in found]
    return found


def _boxes(low: list[list[float]], high: list[list[float]], cases: list[Case], size: int) -> dict[Case, Box]:
    is_whole = len(low) == len(high) == len(cases) and all(len(row) == size for row in (*low, *high))
    require(is_whole, f"sets_found: must have {len(cases)} boxes of {size} numbers for each type")
    ends = (zip(*pair, strict=True) for pair in zip(low, high, strict=True))
    boxes = ([(exact(arb(a)), exact(arb(b))) for a, b in pairs] for pairs in ends)
    return dict(zip(cases, boxes, strict=True))


def _closed(on: ComputedBoxes, boxes: dict[Case, Box], due: RightClasses) -> None:
    """The start is in its box, and each step leads from box to box."""
    require(is_within([(fmpq(0), fmpq(0))] * on.net.size, boxes[0, None]), "sets_found: the start is not in its box")
    for case, box in boxes.items():
        for token in (OWN, OTHER):
            is_in = is_within(on.step(box, token), boxes[_next(due, case, token)])
            what = f"sets_found: after {case[0]} tokens of a type the next may lead out of the boxes"
            require(is_in, what, NOT_CHECKABLE)


def _whole(net: StoredNetwork, units: list[list[int]], blocks: list[dict[Case, Box]], i: int, n: int) -> Box:
    """Where the state is after a token of type i that brought its count to n."""
    H, found = net.hidden, [(fmpq(0), fmpq(0))] * net.size
    for k in sorted(range(len(units)), key=lambda k: k == i):  # units that see no type are last as block i has them
        own = [box for (m, last), box in blocks[k].items() if (last == OTHER if k != i else (m, last) == (n, OWN))]
        places = [part * H + u for part in range(PARTS[net.kind]) for u in units[k]]
        for place, ends in zip(places, zip(*own, strict=True), strict=True):
            found[place] = min(a for a, _ in ends), max(b for _, b in ends)
    return found
