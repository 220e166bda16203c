"""Each result rounded once: runs in random orders stay within what is proved, and every line of a step is needed."""

import itertools
import math
from unittest import mock

import pytest
import torch
from models.selection import every, first
from torch import nn
from torch.nn import functional as F

from tests.models.small_modules import JUDGED
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.engine import few_bits
from verify.engine.balls import Arithmetic, Ball, Step
from verify.engine.capture import capture
from verify.engine.few_bits import bounds
from verify.engine.margins import Question
from verify.engine.rules import RULES, normalisation
from verify.engine.rules.linear import SLOPES, plus, product
from verify.engine.run import enclose

BF16, HALF, WIDE = (FORMATS[name] for name in ("bfloat16", "float16", "float32"))


def test_exponents_are_the_same_with_and_without_the_bits():
    powers = 2.0 ** torch.arange(-200, 201, dtype=torch.float64)
    x = torch.cat([powers, torch.nextafter(powers, torch.tensor(0.0).double()), -3 * powers, torch.tensor([0.0])])
    with mock.patch.object(few_bits, "_has_bits_in_batches", lambda: False):
        without = few_bits.exponent(x)
    assert torch.equal(few_bits.exponent(x), without) and without.dtype == torch.int64
    inside = x.abs().clamp(1 / few_bits.RANGE, few_bits.RANGE)
    two = torch.tensor(2.0).double()
    assert (inside < two**without).all() and (inside >= two ** (without - 1)).all()


# one step: what it says of a difference from the midpoint


def stepped(operation, mid, rad, seed, runs=4000):
    """An operation on a ball that is off by `rad`, its tape, and differences dx in the ball and at its corners."""
    draw = torch.Generator().manual_seed(seed)
    tape: list[Step] = []
    at = Arithmetic(WIDE, None, True, tape)
    x = at.record(Ball(mid, rad), (), rad, lambda slope: ())
    out = operation(at, x)
    dx = rad * (2 * torch.rand(runs, *mid.shape, generator=draw).double() - 1)
    dx[::2] = rad * dx[::2].sign()
    with torch.no_grad():
        return x, out, tape, dx


def is_within(tape, x, out, dx, exactly):
    """Whether all differences of the result are as the steps of the tape say."""
    found = exactly(x.mid + dx).flatten(1) - out.mid.reshape(1, -1)
    for i in range(out.mid.numel()):
        slopes = {id(out): Ball((torch.arange(out.mid.numel()) == i).double().reshape(out.mid.shape))}
        off = torch.zeros(len(dx)).double()
        for step in reversed(tape):
            if id(step.out) in slopes and step.out is not x:
                g = slopes.pop(id(step.out))
                off = off + ((g.mid.abs() + g.radius) * step.local).sum()
                for ball, more in zip(step.inputs, step.pull(g), strict=True):
                    before = slopes.get(id(ball))
                    slopes[id(ball)] = more if before is None else plus(SLOPES, before, more)
        g = slopes[id(x)]
        middle = (g.mid * dx).flatten(1).sum(1)
        off = off + (g.radius * dx.abs()).flatten(1).sum(1)
        if bool(((found[:, i] - middle).abs() > off * (1 + 1e-9) + 1e-14).any()):
            return False
    return True


STEPS = {
    "softmax": (lambda at, x: few_bits.softmax(at, x, -1, 0.0), lambda x: torch.softmax(x, -1)),
    "layer norm": (
        lambda at, x: few_bits.layer_norm(at, x, None, None, 1e-5),
        lambda x: F.layer_norm(x, (x.shape[-1],)),
    ),
    "relu": (lambda at, x: few_bits.relu(at, x), torch.relu),
    "gelu": (lambda at, x: few_bits.linearised(at, RULES["aten.gelu.default"], x), F.gelu),
    "silu": (lambda at, x: few_bits.linearised(at, RULES["aten.silu.default"], x), F.silu),
    "tanh": (lambda at, x: few_bits.linearised(at, RULES["aten.tanh.default"], x), torch.tanh),
    "square": (lambda at, x: few_bits.centred_product(at, x, x), lambda x: x @ x),
}


