"""A causal decoder in the layout of GPT-2, run in balls on strings of tokens (docs/checker.md)."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.ball_rows import mean, plus, relu
from verify.checker.named_shapes import read_shapes
from verify.checker.reading import UNREADABLE, read_metadata, read_tiles, recorded, require
from verify.checker.waves import tables_of, turns

ATTENTION = {"W_Q": "d inner", "W_K": "d inner", "W_V": "d inner", "W_O": "inner d"}
BIASES = {"b_Q": "inner", "b_K": "inner", "b_V": "inner", "b_O": "d"}


class DecoderLayout(TypedDict, total=False):
    """How a decoder uses its tensors."""

    pe: str
    bos: bool
    n_heads: int
    activation: str
    layernorm: bool
    positions: int
    eps: float


KINDS = DecoderLayout.__annotations__

Tensors = dict[str, arb_mat]


class Decoder(ABC):
    """The tensors of a file and what its metadata say of their use; `says` is what a certificate must repeat.

    `tables` are those that it makes itself, as the certificate has them.
    """

    def __init__(self, data: bytes, tables: object = None) -> None:
        tensors, metadata = read_tiles(data, {})
        said = read_metadata(metadata, "decoder", "the metadata name no decoder")
        is_known = all(type(said.get(name, kind())) is kind for name, kind in KINDS.items())
        require(is_known and {*KINDS} - {"eps"} <= {*said}, "the metadata name no decoder", UNREADABLE)
        about = recorded(said, DecoderLayout)
        self.layers = len({name.split(".")[1] for name in tensors if re.match(r"blocks\.[0-9]+\.", name)})
        self.norm, self.has_mlp = "norm.weight" in tensors, "blocks.0.mlp.W_in" in tensors
        W, sizes, dtype = read_shapes(data, self._shapes({*tensors}, about["pe"]))
        self.eps: float | fmpq = about.get("eps", 1e-5)
        self.bos, self.pe, self.heads = about["bos"], about["pe"], about["n_heads"]
        self.activation, d = about["activation"], sizes["d"]
        self.positions = None if self.pe == "nope" else sizes.get("positions", about["positions"])
        self.tokens, self.classes = sizes["tokens"] - self.bos, sizes["classes"]
        is_right = self.heads > 0 and sizes["inner"] % max(1, self.heads) == 0 and self.layers > 0 and self.tokens > 0
        is_right = is_right and sizes["embedded"] == d - (self.pe == "spe") and self.norm == about["layernorm"]
        is_right = is_right and 0 < self.eps < 1 and (self.positions is None or self.positions > 0)
        is_right = is_right and (not self.has_mlp or self.activation in ("relu", "gelu", "gelu_tanh"))
        require(is_right, "the sizes of tensors and metadata do not fit", UNREADABLE)
        require(self.pe in ("nope", "ape", "spe", "rope", "sine"), "the metadata name no decoder", UNREADABLE)
        turned = sizes["inner"] // self.heads if self.pe == "rope" else d
        require(self.pe != "rope" or turned % 2 == 0, "the sizes of tensors and metadata do not fit", UNREADABLE)
        W |= tables_of(tables, self.pe, self.positions or 0, turned, dtype)
        self.exact, self.size = W, sum(x.nrows() * x.ncols() for x in W.values())
        self.neurons = sum(n for name, n in sizes.items() if name.startswith("neurons"))
        self.says = {
            "pe": self.pe, "bos": self.bos, "layers": self.layers, "n_heads": self.heads, "d": d,
            "neurons": self.neurons, "layernorm": self.norm,
            "activation": self.activation if self.has_mlp else None, "dtype": dtype,
        }  # fmt: skip
        self.says |= {} if self.positions is None else {"positions": self.positions}

    def _shapes(self, names: set[str], pe: str) -> dict[str, str]:
        """The tensors that a decoder has, by the sizes that they must share."""
        shapes = {"W_E": "tokens embedded", "W_U": "d classes"} | ({"b_U": "classes"} if "b_U" in names else {})
        shapes |= {"W_pos": "positions d"} if pe == "ape" else {}
        of_norm = ["norm"] if self.norm else []
        for i in range(self.layers):
            at, own = f"blocks.{i}.", ATTENTION | (BIASES if "blocks.0.attention.b_Q" in names else {})
            shapes |= {f"{at}attention.{name}": shape for name, shape in own.items()}
            mlp = {"W_in": f"d neurons{i}", "b_in": f"neurons{i}", "W_out": f"neurons{i} d", "b_out": "d"}
            shapes |= {f"{at}mlp.{name}": shape for name, shape in mlp.items()} if self.has_mlp else {}
            of_norm += [f"{at}norm_1", *[f"{at}norm_2"] * self.has_mlp] if self.norm else []
        return shapes | {f"{name}.{part}": "d" for name in of_norm for part in ("weight", "bias")}

    def gaps(self, tokens: Sequence[int], due: Sequence[int | None], shift: int, bits: int) -> list[list[arb]]:
        """(due logit) - (each other one) at every position, none where no answer is judged."""
        with ctx.workprec(bits):
            W = {name: arb_mat(x) for name, x in self.exact.items()}
            rows = W["W_E"].table()
            x = arb_mat([rows[t] for t in ([len(rows) - 1] if self.bos else []) + [*tokens]])
            x = self._placed(x, W, shift)
            for i in range(self.layers):
                at = f"blocks.{i}."
                seen = self._attended(self._normal(x, W, f"{at}norm_1"), W, f"{at}attention.", shift)
                x = self._affine(seen, W, f"{at}attention.W_O", f"{at}attention.b_O", x)
                if self.has_mlp:
                    z = self._affine(self._normal(x, W, f"{at}norm_2"), W, f"{at}mlp.W_in", f"{at}mlp.b_in")
                    x = self._affine(self._active(z), W, f"{at}mlp.W_out", f"{at}mlp.b_out", x)
            return self._gaps(arb_mat(x.table()[int(self.bos) :]), W, due)

    def _attended(self, x: arb_mat, W: dict[str, arb_mat], at: str, shift: int) -> arb_mat:
        """What all heads read, side by side: each position sees itself and those before."""
        q, k, v = (self._affine(x, W, f"{at}W_{c}", f"{at}b_{c}") for c in "QKV")
        if self.pe == "rope":
            q, k = self._turned(q, W, shift), self._turned(k, W, shift)
        queries, keys, values = q.table(), k.table(), v.table()
        size, parts = len(queries[0]) // self.heads, []
        for start, stop in pairwise(range(0, len(queries[0]) + 1, size)):
            q, k, v = (arb_mat([row[start:stop] for row in part]) for part in (queries, keys, values))
            scores, rows = self._scores(q, k).table(), v.table()
            parts.append([self._mean(row[: i + 1], arb_mat(rows[: i + 1])) for i, row in enumerate(scores)])
        return arb_mat([sum(rows, []) for rows in zip(*parts, strict=True)])

    @abstractmethod
    def _placed(self, x: arb_mat, W: Tensors, shift: int) -> arb_mat:
        """The stream of tokens with their positions."""

    def _turned(self, x: arb_mat, W: Tensors, shift: int) -> arb_mat:
        """Every pair of a head's numbers turned by the angle of its position."""
        angles = [[*zip(W["cos"].table(), W["sin"].table(), strict=True)][shift + i] for i in range(x.nrows())]
        rows = [(arb_mat([row]), turns(*both, self.heads)) for row, both in zip(x.table(), angles, strict=True)]
        return arb_mat([self._summed(row, arb_mat(matrix)) for row, matrix in rows])

    @abstractmethod
    def _summed(self, x: arb_mat, W: arb_mat) -> list[arb]:
        """One row times a matrix."""

    @abstractmethod
    def _affine(self, x: arb_mat, W: Tensors, name: str, bias: str, stream: arb_mat | None = None) -> arb_mat:
        """x W, plus the bias where there is one, plus the stream where it is given."""

    @abstractmethod
    def _normal(self, x: arb_mat, W: Tensors, name: str) -> arb_mat:
        """(x - mean) / sqrt(variance + eps), times the weight, plus the bias; x without LayerNorm."""

    @abstractmethod
    def _scores(self, q: arb_mat, k: arb_mat) -> arb_mat:
        """All q k, divided by the root of the head's size."""

    @abstractmethod
    def _mean(self, scores: Sequence[arb], values: arb_mat) -> list[arb]:
        """Of values weighed by e^score."""

    @abstractmethod
    def _active(self, z: arb_mat) -> arb_mat:
        """ReLU or GELU."""

    @abstractmethod
    def _gaps(self, x: arb_mat, W: Tensors, due: Sequence[int | None]) -> list[list[arb]]:
        """(due logit) - (each other one), from the last stream."""


