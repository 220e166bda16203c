"""A histogram model run with every operation rounded to a format, in any one of many evaluation orders.

torch rounds the results of its kernels, which accumulate in a wider format and an order of their own. This is the
other half of the reading "dtype, any order": the evaluations that no kernel at hand happens to use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from verify.arithmetic.evaluation import ELEMENTS, Evaluation, Tokens, square_root
from verify.arithmetic.margins import margins_of
from verify.arithmetic.rounding import add, divide, multiply
from verify.arithmetic.slack import Array
from verify.tasks.histogram.stored import StoredModel


def logits(model: StoredModel, tokens: Tokens, evaluation: Evaluation) -> Array:
    """Logits (n, L, C) of tokens (n, L), the weights first rounded once to the format.

    >>> from constructions import relation_counting
    >>> from verify.arithmetic.formats import FORMATS
    >>> model = StoredModel.of(relation_counting.dot(T=4, L=3))
    >>> logits(model, np.array([[2, 0, 2]]), Evaluation(FORMATS["float16"])).argmax(-1) + model.first_count
    array([[2, 1, 2]])
    """
    L, d, p = tokens.shape[1], model.d, model.p
    step = max(1, ELEMENTS // (L * max(d * max(p, L + 1), p * model.classes)))
    model = rounded_model(model, evaluation)
    with np.errstate(all="ignore"):
        scores = None if model.A is not None else Scores.of(model, np.unique(tokens), evaluation)
        parts = [_forward(model, tokens[i : i + step], scores, evaluation) for i in range(0, len(tokens), step)]
    return np.concatenate(parts)


def margins(model: StoredModel, tokens: Tokens, evaluation: Evaluation) -> Array:
    """(logit of the right class) - (largest other logit): (n, L), NaN where a logit is."""
    values = logits(model, tokens, evaluation)
    return margins_of(values, (tokens[:, :, None] == tokens[:, None, :]).sum(-1) - model.first_count)


def rounded_model(model: StoredModel, evaluation: Evaluation) -> StoredModel:
    """The weights rounded once to the format."""
    names = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
    weights = {name: getattr(model, name) for name in names}
    rounded_once = {name: evaluation.tensor(W) for name, W in weights.items() if W is not None}
    return replace(model, **rounded_once)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Scores:
    """The score of every token that occurs, as a query, against every token that occurs and BOS, as a key."""

    table: Array
    places: Tokens  # of a token among those that occur, for every token

    @classmethod
    def of(cls, model: StoredModel, occurring: Tokens, at: Evaluation) -> Scores:
        assert model.W_Q is not None and model.W_K is not None  # a model has A, or both of these
        x = model.E[occurring]
        context = x if model.e_BOS is None else np.concatenate([model.e_BOS[None], x])
        queries, keys = _product(x, model.W_Q, at), _product(context, model.W_K, at)
        scores, root = _product(queries, keys.T, at), square_root(model.d, at.inner)
        scale, factor = (multiply, divide(np.ones(1), root, at.inner)) if at.reciprocal else (divide, root)
        places = np.zeros(model.T, dtype=np.int64)
        places[occurring] = np.arange(len(occurring))
        return cls(at.tensor(at(scale, scores, factor)), places)

    def mixing(self, tokens: Tokens) -> Array:
        """The scores (n, L, L or with BOS L + 1) of sequences (n, L)."""
        places = self.places[tokens]
        keys = places
        if self.table.shape[1] > len(self.table):  # BOS is the first key
            keys = np.concatenate([np.zeros((len(places), 1), dtype=np.int64), places + 1], axis=1)
        return self.table[places[:, :, None], keys[:, None]]


def _product(x: Array, y: Array, at: Evaluation) -> Array:
    """The matrix product, a few rows at a time."""
    step = max(1, ELEMENTS // y.size)
    return np.concatenate([at.product(x[i : i + step], y) for i in range(0, len(x), step)])


def _forward(model: StoredModel, tokens: Tokens, scores: Scores | None, at: Evaluation) -> Array:
    """The logits: without weights of positions, a token that a sequence holds twice has them computed once."""
    sequence, place, asked = _first_places(tokens, is_every=scores is None)
    context = model.E[tokens]
    x = context[sequence, place][:, None]
    if model.e_BOS is not None:
        bos = np.broadcast_to(model.e_BOS, (len(context), 1, model.d))
        context = np.concatenate([bos, context], axis=1)
    if scores is None:
        assert model.A is not None
        mixing = model.A[place][:, None]
    else:
        mixing = scores.mixing(tokens)[sequence, place][:, None]
    context = context[sequence]
    if model.is_softmax:
        mixing = at.softmax(mixing)
    mixed_token = at.tensor(at(add, x, at.product(mixing, context)))
    hidden = np.maximum(at.tensor(at(add, at.product(mixed_token, model.W_1), model.b_1)), 0)
    found: Array = at.tensor(at(add, at.product(hidden, model.W_2), model.b_2))[asked, 0]
    return found


def _first_places(tokens: Tokens, *, is_every: bool) -> tuple[Tokens, Tokens, Tokens]:
    """The sequence and the place where each token of a sequence comes first, and which of them is at each (n, L).

    With `is_every` each place counts by itself.
    """
    first = (tokens[:, :, None] == tokens[:, None, :]).argmax(-1)
    if is_every:
        first = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    is_first = first == np.arange(tokens.shape[1])
    number = np.cumsum(is_first).reshape(tokens.shape) - 1
    sequence, place = np.nonzero(is_first)
    return sequence, place, np.take_along_axis(number, first, 1)
