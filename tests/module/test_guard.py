"""The run beside the proof: a planted fault in a rule, or in a task's proof, ends it as a bug, with the operation."""

import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from models.grokked import hats
from models.selection import every, first
from torch import nn

from tests.models.doors import last_token
from verify.arithmetic.margins import OneRun
from verify.engine import guard
from verify.engine.balls import Ball
from verify.engine.one_layer.layer import OneLayer
from verify.engine.rules import RULES
from verify.frame import decide
from verify.frame.certificate import Verdict
from verify.frame.decide import BUG
from verify.module import Automaton, tokens
from verify.module import certify as certify_module
from verify.module.problem import ModuleProblem
from verify.tasks.addition.modular.grokking import problem_of


class Small(nn.Module):
    """A layer of each kind, right about the first token."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.E = nn.Parameter(torch.randn(4, 6, generator=generator, dtype=torch.float64).to(dtype))
        self.norm = nn.LayerNorm(6, dtype=dtype)
        self.inner = nn.Linear(6, 6, dtype=dtype)
        with torch.no_grad():
            self.inner.weight.copy_(torch.randn(6, 6, generator=generator, dtype=torch.float64))
            self.inner.bias.zero_()

    def forward(self, tokens):
        x = self.norm(self.E[tokens])
        x = x + torch.softmax(x @ x.transpose(-2, -1), -1) @ torch.tanh(self.inner(x))
        return torch.relu(x) @ self.E.T + 9 * nn.functional.one_hot(tokens, 4).to(x.dtype)


def decided(reading="real", dtype=torch.float64):
    module = Small(dtype).eval()
    return certify_module(module, inputs=tokens([4, 4]), expected=lambda t: t[:, 1], reading=reading)


def moved(rule):
    """A rule whose midpoints are off by a hundredth, and whose radii do not know it."""

    def wrong(at, *args, **options):
        out = rule(at, *args, **options)
        if isinstance(out, tuple):
            return (Ball(out[0].mid * 1.01 + 0.01, out[0].rad), *out[1:])
        return Ball(out.mid * 1.01 + 0.01, out.rad)

    return wrong


def planted_in(name):
    return mock.patch.dict(RULES, {name: moved(RULES[name])})


FAULTS = ["aten.tanh.default", "aten.linear.default", "aten._softmax.default", "aten.relu.default"]


@pytest.mark.parametrize(
    "reading, dtype", first(2, [("real", torch.float64), ("real", torch.float32), ("float64", torch.float64)])
)
def test_a_right_proof_stands(reading, dtype):
    assert decided(reading, dtype).verdict is Verdict.PROVED


READINGS = ("real", "float64")
BY_TURNS = [(name, READINGS[(i + j) % 2]) for i, name in enumerate(FAULTS) for j in range(2)]


@pytest.mark.parametrize(("name", "reading"), every(4, BY_TURNS))
def test_a_planted_fault_in_a_rule_ends_the_proof(name, reading):
    with planted_in(name):
        found = decided(reading)
    assert found.verdict is Verdict.UNKNOWN and BUG in found.reason and name in found.reason


def test_nothing_is_said_where_no_bounds_are():
    """Overflow and NaN leave margins unbounded, and a run of them is no bug."""
    module = Small().eval()
    with torch.no_grad():
        module.E.mul_(1e200)
    found = certify_module(module, inputs=tokens([4, 4]), expected=lambda t: t[:, 1], budget=0.1)
    assert BUG not in (found.reason or "")


def test_a_run_that_overflows_is_no_bug_where_reals_are_decided():
    """The scores of an adder's numbers overflow in float64, so that its run, and the class that wins, are unknown."""
    weights = hats(2)
    weights["embed.W_E"] *= 2.0**600
    found = decide.certify(problem_of(weights, 2)[0])
    assert found.verdict is Verdict.UNKNOWN and "beyond the range of float64" in found.reason
    assert found.to_dict()["counts"]["wrong"] != "0"


def test_a_module_that_takes_one_input_at_a_time():
    class One(Small):
        def forward(self, tokens):
            assert len(tokens) == 1
            return super().forward(tokens)

    found = certify_module(One().eval(), inputs=tokens([4, 4]), expected=lambda t: t[:, 1])
    assert found.verdict is Verdict.PROVED


class OwnConstants(nn.Module):
    """One that runs in float32 alone: it makes a constant that a layer of another dtype does not take."""

    def __init__(self):
        super().__init__()
        self.e, self.u = nn.Embedding(4, 4), nn.Linear(3, 4)
        with torch.no_grad():
            self.e.weight.copy_(torch.diag(5.0 ** torch.arange(4)))
            self.u.weight.fill_(0.1)

    def forward(self, t):
        return self.e(t).sum(1) + self.u(torch.arange(3.0))


