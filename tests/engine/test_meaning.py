"""What torch means by an operation in a dtype, and what underflows: modules once proved wrongly, or that crashed.

Each module is judged on one input, on which its own run, or exact arithmetic by hand, says what is true.
"""

import random
from fractions import Fraction

import pytest
import torch
from models.selection import every
from torch import nn
from torch.nn import functional as F

from constructions.errors import BadInput
from verify import certify
from verify.arithmetic.formats import FORMATS
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.engine.rules.linear import spectral_norm
from verify.engine.run import enclose
from verify.module import tokens

INFINITY = float("inf")


class Stored(nn.Module):
    """One stored row (1, d), and a function of it that gives the logits (1, classes)."""

    def __init__(self, function, row, dtype=torch.float32, **buffers):
        super().__init__()
        self.function, self.row = function, nn.Parameter(torch.tensor([row], dtype=dtype))
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, seen):
        return self.function(self, self.row[seen[:, 0]])


def verdict(module, reading="real"):
    """Of the claim that the first logit is the largest."""
    found = certify(module.eval(), inputs=tokens([1]), expected=lambda t: t[:, 0] * 0, reading=reading, budget=1)
    return found.verdict.name


def written(dtype):
    def function(self, x):
        buffer = torch.zeros(1, 2, dtype=dtype)
        buffer[:] = x
        return buffer.double() if dtype == torch.float64 else buffer + 0.0

    return function


def logits(*columns):
    return torch.stack([c.float() for c in columns], 1)


ONE = torch.tensor([True])
READINGS = ("real", "float32")
MEANING = {  # what torch gives, and whether the first logit is then the largest
    "true + true is 1": (lambda self, x: logits((x[:, 0] > 0) + (x[:, 1] > 0), x[:, 2]), [1.0, 1.0, 1.5], False),
    "true + true counts as float": (
        lambda self, x: logits((x[:, 0] > 0).float() + (x[:, 1] > 0).float(), x[:, 2]), [1.0, 1.0, 1.5], True,
    ),
    "400 is 144 in uint8": (
        lambda self, x: logits((x[:, 0] > 0).to(torch.uint8) * 200 * 2, x[:, 1]), [1.0, 300.0], False,
    ),
    "-128 is its own opposite in int8": (
        lambda self, x: logits(-((x[:, 0] > 0).to(torch.int8) * -128), x[:, 1]), [1.0, 0.0], False,
    ),
    "3 xor 1 as truth values": (
        lambda self, x: logits(torch.logical_xor(x[:, 0], torch.ones_like(x[:, 0])), x[:, 1]), [3.0, 0.5], False,
    ),
    "not 3.0 is false": (lambda self, x: logits(torch.logical_not(x[:, 0]), x[:, 1]), [3.0, 0.5], False),
    "any of floats": (lambda self, x: logits(x[:, :2].any(-1), x[:, 2]), [0.0, 3.0, 0.5], True),
    "the bits of 1, inverted": (lambda self, x: logits(~(x[:, 0] > 0).long(), x[:, 1]), [1.0, -1.5], False),
    "a masked logit": (lambda self, x: x.masked_fill(self.mask, -INFINITY), [0.5, 0.25, 9.0], True),
    "a logit masked by a comparison": (lambda self, x: x.masked_fill(x > 1, -INFINITY), [0.5, 0.25, 9.0], True),
    "sums of uint8 are int64": (
        lambda self, x: logits(((x > 0).to(torch.uint8) * 200).sum(-1), x[:, 0]), [300.0, 1.0], True,
    ),
    "a created number is cut off": (
        lambda self, x: logits(x[:, 0] * torch.full((1,), 0.9).long(), x[:, 1]), [1.0, 0.5], False,
    ),
}  # fmt: skip


READ = [(name, READINGS[(i + j) % 2]) for i, name in enumerate(MEANING) for j in range(2)]


