"""Each rule's ball holds what 200-bit arithmetic gives anywhere in its arguments' balls, and any rounded run."""

import itertools
import math
import random
from functools import partial
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, arb_mat, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from models.selection import every

from tests.oracles import operations as op
from tests.planted import planted
from verify.arithmetic.formats import FORMATS, format_of_bits
from verify.engine.balls import Arithmetic, Ball, Norm, Unsure, length
from verify.engine.rules import RULES, linear, normalisation, order, pointwise, statement
from verify.engine.rules.linear import spectral_norm, times

FLOAT32, BFLOAT16 = FORMATS["float32"], FORMATS["bfloat16"]
FIELDS = {"real": (Arithmetic(), None), "float32": (Arithmetic(FLOAT32), 24), "bfloat16": (Arithmetic(BFLOAT16), 8)}
MASK = np.tril(np.ones((3, 3), dtype=bool))
MASK[1] = False  # one row masked everywhere


class Case:
    """A rule, its balls' shapes, and the oracle on points of them."""

    def __init__(self, name, shapes, oracle, call=None, scale=2.0, positive=False, exact=()):
        self.name, self.shapes, self.oracle, self.call = name, shapes, oracle, call or (lambda r, at, *x: r(at, *x))
        self.scale, self.positive, self.exact = scale, positive, exact


def folds(function):
    return lambda f, x: op.along_last(lambda xs: function(f, xs), x)


def partial_call(**options):
    return lambda r, at, x: r(at, x, **options)


