"""What may be no number stays so: through every rule, wherever the result depends on it; and so does what overflows."""

import re

import pytest
import torch
from flint import arb
from models.selection import every

from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.engine import exact
from verify.engine.balls import Arithmetic, Ball, Norm, Unsure, Whole, length
from verify.engine.rules import RULES, linear, normalisation, pointwise

ONE, TWO, SAME = [(2, 4)], [(2, 3), (3,)], [(2, 3), (2, 3)]
HEADS = [(3, 2), (3, 2), (3, 2)]
PLACES, TRUTHS = torch.tensor([[1, 0, 1], [0, 1, 1]]), torch.tensor([[True, False, True], [False, True, True]])
CAUSAL = torch.ones(3, 3).tril().bool()


def call(name, shapes, *arguments, **options):
    return name, shapes, lambda rule, at, *x: rule(at, *x, *arguments, **options)


def listed(name, shapes, *arguments):
    return name, shapes, lambda rule, at, *x: rule(at, list(x), *arguments)


UNSURE = ("where.self", SAME, lambda rule, at, x, y: rule(at, Unsure(TRUTHS, ~TRUTHS), x, y))
CALLS = [
    *(call(name, [(2, 3), (3, 2)]) for name in ("mm.default", "matmul.default")),
    call("bmm.default", [(2, 2, 3), (2, 3, 2)]),
    call("mv.default", [(2, 3), (3,)]),
    call("dot.default", [(3,), (3,)]),
    call("linear.default", [(2, 3), (4, 3), (4,)]),
    call("linear.default", [(3,), (4, 3)]),
    call("addmm.default", [(2,), (2, 3), (3, 2)], alpha=2.0, beta=0.5),
    call("baddbmm.default", [(2, 2, 2), (2, 2, 3), (2, 3, 2)], alpha=2.0, beta=0.5),
    *(call(f"{name}.Tensor", TWO) for name in ("add", "sub", "rsub", "mul", "div", "eq", "ne", "gt", "ge", "lt", "le")),
    *(call(f"{n}.Scalar", ONE, 0.7) for n in ("add", "sub", "rsub", "mul", "div", "eq", "ne", "gt", "ge", "lt", "le")),
    *(
        call(f"{name}.default", ONE)
        for name in ("neg", "abs", "reciprocal", "sqrt", "rsqrt", "relu", "leaky_relu", "exp")
    ),
    *(call(f"{name}.default", ONE) for name in ("log", "sigmoid", "tanh", "erf", "gelu", "silu", "sin", "cos")),
    *(
        call(f"{name}.default", ONE)
        for name in ("amax", "amin", "sum", "mean", "t", "squeeze", "clone", "alias", "detach")
    ),
    *(call(f"{name}.default", ONE) for name in ("contiguous", "lift_fresh_copy", "lift_fresh", "_to_copy")),
    call("gelu.default", ONE, approximate="tanh"),
    *(call(f"{name}.default", ONE) for name in ("log1p", "expm1", "softplus", "elu", "sort")),
    call("softplus.default", ONE, 2.0, 1.0),
    call("elu.default", ONE, 0.7, 1.5, 0.5),
    call("sort.default", [(2, 3)], 0, True),
    call("topk.default", ONE, 2, 1, False),
    *(call(f"{name}.default", ONE, -1) for name in ("argmax", "argmin")),
    (
        "_native_batch_norm_legit_no_training.default",
        [(2, 3, 2), (3,), (3,), (3,), (3,)],
        lambda rule, at, x, w, b, m, v: rule(at, x, w, b, m, v, 0.1, 1e-5)[0],
    ),
    call("scaled_dot_product_attention.default", [(4, 3, 2), (2, 3, 2), (2, 3, 2)], enable_gqa=True),
    *(call("pow.Tensor_Scalar", ONE, exponent) for exponent in (1, 2, 3, 0.5, -0.5, -1)),
    ("pow.Scalar", ONE, lambda rule, at, x: rule(at, 0.3, x)),
    *(call(name, ONE, -1.0, 2.0) for name in ("clamp.default", "hardtanh.default")),
    *(call(name, TWO) for name in ("maximum.default", "minimum.default")),
    *(call(name, ONE, [-1], True) for name in ("amax.default", "amin.default", "sum.dim_IntList", "mean.dim")),
    call("cumsum.default", ONE, 1),
    call("var.correction", ONE, [-1], correction=1),
    *(call(name, ONE, -1, False) for name in ("_softmax.default", "softmax.int", "_safe_softmax.default")),
    call("_softmax.default", ONE, 0, False),
    call("_log_softmax.default", ONE, -1, False),
    call("scaled_dot_product_attention.default", HEADS),
    call("scaled_dot_product_attention.default", HEADS, CAUSAL),
    call("scaled_dot_product_attention.default", HEADS, is_causal=True),
    ("native_layer_norm.default", [(2, 4), (4,), (4,)], lambda rule, at, x, w, b: rule(at, x, [4], w, b, 1e-5)[0]),
    ("native_group_norm.default", [(1, 4, 2)], lambda rule, at, x: rule(at, x, None, None, 1, 4, 2, 2, 1e-5)[0]),
    ("_fused_rms_norm.default", [(2, 4), (4,)], lambda rule, at, x, w: rule(at, x, [4], w, 1e-6)[0]),
    *(call(f"{name}.default", ONE, [4, 2]) for name in ("view", "_unsafe_view", "reshape")),
    call("permute.default", ONE, [1, 0]),
    call("transpose.int", ONE, 0, 1),
    call("expand.default", [(2, 1)], [2, 3]),
    call("unsqueeze.default", ONE, 0),
    call("squeeze.dim", [(2, 1, 3)], 1),
    call("squeeze.dims", [(2, 1, 3)], [1]),
    call("slice.Tensor", ONE, 1, 1, 3),
    call("select.int", ONE, 1, 2),
    call("split_with_sizes.default", ONE, [1, 3], 1),
    call("split.Tensor", ONE, 2, 1),
    call("unbind.int", ONE, 0),
    listed("cat.default", SAME, 1),
    listed("stack.default", SAME, 0),
    call("flip.default", ONE, [1]),
    call("repeat.default", ONE, [2, 1]),
    call("roll.default", ONE, [1], [1]),
    call("diagonal.default", ONE),
    *(call(name, ONE) for name in ("triu.default", "tril.default")),
    call("gather.default", [(2, 3)], 1, PLACES),
    call("index_select.default", ONE, 1, torch.tensor([0, 2])),
    call("constant_pad_nd.default", ONE, [1, 0], 0.5),
    call("embedding.default", ONE, torch.tensor([1, 0, 1])),
    call("index.Tensor", ONE, [None, torch.tensor([3, 1])]),
    call("select_scatter.default", [(2, 4), (2,)], 1, 2),
    call("slice_scatter.default", [(2, 4), (2, 2)], 1, 1, 3),
    call("copy.default", SAME),
    ("where.self", SAME, lambda rule, at, x, y: rule(at, TRUTHS, x, y)),
    UNSURE,
    ("where.ScalarSelf", [(2, 3)], lambda rule, at, x: rule(at, TRUTHS, 0.5, x)),
    ("where.ScalarOther", [(2, 3)], lambda rule, at, x: rule(at, TRUTHS, x, 0.5)),
]
# they take no computed floats, but truth values, which a number that is none leaves not sure
OF_TRUTH_VALUES = {
    RULES[f"aten.{name}"]
    for name in (
        "any.dim", "all.dim", "logical_and.default", "logical_or.default", "logical_not.default",
        "logical_xor.default",
    )
}  # fmt: skip
TRUTH = re.compile(r"^(eq|ne|gt|ge|lt|le)\.")
POSITIVE = ("_native_batch_norm_legit_no_training", "log1p", "reciprocal", "sqrt", "rsqrt", "log", "div", "pow")
PLACES_ALONE = ("argmax.default", "argmin.default")
EXACT = [
    c for c in CALLS
    if f"aten.{c[0]}" in exact.OPERATIONS and not TRUTH.match(c[0]) and c is not UNSURE and c[0] not in PLACES_ALONE
]  # fmt: skip
ARITHMETICS = [Arithmetic(f, None, n) for f in (None, FORMATS["float16"]) for n in (False, True)]


