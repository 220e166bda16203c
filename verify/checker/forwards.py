"""The forward passes of the tasks' models on sizes and errors, which bound the roundings of every input at once."""

from collections.abc import Sequence
from typing import NamedTuple

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, Weights, require
from verify.checker.roundoff import Reach, Roundoff, exact, slack

Numbers = dict[str, fmpq_mat]
Head = tuple[fmpq_mat, fmpq_mat, fmpq_mat, fmpq_mat]
Layer = tuple[Sequence[Head], fmpq_mat, fmpq_mat, fmpq_mat]


def rounded_once(w: Weights, fmt: BinaryFormat) -> tuple[Weights, Numbers]:
    """A model of one layer with its weights rounded to a format, and these as fractions."""
    w = w._replace(matrices={name: fmt.of_weights(rows) for name, rows in w.matrices.items()})
    return w, {name: fractions(rows) for name, rows in w.matrices.items()}


def fractions(rows: list[list[float]]) -> fmpq_mat:
    """Stored numbers as they are."""
    return fmpq_mat(len(rows), len(rows[0]), [fmpq(*x.as_integer_ratio()) for row in rows for x in row])


def of_counts(on: Roundoff, W: Numbers, slots: int, is_softmax: bool, root: arb | None = None) -> float:
    """Of x = E[tokens], x' = x + weights x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, with BOS as one more slot.

    The weights are given, or scores, divided by a root where there is one.
    """
    x, slots = exact(fmpq_mat(W["E"].tolist() + W["e_BOS"].tolist() if "e_BOS" in W else W["E"])), slots + 1
    if "A" in W:
        scores = exact(W["A"])
    else:
        q, k = on.total([(x, W["W_Q"])], []), on.total([(x, W["W_K"])], [])
        scores = on.scores(q, k, root)
    mixed = on.softmax(scores, x, slots) if is_softmax else on.weighed(scores, x, slots)
    return _read(on, on.total([], [x, mixed], slots), W)


def _read(on: Roundoff, x: Reach, W: Numbers) -> float:
    """Of the neurons, and of logits that they alone write."""
    hidden = on.total([(x, W["W_1"])], [exact(W["b_1"])])  # a ReLU moves nothing further apart
    return slack(on.total([(hidden, W["W_2"])], [exact(W["b_2"])]))


def attended(
    on: Roundoff,
    x: Reach,
    heads: Sequence[Head],
    slots: int,
    skip: bool,
    stream: Reach | None = None,
    query: Reach | None = None,
) -> Reach:
    """The stream after attention over at most so many positions, each of them one of the rows; of the queries alone, if
    they are given. A norm may have made both from the stream before."""
    parts = []
    for W_Q, W_K, W_V, W_O in heads:
        q, k, v = (on.total([(y, W)], []) for y, W in ((query or x, W_Q), (x, W_K), (x, W_V)))
        parts.append((on.softmax(on.scores(q, k), v, slots), W_O))
    return on.total(parts, [stream or x] * skip)


def of_layers(
    on: Roundoff, x: Reach, layers: Sequence[Layer], slots: int, skip: bool, W_out: fmpq_mat, b_out: fmpq_mat
) -> float:
    """Of layers of heads and neurons (W_1, b_1, W_2), and of the readout."""
    for heads, W_1, b_1, W_2 in layers:
        x = neurons(on, attended(on, x, heads, slots, skip), W_1, b_1, W_2, skip)
    return slack(on.total([(x, W_out)], [exact(b_out)]))


def neurons(on: Roundoff, x: Reach, W_1: fmpq_mat, b_1: fmpq_mat, W_2: fmpq_mat, skip: bool) -> Reach:
    """The stream after a layer's neurons."""
    if b_1.ncols():
        return on.total([(on.total([(x, W_1)], [exact(b_1)]), W_2)], [x] * skip)
    return x if skip else Reach(0 * x.size, 0 * x.size)


class HeadSteps(NamedTuple):
    """In rows of queries by keys the share by which a weight is off, and how far off coordinates of the mean are."""

    tilts: list[list[arb]]
    mean: list[arb]


def of_head(on: Roundoff, stream: Reach, head: Head, slots: int) -> HeadSteps:
    """What a head rounds of a computed stream."""
    require(on.fmt.p > 4, "a softmax of so few bits is not followed", NOT_CHECKABLE)
    q, k, v = (on.total([(stream, W)], []) for W in head[:3])
    return HeadSteps(on.tilts(on.scores(q, k)), on.mean(v, slots, arb(0)).error.entries())


def chosen(x: Reach, rows: Sequence[int]) -> Reach:
    """Some of the rows."""
    size, error = (arb_mat([part.tolist()[r] for r in rows]) for part in (x.size, x.error))
    stored = None if x.stored is None else fmpq_mat([x.stored.tolist()[r] for r in rows])
    return Reach(size, error, x.unit, stored, x.is_factor)


