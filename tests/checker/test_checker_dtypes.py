"""Proofs in a dtype: roundings that torch makes are within the checker's bound, and nothing false is accepted."""

import hashlib
import json
import math
import random
from fractions import Fraction
from itertools import permutations, product
from unittest import mock

import pytest
import torch
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat
from models.certificates import HISTOGRAMS, IN_DTYPES, PARITIES, honest, in_dtype, real
from models.random_models import random_model
from models.selection import every, first
from oracles.contextual import random_model as drawn_strings
from oracles.eleven_bits import FactorsOfElevenBits
from oracles.forged import falsehood
from test_checker_real import outcome

from constructions import checkpoint, count01
from constructions.adder.transformer import to_bytes
from constructions.contextual import transformer
from constructions.parity import as_bytes as parity_bytes
from constructions.parity import sawtooth
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.checker import (
    adder,
    any_order,
    carried_digits,
    carries,
    contextual,
    forwards,
    kinds,
    named_shapes,
    parity,
    prompts,
    roundoff,
)
from verify.checker.formats import NAMED, TF32, BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_weights
from verify.frame import decide
from verify.tasks.addition.modular import task as modular_task
from verify.tasks.addition.task import DigitAddition
from verify.tasks.contextual import cells
from verify.tasks.contextual.verdict import certify as certify_strings
from verify.tasks.contextual.verdict import domain_of
from verify.tasks.count01 import dtype as count01_dtype
from verify.tasks.histogram.rounded import verdict as histogram_verdict
from verify.tasks.parity.task import Parity

FORMATS = ("float32", "bfloat16", "float16")


def of(name):
    return TF32 if name == "tf32" else BinaryFormat(*NAMED[name])


def stored_in(name):
    return torch.float32 if name == "tf32" else getattr(torch, name)


# ---- the bound


def histogram(seed, dtype):
    """A drawn model with its inputs, and the bound of its file."""
    module = random_model(seed).to(getattr(torch, dtype))
    w, W = forwards.rounded_once(read_weights(checkpoint.as_bytes(module, claim=None, construction=None)), of(dtype))
    said = w.repeated["parameters"]
    tokens = torch.tensor([*product(range(module.T), repeat=module.L)])
    is_softmax, root = said["model"].endswith("+sftm"), arb(said["d"]).sqrt()
    on = roundoff.Roundoff(of(dtype))
    return module, tokens, forwards.of_counts(on, W, module.L, is_softmax, root)


def in_tf32(seed):
    """A drawn model, real logits, some computed from factors of 11 bits or not, and the bound."""
    module, draw = random_model(seed).float(), random.Random(seed)
    w, W = forwards.rounded_once(read_weights(checkpoint.as_bytes(module, claim=None, construction=None)), TF32)
    module, said = module.double(), w.repeated["parameters"]
    tokens = torch.tensor([*product(range(module.T), repeat=module.L)])

    def read(x):
        m, e = torch.frexp(x)
        return torch.ldexp((m * 2**11).round() / 2**11, e) if draw.random() < 0.8 else x

    def computed():
        x = context = module.E[tokens]
        if module.has_bos:
            context = torch.cat([module.e_BOS.expand(len(x), 1, module.d), x], 1)
        if module.is_linear:
            scores = module.A
        else:
            q, k = (read(y) @ read(M) for y, M in ((x, module.W_Q), (context, module.W_K)))
            scores = read(q) @ read(k).transpose(1, 2) / math.sqrt(module.d)
        mixing = scores.softmax(-1) if module.is_softmax else scores
        hidden = (read(x + read(mixing) @ read(context)) @ read(module.W_1) + module.b_1).relu()
        return read(hidden) @ read(module.W_2) + module.b_2

    root = arb(said["d"]).sqrt()
    bound = forwards.of_counts(roundoff.Roundoff(TF32), W, module.L, module.is_softmax, root)
    with torch.no_grad():
        return module(tokens), [computed() for _ in range(4)], bound


