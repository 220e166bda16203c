"""Count01 models with a layer norm, in real arithmetic: what enumeration calls right is accepted, and nothing else."""

import hashlib
import json
import random
from fractions import Fraction
from itertools import product
from pathlib import Path
from unittest import mock

import mpmath
import pytest
import torch
from flint import fmpq, fmpq_mat
from models.certificates_of_kinds import changed_norm as changed
from models.selection import first
from oracles.rounded import LeftToRight, fraction
from test_checker_real import outcome

from constructions import count01
from constructions.count01_arrays import TOKENS
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.checker.formats import format_of
from verify.checker.layer_norm import NormedRows
from verify.checker.normed_prompts import NormedPrompts, triples
from verify.checker.reading import NOT_CHECKABLE
from verify.checker.replay import Replay
from verify.checker.roundoff import Roundoff
from verify.frame import decide
from verify.frame.decide import certify
from verify.tasks.count01 import dtype as count01_dtype
from verify.tasks.count01.layer_norm import counting, numbers
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01

DIGITS, NOISE = 3, 2


def saved(model, reading=None):
    """The file of a model and its certificate."""
    problem = Count01.of(model, "majority-ones", PromptDomain(DIGITS, NOISE))
    weights = count01.as_bytes(model)
    return weights, json.loads(certify(problem, reading).about(weights).to_json())


def least_gap(model):
    """The least (due logit) - (largest other) of all prompts."""
    return min(gap for *_, gap in gaps(model))


def gaps(model):
    """Each prompt, its last and its due token, and (due logit) - (largest other), as torch computes it in float64."""
    for n0, n1, n2 in product(range(DIGITS + 1), range(DIGITS + 1), range(NOISE + 1)):
        string = [0, *[1] * n0, *[2] * n1, *[3] * n2, 4]
        for last in (None, 5, 6):
            due = 7 if last else 5 if n1 > n0 else 6
            logits = model.next_logits(torch.tensor([*string, *([last] if last else [])])).tolist()
            yield (n0, n1, n2), last or 4, due, logits[due] - max(x for j, x in enumerate(logits) if j != due)


@pytest.mark.parametrize("seeds", first(1, [range(6), range(6, 150)]), ids=str)
def test_what_holds_is_what_enumeration_says(seeds):
    """A proof of any drawn model with any margin holds exactly if the margin is no larger than the least gap."""
    weights, proof = saved(count01.normed())
    assert outcome(weights, json.dumps(proof)) == (0, "PROVED")
    right = 0
    for seed in seeds:
        model = changed(seed)
        weights, least = count01.as_bytes(model), least_gap(model)
        digest = hashlib.sha256(weights).hexdigest()
        for margin in (least - 1e-9, least + 1e-9, proof["margin"], 1e-3):
            said = proof | {"weights_sha256": digest, "margin": margin}
            holds = outcome(weights, json.dumps(said))[0] == 0
            assert holds == (0 < margin <= least), (seed, margin, least)
            right += holds
    assert right


WRONG = (5, 7, 8, 25)  # drawn models with wrong prompts, the ones with one root for all tokens or several
NAMES = {4: "=", 5: "4", 6: "5", 7: "EOS"}


def refuted(proof, digest, n, last, due, margin):
    """The certificate that says this prompt is the wrong one."""
    tokens = ["BOS", *"0" * n[0], *"1" * n[1], *"2" * n[2], "=", *[NAMES[last]] * (last > 4)]
    named = {"input": [*n, NAMES[last]], "last": NAMES[last], "tokens": tokens, "expected": NAMES[due]}
    case = proof["counterexample"] | named | dict(zip(("n0", "n1", "n2"), n, strict=True)) | {"margin": margin}
    return json.dumps(proof | {"weights_sha256": digest, "counterexample": case, "margin": margin})


@pytest.mark.parametrize("seeds", first(1, [[WRONG[0]], range(40)]), ids=str)
def test_wrong_prompts_are_what_enumeration_says(seeds):
    """Of any drawn model any prompt that is said to be wrong is one exactly if it is, with its margin and no other."""
    _, proof = saved(changed(WRONG[0]))
    wrong = right = 0
    for seed in seeds:
        model = changed(seed)
        weights = count01.as_bytes(model)
        digest = hashlib.sha256(weights).hexdigest()
        for n, last, due, gap in random.Random(seed).sample([*gaps(model)], 48):
            code, why = outcome(weights, refuted(proof, digest, n, last, due, -abs(gap)))
            assert code == (0 if gap < -1e-12 else 1 if gap > 1e-12 else code), (seed, n, last, gap, why)
            wrong, right = wrong + (code == 0), right + (code == 1)
            for margin in (gap * (1 + 1e-7), 0.0, None) if code == 0 else ():
                assert outcome(weights, refuted(proof, digest, n, last, due, margin))[0] != 0
    assert wrong and right