def all_within(name, seeds=8, scales=(0.02, 0.1, 0.3, 1.0)):
    operation, exactly = STEPS[name]
    across = torch.tensor([[1.0, -1, 0, 0]] * 4).double(), torch.tensor([[0.0, 0, 0.3, 0.3]] * 4).double()
    x, out, tape, dx = stepped(operation, *across, 0, 200)  # nothing moves along the vectors themselves
    if not is_within(tape, x, out, dx, exactly):
        return False
    for seed, scale in itertools.product(range(seeds), scales):
        draw = torch.Generator().manual_seed(seed)
        mid = torch.randn(4, 4, generator=draw).double()
        rad = scale * torch.rand(4, 4, generator=draw).double()
        x, out, tape, dx = stepped(operation, mid, rad, seed, 200)
        if not is_within(tape, x, out, dx, exactly):
            return False
    return True


@pytest.mark.parametrize("name", first(1, STEPS))
def test_a_step_says_how_its_result_moves(name):
    assert all_within(name)


FAULTS = [
    ("softmax", "softmax", "torch.where(is_near, second + own + rounding", "torch.where(is_near, own + rounding"),
    ("softmax", "softmax", "torch.maximum(phi, total", "torch.minimum(0 * phi, total"),
    ("softmax", "softmax", "centred = g - (p * g).sum(dim, keepdim=True)", "centred = g"),
    ("layer_norm", "layer norm", "(rounding + own + second)", "(rounding + own)"),
    ("layer_norm", "layer norm", "a_off * centred.abs() + b_off * c.abs() * share.abs() + rounds", "rounds"),
    ("layer_norm", "layer norm", "centred / s - c * share * b", "centred / s"),
    ("relu", "relu", "local = (mu + off) * ENLARGE", "local = off"),
    ("relu", "relu", "torch.where(is_unsure, slope * x.mid + mu,", "torch.where(is_unsure, slope * x.mid,"),
    ("linearised", "gelu", "local + slope.radius * x.radius", "local"),
    ("centred_product", "square", "tape[-1].local + second", "tape[-1].local"),
]


@pytest.mark.parametrize("function, name, right, wrong", first(3, FAULTS))
def test_wrong_steps_are_caught(function, name, right, wrong):
    with planted(few_bits, function, right, wrong):
        assert not all_within(name)


def all_tightened():
    """Whether radii that were bounded backwards hold what a difference of two products can be."""
    draw = torch.Generator().manual_seed(0)
    w, v = (torch.randn(4, 4, generator=draw).double() for _ in range(2))

    def twice(at, x):
        return product(at, product(at, x, Ball(w)), Ball(v))

    x, out, tape, dx = stepped(twice, torch.randn(4, 4, generator=draw).double(), torch.ones(4, 4).double(), 0)
    tight = few_bits.tightened(Arithmetic(WIDE, None, True, tape), out)
    found = ((x.mid + dx) @ w @ v - out.mid).abs().amax(0)
    return bool((found <= tight.rad).all()) and bool((tight.rad < 0.9 * out.rad).any())


def test_radii_bounded_backwards():
    assert all_tightened()
    with planted(few_bits, "tightened", "torch.fmin(x.rad, found)", "0.5 * torch.fmin(x.rad, found)"):
        assert not all_tightened()


def is_rounded_right(fmt, dtype):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(20000, generator=draw).double() * torch.exp2(torch.randint(-12, 8, (20000,), generator=draw))
    x = x.float().double()
    near = x.float().to(dtype).double()
    for share in (0.0, 0.1, 0.6, 3.0):
        rad = share * few_bits.half_spacing(x, fmt)
        out = few_bits.rounded_once(Arithmetic(WIDE, None, True, []), Ball(x, rad), fmt)
        for end in (x - rad, x, x + rad):
            run = end.float().to(dtype).double()
            inside = (end.float().double() - x).abs() <= rad
            if not bool((((run - out.mid).abs() <= out.rad) | ~inside).all()):
                return False
    exactly = few_bits.rounded_once(Arithmetic(WIDE, None, True, []), Ball(x, torch.zeros_like(x)), fmt)
    is_normal = x.abs() > 2 * fmt.tiny
    return bool(((exactly.mid == near) & (exactly.rad == 0))[is_normal & (near.abs() < fmt.largest)].all())


@pytest.mark.parametrize("fmt, dtype", [(BF16, torch.bfloat16), (HALF, torch.float16)])
def test_rounding_is_that_of_torch(fmt, dtype):
    assert is_rounded_right(fmt, dtype)
    with planted(few_bits, "rounded_once", "(high - low) / 2", "0 * (high - low)"):
        assert not is_rounded_right(fmt, dtype)
    with planted(few_bits, "rounded_once", "(half + fmt.tiny)", "0.5 * half"):
        assert not is_rounded_right(fmt, dtype)


