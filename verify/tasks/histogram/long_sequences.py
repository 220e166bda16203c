"""What lin and lin+sftm cannot do on long sequences, for all weights: W-24, its steps checked exactly."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from math import comb

import torch
from flint import fmpq, fmpq_mat

from constructions.exact_laws import balanced
from constructions.histogram import HistogramTransformer
from verify.arithmetic.linear_programs import Farkas, decide_system
from verify.frame.certificate import Verdict
from verify.frame.impossibility import Impossibility
from verify.tasks.histogram.proof import certify

T, L, P = 3, 30, 2  # the shortest sequences of three tokens on which two neurons need d = 2
MODELS, SETS, SLOTS = 12, 40, 10


def long_sequences(seed: int = 0) -> Impossibility:
    """W-24: on long sequences lin and lin+sftm need a neuron and all but one dimension per token.

    Claim: W-24 (ours; docs/exact-laws.md).
    """
    rng = random.Random(seed)
    spread = all(_is_spread_out(rng) for _ in range(SETS))
    even = all(_is_even(R, [rng.randint(1, 9) for _ in range(R)]) for R in (2, 3) for _ in range(6))
    signs = all(_has_one_sign(rng, tokens) for tokens in (2, 3, 5, 8) for _ in range(10))
    refuted = sum(certify(_random_lin(rng, d=1, p=P)).verdict is Verdict.REFUTED for _ in range(MODELS))
    built = certify(balanced("lin", T=T, L=L, d=T - 1)).verdict is Verdict.PROVED
    return Impossibility(
        "W-24",
        "lin and lin+sftm need p >= T and d >= T - 1 once L is large enough for T and p, for all weights",
        (
            "fix a position and its token t; its R slots of least |a_m| stay free, every pair of tokens gets h others, "
            "filled by fair choices between the two",
            "a neuron changes sign over the free slots only if a sum of h choices falls into an open interval of R "
            "times twice their least step: by Erdos' lemma with probability at most R C(h, h/2)/2^h",
            "so where p R C(h, h/2) < 2^h, some choice leaves every neuron affine over the free slots, and (logit of "
            "k+1) - (logit of k) is a constant plus sum a_m gamma_(x_m), gamma = V y, for the k that the choice gives",
            "it is negative where no free slot holds t and positive where one does: all a_m D_s > 0, "
            "D_s = gamma_t - gamma_s, and (R-1) max D < R min D: gamma = D (e_t + n) mod 1, |n_s| < 1/(2R-1)",
            "d or p at most T - 2: some u != 0 with sum 0 and u^T V = 0; for the t with the largest |u_t|, u_t = "
            "-sum n_s u_s is too small once R >= floor(T/2)",
            "p = T - 1, R = T: h is so large that one k serves all t; some sum mu_t y^t = 0, so sum mu_t D_t (e_t + "
            "n^t) = 0 mod 1, which forces all mu_t to one sign; but each entry i of each y^t is 0 or the same "
            "number, the difference of W_2: so y^t = 0, and gamma = 0",
        ),
        {"T": T, "p": P, "from L": L, "then d >=": T - 1},
        {
            "sets of 10 steps, at most C(10, 5) sums in an interval": SETS if spread else "more",
            "sums of 2 and 3 slots are even, by exact linear programs": even,
            "w + N^T w = c 1 has one sign, exactly": signs,
            f"random lin models at T={T}, L={L}, d=1, p={P}": MODELS,
            "refuted by the verifier": refuted,
            "d = T - 1, p = T built and proved there": built,
        },
        spread and even and signs and refuted == MODELS and built,
    )


def _is_spread_out(rng: random.Random) -> bool:
    """Whether no half-open interval of length 2 min|x| holds more than C(n, n/2) of the sums of +-x."""
    steps = [rng.randint(1, 6) for _ in range(SLOTS)]
    sums = sorted(
        sum(sign * x for sign, x in zip(signs, steps, strict=True)) for signs in product((1, -1), repeat=SLOTS)
    )
    length = 2 * min(steps)
    most = max(sum(1 for x in sums if start <= x < start + length) for start in set(sums))
    return most <= comb(SLOTS, SLOTS // 2)


def _is_even(R: int, a: list[int]) -> bool:
    """Whether all conditions on R free slots with weights a and two other tokens exclude (R-1) D_0 >= R D_1."""
    rows: list[list[int]] = []
    for low in product(range(2), repeat=R):
        for high in product(range(2), repeat=R):
            for m in range(R):  # slot m of the first filling holds t instead
                row = [0, 0]
                for i in range(R):
                    row[high[i]] += a[i]
                    row[low[i]] -= a[i] * (i != m)
                rows.append(row)
    unique = [list(row) for row in dict.fromkeys(map(tuple, rows))]
    uneven = [R - 1, -R]
    return isinstance(decide_system([*unique, uneven], [1] * len(unique) + [0]), Farkas)


def _has_one_sign(rng: random.Random, tokens: int) -> bool:
    """Whether the w with w + N^T w = 1 is of one sign, for random N with entries below 1/(2T-1)."""
    largest = 1000 * (2 * tokens - 1) + 1
    entries = [
        fmpq(1) if s == t else fmpq(rng.randint(-1000, 1000), largest) for s in range(tokens) for t in range(tokens)
    ]
    w = fmpq_mat(tokens, tokens, entries).solve(fmpq_mat(tokens, 1, [fmpq(1)] * tokens))
    values = [Fraction(int(w[t, 0].p), int(w[t, 0].q)) for t in range(tokens)]
    return min(values) > 0 or max(values) < 0


def _random_lin(rng: random.Random, *, d: int, p: int) -> HistogramTransformer:
    """Gaussian weights; the mixing weights are equal, as those of every construction are."""
    module = HistogramTransformer("lin", T=T, L=L, d=d, p=p, dtype=torch.float64)
    g = torch.Generator().manual_seed(rng.getrandbits(62))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            drawn = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
            parameter.copy_(torch.full_like(drawn, float(drawn.flatten()[0])) if name == "A" else drawn)
    return module
