"""Parity in a dtype: against an adversary in whole numbers, all trees of small sums, torch, and planted faults."""

from __future__ import annotations

import itertools
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from command import as_json
from models.selection import every
from oracles.any_order import Adversary, nearest, whole
from planted import planted

from bounds.parity import longest
from constructions.parity import ParityTransformer, sawtooth
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import rounded_model
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.readings import reading_of
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.parity import proof, rounded
from verify.tasks.parity.task import Parity

NAMES = ("E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")


CANCELLING = {9: 40.3, 10: 0.0011, 11: 40.3, 12: 0.0}  # by what scores grow, by seed


def decided(module, precision, accumulate=None):
    return certify(Parity(module), reading_of(precision, accumulate), Effort(0.3))


def rounding_scores():
    """Token 0 is 8 and adds a 1 for each other token, by a score that is 15/16 in some order of its three terms.

    In p4 five of them are 4.5 in some order, and 12 with the 8; the scores alone would let the sum go down to 12.375.
    """
    module = ParityTransformer(T=3, L=6, d=4, p=1)
    with torch.no_grad():
        module.E[0, 0], module.E[0, 2], module.E[1:, :2] = 8, 1, 1
        module.W_Q[2, :3] = 1
        module.W_K[1, :3] = torch.tensor([1.25, -0.3125, 0.0625])
        module.W_1[0, 0], module.b_1[0], module.W_2[0, 1] = 1, -11, 1
    return module


def rounding_factors():
    """A neuron of 2^12 is read by a weight that tf32 rounds up, after which the logit has one unit more than 2^24."""
    module = ParityTransformer(T=3, L=1, d=4, p=1)
    with torch.no_grad():
        module.E[0, 0], module.W_1[0, 0] = 2.0**12, 1
        module.W_2[0, 0], module.b_2[0] = 2 - 2.0**-11, 3 * 2.0**-11
    return module


def rounding_parts():
    """A neuron is 15 - 16 + 4, in p4 also (15 + 4 -> 20) - 16 = 4."""
    module = ParityTransformer(T=3, L=1, d=4, p=1)
    with torch.no_grad():
        module.E[0, 0], module.W_1[0, 0] = -15, -1
        module.E[0, 1], module.W_1[1, 0] = 8, -2
        module.b_1[0], module.W_2[0, 0] = 4, 1
    return module


def rounding_below_zero():
    """A neuron is 15 - 16 - 9, which p4 rounds and ReLU makes zero, or 12 - 9, at token 1."""
    module = ParityTransformer(T=3, L=1, d=4, p=1)
    with torch.no_grad():
        module.E[0, 0], module.E[0, 1], module.E[1, 0] = 15, 8, 12
        module.W_1[0, 0], module.W_1[1, 0] = 1, -2
        module.b_1[0], module.W_2[0, 0], module.b_2[1] = -9, 1, 7
    return module


MADE = {
    "below zero": rounding_below_zero,
    "scores": rounding_scores,
    "factors": rounding_factors,
    "parts": rounding_parts,
}