def test_what_may_overflow_is_no_number():
    at = Arithmetic(WIDE, None, True, [])
    out = few_bits.rounded_once(at, Ball(torch.tensor([6e4, 6.6e4]).double(), torch.ones(2).double()), HALF)
    assert out.rad.isnan().tolist() == [False, True]


def test_sums_of_exact_numbers_are_known():
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5000, generator=draw).bfloat16() for _ in range(2))
    out = few_bits.exact_sum(Arithmetic(WIDE, None, True, []), Ball(x.double()), Ball(y.double()), BF16, WIDE)
    assert (((x + y).double() - out.mid).abs() <= out.rad).all() and float((out.rad == 0).double().mean()) > 0.99


# whole models, run in orders of their own


class Small(nn.Module):
    """One layer of attention and an MLP, read at the last position."""

    def __init__(self, V=6, L=3, d=8, heads=2, hidden=12, norm=False, act="relu", seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.e, self.p, self.heads, self.act, self.norm = nn.Embedding(V, d), nn.Embedding(L, d), heads, act, norm
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.up, self.down, self.u = nn.Linear(d, hidden), nn.Linear(hidden, d), nn.Linear(d, V)

    def normed(self, i, x):
        return self.n[i](x) if self.norm else x

    def forward(self, t):
        x = self.e(t) + self.p(torch.arange(t.shape[1]))
        b, n, d = x.shape
        y = self.normed(0, x)
        q, k, v = (f(y).view(b, n, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        r = x[:, -1] + self.o(F.scaled_dot_product_attention(q[:, :, -1:], k, v).transpose(1, 2).reshape(b, d))
        r = r + self.down(getattr(F, self.act)(self.up(self.normed(1, r))))
        return self.u(self.normed(2, r))


class Runs:
    """A `Small` in the reading, in float32 with the sums in random orders; each result is rounded once."""

    def __init__(self, model, dtype, seed):
        self.model, self.dtype = model, dtype
        self.draw = torch.Generator().manual_seed(seed)
        self.w = {name: value.detach().to(dtype).float() for name, value in model.state_dict().items()}

    def once(self, x):
        return x.to(self.dtype).float()

    def read(self, x):
        """What an operation reads of a result."""
        return x

    def step(self, x):
        """What is left of a step within softmax, or of scores."""
        return x

    def coin(self):
        return bool(torch.rand((), generator=self.draw) < 0.5)

    def summed(self, terms):
        """Sums of float32 numbers along the last axis, in a random order: one by one, or by halves."""
        terms = terms[..., torch.randperm(terms.shape[-1], generator=self.draw)]
        if self.coin():
            total = terms[..., 0]
            for i in range(1, terms.shape[-1]):
                total = total + terms[..., i]
            return total
        while terms.shape[-1] > 1:
            half = terms.shape[-1] // 2
            terms = torch.cat([terms[..., :half] + terms[..., half : 2 * half], terms[..., 2 * half :]], -1)
        return terms[..., 0]

    def linear(self, name, x):
        weight, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        terms = self.read(x).unsqueeze(-2) * weight
        if self.coin():
            return self.once(self.summed(torch.cat([terms, bias.expand(terms.shape[:-1]).unsqueeze(-1)], -1)))
        return self.once(self.step(self.summed(terms)) + bias)

    def ulps(self, x):
        """Numbers off by up to two units in the last place of float32, as a library's functions are."""
        return x * (1 + torch.randint(-2, 3, x.shape, generator=self.draw) * 2.0**-23)

    def normed(self, i, x):
        if not self.model.norm:
            return x
        d, x = x.shape[-1], self.read(x)
        mean = self.summed(x).unsqueeze(-1) / d
        if self.coin():
            variance = self.summed((x - mean).square()).unsqueeze(-1) / d
        else:
            variance = (self.summed(x.square()).unsqueeze(-1) / d - mean * mean).clamp(min=0)
        scale = self.ulps(1 / (variance + 1e-5).sqrt())
        return self.once((x - mean) * scale * self.w[f"n.{i}.weight"] + self.w[f"n.{i}.bias"])

    def __call__(self, t):
        m, w = self.model, self.w
        x = self.once(w["e.weight"][t] + w["p.weight"][: t.shape[1]])
        b, n, d = x.shape
        y = self.normed(0, x)
        q, k, v = (self.linear(name, y).view(b, n, m.heads, d // m.heads).transpose(1, 2) for name in "qkv")
        q, k, v = self.read(q), self.read(k), self.read(v)
        scores = self.step(self.summed(q[:, :, -1:] * k)) * (1 / math.sqrt(d // m.heads))
        scores = self.step(self.once(scores) if self.coin() else scores)
        e = self.step(self.ulps(torch.exp(self.step(scores - scores.amax(-1, keepdim=True)))))
        if self.coin():  # as fused kernels do
            kept = self.once(e) if self.coin() else e
            mixed = self.summed(kept.unsqueeze(-2) * v.transpose(-1, -2)) / self.summed(e).unsqueeze(-1)
        else:
            p = e / self.step(self.summed(e)).unsqueeze(-1)
            p = self.step(self.once(p) if self.coin() else p)
            mixed = self.summed(p.unsqueeze(-2) * v.transpose(-1, -2))
        r = self.once(self.read(x[:, -1]) + self.read(self.linear("o", self.once(mixed).reshape(b, d))))
        z = self.read(self.linear("up", self.normed(1, r)))
        z = torch.relu(z) if m.act == "relu" else self.once(self.ulps(getattr(F, m.act)(z.double()).float()))
        r = self.once(self.read(r) + self.read(self.linear("down", z)))
        return self.read(self.linear("u", self.normed(2, r)))


class Kept(Runs):
    """Each number is rounded or kept wherever it is read, and so are the steps of softmax."""

    def once(self, x):
        return x

    def read(self, x):
        near = x.to(self.dtype).float()
        if self.coin():
            return near if self.coin() else x
        return torch.where(torch.rand(x.shape, generator=self.draw) < 0.5, near, x)

    step = read


ALL = torch.tensor(list(itertools.product(range(6), repeat=3)))
KINDS = [{}, {"norm": True}, {"act": "gelu"}, {"norm": True, "act": "silu"}]


def margins_of(logits, answers):
    own = logits.gather(1, answers)
    return own[:, 0] - logits.scatter(1, answers, -math.inf).amax(1)


def is_held(model, fmt, dtype, tokens=ALL, runs=30, seed=0, is_kept=False):
    """Whether the margins of runs in random orders are where they are said to be; how wide that is."""
    answers = tokens.amax(1, keepdim=True)
    found = bounds(capture(model.eval(), tokens.shape[1]), Question(None, None), fmt, WIDE, is_kept=is_kept)
    low, high = found(tokens, answers)
    assert not low.isnan().any()
    run, held = (Kept if is_kept else Runs)(model, dtype, seed), True
    for _ in range(runs):
        margins = margins_of(run(tokens).double(), answers)
        held &= bool(((low <= margins) & (margins <= high)).all())
    with torch.no_grad():
        margins = margins_of(model.to(dtype)(tokens).double(), answers)
    model.float()
    return held and bool(((low <= margins) & (margins <= high)).all()), float((high - low).median())


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_runs_in_random_orders(kind):
    held, width = is_held(Small(**kind), BF16, torch.bfloat16, ALL[::6])
    assert held and width < 0.3


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_runs_in_float16(kind):
    held, width = is_held(Small(**kind), HALF, torch.float16, ALL[::10])
    assert held and width < 0.1


@pytest.mark.parametrize("kind", first(1, KINDS))
@pytest.mark.parametrize("fmt, dtype, most", first(1, [(BF16, torch.bfloat16, 0.3), (HALF, torch.float16, 0.1)]))
def test_runs_that_round_or_keep(kind, fmt, dtype, most):
    held, width = is_held(Small(**kind), fmt, dtype, ALL[::6], is_kept=True)
    assert held and width < most


@pytest.mark.parametrize("power", first(1, [6, -6, -20, -60, -110, 20]))
def test_models_of_all_sizes(power):
    """Weights times 2^power: what underflows is in the bounds, and what overflows is no number."""
    model = Small(seed=1)
    for part in model.parameters():
        part.data.mul_(2.0**power)
    assert is_held(model, BF16, torch.bfloat16, ALL[::14])[0]


@pytest.mark.deep
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_a_million_runs(norm, is_kept):
    assert is_held(Small(norm=norm, seed=3), BF16, torch.bfloat16, ALL[:200], runs=5000, is_kept=is_kept)[0]


WRITERS = {  # of 0.1, which is no number of any dtype of few bits, beside a logit x
    "padding": lambda x: F.pad(x, (0, 1), value=0.1),
    "one of two": lambda x: torch.cat([x, torch.where(x > 5, x, 0.1)], -1),
    "one of two numbers": lambda x: torch.cat([x, torch.where(x > 5, 0.3, 0.1).to(x.dtype)], -1),
    "filled": lambda x: torch.cat([x, x.masked_fill(x < 5, 0.1)], -1),
    "new": lambda x: torch.cat([x, x.new_full((len(x), 1), 0.1)], -1),
    "clamped": lambda x: torch.cat([x, (x - 5).clamp(0.1, 0.2)], -1),
    "hardtanh": lambda x: torch.cat([x, F.hardtanh(x - 5, 0.1, 0.2)], -1),
    "threshold": lambda x: torch.cat([x, F.threshold(x, 5.0, 0.1)], -1),
}


@pytest.mark.parametrize("name", every(2, WRITERS))
def test_numbers_that_are_written_and_not_computed_are_rounded(name):
    """The stored logit rounds to what 0.1 rounds to: the two are equal, and the margin 0."""

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(1, 1)
            self.e.weight.data.fill_(0.10005)

        def forward(self, t):
            return WRITERS[name](self.e(t[:, 0]))

    tokens = torch.zeros(1, 1, dtype=torch.long)
    graph, question = capture(Writer().double().eval(), 1), Question(None, None)
    with torch.no_grad():
        run = Writer().bfloat16()(tokens).double()
    assert run[0, 0] == run[0, 1]
    found = [bounds(graph, question, BF16, WIDE, is_kept=is_kept)(tokens, tokens) for is_kept in (False, True)]
    found.append(enclose(graph, Arithmetic(BF16), question)(tokens, tokens))
    found.append(enclose(graph, Arithmetic(BF16, WIDE), question)(tokens, tokens))
    assert all(low <= 0 <= high for low, high in found), found


SEVERAL = ("norms", "convolution", "batch norm")  # operations, where torch has one
NOT_RUN = {"rope", "clamp by tensors", "complex rotary", "rotary by polar"}  # by torch in 16 bits


@pytest.mark.parametrize(
    "name", first(1, sorted(JUDGED.keys() - NOT_RUN, key=lambda name: (name not in SEVERAL, name)))
)
@pytest.mark.parametrize("fmt, dtype", first(1, [(BF16, torch.bfloat16), (HALF, torch.float16)]))
def test_torch_runs_modules_of_all_kinds_within_the_bounds(name, fmt, dtype):
    torch.manual_seed(0)
    module = JUDGED[name]().eval().float()
    graph, tokens = capture(module, 3, is_real=False), torch.tensor(list(itertools.product(range(5), repeat=3)))[::9]
    question = Question((2,) if graph.output.ndim == 3 else None, None)
    answers = torch.zeros(len(tokens), 1, dtype=torch.long)
    with torch.no_grad():
        runs = torch.cat(
            [module.to(dtype)(row[None]).reshape(-1, graph.output.shape[-1])[-1:] for row in tokens]
        ).double()
    gap = runs[:, 0] - runs[:, 1:].amax(1)
    for is_kept in (False, True):
        low, high = bounds(graph, question, fmt, WIDE, is_kept=is_kept)(tokens, answers)
        assert not ((gap < low) | (gap > high)).any()
        assert is_kept or not (low.isnan() | high.isnan()).any()


WHOLE = [
    ("rounded_once", "(half + fmt.tiny) * ENLARGE", "0 * half"),
    ("half_spacing", "- 1 - fmt.p", "- 3 - fmt.p"),
]


@pytest.mark.parametrize("name, right, wrong", first(1, WHOLE))
def test_wrong_bounds_are_caught(name, right, wrong):
    with planted(few_bits, name, right, wrong):
        assert not is_held(Small(), BF16, torch.bfloat16, ALL[::6])[0]


class Weights(nn.Module):
    """The weights of five scores, or the sum of two rows."""

    def __init__(self, is_softmax):
        super().__init__()
        torch.manual_seed(0)
        self.e, self.is_softmax = nn.Embedding(20, 5), is_softmax
        self.e.weight.data.mul_(4.0)

    def forward(self, t):
        return torch.softmax(self.e(t[:, 0]), -1) if self.is_softmax else self.e(t[:, 0]) + self.e(t[:, 1])


def is_held_by_steps(is_softmax):
    """Whether what steps that are rounded or kept make of few numbers is within the bounds."""
    model = Weights(is_softmax).eval()
    tokens = torch.arange(20)[:, None].expand(20, 2) if is_softmax else torch.arange(40).reshape(20, 2) % 20
    answers = model(tokens).argmax(1, keepdim=True)
    found = bounds(capture(model, 2), Question(None, None), BF16, WIDE, is_kept=True)
    low, high = found(tokens, answers)
    run, held = Kept(model, torch.bfloat16, 0), True
    for _ in range(300):
        x = run.w["e.weight"][tokens]
        if is_softmax:
            e = run.read(run.ulps(run.read(x[:, 0] - x[:, 0].amax(1, keepdim=True)).exp()))
            logits = run.read(e / run.read(run.summed(e)).unsqueeze(1))
        else:
            logits = run.read(x[:, 0] + x[:, 1])
        margins = margins_of(logits.double(), answers)
        held &= bool(((low <= margins) & (margins <= high)).all())
    return held


KEPT = [
    (
        few_bits,
        "FewBits",
        "output = cast(Ball, self._read(at, values[",
        "output = cast(Ball, (lambda at, x: x)(at, values[",
        False,
    ),
    (few_bits, "FewBits", "return self._stepwise(at) if self.is_kept else at", "return at", True),
    (normalisation, "off_by_own", "(own + mean)", "0 * (own + mean)", True),
]


@pytest.mark.parametrize("is_softmax", [False, True])
def test_steps_that_round_or_keep(is_softmax):
    assert is_held_by_steps(is_softmax)


@pytest.mark.parametrize("room, name, right, wrong, is_softmax", KEPT)
def test_wrong_bounds_of_kept_results_are_caught(room, name, right, wrong, is_softmax):
    with planted(room, name, right, wrong):
        assert not is_held_by_steps(is_softmax)


def holds_exponentials():
    """Whether exponentials of rounded distances, rescaled once, are off by no more than their shares."""
    draw = torch.Generator().manual_seed(0)
    far, once = 60 * torch.rand(2000, generator=draw).double(), lambda x: x.bfloat16().double()
    far = far.float().double()
    between = far * torch.rand(2000, generator=draw).double()
    found = once(once(-(far - between)).exp()) * once(once(-between).exp())
    off = normalisation.exponentials_off(Arithmetic(BF16, WIDE), far, torch.zeros(()), 2)
    return bool(((found / (-far).exp() - 1).abs() <= off).all())


def test_the_arguments_of_exponentials_are_rounded():
    assert holds_exponentials()
    with planted(normalisation, "exponentials_off", "(at.u * (far + 2 * r)", "(0 * far"):
        assert not holds_exponentials()


def test_an_operation_that_reads_no_rounded_result_is_caught():
    with planted(few_bits, "FewBits", "torch.isinf(x.mid) & (x.radius == 0), 0.0, off)", "size > 0, 0.0, off)"):
        assert not is_held(Small(), BF16, torch.bfloat16, ALL[::3], is_kept=True)[0]


def test_the_weights_of_attention_may_be_rounded():
    """Without that, runs of kernels that round them are outside, where nothing else is off by much."""

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.e = nn.Embedding(6, 8)

        def forward(self, t):
            x = self.e(t).unsqueeze(1)
            return F.scaled_dot_product_attention(x[:, :, -1:], x, 64 * x)[:, 0, 0]

    graph, question = capture(Mean().eval(), 3), Question(None, None)
    low, high = bounds(graph, question, BF16, WIDE)(ALL[::9], ALL[::9, :1])
    with mock.patch.object(few_bits, "widened", lambda at, x, by: x):
        sharper = bounds(graph, question, BF16, WIDE)(ALL[::9], ALL[::9, :1])
    assert (high - low).median() > 1.5 * (sharper[1] - sharper[0]).median()


def test_whole_numbers_are_rounded_before_they_are_multiplied():
    """257 is no number of bfloat16."""

    class Times(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0, 0.75]))

        def forward(self, t):
            return t[:, :1] * self.w

    tokens = torch.arange(250, 300)[:, None]
    model = Times().eval()
    low, high = bounds(capture(model, 1), Question(None, None), BF16, WIDE)(tokens, torch.zeros_like(tokens))
    with torch.no_grad():
        runs = model.bfloat16()(tokens).double()
    gap = runs[:, 0] - runs[:, 1]
    assert ((low <= gap) & (gap <= high)).all() and (gap != (tokens * 0.25)[:, 0]).any()