def test_every_rule_is_called():
    called = {id(RULES[f"aten.{name}"]) for name, _, _ in CALLS} | {id(rule) for rule in OF_TRUTH_VALUES}
    assert [name for name, rule in RULES.items() if id(rule) not in called] == []


def ball(mid, rad, has_norms):
    return Ball(mid, rad, Norm(length(rad)) if has_norms and mid.ndim else None)


def parts(out):
    return list(out) if isinstance(out, list | tuple) else [out]


def middle(out):
    """The numbers of a ball, truth values, or the first of the places that may be it."""
    return out.value if isinstance(out, Unsure) else out.low if isinstance(out, Whole) else out.mid


def is_sure(out):
    if isinstance(out, Whole):
        return out.low == out.high
    return out.known if isinstance(out, Unsure) else ~torch.isnan(out.mid + out.radius)


def changed(mid, place, value):
    new = mid.clone()
    new.view(-1)[place] = value
    return new


def dependent(run, mids, i, place, values):
    """Where the result changes as one number of argument i does: truth values of each part."""
    found = [middle(part) for part in parts(run(mids))]
    moves = [torch.zeros_like(x, dtype=torch.bool) for x in found]
    for value in values:
        others = parts(run([changed(mid, place, value) if j == i else mid for j, mid in enumerate(mids)]))
        for move, x, other in zip(moves, found, others, strict=True):
            y = middle(other)
            move |= (x != y) & ~(torch.isnan(x) & torch.isnan(y))
    return moves