@pytest.mark.parametrize("seeds", first(1, [range(12), range(12, 400)]), ids=str)
def test_what_factors_of_tf32_make_is_within_the_bound(seeds):
    closest = 0.0
    for seed in seeds:
        try:
            exact, found, bound = in_tf32(seed)
        except Refusal as refusal:
            assert refusal.exit_code == NOT_CHECKABLE
            continue
        far = max((x - exact).flatten(0, -2).amax(-1).sub((x - exact).flatten(0, -2).amin(-1)).max() for x in found)
        assert far <= bound + 1e-9, seed
        closest = max(closest, far.item() / bound if bound else 0.0)
    assert closest > 0.05


def parity_model(seed, dtype):
    module = drawn_again(sawtooth(T=3, L=4), seed).to(stored_in(dtype))
    _, W = forwards.rounded_once(parity._read(parity_bytes(module)), of(dtype))
    tokens = torch.tensor([*product(range(3), repeat=4)])
    return module, tokens, forwards.of_counts(roundoff.Roundoff(of(dtype)), W, 4, False)


def adding(seed, dtype):
    module = real(["pizza of attention", "addition, two heads", "addition, two layers, wrong"][seed % 3])[0].model
    module = drawn_again(module, seed).to(stored_in(dtype))
    length = len(module.positions)
    tokens = torch.randint(len(module.E), (64, length), generator=torch.Generator().manual_seed(seed))
    return module, tokens, adder.in_dtype(adder.read_adder(to_bytes(module, {})), of(dtype))[1]


class AtTheLast(torch.nn.Module):
    """A module's logits after its last token."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, tokens):
        return self.module(tokens)[:, -1:]


def prompted(seed, dtype):
    """BOS, six digits and "=", read there or after 4 or 5, which is where larger numbers are drawn."""
    module, last = drawn_again(real("count01, heads")[0].module, seed).to(stored_in(dtype)), 4 + seed % 3
    with torch.no_grad():
        module.E[5:] *= 4
    numbers, sizes = prompts.read_count01(count01.as_bytes(module))
    digits = torch.randint(1, 4, (64, 6), generator=torch.Generator().manual_seed(seed))
    ends = torch.tensor([4] if last == 4 else [4, last]).expand(64, -1)
    tokens = torch.cat([torch.zeros(64, 1, dtype=torch.long), digits, ends], 1)
    return AtTheLast(module), tokens, prompts.in_dtype(numbers, sizes["skip"], of(dtype), 6, [last])[1][last]


def of_strings(seed, dtype):
    module = drawn_again(real("regions, convex")[0].module, seed).to(stored_in(dtype))
    W, *_ = named_shapes.read_shapes(transformer.as_bytes(module), contextual.CAUSAL, ["bos"])
    tokens = torch.randint(4, (64, 7), generator=torch.Generator().manual_seed(seed))
    return module, tokens, forwards.of_regions(roundoff.Roundoff(of(dtype)), W, 8)


def drawn_again(module, seed):
    """The same layout with small drawn numbers, some of them 0."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for x in module.parameters():
            new = torch.randn(x.shape, generator=g, dtype=torch.float64) / 3
            x.copy_(new * (torch.rand(x.shape, generator=g) < 0.8))
    return module


KINDS = {
    "histogram": histogram,
    "parity": parity_model,
    "adder": adding,
    "prompts": prompted,
    "strings": of_strings,
}


