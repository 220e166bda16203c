"""verify module in 16 bits, each result rounded once: verdicts, the certificate's words, and what is refused."""

import pytest
import torch
from torch import nn

from constructions.errors import BadInput
from verify.frame.certificate import Verdict
from verify.module import certify, tokens

ONCE = {"reading": "bfloat16", "accumulate": "float32", "rounding": "once"}


class Largest(nn.Module):
    """Lines c m - c^2 / 2 of the larger token m, by a hidden layer of 100 equal neurons: all margins are 1/2."""

    def __init__(self, V=6, d=100):
        super().__init__()
        self.e, self.up, self.u = nn.Embedding(V, 1), nn.Linear(1, d), nn.Linear(d, V)
        c = torch.arange(V).float().unsqueeze(1)
        self.e.weight.data, self.up.weight.data, self.up.bias.data = c, torch.ones(d, 1), torch.zeros(d)
        self.u.weight.data, self.u.bias.data = (c / d).expand(V, d).clone(), -c[:, 0].square() / 2

    def forward(self, t):
        return self.u(torch.relu(self.up(torch.amax(self.e(t), 1))))


def task(V=6):
    return {"inputs": tokens([V, V]), "expected": lambda t: t.amax(1)}


def test_a_model_is_proved():
    found = certify(Largest().eval(), **task(), **ONCE)
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 36
    assert found.reading == "each result rounded once" and found.parameters["precision"] == "bfloat16"
    assert found.extra["decided_by"]["mean_value"] == 36
    assert any("rounded once" in line for line in found.assumptions)
    assert 0.1 < found.margin < certify(Largest().eval(), **task()).margin <= 0.5


def test_a_wrong_model_is_refuted():
    model = Largest()
    model.u.bias.data[3] -= 3.0
    found = certify(model.eval(), **task(), **ONCE)
    assert found.verdict is Verdict.REFUTED and max(found.counterexample["input"]) == 3
    assert found.extra["counts"] == {"right": "29", "wrong": "7", "undecided": "0"}


def test_plain_bfloat16_says_which_sums_are_too_long():
    found = certify(Largest().eval(), **task(), reading="bfloat16")
    assert found.verdict is Verdict.UNKNOWN and "sums of 100 terms in bfloat16" in found.reason
    assert "ends at 62 terms" in found.reason and "--accumulate float32" in found.reason


@pytest.mark.parametrize(
    "options",
    [{"reading": "bfloat16"}, {"reading": "float32", "accumulate": "float32"}, {"reading": "real"}],
)
def test_what_the_reading_needs(options):
    with pytest.raises(BadInput, match="goes with --precision bfloat16 or float16, and with --accumulate float32"):
        certify(Largest().eval(), **task(), rounding="once", **options)
    with pytest.raises(BadInput, match="rounding=twice: must be any or once"):
        certify(Largest().eval(), **task(), reading="bfloat16", accumulate="float32", rounding="twice")
