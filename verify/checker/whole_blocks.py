"""Stacks of whole blocks of S4, Mamba and RWKV-6, in balls again (docs/checker.md), from the file's numbers.

Of each kind the shapes of all tensors are compared with what the sizes of block 0 ask for. A step is written as the
formulas stand in docs/recurrent.md, number by number.
"""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

from flint import arb, arb_mat

from verify.checker.block_shapes import SHAPES
from verify.checker.block_steps import NUMBERS, STEPS, Block, Product, Rows, State, Vector, layer_norm, root_mean_square
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tensors, require, rows_of
from verify.checker.records import LineParameters
from verify.checker.rounded_lines import Gaps, TokenFollower, differences
from verify.checker.statement import compare


def affine(W: Rows, x: Vector, b: Sequence[float] = ()) -> Vector:
    """W x + b of exact factors."""
    product = arb_mat(len(W), len(W[0]), [v for row in W for v in row]) * arb_mat(len(x), 1, x)
    return [y + c for y, c in zip(product.entries(), b or [0.0] * len(W), strict=True)]


class StoredBlocks(NamedTuple):
    """The stored numbers: blocks by the names of their tensors, and the layers before and after them."""

    kind: str
    blocks: list[Block]
    beside: dict[str, Rows]
    times: Product = affine

    @property
    def V(self) -> Rows:
        return self.beside["head.weight"]

    @property
    def b(self) -> list[float]:
        return self.beside["head.bias"][0] if "head.bias" in self.beside else [0.0] * len(self.V)

    @property
    def tokens(self) -> Rows:
        return self.beside["embedding.weight"]

    @property
    def rows(self) -> list[object]:
        """What each class reads; where it is the same, so are the logits."""
        return [(*row, c) for row, c in zip(self.V, self.b, strict=True)]

    def step(self, states: list[State], token: int) -> tuple[list[State], Vector]:
        """The states of all blocks after one more token, and the logits."""
        x, after = [*map(arb, self.tokens[token])], []
        if self.kind == "rwkv":
            x = layer_norm(x, self.beside["first.weight"][0], self.beside["first.bias"][0])
        for block, state in zip(self.blocks, states, strict=True):
            x, later = STEPS[self.kind](self.times, block, x, state)
            after.append(later)
        if self.kind == "rwkv":
            x = layer_norm(x, self.beside["norm.weight"][0], self.beside["norm.bias"][0])
        if self.kind == "mamba":
            x = root_mean_square(x, self.beside["norm.weight"][0])
        return after, self.times(self.V, x, self.b)

    @property
    def start(self) -> list[State]:
        """The state 0 of all blocks."""
        return [[[arb(0)] * n for n in NUMBERS[self.kind](block)] for block in self.blocks]


def of_file(weights: bytes, said: LineParameters) -> StoredBlocks:
    """The network, whose sizes must be those that the parameters say."""
    tensors, about = read_tensors(weights)
    kind = str(said["model"]).removesuffix(" blocks")
    require(about == {"model": kind}, f"the metadata name another network: {about}")
    shapes = {name: shape for name, (_, shape, _) in tensors.items()}
    table, head = shapes.get("embedding.weight", []), shapes.get("head.weight", [])
    require(len(table) == len(head) == 2, "the file holds no embedding or no head", UNREADABLE)
    (types, d), classes = table, head[0]
    layers = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    own = {name.removeprefix("blocks.0."): shape for name, shape in shapes.items()}
    try:
        each = SHAPES[kind](d, own)
    except (KeyError, IndexError, ValueError) as error:
        require(False, f"block 0 is none of {kind}: {error}", UNREADABLE)
    due = {"embedding.weight": [types, d], "head.weight": [classes, d]}
    due |= {"head.bias": [classes]} if "head.bias" in shapes else {}
    due |= {"norm.weight": [d]} if kind != "s4" else {}
    due |= {"norm.bias": [d], "first.weight": [d], "first.bias": [d]} if kind == "rwkv" else {}
    due |= {f"blocks.{k}.{name}": shape for k in range(layers) for name, shape in each.items()}
    require(shapes == due and all(min(x) > 0 for x in due.values()), f"the tensors are no {kind} blocks", UNREADABLE)
    dtypes = {dtype for dtype, _, _ in tensors.values()}
    require(len(dtypes) == 1, "the tensors have several dtypes", UNREADABLE)
    shape = {"units": d, "layers": layers, "dtype": WORDS[dtypes.pop()][0]}
    compare(said, shape)
    rows = {name: rows_of(name, *tensor) for name, tensor in tensors.items()}
    blocks = [{name: rows[f"blocks.{k}.{name}"] for name in each} for k in range(layers)]
    return StoredBlocks(kind, blocks, {name: x for name, x in rows.items() if not name.startswith("blocks.")})


def in_format(net: StoredBlocks, fmt: BinaryFormat) -> StoredBlocks:
    """One evaluation that the format allows: every result is kept exactly, and factors of matrix products are rounded
    to nearest."""

    def times(W: Rows, x: Vector, b: Sequence[float] = ()) -> Vector:
        return affine(W, [as_factor(v, fmt) for v in x], b)

    blocks = [{name: fmt.of_weights(rows) for name, rows in block.items()} for block in net.blocks]
    return StoredBlocks(net.kind, blocks, {name: fmt.of_weights(x) for name, x in net.beside.items()}, times)


def as_factor(x: arb, fmt: BinaryFormat) -> arb:
    """The number of the format that is nearest to all of a ball."""
    require(x.is_finite(), "a factor has no bound", NOT_CHECKABLE)
    ends = [(int(m), int(e)) for m, e in (x.lower().man_exp(), x.upper().man_exp())]
    low, high = (fmt.closest(m << max(e, 0), max(-e, 0)) for m, e in ends)
    require(low == high, "to which number a factor is rounded does not show", NOT_CHECKABLE)
    require(isfinite(low), "a factor overflows", NOT_CHECKABLE)
    return arb(low)


def by_balls(net: StoredBlocks, states: list[State] | None = None) -> TokenFollower:
    """What balls of exact numbers say of the logits after one token, two tokens, and so on."""

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        after, logits = net.step(net.start if states is None else states, token)
        return lambda k: differences(logits, net.rows, k), by_balls(net, after)

    return follow
