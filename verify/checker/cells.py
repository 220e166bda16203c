"""Inputs of one attention layer by cells, products of token sets, searched anew: docs/checker.md.

With the token of the place that answers fixed, softmax's weights are w_j > 0 and what a key adds to the logits is a row
v_j, each of the token at its place j alone. With one head and nothing but affine maps behind it,
D (logit y - logit c - margin) with D = sum of w_j is a sum of one number for each place, w_j (v_j y - v_j c - margin).
Its least value over a cell is the sum of the least ones at the places. So a cell is right where that is at least 0 for
every rival c, and wrong where the greatest is at most 0 for one of them. Else the place that matters most is halved,
down to single inputs. Numbers are whole ones over a power of two, rounded outwards. Other layers: relaxed.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from flint import arb, ctx

from verify.checker.arrays import Open
from verify.checker.graphs import UNFIT
from verify.checker.halving import BoundsOf, CellTally, HalvedCells, Rule
from verify.checker.lines import K, Pair, ends, near
from verify.checker.one_head import OneHeadCell, OneHeadTables
from verify.checker.one_layer import OneLayerGraph, ScoresAndValues, Sets, of_each, with_token
from verify.checker.questions import MOST_INPUTS, InputsPart, Statement
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.relaxed import RelaxedCell
from verify.checker.stages import AffineNumbers, StagesAfterAttention
from verify.checker.whole_stages import WEIGHT_BITS, RelaxedLayer, WeighedRows

PRECISION, MOST_BITS = 384, 1 << 14  # of balls; how far apart scores may be
RULES: dict[str, Rule] = {"largest token": max, "smallest token": min}


def count(statement: Statement, margin: float) -> CellTally:
    """Decides all inputs as far as cells do, down to single ones. Raises: Refusal where this is no such layer."""
    part, rule = statement.parts[0], RULES.get(str(statement.answers.get("rule")))
    is_one = len(statement.parts) == 1 and part.sets is not None and len(part.positions) == 1
    require(rule is not None and is_one, f"more than {MOST_INPUTS} inputs with other answers", NOT_CHECKABLE)
    assert rule is not None
    try:
        with ctx.workprec(PRECISION):
            found = [cells.count() for cells in _by_own_token(statement, part, rule, margin)]
    except (Open, *UNFIT) as error:
        raise Refusal(f"program: cells: {str(error) or 'a comparison is open'}", NOT_CHECKABLE) from None
    right, wrong, left = zip(*found, strict=True)
    return CellTally(sum(right), sum(wrong), [tokens for some in left for tokens in some])


def _by_own_token(statement: Statement, part: InputsPart, rule: Rule, margin: float) -> Iterator[HalvedCells]:
    """The cells of each token at the place that answers, with the tables of what each token adds at each place."""
    assert part.sets is not None, "the inputs are a product"
    every: Sets = tuple(map(tuple, part.sets))
    own, graph = part.positions[0], OneLayerGraph(part.graph, PRECISION, every)
    products = [with_token(every, own, token) for token in every[own]]
    after = StagesAfterAttention(graph, products)
    classes = statement.elements(after.output.constant.shape, part)[0]
    needed = after.needed(classes.values())
    heads = sorted({source // graph.width for source in needed if source < graph.size})
    require(bool(heads), "the attention does not reach the logits", NOT_CHECKABLE)
    singles = [(j, t) for j, tokens in enumerate(every) for t in tokens]
    values = [dict[Pair, list[arb]]() for _ in heads]
    for pairs, found in _found(graph, every, singles):
        for head, h in zip(values, heads, strict=True):
            head |= {pair: of_each(found[h].values, i)[pair[0]] for i, pair in enumerate(pairs)}
    is_exact = len(heads) == 1 and max(needed) < graph.size
    layer = None if is_exact else RelaxedLayer(after, classes, needed, heads)
    largest = max(1, max(ends(abs(x), 0)[1] for head in values for row in head.values() for x in row))
    for number, sets in enumerate(products):
        scores = [dict[Pair, arb]() for _ in heads]
        for pairs, found in _found(graph, sets, [(j, t) for j, chosen in enumerate(sets) for t in chosen]):
            for scored, h in zip(scores, heads, strict=True):
                scored |= {pair: of_each(found[h].scores, i)[pair[0]] for i, pair in enumerate(pairs)}
        weights = [*map(_weights, scores)]
        if layer is None:
            ((weight, apart),) = weights
            rows = _rows(after.output, classes, heads[0] * graph.width, number, values[0], weight)
            bounds: BoundsOf = partial(OneHeadCell, OneHeadTables(sets, weight, apart, rows, margin))
        else:
            bits = WEIGHT_BITS + 2 * max(apart for _, apart in weights)
            weighed = [_weighed(head, rows, bits) for (head, _), rows in zip(weights, values, strict=True)]
            bounds = partial(RelaxedCell, layer.of_own_token(number, weighed, largest), ends(arb(margin), K)[1])
        yield HalvedCells(sets, [*classes], rule, margin, bounds)


def _found(
    graph: OneLayerGraph, sets: Sets, pairs: Sequence[Pair]
) -> Iterator[tuple[Sequence[Pair], list[ScoresAndValues]]]:
    """Scores and values with each token at its place, any others elsewhere, a batch at a time."""
    left = iter(pairs)
    while batch := [*islice(left, graph.at_once)]:
        yield batch, graph.scores_and_values([with_token(sets, j, t) for j, t in batch])


def _weights(scores: dict[Pair, arb]) -> tuple[dict[Pair, arb], int]:
    """e^(score - the largest one), and how far the smallest is from it."""
    finite = [float(x.mid()) for x in scores.values() if x.is_finite()] or [0.0]
    top, apart = max(finite), max(finite) - min(finite)
    require(apart < MOST_BITS, "scores on a cell are too far apart", NOT_CHECKABLE)
    return {pair: (x - top).exp() for pair, x in scores.items()}, int(apart)


def _weighed(weights: dict[Pair, arb], values: dict[Pair, list[arb]], bits: int) -> WeighedRows:
    """A head's tables in whole numbers, whose bits reach its smallest weight: a cell may have no larger one."""
    whole = {pair: near(w, bits, ends(w, bits)[0]) for pair, w in weights.items()}
    rows = {pair: [near(w * x, bits, whole[pair]) for x in values[pair]] for pair, w in weights.items()}
    return WeighedRows(whole, rows)


def _rows(
    output: AffineNumbers, classes: dict[int, int], start: int, number: int, values: dict[Pair, list[arb]],
    pairs: Iterable[Pair],
) -> dict[Pair, dict[int, arb]]:  # fmt: skip
    """What each token adds to the logits of one head alone, with all that its share does not change."""
    width, constant = len(next(iter(values.values()))), of_each(output.constant.balls, number)
    columns = {c: output.linear.balls[start : start + width] for c in classes}
    found = {}
    for pair in pairs:
        row = values[pair]
        found[pair] = {
            c: sum((x * part[e] for x, part in zip(row, columns[c], strict=True)), constant[e])
            for c, e in classes.items()
        }
    return found
