"""Count01 in constant-bit arithmetic against plain integers, rounded after every operation."""

from __future__ import annotations

import itertools
import json
import random

import pytest
import torch
from models.selection import first
from mpmath import exp, mpf, nint, workdps
from oracles.circuit import rounded, stored

from constructions.count01 import Count01Transformer, documents, uniform
from verify.arithmetic.readings import ConstantBits
from verify.commands.cli import main
from verify.frame.certificate import READING_BIT_EXACT, Verdict
from verify.tasks.count01 import bits as count01_bits
from verify.tasks.count01.bits import strings_of
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import certify


class Naive:
    """One head with d = d_h = 1 in s-bit integers: every sum left to right, no maximum subtracted."""

    def __init__(self, model, s):
        self.s, self.skip = s, model.has_skip
        self.w = {name: [stored(x, s) for x in W.double().flatten().tolist()] for name, W in model.named_parameters()}

    def times(self, x, y):
        return rounded(x * y, 2**self.s, self.s)

    def exp(self, j):
        with workdps(60):
            return min(int(nint(exp(mpf(j) / 2**self.s) * 2**self.s)), 4**self.s - 1)

    def add_up(self, terms):
        total = 0
        for term in terms:
            total = rounded(total + term, 1, self.s)
        return total

    def logits(self, tokens):
        """The logits after the last token, or None where the softmax is 0/0."""
        (W_Q,), (W_K,), (W_V,), (W_O,) = (self.w[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
        x = [self.w["E"][t] for t in tokens]
        q = self.times(x[-1], W_Q)
        e = [self.exp(self.times(q, self.times(y, W_K))) for y in x]
        total = self.add_up(e)
        if total == 0:
            return None
        shares = [rounded(a * 2**self.s, total, self.s) for a in e]
        mixed = self.times(
            self.add_up([self.times(a, self.times(y, W_V)) for a, y in zip(shares, x, strict=True)]), W_O
        )
        stream = rounded(x[-1] + mixed, 1, self.s) if self.skip else mixed
        return [
            rounded(self.times(stream, w) + b, 1, self.s) for w, b in zip(self.w["W_out"], self.w["b_out"], strict=True)
        ]

    def is_right(self, digits):
        """Whether 4 or 5 is the strictly largest logit after =, as the digits have it, and EOS after either."""
        n0, n1 = digits.count(1), digits.count(2)
        due = {(4,): 5 if n1 > n0 else 6, (4, 5): 7, (4, 6): 7}
        for end, right in due.items():
            logits = self.logits([0, *digits, *end])
            if logits is None or any(logit >= logits[right] for i, logit in enumerate(logits) if i != right):
                return False
        return True


def random_model(rng):
    """The uniform weights with some changed, or weights at random."""
    model = uniform() if rng.random() < 0.8 else Count01Transformer()
    with torch.no_grad():
        for W in model.parameters():
            for j in range(W.numel()):
                if rng.random() < 0.03:
                    W.view(-1)[j] = rng.choice([-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 1.5, 3.0])
    return model


@pytest.mark.parametrize("part", first(1, range(4)))
def test_verdicts_equal_enumeration_in_plain_integers(part):
    seen = {verdict: 0 for verdict in Verdict}
    for seed in range(25):
        rng = random.Random(f"{part} {seed}")
        model, s, L = random_model(rng), rng.choice([4, 5, 6, 7]), rng.choice([2, 3, 4])
        certificate = certify(model, "majority-ones", PromptDomain(max_length=L), reading=ConstantBits(s))
        naive = Naive(model, s)
        strings = [w for length in range(L + 1) for w in itertools.product((1, 2, 3), repeat=length)]
        seen[certificate.verdict] += 1
        assert (certificate.verdict is Verdict.PROVED) == all(naive.is_right(w) for w in strings), seed
        if certificate.verdict is Verdict.PROVED:
            assert certificate.inputs_covered == len(strings) and certificate.reading == READING_BIT_EXACT
        else:
            tokens = [("BOS", "0", "1", "2", "=", "4", "5").index(t) for t in certificate.counterexample["tokens"]]
            assert not naive.is_right([t for t in tokens if t in (1, 2, 3)])
    assert seen[Verdict.UNKNOWN] == 0 and min(seen[Verdict.PROVED], seen[Verdict.REFUTED]) > 2


def test_the_documents_weights_saturate():
    """N^2 = 100 and exp(N) are beyond every B_s: without digits s = 8 answers wrongly already."""
    for s in (4, 8, 12):
        assert (
            certify(documents(10), "majority-ones", PromptDomain(max_length=3), reading=ConstantBits(s)).verdict
            is Verdict.REFUTED
        )


def test_a_search_never_proves(monkeypatch):
    monkeypatch.setattr(count01_bits, "LONGEST_SEARCHED", 10)
    certificate = certify(uniform(), "majority-ones", PromptDomain(), reading=ConstantBits(8))
    assert certificate.verdict is Verdict.UNKNOWN and certificate.inputs_covered == 0
    assert certify(uniform(), "majority-ones", PromptDomain(), reading=ConstantBits(4)).verdict is Verdict.REFUTED


def test_how_many_strings_a_domain_has():
    for domain in (PromptDomain(max_length=5), PromptDomain(2, 1), PromptDomain(1, 3, 3), PromptDomain(0, 0)):
        inside = [
            w
            for length in range(8)
            for w in itertools.product((1, 2, 3), repeat=length)
            if (w.count(1), w.count(2), w.count(3)) in domain
        ]
        assert strings_of(domain) == len(inside)
    assert strings_of(PromptDomain(1000, 1000)) == strings_of(PromptDomain(60, 60)) == float("inf")


def test_the_command(capsys):
    uniform_s6 = ["count01", "--construction", "uniform", "--precision", "s6", "--length", "6"]
    assert main([*uniform_s6, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"] == "PROVED" and result["inputs_covered"] == "1093" and result["reading"] == "bit-exact"
    assert main(["count01", "--construction", "uniform", "--precision", "s4", "--length", "6"]) == 1
    assert "REFUTED" in capsys.readouterr().out
    for extra in (["--accumulate", "float32"], ["--input", "01="], ["--method", "exhaustive"], ["--dtype", "float32"]):
        code = main([*uniform_s6[:5], *extra])
        out, err = capsys.readouterr()
        assert code == 2 and out == "" and err.count("\n") == 1


def test_after_equals_alone(capsys):
    argv = ["count01", "--construction", "uniform", "--precision", "s6", "--length", "3", "--semantic-only"]
    for method in ("certified", "exhaustive"):
        assert main([*argv, "--method", method, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["inputs_covered"] == "40" and result["inputs_are"] == "strings of digits, each read after ="
