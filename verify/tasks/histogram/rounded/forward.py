"""A histogram model run with every operation rounded to a format, in any one of many evaluation orders.

torch rounds the results of its kernels, which accumulate in a wider format and an order of their own. This is the
other half of the reading "dtype, any order": the evaluations that no kernel at hand happens to use.
"""

from __future__ import annotations

from dataclasses import replace

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
    terms = tokens.shape[1] * max(model.d * max(model.d, model.p, tokens.shape[1] + 1), model.p * model.classes)
    step = max(1, ELEMENTS // terms)
    evaluation = replace(evaluation)  # starts its random numbers afresh
    model = rounded_model(model, evaluation)
    with np.errstate(all="ignore"):
        parts = [_forward(model, tokens[i : i + step], evaluation) for i in range(0, len(tokens), step)]
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


def _forward(model: StoredModel, tokens: Tokens, at: Evaluation) -> Array:
    x = context = model.E[tokens]
    if model.e_BOS is not None:
        bos = np.broadcast_to(model.e_BOS, (len(x), 1, model.d))
        context = np.concatenate([bos, x], axis=1)
    mixing = _scores(model, x, context, at)
    if model.is_softmax:
        mixing = at.softmax(mixing)
    mixed_token = at.tensor(at(add, x, at.product(mixing, context)))
    hidden = np.maximum(at.tensor(at(add, at.product(mixed_token, model.W_1), model.b_1)), 0)
    return at.tensor(at(add, at.product(hidden, model.W_2), model.b_2))


def _scores(model: StoredModel, x: Array, context: Array, at: Evaluation) -> Array:
    if model.A is not None:
        return np.broadcast_to(model.A, (len(x), *model.A.shape))
    assert model.W_Q is not None and model.W_K is not None  # a model has A, or both of these
    queries, keys = at.product(x, model.W_Q), at.product(context, model.W_K)
    scores = at.product(queries, np.swapaxes(keys, -1, -2))
    root = square_root(model.d, at.inner)
    if at.reciprocal:
        return at.tensor(at(multiply, scores, divide(np.ones(1), root, at.inner)))
    return at.tensor(at(divide, scores, root))
