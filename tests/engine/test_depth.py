"""How far radii stay small: deep decoders in real arithmetic, long recurrences in a dtype."""

import pytest
import torch
from torch import nn

from constructions.decoder import Decoder, initialised
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.engine.run import enclose
from verify.frame.certificate import Verdict
from verify.module import certify, tokens


def radius(model, has_norms):
    strings = torch.randint(0, 16, (16, 8), generator=torch.Generator().manual_seed(0))
    graph = capture(model.eval(), 8)
    run = enclose(graph, Arithmetic(has_norms=has_norms), lambda out, t, a: (out.radius.amax(),))
    return float(run(strings, strings)[0].max())


@pytest.mark.deep
def test_four_layers_need_the_l2_norm():
    """A pre-LN decoder of four layers, d = 64: componentwise radii say nothing, l2 ones are below 1e-8."""
    model = initialised(Decoder(vocabulary=16, d=64, n_heads=4, n_layers=4, positions=8), seed=0)
    assert radius(model, has_norms=False) > 1
    assert radius(model, has_norms=True) <= 1e-8


class Parity(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(2, 8), nn.LSTM(8, 24, batch_first=True)
        self.out = nn.Linear(24, 2)

    def forward(self, t):
        return self.out(self.lstm(self.embed(t))[0][:, -1])


@pytest.mark.deep
def test_an_lstm_on_all_strings_of_twelve_bits():
    torch.manual_seed(0)
    model, generator = Parity(), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(1500):
        n = int(torch.randint(1, 13, (), generator=generator))
        strings = torch.randint(0, 2, (128, n), generator=generator)
        loss = nn.functional.cross_entropy(model(strings), strings.sum(1) % 2)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    inputs = tokens([2] * 12)
    for reading in ("real", "float32"):
        found = certify(model.eval(), inputs=inputs, expected=lambda t: t.sum(1) % 2, reading=reading)
        assert found.verdict is Verdict.PROVED and found.inputs_covered == 4096
    short = certify(model, inputs=inputs, expected=lambda t: t.sum(1) % 2, reading="bfloat16")
    assert short.verdict is Verdict.UNKNOWN and short.extra["counts"]["undecided"] == "4096"
