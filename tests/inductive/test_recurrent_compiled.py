"""Runs as machine code against the same runs in Python: the same lengths, verdicts and states, by the bits."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from models.crafted import blank, crafted
from models.selection import every, first

from constructions.recurrent.linear import LinearModel
from verify.arithmetic import machine_code
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS
from verify.frame.clock import Deadline
from verify.tasks.recurrent import compiled, computed
from verify.tasks.recurrent.network import Network, step
from verify.tasks.recurrent.proof import OrbitQuestion

pytestmark = pytest.mark.skipif(not machine_code.is_compiled(), reason="weightproof[fast]")
D = torch.float64
TOKENS, NAMES = 400, ("float32", "bfloat16", "float16")


def drawn(kind, g):
    """A network of one class, so that no answer ends its run, whose weights reach from large to subnormal ones."""
    H = int(g.integers(1, 4))
    numbers = lambda *shape: torch.as_tensor(g.normal(size=shape) * 10.0 ** g.uniform(-6, 0.3, size=shape))  # noqa: E731
    if kind == "ssm":
        return Network.of_linear(LinearModel("ssm", numbers(H, H) / H, numbers(H), numbers(1, H), numbers(1)))
    name, _, activation = kind.partition(" ")
    model = blank(name, H, 1, activation or "tanh")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(numbers(*p.shape))
    return Network.of(model)


def in_python(net, numbers, state, tokens):
    for _ in range(tokens):
        state = step(net, state, 0, numbers)
    return state


def walked(net, name, keeps, look=TOKENS):
    """The run from the state after one token, and the state that Python says for the length that it reached."""
    fmt, line = FORMATS[name], OrbitQuestion((), 0, lambda t: 0)
    numbers = computed.Computed(net, fmt, keeps=keeps)
    first = in_python(net, numbers, computed._start(net), 1)
    walk = compiled.CompiledWalk.of(net, line, numbers, fmt, keeps=keeps)
    found = walk.along(compiled.Walked(first, 1, [[np.nan] * len(x) for x in first], look), TOKENS)
    return found, in_python(net, numbers, first, found.t - 1)


KINDS = ("rnn", "rnn relu", "gru", "lstm", "ssm")


@pytest.mark.parametrize("nets", first(1, [1, 3]))
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_the_same_by_the_bits(kind, name, keeps, nets):
    g = np.random.default_rng([37, KINDS.index(kind), NAMES.index(name)])
    for _ in range(nets):
        net = drawn(kind, g).rounded(FORMATS[name])
        found, state = walked(net, name, keeps)
        assert found.state == state
        assert found.t > 1


@pytest.mark.parametrize("name", NAMES)
def test_numbers_below_normal_ones_and_beyond_the_largest(name):
    """h' = f h + a: it fades to the smallest numbers, where ties go to even, or grows until it is infinite."""
    fmt, A, B = FORMATS[name], torch.zeros(2, 2, dtype=D), torch.zeros(2, dtype=D)
    A[0, 0], A[1, 1] = 0.625, 0.75
    B[0] = 37 * 2.0 ** (fmt.smallest_exponent - (fmt.p - 1))
    net = Network.of_linear(LinearModel("ssm", A, B, torch.ones(1, 2, dtype=D), torch.zeros(1, dtype=D)))
    found, state = walked(net, name, keeps=False)
    assert found.state == state
    assert 0 < abs(state[0][0]) < 2.0**fmt.smallest_exponent
    A[0, 0], B[0] = 1.5, 1.0
    net = Network.of_linear(LinearModel("ssm", A, B, torch.ones(1, 2, dtype=D), torch.zeros(1, dtype=D)))
    found, state = walked(net, name, keeps=False)
    assert found.state == state
    assert fmt.largest / 2 < state[0][0] <= fmt.largest
    numbers = computed.Computed(net, fmt)
    assert step(net, state, 0, numbers)[0][0] == np.inf


def run_of(seed, name, steps, keeps):
    case, fmt = crafted(seed), FORMATS[name]
    m = case.task.m
    line = OrbitQuestion((), 0, lambda t: (t - 1) % m, period=m)
    of = Network.of_linear if isinstance(case.model, LinearModel) else Network.of
    at = RoundedArithmetic.of(fmt)
    found = computed.run(of(case.model).rounded(fmt), line, steps, at, Deadline.never(), keeps=keeps)
    return found.steps, found.wrong_at, found.margin, found.predicted, found.repeats


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("seed", every(2, [2, 3, 15, 21]))  # swings and rings that creep, exact ties
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_run_ends_where_it_does_without(seed, name, keeps):
    with mock.patch.object(compiled, "is_compiled", lambda: False):
        without = run_of(seed, name, 2000, keeps)
    assert run_of(seed, name, 2000, keeps) == without


def test_a_first_wrong_answer_after_millions_of_tokens_is_found():
    """A sum of 2^-22 up to 1 beside a swing: the tie with its threshold is wrong after 2^22 tokens."""
    A, B = torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=D), torch.tensor([1.0, 2.0**-22], dtype=D)
    V, b = torch.tensor([[2.0, -1.0], [0.0, 0.0]], dtype=D), torch.tensor([-1.0, 0.0], dtype=D)
    net = Network.of_linear(LinearModel("ssm", A, B, V, b))
    line = OrbitQuestion((), 0, lambda t: (t - 1) % 2, period=2)
    found = computed.run(net, line, None, RoundedArithmetic.of(FORMATS["float32"]), Deadline.never())
    assert found.wrong_at == 2**22 + 1


FAULTS = {
    "_factor": lambda self, x: x,
    "relu": lambda self, x: x,
    "_logistic": lambda self, x: self._call("tanh", x),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_operation_that_is_another_one_is_seen(fault):
    kind = {"relu": "rnn relu", "_logistic": "gru"}.get(fault, "rnn")
    with mock.patch.object(compiled._Emitted, fault, FAULTS[fault]):
        found = [walked(drawn(kind, np.random.default_rng(n)), "bfloat16", keeps=False) for n in range(4)]
    assert any(x.state != state for x, state in found)
