"""Encoders that know positions: what is true is accepted, in real arithmetic and in a dtype, and nothing false."""

import json
import random
from unittest import mock

import pytest
import torch
from models.selection import first
from oracles.contextual import counts, valid_strings
from oracles.forged import falsehood
from test_checker_dtypes import sha
from test_checker_real import outcome

from constructions.contextual import bidirectional, positional
from constructions.contextual_positions import build as before_and_after
from constructions.contextual_with_positions import build as placed
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import places
from verify.checker.any_order import MATRIX_PRODUCTS
from verify.checker.reading import NOT_CHECKABLE
from verify.frame import decide
from verify.frame.decide import certify
from verify.tasks.contextual.bidirectional.proof import StringProof
from verify.tasks.contextual.bidirectional.task import Bidirectional
from verify.tasks.contextual.positional.proof import PositionalProof
from verify.tasks.contextual.positional.task import Positional

SMALL = {
    "ape": lambda: placed(3, 1, "ape"),
    "rope": lambda: placed(3, 1, "rope", has_mlp=True),
    "alibi": lambda: placed(4, 1, "alibi"),
    "before and after": lambda: before_and_after(3, 1),
}
LARGER = {
    "ape": lambda: placed(12, 2, "ape"),
    "before and after": lambda: before_and_after(6, 2),
    "rope": lambda: placed(9, 2, "rope", has_mlp=True, dtype=torch.float32),
    "alibi": lambda: placed(16, 2, "alibi"),
    "trained": lambda: trained(placed(4, 1, "rope", has_mlp=True)),
    "trained, before and after": lambda: trained(before_and_after(4, 1), ("W_out", "b_out"), 0.2, 150, 64),
}


def found(module, precision="real", length=None):
    """The certificate of a model and its file."""
    is_causal = hasattr(module, "slope")
    problem = (Positional if is_causal else Bidirectional).of(module, length=length)
    weights = (positional if is_causal else bidirectional).as_bytes(module)
    return certify(problem, reading_of(precision)).about(weights), weights


def trained(module, names=("W_out", "b_out", "W_2", "U_V"), noise=0.01, count=60, scale=8):
    """Weights that gradient steps made right again after noise; positions of 2^32 leave room for it in the readout."""
    g = torch.Generator().manual_seed(3)
    texts = [text for text in valid_strings(4, 1) if text]
    parts = [x.requires_grad_() for name, x in module.named_parameters() if name in names]
    with torch.no_grad():
        for x in parts:
            x += noise * torch.randn(x.shape, generator=g, dtype=x.dtype)
    steps, due = torch.optim.Adam(parts, lr=0.01), torch.tensor([counts(text, 1)[0] for text in texts])
    for _ in range(count):
        logits = torch.stack([module(tokens(text))[0] for text in texts])
        steps.zero_grad()
        torch.nn.functional.cross_entropy(scale * logits, due).backward()
        steps.step()
    return module.requires_grad_(False)


def tokens(text):
    return torch.tensor(["01[]".index(x) for x in text], dtype=torch.long)


@pytest.mark.parametrize("precision", ["real", "float64"])
@pytest.mark.parametrize("name", first(1, LARGER))
def test_what_the_prover_proves_holds(name, precision):
    honest, weights = found(LARGER[name](), precision)
    text = honest.to_json()
    assert honest.verdict.value == "PROVED" and outcome(weights, text) == (0, "PROVED")
    more = json.loads(text) | {"margin": 3 * honest.margin}
    assert outcome(weights, json.dumps(more))[0] in (1, NOT_CHECKABLE)


def mutated(name, draw):
    """A small model with one to three numbers moved."""
    module = SMALL[name]()
    with torch.no_grad():
        for _ in range(draw.randrange(1, 4)):
            W = draw.choice([*module.parameters()]).view(-1)
            W[draw.randrange(len(W))] += draw.choice([-2, -0.5, -0.25, -0.125, -0.01, 0.01, 0.125, 0.25, 0.5, 2])
    return module


