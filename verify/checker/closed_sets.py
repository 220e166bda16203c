"""Selective tasks on all strings by sets of states: a saved box for each case, which every token maps into another.

A case is how often each type was read, as far as that is judged, and the last few tokens. The checker makes the cases
itself, in the order of the shortest strings. So by induction each state is in its case's box, at every length.
"""

from flint import arb, ctx, fmpq

from verify.checker.computed_orders import exact
from verify.checker.one_string import RightClasses
from verify.checker.reading import NOT_CHECKABLE, recorded, require
from verify.checker.records import LineCertificate, LineParameters, SetsFound
from verify.checker.recurrent import GATES, network, positive_margin
from verify.checker.rounded import BITS, stored_network
from verify.checker.rounded_boxes import Box, ComputedBoxes, is_within

MOST_SETS = 6000

Case = tuple[tuple[int, ...], tuple[int, ...]]  # counts, and the last tokens


def proved(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks that the boxes hold the start, that each step leads from box to box, and that each answer is right."""
    found, margin = recorded(c["sets_found"], SetsFound), exact(positive_margin(c))
    require(said["model"] in GATES, f"sets of states of {said['model']!r} are not checked", NOT_CHECKABLE)
    with ctx.workprec(BITS):
        net, fmt = (network(weights, said), None) if c["reading"] == "real" else stored_network(weights, said)
        due = RightClasses.of_all(c, said, len(net.tokens), len(net.b))
        cases = _cases(due, found["window"])
        is_whole = len(found["low"]) == len(found["high"]) == found["sets"] == len(cases)
        is_whole = is_whole and all(len(row) == net.size for row in (*found["low"], *found["high"]))
        require(is_whole, f"sets_found: must have {len(cases)} boxes of {net.size} numbers")
        ends = zip(found["low"], found["high"], strict=True)
        boxes = [[(exact(arb(a)), exact(arb(b))) for a, b in zip(*pair, strict=True)] for pair in ends]
        require(is_within([(fmpq(0), fmpq(0))] * net.size, boxes[0]), "sets_found: the start is not in its box")
        on = ComputedBoxes(net, fmt)
        for (counts, last), i in cases.items():
            for token in () if _is_over(due, counts) else range(due.types):
                after = cases[_next(due, (counts, last), token, found["window"])]
                is_in = is_within(on.step(boxes[i], token), boxes[after])
                what = f"sets_found: with counts {counts} the token {token} may lead out of the boxes"
                require(is_in, what, NOT_CHECKABLE)
            right = _right(due, counts, last[-1]) if last else None
            for j in range(len(net.b)) if right is not None else ():
                gap = margin if j == right else least_gap(on, boxes[i], right or 0, j)
                what = f"counts {counts}: class {right} is not shown to win over {j} by {c['margin']}"
                require(gap >= margin, what, NOT_CHECKABLE)


def _right(due: RightClasses, counts: tuple[int, ...], token: int) -> int | None:
    """The right class after a token, its count included; modulo m every count has one."""
    n = counts[token]
    return due.of(n) if due.m is None else (n - 1) % due.m


def _is_over(due: RightClasses, counts: tuple[int, ...]) -> bool:
    """Whether no later answer is judged."""
    return due.m is None and min(counts) > int(due.C)


def _next(due: RightClasses, case: Case, token: int, window: int) -> Case:
    n = case[0][token] + 1
    n = min(n, due.C + 1) if due.m is None else n % due.m
    return (*case[0][:token], n, *case[0][token + 1 :]), (*case[1], token)[-window:]


def _cases(due: RightClasses, window: int) -> dict[Case, int]:
    """Every case that strings lead to, the start first."""
    require(window >= 1, f"sets_found: a window of {window} tokens")
    start: Case = ((0,) * due.types, ())
    found, queue = {start: 0}, [start]
    for case in queue:
        for token in () if _is_over(due, case[0]) else range(due.types):
            after = _next(due, case, token, window)
            if after not in found:
                found[after] = len(found)
                queue.append(after)
        require(len(found) <= MOST_SETS, "sets_found: too many cases", NOT_CHECKABLE)
    return found


def least_gap(on: ComputedBoxes, box: Box, right: int, j: int) -> fmpq:
    """The least (right logit) - (logit j) on a box, as computed.

    A state that is rounded where it is read is in the box, too: steps lead to results that are kept, and rounded.
    """
    net, fmt = on.net, on.fmt
    h, total = box[net.read : net.read + net.hidden], exact(net.b[right]) - exact(net.b[j])
    for m, (low, high) in enumerate(h):
        d = exact(net.V[right, m]) - exact(net.V[j, m])
        total += d * (low if d > 0 else high)
    for k in () if on.is_exact else (right, j):
        sizes = [abs(net.V[k, m]) * arb(max(abs(a), abs(b))) for m, (a, b) in enumerate(h)]
        size = sum(sizes, abs(net.b[k])).upper()
        terms = sum(net.V[k, m] != 0 for m in range(net.hidden)) + (net.b[k] != 0)
        off = fmt.of_sum(size, terms, net.hidden)
        require(fmt.holds((size + off).upper()), f"logit {k} may overflow", NOT_CHECKABLE)
        total -= exact(off.upper())
    return total
