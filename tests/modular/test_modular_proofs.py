"""Addition modulo P: verdicts against enumeration, best sets, any order of evaluation, impossibilities."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import arb, ctx
from models.selection import every, first

from bounds import modular as bounds
from constructions import modular
from constructions.adder.transformer import AdderTransformer
from constructions.errors import BadInput, ProvedImpossible
from tests.clocks import looks
from tests.oracles import addition as oracle
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import Evaluation, rounded_model
from verify.arithmetic.exact_reals import float_below as at_most
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.margins import margins_of
from verify.arithmetic.readings import Rounded, reading_of
from verify.arithmetic.rounding import rounded
from verify.frame.decide import Effort, certify, exhaustive
from verify.tasks.addition.modular import best, impossible, lines
from verify.tasks.addition.modular import proof as proofs
from verify.tasks.addition.modular.rounding import margins
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.rounded import ORDERS


def verdict(model, P, precision=None):
    return certify(ModularAddition(model, P), reading_of(precision))


def enumerated(model, P):
    problem = ModularAddition(model, P)
    margins = problem.run(list(problem.inputs()))
    return int((~(margins > 0)).sum()), float(margins.min())


@pytest.mark.parametrize("P", [2, 3, 5, 8, 13, pytest.param(113, marks=pytest.mark.deep), 127])
def test_staircase(P):
    found = verdict(modular.staircase(P=P), P)
    assert found.verdict == "PROVED" and found.margin == 0.5 and found.inputs_covered == P * P
    assert enumerated(modular.staircase(P=P), P)[0] == 0


@pytest.mark.deep
def test_staircase_of_a_large_modulus():
    found = verdict(modular.staircase(P=10_000), 10_000)
    assert found.verdict == "PROVED" and found.margin == 0.5 and found.inputs_covered == 10**8


@pytest.mark.parametrize("P", [3, 7, 15, 113, 117])
def test_pizza(P):
    model = modular.pizza(P=P)
    found = verdict(model, P)
    wrong, least = enumerated(model, P)
    assert found.verdict == "PROVED" and wrong == 0 and found.margin <= least + 1e-12
    assert found.margin >= least - 1e-9


def test_pizza_beyond_its_modulus_is_refuted_with_counts():
    model = modular.pizza(P=119, m=5)
    found = verdict(model, 119)
    wrong, _ = enumerated(model, 119)
    assert found.verdict == "REFUTED" and found.extra["counts"]["wrong"] == str(wrong) == "952"
    assert verdict(modular.pizza(P=119, m=bounds.neurons_needed(119)), 119).verdict == "PROVED"


def test_pizza_of_113_has_the_margin_of_the_page():
    assert 1.99e-6 < verdict(modular.pizza(P=113), 113).margin < 2.01e-6


def test_clock():
    found = verdict(modular.clock(P=113, frequencies=(1, 6, 43)), 113)
    assert found.verdict == "PROVED" and abs(found.margin - 0.84462289) < 1e-8
    assert modular.clock(P=113, frequencies=(1,)).sizes()["p"] == 223


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(i, marks=pytest.mark.deep) for i in range(12, 30))])
def test_mutated_models(seed):
    rng = random.Random(seed)
    P = rng.choice([3, 5, 7, 9])
    model = rng.choice([modular.staircase(P=P), modular.pizza(P=P), modular.clock(P=P, frequencies=(1,))])
    with torch.no_grad():
        for _ in range(rng.choice([1, 3])):
            W = rng.choice([W for W in model.parameters() if W.numel()])
            index = tuple(rng.randrange(s) for s in W.shape)
            W[index] += rng.choice([0.01, -0.1, 0.5, -2.0])
    found = verdict(model, P)
    wrong, least = enumerated(model, P)
    if abs(least) > 1e-9:
        assert (found.verdict == "PROVED") == (wrong == 0) and found.verdict != "UNKNOWN"
        assert found.extra["counts"]["wrong"] == str(wrong)
    if found.verdict == "PROVED":
        assert found.margin <= least + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_random_models_with_real_attention(seed):
    """Trained-like: several heads, positions, skip connection, scores that depend on the numbers."""
    g = torch.Generator().manual_seed(seed)
    P = 4
    model = AdderTransformer(tokens=P + 1, length=3, classes=P, d=6, heads=2, d_h=3, d_v=3, p=(8,))
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.randn(W.shape, generator=g, dtype=torch.float64))
    found = verdict(model, P)
    wrong, _ = enumerated(model, P)
    assert found.extra["counts"]["wrong"] == str(wrong)
    tokens = [1, 2, P]
    torch.testing.assert_close(
        model(torch.tensor([tokens]))[0], torch.tensor(oracle.logits(model, tokens), dtype=torch.float64)
    )


@pytest.mark.parametrize("d", [1, 2])
def test_one_number_is_its_own_sum(d):
    """With one dimension and uniform attention, where sums alone decide others, as well."""
    model = AdderTransformer(tokens=2, length=3, classes=1, d=d, heads=1, d_h=1, d_v=d, p=(3,))
    with torch.no_grad():
        for W in model.parameters():
            W.fill_(0.5)
        model.blocks[0].W_Q.zero_()
        model.blocks[0].W_K.zero_()
    assert verdict(model, 1).verdict == "PROVED"


def test_ties_are_wrong():
    model = modular.staircase(P=5)
    with torch.no_grad():
        model.b_out[3] = model.b_out[3] + 0.5  # at y = 4 the lines of 3 and 4 meet
    assert verdict(model, 5).verdict == "REFUTED"


def test_by_sums_and_pair_by_pair_agree():
    for P in (3, 6, 11):
        model = modular.staircase(P=P)
        with torch.no_grad():
            model.b_out[1] += 0.3
        by_sums, by_pairs = proofs.by_sums(model, P), proofs.pair_by_pair(model, P)
        assert by_sums.right == by_pairs.right and by_sums.wrong_count == by_pairs.wrong_count
        assert abs(by_sums.margin - by_pairs.margin) < 1e-9


def oracle_margin(P, W):
    return min(sum(1 - math.cos(2 * math.pi * w * r / P) for w in W) for r in range(1, P))


def test_one_pair_for_each_sum(monkeypatch):
    """Where logits depend on a + b the counts, the wrong pairs and the margin are those of every pair."""
    rng = random.Random(0)
    verdicts = set()
    for seed in range(30):
        P = rng.choice([5, 7, 11])
        model = modular.clock(P=P, frequencies=(1, 2), dtype=rng.choice([torch.float64, torch.float16]))
        with torch.no_grad():
            if seed % 3:  # a fault where it leaves the sums alone
                W = rng.choice([model.W_out, model.blocks[0].W_1, model.blocks[0].W_2, model.blocks[0].b_1])
                W.view(-1)[rng.randrange(W.numel())] += rng.choice([-1, 0.5, 2])
        assert proofs.depends_on_sum(model, P)
        found = proofs.pair_by_pair(model, P)
        with monkeypatch.context() as patch:
            patch.setattr(proofs, "depends_on_sum", lambda model, P: False)
            due = proofs.pair_by_pair(model, P)
        assert (found.right, found.wrong, found.wrong_count) == (due.right, due.wrong, due.wrong_count)
        assert (
            found.margin == pytest.approx(due.margin, rel=1e-10, abs=1e-10)
            and found.wrong_count == enumerated(model.double(), P)[0]
        )
        verdicts.add(found.wrong_count > 0)
    assert verdicts == {False, True}


def on_a_line(seed):
    """A random model whose logits depend on the sum, of few bits, so that neurons and answers often meet at a tie."""
    g, rng = np.random.default_rng(seed), random.Random(seed)
    P, d, p = rng.randint(1, 6), rng.randint(1, 3), rng.randint(0, 5)
    model = AdderTransformer(tokens=P + 1, length=3, classes=P, d=d, d_v=2, p=(p,), skip=rng.random() < 0.5)
    scale = rng.choice([1, 2.0**-540, 2.0**480])
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.from_numpy(g.integers(-2, 3, tuple(W.shape)).astype(float)))
        model.blocks[0].W_Q.zero_()
        model.E[:P] = model.E[0] + torch.arange(P)[:, None] * torch.from_numpy(g.integers(-2, 3, d))
        model.W_out *= scale
        model.b_out *= scale
    return model, P


def exact_stream(model, P, a, b):
    """Every operation in fractions, as the module is written."""
    frac = lambda W: [[Fraction(float(x)) for x in row] for row in W.reshape(-1, W.shape[-1])]  # noqa: E731
    times = lambda x, W: [sum(u * row[j] for u, row in zip(x, W, strict=True)) for j in range(len(W[0]))]  # noqa: E731
    layer, E, X = model.blocks[0], frac(model.E), frac(model.positions)
    tokens = [[u + v for u, v in zip(E[t], X[i], strict=True)] for i, t in enumerate((a, b, P))]
    mean = [sum(column) / 3 for column in zip(*tokens, strict=True)]
    x = times(times(mean, frac(layer.W_V[0])), frac(layer.W_O[0]))
    x = [u + v for u, v in zip(x, tokens[2], strict=True)] if model.has_skip else x
    hidden = [max(u + v, 0) for u, v in zip(times(x, frac(layer.W_1)), frac(layer.b_1)[:1][0], strict=True)] if (
        layer.W_1.numel()
    ) else []  # fmt: skip
    written = times(hidden, frac(layer.W_2)) if hidden else [Fraction(0)] * len(x)
    return [u + v for u, v in zip(x, written, strict=True)] if model.has_skip else written


def lines_are_wrong(seed):
    """Whether a stream differs from its exact value, or a bound is above the margin or far below it."""
    model, P = on_a_line(seed)
    assert proofs.depends_on_sum(model, P)
    streams, bounds_of = lines.streams(model, P), lines.margins_by_sum(model, P)
    W, bias = model.W_out.T.tolist(), model.b_out.tolist()
    for a, b in itertools.product(range(P), repeat=2):
        stream = exact_stream(model, P, a, b)
        if [Fraction(int(y.p), int(y.q)) for y in streams[a + b]] != stream:
            return True
        logits = [
            sum(Fraction(w) * y for w, y in zip(row, stream, strict=True)) + Fraction(c)
            for row, c in zip(W, bias, strict=True)
        ]
        due = logits.pop((a + b) % P)
        low = bounds_of[a + b]
        if logits and not low <= due - max(logits):
            return True
        size = sum(abs(Fraction(w) * y) for row in W for w, y in zip(row, stream, strict=True)) + sum(map(abs, bias))
        if (
            logits
            and not due - max(logits) - Fraction(low) <= Fraction(2) ** -40 * Fraction(size) + Fraction(2) ** -1060
        ):
            return True
    return False


@pytest.mark.parametrize("seeds", first(1, [range(60), range(60, 1000)]))
def test_streams_of_a_line_are_exact_and_bounds_below_margins(seeds):
    assert not any(map(lines_are_wrong, seeds))


@pytest.mark.parametrize(
    "name, right, wrong",
    [
        ("_sums_above_zero", "floor()) + 1", "floor())"),
        ("_sums_above_zero", "ceil())", "ceil()) + 1"),
        ("_sums_above_zero", "if at > 0", "if at > 1"),
        ("_line", "own if model.has_skip", "own - own if model.has_skip"),
        ("streams", "height + z * slope", "height + slope"),
        ("streams", "sign * w * (at + bias)", "sign * w * at"),
        ("margins_by_sum", "% P", "% (P + 1) % P"),
        ("margins_by_sum", "gap - (", "gap + ("),
    ],
)
def test_planted_faults_of_lines_are_caught(name, right, wrong):
    with planted(lines, name, right, wrong):
        assert any(map(lines_are_wrong, range(60)))


def test_numbers_off_the_line_are_decided_pair_by_pair():
    """A planted fault of one unit in the last place, and weights that differ: the logits are no function of a + b."""
    model = modular.clock(P=7, frequencies=(1, 2))
    assert proofs.depends_on_sum(model, 7)
    with torch.no_grad():
        model.E[3, 0] = np.nextafter(9.0, 10.0)
        assert not proofs.depends_on_sum(model, 7)
        model.E[3, 0], model.E[3, 1] = 9.0, 1.0  # a lane that is not read
        assert proofs.depends_on_sum(model, 7)
        model.blocks[0].W_Q[0, 0, 0] = 1
        assert proofs.depends_on_sum(model, 7)  # keys are zero
        model.blocks[0].W_K[0, 0, 0] = 1
    assert not proofs.depends_on_sum(model, 7)


@pytest.mark.parametrize("P, K", [(7, 1), (7, 2), (11, 3), (12, 2), (15, 3), (9, 4)])
def test_best_sets_against_all_sets(P, K):
    found = best.best(P, K)
    every = {W: oracle_margin(P, W) for W in itertools.combinations(range(1, (P - 1) // 2 + 1), K)}
    assert abs(max(every.values()) - found.margin[0]) < 1e-9
    assert found.margin[0] <= every[found.frequencies] + 1e-12
    assert float(found.average) >= max(every.values()) - 1e-12


def test_best_sets_of_113():
    expected = {1: (1,), 2: (1, 31), 3: (1, 6, 43), 4: (1, 5, 21, 34)}
    assert {K: best.best(113, K).frequencies for K in expected} == expected
    assert best.canonical(113, (1, 51)) == (1, 31)  # the same orbit


@pytest.mark.parametrize("neurons, largest", [(5, 117), (7, 341), (9, 743)])
def test_phase_error(neurons, largest):
    h = math.pi / neurons
    sampled = max(
        abs(math.atan2(math.sin(t) * math.sin(2 * h), math.sin(h - t) + math.sin(t) * math.cos(2 * h)) - 2 * t)
        for t in np.linspace(0, h, 20001)
    )
    assert abs(float(bounds.phase_error(neurons)) - sampled) < 1e-9
    assert bounds.largest_modulus(neurons) == largest


@pytest.mark.parametrize(
    "build, precision",
    first(2, [
        (lambda: modular.staircase(P=113), "float32"),
        (lambda: modular.pizza(P=113), "float32"),
        (lambda: modular.pizza(P=113, frequencies=(1, 6, 29, 50), m=5), "float16"),
        (lambda: modular.pizza(P=113, frequencies=modular.PIZZA_113[3], m=5), "float16"),
        (lambda: modular.pizza(P=113, frequencies=modular.PIZZA_113[6], m=5), "bfloat16"),
        (lambda: modular.pizza(P=113, frequencies=modular.PIZZA_113[9], m=5), "bfloat16"),
    ]),
)  # fmt: skip
def test_any_order_at_113(build, precision):
    assert verdict(build(), 113, precision).verdict == "PROVED"


def test_staircase_fails_in_float16():
    found = verdict(modular.staircase(P=113), 113, "float16")
    assert found.verdict == "REFUTED" and found.margin <= 0 and "order" in found.counterexample


@pytest.mark.parametrize("precision", first(1, ["bfloat16", "p6", "float16", "p10"]))
@pytest.mark.parametrize("name", every(3, ["staircase", "pizza", "clock"]))
def test_no_order_goes_below_a_margin_proved_for_any_order(name, precision):
    P = 11
    model = {
        "staircase": lambda: modular.staircase(P=P),
        "pizza": lambda: modular.pizza(P=P, frequencies=(1, 3), m=5),
        "clock": lambda: modular.clock(P=P, frequencies=(1, 3)),
    }[name]()
    problem, reading = ModularAddition(model, P), reading_of(precision)
    found = certify(problem, reading)
    pairs = list(problem.inputs())
    least = min(
        float(problem.rounded_margins(pairs, Evaluation(reading.format, None, order, fused=fused, flush=fused)).min())
        for order in ORDERS
        for fused in (False, True)
    )
    if found.verdict == "PROVED":
        assert found.margin <= least
    elif found.verdict == "REFUTED":
        assert least <= 0


def test_bounds_of_single_pairs_hold_in_every_order():
    P, reading = 11, reading_of("p7")
    model = modular.pizza(P=P, frequencies=(1, 3), m=5)
    found = margins(rounded_model(model, reading.format), P, RoundedArithmetic.of(reading.format))
    problem = ModularAddition(model, P)
    pairs = [(int(a), int(b)) for a, b in found.pairs.reshape(-1, 2)]
    for order in ORDERS:
        assert (problem.rounded_margins(pairs, Evaluation(reading.format, None, order)) >= found.least.flatten()).all()


@pytest.mark.parametrize("name", first(1, ["bfloat16", "float16", "float32", "float64"]))
def test_torch_never_goes_below_a_bound(name, device):
    P, fmt = 11, FORMATS[name]
    for model in (
        modular.staircase(P=P),
        modular.pizza(P=P, frequencies=(1, 3), m=5),
        modular.clock(P=P, frequencies=(1, 3)),
    ):
        stored = rounded_model(model, fmt)
        found = margins(stored, P, RoundedArithmetic.of(fmt))
        pairs = found.pairs.reshape(-1, 2)
        tokens = torch.from_numpy(np.insert(pairs, 2, P, axis=1)).to(device)
        with torch.no_grad():
            logits = stored.to(device, getattr(torch, name))(tokens)[:, -1].double().cpu().numpy()
        assert (margins_of(logits, pairs.sum(1) % P) >= found.least.flatten()).all()
        assert name == "bfloat16" or (found.least > 0).any()


def test_a_rounding_counts_in_full():
    model = modular.staircase(P=2)
    with torch.no_grad():
        model.W_out += 16
        model.b_out += torch.tensor([8.0, 7.6], dtype=torch.float64)
    assert verdict(model, 2).verdict == "PROVED"  # in real arithmetic
    assert verdict(model, 2, "p6").verdict == "REFUTED"


def test_a_skip_may_add_what_a_factor_rounds():
    P, p = 3, FORMATS["bfloat16"]
    model = modular.staircase(P=P)
    found = margins(rounded_model(model, p), P, RoundedArithmetic.of(p))
    layer, third = model.blocks[0], rounded(np.array(1 / 3), p)
    W_V, W_O, W_1, b_1, W_2 = (W.numpy() for W in (layer.W_V[0], layer.W_O[0], layer.W_1, layer.b_1, layer.W_2))
    for r in range(P):
        for a in range(P):
            x = (model.E[[a, (r - a) % P, P]].numpy() @ W_V * third).sum(0, keepdims=True) @ W_O  # kept wide
            hidden = np.maximum(rounded(rounded(x, p) @ W_1 + b_1, p), 0)
            y = rounded(x + model.E[P].numpy() + hidden @ W_2, p)
            logits = rounded(y @ model.W_out.numpy() + model.b_out.numpy(), p)
            assert margins_of(logits[0], r) >= found.least[r, a]


@pytest.mark.parametrize("seed", every(3, range(30)))
def test_bounds_of_drawn_models_hold_in_every_order(seed):
    g = np.random.default_rng(seed)
    P, reading = int(g.integers(2, 5)), reading_of(("tf32", "float16", "p6", "bfloat16")[seed % 4])
    accumulate = (None, None, FORMATS["float32"], FORMATS["float32"])[int(g.integers(4))]
    if seed % 4 in (1, 3):
        reading = Rounded(reading.format, accumulate)
    skip = bool(g.integers(2))
    model = AdderTransformer(tokens=P + 1, length=3, classes=P, d=2, d_v=1, p=(2,), skip=skip)
    with torch.no_grad():
        for W in model.parameters():
            is_left_zero = W is model.positions or W is model.blocks[0].W_Q or W is model.blocks[0].W_K
            W.copy_(torch.from_numpy(g.integers(-300, 300, tuple(W.shape)) / 64) * (not is_left_zero))
    at = RoundedArithmetic.of(reading.format, reading.accumulate)
    found = margins(rounded_model(model, reading.format), P, at)
    problem, pairs = ModularAddition(model, P), [(int(a), int(b)) for a, b in found.pairs.reshape(-1, 2)]
    for order in ORDERS:
        run = problem.rounded_margins(pairs, Evaluation(reading.format, reading.accumulate, order))
        assert (run >= found.least.flatten()).all()


@pytest.mark.parametrize(
    "owner, name, right, wrong",
    [
        (lines, "_line", "fmpq(1, 3)", "fmpq(1, 4)"),
        (proofs, "margins_of_pairs", "right, pair = (a + b) % P", "right, pair = (a + b + 1) % P"),
        (lines, "_sums_above_zero", "floor()) + 1", "floor()) + 2"),
    ],
)
def test_planted_faults_are_caught(owner, name, right, wrong):
    models = [modular.staircase(P=5), modular.pizza(P=5)]
    with torch.no_grad():
        models[0].b_out[2] += 0.1
    before = [str(verdict(model, 5).to_dict() | {"seconds": 0}) for model in models]
    with planted(owner, name, right, wrong):
        assert [str(verdict(model, 5).to_dict() | {"seconds": 0}) for model in models] != before


def test_impossibilities():
    assert all(argument(0).holds for argument in impossible.ARGUMENTS.values())
    with pytest.raises(ProvedImpossible) as error:
        modular.pizza(P=112)
    assert error.value.claim == "W-E4.8"


def test_refusals():
    with pytest.raises(BadInput, match="neurons-per-frequency=6"):
        modular.pizza(P=113, m=6)
    with pytest.raises(BadInput, match="frequencies="):
        modular.clock(P=7, frequencies=(1, 4))
    with pytest.raises(BadInput, match="--P"):
        ModularAddition(modular.staircase(P=5), 7)


def test_binary_kinks():
    values = [z % 6 for z in range(11)]
    for bit, kinks in bounds.binary_kinks(6).items():
        b = [v >> bit & 1 for v in values]
        slopes = [y - x for x, y in itertools.pairwise(b)]
        assert kinks == sum(x != y for x, y in itertools.pairwise(slopes))


def test_runs_by_torch():
    assert exhaustive(ModularAddition(modular.staircase(P=11), 11)).verdict == "PROVED"


def test_margins_that_float64_does_not_hold_are_rounded_down():
    """The least margin is 2^59 - 3, and float64's nearest number is 2^59; pair by pair it is 1 - 2^-60, and not 1."""
    model = modular.staircase(P=3)
    with torch.no_grad():
        model.W_out.copy_(torch.tensor([[0.0, 2.0**60, 2.0**61]]))
        model.b_out.copy_(torch.tensor([-3.0, -(2.0**59), -(2.0**61)]))
    slopes, heights = ([Fraction(x) for x in W.flatten().tolist()] for W in (model.W_out, model.b_out))
    lines = [[y * slope + height for slope, height in zip(slopes, heights, strict=True)] for y in range(3)]
    least = min(line[y] - max(line[:y] + line[y + 1 :]) for y, line in enumerate(lines))
    certificate = certify(ModularAddition(model, 3))
    assert certificate.verdict.value == "PROVED" and least * (1 - 2.0**-50) < Fraction(certificate.margin) <= least
    with ctx.workprec(200):
        assert at_most(1 - arb(2) ** -60) == 1 - 2.0**-53
        assert at_most(arb(2) ** -60) == 2.0**-60


def test_pairs_end_with_the_clock():
    """Pairs, in real arithmetic and in a dtype, end by the looks at the clock; what is wrong by then is still said."""
    model = modular.pizza(P=11, frequencies=(1, 3), m=5)
    problem = ModularAddition(model, 11)
    for reading in (reading_of(None), reading_of("float32")):
        assert certify(problem, reading, Effort(budget=looks(20))).verdict == "PROVED"
        cut = certify(problem, reading, Effort(budget=looks(4)))
        assert cut.verdict == "UNKNOWN" and "ended before every pair was" in cut.reason and "counts" not in cut.extra
    with torch.no_grad():
        model.b_out[4] += 9
    whole, cut = (certify(problem, reading_of(None), Effort(budget=looks(number))) for number in (20, 4))
    assert whole.verdict == cut.verdict == "REFUTED" and whole.counterexample["input"] == cut.counterexample["input"]
    assert whole.counterexample["is_smallest"] and not cut.counterexample["is_smallest"]
    assert "counts" in whole.extra and "counts" not in cut.extra
    assert len(cut.extra["wrong_inputs"]) < len(whole.extra["wrong_inputs"])
