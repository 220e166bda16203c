"""Parity, addition modulo P and Count01 in real arithmetic: what is true is accepted, and nothing that is false."""

import json
import random
from unittest import mock

import pytest
import torch
from models.certificates import attending, changed, real, several_heads, undecided_parity
from models.selection import every, first
from oracles.forged import falsehood

from constructions import count01
from constructions.adder.digits import Digits
from constructions.adder.transformer import to_bytes
from constructions.addition import lookahead, one_head, two_heads, two_layers
from constructions.modular import clock, pizza, staircase
from constructions.parity import as_bytes, sawtooth
from tests.planted import planted
from verify.checker import kinds
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.frame import decide
from verify.frame.decide import certify
from verify.tasks.addition import induction, readout
from verify.tasks.addition.modular import proof as modular_proof
from verify.tasks.addition.modular import task as modular_task
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.task import DigitAddition
from verify.tasks.count01 import real as count01_real
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01
from verify.tasks.parity import proof as parity_proof
from verify.tasks.parity.task import Parity


def parity(module):
    return Parity(module), as_bytes(module)


def modular(module):
    P = module.classes
    return ModularAddition(module, P), to_bytes(module, {"task": "modular", "P": P})


def counting(module, *bounds, labels="majority-ones"):
    return Count01.of(module, labels, PromptDomain(*bounds)), count01.as_bytes(module)


def adding(module, n, B):
    return DigitAddition(module, Digits(n, B)), to_bytes(module, {"task": "addition"})


def outcome(weights, text):
    try:
        return 0, kinds.check(weights, text.encode())[0]
    except Refusal as refusal:
        return refusal.exit_code, str(refusal)


LARGER = {
    "parity": lambda: parity(sawtooth(T=8, L=12)),
    "staircase": lambda: modular(staircase(P=113)),
    "clock": lambda: modular(clock(P=23, frequencies=(1, 3, 7))),
    "pizza": lambda: modular(pizza(P=23, frequencies=(1, 2), m=7)),
    "addition": lambda: adding(one_head(n=4, B=10), 4, 10),
    "addition, two heads": lambda: adding(two_heads(n=3, B=6, dtype=torch.float32), 3, 6),
    "addition, lookahead": lambda: adding(lookahead(2, n=2, B=8), 2, 8),
    "addition, two layers": lambda: adding(two_layers(n=5, B=10, dtype=torch.float32), 5, 10),
    "count01": lambda: counting(count01.documents(10)),
    "count01, long": lambda: counting(count01.documents(10, dtype=torch.float32), None, 9, 40),
    "count01, no skip": lambda: counting(count01.documents(10, skip=False), 2, 0),
}


@pytest.mark.parametrize("name", every(6, LARGER))
def test_what_the_prover_proves_holds(name):
    problem, weights = LARGER[name]()
    found = certify(problem).about(weights)
    assert found.verdict.value == "PROVED" and outcome(weights, found.to_json()) == (0, "PROVED")


MUTATED = {
    "parity": lambda: parity(sawtooth(T=3, L=3)),
    "parity, undecided": lambda: parity(undecided_parity()),
    "staircase": lambda: modular(staircase(P=4)),
    "pizza": lambda: modular(attending(pizza(P=5, frequencies=(1,), m=5))),
    "addition": lambda: adding(one_head(n=1, B=3), 1, 3),
    "addition, two heads": lambda: adding(two_heads(n=2, B=2), 2, 2),
    "addition, two layers": lambda: adding(two_layers(n=2, B=2), 2, 2),
    "count01": lambda: counting(count01.documents(4), 3, 2),
    "count01, uniform": lambda: counting(count01.uniform(), None, 3),
    "count01, heads": lambda: counting(several_heads(), 3, 2),
}


def mutated(problem, draw):
    """One to three numbers of the model moved; the file's bytes with them."""
    module = getattr(problem, "module", None) or problem.model
    with torch.no_grad():
        for _ in range(draw.randrange(1, 4)):
            W = draw.choice([W for W in module.parameters() if W.numel()])
            place = tuple(draw.randrange(n) for n in W.shape)
            W[place] += draw.choice([-2, -1, -0.5, -0.25, -0.125, 0.125, 0.25, 0.5, 1, 2])
    return file_of(problem)


