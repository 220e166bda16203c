"""A gate that balls cannot decide is UNKNOWN, the last one as any other; verdicts against hundreds of digits."""

from __future__ import annotations

import copy
import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from models.circuits import inputs, mutate, random_circuit
from models.selection import first
from oracles.circuit import gate_values
from oracles.circuit_machine import LooseMachine
from oracles.circuit_real import next_tokens as next_real_tokens

from constructions.circuit_simulation import build
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.model_arrays import module_of
from tests.clocks import looks
from tests.planted import planted
from verify.arithmetic.formats import FORMATS, format_named
from verify.frame.certificate import Verdict
from verify.frame.decide import BUG
from verify.tasks.circuit import dtype
from verify.tasks.circuit.dtype import certify
from verify.tasks.circuit.forward import stored_weights
from verify.tasks.circuit.proof import certify as bits_certify
from verify.tasks.circuit.proof import smallest_bits
from verify.tasks.circuit.task import CircuitProblem

NOT = decompose(Circuit("not", ("x", "y"), (Gate("not", (0,), "z"),), (("z", 2),)))
KERNELS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
COARSE = ("float64", "float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2", "p4", "p6", "p14")


def at_one_half(model):
    """Its z = NOT x is 1/2 or 3/2 before what leaks: balls cannot say on which side."""
    model.state_dict()["layers.1.b_2"][model.lanes.g] = 0.5
    return model


def with_large_scores(model):
    """No ball bounds a score of 2^110."""
    model.state_dict()["layers.0.W_Q"].mul_(2.0**110)
    return model


@pytest.mark.parametrize("reading", ["real", "float32", "bits"])
def test_a_run_that_contradicts_a_proof_refutes_nothing(reading):
    """Every step is proved, and the run beside says 1 for 0: one of the two is a bug, and nobody knows which."""
    model, fault = build(NOT.circuit, s=8), planted(dtype._RoundedProof, "_run", "tokens_of(g)", "1 - tokens_of(g)")
    certified = partial(certify, model, NOT, fmt=FORMATS.get(reading), runs=4)
    if reading == "bits":
        fault = planted(CircuitProblem, "_g_of", "return passed", "return (1 - passed[0], passed[1])")
        certified = partial(bits_certify, model, NOT, runs=4)
    assert certified().verdict is Verdict.PROVED
    with fault:
        certificate = certified()
    assert certificate.verdict is Verdict.UNKNOWN and certificate.counterexample is None
    assert certificate.reason == f"everything is proved right, and the module is wrong on 00: {BUG}"
    assert certificate.inputs_covered == 0 and certificate.extra["forward_runs"]["inputs"] == 0


@pytest.mark.parametrize("s", [3, 8, 12])
@pytest.mark.parametrize("change", [at_one_half, with_large_scores])
def test_a_last_gate_that_balls_do_not_decide_is_unknown(change, s):
    certificate = certify(change(build(NOT.circuit, s=s)), NOT, fmt=None)
    assert certificate.verdict is Verdict.UNKNOWN and certificate.counterexample is None
    assert "surely" in certificate.reason


@pytest.mark.parametrize(("first", "second", "verdict"), [(0.5, -1.0, "UNKNOWN"), (1.0, 0.5, "REFUTED")])
def test_only_a_wrong_token_before_all_undecided_ones_refutes(first, second, verdict):
    """What is added to g at the two steps: 1/2 leaves NOT x open for x = 1, -1 makes AND wrong for 11, 1 makes NOT."""
    gates = (Gate("not", (0,), "a"), Gate("and", (0, 1), "b"))
    pair = decompose(Circuit("pair", ("x", "y"), gates, (("a", 2), ("b", 3))))
    model = build(pair.circuit, s=8)
    model.state_dict()["P"][1:, model.lanes.g] = torch.tensor([first, second])
    certificate = certify(model, pair, fmt=None)
    assert certificate.verdict.value == verdict
    if verdict == "REFUTED":
        assert certificate.counterexample["gate"] == "a" and certificate.counterexample["computed"] == 1


def test_fewest_bits_do_not_count_the_undecided_as_refuted():
    def decide(model, decomposition, **options):
        model = module_of(model)
        return certify(at_one_half(model) if model.s < 4 else model, decomposition, fmt=None, **options)

    model, certificate = smallest_bits(NOT, decide=decide)
    verdicts = [entry["verdict"] for entry in certificate.extra["smaller_bits"]]
    assert model.s == 4 and verdicts == ["REFUTED", "REFUTED", "UNKNOWN"]
    assert certificate.extra["smallest_bits"] is None


def test_fewest_bits_are_decided_once_each_with_the_runs_beside():
    asked = []

    def decide(model, decomposition, **options):
        asked.append(model.s)
        return certify(model, decomposition, fmt=None, **options)

    model, certificate = smallest_bits(NOT, runs=1, decide=decide)
    assert asked == list(range(1, model.s + 1)) and certificate.verdict.value == "PROVED"
    assert certificate.extra["forward_runs"] == {"inputs": 4, "all": True, "run": "real arithmetic"}


