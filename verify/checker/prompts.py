"""A Count01 model read after the prompts of a cell: its logits are quotients of forms in three counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, ctx, fmpq, fmpq_mat

from verify.checker.boxes import Quotient
from verify.checker.exponentials import Sum, ball, scaled, sign_of, summed, times
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import attended, chosen, of_layers
from verify.checker.layer_norm import NormedRows
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tiles, require, rows_of
from verify.checker.records import PromptSizes
from verify.checker.roundoff import Roundoff, exact

EQUALS = 4
TOKENS = ("BOS", "0", "1", "2", "=", "4", "5", "EOS")
Domain = tuple[int, int | None, int, int | None, int | None]  # n0 and n1 from, to; n2 from, to; all three at most
NORM = ("norm_weight", "norm_bias", "norm_eps")
SHAPES = ("E", "W_Q", "W_K", "W_V", "W_O", "W_out", "b_out")


def read_count01(data: bytes) -> tuple[dict[str, list[fmpq_mat]], PromptSizes]:
    """Each tensor as matrices, one for each head where there are any, and its sizes; of a layer norm under `norm` its
    gain, its bias and its epsilon."""
    tensors, _ = read_tiles(data, {"BOOL": 1})
    norm = {name: tensors.pop(name) for name in NORM if name in tensors}
    extra = sorted({*tensors} - {*SHAPES, "skip"})
    require(not extra, f"weights: {extra[:1]} is beyond plain Count01 models", NOT_CHECKABLE)
    require({*SHAPES} <= {*tensors}, "the file holds no Count01 model", UNREADABLE)
    skip, (dtype, of_E, _), of_W = tensors.pop("skip", ("BOOL", [], b"\1")), tensors["E"], tensors["W_Q"][1]
    d, heads, d_h = of_E[-1] if of_E else 0, of_W[0] if of_W else 0, of_W[-1] if of_W else 0
    classes = tensors["b_out"][1][:1]
    of_heads = [[heads, d, d_h]] * 3 + [[heads, d_h, d]]
    shapes = dict(zip(SHAPES, [[8, d], *of_heads, [d, *classes], classes], strict=True))
    is_right = min(d, heads, d_h, *classes) > 0 and dtype in WORDS
    is_right = is_right and {name: x[:2] for name, x in tensors.items()} == {k: (dtype, x) for k, x in shapes.items()}
    require(is_right, "weights: shapes do not fit", UNREADABLE)
    is_skip = skip[:2] == ("BOOL", []) and skip[2] in (b"\0", b"\1")
    require(is_skip, "weights: skip is neither true nor false", UNREADABLE)
    found = {}
    for name, shape in shapes.items():
        rows, columns = ([1, *shape])[-2:]
        parts = rows_of(name, dtype, [rows * columns], tensors[name][2])
        found[name] = [fmpq_mat(rows, columns, [fmpq(*x.as_integer_ratio()) for x in part]) for part in parts]
    if norm:
        of_eps = dtype if norm.get("norm_eps", ("",))[0] == dtype else "F64"
        is_right = {name: x[:2] for name, x in norm.items()} == dict(
            zip(NORM, [(dtype, [d]), (dtype, [d]), (of_eps, [])], strict=True)
        )
        require(is_right, "weights: the layer norm's shapes do not fit, or its epsilon is missing", NOT_CHECKABLE)
        parts = [rows_of(name, x[0], [len(x[1]) and d or 1], x[2])[0] for name, x in norm.items()]
        found["norm"] = [fmpq_mat(1, len(row), [fmpq(*x.as_integer_ratio()) for x in row]) for row in parts]
        require(found["norm"][2][0, 0] >= 0, "weights: norm_eps is below 0", UNREADABLE)
    sizes: PromptSizes = {"heads": heads, "d": d, "d_h": d_h, "skip": skip[2] == b"\1", "dtype": WORDS[dtype][0]}
    return found, sizes


def rounded_once(numbers: dict[str, list[fmpq_mat]], on: Roundoff) -> dict[str, list[fmpq_mat]]:
    """The stored numbers rounded to the format, but for the epsilon of a layer norm, which is a constant."""
    of_norm = {name: [*map(on.rounded, parts[:2]), *parts[2:]] for name, parts in numbers.items() if name == "norm"}
    return {name: [*map(on.rounded, parts)] for name, parts in numbers.items() if name != "norm"} | of_norm


def in_dtype(
    numbers: dict[str, list[fmpq_mat]], skip: bool, fmt: BinaryFormat | None, longest: int | None, lasts: Sequence[int]
) -> tuple[dict[str, list[fmpq_mat]], dict[int, float]]:
    """The numbers rounded once, and by how much computed differences of logits may be less with so many digits, by the
    last token: it is what the attention sees beside BOS, digits and "="."""
    if fmt is None:
        return numbers, dict.fromkeys(lasts, 0.0)
    require(longest is not None, "region: must be bounded", NOT_CHECKABLE)
    on, slots = Roundoff(fmt), (longest or 0) + 3
    found = rounded_once(numbers, on)
    (E,), (W_out,), (b_out,) = (found[name] for name in ("E", "W_out", "b_out"))
    heads = [*zip(*(found[name] for name in SHAPES[1:5]), strict=True)]
    stream, off = exact(E), dict[int, float]()
    x = NormedRows(on, found["norm"]).reach(E) if "norm" in found else stream
    for last in lasts:
        seen, own = chosen(x, sorted({*range(EQUALS + 1), last})), [last]
        y = attended(on, seen, heads, slots, skip, chosen(stream, own), chosen(x, own))
        off[last] = of_layers(on, y, [], slots, skip, W_out, b_out)
    return found, off


@dataclass(frozen=True)
class PromptRegion:
    """The prompts with n1 > n0, or all others, read after one token, and the one answer that is due."""

    last: int
    is_more: bool
    due: int


class PromptModel:
    """After the token `last`: logit j is constants[last][j] plus for each head a mean of values[h][t, j], in which the
    token t weighs e^scores[h][last, t]."""

    def __init__(self, numbers: dict[str, list[fmpq_mat]], skip: bool) -> None:
        (E,), (W_out,), (b_out,) = (numbers[name] for name in ("E", "W_out", "b_out"))
        heads = [*zip(*(numbers[name] for name in SHAPES[1:5]), strict=True)]
        self.classes, own = b_out.ncols(), E * W_out
        self.scores = [(E * W_Q) * (E * W_K).transpose() for W_Q, W_K, _, _ in heads]
        self.values = [E * W_V * W_O * W_out for _, _, W_V, W_O in heads]
        self.constants = [[b_out[0, j] + skip * own[t, j] for j in range(self.classes)] for t in range(8)]

    def quotient(self, h: int, cell: PromptRegion, rival: int) -> Quotient:
        """What a head adds to (due logit - rival's): coefficients of 1, n0, n1, n2 over those of the weights' sum."""
        last, V = cell.last, self.values[h]
        lines = ((0, EQUALS, *([] if last == EQUALS else [last])), (1,), (2,), (3,))
        of = self.scores[h]
        above = [summed((of[last, t], V[t, cell.due] - V[t, rival]) for t in line) for line in lines]
        return above, [summed((of[last, t], fmpq(1)) for t in line) for line in lines]

    def constant(self, cell: PromptRegion, rival: int) -> fmpq:
        return self.constants[cell.last][cell.due] - self.constants[cell.last][rival]

    def form(self, cell: PromptRegion, rival: int) -> Quotient:
        """Of one head: (due logit - rival's) times the weights' sum, and this sum."""
        N, D = self.quotient(0, cell, rival)
        return [less(n, d, -self.constant(cell, rival)) for n, d in zip(N, D, strict=True)], D


def less(x: Sum, y: Sum, factor: fmpq) -> Sum:
    """x - factor y."""
    return summed([*x.items(), *((key, -factor * c) for key, c in y.items())])


def sign_at(model: PromptModel, cell: PromptRegion, rival: int, row: tuple[int, ...]) -> int:
    """The exact sign of (due logit) - (the rival's): times the weights' sums of all heads it is one of exponentials."""
    above, below = summed([(fmpq(0), model.constant(cell, rival))]), {fmpq(0): fmpq(1)}
    for h in range(len(model.scores)):
        N, D = (scaled(line, row) for line in model.quotient(h, cell, rival))
        above, below = summed([*times(above, D).items(), *times(below, N).items()]), times(below, D)
    return sign_of(above)


def difference_at(model: PromptModel, cell: PromptRegion, rival: int, row: tuple[int, ...], bits: int) -> arb:
    """(due logit) - (the rival's) at one prompt."""
    with ctx.workprec(bits):
        out = arb(model.constant(cell, rival))
        for h in range(len(model.scores)):
            N, D = model.quotient(h, cell, rival)
            out = out + ball(scaled(N, row), bits) / ball(scaled(D, row), bits)
        return out