def mutated(T, L, seed, noise=0.02):
    """Built weights with one number changed, all a little, or scaled by powers of two; or made ones, by their name."""
    if seed in MADE:
        return MADE[seed]()
    g = torch.Generator().manual_seed(seed)
    module = sawtooth(T=T, L=L)
    with torch.no_grad():
        if seed % 3 == 0:
            weight = list(module.parameters())[seed // 3 % 7].view(-1)
            weight[int(torch.randint(len(weight), (1,), generator=g))] += float(torch.randn(1, generator=g))
        for weight in module.parameters():
            if seed % 3 == 1:
                weight += noise * torch.randn(weight.shape, generator=g, dtype=weight.dtype)
        if seed % 3 == 2:
            i = torch.randint(-3, 4, (1,), generator=g)
            for name, power in (("W_1", i), ("b_1", i), ("W_2", -i)):
                getattr(module, name).mul_(2.0**power)
            module.b_2 += 0.2 * torch.randn(2, generator=g, dtype=torch.float64)
            module.b_2 *= 0.03 if seed == 5 else 1.0  # so that a neuron's part rounds it
        if seed in CANCELLING:  # the stream's parts cancel, so that their rounding is most of all
            module.W_1[:T], module.W_1[T] = 30.7, -30.7
            module.b_1[:] = 1
            module.W_K *= CANCELLING[seed]
            module.E *= 1.3 if seed == 12 else 1.0
    return module


def adversary_of(module, fmt, accumulate):
    """The adversary of the histogram's layer, which divides scores by sqrt(4): queries are twice as large."""
    model = rounded_model(module, fmt)
    weights = {name: getattr(model, name).detach().numpy() for name in NAMES}
    weights["W_Q"] = 2 * weights["W_Q"]
    assert module.d == 4
    stored = SimpleNamespace(**weights, e_BOS=None, A=None, T=module.T, L=module.L, d=4, p=module.p, is_softmax=False)
    return Adversary(stored, fmt, accumulate)


@cache
def attacked(seed, L, precision, accumulate=None):
    """The least margin that the adversary finds in each cell of token and own count, over every bag of others."""
    module, fmt = mutated(3, L, seed), format_named(precision)
    adversary = adversary_of(module, fmt, FORMATS[accumulate] if accumulate else None)
    least = np.full((3, L), np.inf)
    for t in range(3):
        for others in itertools.combinations_with_replacement(range(3), L - 1):
            k = 1 + others.count(t)
            margin = float(adversary.margin(t, [t, *others], 0, k % 2, 1 - k % 2))
            least[t, k - 1] = min(least[t, k - 1], margin)
    return least


def certified(seed, L, precision, accumulate=None):
    """What the proof says of each of these cells, be it above zero or not."""
    at = RoundedArithmetic.of(format_named(precision), FORMATS[accumulate] if accumulate else None)
    model = rounded_model(mutated(3, L, seed), format_named(precision))
    with np.errstate(all="ignore"):
        return proof.margins(proof.Stored.of(model), L, at)


READINGS = [("p5", None), ("p7", None), ("bfloat16", "float32"), ("float16", None), ("tf32", None), ("float32", None)]


@pytest.mark.parametrize(("precision", "accumulate"), every(6, READINGS))
def test_no_evaluation_goes_below_a_certified_margin(precision, accumulate):
    proved = 0
    for seed in range(13):
        bound = certified(seed, 3, precision, accumulate)
        assert (bound <= attacked(seed, 3, precision, accumulate)).all(), seed
        proved += int((bound > 0).sum())
    assert proved > 5


def all_sums(terms, p):
    """Every value of a sum of whole numbers of units, in any tree, each result rounded to p bits."""
    found = {}
    for size in range(1, len(terms) + 1):
        for chosen in itertools.combinations(range(len(terms)), size):
            if size == 1:
                found[chosen] = {terms[chosen[0]]}
                continue
            found[chosen] = {
                nearest(x + y, 420, p, -126)
                for n in range(1, size // 2 + 1)
                for part in itertools.combinations(chosen, n)
                for x in found[part]
                for y in found[tuple(i for i in chosen if i not in part)]
            }
    return found[tuple(range(len(terms)))]


@pytest.mark.parametrize("p", every(2, [3, 4, 5, 6]))
def test_built_weights_are_proved_where_no_tree_of_any_sum_is_wrong(p):
    """Neurons of built weights are whole numbers; here each logit's terms are summed in every tree."""
    for L in range(2, 7):
        module = sawtooth(T=2, L=L)
        W, b = module.W_2.tolist(), module.b_2.tolist()
        is_right = True
        for k in range(1, L + 1):
            hidden = [max(0, k - i) for i in range(1, module.p + 1)]
            terms = [[whole(h * w[c]) for h, w in zip(hidden, W, strict=True) if h] + [whole(b[c])] for c in (0, 1)]
            even, odd = (all_sums(x, p) for x in terms)
            is_right &= min(odd) > max(even) if k % 2 else min(even) > max(odd)
        assert (decided(module, f"p{p}").verdict is Verdict.PROVED) == is_right == (longest(p) >= L), (p, L)


@pytest.mark.parametrize("precision", every(4, ["p4", "p5", "bfloat16", "p6", "p7", "p9", "float16"]))
def test_built_weights_are_proved_up_to_the_longest_and_refuted_from_the_next_on(precision):
    L = longest(format_named(precision).p)
    found = decided(sawtooth(T=2, L=L), precision)
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 2**L and 0.999 < found.margin <= 1
    for longer in (L + 1, L + 2, 2 * L):
        found = decided(sawtooth(T=2, L=longer), precision)
        assert found.verdict is Verdict.REFUTED and found.counterexample["input"].count(0) == L + 1
        assert found.margin <= 0 and "order" in found.counterexample


@pytest.mark.deep
def test_float32_up_to_4096():
    assert longest(24) == 4096
    assert decided(sawtooth(T=2, L=4096), "float32").verdict is Verdict.PROVED
    assert decided(sawtooth(T=2, L=4097), "float32").verdict is Verdict.REFUTED


def test_wider_sums_hold_for_longer():
    assert decided(sawtooth(T=2, L=17), "bfloat16").verdict is Verdict.REFUTED
    found = decided(sawtooth(T=2, L=200), "bfloat16", "float32")
    assert found.verdict is Verdict.PROVED and found.margin < 1


@pytest.mark.deep
def test_wider_sums_do_not_hold_for_ever():
    assert decided(sawtooth(T=2, L=300), "bfloat16", "float32").verdict is not Verdict.PROVED


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, *(pytest.param(t, marks=pytest.mark.deep) for t in (torch.float64, torch.float32, torch.float16))],
)
def test_torch_never_goes_below_a_certified_margin(dtype, device):
    name = str(dtype).removeprefix("torch.")
    for seed in range(0, 18, 5):
        module = mutated(3, 4, seed).to(dtype)
        found = decided(module, name)
        if found.verdict is Verdict.PROVED:
            tokens = torch.cartesian_prod(*[torch.arange(3)] * 4).to(device)
            with torch.no_grad():
                logits = module.to(device)(tokens).double()
            odd = (tokens[:, :, None] == tokens[:, None, :]).sum(-1) % 2 == 1
            margins = (logits[..., 1] - logits[..., 0]) * torch.where(odd, 1, -1)
            assert found.margin <= margins.min(), seed