@pytest.mark.parametrize("seeds", first(1, [range(6), range(6, 100)]), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_computes_is_within_the_bound(kind, seeds, device):
    """Differences of logits in the dtype against those of float64 on the same numbers; float64 adds next to nothing."""
    closest = 0.0
    for seed, dtype in product(seeds, FORMATS):
        try:
            module, tokens, off = KINDS[kind](seed, dtype)
        except Refusal as refusal:  # too far off to say anything
            assert refusal.exit_code == NOT_CHECKABLE and dtype != "float32"
            continue
        with torch.no_grad():
            computed = module.to(device)(tokens.to(device)).double()
            exact = module.double()(tokens.to(device))
        far = (computed - exact).flatten(0, -2)
        far = (far.amax(-1) - far.amin(-1)).max().item()
        assert far <= off + 1e-9, (seed, dtype, far, off)
        closest = max(closest, far / off if off else 0.0)
    assert closest > 1e-3  # the bound is about these roundings, and no number out of the air


def in_eleven_bits(kind, seed):
    """How far factors of 11 bits move a difference of logits, and the bound; neither where none is known."""
    try:
        module, tokens, off = KINDS[kind](seed, "tf32")
    except Refusal as refusal:
        assert refusal.exit_code == NOT_CHECKABLE
        return 0.0, 0.0
    module = module.double()
    with torch.no_grad(), FactorsOfElevenBits() as mode:
        computed = module(tokens)
    with torch.no_grad():
        far = (computed - module(tokens)).flatten(0, -2)
    assert mode.met > 1
    return (far.amax(-1) - far.amin(-1)).max().item(), off


@pytest.mark.parametrize("seeds", first(1, [range(6), range(6, 100)]), ids=str)
@pytest.mark.parametrize("kind", ["parity", "adder", "prompts", "strings"])
def test_what_factors_of_tf32_make_of_other_models_is_within_the_bound(kind, seeds):
    found = [in_eleven_bits(kind, seed) for seed in seeds]
    assert all(far <= off + 1e-9 for far, off in found) and any(far > 0.01 * off > 0 for far, off in found)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("{*range(EQUALS + 1), last}", "{*range(EQUALS + 1)}"), ("chosen(stream, own)", "chosen(stream, [EQUALS])")],
)
def test_what_the_last_token_adds_is_in_its_own_bound(right, wrong):
    """Where all other tokens are 0, nothing but the last one, as a key and as what is read, is rounded."""

    def bound():
        module, tokens, _ = prompted(1, "tf32")
        with torch.no_grad():
            module.module.E[:5] = 0
        numbers, sizes = prompts.read_count01(count01.as_bytes(module.module))
        off = prompts.in_dtype(numbers, sizes["skip"], TF32, 6, [5])[1][5]
        module = module.double()
        with torch.no_grad(), FactorsOfElevenBits():
            computed = module(tokens)
        with torch.no_grad():
            far = (computed - module(tokens)).flatten()
        return off, (far.max() - far.min()).item()

    off, far = bound()
    assert 0 < far <= off
    with planted(prompts, "in_dtype", right, wrong):
        assert bound()[0] < off


def test_beyond_half_of_a_margin_the_roundings_are_shown_as_well():
    """In real arithmetic half of it and all that they may do; what does not show that is not called false."""
    assert any_order.due_beside(1.0, 0.25) == (0.75, 1) and any_order.due_beside(1.0, 0.5) == (0.5, 1)
    assert any_order.due_beside(1.0, 0.75) == (math.nextafter(1.25, 2), NOT_CHECKABLE)
    assert any_order.due_beside(5e-324, 0.75)[0] > 0.75  # of the least number, too, half is above 0
    weights, text = in_dtype("tf32", "count01, uniform, few")
    assert outcome(weights, text) == (0, "PROVED")
    codes = [outcome(weights, json.dumps(times(json.loads(text), factor)))[0] for factor in (1.5, 2.5, 5)]
    assert 0 not in codes[1:] and codes[2] == 1, codes


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("read", "off = self._half_steps(x.size, bits) if x.stored is None else", "off = 0 * x.size if True else"),
     ("_rest", "abs(arb(x) - arb(y))", "arb(0)")],
)  # fmt: skip
def test_a_fault_of_factors_is_seen(name, right, wrong):
    """A bound without one of them, of the number that is read or of the stored one, is passed by other factors."""
    numbers = [1 + Fraction(1, 2**12), Fraction(3, 4) + Fraction(1, 2**13)]

    def is_covered():
        on, (x, w) = roundoff.Roundoff(TF32), (fmpq_mat([[fmpq(y.numerator, y.denominator)]]) for y in numbers)
        read = roundoff.exact(x) if name == "_rest" else roundoff.exact(x)._replace(stored=None)
        found = on.total([(read, w)], [])
        few = [Fraction(TF32.factor(float(y))) for y in numbers]
        ways = [(few[0], numbers[1]), (numbers[0], few[1]), tuple(few)]
        moved = [abs(a * b - numbers[0] * numbers[1]) for a, b in ways]
        return all(found.error[0, 0] >= arb(y.numerator) / y.denominator for y in moved)

    assert is_covered()
    with planted(roundoff.Roundoff, name, right, wrong):
        assert not is_covered()


