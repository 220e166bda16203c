"""C-I1 to C-I3, C-I8: what equal tokens and proportions hide from a model without position ids in its stream."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from verify.arithmetic.outward import above
from verify.frame.impossibility import Impossibility, seeds
from verify.tasks.inductive.ceilings.laws import constant_answer, equal_prefix, lengths_that_print, proportions
from verify.tasks.inductive.ceilings.random_models import MODELS, random_decoder, relative_logits, spread

TOLERANCE = 1e-9  # of two float64 runs that real arithmetic makes equal: about 10^4 operations on numbers of size 10^3
LENGTH = 24


def as_percent(share: Fraction) -> str:
    """A ceiling for people: rounded up, so that it is one.

    >>> as_percent(Fraction(6, 51))
    '11.77 %'
    """
    return f"{above(100 * share, 4)} %"


def figure(share: Fraction) -> str:
    """A ceiling as a fraction and in percent; a long fraction in percent alone.

    >>> figure(Fraction(1, 50))
    '1/50 = 2 %'
    """
    return f"{share} = {as_percent(share)}" if share.denominator < 10**6 else as_percent(share)


def no_length(seed: int = 0) -> Impossibility:
    """C-I1: without BOS and position ids in the stream, a^n gets one answer at all its positions.

    Claim: C-I1 (ours).
    """
    same: dict[str, float] = {}
    told: dict[str, float] = {}
    text = torch.zeros(LENGTH, dtype=torch.long)
    with torch.no_grad():
        for pe in ("nope", "rope"):
            same[pe] = max(spread(random_decoder(own, pe=pe)(text)) for own in seeds(seed, MODELS))
            told[f"{pe} with BOS"] = min(spread(random_decoder(own, pe=pe, bos=True)(text)) for own in range(12))
        same["bias by distance"] = max(spread(relative_logits(text, own)) for own in seeds(seed, MODELS))
        for pe in ("sine", "spe"):
            told[pe] = min(spread(random_decoder(own, pe=pe)(text)) for own in range(12))
    ceilings = {
        "vanilla, 50 positions": figure(constant_answer(range(1, 51))),
        "modular 10, 50 positions": figure(constant_answer(t % 10 for t in range(50))),
        "modular 10, 51 positions": figure(constant_answer(t % 10 for t in range(51))),
        "C reports": "2.0 (vanilla), 11.8 (modular)",
    }
    lengths = sorted(set(lengths_that_print("2.0", None)) & set(lengths_that_print("11.8", 10)))
    return Impossibility(
        "C-I1",
        "without BOS, a decoder with NoPE, RoPE, ALiBi or T5's bias gives a^n one answer at all positions, in real "
        "arithmetic: vanilla, modular and first-token counting are impossible at every depth",
        (
            "at the start all streams of a^n are the embedding of a",
            "where all streams are equal all values are, and attention returns a mean of equal values, whatever the "
            "weights of the mean are: RoPE and biases move the weights only",
            "LayerNorm, MLP and skip connection act alike on equal streams, so the next layer's are equal too, and so "
            "are the logits: a^n gets the answer of a alone at all n positions",
            "of N judged positions the best constant answer has 1 (vanilla) or ceil(N / m) (modular m)",
            "a succession string, whose tokens differ, is a lookup and is possible",
        ),
        {"pair": "a, aa", "right": "1, 2"},
        {
            "random models of each kind": MODELS,
            "largest spread over 24 positions": same,
            "least spread of those that see positions": told,
            "ceilings": ceilings,
            "lengths up to 200 at which both of C's figures are the ceiling": lengths,
        },
        max(same.values()) < TOLERANCE < min(told.values()) and lengths == [51],
    )


def equal_start(seed: int = 0) -> Impossibility:
    """C-I2: without BOS and position ids in the stream, selective counting fails on a prefix of equal tokens.

    Claim: C-I2 (ours).
    """
    prefix = torch.tensor([0] * 6 + [1, 0])
    inside, after = {}, {}
    with torch.no_grad():
        for pe in ("nope", "rope"):
            runs = [random_decoder(own, pe=pe)(prefix) for own in seeds(seed, MODELS)]
            inside[pe] = max(spread(logits[:6]) for logits in runs)
            after[pe] = min(spread(logits[5:]) for logits in runs)
    selective, modular = equal_prefix(10, 10, 50), equal_prefix(10, 10, 64, 4)
    return Impossibility(
        "C-I2",
        "without BOS, a decoder with NoPE or RoPE answers alike on a prefix a^r, in real arithmetic: selective "
        "counting is wrong somewhere on every string that begins with two equal tokens",
        (
            "a causal decoder's first r outputs depend on the first r tokens alone, and on a^r they are equal (C-I1)",
            "so of positions 1..r at most one is right; with answers modulo m at most ceil(r / m)",
            "the ceiling is 1 less the expected number of the others over n, under C's law: ten counts uniform on "
            "0..10 given their sum n, all arrangements alike",
            "after the first other token nothing is equal any more; positions beyond r are not bounded by this",
        ),
        {"strings": "a a b, a b a", "right": "1 2 1, 1 1 2"},
        {
            "random models of each kind": MODELS,
            "largest spread on a^6": inside,
            "least spread from a to b": after,
            "ceilings": {"selective, n = 50": figure(selective), "selective modular 4, n = 64": figure(modular)},
            "C reports": "99.7 in distribution for NoPE with 2 and 4 layers and RoPE with 1, 2 and 4; modular 98.5",
        },
        max(inside.values()) < TOLERANCE < min(after.values()) and selective < 1 and modular < 1,
    )


def proportions_only(seed: int = 0) -> Impossibility:
    """C-I3: one layer with NoPE and without BOS sees the current token and the proportions of the types.

    Claim: C-I3 (ours).
    """
    short, long = torch.tensor([0, 1]), torch.tensor([0, 0, 1, 1])
    with torch.no_grad():
        same = max(_apart(random_decoder(own, pe="nope", layers=1), short, long) for own in seeds(seed, MODELS))
        told = {
            "two layers": _telling(seed, short, long, layers=2),
            "one layer with BOS": _telling(seed, short, long, layers=1, bos=True),
        }
    inside, beyond = proportions(10, 10, 50), proportions(10, 10, 100, 51)
    checks: dict[str, object] = {
        "random models": MODELS,
        "largest difference": same,
        "of as many others, that tell them apart": told,
        "ceilings": {"selective, n = 50": figure(inside), "selective, positions 51 to 100": figure(beyond)},
        "C reports": "96.0 in distribution, 9.3 out of distribution (NoPE, one layer)",
    }
    return Impossibility(
        "C-I3",
        "one layer with NoPE and without BOS sees the current token and the proportions of the types so far, and "
        "nothing else: ab and aabb get one answer",
        (
            "the weight of a token depends on its type and on the current token, so attention returns "
            "sum_j c_j e^(s_j) v_j / sum_j c_j e^(s_j) over the types, which does not change when all counts c_j are "
            "multiplied by one number",
            "the rest of the layer and the readout act on this and the current token's stream",
            "so prefixes whose counts lie on one ray and that end alike get one answer; the right ones differ",
            "any answers by ray and token are reached by some MLP, as there are finitely many: the ceiling, the best "
            "answer for each ray and token, is sharp",
        ),
        {"strings": "a b, a a b b", "right at the end": "1, 2"},
        checks,
        same < TOLERANCE and min(told.values()) > MODELS // 2 and inside < beyond < 1,
    )


def _telling(seed: int, first: Tensor, second: Tensor, *, layers: int, bos: bool = False) -> int:
    """How many random models give the two strings different logits at the end."""
    models = (random_decoder(own, pe="nope", layers=layers, bos=bos) for own in seeds(seed, MODELS))
    return sum(_apart(model, first, second) > TOLERANCE for model in models)


def _apart(model: torch.nn.Module, first: Tensor, second: Tensor) -> float:
    return float((model(first)[-1] - model(second)[-1]).abs().max())


def no_mask(seed: int = 0) -> Impossibility:
    """C-I8: without a causal mask and positions, the first token of a string is not told from its later copies.

    Claim: C-I8 (ours; document C, Table A6, right, has one such model trained).
    """
    string = torch.tensor([0, 1, 2, 0, 1, 0])
    first, copies = 0, [3, 5]
    with torch.no_grad():
        apart = {
            is_causal: [
                spread(relative_logits(string, own, is_causal=is_causal, vocabulary=3)[[first, *copies]])
                for own in seeds(seed, MODELS)
            ]
            for is_causal in (False, True)
        }
    same, told = max(apart[False]), min(apart[True])
    return Impossibility(
        "C-I8",
        "without a causal mask and positions, with BOS or without, at every depth, a transformer answers alike at all "
        "copies of a token, in real arithmetic: no weights tell the first token of a string in which it occurs again",
        (
            "exchanging two positions that hold the same token does not change the input",
            "every layer maps exchanged inputs to outputs exchanged alike: attention sums over all positions with "
            "weights that depend on the streams alone, the rest acts position by position; BOS stays where it is",
            "so the outputs at both positions are equal, and one of them is first and the other is not",
            "a string whose first token does not occur again is not bounded by this; scored at the first position "
            "alone, as C does, the constant answer 'first' is right",
        ),
        {"string": "a b c a b a", "right": "T F F F F F"},
        {
            "random models of each kind": MODELS,
            "largest difference of copies, no mask": same,
            "least difference of copies, causal": told,
            "C reports": "4.0 in distribution and 0.0 out of it without the mask; 100 with it",
        },
        same < TOLERANCE < told,
    )
