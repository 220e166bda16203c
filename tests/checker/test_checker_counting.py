"""Transformers that count, in real arithmetic: what is true is accepted, and nothing that is false."""

import hashlib
import json
import random
from unittest import mock

import pytest
import torch
from models.certificates import TRANSFORMERS, changed, honest, real, with_tables
from models.selection import every, first
from oracles.forged import falsehood
from test_checker_real import outcome

from constructions.decoder_model import Decoder, Rotation, initialised
from constructions.inductive import ape, as_bytes, load, selective, started, succession
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import counting, decoder, kinds, moved_decoder, waves
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.counting.tasks import Task
from verify.frame import decide
from verify.frame.decide import certify
from verify.tasks.inductive.task import Counting


def found(module, length=None, reading="real", **task):
    """The certificate of a model and its file."""
    weights = as_bytes(module, {})
    problem = Counting(module, Task.of(task.pop("task"), **task), length)
    return certify(problem, reading_of(reading)).about(weights), weights


LARGER = {
    "shifted": lambda: found(started(task="shifted", M=12), task="shifted", vocabulary=12),
    "shifted, float32": lambda: found(started(task="shifted", M=40), None, "float32", task="shifted", vocabulary=40),
    "shifted, bfloat16": lambda: found(
        started(task="shifted", M=3, layernorm=False), None, "bfloat16", task="shifted", vocabulary=3
    ),
    "succession, float64": lambda: found(succession(M=12), None, "float64", task="succession", vocabulary=12),
    "trained, float64": lambda: found(
        load("tests/data/inductive/vanilla_nope_l4.safetensors"), 3, "float64", task="vanilla"
    ),
    "helper": lambda: found(started(task="helper-shifted", M=5, layernorm=False), task="helper-shifted", vocabulary=5),
    "succession": lambda: found(succession(M=5), task="succession", vocabulary=5),
    "types": lambda: found(selective(K=3, C=2), 4, task="selective", types=3, max_count=2),
    "trained": lambda: found(load("tests/data/inductive/vanilla_nope_l4.safetensors"), 3, task="vanilla"),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", every(2, LARGER))
def test_what_the_prover_decides_holds(name):
    certificate, weights = LARGER[name]()
    assert certificate.verdict.value == "PROVED"
    assert outcome(weights, certificate.to_json()) == (0, "PROVED")
    larger = json.dumps(json.loads(certificate.to_json()) | {"margin": 50.0})
    assert outcome(weights, larger)[0] == 1


def test_float16_holds_by_each_error_by_itself():
    """Where balls leave it open: half of the margin is shown, no more than is true. One weight is subnormal there."""
    module = started(task="shifted", M=3, dtype="float16")
    with torch.no_grad():
        module.W_U[4, 0] += 2.0**-20
    certificate, weights = found(module, reading="float16", task="shifted", vocabulary=3)
    text = certificate.to_json()
    assert outcome(weights, text) == (0, "PROVED")
    for margin, code in ((1.9 * certificate.margin, NOT_CHECKABLE), (50.0, 1)):
        assert outcome(weights, json.dumps(json.loads(text) | {"margin": margin}))[0] == code
    with mock.patch.object(moved_decoder, "MOST_WORK", 1000):
        assert outcome(weights, text)[0] == NOT_CHECKABLE


@pytest.mark.parametrize("one", ["W_Q", "W_K"])
def test_scores_of_zero_times_what_overflows_are_no_numbers(one):
    """Queries of 0 and keys beyond float16's largest number, or the other way round: torch answers NaN."""
    module = started(task="shifted", M=3, dtype="float16")
    certificate, _ = found(module, reading="float16", task="shifted", vocabulary=3)
    with torch.no_grad():
        getattr(module.blocks[0].attention, one)[4] = 60000.0
        assert module(torch.tensor([[1, 4, 4]])).isnan().all()
    weights = as_bytes(module, {})
    said = json.loads(certificate.to_json()) | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
    assert outcome(weights, json.dumps(said))[0] == NOT_CHECKABLE


def test_logits_that_nothing_moves_are_compared():
    """Where all numbers are 0, no rounding moves a logit: the margin is refused."""
    module = started(task="shifted", M=3, dtype="float16", layernorm=False)
    certificate, _ = found(module, reading="float16", task="shifted", vocabulary=3)
    with torch.no_grad():
        for x in module.parameters():
            x.zero_()
    weights = as_bytes(module, {})
    said = json.loads(certificate.to_json()) | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
    with mock.patch.object(counting, "ComputedDecoder", side_effect=Refusal("left open", NOT_CHECKABLE)):
        assert outcome(weights, json.dumps(said))[0] == 1


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 40) for i in range(1, 201, 40))]), ids=str)
@pytest.mark.parametrize("reading", ["real", pytest.param("float32", marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", every(4, TRANSFORMERS))
def test_mutated_models_against_enumeration(name, reading, seeds):
    """An honest certificate holds; a forged proof holds only where enumeration agrees."""
    for seed in seeds:
        draw, (problem, _) = random.Random(f"{name} {seed}"), real(name)
        proof = json.loads(with_tables(problem, certify(problem, reading_of(reading))))
        for _ in range(draw.randrange(1, 3)):
            part, W = draw.choice([*problem.module.named_parameters()])
            changed(problem.module, part, tuple(draw.randrange(n) for n in W.shape), draw.choice([-1, -0.25, 0.25, 1]))
        weights = as_bytes(problem.module, {})
        certificate = certify(problem, reading_of(reading)).about(weights)
        text, verdict = with_tables(problem, certificate), certificate.verdict.value
        code, answer = outcome(weights, text)
        is_beyond = reading != "real" and code == NOT_CHECKABLE  # the prover's bounds are finer
        assert verdict == "UNKNOWN" or is_beyond or (code, answer) == (0, verdict), seed
        assert verdict == "UNKNOWN" or falsehood(weights, text) is None
        said = json.loads(text)
        for margin in (5e-324, 1e-3, 1.001 * (certificate.margin or 1)):
            forged = json.dumps((proof if proof["verdict"] == "PROVED" else said) | {
                "verdict": "PROVED", "margin": margin, "counterexample": None, "margin_scaled": 0.0,
                "weights_sha256": said["weights_sha256"],
            })  # fmt: skip
            if outcome(weights, forged)[0] == 0:
                assert verdict != "REFUTED" and falsehood(weights, forged) is None, (seed, margin)


@pytest.mark.parametrize("reading", ["real", "float32"])
def test_a_fault_in_the_prover_is_found_by_the_checker(reading):
    """A model that counts one too many, and a prover for which that is right: the checker refuses the proof."""
    module = started(task="shifted", M=5)
    with torch.no_grad():
        module.W_U.copy_(module.W_U.roll(1, 1))
    said, _ = found(module, reading=reading, task="shifted", vocabulary=5)
    assert said.verdict.value == "REFUTED"
    right = "tokens[0] + i if tokens[0] + i <= self.M"
    with (
        planted(Task, "answers", right, right.replace("+ i", "+ i + 1")),
        mock.patch.object(decide, "_compared", lambda finding, *_: finding),
    ):
        faulty, weights = found(module, reading=reading, task="shifted", vocabulary=5)
    text = faulty.to_json()
    assert faulty.verdict.value == "PROVED" and falsehood(weights, text) and outcome(weights, text)[0] == 1


def test_what_is_beyond_it_is_not_checkable():
    """Strings of every length, and sines that are neither in the file nor in the certificate."""
    placed = initialised(Decoder(vocabulary=1, d=2, classes=2, positions=3, pe="rope"), seed=1, std=1.0).eval()
    for certificate, weights in (
        found(selective(K=2, C=2, layernorm=False), task="selective", types=2, max_count=2),
        found(placed, task="first-homogeneous"),
    ):
        assert certificate.verdict.value != "UNKNOWN"
        assert outcome(weights, certificate.to_json())[0] == NOT_CHECKABLE


@pytest.mark.parametrize(
    "name", ["transformer, turned", *every(3, ["transformer, turned, wrong", "transformer, waves, wrong"])]
)
def test_tables_of_sines_are_compared(name):
    """A number that is off by its last place is said to be on trust; by more, in another shape or missing, refused."""
    weights, text = honest(name)
    assert outcome(weights, text)[0] == 0 and "tables" in kinds.check(weights, text.encode())[1]
    for table in json.loads(text)["tables"]:
        for change, code in (
            (lambda rows: rows[1].__setitem__(0, rows[1][0] * (1 + 1e-9)), 1),
            (lambda rows: rows[0].__setitem__(0, -rows[0][0]), 1),
            (lambda rows: rows.reverse(), 1),
            (lambda rows: rows.pop(), 1),
            (lambda rows: rows[0].append(0.5), 1),
            (lambda rows: rows[0].__setitem__(0, "1"), 1),
        ):
            said = json.loads(text)
            change(said["tables"][table])
            assert outcome(weights, json.dumps(said))[0] == code
        said = json.loads(text)
        del said["tables"][table]
        assert outcome(weights, json.dumps(said))[0] == 1
    for tables in ([], {}, 1.0, {"cos": []}):
        assert outcome(weights, json.dumps(json.loads(text) | {"tables": tables}))[0] == 1
    plain, other = honest("transformer")
    assert outcome(plain, json.dumps(json.loads(other) | {"tables": {}}))[0] == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_tables_are_numbers_of_their_dtype(dtype):
    """What torch stores is accepted, the sine of 355 too, below float16's normal numbers; between two, nothing is."""
    made = Rotation(355, 2, dtype)
    said = {name: getattr(made, name).double().tolist() for name in ("cos", "sin")}
    name = str(dtype).removeprefix("torch.")
    waves.tables_of(said, "rope", 355, 2, name)
    said["cos"][0][0] += 2.0**-40
    with pytest.raises(Refusal):
        waves.tables_of(said, "rope", 355, 2, name)


def test_another_turn_than_the_modules_is_found():
    """The checker with a fault in its rotation refuses what is true."""
    weights, text = honest("transformer, turned")
    assert falsehood(weights, text) is None
    for right, wrong in (
        ("-sin[i]", "sin[i]"),
        ("h * d + half + i", "h * d + d - 1 - i"),
        ("cos[i], sin[i]\n", "sin[i], sin[i]\n"),
    ):
        with planted(waves, "turns", right, wrong):
            decoder.turns, kept = waves.turns, decoder.turns
            try:
                assert outcome(weights, text)[0] == 1
            finally:
                decoder.turns = kept


def test_the_number_that_all_stands_for_is_compared():
    """Where a table of positions ends the lengths: another number, and one beside a length that is a number."""
    certificate, weights = found(ape(task="modular", N=5, m=2, positions=7), task="modular", modulus=2)
    said = json.loads(certificate.to_json())
    assert (said["verdict"], said["length"], said["longest"]) == ("PROVED", "all", 7)
    for lie, code in (({}, 0), ({"longest": 6}, 1), ({"longest": 8}, 1), ({"length": 6, "longest": 6}, 1)):
        text = json.dumps(said | lie)
        assert (outcome(weights, text)[0], falsehood(weights, text) is None) == (code, code == 0), lie
    without = {name: value for name, value in said.items() if name != "longest"}
    assert outcome(weights, json.dumps(without))[0] == 0


def test_metadata_that_lie_are_refused():
    """What the header says of a decoder decides what its numbers mean."""
    weights, text = honest("transformer")
    for right, wrong in (('\\"bos\\": false', '\\"bos\\": 0    '), ('\\"n_heads\\": 1', '\\"n_heads\\": 3')):
        assert right.encode() in weights
        assert outcome(weights.replace(right.encode(), wrong.encode()), text)[0] != 0