@pytest.mark.parametrize("seed", WRONG)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_refutations_hold_in_either_dtype(seed, dtype):
    """Their margins are of real arithmetic, whatever torch's run of the stored dtype shows."""
    weights, found = saved(changed(seed, dtype))
    assert outcome(weights, json.dumps(found)) == (0, "REFUTED")


def test_each_field_of_a_refutation_is_refused_when_changed():
    weights, found = saved(changed(WRONG[0]))
    case = found["counterexample"]
    changes = {"margin": -1.0, "margin_exact": "0", "region": "n0, n1 <= 4, n2 <= 2", "inputs_covered": "2"}
    changes |= {"counts": {"right": "1", "wrong": "2"}, "wrong_share": "1/2", "assumptions": ["none"]}
    for name, value in changes.items():
        assert outcome(weights, json.dumps(found | {name: value}))[0] == 1, name
    for name, value in {
        "n0": 1, "n1": 9, "n2": -1, "last": "4", "expected": "4", "tokens": ["BOS", "0", "="], "margin": -1.0,
        "input": [0, 0, 1, "="],
    }.items():  # fmt: skip
        assert outcome(weights, json.dumps(found | {"counterexample": case | {name: value}}))[0] == 1, name
    infinite = found | {"parameters": found["parameters"] | {"max_digits": None}, "region": "all n0, n1, n2 <= 2"}
    assert outcome(weights, json.dumps(infinite))[0] == 1


@pytest.mark.parametrize(
    "fault",
    [
        (counting, "sorted_out", "triples, ~rights", "triples, rights"),
        (numbers, "attention_input", "weight[i] * part", "-weight[i] * part"),
    ],
    ids=lambda fault: fault[1],
)
def test_a_prover_that_refutes_what_is_right_is_found(fault):
    """A right model, whose tokens have several roots, and a fault that makes the prover name a wrong prompt."""
    model = changed(0)
    assert saved(model)[1]["verdict"] == "PROVED"
    with planted(*fault):
        weights, found = saved(model)
    assert found["verdict"] == "REFUTED"
    assert outcome(weights, json.dumps(found))[0] == 1


def test_a_tie_is_not_decided():
    """All logits but one are the same number, which balls do not show."""
    model = changed(WRONG[0])
    _, proof = saved(model)
    with torch.no_grad():
        model.W_out[:, :7], model.b_out[:7] = model.W_out[:, :1], 0.0
        model.b_out[7] = -50.0
    weights = count01.as_bytes(model)
    digest = hashlib.sha256(weights).hexdigest()
    assert outcome(weights, refuted(proof, digest, (0, 0, 0), 4, 6, 0.0))[0] == NOT_CHECKABLE


def test_fields_of_another_statement_are_refused():
    weights, proof = saved(count01.normed())
    for name, value in (
        ("inputs_covered", "143"),
        ("margin", 0.5),
        ("region", "n0, n1 <= 4, n2 <= 2"),
        ("margin", 0.0),
    ):
        assert outcome(weights, json.dumps(proof | {name: value}))[0] == 1, name
    assert outcome(weights, json.dumps(proof | {"reading": "dtype, any order"}))[0] == NOT_CHECKABLE
    assert outcome(weights, json.dumps(proof | {"verdict": "REFUTED"}))[0] != 0
    endless = proof | {"parameters": proof["parameters"] | {"max_digits": None}, "region": "all n0, n1, n2 <= 2"}
    assert outcome(weights, json.dumps(endless))[0] == NOT_CHECKABLE


@pytest.mark.parametrize(
    "fault", [("_lines", "(0, EQUALS,", "(EQUALS,"), ("gaps", "zip(line, row,", "zip(line, (1, *row[:3]),")], ids=str
)
@pytest.mark.parametrize("model", [count01.normed, lambda: changed(8)], ids=["proved", "refuted"])
def test_a_checker_that_forgets_something_is_found(fault, model):
    weights, proof = saved(model())
    assert outcome(weights, json.dumps(proof))[0] == 0
    with planted(NormedPrompts, *fault):
        assert outcome(weights, json.dumps(proof))[0] == 1