CASES = [
    Case("aten.mm.default", [(2, 5), (5, 3)], op.matmul),
    Case("aten.bmm.default", [(2, 2, 4), (2, 4, 3)], op.matmul),
    Case("aten.mv.default", [(3, 4), (4,)], lambda f, x, y: op.matmul(f, x, y[:, None])[:, 0]),
    Case("aten.dot.default", [(6,), (6,)], lambda f, x, y: np.asarray(f.dot(x, y), dtype=object)),
    Case("aten.linear.default", [(2, 4), (3, 4), (3,)], lambda f, x, w, b: op.add(f, op.matmul(f, x, w.T), b)),
    Case("aten.addmm.default", [(3,), (2, 4), (4, 3)], lambda f, b, x, y: op.add(f, op.matmul(f, x, y), b)),
    Case("aten.add.Tensor", [(2, 3), (3,)], op.add),
    Case("aten.sub.Tensor", [(2, 3), (3,)], lambda f, x, y: op.add(f, x, op.neg(y))),
    Case("aten.rsub.Scalar", [(3,)], lambda f, x: op.add(f, op.neg(x), f.number(0.3)), lambda r, at, x: r(at, x, 0.3)),
    Case("aten.mul.Tensor", [(2, 3), (3,)], op.mul),
    Case("aten.mul.Scalar", [(4,)], lambda f, x: op.mul(f, x, f.number(0.1)), lambda r, at, x: r(at, x, 0.1)),
    Case("aten.div.Tensor", [(4,), (4,)], op.div, positive=True),
    Case("aten.div.Scalar", [(4,)], lambda f, x: op.div(f, x, f.number(5.65)), lambda r, at, x: r(at, x, 5.65)),
    Case("aten.neg.default", [(4,)], lambda f, x: op.neg(x)),
    Case("aten.abs.default", [(4,)], lambda f, x: op.each(abs, x)),
    Case("aten.reciprocal.default", [(4,)], lambda f, x: op.div(f, f.number(1), x), positive=True),
    Case("aten.sqrt.default", [(5,)], op.unary("sqrt"), positive=True),
    Case("aten.rsqrt.default", [(5,)], lambda f, x: op.div(f, 1, op.unary("sqrt")(f, x)), positive=True),
    Case("aten.relu.default", [(6,)], lambda f, x: op.each(lambda a: max(a, mpmath.mpf(0)), x)),
    Case(
        "aten.leaky_relu.default",
        [(6,)],
        lambda f, x: op.each(lambda a: a if a > 0 else f.once(a * f.number(0.01)), x),
    ),
    Case("aten.exp.default", [(6,)], op.unary("exp"), scale=8.0),
    Case(
        "aten.pow.Scalar",
        [(5,)],
        lambda f, x: op.each(lambda a: f.once(mpmath.mpf(0.3) ** a), x),
        lambda r, at, x: r(at, 0.3, x),
    ),
    Case("aten.log.default", [(6,)], op.unary("log"), positive=True),
    Case("aten.sigmoid.default", [(6,)], op.sigmoid, scale=6.0),
    Case("aten.tanh.default", [(6,)], op.unary("tanh")),
    Case("aten.erf.default", [(6,)], op.unary("erf")),
    Case("aten.gelu.default", [(6,)], op.gelu),
    Case("aten.gelu.default", [(6,)], op.gelu_tanh, lambda r, at, x: r(at, x, approximate="tanh")),
    Case("aten.silu.default", [(6,)], op.silu, scale=5.0),
    Case("aten.sin.default", [(6,)], op.unary("sin"), scale=30.0),
    Case("aten.cos.default", [(6,)], op.unary("cos"), scale=30.0),
    Case(
        "aten.clamp.default",
        [(6,)],
        lambda f, x: op.each(lambda a: min(max(a, mpmath.mpf(-1)), mpmath.mpf(0.5)), x),
        lambda r, at, x: r(at, x, -1, 0.5),
    ),
    Case("aten.maximum.default", [(4,), (4,)], lambda f, x, y: op.each(max, x, y)),
    Case("aten.minimum.default", [(4,), (4,)], lambda f, x, y: op.each(min, x, y)),
    Case("aten.amax.default", [(2, 4)], folds(lambda f, xs: max(xs)), lambda r, at, x: r(at, x, [-1])),
    Case("aten.amin.default", [(2, 4)], folds(lambda f, xs: min(xs)), lambda r, at, x: r(at, x, [-1])),
    Case("aten.sum.dim_IntList", [(2, 6)], folds(lambda f, xs: f.sum(xs)), lambda r, at, x: r(at, x, [-1])),
    Case("aten.sum.default", [(6,)], lambda f, x: np.asarray(f.sum(x), dtype=object)),
    Case("aten.mean.dim", [(2, 6)], folds(op.mean), lambda r, at, x: r(at, x, [-1])),
    Case("aten.mean.default", [(6,)], lambda f, x: np.asarray(op.mean(f, x), dtype=object)),
    Case(
        "aten.cumsum.default",
        [(5,)],
        lambda f, x: np.array([f.sum(x[: i + 1]) for i in range(5)], dtype=object),
        lambda r, at, x: r(at, x, 0),
    ),
    Case("aten.var.correction", [(2, 5)], folds(op.variance), lambda r, at, x: r(at, x, [-1], correction=0), scale=1.0),
    Case("aten._softmax.default", [(2, 5)], op.softmax, lambda r, at, x: r(at, x, -1, False)),
    Case("aten._safe_softmax.default", [(2, 5)], op.softmax, lambda r, at, x: r(at, x, -1)),
    Case("aten._log_softmax.default", [(2, 4)], op.log_softmax, lambda r, at, x: r(at, x, -1, False)),
    Case(
        "aten.scaled_dot_product_attention.default",
        [(3, 2), (3, 2), (3, 2)],
        lambda f, q, k, v: op.attention(f, q, k, v, MASK),
        lambda r, at, q, k, v: r(at, q, k, v, torch.tensor(MASK)),
        scale=1.0,
    ),
    Case(
        "aten.scaled_dot_product_attention.default",
        [(3, 2), (3, 2), (3, 2)],
        lambda f, q, k, v: op.attention(f, q, k, v, np.tril(np.ones((3, 3), dtype=bool))),
        lambda r, at, q, k, v: r(at, q, k, v, is_causal=True),
        scale=1.0,
    ),
    *(
        Case(
            "aten.native_layer_norm.default",
            [(2, 6), (6,), (6,)],
            lambda f, x, w, b, passes=passes: op.layer_norm(f, x, w, b, 1e-5, passes),
            lambda r, at, x, w, b: r(at, x, [6], w, b, 1e-5)[0],
            exact=(1, 2),
        )
        for passes in (1, 2)
    ),
    Case(
        "aten._fused_rms_norm.default",
        [(2, 5), (5,)],
        lambda f, x, w: op.rms_norm(f, x, w, 1e-6),
        lambda r, at, x, w: r(at, x, [5], w, 1e-6)[0],
        exact=(1,),
    ),
    Case(
        "aten.native_group_norm.default",
        [(1, 4, 3)],
        lambda f, x: op.layer_norm(f, x.reshape(2, 6), [f.number(1)] * 6, [f.number(0)] * 6, 1e-5).reshape(1, 4, 3),
        lambda r, at, x: r(at, x, None, None, 1, 4, 3, 2, 1e-5)[0],
    ),
    Case("aten.log1p.default", [(6,)], op.unary("log1p"), positive=True),
    Case("aten.expm1.default", [(6,)], op.unary("expm1")),
    *(
        Case("aten.softplus.default", [(6,)], partial(op.softplus, **o), partial_call(**o), scale=4.0)
        for o in ({}, {"beta": 2.0, "threshold": 3.0})
    ),
    *(
        Case("aten.elu.default", [(6,)], lambda f, x, n=n: op.elu(f, x, *n), lambda r, at, x, n=n: r(at, x, *n))
        for n in ((), (0.7, 1.5, 0.5), (-0.5,))
    ),
    Case("aten.sort.default", [(2, 5)], folds(lambda f, xs: sorted(xs)), lambda r, at, x: r(at, x)[0]),
    Case("aten.topk.default", [(2, 5)], folds(lambda f, xs: sorted(xs)[:1:-1]), lambda r, at, x: r(at, x, 3)[0]),
    *(
        Case(
            "aten._native_batch_norm_legit_no_training.default",
            [(2, 3, 2), (3,), (3,), (3,), (3,)],
            partial(op.batch_norm, eps=1e-5, is_fused=is_fused),
            lambda r, at, x, w, b, m, v: r(at, x, w, b, m, v, 0.1, 1e-5)[0],
            positive=True,
            exact=(1, 2, 3, 4),
        )
        for is_fused in (True, False)
    ),
    *(
        Case(
            "aten.pow.Tensor_Scalar",
            [(4,)],
            lambda f, x, e=e: op.each(lambda a: f.once(a**e), x),
            lambda r, at, x, e=e: r(at, x, e),
            positive=True,
        )
        for e in (2, 3, 0.5, -0.5, -1)
    ),
]


