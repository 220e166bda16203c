"""verify module in 16 bits, each result rounded once: verdicts, the certificate's words, and what is refused."""

import pytest
import torch
from torch import nn

from constructions.errors import BadInput
from verify.frame.certificate import Verdict
from verify.module import certify, tokens

ONCE = {"reading": "bfloat16", "accumulate": "float32", "rounding": "once"}


class Largest(nn.Module):
    """Logits of the larger of two tokens, by a hidden layer with a margin that bfloat16 keeps."""

    def __init__(self, V=6, d=100):
        super().__init__()
        torch.manual_seed(0)
        self.e, self.up, self.u = nn.Embedding(V, d), nn.Linear(d, d), nn.Linear(d, V, bias=False)
        self.e.weight.data = torch.relu(torch.arange(d)[None, :] / d * V - torch.arange(V)[:, None]).clamp(max=1)
        self.up.weight.data = torch.eye(d) * 0.75
        self.up.bias.data.fill_(0.0)
        c = torch.arange(V).float()
        self.c = nn.Parameter(-c * c / 2 + 0.3 * c)

    def forward(self, t):
        largest = torch.amax(self.value(t), 1)
        return (
            torch.relu(self.up(largest.unsqueeze(1).expand(-1, 100) / 100)).sum(1, keepdim=True)
            / 0.75
            * torch.arange(6).to(self.c.dtype)
            + self.c
        )

    def value(self, t):
        return 6 - self.e(t).sum(2) * 6 / 100


def task(V=6):
    return {"inputs": tokens([V, V]), "expected": lambda t: t.amax(1)}


def test_a_model_is_proved():
    found = certify(Largest().eval(), **task(), **ONCE)
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 36
    assert found.reading == "each result rounded once" and found.parameters["precision"] == "bfloat16"
    assert found.extra["decided_by"]["mean_value"] == 36
    assert any("rounded once" in line for line in found.assumptions)
    assert found.margin < certify(Largest().eval(), **task()).margin


def test_a_wrong_model_is_refuted():
    model = Largest()
    model.c.data[3] -= 3.0
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