@pytest.mark.parametrize("domain", [(0, None, 0, None, 4), (0, 10**12, 0, 10**12, 2), (1, 3, 1, 2, None)], ids=str)
def test_prompts_are_those_of_the_region(domain):
    """Each once, and none are looked for beyond the most digits of all."""
    lo, hi, m, M, total = ((10 if x is None else x) for x in domain)
    for is_more in (True, False):
        due = [
            (n0, n1, n2)
            for n0, n1, n2 in product(range(10), repeat=3)
            if min(n0, n1) >= lo and max(n0, n1) <= hi and m <= n2 <= M and sum((n0, n1, n2)) <= total
            if (n1 > n0) == is_more
        ]
        assert [*triples(domain, is_more)] == due


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_proofs_in_a_dtype_hold_and_no_larger_margin_does(name, seed):
    """Built and drawn models; weights of a model that is wrong somewhere, and a margin above the least, are refused."""
    model = count01.normed() if seed is None else changed(seed)
    weights, proof = saved(model, Rounded(FORMATS[name]))
    assert outcome(weights, json.dumps(proof)) == (0, "PROVED")
    least = least_gap(model)
    for said in ({"margin": least * 1.001}, {"assumptions": proof["assumptions"][:-1]}, {"inputs_covered": "143"}):
        assert outcome(weights, json.dumps(proof | said))[0] == 1, said
    assert outcome(weights, json.dumps(proof | {"verdict": "REFUTED"}))[0] != 0
    for other in WRONG:
        forged = count01.as_bytes(changed(other))
        said = proof | {"weights_sha256": hashlib.sha256(forged).hexdigest()}
        assert outcome(forged, json.dumps(said))[0] != 0


def computed(x, gain, bias, eps, draw):
    """LayerNorm in float32: a random order, in one pass or two, its gain and bias folded or not."""
    order = torch.tensor(draw.sample(range(x.shape[-1]), x.shape[-1]))
    mean = sum(x[:, i] for i in order)[:, None] / x.shape[-1]
    two = sum((x[:, i] - mean[:, 0]) ** 2 for i in order)[:, None] / x.shape[-1]
    one = sum(x[:, i] ** 2 for i in order)[:, None] / x.shape[-1] - mean * mean
    inverse = 1 / (draw.choice([one, two]) + eps).sqrt()
    return draw.choice([(x - mean) * inverse * gain + bias, x * (inverse * gain) + (bias - mean * (inverse * gain))])


def outside(seeds):
    """How many numbers of float32 runs are further off than the bound says."""
    found = 0
    for seed in seeds:
        draw, g = random.Random(seed), torch.Generator().manual_seed(seed)
        x, gain, bias = (torch.randn(n, 6, generator=g) for n in (8, 1, 1))
        x += draw.choice([0.0, 3.0, 100.0])
        norm = [fmpq_mat(1, n, [fmpq(*v.as_integer_ratio()) for v in part.flatten().tolist()])
                for part, n in ((gain, 6), (bias, 6), (torch.tensor([1e-5], dtype=torch.float64), 1))]  # fmt: skip
        E = fmpq_mat(8, 6, [fmpq(*v.as_integer_ratio()) for v in x.flatten().tolist()])
        bound = NormedRows(Roundoff(format_of("float32")), norm).reach(E)
        exact = torch.nn.functional.layer_norm(x.double(), (6,), gain[0].double(), bias[0].double(), 1e-5)
        off = (computed(x, gain, bias, 1e-5, draw).double() - exact).abs().flatten().tolist()
        found += sum(not e >= o - 1e-12 for e, o in zip(map(float, bound.error.entries()), off, strict=True))
    return found


@pytest.mark.parametrize(
    "fault",
    [
        ("reach", "2 * y.rad() + e", "e - e"),
        ("_spread", "arb(0, (gamma(4 * d + 16, self.fmt.u) * squares + 8 * (d + 2) * tiny).upper())", "0"),
    ],
    ids=lambda fault: fault[0],
)
def test_no_float32_layer_norm_is_further_off_than_its_bound(fault):
    """And where the bound forgets something, some are."""
    assert outside(range(40)) == 0
    with planted(NormedRows, *fault):
        assert outside(range(40))


@pytest.mark.parametrize("reading", [None, Rounded(FORMATS["float64"])], ids=["real", "float64"])
def test_certificates_of_a_trained_model_hold(reading):
    """After "=" it is right on these prompts; after 4 and 5 it is not always."""
    model = count01.load(str(Path(__file__).parents[1] / "data/count01/norm_s0.safetensors"))
    weights = count01.as_bytes(model)
    for is_semantic, verdict in ((True, "PROVED"), (False, "REFUTED"))[: 2 - (reading is not None)]:
        domain = PromptDomain(DIGITS, NOISE, is_semantic=is_semantic)
        proof = certify(Count01.of(model, "majority-ones", domain), reading).about(weights).to_json()
        assert outcome(weights, proof) == (0, verdict)


