"""Ground truth that shares no code with the verifier: every sequence, plain numpy, mpmath where it is close."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np

CLOSE = 1e-7  # below this difference of logits, decide with 60 digits
TIE = mpmath.mpf(10) ** -40


def weights_of(module):
    """The stored numbers, straight from the state dict."""
    return {name: value.double().numpy() for name, value in module.state_dict().items()}


def all_wrong_pairs(module, L=None):
    """Every (sequence, position) on which the model is not strictly right, in real arithmetic."""
    w, T = weights_of(module), module.T
    L = module.L if L is None else L
    wrong = []
    for sequences in _batches(T, L):
        logits = forward(module, w, sequences)
        counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
        right = counts - module.first_count
        at_right = np.take_along_axis(logits, right[..., None], -1)
        others = logits.copy()
        np.put_along_axis(others, right[..., None], -np.inf, -1)
        margin = at_right[..., 0] - others.max(-1)
        scale = 1 + np.abs(logits).max(-1)
        for n, position in zip(*np.nonzero(margin <= CLOSE * scale), strict=True):
            sequence = tuple(int(x) for x in sequences[n])
            if margin[n, position] < -CLOSE * scale[n, position] or not exactly_right(
                module, w, sequence, int(position)
            ):
                wrong.append((sequence, int(position)))
    return wrong


def error_share(module, L=None):
    """The exact share of wrong (sequence, position) pairs."""
    L = module.L if L is None else L
    return Fraction(len(all_wrong_pairs(module, L)), L * module.T**L)


def smallest(wrong):
    """Fewest distinct tokens, then lexicographic, then the first position."""
    return min(wrong, key=lambda pair: (len(set(pair[0])), pair[0], pair[1]))


@cache
def wrong_pairs(module):
    """As `all_wrong_pairs`, found once for each module, which must stay as it is."""
    return all_wrong_pairs(module)


def differs(module, certificate):
    """What of a certificate of all inputs is not what enumeration finds, if anything."""
    wrong = wrong_pairs(module)
    share = Fraction(len(wrong), module.L * module.T**module.L)
    if certificate.verdict.value != ("REFUTED" if wrong else "PROVED"):
        return "verdict"
    if certificate.error_share != (share, share) and (wrong or certificate.error_share is not None):
        return "share"
    if not wrong:
        return None
    found = certificate.counterexample
    is_same = (tuple(found["tokens"]), found["position"]) == smallest(wrong)
    return None if is_same and found["is_smallest"] else "counterexample"


def _batches(T, L, size=20000):
    product = itertools.product(range(T), repeat=L)
    while batch := list(itertools.islice(product, size)):
        yield np.array(batch)


def forward(module, w, sequences):
    """Float64 logits of a batch."""
    x = w["E"][sequences]
    context = x
    if module.model.startswith("bos"):
        bos = np.broadcast_to(w["e_BOS"], (len(x), 1, x.shape[-1]))
        context = np.concatenate([bos, x], axis=1)
    if module.model.startswith("lin"):
        scores = np.broadcast_to(w["A"], (len(x), *w["A"].shape))
    else:
        scores = (x @ w["W_Q"]) @ (context @ w["W_K"]).transpose(0, 2, 1) / math.sqrt(module.d)
    if module.model.endswith("+sftm"):
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores = scores / scores.sum(-1, keepdims=True)
    hidden = np.maximum((x + scores @ context) @ w["W_1"] + w["b_1"], 0)
    return hidden @ w["W_2"] + w["b_2"]


def exactly_right(module, w, sequence, position):
    """One position with 60 digits; differences below 10^-40 are taken for ties, which count as wrong."""
    with mpmath.workdps(60):
        logits = [mpmath.mpf(v) for v in _logits60(module, w, sequence, position)]
        right = sequence.count(sequence[position]) - module.first_count
        return all(logits[right] - v > TIE for c, v in enumerate(logits) if c != right)


def _logits60(module, w, sequence, position):
    mpf = mpmath.mpf
    d = module.d
    context = [[mpf(v) for v in w["E"][s]] for s in sequence]
    query = context[position]
    if module.model.startswith("bos"):
        context = [[mpf(v) for v in w["e_BOS"]], *context]
    if module.model.startswith("lin"):
        scores = [mpf(v) for v in w["A"][position]]
    else:
        W_Q, W_K = w["W_Q"], w["W_K"]
        q = [mpmath.fsum(query[a] * mpf(W_Q[a, b]) for a in range(d)) for b in range(d)]
        scores = []
        for x in context:
            key = [mpmath.fsum(x[a] * mpf(W_K[a, b]) for a in range(d)) for b in range(d)]
            scores.append(mpmath.fsum(q[b] * key[b] for b in range(d)) / mpmath.sqrt(d))
    if module.model.endswith("+sftm"):
        e = [mpmath.exp(s) for s in scores]
        total = mpmath.fsum(e)
        scores = [v / total for v in e]
    mixed = [query[a] + mpmath.fsum(s * x[a] for s, x in zip(scores, context, strict=True)) for a in range(d)]
    hidden = [
        max(mpf(0), mpmath.fsum(mixed[a] * mpf(w["W_1"][a, i]) for a in range(d)) + mpf(w["b_1"][i]))
        for i in range(module.p)
    ]
    return [
        mpmath.fsum(hidden[i] * mpf(w["W_2"][i, c]) for i in range(module.p)) + mpf(w["b_2"][c])
        for c in range(w["b_2"].shape[0])
    ]