@pytest.mark.parametrize("reading", every(3, ["real", "float32", "bfloat16"]))
def test_a_module_that_fails_in_another_dtype_is_run_in_its_own(reading):
    module, asked = OwnConstants().eval(), {"inputs": tokens([4] * 3), "expected": lambda t: t.amax(1)}
    assert certify_module(module, reading=reading, **asked).verdict is Verdict.PROVED
    if reading == "real":
        with planted_in("aten.linear.default"):
            found = certify_module(module, **asked)
        assert found.verdict is Verdict.UNKNOWN and BUG in found.reason


@pytest.mark.parametrize(
    "expected", every(2, [Automaton(None, lambda _, t: t, lambda t: t), lambda t: t[:, -1]]), ids=["cells", "inputs"]
)
def test_a_planted_fault_in_the_tables_ends_the_proof(expected):
    """The residual stream's logits with the wrong sign: of a model that is wrong everywhere, tables prove all."""
    model, inputs, right = last_token(), tokens([4] * 8 + [[0, 1]]), OneLayer.layer
    with torch.no_grad():
        model.W_U.neg_()

    def wrong(layer, fixed):
        found = right(layer, fixed)
        constant = found.logits.constant
        return replace(found, logits=replace(found.logits, constant=Ball(-constant.mid, constant.rad)))

    with mock.patch.object(OneLayer, "layer", wrong):
        with mock.patch.object(ModuleProblem, "look", lambda *_: OneRun()):  # the guard alone
            found = certify_module(model, inputs=inputs, expected=expected)
        assert found.verdict is Verdict.UNKNOWN and BUG in found.reason
        with (
            mock.patch.object(guard.Guard, "check"),
            mock.patch.object(decide, "_compared", lambda finding, *_: finding),
        ):
            assert certify_module(model, inputs=inputs, expected=expected).verdict is not Verdict.REFUTED
    assert certify_module(model, inputs=inputs, expected=expected).verdict is Verdict.REFUTED


def test_operations_are_compared_one_by_one():
    from verify.engine.capture import capture

    module = Small().eval()
    graph = capture(module, 2)
    assert guard.first_apart(graph, torch.tensor([1, 2])) is None
    with planted_in("aten.tanh.default"):
        assert "aten.tanh.default" in guard.first_apart(graph, torch.tensor([1, 2]))


class ScaledInItsOwnDtype(nn.Module):
    """As eager attention of GPT-2 in transformers: a constant of the stream's dtype, whose dtype is then asserted."""

    def __init__(self):
        super().__init__()
        self.score = nn.Embedding.from_pretrained(torch.diag(3.0 ** torch.arange(3)))

    def forward(self, x):
        h = self.score(x).sum(1)
        return (h / torch.full([], 3**0.5, dtype=h.dtype)).type(h.dtype)


def test_a_dtype_that_a_graph_asserts_is_not_asked_of_the_run_in_float64():
    found = certify_module(ScaledInItsOwnDtype().eval(), inputs=tokens([3, 3]), expected=lambda t: t.amax(1))
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 9 and 1.15 < found.margin < 2 / 3**0.5 + 1e-6


class WholeLessPart(nn.Module):
    """A whole number less .9, which torch computes in the default dtype, whatever the weights have."""

    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("sign", torch.tensor([1.0, -1.0], dtype=dtype))

    def forward(self, t):
        return (t.sum(1, keepdim=True) - 0.9) * self.sign


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_real_arithmetic_is_run_beside_in_float64_also_where_whole_numbers_become_others(dtype):
    found = certify_module(WholeLessPart(dtype).eval(), inputs=tokens([3]), expected=lambda t: (t[:, 0] < 1).long())
    assert found.verdict is Verdict.PROVED and found.inputs_covered == 3 and 0.19 < found.margin < 0.21
    assert torch.get_default_dtype() is torch.float32


def test_what_contradicts_a_run():
    """Each end of what is proved against each end of where a run lies; at an end both hold."""
    run = OneRun(0.5, 0.0, 1.0, at_most=1.0)
    assert run.contradicts(1.0, 1.0) is None and run.contradicts(-1.0, 0.0) is None
    assert "at most 1.0" in run.contradicts(1.5, 2.0) and "at least 0.0" in run.contradicts(-2.0, -1.5)
    assert all("must be from" in run._replace(margin=margin).contradicts(0.0) for margin in (-0.5, 1.5, math.nan))
    unbounded = OneRun(math.nan, high=1.0)  # a rival that may overflow
    assert unbounded.contradicts(0.5) is None and "at most" in unbounded._replace(at_most=1.0).contradicts(2.0)