def points(name, shapes):
    """Numbers of these shapes, and others that one of them may change to."""
    generator, is_positive = torch.Generator().manual_seed(3), name.split(".")[0] in POSITIVE
    mids = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    mids = [mid.abs() + 0.5 if is_positive else mid for mid in mids]
    return mids, [0.2, 1.3, 3.7, 40.0, *([] if is_positive else [-0.4, -2.0, -40.0])]


def laundered(name, shapes, calling, at, stride=5):
    """Says where a result has a radius though it depends on what may be no number."""
    rule, mids, values = RULES[f"aten.{name}"], *points(name, shapes)

    def enclosed(points):
        return calling(rule, Arithmetic(), *(Ball(x) for x in points))

    for i, mid in enumerate(mids):
        for place in range(0, mid.numel(), stride):
            moves = dependent(enclosed, mids, i, place, values)
            for middle in (float(mid.view(-1)[place]), torch.nan):
                rads = [torch.full_like(x, 1e-6) for x in mids]
                balls = [ball(x, rad, at.has_norms) for x, rad in zip(mids, rads, strict=True)]
                mid_there, rad_there = changed(mid, place, middle), changed(rads[i], place, torch.nan)
                balls[i] = Ball(mid_there, rad_there, balls[i].norm)
                for move, out in zip(moves, parts(calling(rule, at, *balls)), strict=True):
                    if bool((move & is_sure(out)).any()):
                        yield f"{name}: argument {i}, number {place}, midpoint {middle}"


@pytest.mark.parametrize("at", every(2, ARITHMETICS[1::2]), ids=["real", "float16"])
def test_what_may_be_no_number_stays_so(at):
    assert [message for case in CALLS for message in laundered(*case, at)] == []


@pytest.mark.deep
@pytest.mark.parametrize("at", ARITHMETICS, ids=["real", "real, l2", "float16", "float16, l2"])
def test_what_may_be_no_number_stays_so_at_every_place(at):
    assert [message for case in CALLS for message in laundered(*case, at, 1)] == []
    assert [message for case in EXACT for message in laundered_exactly(*case, 1)] == []


def laundered_exactly(name, shapes, calling, stride=5):
    """As `laundered`, for the arithmetic of many bits."""
    operation, mids, values = exact.OPERATIONS[f"aten.{name}"], *points(name, shapes)

    def run(arrays):
        return parts(calling(lambda at, *x, **options: operation(*x, **options), None, *arrays))

    def enclosed(points):
        return calling(RULES[f"aten.{name}"], Arithmetic(), *(Ball(x) for x in points))

    for i, mid in enumerate(mids):
        for place in range(0, mid.numel(), stride):
            arrays = [exact.balls(x) for x in mids]
            arrays[i].reshape(-1)[place] = arb("nan")
            try:
                outs = run(arrays)
            except exact.Undecidable:
                continue
            for move, out in zip(dependent(enclosed, mids, i, place, values), outs, strict=True):
                if out is exact.UNKNOWN:
                    continue
                found = [x is exact.MINUS_INFINITY or not x.is_nan() for x in out.reshape(-1)]
                if bool((move.reshape(-1) & torch.tensor(found)).any()):
                    yield f"{name}: argument {i}, number {place}"


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_sine_of_infinity_is_no_number_in_many_bits(name):
    found = exact.OPERATIONS[f"aten.{name}.default"](exact.balls(torch.tensor([torch.inf, 1.0])))
    assert [x.is_nan() for x in found] == [True, False]


def test_what_may_be_no_number_stays_so_in_many_bits():
    assert len(EXACT) > 50 and [message for case in EXACT for message in laundered_exactly(*case)] == []
    none, mask = arb("nan"), exact.MINUS_INFINITY
    assert exact.added(none, mask).is_nan() and exact.added(mask, none).is_nan() and exact.added(mask, arb(1)) is mask


