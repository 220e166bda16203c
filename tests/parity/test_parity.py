"""Parity: verdicts against enumeration in rational arithmetic, faults that must be caught, and what the house adds."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import pytest
import torch
from clocks import looks
from command import as_json, run
from models.selection import first
from planted import planted

from constructions.errors import BadInput
from constructions.parity import ParityTransformer, load, sawtooth
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify, exhaustive, sampled
from verify.reduction.domains import Counts
from verify.tasks.parity import proof
from verify.tasks.parity.task import Parity


def right_everywhere(module):
    """Plain Python: every sequence and position, in fractions, written without the verifier."""
    W = {name: [[Fraction(x) for x in row] for row in p.double().reshape(-1, p.shape[-1]).tolist()]
         for name, p in module.named_parameters()}  # fmt: skip

    def times(x, M):
        return [sum((a * row[j] for a, row in zip(x, M, strict=True)), Fraction(0)) for j in range(len(M[0]))]

    for tokens in itertools.product(range(module.T), repeat=module.L):
        x = [W["E"][t] for t in tokens]
        for i, t in enumerate(tokens):
            query = times(x[i], W["W_Q"])
            scores = [sum(a * b for a, b in zip(query, times(y, W["W_K"]), strict=True)) for y in x]
            mixed = [x[i][c] + sum(s * y[c] for s, y in zip(scores, x, strict=True)) for c in range(module.d)]
            hidden = [max(Fraction(0), z + b) for z, b in zip(times(mixed, W["W_1"]), W["b_1"][0], strict=True)]
            even, odd = (z + b for z, b in zip(times(hidden, W["W_2"]), W["b_2"][0], strict=True))
            if not (odd > even if tokens.count(t) % 2 else even > odd):
                return False
    return True


def mutated(T, L, seed):
    """Built weights with one number changed, or all a little, or all at random."""
    g = torch.Generator().manual_seed(seed)
    module = sawtooth(T=T, L=L)
    with torch.no_grad():
        if seed % 3 == 0:
            weight = list(module.parameters())[seed // 3 % 7].view(-1)
            weight[int(torch.randint(len(weight), (1,), generator=g))] += float(torch.randn(1, generator=g))
        for weight in module.parameters():
            noise = torch.randn(weight.shape, generator=g, dtype=weight.dtype)
            if seed % 3 == 1:
                weight += 0.05 * noise
            elif seed % 30 == 2:
                weight.copy_(noise)
    return module


@cache
def least_margin(seed):
    """The exact margin of a model of three tokens over all inputs of length 3, which no fault of a proof changes."""
    inputs = itertools.product(range(3), repeat=3)
    return min(proof.exact_margin(mutated(3, 3, seed), tokens, i) for tokens in inputs for i in range(3))


@pytest.mark.parametrize("T,L", first(2, [(1, 1), (3, 3), (2, 4), (1, 4), (2, 3)]))
def test_verdicts_equal_enumeration(T, L):
    seen = set()
    for seed in range(24):
        module = mutated(T, L, seed)
        verdict = certify(Parity(module)).verdict
        seen.add(verdict)
        if verdict is not Verdict.UNKNOWN:
            assert (verdict is Verdict.PROVED) == right_everywhere(module), seed
    assert Verdict.PROVED in seen and (Verdict.REFUTED in seen or L == 1)


@pytest.mark.parametrize("T,L", [(1, 1), (1, 9), (2, 1), (3, 2), (32, 10), (5, 40)])
def test_built_weights_are_proved_with_margin_one(T, L):
    certificate = certify(Parity(sawtooth(T=T, L=L), "W-12"))
    assert certificate.verdict is Verdict.PROVED and certificate.inputs_covered == T**L
    assert 1 - 1e-9 < certificate.margin <= 1


def test_the_bound_is_below_every_exact_margin():
    for seed in range(1, 40, 3):
        certificate = certify(Parity(mutated(3, 3, seed)))
        if certificate.verdict is Verdict.PROVED:
            assert certificate.margin <= least_margin(seed)


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong"),
    [
        (proof, "margins", "L - k, is_full", "L - 1 - k, is_full"),
        (proof, "margins", "difference.lower, -difference.upper", "difference.upper, -difference.lower"),
        (proof, "margins", "features[t][None] + stored.b_1[None]", "features[t][None]"),
        pytest.param(proof, "leaf", "z.lower >= 0", "z.upper >= 0", marks=pytest.mark.deep),  # 3 s
        (proof, "leaf", "zeros_like(tops), tops)", "zeros_like(tops), 0 * tops)"),
        (Counts, "range", "forms.slopes.hull(-2)", "forms.slopes[..., 0, :]"),
        (Counts, "readout", "forms.constant[..., used], box", "box[..., used], box"),
    ],
)  # fmt: skip
def test_planted_faults_are_caught(owner, name, right, wrong):
    """With the fault a built model is not proved, or a wrong one is, or a certified margin is above an exact one."""
    with planted(owner, name, right, wrong):
        if certify(Parity(sawtooth(T=3, L=3))).verdict is not Verdict.PROVED:
            return
        for seed in (46, *range(120)):  # 46 shows what few do
            certificate = certify(Parity(mutated(3, 3, seed)))
            if certificate.verdict is not Verdict.PROVED:
                continue
            if least_margin(seed) <= 0 or certificate.margin > least_margin(seed):
                return
    raise AssertionError("the planted fault does no harm")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value):
    module = sawtooth(T=2, L=3)
    with torch.no_grad():
        module.W_1[0, 0] = value
    with pytest.raises(BadInput, match="W_1"):
        certify(Parity(module))


def test_overflow_proves_nothing():
    module = sawtooth(T=2, L=3)
    with torch.no_grad():
        module.W_2 *= 1e200
        module.E *= 1e120
    assert certify(Parity(module)).verdict is not Verdict.PROVED


def test_the_house_runs_it():
    right, wrong = Parity(sawtooth(T=3, L=4)), Parity(sawtooth(T=3, L=4))
    with torch.no_grad():
        wrong.module.b_2 += torch.tensor([2.0, 0.0])
    assert exhaustive(right).inputs_covered == 81 and exhaustive(right).verdict is Verdict.PROVED
    found = exhaustive(wrong)
    assert found.verdict is Verdict.REFUTED and found.counterexample["input"] == [0, 0, 0, 1]
    assert int(found.extra["counts"]["right"]) + int(found.extra["counts"]["wrong"]) == 81
    assert sampled(right).verdict is Verdict.UNKNOWN and sampled(wrong).verdict is Verdict.REFUTED
    assert certify(wrong).counterexample["expected"] != certify(wrong).counterexample["predicted"]


def test_the_command(capsys, tmp_path):
    code, out = as_json(capsys, "parity", "--T", "3", "--L", "4")
    assert code == 0 and out["verdict"] == "PROVED" and out["inputs_covered"] == "81" and out["claim"] == "W-12"
    code, out = as_json(capsys, "parity", "--T", "2", "--L", "4", "--method", "exhaustive", "--precision", "s6")
    assert code == 0 and out["reading"] == "bit-exact" and out["counts"] == {"right": "16", "wrong": "0"}
    assert as_json(capsys, "parity", "--T", "2", "--L", "4", "--method", "exhaustive", "--precision", "s2")[0] == 1
    assert as_json(capsys, "parity", "--T", "3", "--L", "4", "--method", "sampled")[0] == 3
    assert run(capsys, "parity", "--T", "3", "--L", "4", "--save", str(tmp_path / "proof"))[0] == 0
    saved = tmp_path / "proof" / "weights.safetensors"
    assert isinstance(load(saved), ParityTransformer)
    assert as_json(capsys, "parity", "--weights", str(saved))[1]["verdict"] == "PROVED"


@pytest.mark.parametrize(
    "argv",
    [("--T", "3"), ("--T", "0", "--L", "3"), ("--T", "3", "--L", "-1"), ("--weights", "nothing.pt"),
     ("--T", "3", "--L", "3", "--precision", "s6"), ("--T", "30", "--L", "30", "--method", "exhaustive")],
)  # fmt: skip
def test_bad_input_is_one_line(capsys, argv):
    code, out, err = run(capsys, "parity", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1


def test_layers_scaled_by_powers_of_two_are_judged_as_fractions_say():
    """Products that underflow or overflow: no wrong PROVED or REFUTED, however each layer is scaled."""
    seen = []
    for seed in range(24):
        g = torch.Generator().manual_seed(100 + seed)
        module = mutated(3, 3, seed)
        with torch.no_grad():
            for names in (("E",), ("W_Q",), ("W_K",), ("W_1", "b_1"), ("W_2", "b_2")):
                scale = 2.0 ** int(torch.randint(-300, 61, (1,), generator=g)) if seed % 4 else 1.0
                for name in names if seed % 2 or names[0][-1] in "12" else ():
                    weight = getattr(module, name)
                    weight.data = weight.double() * scale
        module = module.double()
        verdict = certify(Parity(module)).verdict
        assert verdict is not (Verdict.REFUTED if right_everywhere(module) else Verdict.PROVED), seed
        seen.append(verdict)
    assert Verdict.PROVED in seen and Verdict.REFUTED in seen


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("reading", [None, "float32"])
def test_a_budget_ends_between_tokens(number, reading):
    problem, asked = Parity(sawtooth(T=4, L=4)), None if reading is None else Rounded(FORMATS[reading])
    cut = certify(problem, asked, Effort(looks(number)))
    proved = f"{4 * (number - 1)} of 16 pairs of a token and its count proved"
    assert cut.verdict is (Verdict.PROVED if number > 4 else Verdict.UNKNOWN)
    assert cut.reason == (None if number > 4 else f"the budget of 30 s ended with {proved}; raise it")
    assert certify(problem, asked, Effort(Budget.counting(1))).verdict is Verdict.PROVED  # steps do not end it


def test_a_budget_that_ends_at_open_cells_refutes_nothing():
    wrong = mutated(3, 3, 1)
    whole = certify(Parity(wrong))
    ends = [certify(Parity(wrong), None, Effort(looks(number))) for number in range(1, 40)]
    assert whole.verdict is not Verdict.PROVED and ends[-1].verdict is whole.verdict
    assert {of.verdict for of in ends} <= {Verdict.UNKNOWN, whole.verdict}
