"""The operations of a decoder in the layout of the grokking checkpoints, as a graph that is followed."""

import base64
import math
import re
from collections.abc import Sequence

from verify.checker.graphs import BYTES, EVERY_WORD, stored_numbers
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, Tensors, read_tiles, require

Node = dict[str, int]
OF_HEADS = ("W_Q", "W_K", "W_V")
OF_NEURONS = ("W_in", "b_in", "W_out", "b_out")
OF_BLOCK = (*(f"attn.{name}" for name in (*OF_HEADS, "W_O")), *(f"mlp.{name}" for name in OF_NEURONS))
ENDS = EMBEDDING, PLACES, READOUT = ("embed.W_E", "pos_embed.W_pos", "unembed.W_U")
MASK = re.compile(r"blocks\.[0-9]+\.attn\.mask")
LENGTH = 3  # a b =


class LayoutProgram:
    """The operations of a decoder of this layout on a b =, read at "=": each as the module's own, in its order."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors, self.nodes = tensors, list[dict[str, object]]()
        self.depth = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
        blocks = [f"blocks.{i}." for i in range(self.depth)]
        names = {*ENDS, *(f"{block}{name}" for block in blocks for name in OF_BLOCK)}
        require({*tensors} == names and self.depth > 0, "weights: no layout of the grokking checkpoints", NOT_CHECKABLE)
        dtypes, shapes = {dtype for dtype, _, _ in tensors.values()}, {name: x[1] for name, x in tensors.items()}
        sized = [*ENDS, "blocks.0.attn.W_Q", "blocks.0.mlp.b_in"]
        is_ranked = [len(shapes[name]) for name in sized] == [2, 2, 2, 3, 1] and len(dtypes) == 1 and dtypes <= {*WORDS}
        require(is_ranked, "weights: shapes do not fit", UNREADABLE)
        self.dtype = WORDS[dtypes.pop()][0]
        (d, self.tokens), (positions, _), (_, self.classes), (self.heads, self.d_head, _), (self.neurons,) = (
            shapes[name] for name in sized
        )
        self.d, inner, p = d, self.heads * self.d_head, self.neurons
        of_block = [*[[self.heads, self.d_head, d]] * 3, [d, inner], [p, d], [p], [d, p], [d]]
        due = dict(zip(ENDS, ([d, self.tokens], [positions, d], [d, self.classes]), strict=True))
        due |= {f"{block}{name}": x for block in blocks for name, x in zip(OF_BLOCK, of_block, strict=True)}
        fits = shapes == due and min(map(min, due.values())) > 0 and positions >= LENGTH
        require(fits, "weights: shapes do not fit", UNREADABLE)

    @property
    def computed(self) -> int:
        """About how many numbers are computed for one pair."""
        inner = self.heads * self.d_head
        return self.depth * (LENGTH * (4 * self.d + 3 * inner) + 2 * self.neurons) + self.classes

    def node(self, op: str, shape: Sequence[int], *args: object) -> Node:
        self.nodes.append({"op": f"aten.{op}", "shape": [*shape], "dtype": self.dtype, "args": [*args], "kwargs": {}})
        return {"node": len(self.nodes) - 1}

    def stored(self, name: str) -> Node:
        shape = self.tensors[name][1]
        self.nodes.append({"op": "stored", "shape": shape, "dtype": self.dtype, "name": name})
        return {"node": len(self.nodes) - 1}

    def turned(self, name: str) -> Node:
        """A stored matrix transposed; the rows of those of several heads, one after the other."""
        *before, m, n = self.tensors[name][1]
        rows, found = math.prod([*before, m]), self.stored(name)
        if before:
            found = self.node("view", [rows, n], found, [rows, n])
        return self.node("permute", [n, rows], found, [1, 0])

    def by_head(self, x: Node, rows: int, name: str) -> Node:
        H, d_head = self.heads, self.d_head
        found = self.node("matmul", [1, rows, H * d_head], x, self.turned(name))
        return self.node(
            "permute", [H, rows, d_head], self.node("view", [rows, H, d_head], found, [rows, H, d_head]), [1, 0, 2]
        )

    def attention(self, block: str, x: Node, own: Node, rows: int) -> Node:
        """What heads add to the last rows; each of them sees what is up to it."""
        H, inner, n = self.heads, self.heads * self.d_head, LENGTH
        asking = zip((own, x, x), (rows, n, n), OF_HEADS, strict=True)
        q, k, v = (self.by_head(y, m, f"{block}{name}") for y, m, name in asking)
        keys = self.node("permute", [H, self.d_head, n], k, [0, 2, 1])
        scores = self.node("div", [H, rows, n], self.node("matmul", [H, rows, n], q, keys), math.sqrt(self.d_head))
        if rows > 1:
            seen = bytes(j <= i for i in range(n) for j in range(n))
            self.nodes.append(
                {"op": "stored", "shape": [n, n], "dtype": "bool", "data": base64.b64encode(seen).decode()}
            )
            mask = {"node": len(self.nodes) - 1}
            scores = self.node("where", [H, rows, n], mask, scores, {"number": "-inf"})
        mixed = self.node("matmul", [H, rows, self.d_head], self.node("_softmax", [H, rows, n], scores, -1, False), v)
        side = self.node("permute", [rows, H, self.d_head], mixed, [1, 0, 2])
        written = self.node("view", [1, rows, inner], side, [1, rows, inner])
        return self.node("matmul", [1, rows, self.d], written, self.turned(f"{block}W_O"))

    def mlp(self, block: str, x: Node, rows: int) -> Node:
        """What neurons add."""
        wide, narrow = [1, rows, self.neurons], [1, rows, self.d]
        read = self.node("matmul", wide, x, self.turned(f"{block}W_in"))
        hidden = self.node("relu", wide, self.node("add", wide, read, self.stored(f"{block}b_in")))
        written = self.node("matmul", narrow, hidden, self.turned(f"{block}W_out"))
        return self.node("add", narrow, written, self.stored(f"{block}b_out"))

    def graph(self) -> dict[str, object]:
        d, n = self.d, LENGTH
        self.nodes = [{"op": "tokens", "shape": [1, n], "dtype": "int64"}]
        embedded = self.node("embedding", [1, n, d], self.turned(EMBEDDING), {"node": 0})
        x = self.node("add", [1, n, d], embedded, self.node("slice", [n, d], self.stored(PLACES), 0, 0, n))
        for i in range(self.depth):
            rows = 1 if i + 1 == self.depth else n
            own = self.node("slice", [1, rows, d], x, 1, n - rows, n)
            x = self.node("add", [1, rows, d], own, self.attention(f"blocks.{i}.attn.", x, own, rows))
            x = self.node("add", [1, rows, d], x, self.mlp(f"blocks.{i}.mlp.", x, rows))
        logits = self.node("matmul", [1, 1, self.classes], x, self.stored(READOUT))
        return {"length": n, "nodes": self.nodes, "output": logits["node"]}

    def of_pairs(self, P: int) -> dict[str, object]:
        """The statement: all pairs, and the sum of their tokens modulo P, since "=" is P."""
        inputs = [{"sets": [[*range(P)], [*range(P)], [P]], "positions": [LENGTH - 1]}]
        return {"graphs": [self.graph()], "inputs": inputs, "classes": [*range(P)],
                "answers": {"rule": f"sum of the tokens modulo {P}"}}  # fmt: skip


def layout_of(weights: bytes) -> Tensors:
    """The tensors without what wrappers put before their names, and without masks, each of which must be causal."""
    found = Tensors()
    for name, (dtype, shape, raw) in read_tiles(weights, BYTES)[0].items():
        name = name.removeprefix("_orig_mod.").removeprefix("module.")
        require(name not in found, f"weights: {name[:80]} occurs twice", UNREADABLE)
        require(dtype in EVERY_WORD, f"weights: {name[:80]} has an unknown dtype", NOT_CHECKABLE)
        found[name] = dtype, shape, raw
    for name in [name for name in found if MASK.fullmatch(name)]:
        mask = stored_numbers(*found.pop(name))
        n = math.isqrt(mask.size)
        is_causal = mask.shape[-2:] == (n, n) and n > 0
        is_causal = is_causal and [x != 0 for x in mask.rows[0]] == [j <= i for i in range(n) for j in range(n)]
        require(is_causal, f"weights: {name} is no causal mask", NOT_CHECKABLE)
    for name, (dtype, shape, raw) in found.items():
        is_finite = all(x.is_finite() for x in stored_numbers(dtype, shape, raw).as_floats().balls[0])
        require(is_finite, f"weights: {name[:80]} holds infinity")
    return found


def is_of_layout(weights: bytes) -> bool:
    return any(name.endswith(EMBEDDING) for name in read_tiles(weights, BYTES)[0])