def ball_of(rng, shape, case, i, precision):
    """A ball and a point of it, its ends more often than not; both numbers of the dtype."""
    mid = np.asarray(rng.normal(size=shape)) * case.scale
    if case.positive:
        mid = np.abs(mid) + 0.25
    if precision is not None:
        mid = op_rounded(mid, precision)
    if i in case.exact or rng.random() < 0.2:
        return Ball(torch.tensor(mid)), op.whole(mid)
    rad = np.abs(rng.normal(size=shape)) * 10.0 ** rng.integers(-12, -1) * min(1.0, case.scale)
    share = rng.choice([-1.0, 1.0, 0.0, 0.37], size=shape)
    point = mid + share * rad
    if precision is not None:
        point = op_rounded(point, precision)
    rad = np.maximum(rad, np.abs(point - mid)) * (1 + 2.0**-50)
    return Ball(torch.tensor(mid), torch.tensor(rad)), op.whole(point)


def op_rounded(x, p):
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, p)), exponent - p)


def holds(ball, exact):
    """Whether every exact number lies in its ball; an infinite radius holds everything."""
    mid, rad = ball.mid.numpy().reshape(-1), ball.radius.numpy().reshape(-1)
    for m, r, x in zip(mid, rad, exact.reshape(-1), strict=True):
        if np.isnan(m) or np.isnan(r) or np.isinf(r) or mpmath.isnan(x):
            continue
        if not abs(mpmath.mpf(float(m)) - x) <= mpmath.mpf(float(r)):
            return False
    return True


def trial(case, reading, seed, has_norms=False, call_rule=None):
    rng, fair = np.random.default_rng(seed), random.Random(seed)
    at, precision = FIELDS[reading]
    at = Arithmetic(at.stored, at.accumulate, has_norms)
    pairs = [ball_of(rng, shape, case, i, precision) for i, shape in enumerate(case.shapes)]
    balls = [Ball(b.mid, b.rad, Norm(length(b.radius)) if has_norms and b.mid.ndim else None) for b, _ in pairs]
    with mpmath.workprec(op.BITS):
        field = op.Exact() if precision is None else op.Rounded(precision, fair)
        exact = case.oracle(field, *[point for _, point in pairs])
        out = case.call(call_rule or RULES[case.name], at, *balls)
        assert out.mid.shape == exact.shape
        return holds(out, exact), out, exact