# ---- wrong prompts in a dtype


class Run(LeftToRight):
    """A prompt's last logits in fractions, every operation rounded, sums from left to right."""

    def normal(self, row, gain, bias, eps):
        n, one = len(row), Fraction(1)
        mean = self.near(self.dot(row, [one] * n) / n)
        centred = [self.near(x - mean) for x in row]
        spread = self.near(self.near(self.dot(centred, centred) / n) + eps)
        with mpmath.workdps(60):
            root = self.near(fraction(mpmath.sqrt(mpmath.mpf(spread.numerator) / spread.denominator)))
        return [self.near(self.near(self.near(x / root) * a) + b) for x, a, b in zip(centred, gain, bias, strict=True)]

    def last(self, model, tokens):
        W = {name: x.double().tolist() for name, x in model.named_parameters()}
        near = {name: self.each(x) for name, x in W.items()}
        x = [near["E"][t] for t in tokens]
        eps = Fraction(float(model.norm_eps))
        seen, read = [self.normal(row, near["norm_weight"], near["norm_bias"], eps) for row in x], []
        for W_Q, W_K, W_V in zip(near["W_Q"], near["W_K"], near["W_V"], strict=True):
            q, k, v = (self.product(rows, [*zip(*W, strict=True)]) for rows, W in
                       ((seen[-1:], W_Q), (seen, W_K), (seen, W_V)))  # fmt: skip
            shares = self.softmax(self.product(q, k)[0])
            read += [self.dot(shares, column) for column in zip(*v, strict=True)]
        W_O = [row for part in near["W_O"] for row in part]
        stream = self.product([read], [*zip(*W_O, strict=True)])
        stream = self.sums(stream, x[-1:]) if model.has_skip else stream
        return self.sums(self.product(stream, [*zip(*near["W_out"], strict=True)]), [near["b_out"]])[0]

    def each(self, x):
        return [self.each(y) for y in x] if isinstance(x, list) else self.near(Fraction(x))


def said_wrong(proof, model, run, tokens, due):
    """The certificate that says this prompt is answered so, and whether it is answered wrongly."""
    weights, row = count01.as_bytes(model), [*map(float, run.last(model, tokens))]
    margin = row[due] - max(x for j, x in enumerate(row) if j != due)
    n, words = [tokens.count(t) for t in (1, 2, 3)], [TOKENS[t] for t in tokens]
    case = proof["counterexample"] | {"input": [*n, words[-1]], "last": words[-1], "tokens": words, "logits": row}
    case |= dict(zip(("n0", "n1", "n2"), n, strict=True)) | {"expected": TOKENS[due]}
    case["predicted"] = TOKENS[row.index(max(row))]
    said = {"weights_sha256": hashlib.sha256(weights).hexdigest(), "counterexample": case, "margin": -abs(margin)}
    return weights, json.dumps(proof | said), margin <= 0


@pytest.mark.parametrize("seeds", first(1, [[7], range(40)]), ids=str)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_wrong_prompts_in_a_dtype_are_what_an_oracle_runs(name, seeds):
    """Any prompt of any drawn model: refused where it is answered rightly, and else with another margin."""
    run, wrong, right = Run(FORMATS[name], False), 0, 0
    _, proof = saved(changed(WRONG[0]), Rounded(FORMATS[name]))
    for seed in seeds:
        draw, model = random.Random(seed), changed(seed)
        for _ in range(4):
            digits = [draw.choice((1, 2, 3)) for _ in range(draw.randrange(5))]
            last, is_more = draw.choice([None, 5, 6]), digits.count(2) > digits.count(1)
            if digits.count(3) > NOISE or max(map(digits.count, (1, 2))) > DIGITS:
                continue
            tokens = [0, *digits, 4, *([last] if last else [])]
            weights, text, is_wrong = said_wrong(proof, model, run, tokens, 7 if last else 5 if is_more else 6)
            code = outcome(weights, text)[0]
            assert code == (0 if is_wrong else 1), seed
            wrong, right = wrong + (code == 0), right + (code == 1)
    assert wrong and right