@pytest.mark.parametrize(("name", "reading"), every(9, READ))  # each operation in one reading, by turns
def test_operations_mean_what_torch_means(name, reading):
    function, row, is_right = MEANING[name]
    module = Stored(function, row, mask=torch.tensor([False, False, True]))
    run = module(torch.tensor([[0]]))[0].tolist()
    assert (max(run[1:]) < run[0]) == is_right
    assert verdict(module, reading) == ("PROVED" if is_right else "REFUTED")


REFUSED = {
    "floats into whole numbers": (written(torch.long), "casts computed floats to torch.int64 in aten.copy"),
    "floats into truth values": (written(torch.bool), "casts computed floats to torch.bool in aten.copy"),
    "floats into float16": (written(torch.float16), "casts a computed torch.float32 to torch.float16 in aten.copy"),
    "floats into bfloat16": (written(torch.bfloat16), "to torch.bfloat16 in aten.copy"),
    "1 xor 3": (lambda self, x: ((x > 0).long() ^ 3) * x, "aten.bitwise_xor.* on int64 is not covered"),
    "1 and 3": (lambda self, x: ((x > 0).int() & 3) * x, "aten.bitwise_and.* on int32 is not covered"),
    "a shift": (lambda self, x: ((x > 0).long() << 2) * x, "is not covered"),
    "a quotient of whole numbers": (lambda self, x: ((x > 0).long() // 2) * x, "aten.div.Tensor_mode on int64"),
    "a remainder": (lambda self, x: ((x > 0).long() % 2) * x, "aten.remainder.Scalar on int64"),
    "the truth of a float": (lambda self, x: x.bool() * x, "casts a computed torch.float32 to torch.bool"),
    "floats cut off": (lambda self, x: x.to(torch.int8) * x, "casts a computed torch.float32 to torch.int8"),
    "a mask of scores": (
        lambda self, x: F.scaled_dot_product_attention(x[None], x[None], x[None], x[:, :1] > 0)[0],
        "a mask depends on computed floats",
    ),
    "whole numbers of nothing": (lambda self, x: torch.empty(2, dtype=torch.long) * x, "its numbers are anything"),
}


@pytest.mark.parametrize("name", every(8, REFUSED))
def test_what_no_rule_covers_in_a_dtype_is_refused_by_name(name):
    function, message = REFUSED[name]
    with pytest.raises(BadInput, match=message):
        capture(Stored(function, [0.9, 0.4]).eval(), 1)


CASTS = {
    "long, int": lambda t: t.long().int(),
    "long, bool": lambda t: t.long().bool().float(),
    "uint8, int64": lambda t: t.to(torch.uint8).long(),
    "not of not": lambda t: ~~t,
    "added": lambda t: t.int() + t.int() - t.int(),
    "copied": lambda t: torch.zeros_like(t, dtype=torch.int16).copy_(t),
    "chosen": lambda t: torch.where(t, 1, 0),
    "masked": lambda t: torch.zeros_like(t).masked_fill(t, True),
    "summed": lambda t: t.sum(-1, keepdim=True),
    "compared": lambda t: t.long() > 0,
    "any": lambda t: t.int().any(-1, keepdim=True),
}


@pytest.mark.parametrize("name", every(6, CASTS))
def test_what_is_not_sure_stays_so(name):
    """1e8 + 0.75 - 1e8 is 0.75 in the reals, and 0 or more in float32: 0.75 > 0.5 is not sure there."""

    def function(self, x):
        is_above = x[:, 0:1] * 1e8 + 0.75 - x[:, 0:1] * 1e8 > 0.5
        found = CASTS[name](is_above).float()
        return torch.cat([found, x[:, 1:]], 1)

    graph = capture(Stored(function, [1.0, 0.5]).eval(), 1)
    low, high = enclosed_margin(graph, Arithmetic())
    assert low > 0
    for fmt in ("float32", "bfloat16"):
        low, high = enclosed_margin(graph, Arithmetic(FORMATS[fmt]))
        assert low < 0 < high


def test_large_whole_numbers_are_not_doubles():
    """2^53 + 1 as float64 is 2^53: in the reals they differ."""
    number = torch.tensor([[2**53 + 1]])

    def function(self, x):
        return torch.cat([(x * 0 + self.number) - 2.0**53, x * 0 + 0.5], 1)

    module = Stored(function, [1.0], torch.float64, number=number)
    assert verdict(module, "real") == "PROVED"
    low, high = enclosed_margin(capture(module, 1), Arithmetic())
    assert low <= 0.5 <= high


def enclosed_margin(graph, at):
    run = enclose(graph, at, lambda out, t, a: out.ends)
    low, high = run(torch.tensor([[0]]), torch.tensor([[0]]))
    return float(low.flatten()[0] - high.flatten()[1]), float(high.flatten()[0] - low.flatten()[1])


# what underflows


@pytest.mark.parametrize("exponent", [-1074, -1060, -600, -565, -400, 0, 400, 900])
def test_spectral_norms_do_not_underflow(exponent):
    W = torch.tensor([[3.0, 1.0, 0.0], [1.0, 2.0, 1.0]], dtype=torch.float64)
    true = float(torch.linalg.matrix_norm(W, 2))
    scaled = W * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)
    assert Fraction(float(spectral_norm(scaled))) >= Fraction(true) * Fraction(2) ** exponent * Fraction(1 - 2**-40)


def test_small_matrices_keep_the_error_of_what_they_multiply():
    """1e17 + 1 - 1e17 is 1, float64 says 0: whatever a matrix of 1e-170 and one of 1e170 make of it."""
    small, large = (torch.eye(2, dtype=torch.float64) * size for size in (1e-170, 1e170))

    def function(self, x):
        return (torch.cat([x[:, :1] * 0 + 0.5, x.sum(-1, keepdim=True)], 1) @ self.small) @ self.large

    module = Stored(function, [1e17, 1.0, -1e17], torch.float64, small=small, large=large)
    assert verdict(module) == "REFUTED"


@pytest.mark.parametrize("eps", every(2, [0.0, 1e-310, 5e-324, 1e-323]))
def test_layer_norms_with_any_eps(eps):
    """The first number of LayerNorm of (a, -a) is a / sqrt(a^2 + eps), rationally bounded from both sides."""

    def function(self, x):
        return F.layer_norm(x, (2,), eps=eps)

    graph = capture(Stored(function, [1.0, -1.0], torch.float64).eval(), 1)
    for size in (1e-150, 2e-162, 3e-162, 1e-163, 1e-170, 5e-324):
        graph.stored["p_row"] = torch.tensor([[size, -size]], dtype=torch.float64)
        share = Fraction(size) ** 2 / (Fraction(size) ** 2 + Fraction(eps))
        for at in (Arithmetic(), Arithmetic(has_norms=True)):
            run = enclose(graph, at, lambda out, t, a: out.ends)
            low, high = (float(x.flatten()[0]) for x in run(torch.tensor([[0]]), torch.tensor([[0]])))
            is_low = low > 0 and (low == float("inf") or Fraction(low) ** 2 > share)
            assert not is_low and not 0 < high < 1 or Fraction(high) ** 2 >= share


def test_quotients_by_what_has_a_subnormal_inverse():
    rng, big = random.Random(0), 1e300
    for _ in range(2):
        y = rng.uniform(1.2, 1.79) * 1e308

        def function(self, x, y=y):
            return (F.layer_norm(x, (2,)) * 1e-30 + big) / y

        run = enclose(
            capture(Stored(function, [1.0, -1.0], torch.float64).eval(), 1),
            Arithmetic(has_norms=True),
            lambda out, t, a: out.ends,
        )
        low, high = (x.flatten()[0].item() for x in run(torch.tensor([[0]]), torch.tensor([[0]])))
        assert Fraction(low) <= Fraction(big) / Fraction(y) <= Fraction(high)


# other orders of a dtype


def test_group_norms_shift_is_rounded():
    """torch computes x (w/s) + (b - mean w/s): b is rounded where |b| is far larger than the rest."""

    def norm(x, weight):
        return F.group_norm(x.unsqueeze(-1), 1, weight, torch.full((2,), 1.5))[:, :, 0]

    module = Stored(lambda self, x: norm(x, self.scale), [1.0, 2.0], scale=torch.ones(2))
    graph, rng, at = capture(module.eval(), 1), random.Random(0), Arithmetic(FORMATS["float32"])
    bounded = 0
    for _ in range(100):
        a, d = rng.uniform(1, 5), rng.uniform(-1, 5)
        scale = rng.uniform(0.1, 1.5) * 2.0**-23 * abs(a - d) / (abs(a + d) + 1e-9)
        row, weight = torch.tensor([[a, d]]), torch.full((2,), scale)
        graph.stored.update(p_row=row, b_scale=weight)
        low, high = enclose(graph, at, lambda out, t, a: out.ends)(torch.tensor([[0]]), torch.tensor([[0]]))
        run = norm(row, weight).double()
        assert not ((run.flatten() < low.flatten()) | (high.flatten() < run.flatten())).any()
        bounded += bool(torch.isfinite(low + high).all())
    assert bounded > 66


def test_group_norms_scale_may_overflow():
    """x w/s and mean w/s are beyond float32 where w (x - mean)/s is not: torch says NaN, and the ball must allow it."""
    row, weight = torch.tensor([[10.0, 10.1, 9.9, 10.0]]), torch.full((4,), 3e37)
    module = Stored(
        lambda self, x: F.group_norm(x.unsqueeze(-1), 1, self.scale)[:, :, 0], row[0].tolist(), scale=weight
    )
    graph = capture(module.eval(), 1)
    assert F.group_norm(row.unsqueeze(-1), 1, weight).isnan().all()
    for factor, is_bounded in ((1.0, False), (1e-6, True)):
        graph.stored.update(b_scale=weight * factor)
        at = Arithmetic(FORMATS["float32"])
        low, high = enclose(graph, at, lambda out, t, a: out.ends)(torch.tensor([[0]]), torch.tensor([[0]]))
        assert bool(torch.isfinite(low + high).all()) == is_bounded


def test_a_bias_may_be_the_first_term():
    """Each of 64 terms of 2^-25 vanishes when it is added to 1.5 in turn, and their sum 2^-19 does not."""
    weight, bias = torch.full((1, 64), 2.0**-25), torch.tensor([1.5])
    module = Stored(lambda self, x: F.linear(x, self.weight, self.bias), [1.0] * 64, weight=weight, bias=bias)
    run = enclose(capture(module.eval(), 1), Arithmetic(FORMATS["float32"]), lambda out, t, a: out.ends)
    low, high = (float(x.flatten()[0]) for x in run(torch.tensor([[0]]), torch.tensor([[0]])))
    assert low <= 1.5 < 1.5 + 2.0**-19 <= high


def test_gelu_of_the_largest_numbers_may_overflow():
    """A kernel that halves x (1 + erf) last says infinity there, whatever the answer is that real numbers give."""

    def function(self, x):
        y = F.gelu(x)[:, 0] * 2.0**-126
        return torch.stack([y * 0.0 + 5.0, y], 1)

    ends = {}
    for row in (torch.finfo(torch.float32).max, 2.0**126):
        graph, at = capture(Stored(function, [row]).eval(), 1), Arithmetic(FORMATS["float32"])
        ends[row] = enclose(graph, at, lambda out, t, a: out.ends)(torch.tensor([[0]]), torch.tensor([[0]]))
    (_, may_overflow), (_, may_not) = ends.values()
    assert not torch.isfinite(may_overflow[..., 1]).any() and torch.isfinite(may_not[..., 1]).all()
