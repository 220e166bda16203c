"""The independent checker accepts what is right, and refuses whatever was tampered with."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from models.random_models import random_model
from models.selection import every, first
from oracles.histogram import all_wrong_pairs, forward, weights_of

from constructions import checkpoint, inventory_counting, relation_counting
from constructions.written_files import write_whole_folder
from verify.checker import fields, mathematics, reading
from verify.checker.fields import check
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, Refusal
from verify.tasks.histogram.catalogue import CONSTRUCTIONS
from verify.tasks.histogram.proof import certify

ROOT = Path(__file__).parents[2]
BUILDERS = {
    "lin": inventory_counting.lin,
    "lin+sftm": inventory_counting.lin_sftm,
    "dot": relation_counting.dot,
    "dot+sftm": inventory_counting.dot_sftm,
    "bos": relation_counting.bos,
    "bos+sftm": relation_counting.bos_sftm,
    "dot inventory": inventory_counting.dot,
    "bos inventory": inventory_counting.bos,
    "bos+sftm inventory": inventory_counting.bos_sftm,
}


def saved(module, claim=None, **options):
    """The bytes that --save writes: weights and certificate."""
    weights = checkpoint.as_bytes(module, claim=claim, construction=None)
    return weights, certify(module, claim=claim, **options).about(weights).to_dict()


def outcome(weights, certificate):
    """0 and the verdict, or the exit code and the reason."""
    data = certificate if isinstance(certificate, bytes) else json.dumps(certificate).encode()
    try:
        return 0, check(weights, data)[0]
    except Refusal as refusal:
        assert "\n" not in str(refusal) and str(refusal)
        return refusal.exit_code, str(refusal)


# ---- what is right is accepted


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("dtype", first(2, [torch.float64, torch.float32, torch.bfloat16, torch.float16]), ids=str)
def test_what_the_prover_proves_holds(name, dtype):
    for options in (
        {"T": 5, "L": 6},
        {"T": 5, "L": 4, "basis": "random"},
        {"T": 2, "L": 1},
        {"T": 4, "L": 3, "d": 6, "p": 6},
    ):
        module = BUILDERS[name](**options, dtype=dtype)
        weights, certificate = saved(module)
        assert certificate["verdict"] == "PROVED" or dtype in (torch.bfloat16, torch.float16)
        assert outcome(weights, certificate) == (0, certificate["verdict"])


def test_the_main_job_holds_at_full_size():
    for name in ("lin+sftm", "dot", "bos+sftm"):
        weights, certificate = saved(BUILDERS[name](T=32, L=10))
        assert certificate["inputs_covered"] == "1125899906842624"
        assert outcome(weights, certificate) == (0, "PROVED")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests/data/frontier").glob("*T16_L5_*.safetensors")), ids=lambda p: p.stem
)
def test_the_frontier_table_holds(path):
    assert outcome(path.read_bytes(), path.with_suffix(".json").read_bytes()) == (0, "PROVED")


def test_a_model_of_a_thousand_dimensions_states_its_bound_as_the_tightest_margin():
    weights, certificate = saved(relation_counting.dot(T=190, L=3))
    assert certificate["margin_exact"] is None and certificate["tightest"]["margin"] == certificate["margin"]
    assert outcome(weights, certificate) == (0, "PROVED")


def test_rows_of_lin_with_different_weights():
    """Slots of different weight: the proved margins hold, and a part in a million more than the true ones does not."""
    for softmax in (False, True):
        build = inventory_counting.lin_sftm if softmax else inventory_counting.lin
        module = build(T=3, L=4, dtype=torch.float64)
        with torch.no_grad():
            module.A += torch.tensor([[0.0, 0.01, 0.02, 0.0], [0.005, 0, 0, 0.01], [0, 0, 0, 0], [0.01, 0, 0, 0]])
        weights, certificate = saved(module)
        assert certificate["verdict"] == "PROVED" and outcome(weights, certificate) == (0, "PROVED")
        margins = least_margins(module)
        for k in range(module.L):
            changed = json.loads(json.dumps(certificate))
            changed["margin_per_count"][k] = margins[k] * (1 + 1e-6)
            changed["margin"] = min(changed["margin_per_count"])
            changed |= {"tightest": None, "margin_exact": None, "error_share": [0.0, 0.0], "wrong_pairs": "0"}
            assert outcome(weights, changed)[0] in (FAILS, NOT_CHECKABLE)


def test_refuted_certificates_hold():
    module = relation_counting.bos(T=4, L=3, as_printed=True)
    weights, certificate = saved(module, claim="A-4.1")
    assert outcome(weights, certificate) == (0, "REFUTED")
    tie = inventory_counting.dot_sftm(T=3, L=3, dtype=torch.float64)
    with torch.no_grad():
        tie.b_2[2] = tie.b_2[1] - 1.0  # at count L the neuron reads exactly e / e
    weights, certificate = saved(tie)
    assert certificate["counterexample"]["is_tie"] and outcome(weights, certificate) == (0, "REFUTED")
    certificate["counterexample"]["is_tie"] = False
    assert outcome(weights, certificate)[0] == FAILS


def test_proofs_that_split_cases_are_checked_by_their_tree():
    """Two more neurons, on for some multisets only, that cancel each other: right, but no vertex shows it."""
    module = inventory_counting.lin(T=3, L=4, p=5, dtype=torch.float64)
    with torch.no_grad():
        module.W_1[0, 3:] = 1.0
        module.b_1[3:] = -0.3
        module.W_2[3], module.W_2[4] = 0.01 * module.W_2[0], -0.01 * module.W_2[0]
    weights, certificate = saved(module)
    assert certificate["verdict"] == "PROVED" and certificate["wrong_pairs"] == "0"
    assert outcome(weights, certificate) == (0, "PROVED")
    del certificate["tree"]
    code, reason = outcome(weights, certificate)
    assert code == NOT_CHECKABLE and "split cases" in reason


def test_without_a_tightest_input_there_is_no_exact_margin(dot):
    split = {"tightest": None, "error_share": [0.0, 0.0], "wrong_pairs": "0"}
    split |= {"argument": "vertices, then multisets one by one or in regions"}
    assert outcome(dot[0], dot[1] | split | {"margin_exact": None}) == (0, "PROVED")
    assert outcome(dot[0], dot[1] | split | {"margin_exact": "1/2"})[0] == FAILS


@pytest.mark.parametrize(("argument", "expected"), [("vertices, then branch and bound", 0), ("vertices", FAILS)])
def test_how_an_earlier_release_called_the_same_argument(dot, argument, expected):
    split = {"tightest": None, "error_share": [0.0, 0.0], "wrong_pairs": "0", "margin_exact": None}
    assert outcome(dot[0], dot[1] | split | {"argument": argument})[0] == expected


def test_the_order_of_keys_does_not_matter(dot):
    assert outcome(dot[0], json.dumps(dot[1], sort_keys=True).encode()) == (0, "PROVED")


def test_one_neuron_that_may_be_on_or_off_is_decided():
    module = inventory_counting.lin(T=3, L=4, p=4, dtype=torch.float64)
    for factor in (0.01, -0.01):
        with torch.no_grad():
            module.W_1[0, 3], module.b_1[3] = 1.0, -0.3
            module.W_2[3] = factor * module.W_2[0]
        weights, certificate = saved(module)
        assert "wrong_pairs" in certificate and outcome(weights, certificate) == (0, "PROVED")


# ---- agreement with enumeration


def least_margins(module):
    """The smallest margin at each count over all inputs, in float64 (plain numpy)."""
    sequences = np.array(np.meshgrid(*[range(module.T)] * module.L)).reshape(module.L, -1).T
    logits = forward(module, weights_of(module), sequences)
    counts = (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    right = (counts - module.first_count)[..., None]
    others = logits.copy()
    np.put_along_axis(others, right, -np.inf, -1)
    margin = np.take_along_axis(logits, right, -1)[..., 0] - others.max(-1)
    return [float(margin[counts == k].min()) for k in range(1, module.L + 1)]


def forged(module, weights, margins):
    """A certificate that says PROVED with these margins, whatever is true."""
    certificate = certify(module, budget=0).about(weights).to_dict()
    certificate |= {"verdict": "PROVED", "inputs_covered": str(module.T**module.L), "margin_per_count": margins}
    certificate |= {"margin": min(margins), "margin_exact": None, "tightest": None, "counterexample": None}
    certificate |= {"error_share": [0.0, 0.0], "wrong_pairs": "0", "reason": None}
    certificate.pop("tree", None)
    return certificate


@pytest.mark.parametrize(("start", "models"), first(1, [(0, 12), *((i, 60) for i in range(0, 240, 60))]))
def test_random_and_mutated_models_against_enumeration(start, models):
    """Forged PROVED certificates: accepted only where every input is right, and by the claimed margin."""
    accepted = refused = 0
    for seed in range(start, start + models):
        module = random_model(seed)
        weights, certificate = saved(module)
        assert outcome(weights, certificate)[0] in (0, NOT_CHECKABLE)
        if certificate["verdict"] == "REFUTED":
            assert outcome(weights, certificate) == (0, "REFUTED")
        if len(module.b_2) == 1:
            continue
        wrong = all_wrong_pairs(module)
        code, _ = outcome(weights, forged(module, weights, [5e-324] * module.L))
        assert not (wrong and code == 0), seed
        accepted, refused = accepted + (code == 0), refused + (code != 0)
        if not wrong:
            margins = [m * (1 + 1e-6) + 1e-9 for m in least_margins(module)]
            assert outcome(weights, forged(module, weights, margins))[0] != 0
    assert accepted and refused


def test_scores_far_apart():
    """Weights that the intervals cannot tell from zero: nothing wrong is accepted, and nothing divides by them."""
    outcomes = set()
    for seed in range(1, 80, 6):
        module = random_model(seed)
        if not module.is_softmax or len(module.b_2) == 1:
            continue
        with torch.no_grad():
            (module.A if module.is_linear else module.W_Q).mul_(1000.0)
        weights, certificate = saved(module)
        outcomes.add(outcome(weights, certificate)[0])
        wrong = all_wrong_pairs(module)
        code, _ = outcome(weights, forged(module, weights, [5e-324] * module.L))
        assert not (wrong and code == 0), seed
    assert 0 in outcomes and outcomes <= {0, NOT_CHECKABLE}


@pytest.mark.parametrize("on", [0.0, 1.0])
def test_a_normalisation_that_vanishes_within_the_intervals_counts_as_positive(on):
    """The own weight is below all precision that is tried: where all slots hold t, D is an interval around zero."""
    module = inventory_counting.dot_sftm(T=3, L=3, dtype=torch.float64, as_printed=True)
    with torch.no_grad():
        module.W_Q.mul_(-1e30)
        module.b_1.fill_(on)
    weights, certificate = saved(module)
    assert outcome(weights, certificate) == (0, "REFUTED")
    assert outcome(weights, forged(module, weights, [5e-324] * 3))[0] == FAILS


def test_a_proof_whose_weights_are_below_all_precision_is_decided():
    """With t alone, all weights and D are intervals that end at zero; below zero, D would be an undecided neuron."""
    module = inventory_counting.dot_sftm(T=3, L=2, d=3, p=3, dtype=torch.float64)
    with torch.no_grad():  # neuron t is on where both slots hold t: e^-w (2 - 1.5) > 0
        for name, scale in {"E": 1.0, "W_Q": -1e30, "W_K": 1.0, "W_1": 1.0}.items():
            getattr(module, name).copy_(scale * torch.eye(3))
        module.b_1.fill_(-1.5)
        module.W_2.copy_(torch.tensor([[0.0, 1.0]] * 3))
        module.b_2.copy_(torch.tensor([0.25, 0.0]))
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    low, high = mathematics.Model(reading.read_weights(weights), [0.0]).weight(-(10**200))
    assert low == 0 < high
    assert outcome(weights, forged(module, weights, [0.2, 0.2])) == (0, "PROVED")
    assert outcome(weights, forged(module, weights, [0.2, 0.26]))[0] == FAILS


@pytest.mark.parametrize("name", every(6, BUILDERS))
def test_every_bit_of_a_weight_matters_or_changes_nothing(name):
    """One bit flipped and the digest made to fit: accepted only where enumeration agrees with every margin."""
    module = BUILDERS[name](T=3, L=3, dtype=torch.float32)
    weights, certificate = saved(module)
    g = torch.Generator().manual_seed(0)
    codes = set()
    for tensor, parameter in module.named_parameters():
        for _ in range(8):
            i, bit = (int(torch.randint(0, n, (1,), generator=g)) for n in (parameter.numel(), 32))
            flipped = flip(weights, tensor, 32 * i + bit)
            changed = certificate | {"weights_sha256": digest(flipped)}
            assert outcome(flipped, certificate)[0] == FAILS  # the digest, or NaN, shows it
            code, _ = outcome(flipped, changed)
            codes.add(code)
            if code == 0:
                mutated = BUILDERS[name](T=3, L=3, dtype=torch.float32)
                value = getattr(mutated, tensor).detach().view(-1).view(torch.int32)
                value[i] ^= (1 << bit) if bit < 31 else -(1 << 31)
                assert not all_wrong_pairs(mutated)
                for claimed, true in zip(certificate["margin_per_count"], least_margins(mutated), strict=True):
                    assert claimed <= true + 1e-9 * (1 + abs(true))
    assert 0 in codes and codes - {0}


# ---- tampering: the certificate


def digest(weights):
    import hashlib

    return hashlib.sha256(weights).hexdigest()


@pytest.fixture(scope="module")
def dot():
    return saved(relation_counting.dot(T=5, L=6), claim="A-4.2")


@pytest.fixture(scope="module")
def refuted():
    return saved(relation_counting.bos(T=4, L=3, as_printed=True), claim="A-4.1")


def put(*path_and_value):
    """Replaces what lies at a path of keys."""
    *path, last, value = path_and_value

    def change(certificate):
        place = certificate
        for key in path:
            place = place[key]
        place[last] = value(place[last]) if callable(value) else value

    return change


def drop(*path):
    def change(certificate):
        place = certificate
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def both_margins(factor):
    def change(certificate):
        certificate["margin_per_count"] = [m * factor for m in certificate["margin_per_count"]]
        certificate["margin"] = min(certificate["margin_per_count"])

    return change


FIELD_NAMES = [
    "verdict", "claim", "task", "parameters", "reading", "method", "inputs_covered", "margin", "margin_exact",
    "margin_per_count", "tightest", "counterexample", "assumptions", "error_share", "reason", "seconds",
    "weights_sha256",
]  # fmt: skip

CERTIFICATE = {
    **{f"{name} removed": drop(name) for name in FIELD_NAMES},
    "verdict REFUTED": put("verdict", "REFUTED"),
    "verdict UNKNOWN": put("verdict", "UNKNOWN"),
    "verdict in small letters": put("verdict", "proved"),
    "verdict true": put("verdict", True),
    "another claim": put("claim", "A-4.3"),
    "a claim that nobody makes": put("claim", "A-9.9"),
    "no claim": put("claim", None),
    "another task": put("task", "count01"),
    **{f"{name} one more": put("parameters", name, lambda n: n + 1) for name in "TLdp"},
    **{f"{name} one less": put("parameters", name, lambda n: n - 1) for name in "TLdp"},
    "T as a float": put("parameters", "T", float),
    "p true": put("parameters", "p", True),
    "another model": put("parameters", "model", "bos"),
    "another dtype": put("parameters", "dtype", "float64"),
    "parameters with more": put("parameters", "kappa", 1),
    "parameters with less": drop("parameters", "d"),
    "parameters a list": put("parameters", []),
    "reading any order": put("reading", "dtype, any order"),
    "reading in large letters": put("reading", "Real"),
    "method exhaustive": put("method", "exhaustive"),
    "method unknown": put("method", "by inspection"),
    "one input more": put("inputs_covered", lambda n: str(int(n) + 1)),
    "one input less": put("inputs_covered", lambda n: str(int(n) - 1)),
    "inputs as a number": put("inputs_covered", int),
    "inputs without end": put("inputs_covered", "infinite"),
    "margin doubled": put("margin", lambda m: 2 * m),
    "margin an ulp more": put("margin", lambda m: math.nextafter(m, 1)),
    "margin lowered alone": put("margin", lambda m: m / 2),
    "margin negative": put("margin", -0.5),
    "margin a string": put("margin", "0.4"),
    "margins doubled": both_margins(2.0),
    "margins up by 1e-6": both_margins(1 + 1e-6),
    "margins negative": both_margins(-1.0),
    "margins zero": both_margins(0.0),
    "margin of one count inflated": put("margin_per_count", 3, lambda m: m * 1.01),
    "margin of one count missing": put("margin_per_count", lambda m: m[:-1]),
    "margin of one count too many": put("margin_per_count", lambda m: [*m, m[0]]),
    "margin of one count null": put("margin_per_count", 2, None),
    "margin of one count an integer": put("margin_per_count", 2, 0),
    "margins a number": put("margin_per_count", 0.4),
    "margin_exact another": put("margin_exact", "1/3"),
    "margin_exact null": put("margin_exact", None),
    "tightest null but exact": put("tightest", None),
    "tightest a list": put("tightest", [1]),
    "tightest token out of range": put("tightest", "tokens", 0, 5),
    "tightest token negative": put("tightest", "tokens", 0, -1),
    "tightest token true": put("tightest", "tokens", 0, True),
    "tightest too short": put("tightest", "tokens", lambda t: t[:-1]),
    "tightest too long": put("tightest", "tokens", lambda t: [*t, 0]),
    "tightest tokens a string": put("tightest", "tokens", "000000"),
    "tightest position out of range": put("tightest", "position", 6),
    "tightest position negative": put("tightest", "position", -1),
    "tightest position a float": put("tightest", "position", 0.0),
    "tightest expects another count": put("tightest", "expected", lambda k: k + 1),
    "tightest margin inflated": put("tightest", "margin", lambda m: m + 0.01),
    "tightest margin lowered": put("tightest", "margin", lambda m: m - 0.01),
    "tightest margin a string": put("tightest", "margin", "0.5"),
    "tightest with more": put("tightest", "extra", 1),
    "tightest with less": drop("tightest", "position"),
    "a counterexample to a proof": put("counterexample", {"tokens": [0] * 6}),
    "an assumption less": put("assumptions", lambda a: a[:-1]),
    "an assumption more": put("assumptions", lambda a: [*a, "2 + 2 = 5"]),
    "an assumption reworded": put("assumptions", 2, "right means: often right"),
    "assumptions a string": put("assumptions", "none"),
    "an error share": put("error_share", [0.0, 0.5]),
    "an error share without wrong pairs": put("error_share", [0.0, 0.0]),
    "wrong pairs": put("wrong_pairs", "3"),
    "a reason": put("reason", "because"),
    "seconds negative": put("seconds", -1.0),
    "seconds a string": put("seconds", "fast"),
    "digest of something else": put("weights_sha256", digest(b"")),
    "digest in large letters": put("weights_sha256", str.upper),
    "a further field": put("approved", True),
}

COUNTEREXAMPLE = {
    "verdict PROVED": put("verdict", "PROVED"),
    "a right input": put("counterexample", "tokens", [0, 0, 0]),
    "token out of range": put("counterexample", "tokens", 1, 4),
    "another position": put("counterexample", "position", 7),
    "expects another count": put("counterexample", "expected", lambda k: k + 1),
    "predicts what is right": put("counterexample", "predicted", 1),
    "predicts no class": put("counterexample", "predicted", 9),
    "a tie": put("counterexample", "is_tie", True),
    "smallest unsaid": put("counterexample", "is_smallest", None),
    "the module answers no class": put("counterexample", "module_predicts", 9),
    "less": drop("counterexample", "is_tie"),
    "more": put("counterexample", "note", ""),
    "null": put("counterexample", None),
    "margin above zero": put("margin", 0.5),
    "margin another": put("margin", lambda m: m - 0.1),
    "margin null": put("margin", None),
    "margin_exact another": put("margin_exact", "-1/7"),
    "margins per count": put("margin_per_count", [0.1, 0.1, 0.1]),
    "tightest": put("tightest", {"tokens": [0, 0, 0]}),
    "share below the pairs": put("error_share", [0.0, 0.1]),
    "share no bracket": put("error_share", [0.5, 0.25]),
    "share null": put("error_share", None),
    "one wrong pair more": put("wrong_pairs", lambda n: str(int(n) + 1)),
    "wrong pairs a number": put("wrong_pairs", int),
    "wrong pairs unsaid": put("wrong_pairs", None),
    "inputs of all": put("inputs_covered", "64"),
}  # fmt: skip

DOES_NOT_CLAIM = {"verdict UNKNOWN", "reading any order", "method exhaustive"}


@pytest.mark.parametrize("name", CERTIFICATE)
def test_a_changed_certificate_is_refused(dot, name):
    weights, certificate = dot[0], json.loads(json.dumps(dot[1]))
    assert outcome(weights, certificate) == (0, "PROVED")
    CERTIFICATE[name](certificate)
    assert outcome(weights, certificate)[0] == (NOT_CHECKABLE if name in DOES_NOT_CLAIM else FAILS)


@pytest.mark.parametrize("name", COUNTEREXAMPLE)
def test_a_changed_refutation_is_refused(refuted, name):
    weights, certificate = refuted[0], json.loads(json.dumps(refuted[1]))
    assert outcome(weights, certificate) == (0, "REFUTED")
    COUNTEREXAMPLE[name](certificate)
    assert outcome(weights, certificate)[0] == FAILS


VALUES = [None, True, 0, 1, -1, 0.0, 0.5, -1.5, 10**40, "", "1", "\u0663", [], [0], [0.0, 1.0], {}, {"tokens": []}]


def places(value, path=()):
    """Every path of keys into a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def is_true(module, certificate, path):
    """Whether what was changed is true all the same: a smaller margin, another input with the same margin."""
    if path[0] == "margin_per_count":
        return certificate["margin_per_count"][path[1]] <= least_margins(module)[path[1]] + 1e-9
    case = certificate[path[0]]
    logits = forward(module, weights_of(module), np.array([case["tokens"]]))[0, case["position"]]
    right = logits[case["expected"] - module.first_count]
    margin = case["margin"] if path[0] == "tightest" else certificate["margin"]
    assert (
        path[1] in ("tokens", "position") and case["tokens"].count(case["tokens"][case["position"]]) == case["expected"]
    )
    return abs(right - np.partition(logits[logits != right], -1)[-1] - margin) < 1e-9


