"""Any module in constant-bit arithmetic against plain integers, and the verdicts that follow."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from models.histogram_runs import in_bits
from models.random_models import random_model
from models.selection import every
from oracles.circuit import NaiveTransformer, rounded, stored

from constructions import circuit_simulation, contextual_counting, count01, inventory_counting, relation_counting
from constructions.circuits.circuit import Circuit, Gate
from constructions.constant_bits.run import constant_bit
from constructions.contextual.transformer import BOS, ContextualCountingTransformer
from constructions.errors import BadInput
from constructions.histogram import MODELS
from verify.frame.certificate import Verdict


class Integers(NaiveTransformer):
    """The oracle's rounded operations, for other modules than the circuit's."""

    def __init__(self, module, s):
        self.s = s
        state = {name: value.double() for name, value in module.state_dict().items() if value.is_floating_point()}
        self.w = {name: self._round(value.tolist()) for name, value in state.items()}
        self.module = module

    def softmax(self, scores):
        e = [self.exp(j) for j in scores]
        total = 0
        for v in e:
            total = self.add(total, v)
        return [rounded(v * 2**self.s, total, self.s) for v in e] if total else None

    def mixed(self, weights, values):
        return [self.dot(weights, [value[i] for value in values]) for i in range(len(values[0]))]

    def histogram(self, tokens):
        w, module = self.w, self.module
        x = [w["E"][t] for t in tokens]
        context = [w["e_BOS"], *x] if module.has_bos else x
        out = []
        for i, stream in enumerate(x):
            if module.is_linear:
                row = w["A"][i]
            else:
                q, root = self.affine(stream, w["W_Q"]), stored(module.d**0.5, self.s)
                row = [rounded(self.dot(q, self.affine(key, w["W_K"])) * 2**self.s, root, self.s) for key in context]
            if module.is_softmax:
                row = self.softmax(row)
            if row is None:
                out.append(None)
                continue
            y = [self.add(a, b) for a, b in zip(stream, self.mixed(row, context), strict=True)]
            hidden = [max(0, h) for h in self.affine(y, w["W_1"], w["b_1"])]
            out.append(self.affine(hidden, w["W_2"], w["b_2"]))
        return out

    def count01(self, tokens):
        w, module = self.w, self.module
        x = [w["E"][t] for t in tokens]
        out = []
        for n in range(1, len(x) + 1):
            heads = []
            for h in range(module.heads):
                q = self.affine(x[n - 1], w["W_Q"][h])
                row = self.softmax([self.dot(q, self.affine(key, w["W_K"][h])) for key in x[:n]])
                if row is None:
                    break
                heads.append(self.mixed(row, [self.affine(key, w["W_V"][h]) for key in x[:n]]))
            if len(heads) < module.heads:
                out.append(None)
                continue
            d_h = range(len(heads[0]))
            flat = [heads[h][e] for e in d_h for h in range(module.heads)]  # torch sums the heads innermost
            W_O = [w["W_O"][h][e] for e in d_h for h in range(module.heads)]
            stream = self.affine(flat, W_O)
            if module.has_skip:
                stream = [self.add(a, b) for a, b in zip(x[n - 1], stream, strict=True)]
            out.append(self.affine(stream, w["W_out"], w["b_out"]))
        return out

    def contextual(self, tokens):
        w, module = self.w, self.module
        x = [w["E"][t] for t in ([BOS, *tokens] if module.has_bos else tokens)]
        queries, keys, values = ([self.affine(v, w[name]) for v in x] for name in ("W_Q", "W_K", "W_V"))
        stream = []
        for n, v in enumerate(x):
            row = self.softmax([self.dot(queries[n], key) for key in keys[: n + 1]])
            if row is None:
                stream.append(None)
                continue
            v = [
                self.add(a, b) for a, b in zip(v, self.affine(self.mixed(row, values[: n + 1]), w["W_O"]), strict=True)
            ]
            hidden = [max(0, h) for h in self.affine(v, w["W_1"], w["b_1"])]
            v = [self.add(a, b) for a, b in zip(v, self.affine(hidden, w["W_2"]), strict=True)]
            stream.append([self.add(a, b) for a, b in zip(v, w["b_2"], strict=True)])
        if None in stream:
            return [None] * module.R
        keys, values = ([self.affine(v, w[name]) for v in stream] for name in ("U_K", "U_V"))
        rows = [self.softmax([self.dot(self.affine(prompt, w["U_Q"]), key) for key in keys]) for prompt in w["P"]]
        return [row and self.affine(self.mixed(row, values), w["W_out"], w["b_out"]) for row in rows]


def agree(logits, expected, s):
    for row, due in zip(logits.tolist(), expected, strict=True):
        if due is None:
            assert all(v != v for v in row)
        else:
            assert [v * 2**s for v in row] == due


@pytest.mark.parametrize("s", every(2, [1, 2, 3, 5, 8, 12]))
@pytest.mark.parametrize("kind", range(len(MODELS)))
def test_histogram_models_against_integers(kind, s):
    for seed in range(kind, kind + 18, 6):
        module = random_model(seed)
        oracle, run = Integers(module, s), constant_bit(module, s)
        rng = random.Random(seed)
        batch = [[rng.randrange(module.T) for _ in range(module.L)] for _ in range(3)]
        for tokens, logits in zip(batch, run(torch.tensor(batch)), strict=True):
            agree(logits, oracle.histogram(tokens), s)


@pytest.mark.parametrize("s", [1, 3, 6, 12])
def test_count01_against_integers(s):
    g = torch.Generator().manual_seed(s)
    wide = count01.Count01Transformer(d=3, heads=2, d_h=2)
    for W in wide.parameters():
        W.copy_(torch.randn(W.shape, generator=g))
    for module in (count01.uniform(), count01.documents(5), count01.uniform(labels="thesis"), wide):
        oracle, run = Integers(module, s), constant_bit(module, s)
        for digits in ([], [1], [2, 2, 1, 3], [3, 2, 1, 1, 2, 2]):
            tokens = [0, *digits, 4]
            agree(run(torch.tensor([tokens]))[0], oracle.count01(tokens), s)


@pytest.mark.parametrize("s", every(2, [1, 2, 3, 5, 8, 12]))
def test_contextual_models_against_integers(s):
    """The constructions and random models: causal masks, two attentions, weights that tie and results that saturate."""
    g, rng = torch.Generator().manual_seed(s), random.Random(s)
    modules = [contextual_counting.build(12, 2, bias=bias, dtype=torch.float64) for bias in ("BOS", "]", "0")]
    modules.append(contextual_counting.build(12, 3, keys="convex", dtype=torch.float64))
    for bos in (True, False):
        wide = ContextualCountingTransformer(d=4, p=3, R=3, classes=5, d_h=2, e=2, g=3, bos=bos)
        for W in wide.parameters():
            W.copy_(torch.randint(-6, 7, W.shape, generator=g) / 4 if s < 5 else torch.randn(W.shape, generator=g))
        modules.append(wide)
    ends = 0
    for module in modules:
        oracle, run = Integers(module, s), constant_bit(module, s)
        for n in (1, 3, 6, 9):
            tokens = [rng.randrange(4) for _ in range(n)]
            expected = oracle.contextual(tokens)
            agree(run(torch.tensor([tokens]))[0], expected, s)
            ends += any(row and max(map(abs, row)) == 4**s - 1 for row in expected)
    assert ends or s > 3


def test_a_mask_is_a_score_whose_exponential_is_zero():
    """A masked score saturates at -B_s, and exp(-B_s) is nearest to 0 at every s."""
    for s in range(1, 13):
        assert Integers(count01.uniform(), s).exp(-(4**s - 1)) == 0


def test_a_softmax_of_zeros_is_no_number():
    """Scores of -B_s everywhere: 0/0 there, and only there."""
    module = count01.uniform()
    module.E[4], module.W_K[:] = 8.0, -8.0
    logits = constant_bit(module, 3)(torch.tensor([[0, 2, 4]]))[0]
    assert bool(logits[2].isnan().all()) == (Integers(module, 3).count01([0, 2, 4])[2] is None)
    assert not logits[0].isnan().any()


def test_the_circuit_transformer_runs_as_in_its_own_machine():
    circuit = Circuit(
        "nand", ("x", "y"), (Gate("and", (0, 1), "c"), Gate("not", (2,), "z"), Gate("and", (3, 0), "w")), (("w", 4),)
    )
    for s in (2, 3, 4):
        model = circuit_simulation.build(circuit, s=s)
        naive = NaiveTransformer(model.state_dict(), model.n, model.T, s, model.lanes.g)
        for prompt in ([0, 0], [0, 1], [1, 0], [1, 1]):
            tokens = naive.generate(prompt)
            read = constant_bit(model, s)(torch.tensor([tokens[:-1]]))[0] > 0.5
            assert read[model.n - 1 :].int().tolist() == tokens[model.n :]


def test_what_has_no_rule_is_refused():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.sin(torch.ones(3, dtype=torch.float64))

    with pytest.raises(BadInput, match="sin"):
        constant_bit(Odd(), 3)(torch.tensor([0]))
    module = count01.uniform()
    module.E[0] = float("nan")
    with pytest.raises(BadInput, match="E: "):
        constant_bit(module, 3)
    with pytest.raises(BadInput, match="s="):
        constant_bit(count01.uniform(), 13)


def test_scaled_values_saturate():
    module = count01.uniform()
    module.W_out.fill_(1e300)
    assert np.abs(constant_bit(module, 2)(torch.tensor([[0, 1, 4]])).numpy()).max() == 3.75


@pytest.mark.parametrize("kind", every(3, range(len(MODELS))))
def test_verdicts_on_every_sequence_of_small_models(kind):
    """PROVED exactly where the integers are right everywhere, and a counterexample that fails where not."""
    verdicts = set()
    for seed in range(kind, kind + 60, 6):
        module = random_model(seed)
        if module.T**module.L > 200:
            continue
        s = (3, 5, 8)[seed % 3]
        oracle = Integers(module, s)

        def is_right(tokens, position, oracle=oracle, module=module):
            logits = oracle.histogram(tokens)[position]
            right = tokens.count(tokens[position]) - module.first_count
            return logits is not None and all(logits[right] > v for c, v in enumerate(logits) if c != right)

        pairs = itertools.product(itertools.product(range(module.T), repeat=module.L), range(module.L))
        certificate = in_bits(module, s)
        expected = Verdict.PROVED if all(is_right(list(t), i) for t, i in pairs) else Verdict.REFUTED
        assert certificate.verdict is expected
        verdicts.add(expected)
        if expected is Verdict.REFUTED:
            found = certificate.counterexample
            assert not is_right(found["tokens"], found["position"])
    assert Verdict.REFUTED in verdicts


def test_large_models_are_refuted_by_a_run_or_stay_open():
    few_bits = in_bits(relation_counting.dot(T=32, L=10), 4, budget=2)
    assert few_bits.verdict is Verdict.REFUTED
    found = few_bits.counterexample
    logits = constant_bit(relation_counting.dot(T=32, L=10), 4)(torch.tensor([found["tokens"]]))[0, found["position"]]
    assert not logits[found["expected"] - 1] > logits[torch.arange(10) != found["expected"] - 1].max()
    enough = in_bits(inventory_counting.dot(T=6, L=10, dtype=torch.float32), 8, budget=1)
    assert enough.verdict is Verdict.UNKNOWN and "without a failure" in enough.reason