@pytest.mark.parametrize(
    ("case", "reading"), every(6, itertools.product(CASES, FIELDS)), ids=lambda x: getattr(x, "name", x)
)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), has_norms=st.booleans())
def test_the_ball_holds_the_result(case, reading, seed, has_norms):
    held, out, exact = trial(case, reading, seed, has_norms)
    assert held, (out, exact)
    if out.norm is not None and reading == "real":
        with mpmath.workprec(op.BITS):
            off = (op.whole(out.mid.numpy()) - exact).reshape(-1, exact.shape[-1])
            for row, radius in zip(off, out.norm.radius.expand(*exact.shape[:-1], 1).reshape(-1), strict=True):
                assert mpmath.sqrt(mpmath.fsum(x * x for x in row)) <= mpmath.mpf(float(radius))


@pytest.mark.deep
@pytest.mark.parametrize("reading", FIELDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_ball_holds_many_results(case, reading):
    for seed in range(40):
        held, out, exact = trial(case, reading, seed, has_norms=bool(seed % 2))
        assert held, (seed, out, exact)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_ball_is_small_where_its_arguments_are(case):
    """No rule hides behind an infinite radius: exact arguments give radii near the rounding."""
    exact = Case(case.name, case.shapes, case.oracle, case.call, case.scale, case.positive, tuple(range(9)))
    _, out, _ = trial(exact, "real", 5)
    finite = ~torch.isnan(out.mid)
    assert (out.radius[finite] <= 1e-12 * (1 + out.mid[finite].abs())).all()


TRUTHS = (".gt.", ".ge.", ".lt.", ".le.", ".eq.", ".ne.", ".any.", ".all.", "logical", "bitwise")


def test_every_rule_is_tried():
    moves = {name for name, rule in RULES.items() if rule.__module__.endswith("movement")}
    tried = {case.name for case in CASES}
    alike = {id(RULES[name]) for name in tried}
    left = {name for name in set(RULES) - moves if id(RULES[name]) not in alike}
    truths = {name for name in left if any(w in name for w in TRUTHS)}
    assert left - truths == {"aten._to_copy.default", "aten.argmax.default", "aten.argmin.default"}
    assert all(statement(rule).endswith(".") for rule in RULES.values())


def stripped(function, right, wrong):
    """A rule whose source says something wrong in one place, not registered."""
    import inspect
    import sys
    import textwrap

    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{function.__name__} no longer says {right!r} once: plant this fault anew"
    lines = source.replace(right, wrong).splitlines()
    body = "\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("def ")) :])
    names = {}
    exec(body, vars(sys.modules[function.__module__]), names)
    return names[function.__name__]


FAULTS = [
    (linear, "product", "spread = x.rad @ other", "spread = 0.0 * (x.rad @ other)", "aten.mm.default"),
    (linear, "product", "by_y = sizes @ y.rad", "by_y = 0.5 * (sizes @ y.rad)", "aten.mm.default"),
    (linear, "product", "local = x.mid @ y.mid, g * size", "local = x.mid @ y.mid, g / 16 * size", "aten.mm.default"),
    (linear, "at_once", "torch.add(x.rad,", "torch.add(0.5 * x.rad,", "aten.mm.default"),
    (linear, "at_once", "rad + sizes @ y.rad", "rad + 0.5 * (sizes @ y.rad)", "aten.mm.default"),
    (linear, "at_once", "off = g * sizes", "off = g / 64 * sizes", "aten.mm.default"),
    (pointwise, "times", "rad = x.rad * y.size", "rad = x.rad * 0.5 * y.size", "aten.mul.Tensor"),
    (pointwise, "plus", "rad = x.radius + y.radius", "rad = x.radius", "aten.add.Tensor"),
    (
        normalisation,
        "scores",
        "masked(at, found, mask)",
        "masked(at, found, ~mask)",
        "aten.scaled_dot_product_attention.default",
    ),
    (normalisation, "softmax", "(a * (1 - 2 * p).abs() +", "(0 * a +", "aten._softmax.default"),
]


@pytest.mark.parametrize("owner, name, right, wrong, rule", FAULTS)
def test_a_fault_in_a_shared_step_is_caught(owner, name, right, wrong, rule):
    faulty = stripped(getattr(owner, name), right, wrong)
    case = next(case for case in CASES if case.name == rule)
    with mock.patch.object(owner, name, faulty):
        assert not all(trial(case, reading, seed)[0] for seed in range(60) for reading in FIELDS)


RULE_FAULTS = [
    ("aten.native_layer_norm.default", "tau = rho / root * ENLARGE", "tau = 0 * rho"),
    ("aten.native_layer_norm.default", " if at.is_real else layer_norm_rounding(at, x.size, z, s0, d)", ""),
    ("aten.gelu.default", "steepest(x, share + m * density", "steepest(x, 0.5 * share"),
    ("aten.tanh.default", "steepest(x, 1 - value * value", "steepest(x, 0.5 - value * value"),
    ("aten.sigmoid.default", "0.0963, 0.25)", "0.0963, 0.15)"),
    ("aten.relu.default", "rad * ENLARGE < 0", "rad * ENLARGE < 1"),
    ("aten.sqrt.default", "(mid + below)", "(4 * mid + below)"),
    ("aten.amax.default", "x.radius.amax", "x.radius.amin"),
    ("aten.cumsum.default", "ball.rad.cumsum(dim)", "ball.rad"),
    ("aten.softplus.default", "steepest(x, share, b / 4, 1.0))", "0.9 * steepest(x, share, b / 4, 1.0))"),
    ("aten.elu.default", "steepest(x, N * k * inner", "0.5 * steepest(x, N * k * inner"),
]


@pytest.mark.parametrize("name, right, wrong", RULE_FAULTS)
def test_a_fault_in_a_rule_is_caught(name, right, wrong):
    faulty = stripped(RULES[name], right, wrong)
    cases = [case for case in CASES if case.name == name]
    held = (trial(case, reading, seed, False, faulty)[0] for case in cases for seed in range(60) for reading in FIELDS)
    assert not all(held)


def test_a_rule_with_a_branch_on_data_cannot_run():
    """Under vmap a branch on data raises: no verdict can depend on one input's branch for all."""
    from tests.models.small_modules import Lookup
    from verify.engine.capture import capture
    from verify.engine.run import enclose

    def branching(at, x):
        return Ball(x.mid.clamp(min=0), x.rad if (x.mid > 0).any() else None)

    class Relu(Lookup):
        def forward(self, tokens):
            return torch.relu(self.table[tokens])

    graph = capture(Relu().eval(), 2)
    run = enclose(graph, Arithmetic(), lambda out, tokens, answers: (out.mid,))
    tokens = torch.tensor([[0, 1], [1, 1]])
    run(tokens, tokens)
    with (
        mock.patch.dict(RULES, {"aten.relu.default": branching}),
        pytest.raises(RuntimeError, match="vmap"),
    ):
        run(tokens, tokens)


def test_comparisons_are_sure_only_where_the_balls_do_not_meet():
    x = Ball(torch.tensor([1.0, 1.0, 1.0, 2.0]).double(), torch.tensor([0.5, 0.1, 0.0, 0.0]).double())
    y = Ball(torch.tensor([1.2, 1.2, 1.0, 1.0]).double(), torch.tensor([0.0, 0.0, 0.0, 0.0]).double())
    greater, least = RULES["aten.gt.Tensor"](Arithmetic(), x, y), RULES["aten.ge.Tensor"](Arithmetic(), x, y)
    assert greater.known.tolist()[:2] == [False, True] and not greater.value[1]
    assert greater.known[3] and greater.value[3] and least.known[3] and least.value[3]
    same, other = RULES["aten.eq.Tensor"](Arithmetic(), x, y), RULES["aten.ne.Tensor"](Arithmetic(), x, y)
    assert same.known.tolist() == other.known.tolist() == [False, True, True, True]
    assert same.value.tolist()[1:] == [False, True, False] and other.value.tolist()[1:] == [True, False, True]
    some, every = RULES["aten.any.dim"](Arithmetic(), same, -1), RULES["aten.all.dim"](Arithmetic(), other, -1)
    assert some.known and some.value and every.known and not every.value
    assert not RULES["aten.all.default"](Arithmetic(), Unsure(x.mid > 0, x.mid > 1.5)).known
    both = RULES["aten.where.self"](Arithmetic(), greater, x, y)
    assert both.mid[0] - both.rad[0] <= 0.5 and both.mid[0] + both.rad[0] >= 1.5  # the hull of both
    opposite = RULES["aten.logical_not.default"](Arithmetic(), greater)
    assert opposite.known.tolist() == greater.known.tolist()
    settled = RULES["aten.logical_and.default"](Arithmetic(), greater, torch.tensor([False, True, True, True]))
    assert settled.known.tolist()[0] and isinstance(settled, Unsure)
    assert greater.known[2] and not greater.value[2] and least.known[2] and least.value[2]  # both are exact
    open_ = RULES["aten.logical_and.default"](Arithmetic(), greater, torch.ones(4, dtype=torch.bool))
    assert open_.known.tolist() == greater.known.tolist() == [False, True, True, True]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 9), columns=st.integers(1, 9), exponent=st.integers(-90, 90))