def file_of(problem):
    """The weights as they are now."""
    if isinstance(problem, ModularAddition):
        return modular(problem.model)[1]
    if isinstance(problem, DigitAddition):
        return to_bytes(problem.model, {"task": "addition"})
    return (as_bytes if isinstance(problem, Parity) else count01.as_bytes)(problem.module)


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 60) for i in range(0, 600, 60))]), ids=str)
@pytest.mark.parametrize("name", every(2, MUTATED))
def test_mutated_models_against_enumeration(name, seeds):
    """An honest certificate holds or is beyond the checker; a forged proof holds only where enumeration agrees."""
    for seed in seeds:
        draw = random.Random(f"{name} {seed}")
        problem, weights = MUTATED[name]()
        honest = json.loads(certify(problem).about(weights).to_json())
        moved = mutated(problem, draw)
        found = certify(problem).about(moved)
        code, answer = outcome(moved, found.to_json())
        if found.verdict.value != "UNKNOWN":
            assert (code, answer) == (0, found.verdict.value) or code == NOT_CHECKABLE, (seed, answer)
            assert falsehood(moved, found.to_json()) is None
        forged = honest | {"weights_sha256": json.loads(found.to_json())["weights_sha256"]}
        key = "margin_scaled" if forged["margin"] is None else "margin"
        for factor in (1e-9, 0.5, 0.999, 1.001):
            forged[key] = factor * (found.margin if found.verdict.value == "PROVED" and found.margin else honest[key])
            if "margin" in (forged["tightest"] or {}):
                forged["tightest"]["margin"] = forged[key]
            text = json.dumps(forged)
            if outcome(moved, text)[0] == 0:
                assert falsehood(moved, text) is None, (seed, factor)


def test_a_margin_beyond_the_true_one_is_refused():
    """The largest margin that holds is the true one, to a part in a million."""
    for name, exact in (("staircase", 0.5), ("parity", 1.0), ("pizza of attention", None)):
        problem, weights = real(name)
        said = json.loads(certify(problem).about(weights).to_json())
        for factor in (1, 1 + 1e-6):
            said["margin"] = (exact or said["margin"]) * factor
            if "margin" in said["tightest"]:
                said["tightest"]["margin"] = said["margin"]
            assert (outcome(weights, json.dumps(said))[0] == 0) == (factor == 1)


FAULTS = [
    (parity_proof, "margins", "np.where(k % 2 == 1, difference.lower", "np.where(k % 2 == 1, difference.upper",
     "parity, undecided", "b_2", 1, -0.5),
    (parity_proof, "margins", "stored.b_2[1:2] - stored.b_2[0:1]", "stored.b_2[1:2]", "parity", "b_2", 0, 1.0),
    (parity_proof, "margins", "Counts(L - k, is_full=True)", "Counts(0 * k, is_full=True)",
     "parity, undecided", "b_2", 1, 0.0),
    (modular_task, "by_sums", "margin = min(margins)", "margin = margins[0]", "staircase", "b_out", 3, 0.75),
    (modular_task, "pair_by_pair", "margins.lower.min(1)", "margins.lower.max(1)", "pizza", "b_out", 1, 0.0),
    (modular_proof, "margins_of_pairs", "[:, None] - logits", "[:, None] + logits - logits",
     "pizza", "b_out", 1, 0.25),
    (readout.Readout, "least_margin", "if c != right", "if c not in (right, right + 1) or c > right == 0",
     "addition", "b_out", 2, 1.0),
    (induction, "_outputs", '{"K": 0, "P": carry, "G": 1}', '{"K": 0, "P": 0, "G": 1}',
     "addition, two layers", "layers.1.W_K", (0, 2, 4), -1.0),
    (count01_real, "vertices", "[(0, 0), (0, A - step), (A - step, 0)]", "[(0, 0)]", "count01", "b_out", 5, 0.0),
    (count01_real, "rays", "yield from ((1, 1, 0), side.away)", "yield from ()",
     "count01, uniform", "b_out", 5, 0.0625),
    (count01_real, "forms", "if rival == cell.expected:", "if rival in (cell.expected, FOUR, FIVE):",
     "count01", "b_out", 5, 1.0),
]  # fmt: skip


@pytest.mark.parametrize("number", every(3, range(len(FAULTS))))
def test_a_fault_in_the_prover_is_found_by_the_checker(number):
    """The proof with a fault is saved as it is, the run beside it left out: the checker refuses it."""
    owner, name, right, wrong, model, parameter, place, by = FAULTS[number]
    problem, _ = MUTATED[model]()
    module = changed(getattr(problem, "module", None) or problem.model, parameter, place, by)
    weights = file_of(problem)
    honest = certify(problem).about(weights)
    with planted(owner, name, right, wrong), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        found = certify(problem).about(weights)
    assert honest.verdict.value == "UNKNOWN" or outcome(weights, honest.to_json()) == (0, honest.verdict.value)
    assert found.verdict.value == "PROVED" and found.margin != honest.margin
    assert falsehood(weights, found.to_json()) and outcome(weights, found.to_json())[0] == 1, module
