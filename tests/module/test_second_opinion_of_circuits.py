"""The engine as a second opinion on contextual counting and on circuits, built and with changed weights."""

import random

import pytest
import torch
from models.circuits import inputs, mutate, random_circuit
from models.selection import first
from oracles.circuit import gate_values
from oracles.contextual import counts, margins, random_model, valid_strings
from torch import nn

from constructions.circuit_simulation import build
from constructions.circuits.circuit import decompose
from verify import certify
from verify.frame.certificate import Verdict
from verify.tasks.circuit.dtype import certify as certify_circuit
from verify.tasks.contextual.verdict import certify as certify_contextual
from verify.tasks.contextual.verdict import domain_of

LONGEST = 3


class Prompt(nn.Module):
    """What a contextual counting model says to one of its prompts."""

    def __init__(self, model, r):
        super().__init__()
        self.model, self.r = model, r

    def forward(self, t):
        return self.model(t)[:, self.r]


@pytest.mark.parametrize("seed", first(1, range(12)))
@pytest.mark.deep
def test_contextual_counting(seed):
    """Strings of one to three symbols: one is wrong only where the task's verifier refutes, and the reverse."""
    model = random_model(seed, LONGEST)
    wrong = False
    for length in range(1, LONGEST + 1):
        texts = list(valid_strings(length, 2, length))
        rows = torch.tensor([["01[]".index(c) for c in text] for text in texts])
        for r in range(model.R):
            found = certify(
                Prompt(model, r).eval(),
                inputs=rows,
                expected=lambda t, r=r: torch.tensor(
                    [counts("".join("01[]"[i] for i in row), model.R)[r] for row in t.tolist()]
                ),
            )
            assert found.verdict is not Verdict.UNKNOWN
            wrong |= found.verdict is Verdict.REFUTED
    if model.has_bos:
        wrong |= min(margins(model, "")) <= 0
    special = certify_contextual(model, domain_of(model, LONGEST, regions=2))
    assert special.verdict is (Verdict.REFUTED if wrong else Verdict.PROVED)


class Says(nn.Module):
    """A circuit transformer's next token as two logits: 1 where coordinate g exceeds 1/2."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, t):
        g = self.model(t)
        return torch.stack([torch.full_like(g, 0.5), g], -1)


@pytest.mark.parametrize("seed", first(1, range(20)))
def test_circuits(seed):
    """Every step of the chain after every input, in real arithmetic: one verdict, and no wrong step in a proof."""
    rng = random.Random(seed)
    decomposition = decompose(random_circuit(rng, 2, rng.randrange(1, 4)))
    circuit = decomposition.circuit
    model = build(circuit, s=3)
    for _ in range(seed % 3):
        mutate(model, rng)
    chains = torch.tensor(
        [gate_values([(gate.kind, gate.fan_in) for gate in circuit.gates], bits) for bits in inputs(2)]
    )
    n, steps = 2, chains.shape[1] - 2
    after = {tuple(chain[:-1]): chain[n:] for chain in chains.tolist()}
    general = certify(
        Says(model).eval(),
        inputs=chains[:, :-1],
        expected=lambda t: torch.tensor([after[tuple(row)] for row in t.tolist()]),
        position=range(n - 1, n - 1 + steps),
    )
    special = certify_circuit(model, decomposition, fmt=None)
    if Verdict.UNKNOWN not in (general.verdict, special.verdict):
        assert general.verdict is special.verdict
    assert seed % 3 or general.verdict is special.verdict is Verdict.PROVED
