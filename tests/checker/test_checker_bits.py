"""Certificates in constant bits: what torch runs, the checker follows, and nothing that is false holds."""

import contextlib
import hashlib
import json
import random

import pytest
import torch
from models.certificates import IN_BITS, heads, honest
from models.histogram_runs import in_bits
from models.random_models import random_model
from models.selection import first
from oracles.forged import falsehood
from test_checker_real import outcome

from constructions import checkpoint, count01
from constructions.constant_bits import run
from constructions.constant_bits.arithmetic import FixedPoint
from tests.planted import planted
from verify.arithmetic.readings import ConstantBits
from verify.checker import constant_bits, count01_in_bits, histogram_in_bits
from verify.checker.reading import read_weights
from verify.frame.decide import certify
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01

SIZES = range(1, 9)


def histogram(module, s):
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    return weights, in_bits(module, s).about(weights).to_json()


def prompts(module, s, domain):
    weights = count01.as_bytes(module)
    problem = Count01.of(module, "majority-ones", domain, reading=ConstantBits(s))
    return weights, certify(problem, ConstantBits(s)).about(weights).to_json()


def decided(seed):
    """The file and the certificate of a drawn model, or of one number more or less in one that is right."""
    draw, s = random.Random(seed), SIZES[seed % len(SIZES)]
    if seed % 3 == 0:
        return prompts(heads(seed, 3, 2), s, PromptDomain(1, 1))
    module = random_model(seed)
    if seed % 3 == 1:
        _, W = draw.choice([*module.named_parameters()])
        with torch.no_grad():
            W.view(-1)[draw.randrange(W.numel())] += draw.choice([-0.5, 0.25, 1.0])
    return histogram(module, s)


@pytest.mark.parametrize("seeds", first(1, [range(6), *(range(i, i + 100) for i in range(6, 500, 100))]), ids=str)
def test_what_the_prover_runs_holds_and_a_larger_margin_does_not(seeds):
    """Every number of a counterexample is compared; a forged proof of it never holds."""
    for seed in seeds:
        weights, text = decided(seed)
        c = json.loads(text)
        assert outcome(weights, text) == (0, c["verdict"]), seed
        if c["verdict"] == "PROVED" and c["margin"] is not None:
            assert outcome(weights, json.dumps(c | {"margin": c["margin"] * 1.001}))[0] == 1, seed


@pytest.mark.parametrize("name", ["dot, 4 bits", "count01, heads, 5 bits"])
def test_proofs_of_other_weights_are_refused(name):
    """The proof of a model beside the file of one that is wrong, with its digest."""
    c, s = json.loads(honest(name)[1]), IN_BITS[name][0]
    weights = honest("bos, wrong, 3 bits" if "dot" in name else "count01, heads, wrong, 4 bits")[0]
    c["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    if "dot" in name:
        c["parameters"] = read_weights(weights).repeated["parameters"] | {"precision": f"s{s}"}
        c["claim"], c["margin"] = read_weights(weights).repeated["claim"], 2.0**-9
    for margin in (c["margin"], 5e-324):
        forged = json.dumps(c | {"margin": margin})
        assert outcome(weights, forged)[0] == 1 and falsehood(weights, forged)


FAULTY_RUNS = [  # what constructions.constant_bits may get wrong, and a model whose run that changes
    (FixedPoint, "multiply", "product -= product > self.one // 2", "product -= 0"),
    (FixedPoint, "divide", "numerator + y - 1", "numerator"),
    (run, "dot", "for k in range(x.shape[-1])", "for k in reversed(range(x.shape[-1]))"),
    (FixedPoint, "add", "self.saturate(x + y)", "x + y"),
]


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(FAULTY_RUNS)))
def test_a_fault_in_the_runs_is_found_by_the_checker(number):
    """Certificates of a run that rounds otherwise, or sums in another order, are refused for some model."""
    fault = FAULTY_RUNS[number]
    with planted(*fault):
        if fault[0] is run:
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(run.RULES, torch.ops.aten.mm, run.dot)
                patch.setitem(run.RULES, torch.ops.aten.bmm, run.dot)
                saved = [decided(seed) for seed in range(90)]
        else:
            saved = [decided(seed) for seed in range(90)]
    assert any(outcome(*pair)[0] == 1 for pair in saved)