IN_DTYPES = [*zip(["float32", "bfloat16", "float16", "float64"], WRONG, strict=True)]
IN_DTYPES += [pair for pair in product(["float32", "bfloat16", "float16", "float64"], WRONG) if pair not in IN_DTYPES]


@pytest.mark.parametrize(("name", "seed"), first(4, IN_DTYPES))
def test_refutations_in_a_dtype_hold(name, seed):
    model = changed(seed)
    weights, found = saved(model, Rounded(FORMATS[name]))
    assert found["verdict"] == "REFUTED" and outcome(weights, json.dumps(found)) == (0, "REFUTED")
    run, case = Run(FORMATS[name], False), found["counterexample"]
    tokens = [TOKENS.index(word) for word in case["tokens"]]
    if case["run_as"]["order"] == "left to right":
        again = said_wrong(found, model, run, tokens, TOKENS.index(case["expected"]))
        assert again[2] and abs(json.loads(again[1])["margin"] - found["margin"]) <= 2.0**-20


def test_each_field_of_a_refutation_in_a_dtype_is_refused_when_changed():
    weights, found = saved(changed(WRONG[2]), Rounded(FORMATS["float32"]))
    case = found["counterexample"]
    changes = {"margin": -1.0, "margin_exact": "0", "region": "n0, n1 <= 4, n2 <= 2", "inputs_covered": "2"}
    changes |= {"assumptions": found["assumptions"][:-1], "reading": "real", "method": "sampled"}
    for name, value in changes.items():
        assert outcome(weights, json.dumps(found | {name: value}))[0] not in (0, 2), name
    for name, value in {
        "n0": 0, "n1": 9, "n2": -1, "last": "4", "expected": "4", "tokens": ["BOS", "0", "="], "predicted": "5",
        "input": [0, 0, 1, "="], "logits": [0.0] * 8, "fails": False,
    }.items():  # fmt: skip
        assert outcome(weights, json.dumps(found | {"counterexample": case | {name: value}}))[0] != 0, name
    for name, value in {
        "order": "any",
        "seed": None,
        "fused": 1,
        "ways": [["any"]],
        "directions": [["x", "+"]],
    }.items():
        said = found | {"counterexample": case | {"run_as": case["run_as"] | {name: value}}}
        assert outcome(weights, json.dumps(said))[0] != 0, name


OF_A_RUN = [
    ("self.add(y, -mean)", "y"),
    ("n), eps)", "n), 0.0)"),
    ("self.times(self.divide(y, root), a)", "self.divide(y, root)"),
    ("self.tensor(self.add(y, b))", "y"),
]


@pytest.mark.parametrize(("right", "wrong"), OF_A_RUN)
def test_a_run_that_forgets_something_is_found(right, wrong):
    model = changed(WRONG[0])
    with torch.no_grad():
        model.norm_eps.fill_(0.5)
        model.norm_weight.mul_(torch.linspace(0.5, 1.5, len(model.norm_weight), dtype=torch.float64))
        model.norm_bias.add_(torch.linspace(-0.25, 0.5, len(model.norm_bias), dtype=torch.float64))
        model.E.add_(torch.linspace(0.0, 0.25, model.E.shape[1], dtype=torch.float64))
        model.W_out[:, 5].add_(torch.linspace(0.5, -0.5, len(model.W_out), dtype=torch.float64))
    weights, found = saved(model, Rounded(FORMATS["float32"]))
    assert found["verdict"] == "REFUTED" and outcome(weights, json.dumps(found)) == (0, "REFUTED")
    with planted(Replay, "layer_norm", right, wrong):
        assert outcome(weights, json.dumps(found))[0] != 0


def test_a_row_without_spread_is_not_run():
    _, found = saved(changed(WRONG[0]), Rounded(FORMATS["float32"]))
    model = changed(WRONG[0])
    with torch.no_grad():
        model.E.fill_(1.0)
        model.norm_eps.fill_(0.0)
    weights = count01.as_bytes(model)
    said = found | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
    assert outcome(weights, json.dumps(said))[0] == NOT_CHECKABLE


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_a_fault_in_the_prover_in_a_dtype_is_found(name):
    """It takes the size of a bound for the bound: the proof of a wrong model is saved, and refused."""
    fault = (count01_dtype, "decide_boxes", "decided = bound > 0", "bound = np.abs(bound); decided = bound > 0")
    with planted(*fault), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        weights, found = saved(changed(WRONG[1]), Rounded(FORMATS[name]))
    assert found["verdict"] == "PROVED" and least_gap(changed(WRONG[1])) < 0
    assert outcome(weights, json.dumps(found))[0] == 1