def test_half_a_step_of_a_factor_is_what_rounding_moves_a_number_at_most():
    """And numbers between two of 11 bits come near it; 0 is no number that rounding moves."""
    on, near = roundoff.Roundoff(TF32), 2.0**-40
    sizes = [x for e in (-100, -1, 0, 7) for x in (2.0**e, 2.0**e * 1.37, 2.0 ** (e + 1) * (1 - near))]
    steps = on._half_steps(arb_mat([[0, *sizes]]), 11).entries()
    assert steps[0] == 0
    for size, step in zip(sizes, steps[1:], strict=True):
        e = math.floor(math.log2(size))
        moved = [abs(TF32.factor(x) - x) for x in (2.0**e * (1 + 2.0**-11 * (1 - near)), size) if x <= size]
        assert all(x <= float(step) for x in moved) and float(step) == 2.0 ** (e - 11)


def near_two_layers(seed):
    """Two layers that add, numbers behind the first scores moved by a share of up to 2^-10, and all their prompts."""
    module, draw = real("addition, two layers")[0].model, torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in module.named_parameters():
            if name not in ("E", "positions", "layers.0.W_Q", "layers.0.W_K"):
                x *= 1 + (torch.rand(x.shape, generator=draw, dtype=x.dtype) - 0.5) * 2.0**-9
    module, pairs = module.float().double(), [*product(range(4), repeat=2)]
    tokens = [[a // 2, a % 2, 2, b // 2, b % 2, 3, (a + b) // 4, (a + b) // 2 % 2] for a, b in pairs]
    answers = torch.tensor([[(a + b) // 4, (a + b) // 2 % 2, (a + b) % 2] for a, b in pairs])
    return module, torch.tensor(tokens), answers


def ahead_in_eleven_bits(seed):
    """The least that the checker has a digit ahead, with factors of 11 bits, and the least that is computed."""
    module, tokens, answers = near_two_layers(seed)
    with torch.no_grad(), FactorsOfElevenBits():
        logits = module(tokens)[:, -3:]
    right = logits.gather(2, answers[..., None])
    others = logits.scatter(2, answers[..., None], -math.inf).amax(2)
    steps = adder.InSteps(adder.read_adder(to_bytes(module.float(), {})), TF32)
    with ctx.workprec(320):
        return min(float(x.lower()) for _, x in carries.digits(steps, 2, 2)), (right[..., 0] - others).min().item()


@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 20)]), ids=str)
def test_two_layers_in_steps_are_below_what_factors_of_tf32_make(seeds):
    found = [*map(ahead_in_eleven_bits, seeds)]
    assert all(0.3 < least <= computed for least, computed in found), found


IN_STEPS = [
    (carried_digits.NeuronSteps, "lost", "abs(arb(gains[a])) * self.off_z[a]", "arb(0)"),
    (carries, "ahead", "- off_logits[right] - off_logits[other]", ""),
    (carries, "off_terms", "fmt is None", "True"),
    (adder.InSteps, "head", "self.fmt is None", "True"),
    (adder.InSteps, "off", "self.fmt is None or", "True or"),
]


@pytest.mark.deep
def test_a_fault_in_a_step_of_two_layers_is_seen():
    least = ahead_in_eleven_bits(0)[0]
    for fault in IN_STEPS:
        with planted(*fault):
            assert least < ahead_in_eleven_bits(0)[0], fault
    with planted(*IN_STEPS[2]), planted(*IN_STEPS[3]), planted(*IN_STEPS[4]):
        assert any(least > computed for least, computed in map(ahead_in_eleven_bits, range(20)))


HALF = of("bfloat16")


def stagnating():
    """1 + n halves of its last place: from left to right each of them is lost."""
    n, total = 40, 1.0
    for _ in range(n):
        total = HALF.nearest(total + 2.0**-8)
    found = roundoff.Roundoff(HALF).total([], [roundoff.exact(fmpq_mat([[x]])) for x in [1, *[fmpq(1, 256)] * n]])
    return abs(1 + n / 256 - total), found.error[0, 0]


def one_by_one():
    """Products of a number with one factor after the other, each of which is rounded the same way."""
    draw, on, exact, computed = random.Random(1), roundoff.Roundoff(HALF), Fraction(1), 1.0
    x = roundoff.exact(fmpq_mat([[1]]))
    for _ in range(12):
        w = max((HALF.nearest(draw.uniform(1, 2)) for _ in range(50)), key=lambda w: HALF.nearest(computed * w) / w)
        exact, computed = exact * Fraction(w), HALF.nearest(computed * w)
        x = on.total([(x, fmpq_mat([[fmpq(*w.as_integer_ratio())]]))], [])
    return abs(exact - Fraction(computed)), x.error[0, 0]


def tilted():
    """Two scores that are off by 1/10, one up and one down."""
    scores, values = roundoff.exact(fmpq_mat([[0, 0]])), roundoff.exact(fmpq_mat([[1], [-1]]))
    off = roundoff.Reach(scores.size + arb_mat([[0.1, 0.1]]), scores.error + arb_mat([[0.1, 0.1]]))
    return math.tanh(0.1), roundoff.Roundoff(HALF).softmax(off, values, 2).error[0, 0]


def tilted_by_factors():
    """Scores 256 1/16 and 256, the first from a number of 13 bits that is read with 11: their difference is exact."""
    on, values = roundoff.Roundoff(TF32), roundoff.exact(fmpq_mat([[1], [-1]]))
    q, k = fmpq_mat([[2**12 + 1, 1]]), fmpq_mat([[fmpq(1, 16), 0], [0, 256]])
    scores = on.scores(roundoff.exact(q)._replace(stored=None), roundoff.exact(k))
    return math.tanh((4097 - TF32.factor(4097)) / 32), on.softmax(scores, values, 2).error[0, 0]


def divided():
    """A weight of 1 / 3, the rounded quotient."""
    scores, values = roundoff.exact(fmpq_mat([[0, 0, 0]])), roundoff.exact(fmpq_mat([[1], [0], [0]]))
    return abs(HALF.nearest(1 / 3) - 1 / 3), roundoff.Roundoff(HALF).softmax(scores, values, 3).error[0, 0]


def in_slots():
    """Weights that are off, times values that are not."""
    weights = roundoff.Reach(arb_mat([[1]]), arb_mat([[0.5]]))
    return 1.5, roundoff.Roundoff(HALF).weighed(weights, roundoff.exact(fmpq_mat([[1]])), 3).error[0, 0]


def by_a_root():
    """A score that is off is still off when it is divided."""
    q, k = roundoff.Reach(arb_mat([[1]]), arb_mat([[0.5]])), roundoff.exact(fmpq_mat([[2]]))
    return 0.5, roundoff.Roundoff(HALF).scores(q, k, arb(2)).error[0, 0]


def of_a_mean():
    """A mean of rows with one number each has them all: 1/2, and 256 times 1/512, each of which is lost beside it."""
    n, one = 257, arb_mat(257, 257, [arb(i % 258 == 0) for i in range(257**2)])
    total = 0.5
    for _ in range(n - 1):
        total = HALF.nearest(total + 2.0**-9)
    found = roundoff.Roundoff(HALF, True).total([(roundoff.Reach(one, 0 * one), fmpq_mat(n, 1, [1] * n))], [])
    return 1 - total, found.error[0, 0]


def cut():
    """A factor between two numbers of 11 bits."""
    x = fmpq(2**11 + 1, 2**11)
    return 2.0**-11, roundoff.Roundoff(TF32).total([(roundoff.exact(fmpq_mat([[x]])), fmpq_mat([[1]]))], []).error[0, 0]


def a_third():
    """A weight of 1 / 3 as a factor of 11 bits."""
    scores, values = roundoff.exact(fmpq_mat([[0, 0, 0]])), roundoff.exact(fmpq_mat([[1], [0], [0]]))
    return abs(TF32.factor(1 / 3) - 1 / 3), roundoff.Roundoff(TF32).softmax(scores, values, 3).error[0, 0]


CASES = {  # what an evaluation does, and the fault of the bound that it shows
    stagnating: (roundoff.Roundoff, "_off", "terms + 1, terms + 2", "2, 4"),
    one_by_one: (roundoff.Product, "__init__", "x.error * y.size +", "0 * x.error * y.size +"),
    tilted: (roundoff.Roundoff, "tilts", "(x + share", "(share"),
    tilted_by_factors: (roundoff.Roundoff, "tilts", "(x + share", "(x * (not is_exact) + share"),
    divided: (roundoff.Roundoff, "mean", "Reach(size + error, error)", "Reach(size + error, 0 * error)"),
    in_slots: (roundoff.Roundoff, "weighed", "slots * (w * off + x * size)", "w * off + x * size"),
    of_a_mean: (roundoff.Roundoff, "_there", "if self.by_rows", "if False"),
    cut: (roundoff.Roundoff, "read", "bits is None or", "True or"),
    a_third: (roundoff.Roundoff, "mean", "if fmt.factors else 0", "if False else 0"),
    by_a_root: (roundoff.Roundoff, "scores", "found.error * (1 / root) +", "0 * found.error +"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda x: x.__name__)
def test_the_bound_covers_what_is_known_to_happen(case):
    far, off = case()
    assert far <= float(off) <= 100 * float(far)
    with planted(*CASES[case]):
        assert case()[1] < float(far)


def test_whole_numbers_are_exact():
    """Multiples of a unit that add up to no more than 2^p of it: no order rounds them."""
    on = roundoff.Roundoff(of("bfloat16"))
    W = fmpq_mat([[3, -4], [8, 2]])
    x = on.total([(roundoff.exact(fmpq_mat([[5, 1], [0, 16]])), W)], [])
    assert roundoff.largest(x.error) == 0 and x.unit == 0
    assert roundoff.largest(on.total([(x, W)], []).error) > 0  # 256 is passed


# ---- certificates


def times(c, factor):
    """A certificate with another margin."""
    more = c | {"margin": factor * c["margin"]}
    more |= {"margin_per_count": [factor * m for m in c["margin_per_count"]]} if c["margin_per_count"] else {}
    has_it = "margin" in (c["tightest"] or {})
    return more | ({"tightest": c["tightest"] | {"margin": factor * c["margin"]}} if has_it else {})


@pytest.mark.parametrize("name", every(3, IN_DTYPES))
def test_an_honest_proof_holds_and_a_larger_margin_does_not(name):
    weights, text = honest(name)
    c = json.loads(text)
    assert outcome(weights, text) == (0, "PROVED")
    is_known = name != "addition, two layers, tf32"  # no bound for all inputs at once tells that this one is false
    assert outcome(weights, json.dumps(times(c, 3)))[0] == (1 if is_known else NOT_CHECKABLE)
    for changes in ({"reading": "real"}, {"parameters": c["parameters"] | {"precision": "float16"}}):
        other = json.dumps(c | changes)
        is_refused, is_named = outcome(weights, other)[0] != 0, any("float32" in line for line in c["assumptions"])
        assert is_refused or (not is_named and falsehood(weights, other) is None)


@pytest.mark.parametrize("name", ["dot, float32", "addition, two layers, float32", "places, float32"])
def test_where_half_of_a_margin_is_on_trust_the_answer_says_so(name):
    """Where steps start from what was computed, nearly twice the margin holds, too; elsewhere no tenth more."""
    weights, text = honest(name)
    is_stepwise = any_order.HALF in kinds.check(weights, text.encode())[1]
    assert is_stepwise == (name != "dot, float32")
    for factor, holds in ((1.1, is_stepwise), (1.9, is_stepwise), (2.1, False)):
        assert (outcome(weights, json.dumps(times(json.loads(text), factor)))[0] == 0) == holds, factor


def test_a_narrower_format_is_another_statement():
    """What holds there is true, what bounds leave open is not checkable, and what is no format of the checker's."""
    weights, text = honest("dot, float32")
    c = json.loads(text)
    for name, words, code in (("bfloat16", "bfloat16", 0), ("p2", "2-bit significand", NOT_CHECKABLE)):
        rounds = f"weights rounded once to {words}; every operation in {words}, to nearest or keeping more bits"
        scores = c["assumptions"][3].replace("float32", name)
        said = c | {"assumptions": [rounds, c["assumptions"][2], scores, *c["assumptions"][4:]]}
        said["parameters"] = c["parameters"] | {"precision": name, "accumulate": name}
        assert outcome(weights, json.dumps(said))[0] == code
        assert code or falsehood(weights, json.dumps(said)) is None
    for name, value in (("precision", "e4m3"), ("precision", []), ("accumulate", "float16"), ("accumulate", {})):
        assert outcome(weights, json.dumps(c | {"parameters": c["parameters"] | {name: value}}))[0] == NOT_CHECKABLE


MUTATED = [
    "dot, float32",
    "lin+sftm, float32",
    "staircase, float32",
    "parity, float32",
    "addition, two layers, float32",
]


@pytest.mark.parametrize("seeds", first(1, [range(8), range(8, 200)]), ids=str)
def test_mutated_models_against_enumeration(seeds):
    """A forged proof in a dtype holds only where real arithmetic on the rounded numbers agrees."""
    held = 0
    for seed in seeds:
        draw, name = (
            random.Random(seed),
            ["dot, float32", "lin+sftm, float32", "staircase, float32", "parity, float32"][seed % 4],
        )
        weights, text = honest(name)
        c = json.loads(text)
        weights = mutated(name, draw)
        for share in (1.0, 0.5, 0.1):
            said = c | {"margin": c["margin"] * share, "weights_sha256": sha(weights)}
            if c["margin_per_count"]:
                said["margin_per_count"] = [m * share for m in c["margin_per_count"]]
            if "tightest" in c and "margin" in (c["tightest"] or {}):
                said["tightest"] = c["tightest"] | {"margin": said["margin"]}
            forged = json.dumps(said)
            if outcome(weights, forged)[0] == 0:
                held += 1
                assert falsehood(weights, forged) is None, (seed, share)
    assert held


def sha(weights):
    return hashlib.sha256(weights).hexdigest()


def mutated(name, draw):
    """The file of a model of an honest certificate with one number moved."""
    of_name = IN_DTYPES[name][1]
    of_counts = HISTOGRAMS | PARITIES
    module = of_counts[of_name]() if of_name in of_counts else real(of_name)[0].model
    _, W = draw.choice([*module.named_parameters()])
    with torch.no_grad():
        W.view(-1)[draw.randrange(W.numel())] += draw.choice([-0.25, -0.0625, 0.015625, 0.125])
    if of_name in PARITIES:
        return parity_bytes(module)
    if of_name in HISTOGRAMS:
        return checkpoint.as_bytes(module, claim=None, construction=None)
    if of_name.startswith("addition"):
        return to_bytes(module, {"task": "addition"})
    return to_bytes(module, {"task": "modular", "P": 5})


ABSOLUTE = "found = cells.margin(cell); found = found if found is None else abs(found)"
PROVER_FAULTS = [
    ("bos, wrong", histogram_verdict, "cell_margins", "readout.margins(row, tables)",
     "np.abs(readout.margins(row, tables))"),
    ("random, wrong", histogram_verdict, "cell_margins", "readout.margins(row, tables)",
     "np.abs(readout.margins(row, tables))", "tf32"),
    ("clock, wrong", modular_task, "margins", "bound.min(1), np.nan", "np.abs(bound).min(1), np.nan"),
    ("addition, wrong", DigitAddition, "_prove_rounded", "found = cells.margin(cell)", ABSOLUTE),
    ("count01, heads, wrong", count01_dtype, "decide_boxes", "decided = bound > 0",
     "bound = np.abs(bound); decided = bound > 0"),
    ("regions", cells.PromptProof, "cells", "if r <= fewest else 1", "if r < fewest else 1"),
    ("addition, two layers, wrong", DigitAddition, "_prove_rounded_layers",
     "found = induction.margins(stored, self.sums, arithmetic, effort.deadline())",
     "found = {cell: abs(x) for cell, x in induction.margins(stored, self.sums, arithmetic).items()}"),
    *(("parity, wrong", Parity, "_prove_rounded",
       "margins = proof.margins(proof.Stored.of(model), L, at, effort.limit.building())",
       "margins = abs(proof.margins(proof.Stored.of(model), L, at))", reading) for reading in ("float64", "tf32")),
    ("count01, heads, wrong", count01_dtype, "decide_boxes", "decided = bound > 0",
     "bound = np.abs(bound); decided = bound > 0", "tf32"),
    ("clock, wrong", modular_task, "margins", "bound.min(1), np.nan", "np.abs(bound).min(1), np.nan", "tf32"),
    ("addition, wrong", DigitAddition, "_prove_rounded", "found = cells.margin(cell)", ABSOLUTE, "tf32"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PROVER_FAULTS)))
def test_a_fault_in_the_prover_is_found_by_the_checker(number):
    """The proof with a fault is saved as it is, the run beside it left out: the checker refuses it."""
    name, owner, function, right, wrong, precision = (*PROVER_FAULTS[number], "float64")[:6]
    with planted(owner, function, right, wrong), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        if name == "regions":
            module = drawn_strings(3, 4)
            found = certify_strings(module, domain_of(module, 4), fmt=reading_of("float64").format)
            weights = transformer.as_bytes(module)
            text = found.about(weights).to_json()
        else:
            weights, text = in_dtype(precision, name)
    assert json.loads(text)["verdict"] == "PROVED" and falsehood(weights, text)
    assert outcome(weights, text)[0] in ((1, NOT_CHECKABLE) if precision == "tf32" else (1,))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("found.max(first + second)", "found.max(2 * second)"), ("second.max(first.min(x))", "second.max(x)")],
)
def test_two_logits_of_one_row_are_off_by_the_two_largest_errors(right, wrong):
    """In any order of the classes; of several rows by those of the worst one, and what is no number is above none."""

    def off(*rows):
        error = arb_mat([[*map(arb, row)] for row in rows])
        return roundoff.slack(roundoff.Reach(error, error))

    def is_tight():
        found = [off(row) for row in permutations([1, 4, 2])]
        return all(6 <= x < 6 + 2.0**-30 for x in found) and 7 <= off([4, 1, 2], [3, 4, 0]) < 7 + 2.0**-30

    assert is_tight() and all(math.isnan(off(row)) for row in permutations(["nan", 1, 2]))
    with planted(roundoff, "slack", right, wrong):
        assert not is_tight()