def given(x: Reach) -> Reach:
    """Computed numbers, from which the next step starts."""
    return Reach(x.size, 0 * x.size)


def of_embedded(on: Roundoff, E: fmpq_mat, positions: fmpq_mat) -> Reach:
    """Every token at every position: the sum is rounded."""
    tokens, places = E.tolist(), positions.tolist()
    pairs = [[row for row in tokens for _ in places], [row for _ in tokens for row in places]]
    return on.total([], [exact(fmpq_mat(rows)) for rows in pairs])


def of_regions(on: Roundoff, W: Numbers, slots: int) -> float:
    """Of an encoder of one head with neurons, and of prompts that attend to it."""
    x = attended(on, exact(W["E"]), [(W["W_Q"], W["W_K"], W["W_V"], W["W_O"])], slots, True)
    scores, v = seen(on, x, W)
    return slack(read_by_prompts(on, on.softmax(scores, v, slots), W))


def seen(on: Roundoff, x: Reach, W: Numbers, tops: arb_mat | None = None) -> tuple[Reach, Reach]:
    """The scores that prompts give the stream after its neurons, and the values that they read.

    A neuron that is at most 0 in every order is 0; `tops` are bounds on them all before ReLU.
    """
    hidden = on.total([(x, W["W_1"])], [exact(W["b_1"])])
    if tops is not None:
        may_be_on = [[not t + e <= 0 for t, e in zip(*rows, strict=True)]
                     for rows in zip(tops.tolist(), hidden.error.tolist(), strict=True)]  # fmt: skip
        hidden = Reach(_kept(hidden.size, may_be_on), _kept(hidden.error, may_be_on))
    x = on.total([(hidden, W["W_2"])], [x, exact(W["b_2"])])
    q, k, v = on.total([(exact(W["P"]), W["U_Q"])], []), on.total([(x, W["U_K"])], []), on.total([(x, W["U_V"])], [])
    return on.scores(q, k), v


def _kept(x: arb_mat, are_kept: list[list[bool]]) -> arb_mat:
    """The numbers that are kept, and 0 for the others."""
    rows = zip(x.tolist(), are_kept, strict=True)
    return arb_mat([[y if is_kept else arb(0) for y, is_kept in zip(*row, strict=True)] for row in rows])


def read_by_prompts(on: Roundoff, z: Reach, W: Numbers) -> Reach:
    """The logits of what prompts have read, and may feed to neurons of their own."""
    if "W_3" in W:
        z = on.total([(on.total([(z, W["W_3"])], [exact(W["b_3"])]), W["W_4"])], [z, exact(W["b_4"])])
    return on.total([(z, W["W_out"])], [exact(W["b_out"])])


class PlacedSteps(NamedTuple):
    """Tokens at places in rows, and what steps round of them: scores, and coordinates of the mean of values."""

    stream: Reach
    scores: list[list[arb]]
    mean: list[arb]


def of_placed(on: Roundoff, W: Numbers, slots: int) -> PlacedSteps:
    """Of tokens at places, whose queries and keys may be turned, and whose scores fall with the distance."""
    x = of_embedded(on, W["E"], fmpq_mat(W["positions"].table()[:slots]))
    q, k, v = (on.total([(x, W[name])], []) for name in ("W_Q", "W_K", "W_V"))
    if "slope" in W:
        q, k = _turned(on, q, W, slots), _turned(on, k, W, slots)
    scores = on.scores(q, k)
    if "slope" in W:
        far = on.total(
            [(exact(fmpq_mat([[slots]]))._replace(stored=None), W["slope"])], []
        )  # the longest distance, or more
        size, error = (arb_mat([[part[0, 0]] * scores.size.ncols()]) for part in (far.size, far.error))
        scores = on.total([], [scores, Reach(size, error, far.unit)])
    mean = on.mean(v, slots, arb(0))
    return PlacedSteps(x, scores.error.tolist(), mean.error.entries())


def _turned(on: Roundoff, x: Reach, W: Numbers, slots: int) -> Reach:
    """Each pair of coordinates turned by its place's angle: two products and their sum."""
    parts = list[Reach]()
    for row, (sizes, errors) in enumerate(zip(x.size.tolist(), x.error.tolist(), strict=True)):
        turn = [[fmpq(0)] * len(sizes) for _ in sizes]
        for i in range(0, len(sizes), 2):
            c, s = W["cosines"][row % slots, i // 2], W["sines"][row % slots, i // 2]
            turn[i][i], turn[i + 1][i], turn[i][i + 1], turn[i + 1][i + 1] = c, -s, s, c
        parts.append(on.total([(Reach(arb_mat([sizes]), arb_mat([errors]), x.unit), fmpq_mat(turn))], []))
    units = [part.unit for part in parts]
    unit = None if None in units else min(x for x in units if x is not None)
    both = zip(*((part.size, part.error) for part in parts), strict=True)
    size, error = (arb_mat([row for x in found for row in x.tolist()]) for found in both)
    return Reach(size, error, unit)