def test_every_order_that_is_tried_is_within_the_proof():
    """Counterexamples are runs: their margins are not below what the proof allows."""
    at = RoundedArithmetic.of(format_named("p10"))
    for seed in range(1, 40, 13):
        module = mutated(3, 3, seed, 0.1)
        least = proof.margins(proof.Stored.of(rounded_model(module, at.stored)), 3, at)
        for tokens in [(0, 1, 2), (1, 1, 2), (2, 2, 2), (0, 2, 2)]:
            for run in rounded.runs(module, tokens, 0, reading_of("p10")):
                assert not run.margin < least[tokens[0], tokens.count(tokens[0]) - 1]


FAULTS = [
    (proof.Sums, "of", "is_known & at.is_representable(within, unit) & at.fits_operand(within, unit)", "is_known"),
    (proof.Sums, "of", "np.where(is_exact, 0.0, at.growth_of_products(terms + 3, 3))", "0.0 * terms"),
    (proof.Sums, "of", "is_known & at.is_rep", "at.is_rep"),
    (proof.FormErrors, "of", "(stream.is_exact[:, None] & (W_1.rad == 0))", "(W_1.rad == 0)"),
    (proof.FormErrors, "of", "(parts + np.maximum(stored.b_1.mid, 0.0))", "np.maximum(stored.b_1.mid, 0.0)"),
    (proof.FormErrors, "of", "(parts + np.maximum(stored.b_1.mid, 0.0))", "parts"),
    (proof, "_positive", "parts[0] + parts[1]", "parts[0]"),
    (proof, "_positive", "parts[0] + parts[1]", "parts[1]"),
    (proof, "of_readout", "is_known & at.is_exact_sum", "at.is_exact_sum"),
    (proof.FormErrors, "of", "inherited(size * stream.growth) + times(reads.growth, read_slots)", "0.0 * read_slots"),
    (proof.FormErrors, "of", "times(reads.growth, read_slots)", "0.0"),
    (proof.FormErrors, "of", "times(reads.growth, read_own) + reads.lost", "0.0"),
    (proof, "of_readout", "np.minimum(units, unit_exponent(b.mid))", "units"),
    (proof, "of_readout", "negative + np.maximum(-b.mid, 0.0)", "0.0"),
    (proof, "of_readout", "times(growth, size) +", "0.0 +"),
    (proof, "of_readout", "0.0 if is_plain else (at.growth(1, 3)", "0.0 if is_plain else 0.0 * (at.growth(1, 3)"),
    (proof, "margins", "wider(scores[t][:, None] * features, off.of_slots)", "scores[t][:, None] * features"),
    (proof, "margins", "of_readout(stored, domain, forms, off.unit, at)", "0.0 * least"),
]  # fmt: skip


