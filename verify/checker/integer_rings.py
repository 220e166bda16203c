"""ReLU units in blocks of whole numbers, every state of each block (docs/checker.md)."""

from flint import arb

from verify.checker.reading import NOT_CHECKABLE, as_text, require
from verify.checker.records import FoundInBlocks
from verify.checker.stored_selective import MOST_STATES, StoredSelective


def rings(net: StoredSelective, margin: arb, found: FoundInBlocks, length: int | str) -> None:
    """ReLU units in K blocks that do not see each other, all numbers integers: every state of each block.

    Modulo m all counts are judged, in strings of all lengths; else those up to C, in strings up to a length.
    """
    K, H = net.K, len(net.W_h)
    most = None if net.m is not None or length == "all" else int(length)
    bits = 50 if net.fmt is None else min(net.fmt.p, net.fmt.most + 1)
    numbers = [x for rows in (net.W_x, net.W_h, net.V, [net.c], net.b) for row in rows for x in row]
    require(all(x == int(x) and abs(x) < 2.0**30 for x in numbers), "the numbers are not all integers", NOT_CHECKABLE)
    size = H // K
    require(size * K == H, "the units are not blocks of one size", NOT_CHECKABLE)
    is_apart = all(w == 0 for r, row in enumerate(net.W_h) for q, w in enumerate(row) if r // size != q // size)
    require(is_apart, "the units of different types see each other", NOT_CHECKABLE)
    blocks = [_reached(net, i, size, bits, most) for i in range(K)]
    due = {"states": sum(len(b) for b in blocks)}
    require(as_text(found) == as_text(due), "invariant_found: has another number of states")
    highest = [max((h[q] for h, _, _ in block), default=0) for block in blocks for q in range(size)]
    for row, c in zip(net.V, net.c, strict=True):
        total = sum(abs(int(w)) * x for w, x in zip(row, highest, strict=True)) + abs(int(c))
        require(total <= 2**bits, "a sum of logits is not exact", NOT_CHECKABLE)
    for i in range(K):
        for a in range(net.m or net.C):
            for j in range(len(net.c)):
                if j != a + (net.m is None):
                    gap = _least_gap(net, blocks, i, a, j, size)
                    what = f"type {i}: class {a} is not shown to win over {j}"
                    require(gap is None or bool(arb(gap) >= margin), what, NOT_CHECKABLE)


Reached = set[tuple[tuple[int, ...], int, int]]


def _reached(net: StoredSelective, i: int, size: int, bits: int, most: int | None) -> Reached:
    """(state, count - 1 modulo m or at most C, last token) of block i after one token or more, and at most `most`."""
    own = range(i * size, (i + 1) * size)
    W = [[int(net.W_h[r][q]) for q in own] for r in own]
    given = [[int(net.W_x[r][x]) for r in own] for x in range(net.K)]
    bias = [(int(net.b[r][0]), int(net.b[r][1])) for r in own]
    largest = [max(abs(int(w)) for w in net.W_x[r]) + sum(map(abs, map(int, net.b[r]))) for r in own]
    queue, seen, reached = [((0,) * size, -1, 0)], {((0,) * size, -1)}, set()
    for h, a, n in queue:  # in the order of the shortest strings
        if most is not None and n >= most:
            break
        sums = [sum(abs(w) * x for w, x in zip(row, h, strict=True)) + y for row, y in zip(W, largest, strict=True)]
        require(max(sums) <= 2**bits, f"type {i}: a partial sum is not exact", NOT_CHECKABLE)
        for token in range(net.K):
            rows = zip(W, given[token], bias, strict=True)
            after = tuple(
                max(0, sum(w * x for w, x in zip(row, h, strict=True)) + g + b[0] + b[1]) for row, g, b in rows
            )
            count = a if token != i else (a + 1) % net.m if net.m is not None else min(a + 1, net.C)
            reached.add((after, count, token))
            if (after, count) not in seen:
                seen.add((after, count))
                queue.append((after, count, n + 1))
        require(len(seen) <= MOST_STATES, f"type {i}: too many states", NOT_CHECKABLE)
    return reached


def _least_gap(net: StoredSelective, blocks: list[Reached], i: int, a: int, j: int, size: int) -> int | None:
    """The least gap over logit j where the last token is of type i and its count less 1 is a; None if that never is."""
    right = a + (net.m is None)
    total = int(net.c[right]) - int(net.c[j])
    for k, block in enumerate(blocks):
        d = [int(net.V[right][q]) - int(net.V[j][q]) for q in range(k * size, (k + 1) * size)]
        values = [
            sum(w * x for w, x in zip(d, h, strict=True))
            for h, count, token in block
            if token == i and (k != i or count == a)
        ]
        if not values:
            return None
        total += min(values)
    return total
