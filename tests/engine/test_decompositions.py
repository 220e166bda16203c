"""Operations that are captured as others: the graph computes what the module does, and a wrong one is caught."""

import pytest
import torch
from models.selection import every, first

from tests.models.small_modules import JUDGED
from tests.planted import planted
from verify.engine import complex_numbers, decompositions
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.engine.guard import in_format
from verify.engine.run import enclose

aten = torch.ops.aten
TOKENS = torch.tensor([[0, 0, 0], [4, 1, 2], [3, 3, 1], [2, 0, 4]])


def is_apart(name):
    """Whether a run in float64 leaves the balls of the graph."""
    torch.manual_seed(0)
    module = in_format(JUDGED[name]().eval(), torch.float64)
    run = enclose(capture(module, 3), Arithmetic(has_norms=True), lambda ball, tokens, answers: (ball.mid, ball.radius))
    mid, rad = (x.squeeze(1) for x in run(TOKENS, TOKENS))
    with torch.no_grad():
        found = torch.cat([module(row[None]) for row in TOKENS])
    return bool(((found - mid).abs() > rad + 1e-12).any())


PAIRS, GROUPS = complex_numbers.ComplexPairs, "convolution in groups"
FAULTS = [
    (GROUPS, decompositions, "convolution", "j * dilation[0]", "j"),
    (GROUPS, decompositions, "convolution", ": stride[0]]", ": 1][..., :count]"),
    ("convolution", decompositions, "convolution", "[padding[0], padding[0]], 0.0", "[2 * padding[0], 0], 0.0"),
    (GROUPS, decompositions, "convolution", "slice(g * of_group, (g + 1) * of_group)", "slice(of_group)"),
    (GROUPS, decompositions, "convolution", "weight[share]", "weight[: out // groups]"),
    ("norms", decompositions, "vector_norm", "(x * x).sum(axes, keepdim).sqrt()", "(x * x).sum(axes, keepdim)"),
    ("norms", decompositions, "vector_norm", "else x.abs().amax", "else x.abs().amin"),
    ("norms", decompositions, "vector_norm", "x.abs().sum(axes", "x.sum(axes"),
    ("clamp by tensors", decompositions, "clamp", "torch.maximum(x, least)", "x"),
    ("clamp by tensors", decompositions, "clamp", "torch.minimum(x, most)", "torch.maximum(x, most)"),
    ("overwritten by a mask", decompositions, "overwritten", "mask.reshape(", "(~mask).reshape("),
    ("overwritten by a mask", decompositions, "overwritten", "values.reshape(()), x)", "x, values.reshape(()))"),
    ("largest and its place", decompositions, "extreme", "x.amax(dim, keepdim)", "x.amin(dim, keepdim)"),
    ("rotary by polar", PAIRS, "_combined", "times(a, c), times(b, d)", "times(a, c), times(b, c)"),
    ("complex rotary", PAIRS, "_combined", "times(a, d), times(b, c)", "times(a, d), times(b, d)"),
    ("rotary by polar", PAIRS, "_combined", "pair, real)", "pair, pair)"),
    ("rotary by polar", PAIRS, "_pairs", "(aten.cos.default, aten.sin.default)", "[aten.sin.default] * 2"),
    ("rotary by polar", PAIRS, "_pairs", "*(d % before for d in args[1])", "*range(before)"),
]  # fmt: skip
NEW = sorted({name for name, *_ in FAULTS})


@pytest.mark.parametrize("name", every(4, NEW))
def test_the_graph_computes_what_the_module_does(name):
    assert not is_apart(name)


@pytest.mark.parametrize("name, owner, function, right, wrong", first(2, FAULTS))
def test_faults_are_caught(name, owner, function, right, wrong, monkeypatch):
    with planted(owner, function, right, wrong):
        if owner is decompositions:
            before, faulty = decompositions.DECOMPOSITIONS, getattr(decompositions, function)
            named = {"vector_norm": aten.linalg_vector_norm.default, "clamp": aten.clamp.Tensor}
            named |= {"overwritten": aten.index_put.default, "convolution": aten.convolution.default}
            if function in named:
                monkeypatch.setitem(before, named[function], faulty)
        try:
            assert is_apart(name)
        except (RuntimeError, AttributeError):
            return  # shapes that do not fit: it cannot go unseen
