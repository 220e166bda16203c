"""The decoder of both additions: its numbers as they are stored, and one input through it in balls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.ball_rows import shares
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import Head, HeadSteps, Layer, of_embedded, of_head, of_layers
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tiles, require, rows_of
from verify.checker.roundoff import Reach, Roundoff, exact, is_there

LAYER = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2")


@dataclass(frozen=True)
class AdderLayer:
    """Heads of W_Q, W_K, W_V, W_O, and the neurons."""

    heads: list[Head]
    W_1: fmpq_mat
    b_1: fmpq_mat
    W_2: fmpq_mat


M = TypeVar("M", arb_mat, fmpq_mat)
N = TypeVar("N", arb, fmpq)


@dataclass(frozen=True)
class Adder:
    """E (tokens, d), positions (length, d), layers, W_out (d, classes), b_out (1, classes)."""

    sizes: dict[str, int | str]  # as certificates say them
    skip: bool
    E: fmpq_mat
    positions: fmpq_mat
    layers: list[AdderLayer]
    W_out: fmpq_mat
    b_out: fmpq_mat

    def embedded(self, token: int, position: int) -> list[fmpq]:
        return [self.E[token, i] + self.positions[position, i] for i in range(self.E.ncols())]

    def logits(self, tokens: list[int]) -> arb_mat:
        """Logits at every position of one input, in balls of the precision that is set."""
        x = arb_mat(fmpq_mat([self.embedded(t, i) for i, t in enumerate(tokens)]))
        n = len(tokens)
        for layer in self.layers:
            attended = arb_mat(n, x.ncols())
            for head in layer.heads:
                W_Q, W_K, W_V, W_O = map(arb_mat, head)
                scores, rows = ((x * W_Q) * (x * W_K).transpose()).tolist(), []
                for i in range(n):
                    rows.append(shares(scores[i][: i + 1]) + [arb(0)] * (n - i - 1))
                attended = attended + arb_mat(rows) * (x * W_V) * W_O
            x = neurons(layer, x + attended if self.skip else attended, self.skip)
        return plus(x * arb_mat(self.W_out), self.b_out)


def neurons(layer: AdderLayer, x: M, skip: bool) -> M:
    """The stream after the neurons: fractions of fractions, balls of balls."""
    mat = type(x)
    if not layer.b_1.ncols():
        return x if skip else mat(x.nrows(), x.ncols())
    read = plus(x * mat(layer.W_1), layer.b_1).tolist()
    written = mat([[larger(z, type(z)(0)) for z in row] for row in read]) * mat(layer.W_2)
    return x + written if skip else written


def plus(x: M, row: fmpq_mat) -> M:
    """A row added to every row."""
    return x + type(x)(x.nrows(), 1, [1] * x.nrows()) * type(x)(row)


def least_gap(row: Sequence[N], right: int) -> N:
    """(the right one) - (the largest other)."""
    others = [y for c, y in enumerate(row) if c != right]
    return row[right] - reduce(larger, others)


def larger(x: N, y: N) -> N:
    return x.max(y) if isinstance(x, arb) else max(x, y)


def answer_of(first: Sequence[int], second: Sequence[int], B: int) -> list[int]:
    """The digits of a sum, the leading one first, as those of the numbers are."""
    carry, answer = 0, list[int]()
    for d, e in zip(first[::-1], second[::-1], strict=True):
        carry, digit = divmod(d + e + carry, B)
        answer.insert(0, digit)
    return [carry, *answer]


def how(fmt: BinaryFormat | None) -> str:
    """How a certificate says that the model is evaluated."""
    return "evaluated in real arithmetic" if fmt is None else "every operation rounded, sums in any order"


def rounded(model: Adder, on: Roundoff) -> Adder:
    """The model with its numbers rounded once."""
    layers = []
    for layer in model.layers:
        heads = [tuple(map(on.rounded, head)) for head in layer.heads]
        has = bool(layer.b_1.ncols())
        rest = [on.rounded(W) if has else W for W in (layer.W_1, layer.b_1, layer.W_2)]
        layers.append(AdderLayer(heads, *rest))  # type: ignore[arg-type]
    E, positions, W_out, b_out = map(on.rounded, (model.E, model.positions, model.W_out, model.b_out))
    return replace(model, layers=layers, E=E, positions=positions, W_out=W_out, b_out=b_out)


def forward(model: Adder, on: Roundoff) -> tuple[Roundoff, Reach, list[Layer], int]:
    """What bounds on a forward pass are told of the layers."""
    layers: list[Layer] = [(layer.heads, layer.W_1, layer.b_1, layer.W_2) for layer in model.layers]
    return on, of_embedded(on, model.E, model.positions), layers, model.positions.nrows()


def in_dtype(model: Adder, fmt: BinaryFormat | None) -> tuple[Adder, float]:
    """The model with its numbers rounded once, and by how much computed differences of logits may be less."""
    if fmt is None:
        return model, 0.0
    model = rounded(model, Roundoff(fmt))
    return model, of_layers(*forward(model, Roundoff(fmt)), model.skip, model.W_out, model.b_out)


class InSteps:
    """The same step by step. A sum in a wider format may round a term once more."""

    def __init__(self, model: Adder, fmt: BinaryFormat | None, is_wider: bool = False) -> None:
        self.fmt, self.more, self.model = fmt, int(is_wider), model if fmt is None else rounded(model, Roundoff(fmt))

    def head(self, head: Head, sizes: arb_mat) -> HeadSteps:
        """What a head of layer 2 rounds, of streams that are at most so large at each place."""
        places = range(sizes.nrows())
        if self.fmt is None:
            return HeadSteps([[arb(0) for _ in places] for _ in places], [arb(0)] * head[2].ncols())
        return of_head(Roundoff(self.fmt), Reach(sizes, 0 * sizes), head, len(places))

    def apart(self, x: Sequence[arb]) -> list[arb]:
        """How far two readings of computed numbers are from each other, one rounded and one kept."""
        return [arb(0) if self.fmt is None else self.fmt.apart(abs(y)) for y in x]

    def off(self, x: Sequence[arb], W: fmpq_mat, other: Sequence[arb]) -> list[arb]:
        """What x W + other rounds, of computed numbers, all of them terms of one sum or not.

        Each of n terms is rounded in n - 2 sums, and as a product if it is one, before the last sum; in a wider format
        in that one, too. What is stored is off by a share u of itself, however it is read: little, where terms cancel.
        """
        if self.fmt is None or not W.ncols():
            return [arb(0)] * W.ncols()
        fmt, on, W_read = self.fmt, Roundoff(self.fmt), Roundoff(self.fmt).read(exact(W))
        sizes = arb_mat(1, len(x), [abs(y).upper() for y in x])
        read = on.read(Reach(sizes, 0 * sizes))
        terms, moved = is_there(sizes) * is_there(W_read.size), read.error * W_read.size + sizes * W_read.error
        columns = zip((arb_mat(1, len(x), x) * arb_mat(W)).entries(), (read.size * W_read.size).entries(), strict=True)
        found = list[arb]()
        for (real, size), e, there, y in zip(columns, moved.entries(), terms.entries(), other, strict=True):
            n = int(there.unique_fmpz() or 0) + (0 if y == 0 else 1)
            before = e + fmt.growth(max(n - 1, 1) + self.more) * size + fmt.growth(max(n - 2, 0) + self.more) * abs(y)
            before += (2 * n + 6) * fmt.tiny * (1 + fmt.growth(n + 1))
            found.append((before + fmt.u * (abs(real + y) + before)).upper())
            require(fmt.holds(2 * (size + abs(y) + found[-1])), "a sum may overflow in the format", NOT_CHECKABLE)
        return found


def read_adder(data: bytes) -> Adder:
    """The model in the bytes of a safetensors file, of whatever sizes its tensors have."""
    tensors, _ = read_tiles(data, {"BOOL": 1})
    skip = tensors.pop("skip", ("BOOL", [], b"\1"))
    require(skip[:2] == ("BOOL", []) and skip[2] in (b"\0", b"\1"), "weights: skip is no truth value", UNREADABLE)
    depth = len({name.split(".")[1] for name in tensors if name.startswith("layers.")})
    names = {"E", "positions", "W_out", "b_out", *(f"layers.{i}.{name}" for i in range(depth) for name in LAYER)}
    require({*tensors} == names and depth > 0, "weights: the file holds no adder's layout", NOT_CHECKABLE)
    dtype, of_E = tensors["E"][:2]
    of_Q, of_V = (tensors[f"layers.0.{name}"][1] for name in ("W_Q", "W_V"))
    length, classes = tensors["positions"][1][:1], tensors["b_out"][1]
    is_ranked = [len(x) for x in (of_E, of_Q, of_V, length, classes)] == [2, 3, 3, 1, 1] and dtype in WORDS
    require(is_ranked and min(*of_E, *of_Q, *of_V, *length, *classes) > 0, "weights: shapes do not fit", UNREADABLE)
    (tokens, d), (heads, _, d_h), d_v = of_E, of_Q, of_V[2]
    shapes = {"E": [tokens, d], "positions": [*length, d], "W_out": [d, *classes], "b_out": classes}
    widths = [(tensors[f"layers.{i}.b_1"][1] + [0])[0] for i in range(depth)]
    for i, p in enumerate(widths):
        of_layer = [[heads, d, d_h], [heads, d, d_h], [heads, d, d_v], [heads, d_v, d], [d, p], [p], [p, d]]
        shapes |= {f"layers.{i}.{name}": shape for name, shape in zip(LAYER, of_layer, strict=True)}
    found = {name: tensor[:2] for name, tensor in tensors.items()}
    require(found == {name: (dtype, x) for name, x in shapes.items()}, "weights: shapes do not fit", UNREADABLE)

    def matrices(name: str) -> list[fmpq_mat]:
        """One matrix, or one for each head."""
        shape, raw = shapes[name], tensors[name][2]
        rows, columns = ([1, *shape])[-2:]
        parts: list[list[float]] = rows_of(name, dtype, [rows * columns], raw) if rows * columns else [[]]
        return [fmpq_mat(rows, columns, [fmpq(*x.as_integer_ratio()) for x in part]) for part in parts]

    layers = []
    for i in range(depth):
        parts = {name: matrices(f"layers.{i}.{name}") for name in LAYER}
        of_heads = [*zip(*(parts[name] for name in LAYER[:4]), strict=True)]
        layers.append(AdderLayer(of_heads, *(parts[name][0] for name in LAYER[4:])))
    sizes = dict[str, int | str](layers=depth, heads=heads, d=d, d_h=d_h, p=sum(widths), dtype=WORDS[dtype][0])
    E, positions, W_out, b_out = (matrices(name)[0] for name in ("E", "positions", "W_out", "b_out"))
    return Adder(sizes, skip[2] == b"\1", E, positions, layers, W_out, b_out)
