"""Our decoder of one layer on more inputs than can be run, by cells: as every other module is decided."""

import pytest
import torch
from models.selection import first

from constructions.decoder import Decoder, initialised
from tests.clocks import looks
from verify.frame.certificate import Verdict
from verify.module import certify, largest, tokens

V = 6


def trained(n, seed=0, steps=300):
    model = initialised(
        Decoder(vocabulary=V, d=16, d_mlp=0, positions=n, pe="nope", layernorm=False, attention_bias=False),
        seed=seed,
        std=0.4,
    )
    optimiser, generator = torch.optim.Adam(model.parameters(), 0.03), torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(0, V, (256, n), generator=generator)
        caps = torch.randint(0, V, (256, 1), generator=generator)
        rows = torch.minimum(rows, caps)
        loss = torch.nn.functional.cross_entropy(model(rows, position=-1), rows.amax(1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.mark.deep
def test_inputs_beyond_enumeration():
    """6^20 inputs, one head: decided by cells, and a counterexample is run."""
    model = trained(20, steps=60)
    found = certify(model, inputs=tokens([V] * 20), expected=largest, budget=looks(200))
    assert found.verdict in (Verdict.PROVED, Verdict.REFUTED)
    if found.verdict is Verdict.REFUTED:
        wrong = torch.tensor([found.counterexample["input"]])
        with torch.no_grad():
            assert int(model(wrong, position=-1).argmax()) != int(wrong.amax())
    else:
        assert found.inputs_covered == V**20


def counting(n, n_heads, steepness=2.6):
    """A layer that is right about the largest of n: every head weighs tokens by e^steepness, each has its classes."""
    d_head = 2 * V // n_heads
    model = Decoder(
        vocabulary=V, d=2 * V, n_heads=n_heads, d_mlp=0, positions=n, pe="nope", layernorm=False, attention_bias=False
    )
    attention, generator = model.blocks[0].attention, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(1e-3 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator))
        model.W_E[:, :V] += torch.eye(V)
        model.W_U[V:] += torch.eye(V)
        for h in range(n_heads):
            attention.W_Q[:V, h * d_head] += 1
            attention.W_K[:V, h * d_head] += (steepness + 0.3 * h) * d_head**0.5 * torch.arange(V)
            for k, token in enumerate(range(h, V, n_heads)):
                attention.W_V[token, h * d_head + k] += 1
                attention.W_O[h * d_head + k, V + token] += 1
    return model.eval()


@pytest.mark.parametrize("n_heads", first(1, [2, 1, 3]))
def test_several_heads_beyond_enumeration(n_heads):
    """6^12 inputs are proved; a head that is not steep enough is refuted, and the module itself says so."""
    inputs = tokens([V] * 12)
    found = certify(counting(12, n_heads), inputs=inputs, expected=largest)
    assert found.verdict is Verdict.PROVED and found.inputs_covered == V**12
    with torch.no_grad():
        logits = counting(12, n_heads)(torch.tensor([found.tightest["input"]]), position=-1)[0]
    top = logits.topk(2).values
    assert found.margin <= float(top[0] - top[1]) <= 2.1 * found.margin
    wrong = certify(counting(12, n_heads, 2.0), inputs=inputs, expected=largest, budget=looks(120))
    assert wrong.verdict is Verdict.REFUTED and wrong.counterexample["predicted"] != wrong.counterexample["expected"]
    row = torch.tensor([wrong.counterexample["input"]])
    with torch.no_grad():
        assert int(counting(12, n_heads, 2.0)(row, position=-1).argmax()) == wrong.counterexample["predicted"]


@pytest.mark.parametrize("scale", [1e308, pytest.param(1e155, marks=pytest.mark.deep)])
def test_logits_beyond_float64_are_not_decided(scale):
    model = counting(12, 2)
    with torch.no_grad():
        model.W_U *= scale
        model.W_E *= scale / 1e150
    found = certify(model, inputs=tokens([V] * 12), expected=largest, budget=1.0)
    assert found.verdict is Verdict.UNKNOWN and found.reason


def test_no_time_is_no_proof():
    found = certify(counting(12, 2), inputs=tokens([V] * 12), expected=largest, budget=0.0)
    assert found.verdict is Verdict.UNKNOWN and "budget" in found.reason and found.extra["counts"]["wrong"] == "0"
