"""The stored numbers of each head, exactly: scores and values of the tokens, and what they add to the logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flint import arb, ctx, fmpq, fmpq_mat

from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Combination, exponentials, rational
from verify.arithmetic.layer_norm import centred, squared_deviation
from verify.arithmetic.slack import Array
from verify.arithmetic.softmax import nearest_weights
from verify.arithmetic.stored import check_finite, matrix, numbers
from verify.tasks.count01.layer_norm.surds import Surd
from verify.tasks.count01.task import BOS, EQUALS, FIVE, FOUR, ONE, TWO, ZERO

if TYPE_CHECKING:
    from torch import Tensor

    from verify.tasks.count01.model import Count01Model

LASTS = (EQUALS, FOUR, FIVE)
SEEN = (BOS, ZERO, ONE, TWO, EQUALS)  # the token kinds that "=" attends to
LARGEST_SCORE = 1 << 50  # beyond it, the exponent of an exponential outgrows a machine word


@dataclass(frozen=True)
class HeadNumbers:
    """One head: scores[last][t], values[t] (d_h numbers) and logits[t] (one number per class), t over all tokens.

    After the token `last`, token t weighs w_t = exp(scores[last][t]) and adds its share of values[t].
    """

    scores: dict[int, list[Surd]]
    values: list[list[Surd]]
    logits: list[list[Surd]]

    @cached_property
    def is_rational(self) -> bool:
        """Whether all numbers are rational, so that every sign is decidable."""
        rows = [*self.scores.values(), *self.values, *self.logits]
        return all(x.is_rational for row in rows for x in row)

    @property
    def d_h(self) -> int:
        return len(self.values[0])

    def weight(self, t: int, last: int, bits: int) -> arb:
        """A ball around exp(score of t after `last`)."""
        with ctx.workprec(bits):
            return self.scores[last][t].ball(bits + 64).exp()

    def nearest_weights(self, last: int, tokens: Iterable[int]) -> Array:
        """The weights of tokens after `last` over the largest of them, each the nearest float."""
        return nearest_weights([self.scores[last][t].ball(256) for t in tokens])

    def exact_weight(self, t: int, last: int) -> Combination:
        """Returns the weight as a combination of exponentials. Only for rational scores."""
        score = self.scores[last][t].value
        return exponentials({score: 1})  # type: ignore[arg-type]

    def ratio(self, t: int) -> arb:
        """w_0 / w_t at "=": the documents' w01 and w02."""
        with ctx.workprec(128):
            return (self.scores[EQUALS][ZERO] - self.scores[EQUALS][t]).ball(256).exp()


@dataclass(frozen=True)
class ModelNumbers:
    """All heads, and the part of the logits after `last` that no head changes: biases and the residual."""

    heads: tuple[HeadNumbers, ...]
    constant: dict[int, list[fmpq]]

    @property
    def classes(self) -> int:
        return len(self.constant[EQUALS])

    def difference(self, head: int, expected: int, rival: int, t: int) -> Surd:
        """Returns the amount that token t adds through a head to (expected logit) - (rival logit)."""
        row = self.heads[head].logits[t]
        return row[expected] - row[rival]


def model_numbers(model: Count01Model) -> ModelNumbers:
    """The numbers of a module as it stores them.

    Raises: BadInput for a weight that is NaN or infinite, or scores beyond 2^50.
    """
    check_finite(model.named_parameters())
    E, W_out, b_out = matrix(model.E), matrix(model.W_out), [rational(b) for b in numbers(model.b_out).tolist()]
    fixed, varying, radicands = attention_input(model, E)
    heads = tuple(
        head_numbers(fixed, varying, radicands, fmpq(model.scale), W_out, [matrix(W[h]) for W in stacked(model)])
        for h in range(model.heads)
    )
    residual = E * W_out
    constant = {last: [b + (residual[last, j] if model.has_skip else 0) for j, b in enumerate(b_out)] for last in LASTS}
    return ModelNumbers(heads, constant)


def stacked(model: Count01Model) -> tuple[Tensor | Array, ...]:
    return model.W_Q, model.W_K, model.W_V, model.W_O


def head_numbers(
    fixed: fmpq_mat, varying: fmpq_mat, radicands: Sequence[fmpq], scale: fmpq, W_out: fmpq_mat, W: list[fmpq_mat]
) -> HeadNumbers:
    """One head's numbers, where token t enters the attention as fixed[t] + varying[t] / sqrt(radicands[t])."""
    W_Q, W_K, W_V, W_O = W

    def through(M: fmpq_mat) -> list[list[Surd]]:
        plain, rooted = fixed * M, varying * M
        return [
            [Surd.rational(plain[t, i]) + Surd.over_root(rooted[t, i], radicands[t]) for i in range(M.ncols())]
            for t in range(fixed.nrows())
        ]

    queries, keys = through(W_Q), through(W_K)
    root = Surd.over_root(fmpq(1), scale)
    scores = {last: [dot(queries[last], key) * root for key in keys] for last in LASTS}
    if any(abs(float(s.ball(64).mid())) > LARGEST_SCORE for row in scores.values() for s in row):
        raise BadInput(f"weights: an attention score exceeds {LARGEST_SCORE}; scale W_Q or W_K down")
    return HeadNumbers(scores, through(W_V), through(W_V * W_O * W_out))


def attention_input(model: Count01Model, E: fmpq_mat) -> tuple[fmpq_mat, fmpq_mat, list[fmpq]]:
    """Returns the vector with which token t enters the attention, as fixed[t] + varying[t] / sqrt(radicand[t]).

    Layer norm divides by sqrt(variance + eps); without it the embedding is all there is.
    """
    rows, d = E.nrows(), E.ncols()
    if not model.has_norm:
        return E, fmpq_mat(rows, d), [fmpq(1)] * rows
    weight = [rational(x) for x in numbers(model.norm_weight).tolist()]
    bias = [rational(x) for x in numbers(model.norm_bias).tolist()]
    varying, radicands = fmpq_mat(rows, d), []
    for t in range(rows):
        row = [E[t, i] for i in range(d)]
        radicands.append(squared_deviation(row, rational(float(model.norm_eps))))
        for i, part in enumerate(centred(row)):
            varying[t, i] = weight[i] * part
    if any(r <= 0 for r in radicands):
        raise BadInput("norm_eps: an embedding without variance needs a positive eps in the layer norm")
    return fmpq_mat(rows, d, bias * rows), varying, radicands


def dot(x: Sequence[Surd], y: Sequence[Surd]) -> Surd:
    out = Surd({})
    for a, b in zip(x, y, strict=True):
        out = out + a * b
    return out