class ExactDecoder(Decoder):
    """The decoder in real arithmetic: balls that hold one number each."""

    def _placed(self, x: arb_mat, W: Tensors, shift: int) -> arb_mat:
        return placed(self.pe, x, W, shift)

    def _summed(self, x: arb_mat, W: arb_mat) -> list[arb]:
        return [*(x * W).table()[0]]

    def _affine(self, x: arb_mat, W: Tensors, name: str, bias: str, stream: arb_mat | None = None) -> arb_mat:
        return affine(x, W, name, bias, stream)

    def _normal(self, x: arb_mat, W: Tensors, name: str) -> arb_mat:
        if not self.norm:
            return x
        weight, bias, out = W[f"{name}.weight"].table()[0], W[f"{name}.bias"].table()[0], []
        for row in x.table():
            centre = sum(row, arb(0)) / len(row)
            moved = [y - centre for y in row]
            root = (sum((y * y for y in moved), arb(0)) / len(row) + arb(self.eps)).sqrt()
            out.append([y / root * a + b for y, a, b in zip(moved, weight, bias, strict=True)])
        return arb_mat(out)

    def _scores(self, q: arb_mat, k: arb_mat) -> arb_mat:
        return q * k.transpose() / arb(q.ncols()).sqrt()

    def _mean(self, scores: Sequence[arb], values: arb_mat) -> list[arb]:
        return mean(scores, values)

    def _active(self, z: arb_mat) -> arb_mat:
        return activated(self.activation, z)

    def _gaps(self, x: arb_mat, W: Tensors, due: Sequence[int | None]) -> list[list[arb]]:
        pairs = zip(self._affine(self._normal(x, W, "norm"), W, "W_U", "b_U").table(), due, strict=True)
        return [[] if k is None else [row[k] - y for j, y in enumerate(row) if j != k] for row, k in pairs]


def placed(pe: str, x: arb_mat, W: Tensors, shift: int) -> arb_mat:
    """A stream of tokens with their positions, from a shift on."""
    if pe in ("ape", "sine"):
        return x + arb_mat(W["W_pos"].table()[shift : shift + x.nrows()])
    return x if pe in ("nope", "rope") else arb_mat([[*row, arb(shift + i)] for i, row in enumerate(x.table(), 1)])


def affine(x: arb_mat, W: Tensors, name: str, bias: str, stream: arb_mat | None = None) -> arb_mat:
    found = plus(x * W[name], W[bias]) if bias in W else x * W[name]
    return found if stream is None else found + stream


def activated(activation: str, z: arb_mat) -> arb_mat:
    if activation == "relu":
        return relu(z)
    if activation == "gelu":
        return arb_mat([[y * (1 + (y / arb(2).sqrt()).erf()) / 2 for y in row] for row in z.table()])
    root, c = (2 / arb.pi()).sqrt(), arb(0.044715)
    return arb_mat([[y * (1 + (root * (y + c * y * y * y)).tanh()) / 2 for y in row] for row in z.table()])
