"""A decoder in a format on one string, with each rounding error by itself (docs/checker.md).

What LayerNorm's divisor is off by moves a whole row, and so two logits together, which balls of single numbers forget.
"""

from collections.abc import Sequence
from functools import cached_property

from flint import arb, ctx, fmpq

from verify.checker.arrays import FLOAT, Array, product_of, reshaped
from verify.checker.decoder import Decoder
from verify.checker.formats import BinaryFormat
from verify.checker.moved import MovedArray, OfArrays
from verify.checker.moves import sliced, taken, transposed
from verify.checker.operations import ADDED, OPERATIONS, total
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.rounded_norms import RoundedKernels
from verify.checker.waves import turns

BITS = 64
MOST_WORK = 1 << 20  # squares of the numbers of a layer's stream and neurons, for all strings: about a minute


class MovedDecoder:
    """The decoder of a file; sums in a wider format round less, so that the same bounds hold."""

    def __init__(self, model: Decoder, fmt: BinaryFormat) -> None:
        self.model, self.fmt, self.work, self.at = model, fmt, 0, RoundedKernels(fmt, fmt, True, False)

    @cached_property
    def W(self) -> dict[str, MovedArray]:
        """The stored numbers, rounded once."""
        return {name: self.at.stored(_array(x.tolist())) for name, x in self.model.exact.items()}

    @staticmethod
    def follows(model: Decoder, fmt: BinaryFormat) -> bool:
        """Whether all of its operations are followed."""
        return fmt.factors is None and (not model.has_mlp or model.activation in ("relu", "gelu"))

    def gaps(self, tokens: Sequence[int], due: Sequence[int | None], shift: int) -> list[list[arb]]:
        """(due logit) - (each other one) at every position, none where no answer is judged; a ball that holds all.

        Raises: Refusal where there is more to follow than MOST_WORK.
        """
        wide = self.model.exact["W_U"].nrows() + self.model.neurons
        self.work += (wide * len(tokens)) ** 2
        require(self.work <= MOST_WORK, "so many errors are not followed by themselves", NOT_CHECKABLE)
        with ctx.workprec(BITS):
            model = self.model
            rows = [self.W["W_E"].mid.shape[0] - 1] * model.bos + [*tokens]
            x = self._placed(self._moved(lambda a: taken(a, 0, rows), self.W["W_E"]), len(rows), shift)
            for i in range(model.layers):
                at = f"blocks.{i}."
                seen = self._attended(self._normal(x, f"{at}norm_1"), f"{at}attention.", shift)
                x = self._affine(seen, f"{at}attention.W_O", f"{at}attention.b_O", x)
                if model.has_mlp:
                    z = self._affine(self._normal(x, f"{at}norm_2"), f"{at}mlp.W_in", f"{at}mlp.b_in")
                    x = self._affine(self._active(z), f"{at}mlp.W_out", f"{at}mlp.b_out", x)
            logits = self.at.read(self._affine(self._normal(x, "norm"), "W_U", "b_U"))
            return [
                [] if k is None else self._apart(self._moved(lambda a, i=i: taken(a, 0, [i]), logits), k)
                for i, k in enumerate(due, int(model.bos))
            ]

    def _moved(self, move: OfArrays, *x: MovedArray) -> MovedArray:
        return self.at.errors.linear(move, *x)

    def _apart(self, row: MovedArray, k: int) -> list[arb]:
        """An error moves a difference by the difference of what it moves both by."""
        (middle,), moves = row.mid.rows, row.moved.values()
        off = [total([abs(g[k] - g[j]) for g in moves]).upper() for j in range(len(middle))]
        return [middle[k] - y + e.union(-e) for j, (y, e) in enumerate(zip(middle, off, strict=True)) if j != k]

    def _placed(self, x: MovedArray, n: int, shift: int) -> MovedArray:
        """The stream of tokens with their positions."""
        if self.model.pe in ("ape", "sine"):
            return self.at.plus(x, self._moved(lambda a: sliced(a, 0, shift, shift + n), self.W["W_pos"]))
        if self.model.pe != "spe":
            return x
        require(shift + n <= 2**self.fmt.p, "positions are rounded in the format", NOT_CHECKABLE)
        places = MovedArray(_array([[arb(shift + i)] for i in range(1, n + 1)]), {}, is_stored=True)
        return self._moved(lambda *parts: OPERATIONS["cat"]([*parts], 1), x, places)

    def _affine(self, x: MovedArray, name: str, bias: str, stream: MovedArray | None = None) -> MovedArray:
        """x W, the bias and the stream where there are such: terms of one sum, in any order."""
        at, x, W = self.at, self.at.read(x), self.W[name]
        others = [self.W[y] for y in [bias] if y in self.W] + [at.read(y) for y in [stream] if y is not None]
        found, size = at.errors.product(product_of, x, W), product_of(x.size, W.size)
        for y in others:
            found, size = self._moved(ADDED, found, y), ADDED(size, y.size)
        return at.left(found, size, ADDED(at.terms(product_of, x, W), 1 + len(others)))

    def _normal(self, x: MovedArray, name: str) -> MovedArray:
        if not self.model.norm:
            return x
        parts = (self.W[f"{name}.{part}"] for part in ("weight", "bias"))
        weight, bias = (self._moved(lambda a: reshaped(a, [-1]), part) for part in parts)
        return self.at.layer_norm(x, [weight.mid.size], weight, bias, self.model.eps)[0]

    def _attended(self, x: MovedArray, at: str, shift: int) -> MovedArray:
        """What all heads read, side by side: each position sees itself and those before."""
        q, k, v = (self._affine(x, f"{at}W_{c}", f"{at}b_{c}") for c in "QKV")
        if self.model.pe == "rope":
            q, k = self._turned(q, shift), self._turned(k, shift)
        n, heads = x.mid.shape[0], self.model.heads
        if any(all(y == 0 for y in side.size.rows[0]) for side in (q, k)) and n <= 2**self.fmt.p:
            return self._mean(v)
        q, k, v = (self._moved(lambda a: transposed(reshaped(a, [n, heads, -1]), 0, 1), y) for y in (q, k, v))
        seen = self.at.attention(q, k, v, is_causal=True)
        return self._moved(lambda a: reshaped(transposed(a, 0, 1), [n, -1]), seen)

    def _mean(self, values: MovedArray) -> MovedArray:
        """Of the values up to each position: n scores of 0 have exponentials of 1, which add up to n exactly.

        A share is rounded as a quotient or a product with a reciprocal, which is rounded, and as a factor: three times.
        """
        at, v, n = self.at, self.at.read(values), values.mid.shape[0]
        seen = _array([[int(j <= i) for j in range(n)] for i in range(n)])
        share = MovedArray(_array([[arb(int(j <= i)) / (i + 1) for j in range(n)] for i in range(n)]), {})
        found = at.times(product_of, share, v, ADDED(at.terms(product_of, share, v), 4))
        return at.within(found, product_of(seen, v.size), n + 1)

    def _turned(self, x: MovedArray, shift: int) -> MovedArray:
        """Every pair of a head's numbers turned by the angle of its position: two products and their sum, stored."""
        n, x, heads = x.mid.shape[0], self.at.read(x), self.model.heads
        cos, sin = (self.W[name].mid for name in ("cos", "sin"))
        sides = zip(*(_rows(sliced(part, 0, shift, shift + n)) for part in (cos, sin)), strict=True)
        matrices = Array(
            FLOAT, (n, *[x.mid.shape[1]] * 2), [[y for c, s in sides for r in turns(c, s, heads) for y in r]]
        )
        rows = self._moved(lambda a: reshaped(a, [n, 1, -1]), x)
        found = self.at.times(product_of, rows, MovedArray(matrices, {}, is_stored=True), 0, 5)
        return self._moved(lambda a: reshaped(a, [n, -1]), found)

    def _active(self, z: MovedArray) -> MovedArray:
        if self.model.activation == "relu":
            return self.at.errors.relu(z)
        return self.at.function("gelu", self.at.read(z))


def _array(rows: Sequence[Sequence[int | arb | fmpq]]) -> Array:
    return Array(FLOAT, (len(rows), len(rows[0])), [[arb(x) for row in rows for x in row]])


def _rows(x: Array) -> list[list[arb]]:
    return [[*x.balls[0][i : i + x.shape[1]]] for i in range(0, x.size, x.shape[1])]
