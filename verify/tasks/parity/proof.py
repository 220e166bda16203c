"""The proof for parity: pre-activations are linear forms in counts, extreme where all other tokens are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from constructions.parity import ParityTransformer
from verify.arithmetic.balls import Ball
from verify.arithmetic.stored import finite, fractions
from verify.reduction.domains import Counts, Forms
from verify.reduction.leaf import leaf

NAMES = ("E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")


@dataclass(frozen=True)
class Stored:
    """The stored numbers as balls. Shapes: E (T, d), W_Q and W_K (d, d), W_1 (d, p), b_1 (p,), W_2 (p, 2), b_2 (2,)."""

    E: Ball
    W_Q: Ball
    W_K: Ball
    W_1: Ball
    b_1: Ball
    W_2: Ball
    b_2: Ball

    @classmethod
    def of(cls, module: ParityTransformer) -> Stored:
        """Raises: BadInput for a weight that is not finite, or of a dtype that float64 does not hold."""
        return cls(*(Ball.exact(finite(name, getattr(module, name))) for name in NAMES))


def margins(stored: Stored, L: int) -> np.ndarray:
    """A lower bound on the margin of every token t at every own count k: shape (T, L).

    A pre-activation is e_t W_1 + b_1 plus k times the term of t itself plus one term for each other slot: a form in the
    counts of the other tokens, whose sum is L - k.
    """
    T = len(stored.E.mid)
    scores = (stored.E @ stored.W_Q) @ (stored.E @ stored.W_K).T  # (T, T)
    features = stored.E @ stored.W_1  # (T, p)
    odd = stored.W_2[:, 1:2] - stored.W_2[:, 0:1]
    bias = stored.b_2[1:2] - stored.b_2[0:1]
    k = np.arange(1.0, L + 1)
    domain = Counts(L - k, is_full=True)
    out = np.empty((T, L))
    for t in range(T):
        terms = scores[t][:, None] * features  # (T, p)
        own = features[t][None] + stored.b_1[None] + Ball.exact(k)[:, None] * terms[t][None]  # (L, p)
        others = terms[np.arange(T) != t] if T > 1 else Ball.exact(np.zeros((1, terms.mid.shape[1])))
        difference = (leaf(domain, Forms(own, others), odd).range + bias)[:, 0]
        out[t] = np.where(k % 2 == 1, difference.lower, -difference.upper)
    if T == 1:  # no other token: only k = L occurs
        out[:, : L - 1] = np.inf
    return out


def vertices(T: int, L: int, t: int, k: int) -> Iterator[tuple[int, ...]]:
    """The sequences of token t, k times, first, with one other token in all other places."""
    for s in range(T):
        if s != t or k == L:
            yield (t,) * k + (s,) * (L - k)


def bags(T: int, L: int, t: int, k: int) -> Iterator[tuple[int, ...]]:
    """The sequences of token t, k times, first, with every bag of other tokens after it."""
    for others in combinations_with_replacement([s for s in range(T) if s != t], L - k):
        yield (t,) * k + others


def number_of_bags(T: int, L: int, k: int) -> int:
    """How many bags of other tokens there are beside k equal ones."""
    return comb(T - 1 + L - k - 1, L - k) if k < L else 1


def exact_margin(module: ParityTransformer, tokens: tuple[int, ...], position: int) -> Fraction:
    """(logit of the right class) - (the other) at one position, in rational arithmetic."""
    E, W_Q, W_K, W_1, b_1, W_2, b_2 = (fractions(getattr(module, name)) for name in NAMES)
    x = E[list(tokens)]
    mixed = x[position] + ((x[position] @ W_Q) @ (x @ W_K).T) @ x
    hidden = [max(z, Fraction(0)) for z in mixed @ W_1 + b_1]
    logits = np.array(hidden, dtype=object) @ W_2 + b_2
    difference: Fraction = logits[1] - logits[0]
    return difference if tokens.count(tokens[position]) % 2 else -difference