def overflowing(name, shapes, calling, size):
    """Where torch's own float16 overflows, or gives no number, and the rule's ball has a radius."""
    operation = getattr(getattr(torch.ops.aten, name.split(".")[0]), name.split(".")[1])
    generator = torch.Generator().manual_seed(5)
    halves = [(torch.randn(shape, generator=generator) * size).clamp(-65504, 65504).half() for shape in shapes]
    try:
        run = calling(lambda at, *x, **options: operation(*x, **options), None, *halves)
    except (RuntimeError, TypeError):  # no float16 kernel; truth values that are not sure
        return
    at = Arithmetic(FORMATS["float16"])
    for value, out in zip(parts(run), parts(calling(RULES[f"aten.{name}"], at, *map(at.tensor, halves))), strict=True):
        if isinstance(out, Ball) and bool((torch.isfinite(out.mid + out.radius) & ~torch.isfinite(value)).any()):
            yield f"{name} at {size}"


def test_what_overflows_has_no_radius():
    sizes = (1e-8, 1e-3, 10.0, 300.0, 6e4)
    assert [message for case in CALLS for size in sizes for message in overflowing(*case, size)] == []
    at = Arithmetic(FORMATS["float16"])
    whole = RULES["aten._to_copy.default"](at, torch.tensor([2048, 65504, 65520, -100000]))
    assert torch.isnan(whole.radius).tolist() == [False, False, True, True]
    tf32 = Arithmetic(FORMATS["tf32"]).tensor(torch.tensor([3e38, 1e39], dtype=torch.float64))
    assert torch.isnan(tf32.radius).tolist() == [False, True]
    tiny, number = at.tensor(torch.tensor([1e-5])), at.tensor(torch.tensor([1e-3]))
    assert torch.isnan(RULES["aten.div.Tensor"](at, number, tiny).radius).all()  # a times the rounded 1/b


def float16(*rows):
    return Ball(torch.tensor(rows, dtype=torch.float64))


def biased_first():
    """(40000 + 30000) - 30000 in float16."""
    at, bias = Arithmetic(FORMATS["float16"]), float16([4e4]).mid[0]
    return RULES["aten.linear.default"](at, float16([3e4, -3e4]), float16([1.0, 1.0]), Ball(bias)).radius.isnan().all()


def scaled_first(q, k, scale):
    """How far the first of two weights may be from its middle, their values being 1 and 0."""
    keys, rule = float16([k], [0.0]), RULES["aten.scaled_dot_product_attention.default"]
    out = rule(Arithmetic(FORMATS["float16"]), float16([q]), keys, float16([1.0], [0.0]), scale=scale)
    return out.mid, out.radius


def underflows():
    mid, radius = scaled_first(2.0**-14, 2.0**15, 0.5)
    return mid.item() > 0.7 and not radius.item() < mid.item() - 0.5  # a query of 0 has the weight 1/2


@pytest.mark.parametrize(
    "case, owner, function, right, wrong",
    [
        (biased_first, linear, "biased", "at.checked(size, (share", "(lambda _, off: off)(size, (share"),
        (underflows, normalisation, "scores", "4 * at.tiny * loud", "0 * loud"),
    ],
)
def test_another_order_that_leaves_the_range_is_held(case, owner, function, right, wrong):
    assert case()
    with planted(owner, function, right, wrong):
        assert not case()


@pytest.mark.parametrize("options", [{"mask": CAUSAL}, {"is_causal": True}])
def test_a_score_that_may_be_no_number_is_not_masked(options):
    """Kernels add -inf to it: torch's own run has no number in the first row either."""
    q, k, v = (torch.randn(1, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(3))
    rad = torch.zeros_like(k)
    rad[0, 2] = torch.nan
    out = RULES["aten.scaled_dot_product_attention.default"](Arithmetic(), Ball(q), Ball(k, rad), Ball(v), **options)
    assert torch.isnan(out.radius).all()
    k[0, 2] = torch.nan
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert torch.isnan(torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=CAUSAL)).all()


@pytest.mark.parametrize(
    "owner, function, right, wrong, name",
    [
        (normalisation, "softmax", "torch.isnan(p) | spoilt", "torch.isnan(p)", "_softmax.default"),
        (pointwise, "within", "torch.minimum(x.rad, reach)", "torch.fmin(x.rad, reach)", "tanh.default"),
    ],
)
def test_a_step_that_launders_is_caught(owner, function, right, wrong, name):
    case = next(case for case in CALLS if case[0] == name)
    with planted(owner, function, right, wrong):
        assert any(True for at in ARITHMETICS for _ in laundered(*case, at))