@pytest.mark.parametrize("seeds", first(1, [range(1), *(range(i, i + 25) for i in range(0, 300, 25))]), ids=str)
@pytest.mark.parametrize("name", first(2, SMALL))
def test_mutated_models_against_enumeration(name, seeds):
    """An honest certificate holds; a forged proof holds only where enumeration agrees, and torch in a dtype."""
    held = {"real": 0, "float32": 0, "bfloat16": 0}
    for seed in seeds:
        module = mutated(name, random.Random(f"{name} {seed}"))
        honest, weights = found(module)
        code, answer = outcome(weights, honest.to_json())
        verdict = honest.verdict.value
        assert verdict == "UNKNOWN" or (code, answer) == (0, verdict) or code == NOT_CHECKABLE, (seed, answer)
        for precision in ("real", "float32", "bfloat16"):
            said = forged_proof(name, precision) | {"weights_sha256": sha(weights)}
            said["parameters"] |= json.loads(honest.to_json())["parameters"]
            for margin in (5e-324, 1e-3, 0.999 * abs(honest.margin or 1), 1.001 * abs(honest.margin or 1)):
                forged = json.dumps(said | {"margin": margin})
                if outcome(weights, forged)[0] == 0:
                    held[precision] += 1
                    assert falsehood(weights, forged) is None, (seed, precision, margin)
                    assert precision == "real" or all_right(module, precision), (seed, precision)
    assert len(seeds) == 1 or held["real"] and held["float32"]


def forged_proof(name, precision):
    """What a proof about a small model says in a format."""
    said = json.loads(found(SMALL[name](), "real" if precision == "real" else "float64")[0].to_json())
    if precision != "real":
        said["parameters"]["precision"] = precision
        said["assumptions"] = [x.replace("float64", precision) for x in said["assumptions"]]
    if precision == "float32":
        said["assumptions"].insert(2, MATRIX_PRODUCTS["float32"])
    return said


def all_right(module, precision):
    """Whether the module in a dtype is right on all its strings."""
    module = module.to(getattr(torch, precision))
    N = len(module.positions) - 1
    try:
        return all(module(tokens(text)).argmax(-1).tolist() == counts(text, 1) for text in valid_strings(N, 1))
    finally:
        module.double()


OTHERS = "weight = (self.N - k) * high[others].max() * INFLATION", "weight = 0.0 * k"
FAULTS = [
    ("ape", 144, StringProof, "_outputs", *OTHERS),
    ("rope", 0, PositionalProof, "decoded", "z = Ball.between(low, high)", "z = Ball.between(high, high)"),
    ("before and after", 26, StringProof, "_outputs", *OTHERS),
]


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_fault_in_the_prover_is_found_by_the_checker(number):
    """The proof with a fault is saved as it is, the run beside it left out: the checker refuses it."""
    name, seed, *fault = FAULTS[number]
    module = mutated(name, random.Random(f"{name} {seed}"))
    honest, weights = found(module)
    with planted(*fault), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        faulty, _ = found(module)
    text = faulty.to_json()
    assert honest.verdict.value == "REFUTED" and outcome(weights, honest.to_json()) == (0, "REFUTED")
    assert faulty.verdict.value == "PROVED" and falsehood(weights, text) and outcome(weights, text)[0] == 1


def lowest(costs, row, N, R):
    """The least cost of a string with this token there, by the delimiters up to it, string by string."""
    found = {}
    for text in valid_strings(N, R):
        rows = [(4, 0), *(("01[]".index(x), j) for j, x in enumerate(text, 1))]
        if row in rows:
            m = sum(x in "[]" for x in text[: row[1]])
            cost = sum(costs.get(x, 0) for x in rows)
            found[m] = min(found.get(m, cost), cost)
    return found


PLACES_FAULTS = [
    ("_moves", "OPEN + m % 2", "OPEN"),
    ("_moves", "costs.get((t, place), 0)", "costs.get((t, place), 9)"),
    ("_stepped", "min(found.get(m_next, x + cost), x + cost)", "x + cost"),
]


@pytest.mark.parametrize("fault", [None, *PLACES_FAULTS], ids=lambda x: x and x[1])
def test_least_costs_are_those_of_all_strings(fault):
    draw, N, R = random.Random(5), 4, 1
    of = places.Places(N, 2 * R + 1)
    costs = {row: draw.randrange(-9, 10) for row in of.rows}
    causal = {row: cost for row, cost in costs.items() if row[1] <= 2}

    def agree():
        given = [(costs, row) for row in of.rows] + [(causal, row) for row in of.rows if row[1] == 2]
        return all(of.least(row, some) == lowest(some, row, N, R) for some, row in given)

    if fault is None:
        assert agree()
        return
    with planted(places.Places, *fault):
        assert not agree()