@pytest.mark.parametrize("which", every(2, ["dot", "refuted"]))
def test_any_value_anywhere_is_refused(request, which):
    """Each place of a certificate, however deep, with each of many values of all types: refused in one line."""
    weights, certificate = request.getfixturevalue(which)
    module = relation_counting.dot(T=5, L=6) if which == "dot" else relation_counting.bos(T=4, L=3, as_printed=True)
    trusted = {("seconds",), ("counterexample", "is_smallest"), ("counterexample", "module_predicts")}
    tried = 0
    for path in places(certificate):
        for value in VALUES:
            changed = json.loads(json.dumps(certificate))
            put(*path, value)(changed)
            if json.dumps(changed) == json.dumps(certificate):
                continue
            code, reason = outcome(weights, changed)
            tried += 1
            assert code != 0 or path in trusted or is_true(module, changed, path), (path, value, reason)
    assert tried > 500


TEXTS = {
    "a key twice": lambda text: text.replace(b'"verdict"', b'"verdict": "PROVED", "verdict"', 1),
    "an inner key twice": lambda text: text.replace(b'"T": 5', b'"T": 5, "T": 5', 1),
    "NaN": lambda text: text.replace(b'"seconds": ', b'"seconds": NaN, "s": ', 1),
    "infinity": lambda text: text.replace(b'"margin": ', b'"margin": Infinity, "m": ', 1),
    "a float beyond the largest": lambda text: text.replace(b'"seconds": ', b'"seconds": 1e999, "s": ', 1),
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: b"",
    "two objects": lambda text: text + text,
    "a list": lambda text: b"[" + text + b"]",
    "null": lambda text: b"null",
    "not text": lambda text: b"\xff" + text,
    "nested without end": lambda text: b'{"a":' * 100_000,
    "an integer without end": lambda text: text.replace(b'"T": 5', b'"T": ' + b"5" * 10_000, 1),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_malformed_certificate_is_unreadable(dot, name):
    assert outcome(dot[0], TEXTS[name](json.dumps(dot[1]).encode()))[0] == UNREADABLE


# ---- tampering: the weights


def taken_apart(weights):
    n = struct.unpack("<Q", weights[:8])[0]
    return json.loads(weights[8 : 8 + n]), bytearray(weights[8 + n :])


def put_together(header, buffer):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(buffer)


def flip(weights, tensor, bit):
    header, _ = taken_apart(weights)
    changed = bytearray(weights)
    start = struct.unpack("<Q", weights[:8])[0] + 8 + header[tensor]["data_offsets"][0]
    changed[start + bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def in_header(change):
    def apply(weights):
        header, buffer = taken_apart(weights)
        return put_together(change(header) or header, buffer)

    return apply


def in_metadata(**values):
    def change(header):
        about = json.loads(header["__metadata__"]["weightproof"]) | values
        header["__metadata__"]["weightproof"] = json.dumps(about)

    return in_header(change)


def in_tensor(tensor, change):
    """Rewrites the float32 numbers of one tensor."""

    def apply(weights):
        header, buffer = taken_apart(weights)
        start, stop = header[tensor]["data_offsets"]
        numbers = np.frombuffer(bytes(buffer[start:stop]), dtype="<f4").copy()
        buffer[start:stop] = change(numbers).astype("<f4").tobytes()
        return put_together(header, buffer)

    return apply


def swapped(a, b):
    def change(header):
        header[a], header[b] = header[b], header[a]

    return in_header(change)


def one(numbers, value, i=0):
    numbers[i] = value
    return numbers


WEIGHTS = {
    "W_2 and b_2 swapped": (FAILS, swapped("W_2", "b_2")),
    "E and W_Q swapped": (FAILS, swapped("E", "W_Q")),
    "a tensor renamed": (FAILS, in_header(lambda h: h.update(A=h.pop("W_K")))),
    "a tensor more": (UNREADABLE, in_header(lambda h: h.update(e_BOS=dict(h["b_2"])))),
    "a tensor less": (UNREADABLE, in_header(lambda h: h.pop("W_K") and None)),
    "E a vector": (FAILS, in_header(lambda h: h["E"].update(shape=[25]))),
    "E of another shape": (FAILS, in_header(lambda h: h["E"].update(shape=[1, 25]))),
    "b_1 a matrix": (FAILS, in_header(lambda h: h["b_1"].update(shape=[1, 1]))),
    "a negative shape": (UNREADABLE, in_header(lambda h: h["E"].update(shape=[-5, -5]))),
    "a shape of floats": (UNREADABLE, in_header(lambda h: h["E"].update(shape=[5.0, 5]))),
    "a huge shape": (UNREADABLE, in_header(lambda h: h["E"].update(shape=[2**40, 2**40]))),
    "dtype of half the size": (UNREADABLE, in_header(lambda h: h["E"].update(dtype="F16"))),
    "dtype that is not a float": (UNREADABLE, in_header(lambda h: h["E"].update(dtype="I32"))),
    "overlapping offsets": (UNREADABLE, in_header(lambda h: h["W_1"].update(data_offsets=h["W_2"]["data_offsets"]))),
    "offsets beyond the end": (UNREADABLE, in_header(lambda h: h["W_K"].update(data_offsets=[10**6, 10**6 + 100]))),
    "offsets reversed": (UNREADABLE, in_header(lambda h: h["W_K"].update(data_offsets=h["W_K"]["data_offsets"][::-1]))),
    "offsets that are strings": (UNREADABLE, in_header(lambda h: h["W_K"].update(data_offsets=["0", "100"]))),
    "one offset": (UNREADABLE, in_header(lambda h: h["W_K"].update(data_offsets=[0]))),
    "an entry with more": (UNREADABLE, in_header(lambda h: h["E"].update(strides=[5, 1]))),
    "an entry with less": (UNREADABLE, in_header(lambda h: h["E"].pop("dtype") and None)),
    "an entry that is a list": (UNREADABLE, in_header(lambda h: h.update(E=[]))),
    "no metadata": (UNREADABLE, in_header(lambda h: h.pop("__metadata__") and None)),
    "metadata that are no object": (UNREADABLE, in_header(lambda h: h.update(__metadata__="dot"))),
    "metadata of numbers": (UNREADABLE, in_header(lambda h: h.update(__metadata__={"weightproof": 3}))),
    "a header with a key twice": (UNREADABLE, in_header(lambda h: json.dumps(h).replace("{", '{"E": 1, ', 1).encode())),
    "a header that is a list": (UNREADABLE, in_header(lambda h: b"[]")),
    "a header that is not text": (UNREADABLE, in_header(lambda h: b"\xff\xfe")),
    "another T": (FAILS, in_metadata(T=6)),
    "another L": (FAILS, in_metadata(L=5)),
    "a longer L": (FAILS, in_metadata(L=7)),
    "L as a float": (FAILS, in_metadata(L=6.0)),
    "another first count": (FAILS, in_metadata(first_count=0)),
    "first count true": (FAILS, in_metadata(first_count=True)),
    "another model": (FAILS, in_metadata(model="dot+sftm")),
    "a model that does not fit": (FAILS, in_metadata(model="lin")),
    "no such model": (FAILS, in_metadata(model="Dot")),
    "another claim": (FAILS, in_metadata(claim="W-1")),
    "a byte more": (UNREADABLE, lambda w: w + b"\0"),
    "a byte less": (UNREADABLE, lambda w: w[:-1]),
    "half of it": (UNREADABLE, lambda w: w[: len(w) // 2]),
    "only the header's length": (UNREADABLE, lambda w: w[:8]),
    "seven bytes": (UNREADABLE, lambda w: w[:7]),
    "nothing": (UNREADABLE, lambda w: b""),
    "a huge header": (UNREADABLE, lambda w: struct.pack("<Q", 2**63) + w[8:]),
    "a header of no length": (UNREADABLE, lambda w: struct.pack("<Q", 0) + w[8:]),
    "a header one byte short": (UNREADABLE, lambda w: struct.pack("<Q", struct.unpack("<Q", w[:8])[0] - 1) + w[8:]),
    "NaN": (FAILS, in_tensor("E", lambda x: one(x, np.nan))),
    "infinity": (FAILS, in_tensor("W_2", lambda x: one(x, np.inf))),
    "weights of another model": (FAILS, lambda w: saved(relation_counting.bos(T=5, L=6))[0]),
    "weights of another size": (FAILS, lambda w: saved(relation_counting.dot(T=6, L=6))[0]),
    "weights of another proof": (FAILS, lambda w: saved(inventory_counting.dot(T=5, L=6))[0]),
    "W_2 negated": (FAILS, in_tensor("W_2", lambda x: -x)),
    "b_2 in another order": (FAILS, in_tensor("b_2", lambda x: x[::-1])),
    "b_1 moved by the margin": (FAILS, in_tensor("b_1", lambda x: x + 0.5)),
    "two tokens alike": (FAILS, in_tensor("E", lambda x: np.concatenate([x[:5], x[:5], x[10:]]))),
    "W_Q zero": (FAILS, in_tensor("W_Q", lambda x: 0 * x)),
    "W_1 a little larger": (FAILS, in_tensor("W_1", lambda x: x * np.float32(1 + 2**-20))),
    "b_2 by one ulp": (FAILS, in_tensor("b_2", lambda x: one(x, np.nextafter(x[4], np.float32(1e9)), 4))),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_changed_weights_are_refused_even_when_the_digest_was_made_to_fit(dot, name):
    weights, certificate = dot
    code, change = WEIGHTS[name]
    changed = change(weights)
    assert changed != weights
    assert outcome(changed, certificate)[0] in (FAILS, UNREADABLE)
    assert outcome(changed, certificate | {"weights_sha256": digest(changed)})[0] == code


def test_there_are_fifty_kinds_of_tampering():
    assert len(CERTIFICATE) + len(COUNTEREXAMPLE) + len(TEXTS) + len(WEIGHTS) >= 50


# ---- independence, and the command


def test_the_checker_imports_nothing_of_the_prover():
    program = (
        "import sys, verify.checker.kinds\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "{'torch', 'numpy', 'scipy', 'sympy', 'safetensors', 'verify', 'constructions', 'bounds'}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    own = ["verify.checker", *(f"verify.checker.{path.stem}" for path in (ROOT / "verify/checker").glob("[a-z]*.py"))]
    assert found.strip() == str(["verify", *sorted(own)])


@pytest.mark.parametrize(
    "line",
    [
        "inductive --task vanilla --pe ape --vocabulary 3 --positions 3 --precision float32",
        "language 0*1 --length 3 --precision bfloat16",
    ],
)
def test_honest_certificates_of_other_tasks_are_not_doubted(line, tmp_path, capsys):
    """Their files were once called unreadable."""
    assert run(capsys, *line.split(), "--save", str(tmp_path / "saved"))[0] == 0
    code, out, _ = run(capsys, "check", str(tmp_path / "saved"))
    assert code == 0 and out.startswith("HOLDS")
    (tmp_path / "saved" / "weights.safetensors").write_bytes(b"cut")
    assert run(capsys, "check", str(tmp_path / "saved"))[0] in (1, 2)


def test_the_checker_knows_the_claims():
    assert set(fields.CLAIMS) == {claim for _, claim in CONSTRUCTIONS.values()}


def test_what_a_changed_sign_or_interval_would_do():
    """The parts that the proof rests on, against known numbers."""
    module = saved(inventory_counting.dot_sftm(T=3, L=3))[0]
    model = mathematics.Model(reading.read_weights(module), [0.0])
    assert model.sign({0: 2721, model.unit: -1001}) != 0
    for score in (0, -model.unit, -5 * model.unit):
        low, high = model.weight(score)
        exact = math.exp(score / model.unit / math.sqrt(3)) * 2.0**mathematics.BITS
        assert low <= high <= low + 16 and low / exact == pytest.approx(1, rel=1e-12)


def test_the_command(capsys, tmp_path):
    place = tmp_path / "proof"
    job = ["histogram", "--model", "bos", "--T", "4", "--L", "3", "--save", str(place)]
    for _ in range(2):  # the second run replaces the folder of the first
        assert run(capsys, *job)[0] == 0
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["certificate.json", "proof", "weights.safetensors"]
    assert run(capsys, "check", str(place))[:2] == (
        0,
        f"HOLDS  {place}/weights.safetensors: PROVED; not re-checked: seconds\n",
    )
    for file in ("weights.safetensors", "certificate.json"):
        assert run(capsys, "check", str(place / file))[0] == 0
    code, out, _ = run(capsys, "check", str(place), "--json")
    assert code == 0 and json.loads(out)["outcome"] == "HOLDS"
    certificate = place / "certificate.json"
    text = certificate.read_text()
    certificate.write_text(text.replace('"margin": 0.4', '"margin": 0.7'))
    code, out, err = run(capsys, "check", str(place))
    assert code == 1 and err == "" and "margin" in out and out.count("\n") == 1
    certificate.write_text(text[:-5])
    assert run(capsys, "check", str(place))[0] == 2
    certificate.unlink()
    code, out, err = run(capsys, "check", str(place))
    assert code == 2 and "certificate.json" in out and "no such file" in out
    for missing in (tmp_path / "nowhere", tmp_path / "nowhere.safetensors", tmp_path / "nowhere.json"):
        code, out, err = run(capsys, "check", str(missing))
        assert code == 2 and out == "" and err.count("\n") == 1


def test_another_task_is_not_checkable_and_is_not_said_to_fail(capsys, tmp_path, dot):
    folder = tmp_path / "twice"
    assert run(capsys, "contextual", "--length", "5", "--save", str(folder))[0] == 0
    saved = folder / "certificate.json"
    saved.write_text(saved.read_text().replace('"contextual counting"', '"twice"'))
    code, out, _ = run(capsys, "check", str(folder))
    assert code == 3 and out.startswith("NOT CHECKABLE") and "is none whose certificates are checked" in out
    weights, certificate = dot
    with pytest.raises(Refusal) as refusal:  # histogram weights stay histogram weights
        check(weights, json.dumps({**certificate, "task": "contextual"}).encode())
    assert refusal.value.exit_code == FAILS


def test_a_frontier_folder_is_checked_as_a_whole(capsys, tmp_path):
    assert (
        run(capsys, "frontier", "histogram", "--model", "bos+sftm", "--T", "4,5", "--L", "3", "--save", str(tmp_path))[
            0
        ]
        == 0
    )
    code, out, _ = run(capsys, "check", str(tmp_path))
    assert code == 0 and out.count("HOLDS") == 2
    worse = next(tmp_path.glob("*T5*.json"))
    worse.write_text(worse.read_text().replace('"PROVED"', '"UNKNOWN"'))
    code, out, _ = run(capsys, "check", str(tmp_path))
    assert code == 3 and out.count("HOLDS") == 1


def test_an_interrupted_save_leaves_the_old_folder(tmp_path, monkeypatch):
    place = tmp_path / "proof"
    write_whole_folder(place, {"a": b"1", "b": b"2"})
    writes = []

    def interrupted(path, data):
        writes.append(path)
        if len(writes) == 2:
            raise KeyboardInterrupt
        return len(data)

    for name in ("write_bytes", "rename"):
        writes.clear()
        with monkeypatch.context() as patch:
            original = Path.rename
            if name == "rename":
                calls = []

                def second(path, target, calls=calls, original=original):
                    calls.append(path)
                    if len(calls) == 2:
                        raise KeyboardInterrupt
                    return original(path, target)

                patch.setattr(Path, "rename", second)
            else:
                patch.setattr(Path, "write_bytes", interrupted)
            with pytest.raises(KeyboardInterrupt):
                write_whole_folder(place, {"a": b"3", "b": b"4"})
        assert {p.name: p.read_bytes() for p in place.iterdir()} == {"a": b"1", "b": b"2"}
        assert [p.name for p in tmp_path.iterdir()] == ["proof"]


@pytest.mark.parametrize("place", ["full", "file", "no/where"])
def test_a_folder_that_is_not_ours_is_left_alone(capsys, tmp_path, place):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    code, out, err = run(capsys, "histogram", "--model", "dot", "--T", "3", "--L", "2", "--save", str(tmp_path / place))
    assert code == 2 and out == "" and err.count("\n") == 1
    assert (tmp_path / "full" / "thesis.tex").exists()