FAULTS = [
    (constant_bits.LeftToRight, "_power", "x == 0 or x >", "x == 0 or 8 * x >"),
    (constant_bits.LeftToRight, "_power", "n * self.one, 1 << k", "2 * n * self.one, 1 << k"),
    (constant_bits.LeftToRight, "divided", "x * self.one, y", "x, y"),
    (constant_bits.LeftToRight, "dot", "map(self.times, x, y)", "map(self.times, x[::-1], y[::-1])"),
    (constant_bits.LeftToRight, "affine", "found if b is None else", "found if True else"),
    (constant_bits.LeftToRight, "sums", "map(self.plus, total, row)", "map(self.plus, row, row)"),
    (constant_bits.LeftToRight, "sums", "if fits(new)", "if True"),
    (constant_bits.LeftToRight, "sums", "] += n", "] = n"),
    (constant_bits.LeftToRight, "means", "if min(total) > 0", "if True"),
    (constant_bits.LeftToRight, "means", "if found[:heads] == totals", "if True"),
    (constant_bits.LeftToRight, "_shared", "self.divided(top, total)", "self.divided(top, self.one)"),
    (histogram_in_bits, "ahead", "min(", "max("),
    (histogram_in_bits, "check", '0 < c["margin"] <= least / model.at.one', "True"),
    (histogram_in_bits.HistogramInBits, "places", "position][j]", "position][0]"),
    (histogram_in_bits.HistogramInBits, "places", "t + len(self.bos)", "t"),
    (histogram_in_bits.HistogramInBits, "logits", 'map(at.plus, W["E"][token], row)', "row"),
    (histogram_in_bits.HistogramInBits, "logits", "max(y, 0)", "y"),
    (histogram_in_bits, "check", "n * count", "n"),
    (histogram_in_bits, "_refute", "gap is None or gap <= 0", "True"),
    (histogram_in_bits, "_refute", '"is_tie": len(best) > 1', '"is_tie": len(best) > 2'),
    (count01_in_bits.PromptsInBits, "_slot", "self.keys[t]", "self.values[t]"),
    (count01_in_bits.PromptsInBits, "logits", "stream = [*map(at.plus, own, written)] if self.skip else", "stream ="),
    (count01_in_bits, "prove", "cell.is_more == (label[1] > label[0])", "cell.is_more"),
    (count01_in_bits, "prove", "math.comb(n0 + n1, n0)", "1"),
    (count01_in_bits, "refute", "not rows or gap <= 0", "gap > 0"),
]


def is_seen():
    """Whether an honest certificate is refused, or a forged one holds that is false."""
    pairs = [honest(name) for name in IN_BITS] + [decided(seed) for seed in range(60)]
    for weights, text in pairs:
        if outcome(weights, text)[0] != 0:
            return True
        c = json.loads(text)
        larger = json.dumps(c | {"margin": 2 * (c["margin"] or 1.0)})
        if c["verdict"] == "PROVED" and c["margin"] and outcome(weights, larger)[0] == 0:
            return True
        if c["verdict"] == "REFUTED" and c["task"] == "histogram" and c["margin"] is not None:
            for t in range(c["parameters"]["T"]):
                case = c["counterexample"] | {"tokens": [t] * c["parameters"]["L"], "input": [t] * c["parameters"]["L"],
                                              "position": 0, "expected": c["parameters"]["L"]}  # fmt: skip
                forged = json.dumps(c | {"counterexample": case})
                if outcome(weights, forged)[0] == 0 and falsehood(weights, forged):
                    return True
    return False


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_checker_that_forgets_something_is_found(number):
    with planted(*FAULTS[number]), contextlib.suppress(ArithmeticError, IndexError):  # which is no answer either
        assert is_seen()


def test_sums_that_agree_are_one_and_are_all_counted():
    """Of 3^12 strings a few sums are left; so many are no more run one by one."""
    at = constant_bits.LeftToRight(4)
    place = [((int(t == 0),), (at.one * t,)) for t in range(3)]
    found = at.sums([place] * 12, lambda label: True)
    assert sum(found.values()) == 3**12 and len(found) < 300
    assert sum(n for (label, _), n in found.items() if label == (12,)) == 1
