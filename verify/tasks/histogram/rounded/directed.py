"""The evaluation that is worst for one position: every sum is taken in the order that hurts the right logit most.

The reading "dtype, any order" lets each element of each tensor have an order of its own. The sign of an element's
effect on (right logit) - (rival logit) says whether a larger or a smaller result hurts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from verify.arithmetic.evaluation import Evaluation, Tokens, square_root
from verify.arithmetic.rounding import add, divide, exponential, multiply, rounded
from verify.arithmetic.slack import Array
from verify.tasks.histogram.stored import StoredModel

DIRECTED_ORDERS = ("left to right", "pairwise", "ascending", "descending", "small first", "upwards", "downwards")


@dataclass(frozen=True)
class Effects:
    """The derivatives of (right logit) - (rival logit) by what is computed for one position; one leading axis."""

    queries: Array | None
    keys: Array | None
    weights: Array
    exponentials: Array
    total: Array
    mixed: Array
    hidden: Array


@dataclass(frozen=True)
class Directed:
    """Evaluations of one position of each input, every element by its own worst order.

    The format and the accumulation are those of `evaluation`; products are fused where that hurts more. Softmax is one
    operation on tensors, or four that each store their result. In tf32 all factors are rounded, or none is: a factor
    is one number for all products that it enters.
    """

    evaluation: Evaluation
    stores_softmax: bool = False
    rounds_factors: bool = True

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        return [
            replace(self.evaluation, order=order, fused=fused) for order in DIRECTED_ORDERS for fused in (False, True)
        ]

    def margins(self, model: StoredModel, tokens: Tokens, position: Tokens, rival: Tokens) -> Array:
        """(right logit) - (rival logit), (n,), of weights that are already rounded."""
        x, context, right = _read(model, tokens, position)
        effects = self.effects(model, x, context, position, right, rival)
        weights = self.weights(model, x, context, position, effects)
        mixed = self.worst(weights[:, None, :], np.swapaxes(context, 1, 2), effects.mixed, x)
        hidden = self.worst(mixed[:, None, :], model.W_1.T[None], effects.hidden, model.b_1)
        hidden = np.maximum(hidden, 0)
        logits = []
        for which, sign in ((right, 1.0), (rival, -1.0)):
            signs = np.full((len(x), 1), sign)
            logits.append(
                self.worst(hidden[:, None], model.W_2.T[which][:, None], signs, model.b_2[which][:, None])[:, 0]
            )
        return logits[0] - logits[1]

    def named(self, model: StoredModel, tokens: Tokens, position: Tokens, rival: Tokens) -> dict[str, object] | None:
        """What a certificate says of one input's evaluation; None where factors are rounded, or softmax in steps."""
        if self.stores_softmax or self.evaluation.fmt.name == "tf32":
            return None
        x, context, right = _read(model, tokens, position)
        effects = self.effects(model, x, context, position, right, rival)
        of_scores = effects.exponentials if model.is_softmax else effects.weights
        harms = {"queries": effects.queries, "keys": effects.keys, "scores": None if model.A is not None else of_scores}
        harms |= {
            "total": effects.total if model.is_softmax else None,
            "mixed": effects.mixed,
            "hidden": effects.hidden,
        }
        harms |= {f"logit {right[0]}": np.ones(1), f"logit {rival[0]}": -np.ones(1)}
        ways = [(at.order, at.fused, is_term) for at in self.evaluations for is_term in (False, True)]
        return self.evaluation.named({name: -harm for name, harm in harms.items() if harm is not None}, ways)

    def weights(self, model: StoredModel, x: Array, context: Array, position: Tokens, effects: Effects) -> Array:
        """The row of mixing weights of the position."""
        at = self.evaluation
        if model.A is not None:
            scores = model.A[position]
        else:
            assert model.W_Q is not None and model.W_K is not None
            assert effects.queries is not None and effects.keys is not None
            queries = self.worst_of_rows(x, model.W_Q, effects.queries)
            keys = self.worst_of_rows(context, model.W_K, effects.keys)
            sign = effects.exponentials if model.is_softmax else effects.weights
            products = self.worst(queries[:, None, :], keys, sign)
            root = square_root(model.d, at.inner)
            both = [at(divide, products, root), at(multiply, products, divide(np.ones(1), root, at.inner))]
            scores = self.chosen([at.tensor(values) for values in both], sign)
        if not model.is_softmax:
            return scores
        store = at.tensor if self.stores_softmax else lambda values: values
        exponentials = store(at(exponential, store(at(add, scores, -scores.max(-1, keepdims=True)))))
        total = self.worst(exponentials[:, None, :], np.ones(1), effects.total[:, None], is_tensor=False)
        return at.tensor(at(divide, exponentials, store(total)))

    def worst(self, x: Array, y: Array, effect: Array, rest: Array | None = None, is_tensor: bool = True) -> Array:
        """The sums of products over the last axis, plus a term that is added afterwards or with the others."""
        return self.chosen(self._results(x, y, rest, is_tensor), effect)

    def worst_of_rows(self, x: Array, y: Array, effect: Array) -> Array:
        """The product of rows x (..., d) and a matrix y, as `worst` takes it: each distinct row is multiplied once."""
        rows, places = np.unique(x.reshape(-1, x.shape[-1]), axis=0, return_inverse=True)
        found = self._results(rows[:, None, :], y.T[None])
        shape = (*x.shape[:-1], y.shape[1])
        return self.chosen(
            [values[places].reshape(shape) for values in (np.min(found, axis=0), np.max(found, axis=0))], effect
        )

    def _results(self, x: Array, y: Array, rest: Array | None = None, is_tensor: bool = True) -> list[Array]:
        fmt = self.evaluation.fmt
        if fmt.name == "tf32" and is_tensor and self.rounds_factors:
            x, y = rounded(x, fmt), rounded(y, fmt)
        return list(self._in_every_order(x, y, rest, is_tensor))

    def _in_every_order(self, x: Array, y: Array, rest: Array | None, is_tensor: bool) -> Iterator[Array]:
        has_one_term = ((x != 0) & (y != 0)).sum(-1).max() <= 1  # then no order differs
        for at in self.evaluations[: 2 if has_one_term and rest is None else None]:
            total = at.tensor(at.dot(x, y)) if is_tensor else at.dot(x, y)
            if rest is None:
                yield total
                continue
            yield at.tensor(at(add, total, rest))
            x_, y_ = np.broadcast_arrays(x, y)
            term = np.broadcast_to(rest, total.shape)[..., None]
            one = np.ones_like(term)
            yield at.tensor(at.dot(np.concatenate([x_, term], -1), np.concatenate([y_, one], -1)))

    @staticmethod
    def chosen(found: list[Array], effect: Array) -> Array:
        result: Array = np.where(effect > 0, np.min(found, axis=0), np.max(found, axis=0))
        return result

    @staticmethod
    def effects(
        model: StoredModel, x: Array, context: Array, position: Tokens, right: Tokens, rival: Tokens
    ) -> Effects:
        """The chain rule, in real numbers."""
        queries = keys = None
        if model.A is not None:
            weights = model.A[position]
        else:
            assert model.W_Q is not None and model.W_K is not None
            q, k = x @ model.W_Q, context @ model.W_K
            weights = np.einsum("nd,nsd->ns", q, k) / np.sqrt(model.d)
        if model.is_softmax:
            weights = np.exp(weights - weights.max(-1, keepdims=True))
            weights = weights / weights.sum(-1, keepdims=True)
        mixed = x + np.einsum("ns,nsd->nd", weights, context)
        hidden = model.W_2.T[right] - model.W_2.T[rival]
        hidden = hidden * (mixed @ model.W_1 + model.b_1 > 0)
        by_mixed = hidden @ model.W_1.T
        by_weight = np.einsum("nsd,nd->ns", context, by_mixed)
        mean = (weights * by_weight).sum(-1, keepdims=True)
        by_exponential = by_weight - mean
        if model.A is None:
            by_score = weights * by_exponential if model.is_softmax else by_weight
            queries = np.einsum("ns,nsd->nd", by_score, k)
            keys = by_score[..., None] * q[:, None, :]
        return Effects(queries, keys, by_weight, by_exponential, -mean[:, 0], by_mixed, hidden)


def _read(model: StoredModel, tokens: Tokens, position: Tokens) -> tuple[Array, Array, Tokens]:
    """The own embedding, everything that is mixed, and the right class, of each input at its position."""
    i = np.arange(len(tokens))
    context = model.E[tokens]
    x = context[i, position]
    if model.e_BOS is not None:
        context = np.concatenate([np.broadcast_to(model.e_BOS, (len(x), 1, model.d)), context], axis=1)
    return x, context, (tokens == tokens[i, position][:, None]).sum(1) - model.first_count