def test_what_a_relu_makes_zero_may_be_rounded():
    bound = certified("below zero", 1, "p4")
    assert (bound <= attacked("below zero", 1, "p4")).all()
    assert bound == pytest.approx(np.array([[7.0], [4.0], [7.0]]), abs=1e-12)


def test_a_bias_among_the_terms_is_no_factor():
    """In tf32 1 and 1 + 2^-20 are two biases, and the logits differ in every order that is tried."""
    module = ParityTransformer(T=1, L=1, d=1, p=1, dtype=torch.float32)
    with torch.no_grad():
        module.E[:], module.W_1[:], module.W_2[:] = 0.3, 0.7, 1e-9
        module.b_2[:] = torch.tensor([1, 1 + 2.0**-20])
    assert decided(module, "tf32").verdict is Verdict.UNKNOWN
    assert {run.margin for run in rounded.runs(module, (0,), 0, reading_of("tf32"))} == {2.0**-20}


CASES_MADE = [("scores", 6, "p4", None), ("factors", 1, "tf32", None), ("parts", 1, "p4", None)]


def is_wrong_somewhere():
    """A built model beyond its longest length is proved, or an evaluation goes below a certified margin."""
    for precision in ("p4", "p5", "bfloat16"):
        fmt = format_named(precision)
        for L in (longest(fmt.p) + 1, 6 * longest(fmt.p)):
            model = rounded_model(sawtooth(T=2, L=L), fmt)
            if (proof.margins(proof.Stored.of(model), L, RoundedArithmetic.of(fmt)) > 0).all():
                return True
    cases = [(seed, 3, *reading) for reading in READINGS[:4] for seed in range(13)]
    return any(not (certified(*case) <= attacked(*case)).all() for case in CASES_MADE + cases)


@pytest.mark.parametrize(("owner", "name", "right", "wrong"), every(4, FAULTS))
def test_planted_faults_are_caught(owner, name, right, wrong):
    with planted(owner, name, right, wrong):
        assert is_wrong_somewhere()


def test_nothing_is_wrong_without_a_fault():
    assert not is_wrong_somewhere()


@pytest.mark.parametrize(
    ("scale", "precision", "words"),
    [(2.0**20, "float16", "beyond the largest"), (2.0**-20, "float16", "subnormal"), (2.0**130, "float32", "beyond")],
)
def test_weights_that_the_format_does_not_hold_are_left_open(scale, precision, words):
    module = sawtooth(T=2, L=3)
    with torch.no_grad():
        module.W_2 *= scale
    found = decided(module, precision)
    assert found.verdict is Verdict.UNKNOWN and words in found.reason


@pytest.mark.parametrize("power", [10, 14, 40, 126])
def test_overflow_proves_nothing(power):
    """W_1 scaled: what is proved is what torch computes, without an infinite number."""
    for dtype in (torch.float16, torch.float32):
        module = sawtooth(T=3, L=5).to(dtype)
        with torch.no_grad():
            module.W_1 *= 2.0**power
            module.b_1 *= 2.0**power
        found = decided(module, str(dtype).removeprefix("torch."))
        if found.verdict is Verdict.PROVED:
            logits = module(torch.cartesian_prod(*[torch.arange(3)] * 5))
            assert bool(torch.isfinite(logits).all()) and power < 126


def test_the_command_in_a_dtype(capsys):
    code, out = as_json(capsys, "parity", "--T", "32", "--L", "10", "--precision", "float32")
    assert code == 0 and out["verdict"] == "PROVED" and out["reading"] == "dtype, any order" and out["claim"] == "W-12"
    assert any("every operation in float32" in line for line in out["assumptions"])
    code, out = as_json(capsys, "parity", "--T", "2", "--L", "17", "--precision", "bfloat16")
    assert code == 1 and out["counterexample"]["input"] == [0] * 17 and out["counterexample"]["is_tie"]
