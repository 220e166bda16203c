"""Two layers whose second one hands on the neurons of the first: they count where the one layer does (A-E.8)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from constructions.two_layers import MixingLayer, TwoLayerTransformer
from verify.arithmetic.margins import margins_of
from verify.arithmetic.slack import INFLATION, LOST, Array, gamma
from verify.arithmetic.stored import Numbers, fractions
from verify.frame.judged import check_judged
from verify.tasks.histogram.proof import certify


def counts_as_one_layer(two: TwoLayerTransformer) -> bool:
    """Whether all T^L inputs are proved right in real arithmetic, by the proof of one layer. False says nothing.

    Without softmax the second layer mixes nothing, reads h = ReLU(h), and has the one layer's logits. With softmax half
    the stream is h + r, where |r| is at most half of what other tokens' positions take of a token's attention, times
    the largest h. So a gap of two logits shrinks by no more than twice that times the readout, and the one layer's
    margin is to be larger. All numbers are the stored ones.
    Raises: BadInput for a second layer of another kind.

    >>> from constructions.relation_counting import dot
    >>> from constructions.two_layers import after
    >>> counts_as_one_layer(after(dot(T=4, L=3, dtype=torch.float64)))
    True
    """
    check_judged(two, TwoLayerTransformer)
    one = one_layer(two)
    found = certify(one)
    if not found or found.margin is None:
        return False
    return not one.is_softmax or lost(two, _Numbers.of(one)) < found.margin


def lost(two: TwoLayerTransformer, numbers: _Numbers) -> float:
    """An upper bound on what the second softmax takes from a gap of two logits."""
    share = math.exp(-lead(two, numbers)) * (two.L - 1 + two.has_bos) * INFLATION
    return share * float(numbers.largest @ np.abs(_array(two.second.W_2)).max(axis=1)) * INFLATION + LOST


def is_right_on_pairs(two: TwoLayerTransformer) -> bool:
    """Whether lin counts on all T^2 sequences of two tokens, in fractions.

    Raises: BadInput for another model or length.

    >>> from constructions.two_layers import distance
    >>> is_right_on_pairs(distance(5))
    True
    """
    check_judged(two, TwoLayerTransformer)
    if two.model != "lin" or two.L != 2:
        raise BadInput(f"model: is {two.model} at L={two.L}, and pairs are of lin at L=2")
    E = fractions(two.E)
    return all(
        logits[int(t == s)] > logits[int(t != s)]
        for t, s in product(range(two.T), repeat=2)
        for logits in exact_logits(two, E[[t, s]])
    )


def exact_logits(two: TwoLayerTransformer, x: Numbers) -> Numbers:
    """The logits of lin at each position of embedded tokens, computed as the module does, without rounding."""
    for layer in (two.first, two.second):
        A, W_1, b_1, W_2, b_2 = (fractions(getattr(layer, name)) for name in ("A", "W_1", "b_1", "W_2", "b_2"))
        x = np.maximum((x + A @ x) @ W_1 + b_1, 0) @ W_2 + b_2
    return x


def one_layer(two: TwoLayerTransformer) -> HistogramTransformer:
    """The first layer's neurons with the second layer's readout.

    Raises: BadInput for a second layer that does not hand them on.
    """
    first, second, p = two.first, two.second, two.p
    half = 0.5 if second.is_softmax else 1.0
    handed = torch.zeros(two.d, p, dtype=second.W_1.dtype)
    handed[:p] = torch.eye(p)[: two.d]
    is_kept = p <= two.d and torch.equal(first.W_2, handed.T) and torch.equal(second.W_1, half * handed)
    is_bare = not any(bool(bias.count_nonzero()) for bias in (first.b_2, second.b_1))
    is_still = second.is_softmax or not bool((second.A if second.is_linear else second.W_Q).count_nonzero())
    if not (is_kept and is_bare and is_still):
        raise BadInput("model: its second layer does not hand on the neurons of the first; use `verify module`")
    one = HistogramTransformer(two.model, T=two.T, L=two.L, d=two.d, p=p, dtype=two.E.dtype)
    mixing = ("A",) if first.is_linear else ("W_Q", "W_K")
    taken = {name: getattr(first, name) for name in (*mixing, "W_1", "b_1")} | {"W_2": second.W_2, "b_2": second.b_2}
    one.load_state_dict(taken | {"E": two.E} | ({"e_BOS": two.e_BOS} if two.has_bos else {}))
    return one.eval()


def lead(two: TwoLayerTransformer, numbers: _Numbers) -> float:
    """A lower bound on by how much a token's own score is above that of each other token, in the second layer.

    Where scores are c <h_i, h_j>, the own neuron is v or more, and all others of a token are 0: then the lead is
    c v (v - b), b being what BOS has at that neuron. 0 where none is known: a share of all others is then no bound.
    """
    second: MixingLayer = two.second
    if second.is_linear:
        A = _array(second.A)
        return max(0.0, float(margins_of(A, np.arange(len(A))).min()) / INFLATION) if two.L > 1 else 0.0
    W_Q, W_K, eye = _array(second.W_Q), _array(second.W_K), np.eye(two.d)
    c = float(W_Q[0, 0])
    is_scaled = c > 0 and np.array_equal(W_Q, c * eye) and np.array_equal(W_K, eye)
    if not (is_scaled and two.p >= two.T and numbers.are_others_silent):
        return 0.0
    return max(0.0, c / math.sqrt(two.d) * numbers.own * (numbers.own - numbers.of_bos) / INFLATION - LOST)


@dataclass(frozen=True)
class _Numbers:
    """Bounds on the neurons of a first layer: the largest of each (p,), and, under equal weights, the least own one."""

    largest: Array
    own: float
    of_bos: float
    are_others_silent: bool

    @classmethod
    def of(cls, one: HistogramTransformer) -> _Numbers:
        rows = _array(one.E)
        if one.has_bos:
            rows = np.vstack([rows, _array(one.e_BOS)])
        W, b = _array(one.W_1), _array(one.b_1)
        G, size = rows @ W, np.abs(rows) @ np.abs(W)
        error = gamma(one.d + 8) * 2 * (size.max(axis=0) + np.abs(b)) + LOST
        largest = np.maximum(0, 2 * size.max(axis=0) + b + error)
        is_uniform = not one.is_linear and not bool(one.W_Q.count_nonzero())
        if not is_uniform or one.p < one.T:
            return cls(largest, 0.0, 0.0, False)
        T, n, tokens = one.T, one.L + one.has_bos, G[: one.T]
        fixed = tokens + b + (tokens + (G[T] if one.has_bos else 0)) / n  # the own token, and BOS, once each
        high = fixed + (one.L - 1) / n * tokens.max(axis=0) + error
        low = fixed + (one.L - 1) / n * tokens.min(axis=0) - error
        are_silent = bool((high[~np.eye(T, one.p, dtype=bool)] <= 0).all())
        of_bos = 0.0
        if one.has_bos:
            of_bos = max(0.0, float((G[T] + b + (G[T] + one.L * tokens.max(axis=0)) / n + error)[:T].max()))
        return cls(largest, max(0.0, float(np.diag(low).min())), of_bos, are_silent)


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().double().numpy()