def test_fewest_bits_that_time_did_not_allow_are_open():
    """However early the clock ends the search: never the refutation of fewer bits in place of a verdict."""
    nand = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
    found = [smallest_bits(nand, budget=looks(number))[1] for number in range(1, 40, 2)]
    told = {(certificate.verdict.value, certificate.parameters["s"]) for certificate in found}
    assert told == {("PROVED", 2), ("UNKNOWN", 1), ("UNKNOWN", 2)}
    assert any("no more than 1 bits had been looked at" in (certificate.reason or "") for certificate in found)


def attacked(rng):
    """A small circuit and its transformer: mutated, scaled, at one half, or rough."""
    decomposition = decompose(random_circuit(rng, rng.randrange(1, 4), rng.randrange(1, 4)))
    model = build(decomposition.circuit, s=rng.choice([1, 1, 2, 2, 3, 4]), as_printed=rng.random() < 0.1)
    state = model.state_dict()
    for _ in range(rng.choice([0, 1, 1, 2])):
        mutate(model, rng)
    kind = rng.choice(["plain", "half", "scaled", "rough"])
    if kind == "half":
        state[f"layers.{rng.randrange(2)}.b_2"][3] = rng.choice([0.5, 0.5, 0.25, -0.5, 0.5 - 2**-20])
    if kind == "scaled":
        state[rng.choice(sorted(state))] *= 2.0 ** rng.choice([110, -110, 50, -70, 3, -3, 1])
    for weights in state.values() if kind == "rough" else ():
        weights *= 1 + 0.02 * torch.from_numpy(np.random.default_rng(rng.randrange(10**6)).normal(size=weights.shape))
    return decomposition, model


def first_wrong(model, gates, bits):
    """The first wrong node and its token in real arithmetic, None where all are right."""
    due = gate_values(gates, bits)
    said = next_real_tokens(model.state_dict(), due[:-1])
    return next(((node, said[node - 1]) for node in range(model.n, len(due)) if said[node - 1] != due[node]), None)


def judged_in_real_arithmetic(seed):
    """The verdict; an AssertionError where hundreds of digits say otherwise."""
    decomposition, model = attacked(random.Random(f"real {seed}"))
    certificate = certify(model, decomposition, fmt=None)
    gates = [(gate.kind, gate.fan_in) for gate in decomposition.circuit.gates]
    if certificate.verdict is Verdict.PROVED:
        assert all(first_wrong(model, gates, bits) is None for bits in inputs(model.n)), seed
    if certificate.verdict is Verdict.REFUTED:
        example = certificate.counterexample
        node, token = first_wrong(model, gates, [int(bit) for bit in example["input"]])
        assert (node, token) == (model.n + example["step"] - 1, example["computed"]), seed
        assert example["expected"] == 1 - token
    return certificate.verdict


def judged_in_a_format(seed):
    """The verdict; an AssertionError where a loose run, or torch, says otherwise."""
    rng = random.Random(f"format {seed}")
    decomposition, model = attacked(rng)
    name = rng.choice(COARSE)
    fmt = format_named(name)
    accumulate = FORMATS["float32"] if fmt.p < 14 and rng.random() < 0.4 else None
    certificate = certify(model, decomposition, fmt=fmt, accumulate=accumulate)
    gates = [(gate.kind, gate.fan_in) for gate in decomposition.circuit.gates]
    plain = {key: weights.tolist() for key, weights in stored_weights(model, fmt).items()}

    def said(due, drift):
        machine = LooseMachine(fmt, accumulate or fmt, rng, drift)
        return [int(g > 0.5) for g in machine.readouts(plain, due[:-1])]

    if certificate.verdict is Verdict.PROVED:
        for bits in inputs(model.n):
            due = gate_values(gates, bits)
            assert all(said(due, drift)[model.n - 1 :] == due[model.n :] for drift in (1, -1)), seed
    if certificate.verdict is Verdict.REFUTED:
        example = certificate.counterexample
        due = gate_values(gates, [int(bit) for bit in example["input"]])
        node = model.n + example["step"] - 1
        assert (example["expected"], example["computed"]) == (due[node], 1 - due[node]), seed
        if example["run"].startswith("torch"):
            g = copy.deepcopy(model).to(KERNELS[name])(torch.tensor([due[:-1]]))[0, node - 1]
            assert int(g > 0.5) == example["computed"], seed
        assert any(said(due, rng.choice([0, 0, 1, -1]))[node - 1] == example["computed"] for _ in range(400)), seed
    return certificate.verdict


@pytest.mark.parametrize("seeds", first(1, [range(10), range(10, 30)]))
@pytest.mark.parametrize("judged", [judged_in_real_arithmetic, judged_in_a_format])
def test_verdicts_of_attacked_models(judged, seeds):
    seen = Counter(judged(seed) for seed in seeds)
    assert seen[Verdict.PROVED] and seen[Verdict.REFUTED] and (seen[Verdict.UNKNOWN] or len(seeds) < 20)


@pytest.mark.deep
@pytest.mark.parametrize("judged", [judged_in_real_arithmetic, judged_in_a_format])
def test_verdicts_of_attacked_models_at_length(judged):
    assert len({judged(f"deep {seed}") for seed in range(1000)}) == 3


def test_an_undecided_token_taken_for_a_wrong_one_is_caught(monkeypatch):
    monkeypatch.setattr(dtype, "UNDECIDED", None)
    with pytest.raises((AssertionError, TypeError)):
        for seed in range(30):
            judged_in_real_arithmetic(seed)
