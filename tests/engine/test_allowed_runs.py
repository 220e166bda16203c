"""Evaluations that the contract allows and torch's kernels here do not take: modules once proved that they get wrong.

Each module is judged on one input, and one evaluation of it, rounded here operation by operation, is wrong.
"""

from unittest import mock

import numpy as np
import pytest
import torch
from models.selection import first
from test_meaning import Stored
from torch.nn import functional as F

from tests.planted import planted
from verify import certify
from verify.arithmetic.formats import FORMATS
from verify.engine import balls, few_bits
from verify.engine.balls import Arithmetic
from verify.engine.rules import RULES, linear, normalisation, pointwise
from verify.module import tokens

BITS, LARGEST = {"float16": 11, "bfloat16": 8}, {"float16": 65504.0, "bfloat16": 255.0 * 2**120}


def once(dtype, x):
    """The nearest number of the dtype, ties to even, infinite beyond the largest; what is subnormal is flushed."""
    mantissa, exponent = np.frexp(x)
    near = float(np.ldexp(np.round(np.ldexp(mantissa, BITS[dtype])), exponent - BITS[dtype]))
    if abs(near) > LARGEST[dtype]:
        return float(np.copysign(np.inf, near))
    return 0.0 if abs(near) < 2.0 ** (-14 if dtype == "float16" else -126) else near


def in_turn(dtype, terms):
    total = 0.0
    for term in terms:
        total = once(dtype, total + once(dtype, term))
    return total


def two(self, a, b):
    return torch.stack([a + 0 * b, b + 0 * a], -1)


BIG = [253 * 2.0**120, *[0.51 * 2.0**120] * 3]
APART = [200.0, 200.0, 200.0, 201.0]


def normed(self, x):
    y = F.batch_norm(x, self.mean, self.var, eps=1e-5)
    return torch.cat([y * 0 + 8.9, y], -1)


def attended(self, x):
    q, v = x[:, None, :1] * 0, torch.stack([x, x], 1)
    y = F.scaled_dot_product_attention(q, v[..., :1] * 0, v)[:, 0]
    return torch.stack([y[:, 0], y[:, 0] / 2], -1)


BATCH = {"mean": torch.zeros(1, dtype=torch.float64), "var": torch.full((1,), 2.0**-13, dtype=torch.float64)}
CASES = {
    # (the logits, the row, its reading, an evaluation of it, buffers); (what is planted)
    "partial sums are rounded upwards": (
        (lambda self, x: torch.stack([x.sum(-1) * 2.0**-120, x.sum(-1) * 2.0**-121], -1), BIG, ("bfloat16",),
         lambda: [in_turn("bfloat16", BIG) * 2.0**-120, in_turn("bfloat16", BIG) * 2.0**-121]),
        (balls.Arithmetic, "within_reach", "* grown", "* 1.0"),
    ),
    "squares of one pass overflow": (
        (lambda self, x: two(self, x[:, 0] * 0 + 3000, x.var(-1)), APART, ("float16",),
         lambda: [3000.0, in_turn("float16", [x * x for x in APART]) / 4 - 200.25**2]),
        (linear, "variance", "at.within_reach(square, k, off * ENLARGE)", "off * ENLARGE", "aten.var.correction"),
    ),
    "a mean of values is divided last": (
        (attended, [40000.0], ("float16",),
         lambda: [in_turn("float16", [40000.0] * 2) / 2, in_turn("float16", [40000.0] * 2) / 4]),
        (normalisation, "undivided", "at.within_reach(size, (ULPS + 3) * (n + 1), torch.zeros_like(out.mid))",
         "torch.zeros_like(out.mid)"),
    ),
    "a slope is flushed": (
        (lambda self, x: two(self, x[:, 0] * 0 - 2, F.leaky_relu(x[:, 0], 6e-5)), [-65000.0], ("float16",),
         lambda: [-2.0, once("float16", 6e-5) * -65000.0]),
        (pointwise, "leaky_relu", "at.tiny * x.size", "0 * x.size", "aten.leaky_relu.default"),
    ),
    "an epsilon is flushed": (
        (normed, [0.0999755859375], ("float16",),
         lambda: [8.9, once("float16", 0.0999755859375 / (2.0**-13 + once("float16", 1e-5)) ** 0.5)], BATCH),
        (normalisation, "batch_norm", "Ball(eps_read.mid, eps_read.radius + at.tiny)", "Ball(eps_read.mid)",
         "aten._native_batch_norm_legit_no_training.default"),
    ),
    "a quotient is a product with a rounded inverse": (
        (lambda self, x: two(self, x[:, 0] / x[:, 1] - x[:, 2], x[:, 3]), [1.5, 198 / 64, 247 / 512, 0.00117],
         ("bfloat16", "float32"), lambda: [1.5 * once("bfloat16", 64 / 198) - 247 / 512, once("bfloat16", 0.00117)]),
        (few_bits, "SUMS", "aten.div.Tensor"),
    ),
}  # fmt: skip


def verdict(function, row, reading, _, buffers=()):
    module = Stored(function, row, torch.float64, **dict(buffers)).eval()
    reading = dict(zip(("reading", "accumulate"), reading, strict=False))
    return certify(module, inputs=tokens([1]), expected=lambda t: t[:, 0] * 0, budget=0.1, **reading).verdict.name


def wrongly(owner, name, *what):
    """The fault, in a table of names or in a function, which may be a rule."""
    if len(what) == 1:
        return mock.patch.object(owner, name, getattr(owner, name) | {*what})
    fault = planted(owner, name, *what[:2])
    return fault if len(what) == 2 else mock.patch.dict(RULES, {what[2]: fault.new})


@pytest.mark.parametrize("name", first(3, CASES))
def test_what_an_allowed_run_gets_wrong_is_not_proved(name):
    case, fault = CASES[name]
    right, rival = case[3]()
    assert not right > rival
    assert verdict(*case) != "PROVED"
    with wrongly(*fault):
        assert verdict(*case) == "PROVED"


@pytest.mark.parametrize("name, other", [("mm", (torch.ones(4, 1),)), ("cumsum", (1,)), ("sum", ())])
def test_sums_that_rounding_takes_beyond_the_largest_number_are_no_numbers(name, other):
    """Their absolute values add up to 254.53 units, in turn they are rounded to 256: infinite."""
    assert in_turn("bfloat16", BIG) == np.inf
    at, rule = Arithmetic(FORMATS["bfloat16"]), RULES[f"aten.{name}.default"]
    other = [at.tensor(x) if isinstance(x, torch.Tensor) else x for x in other]
    for share, is_number in ((1.0, False), (0.75, True)):
        row = at.tensor(torch.tensor([BIG], dtype=torch.float64) * share)
        assert torch.isfinite(rule(at, row, *other).radius).all() == is_number
