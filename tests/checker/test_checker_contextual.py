"""Strings with regions in real arithmetic: what is true is accepted, and nothing that is false."""

import json
import random
from unittest import mock

import pytest
import torch
from models.selection import first
from oracles.contextual import counts as ones
from oracles.contextual import random_model, valid_strings
from oracles.forged import falsehood
from test_checker_real import outcome

from constructions.contextual.transformer import BOS, ContextualCountingTransformer, as_bytes
from constructions.contextual_counting import build
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import contextual
from verify.checker.reading import NOT_CHECKABLE
from verify.frame import decide
from verify.tasks.contextual import cells, readout
from verify.tasks.contextual.verdict import certify, domain_of


def found(module, N, **options):
    """The certificate of a model and its file."""
    return certify(module, domain_of(module, N, **options)), as_bytes(module)


LARGER = {
    "a lane per region": lambda: found(build(64, 3), 64),
    "convex": lambda: found(build(48, 4, keys="convex"), 48, regions=2),
    "other bias": lambda: found(build(40, 3, bias="]", dtype=torch.float64), 40, exactly=True),
    "zeros": lambda: found(build(40, 2, bias="0", zeros=9), 40, zeros=9),
    "no staircase": lambda: found(swapped(build(12, 2)), 11),
    "trained": lambda: found(trained(), 4),
}


def swapped(module):
    """The last class is moved out of its place, so that all pairs of lines are compared."""
    with torch.no_grad():
        module.b_out[-1] -= 9
    return module


def trained():
    """Weights that gradient steps made right again after noise."""
    module, g = build(4, 1, dtype=torch.float64), torch.Generator().manual_seed(3)
    texts = [[text for text in valid_strings(4, 1) if len(text) == n] for n in range(5)]
    indices = [[["01[]".index(x) for x in text] for text in few] for few in texts]
    batches = [torch.tensor(few, dtype=torch.long).reshape(len(few), -1) for few in indices]
    due = torch.tensor([ones(text, 1)[0] for few in texts for text in few])
    parts = [x.requires_grad_() for name, x in module.named_parameters() if name in ("W_out", "b_out", "W_2", "U_V")]
    with torch.no_grad():
        for x in parts:
            x += 0.02 * torch.randn(x.shape, generator=g, dtype=x.dtype)
    steps = torch.optim.Adam(parts, lr=0.02)
    for _ in range(100):
        logits = torch.cat(
            [module(batch.reshape(len(few), -1))[:, 0] for few, batch in zip(texts, batches, strict=True)]
        )
        steps.zero_grad()
        torch.nn.functional.cross_entropy(8 * logits, due).backward()
        steps.step()
    return module.requires_grad_(False)


@pytest.mark.parametrize("name", LARGER)
def test_what_the_prover_proves_holds(name):
    honest, weights = LARGER[name]()
    text = honest.about(weights).to_json()
    assert honest.verdict.value == "PROVED" and outcome(weights, text) == (0, "PROVED")
    assert outcome(weights, json.dumps(json.loads(text) | {"margin": 1.0}))[0] == 1


@pytest.mark.parametrize("seeds", first(1, [range(16), *(range(i, i + 50) for i in range(16, 1016, 50))]), ids=str)
def test_mutated_models_against_enumeration(seeds):
    """An honest certificate holds; a forged proof holds only where enumeration agrees."""
    held = 0
    for seed in seeds:
        module, draw = random_model(seed, 4), random.Random(seed)
        zeros, R = draw.choice([None, None, 0, 1]), draw.choice([module.R, module.R - 1])
        honest, weights = found(module, 4, zeros=zeros, regions=R)
        text, verdict = honest.about(weights).to_json(), honest.verdict.value
        assert verdict == "UNKNOWN" or outcome(weights, text) == (0, verdict), seed
        said = json.loads(text) | {"verdict": "PROVED", "counterexample": None, "tightest": None}
        said["right_lengths"] = {str(M): [4, None] for M in range(min(R, (4 - (zeros or 0)) // 2) + 1)}
        said["inputs_covered"] = str(domain_of(module, 4, zeros=zeros, regions=R).strings() * module.R)
        for margin in (5e-324, 1e-3, 0.999 * abs(honest.margin or 1), 1.001 * abs(honest.margin or 1)):
            forged = json.dumps(said | {"margin": margin})
            if outcome(weights, forged)[0] == 0:
                held += 1
                assert verdict == "PROVED" and falsehood(weights, forged) is None, (seed, margin)
    assert held


FAULTS = [
    (cells.PromptProof, "mean", "room = self.domain.N - 2 * fewest", "room = 0 * self.domain.N - 2 * 0", 213),
    (readout.LineReadout, "compare", "rivals = others + (others >= k[at, None])",
     "rivals = others[:, :1] + (others[:, :1] >= k[at, None])", 51),
    (cells.PromptProof, "cells", "if r <= fewest else 1", "if r < fewest else 1", 3),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_fault_in_the_prover_is_found_by_the_checker(number):
    """The proof with a fault is saved as it is, the run beside it left out: the checker refuses it."""
    owner, name, right, wrong, seed = FAULTS[number]
    module = random_model(seed, 4)
    honest, weights = found(module, 4)
    with planted(owner, name, right, wrong), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        faulty, _ = found(module, 4)
    text = faulty.about(weights).to_json()
    assert honest.verdict.value == "REFUTED" and outcome(weights, honest.about(weights).to_json()) == (0, "REFUTED")
    assert faulty.verdict.value == "PROVED" and falsehood(weights, text) and outcome(weights, text)[0] == 1


def test_few_strings_are_run_one_by_one():
    """Where cells show nothing, every string is run; then the margin is the least one, to the last digits."""
    honest, weights = found(build(4, 1), 4)
    text = honest.about(weights).to_json()
    with mock.patch.object(contextual.Causal, "proves", lambda *_: False):
        assert outcome(weights, text) == (0, "PROVED")
        margins = [honest.margin * (1 + i / 8) for i in range(12)]
        forged = [json.dumps(json.loads(text) | {"margin": margin}) for margin in margins]
        holds = [outcome(weights, x)[0] == 0 for x in forged]
    assert holds == [falsehood(weights, x) is None for x in forged] and {*holds} == {True, False}


@pytest.mark.parametrize("fmt", [None, "float32"])
@pytest.mark.parametrize(("N", "code"), [(4, 0), (12, NOT_CHECKABLE)])
def test_what_cells_do_not_show_of_many_strings_is_not_called_false(N, code, fmt):
    """A true margin that no cell shows: few strings are run one by one, and many are not checkable."""
    module = build(N, 1, dtype=torch.float32)
    more = {} if fmt is None else {"fmt": FORMATS[fmt]}
    proof, weights = certify(module, domain_of(module, N), **more), as_bytes(module)
    with mock.patch.object(contextual.Causal, "proves", lambda *_: False):
        assert outcome(weights, proof.about(weights).to_json())[0] == code


def test_a_margin_that_is_met_exactly_is_not_called_false():
    """Three times a third is 1, which no ball of a third shows; 2^-52 more is false."""
    module = ContextualCountingTransformer(d=1, p=1, R=1, classes=2)
    with torch.no_grad():
        module.E[BOS, 0] = module.U_V[0, 0] = 1
        module.W_out[0, 0] = 3
    honest, weights = found(module, 2, exactly=True)
    said = json.loads(honest.about(weights).to_json())
    for margin, code in ((1 - 2.0**-53, 0), (1.0, NOT_CHECKABLE), (1 + 2.0**-52, 1)):
        assert outcome(weights, json.dumps(said | {"margin": margin}))[0] == code