def test_the_spectral_norm_is_bounded(seed, rows, columns, exponent):
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(rows, columns, dtype=torch.float64, generator=generator) * 2.0**exponent
    true = torch.linalg.matrix_norm(W, 2)
    assert true * (1 - 1e-12) <= spectral_norm(W) <= true * 1.02


def careful_product_holds(seed, rows, k, columns, exponent):
    """Whether flint's product lies within the bound, and how many roundings of the largest terms the bound is."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(s, dtype=torch.float64, generator=generator) for s in ((rows, k), (k, columns)))
    x = x * 2.0 ** torch.randint(-30, 1, x.shape, generator=generator) * 2.0**exponent
    mid, off = linear.careful_product(x, y)
    with ctx.workprec(2500):
        exact = arb_mat(x.tolist()) * arb_mat(y.tolist())
        pairs = itertools.product(range(rows), range(columns))
        held = all(abs(arb(float(mid[i, j])) - exact[i, j]) <= arb(float(off[i, j])) for i, j in pairs)
    largest = x.abs().amax(-1, keepdim=True) * y.abs().amax(-2, keepdim=True)
    return held, float((off / (mid.abs() + 1e-5 * k**2 * largest)).max()) * 2.0**53


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 300), exponent=st.sampled_from([0, 0, 90, -90, 480, -480]))
def test_a_careful_product_is_off_by_two_roundings(seed, k, exponent):
    held, roundings = careful_product_holds(seed, 3, k, 2, exponent)
    assert held and (roundings <= 4 or abs(exponent) > 400)


def test_leading_parts_that_are_too_long_are_caught():
    assert all(careful_product_holds(seed, 2, 64, 2, 0)[0] for seed in range(40))
    with planted(linear, "careful_product", "(52 - ", "(80 - "):
        assert not all(careful_product_holds(seed, 2, 64, 2, 0)[0] for seed in range(40))


def test_casts_between_formats():
    """Real numbers stay as they are; in a dtype a cast is a rounding, and one to fewer bits than that is not known."""
    x = Ball(torch.tensor([1.0]).double())
    cast = RULES["aten._to_copy.default"]
    assert cast(Arithmetic(), x, dtype=torch.bfloat16).rad is None
    for dtype in (torch.bfloat16, torch.float32):
        rad = cast(Arithmetic(BFLOAT16), x, dtype=dtype).rad
        assert 2.0**-9 < rad < 2.0**-7
    assert torch.isnan(cast(Arithmetic(FLOAT32), x, dtype=torch.bfloat16).rad).all()
    assert cast(Arithmetic(FLOAT32), torch.tensor([3]), dtype=torch.bfloat16).rad is None


def test_faults_in_casts_are_caught():
    x, cast = Ball(torch.tensor([1.0]).double()), RULES["aten._to_copy.default"]
    unrounded = stripped(cast, "at.result(ball.mid", "Arithmetic().result(ball.mid")
    assert unrounded(Arithmetic(BFLOAT16), x, dtype=torch.bfloat16).rad < 2.0**-9
    narrow = stripped(cast, "if is_narrower else out", "if False else out")
    assert not torch.isnan(narrow(Arithmetic(FLOAT32), x, dtype=torch.bfloat16).rad).any()


def elu_across_zero(rule):
    """Whether balls that have 0 in them hold ELU at both ends."""
    held = True
    for mid, alpha in ((0.1, 3.0), (-0.1, 0.3), (-0.1, 3.0), (0.1, -2.0)):
        out = rule(Arithmetic(), Ball(torch.tensor([mid]).double(), torch.tensor([0.3]).double()), alpha)
        ends = torch.tensor([mid - 0.3, mid + 0.3]).double()
        held &= bool((torch.nn.functional.elu(ends, alpha) - out.mid).abs().max() <= out.rad * (1 + 1e-12))
    return held


def test_elu_across_zero():
    assert elu_across_zero(RULES["aten.elu.default"])
    for right, wrong in (("m - r * ENLARGE > 0, m", "m > 0, m"), ("m + r * ENLARGE < 0", "m < 0")):
        assert not elu_across_zero(stripped(RULES["aten.elu.default"], right, wrong))


def first_places(argmax=None):
    exact = Ball(torch.tensor([1.0, 3.0, 3.0, 2.0]).double())
    near = Ball(exact.mid, torch.tensor([0.0, 0.1, 0.1, 0.0]).double())
    found = [(argmax or RULES["aten.argmax.default"])(Arithmetic(), x) for x in (exact, near)]
    return [(int(x.low), int(x.high)) for x in found]


def test_the_first_of_several_largest_is_meant():
    assert first_places() == [(1, 1), (1, 2)]
    wrong = "high < other_low, high <= other_low"
    with planted(order, "place", "high <= other_low, high < other_low", wrong):
        assert first_places() != [(1, 1), (1, 2)]


def test_softplus_may_overflow_below_its_threshold():
    found = RULES["aten.softplus.default"](Arithmetic(FORMATS["float16"]), Ball(torch.tensor([9.0, 12.0]).double()))
    assert torch.isnan(found.rad).tolist() == [False, True]


def test_infinite_masks_stay_exact():
    scores = Ball(torch.tensor([[0.5, 1.0]]).double(), torch.full((1, 2), 1e-3).double())
    mask = Arithmetic().tensor(torch.tensor([[0.0, -torch.inf]]))
    out = RULES["aten._softmax.default"](Arithmetic(), RULES["aten.add.Tensor"](Arithmetic(), scores, mask), -1, False)
    assert out.mid.tolist() == [[1.0, 0.0]] and out.rad[0, 1] == 0 and out.rad[0, 0] < 1e-2
    nothing = Ball(torch.full((1, 2), -torch.inf).double(), infinite=True)
    assert torch.isnan(RULES["aten._softmax.default"](Arithmetic(), nothing, -1, False).mid).all()
    assert (RULES["aten._safe_softmax.default"](Arithmetic(), nothing, -1).mid == 0).all()


def test_a_number_beyond_the_dtype_decides_nothing():
    at = Arithmetic(FORMATS["float16"])
    big = at.tensor(torch.tensor([300.0]))
    assert torch.isnan(RULES["aten.mul.Tensor"](at, big, big).rad).all()
    assert torch.isnan(at.tensor(torch.tensor([1e6])).radius).all()
    assert torch.isnan(at.number(1e6, torch.zeros(())).radius)


def test_a_column_times_a_row_moves_by_more_than_the_column():
    """(n, 1) times (m,): the l2 norm of the column's spread is not that of the product's rows, sqrt(m) larger."""
    column = Ball(
        torch.ones(3, 1, dtype=torch.float64),
        torch.full((3, 1), 0.5, dtype=torch.float64),
        Norm(torch.full((3, 1), 0.5, dtype=torch.float64)),
    )
    row = Ball(torch.ones(4, dtype=torch.float64), None, None)
    product = times(Arithmetic(has_norms=True), column, row)
    spread = length(torch.full((3, 4), 0.5, dtype=torch.float64))
    assert product.norm is None or bool((product.norm.radius >= spread).all())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["aten._native_batch_norm_legit_no_training.default", "aten._fused_rms_norm.default"])
def test_the_three_factors_of_a_norm_are_multiplied_in_any_order(name, seed):
    """Two of them overflow in float16, or are lost, where all three do not: then the ball is no number, or holds it."""
    g, at, eps = torch.Generator().manual_seed(seed), Arithmetic(FORMATS["float16"]), 2.0**-20
    x, w, var = (torch.exp2(16 * torch.rand(512, generator=g) - (k * 8)).half() for k in (1, 0, 1))
    if name.startswith("aten._fused"):
        x = torch.stack([x, -x], -1)
        w = torch.tensor([2.0**14, 2.0**-8]).half()
        found = [RULES[name](at, Ball(row.double()[None]), [2], Ball(w.double()), eps)[0] for row in x]
        mid, radius = (torch.cat(part) for part in zip(*((ball.mid, ball.radius) for ball in found), strict=True))
        root = (1 / (x.double().square().mean(-1, keepdim=True) + eps).sqrt()).half()
    else:
        x, zero = x[None], Ball(torch.zeros(512, dtype=torch.float64))
        ball, *_ = RULES[name](at, *(Ball(y.double()) for y in (x, w)), zero, zero, Ball(var.double()), 0.1, eps)
        mid, radius, root = ball.mid, ball.radius, (1 / (var.double() + eps).sqrt()).half()
    for run in ((x * w) * root, (x * root) * w, (root * w) * x):
        off = (run.double() - mid).abs()
        assert bool((torch.isnan(radius) | (off <= radius)).all())
    assert 0.02 < torch.isnan(radius).double().mean() < 0.9


def norm_of_one_row(name, at, row):
    """The ball of a norm of one row without weight and bias."""
    x = Ball(torch.tensor([row], dtype=torch.float64))
    if name == "layer norm":
        return RULES["aten.native_layer_norm.default"](at, x, [len(row)], None, None, 2.0**-40)[0]
    if name == "group norm":
        x = Ball(x.mid.unsqueeze(-1))
        return RULES["aten.native_group_norm.default"](at, x, None, None, 1, len(row), 1, 1, 2.0**-40)[0]
    if name == "rms norm":
        return RULES["aten._fused_rms_norm.default"](at, x, [len(row)], None, 2.0**-40)[0]
    zero, one = (torch.full((len(row),), value, dtype=torch.float64) for value in (0.0, 1.0))
    return RULES["aten._native_batch_norm_legit_no_training.default"](
        at, x, Ball(one), Ball(zero), Ball(zero), Ball(one), 0.1, 2.0**-40
    )[0]


ROWS = {"layer norm": [1.0, -1.0], "group norm": [1.0, -1.0] + 62 * [0.0], "rms norm": [1.0, 1.0], "batch norm": [1.0]}


def worst_root_is_held(name, p):
    """Whether the ball holds a result each of whose roundings errs by u upwards, where the root is 8 u too small."""
    fmt = format_of_bits(p)
    at = Arithmetic(fmt, FLOAT32 if name == "group norm" and p < 24 else None)
    ball = norm_of_one_row(name, at, ROWS[name])
    mid, radius = float(ball.mid.flatten()[0]), float(ball.radius.flatten()[0])
    if p >= 12:
        assert radius < 0.1
    u, root = fmt.u, 1 - 8 * fmt.u
    squares = (1 - u) ** (2 if name == "batch norm" else 4)  # their mean, and eps added
    if root <= 0:
        return not math.isfinite(radius)
    worst = mid * (1 + u) ** 4 / (squares**0.5 * root * (1 - u))  # 1/root, products with weight and x, and the bias
    return not math.isfinite(radius) or worst <= mid + radius


@pytest.mark.parametrize("name", ROWS)
def test_a_root_may_be_off_by_all_that_it_is_allowed(name):
    assert all(worst_root_is_held(name, p) for p in (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 40))


ROOT_FAULTS = [
    ("((1 + self.u) ** roundings / (1 - off) - 1)", "(roundings * self.u + off)", "batch norm"),
    ("if off < 1 else math.inf", "if off < 1 else 3.0", "batch norm"),
]


@pytest.mark.parametrize("right, wrong, name", ROOT_FAULTS)
def test_errors_of_roots_that_are_only_added_are_caught(right, wrong, name):
    with planted(Arithmetic, "by_root", right, wrong):
        assert not all(worst_root_is_held(name, p) for p in range(2, 9))


def least_room_for_scaled_factors(accumulate):
    """How much of a ball is left, at least, of scores q r . k r with r the root of a scale, each product rounded."""

    def near(x):
        return x.bfloat16().double()

    x, root = torch.arange(128, 256).double() / 128, torch.tensor(1.035).double()
    scaled = near(x * near(root))
    numbers = Ball(x.reshape(1, 128, 1), torch.zeros(1, 128, 1).double())
    at = Arithmetic(FORMATS["bfloat16"], accumulate)
    found = normalisation.scores(at, numbers, numbers, None, False, float(root.square()))
    return float((found.radius[0] - (near(scaled[:, None] * scaled) - found.mid[0]).abs()).min())


@pytest.mark.parametrize("sums", [None, "float32"])
def test_the_root_of_a_scale_is_rounded_and_so_are_both_factors(sums):
    assert least_room_for_scaled_factors(FORMATS.get(sums)) > 0


def test_a_root_of_a_scale_that_is_taken_as_exact_is_caught():
    with mock.patch.object(normalisation, "scores", stripped(normalisation.scores, "4 * at.u * factor.size", "0.0")):
        assert least_room_for_scaled_factors(FORMATS["float32"]) < 0
