"""Count01: the documents' figures, the suspects, and verdicts against brute force in 60-digit arithmetic."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp
import torch
from models.selection import every, first

from bounds import count01 as bounds
from constructions import count01 as build
from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.exact_reals import exponentials, first_nonpositive
from verify.arithmetic.formats import format_of
from verify.arithmetic.readings import Rounded
from verify.frame.certificate import READING_REAL, Verdict
from verify.tasks.count01.boxes import BoxQuery, decide_boxes
from verify.tasks.count01.real import decide, exact_model, largest_digits, largest_noise, margin_at
from verify.tasks.count01.symbolic import symbolic_model
from verify.tasks.count01.task import PromptDomain, cells, triples
from verify.tasks.count01.verdict import certify

ONES = "majority-ones"


def truth(model, n, last):
    """Logits in 60-digit arithmetic from the stored numbers and the definition; shares no code."""
    mpmath.mp.dps = 60
    E, W_out, b_out = (W.double().tolist() for W in (model.E, model.W_out, model.b_out))
    tokens = [0] + [1] * n[0] + [2] * n[1] + [3] * n[2] + [4] + ([] if last == 4 else [last])
    d = len(E[0])
    stream = [mpmath.mpf(E[last][i] if bool(model.skip) else 0) for i in range(d)]

    def times(x, W):
        return [mpmath.fsum(mpmath.mpf(a) * row[j] for a, row in zip(x, W, strict=True)) for j in range(len(W[0]))]

    for h in range(len(model.W_Q)):
        W_Q, W_K, W_V, W_O = (W[h].double().tolist() for W in (model.W_Q, model.W_K, model.W_V, model.W_O))
        query = times(E[last], W_Q)
        weight = {t: mpmath.exp(mpmath.fdot(query, times(E[t], W_K))) for t in set(tokens)}
        value = {t: times(times(E[t], W_V), W_O) for t in set(tokens)}
        total = mpmath.fsum(weight[t] for t in tokens)
        for i in range(d):
            stream[i] += mpmath.fsum(weight[t] * value[t][i] for t in tokens) / total
    return [x + b for x, b in zip(times(stream, W_out), b_out, strict=True)]


def right_token(n, last, labels):
    if last != 4:
        return 7
    if labels == ONES:
        return 5 if n[1] > n[0] else 6
    return 5 if n[0] >= n[1] else 6


def wrong_inputs(model, labels, A, B):
    """Every failing (triple, last) of a domain, by brute force."""
    out = set()
    for n in itertools.product(range(A + 1), range(A + 1), range(B + 1)):
        for last in (4, 5, 6):
            logits, due = truth(model, n, last), right_token(n, last, labels)
            if not all(logits[due] - x > mpmath.mpf(10) ** -40 for j, x in enumerate(logits) if j != due):
                out.add((n, last))
    return out


def mutate(model, rng):
    with torch.no_grad():
        W = rng.choice(list(model.parameters())).view(-1)
        W[rng.randrange(len(W))] += rng.choice([-2, -1, -0.5, -0.01, 0.01, 0.5, 1])
    return model


def random_model(rng, **sizes):
    """Quarter-integers, so that exact ties happen."""
    model = build.Count01Transformer(skip=rng.random() < 0.7, **sizes)
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.tensor([rng.randint(-8, 8) / 4 for _ in range(W.numel())]).reshape(W.shape))
    return model


def one_head_models(count, seed):
    rng = random.Random(seed)
    for i in range(count):
        base = (
            build.uniform(),
            build.documents(rng.choice((3, 4, 5))),
            build.documents(4, labels="thesis", skip=rng.random() < 0.5),
            random_model(rng),
        )[i % 4]
        yield mutate(base, rng) if i % 8 < 5 else base


def two_heads(model, share=(0.25, 0.75)):
    """The same function over two heads of width 1 in d = 2, when the shares sum to 1."""
    twice = build.Count01Transformer(d=2, heads=2, d_h=1)
    with torch.no_grad():
        twice.E[:, 0] = model.E[:, 0]
        for name in ("W_Q", "W_K", "W_V"):
            getattr(twice, name)[:, 0, 0] = 1
        twice.W_O[:, 0, 0] = torch.tensor(share)
        twice.W_out[0], twice.b_out[:] = model.W_out[0], model.b_out
    return twice


# --- the documents' figures


@pytest.mark.parametrize(("N", "limit"), first(1, [(20, 17108827), (10, 1497), (15, 151915)]))
def test_largest_noise_is_proved_and_one_more_is_refuted(N, limit):
    model = build.documents(N)
    assert certify(model, ONES, PromptDomain(1000, limit)).verdict is Verdict.PROVED
    beyond = certify(model, ONES, PromptDomain(1000, limit + 1))
    assert beyond.verdict is Verdict.REFUTED and beyond.counterexample is not None
    assert [beyond.counterexample[k] for k in ("n0", "n1", "n2", "fails")] == [0, 1, limit + 1, True]
    assert bounds.largest_noise(N) == limit
    for labels in build.LABELS:
        assert largest_noise(symbolic_model(N, labels), labels, max_digits=None) == limit


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("labels", build.LABELS)
def test_the_exact_model_is_that_of_the_tables(labels, skip):
    """Its logits are multiplied by 1 + e: every number of `bounds.count01.tables` stands in it, so multiplied."""
    N = 7
    tables, model = bounds.tables(N, labels, skip), symbolic_model(N, labels, skip)

    def scaled(x):
        polynomial = sp.Poly(sp.cancel(sp.sympify(x) * (1 + sp.E)), sp.E)
        return exponentials({k: Fraction(int(c.p), int(c.q)) for (k,), c in polynomial.terms()})

    for t, x in enumerate(tables["E"]):
        for c, w in enumerate(tables["W_out"]):
            assert (model.values[0][t][c] - scaled(w * x)).sign() == 0
        for last in model.scores[0]:
            assert model.scores[0][last][t] == Fraction(int(tables["E"][last] * x))
    for last, line in model.constant.items():
        for c, (w, b) in enumerate(zip(tables["W_out"], tables["b_out"], strict=True)):
            assert (line[c] - scaled(b + (w * tables["E"][last] if skip else 0))).sign() == 0


def test_ground_truth_agrees_on_the_limit():
    for noise, is_right in ((1497, True), (1498, False)):
        assert (truth(build.documents(10), (0, 1, noise), 4)[5] > 0) is is_right


def test_stored_weights_are_bounded_and_exact_weights_are_not():
    stored = exact_model(build.documents(20))
    digits = largest_digits(stored, ONES, 17108827)
    assert digits == 14327451
    assert decide(stored, ONES, PromptDomain(digits, 17108827)).failures == ()
    assert decide(stored, ONES, PromptDomain(digits + 1, 17108827)).failures[0].n == (digits, digits + 1, 17108827)
    exact = symbolic_model(20, ONES)
    assert largest_digits(exact, ONES, 17108827) is None
    assert decide(exact, ONES, PromptDomain(None, 17108827)).failures == ()


@pytest.mark.parametrize("labels", build.LABELS)
@pytest.mark.parametrize("dtype", build.DTYPES.values())
def test_uniform_is_proved_without_any_bound(labels, dtype):
    certificate = certify(build.uniform(labels=labels, dtype=dtype), labels, PromptDomain())
    assert certificate.verdict is Verdict.PROVED and certificate.reading == READING_REAL
    assert certificate.to_dict()["inputs_covered"] == "infinite"


def test_uniform_with_the_eos_line_3_r_minus_6_is_right_too():
    model = build.uniform()
    with torch.no_grad():
        model.W_out[0, build.EOS] = 3
    assert certify(model, ONES, PromptDomain()).verdict is Verdict.PROVED


def test_bounds_equal_the_modules_values():
    for N, n in ((6, (2, 3, 5)), (10, (4, 4, 100))):
        counts = dict(zip((bounds.n0, bounds.n1, bounds.n2), n, strict=True))
        y = bounds.head_output(N).subs(counts)
        logits = truth(build.documents(N), n, 4)
        assert float((y - bounds.separating_value(N)).evalf(30)) == pytest.approx(float(logits[5]), rel=1e-9)
        after = truth(build.documents(N), n, 5)
        assert float(bounds.eos_logit(N**2, N)) == pytest.approx(float(after[7]))
        assert float(bounds.eos_margin(N**2, N).evalf()) == pytest.approx(float(after[7] - after[5]))
    assert bounds.smallest_N(200) == 8
    assert [bounds.largest_noise(N) for N in (1, 2)] == [-1, -1]


def test_the_smallest_N_for_an_unbounded_eos_is_exact():
    for N in (4, 5):
        failures = decide(symbolic_model(N, ONES), ONES, PromptDomain()).failures
        assert any(f.last != 4 for f in failures) is (bounds.smallest_N_for_eos() > N)


def test_without_skip_eos_fails_far_out_only():
    exact = symbolic_model(5, ONES, skip=False)
    assert largest_noise(exact, ONES, 1000) == bounds.largest_noise(5)
    digits = largest_digits(exact, ONES, 0)
    assert digits is not None and digits > 10**200
    assert largest_noise(exact, ONES, None) == -1


# --- the suspects listed under D


def test_suspect_1_the_thesis_labels_mirror_its_construction():
    printed = build.as_printed(10, aligned=True)
    assert certify(printed, "thesis", PromptDomain(3, 3)).verdict is Verdict.REFUTED
    logits = truth(printed, (1, 0, 0), 4)
    assert logits[6] > 0 > logits[5]  # one zero, no ones: answers 5 where the thesis asks 4
    corrected = build.documents(10, labels="thesis")
    assert certify(corrected, "thesis", PromptDomain(200, 200)).verdict is Verdict.PROVED


def test_suspect_2_nine_entries_for_eight_tokens():
    literal = certify(build.as_printed(10), ONES, PromptDomain(3, 3))
    assert literal.verdict is Verdict.REFUTED and literal.counterexample["predicted"] == "EOS"
    assert certify(build.as_printed(10, aligned=True), ONES, PromptDomain(200, 200)).verdict is Verdict.PROVED


def test_the_margin_of_a_wrong_prompt_is_that_over_the_largest_logit():
    """It was once that over the first rival of which a form failed, which here is half as far ahead."""
    for model, domain in ((build.documents(10), PromptDomain(10, 5000)), (build.as_printed(10), PromptDomain(4, 5))):
        case = certify(model, "majority-ones", domain).counterexample
        logits, due = case["logits"], build.TOKENS.index(case["expected"])
        margin = logits[due] - max(x for j, x in enumerate(logits) if j != due)
        assert case["fails"] and case["margin"] == pytest.approx(margin, rel=1e-9)


def test_suspect_3_the_residual_doubles_the_eos_logit():
    logit = build.documents(10).next_logits(torch.tensor([0, 2, 4, 5]))[7].item()
    assert logit == 8 * 10**2 - 12 * 11 != 4 * 10**2 - 12 * 11


def test_suspect_4_only_the_subtracted_maximum_saves_the_exponential():
    scores = torch.tensor([0.0, float(10**4)], dtype=torch.float64)
    assert math.isnan((scores.exp() / scores.exp().sum())[1].item())
    assert build.documents(10).next_logits(torch.tensor([0, 4, 5])).isfinite().all()
    fmt = format_of(torch.float16)
    overflowing = certify(build.documents(20, dtype=torch.float16), ONES, PromptDomain(1, 0), reading=Rounded(fmt))
    assert overflowing.verdict is Verdict.REFUTED and overflowing.counterexample["predicted"] == "NaN"


def test_suspect_5_a_tie_goes_to_a_token_without_weight():
    fmt = format_of(torch.float16)
    rounded = certify(build.documents(10, dtype=torch.float16), ONES, PromptDomain(1, 0), reading=Rounded(fmt))
    assert rounded.verdict is Verdict.REFUTED
    assert rounded.counterexample["predicted"] == "BOS"
    assert rounded.counterexample["tokens"] == ["BOS", "0", "1", "="]
    assert decide(symbolic_model(10, ONES), ONES, PromptDomain(None, 1497)).failures == ()  # never without rounding


def test_suspect_6_section_4_1_states_the_answers_the_other_way_round():
    assert certify(build.documents(10), "thesis", PromptDomain(2, 0)).verdict is Verdict.REFUTED


def test_eps_trades_unbounded_digits_for_precision():
    assert largest_digits(exact_model(build.documents(10, eps=1e-3)), ONES, 0) == 392
    assert largest_digits(exact_model(build.documents(10, eps=-1e-3)), ONES, 0) == 0
    fmt, domain = format_of(torch.float32), PromptDomain(20, 20)
    assert not decide_boxes(build.documents(10, dtype=torch.float32), ONES, domain, RoundedArithmetic.of(fmt)).is_proved
    assert decide_boxes(
        build.documents(10, eps=2**-7, dtype=torch.float32), ONES, domain, RoundedArithmetic.of(fmt)
    ).is_proved


@pytest.mark.parametrize("labels", build.LABELS)
def test_ties_and_the_empty_prompt_have_an_answer(labels):
    for model in (build.documents(10, labels=labels), build.uniform(labels=labels)):
        for n in ((0, 0, 0), (0, 0, 9), (5, 5, 0), (7, 7, 3)):
            logits = truth(model, n, 4)
            assert max(range(8), key=lambda j: logits[j]) == (6 if labels == ONES else 5)


# --- verdicts against brute force


@pytest.mark.parametrize("models", first(1, [6, 12, 32, 64]))
def test_one_head_agrees_with_enumeration(models):
    verdicts = []
    for i, model in enumerate(one_head_models(models, seed=1)):
        labels, (A, B) = build.LABELS[(i % 4) // 2], ((2, 2), (1, 3))[i % 3 == 0]
        wrong = wrong_inputs(model, labels, A, B)
        certificate = certify(model, labels, PromptDomain(A, B))
        verdicts.append(certificate.verdict)
        assert certificate.verdict is (Verdict.REFUTED if wrong else Verdict.PROVED)
        if wrong:
            c = certificate.counterexample
            assert ((c["n0"], c["n1"], c["n2"]), build.TOKENS.index(c["last"])) in wrong
    assert min(verdicts.count(Verdict.PROVED), verdicts.count(Verdict.REFUTED)) >= models / 8


@pytest.mark.parametrize(("models", "most"), first(1, [(3, 2), (6, 2), (16, 2), (24, 3)]))
def test_limits_agree_with_enumeration(models, most):
    for i, model in enumerate(one_head_models(models, seed=7)):
        exact, domain = exact_model(model), PromptDomain(most, most)
        wrong = wrong_inputs(model, ONES, most, most)
        noise, digits = largest_noise(exact, ONES, most), largest_digits(exact, ONES, most)
        for found, position in ((noise, lambda n: n[2]), (digits, lambda n: max(n[0], n[1]))):
            first = min((position(n) for n, _ in wrong), default=None)
            if first is None:
                assert found is None or found >= most, i
            else:
                assert found == first - 1, i
        assert certify(model, ONES, domain).verdict is (Verdict.REFUTED if wrong else Verdict.PROVED)


@pytest.mark.parametrize(
    ("models", "box"),
    first(1, [(5, PromptDomain(3, 2)), (12, PromptDomain(3, 2)), (24, PromptDomain(4, 3)), (48, PromptDomain(6, 5))]),
)
def test_boxes_agree_with_the_exact_procedure(models, box):
    for i, model in enumerate(one_head_models(models, seed=2)):
        labels, domain = build.LABELS[(i % 4) // 2], box
        by_boxes = decide_boxes(model, labels, domain, None)
        assert by_boxes.is_proved == (not decide(exact_model(model), labels, domain).failures)


@pytest.mark.parametrize("models", first(1, [8, 16, 32]))
@pytest.mark.deep
def test_several_heads_agree_with_enumeration(models):
    rng, seen = random.Random(3), []
    for i in range(models):
        shares = (0.25, 0.75) if i % 3 else (0.25, 0.125)
        base = build.uniform() if i % 2 else build.documents(5)
        model = two_heads(base, shares) if i % 8 < 6 else random_model(rng, heads=2, d=2, d_h=2)
        wrong = wrong_inputs(model, ONES, 2, 2)
        result = decide_boxes(model, ONES, PromptDomain(2, 2), None)
        seen.append(result.is_proved)
        assert result.is_proved == (not wrong)
        if wrong:
            assert (result.failure.n, result.failure.last) in wrong
    assert min(seen.count(True), seen.count(False)) >= 0.18 * models


def test_several_heads_need_bounds_and_get_a_verdict():
    model = two_heads(build.documents(10))
    with pytest.raises(BadInput, match="heads=2"):
        certify(model, ONES, PromptDomain())
    assert certify(model, ONES, PromptDomain(200, 200)).verdict is Verdict.PROVED
    beyond = certify(model, ONES, PromptDomain(200, 1600))
    assert beyond.verdict is Verdict.REFUTED and beyond.counterexample["fails"]


def test_an_exact_tie_is_a_failure():
    model = build.uniform()
    with torch.no_grad():
        model.E[build.BOS] = 0  # n0 = n1 is then an exact tie of all logits but EOS
    certificate = certify(model, ONES, PromptDomain(3, 3))
    assert certificate.verdict is Verdict.REFUTED and certificate.margin == 0
    assert margin_at(exact_model(two_heads(model)), (1, 1, 0), 4, 6)[0] == 0


@pytest.mark.parametrize("most", [20, pytest.param(200, marks=pytest.mark.deep)])
@pytest.mark.parametrize(("token", "amount"), every(2, [(1, 0.25), (2, -0.25), (3, 0.125), (4, 0.5), (5, -4)]))
def test_planted_faults_are_refuted(token, amount, most):
    model = build.uniform()
    with torch.no_grad():
        model.E[token] += amount
    certificate = certify(model, ONES, PromptDomain(most, most))
    assert certificate.verdict is Verdict.REFUTED and certificate.counterexample["fails"]


def test_changes_within_the_margin_stay_proved():
    model = build.uniform()
    with torch.no_grad():
        model.E[0] += 0.25
        model.b_out[7] -= 1
    assert certify(model, ONES, PromptDomain()).verdict is Verdict.PROVED


# --- the arithmetic underneath


def test_exponential_sums():
    x = exponentials({Fraction(1, 3): 2, 0: -1})
    assert (x * x - exponentials({Fraction(2, 3): 4, Fraction(1, 3): -4, 0: 1})).sign() == 0
    assert first_nonpositive(exponentials({0: 6}), exponentials({0: -2})) == 3  # 6 - 2 * 3 = 0 counts
    assert first_nonpositive(exponentials({5: 1}), exponentials({0: 1})) is None
    mpmath.mp.dps = 120
    below = int(mpmath.floor(mpmath.e * mpmath.mpf(10) ** 80))
    assert (exponentials({1: 10**80}) - below).sign() == 1
    assert (exponentials({1: 10**80}) - below - 1).sign() == -1


def test_regions_count_their_triples():
    for domain in (
        PromptDomain(3, 2),
        PromptDomain(2, 5, 4),
        PromptDomain(max_length=5),
        PromptDomain(max_digits=2, max_length=7),
    ):
        assert domain.size() == sum(1 for _ in triples(domain))


def test_infinite_and_nan_weights_are_refused():
    for value in (math.inf, math.nan):
        model = build.uniform()
        model.W_out[0, 3] = value
        with pytest.raises(BadInput, match="W_out: holds NaN or infinity"):
            certify(model, ONES, PromptDomain(3, 3))


def two_averages(first, second):
    """Two uniform heads whose values are given per token (8, 8) and added up to the logits."""
    model = build.Count01Transformer(d=9, heads=2, d_h=8, skip=False)
    identity = torch.eye(8, dtype=torch.float64)
    model.E[:, :8], model.E[:, 8], model.W_out[:8] = identity, 1.0, identity
    for h, values in enumerate((first, second)):
        model.W_V[h, :8], model.W_O[h, :, :8] = values, identity
    return model


def test_an_overflow_of_the_floats_bounds_nothing():
    """Count times value overflows to +infinity, which is no lower bound of a quotient below -1e307."""
    one, two = torch.zeros(8, 8, dtype=torch.float64), torch.zeros(8, 8, dtype=torch.float64)
    one[1, build.FOUR], two[build.BOS, build.FOUR] = 1e306, -1e307
    model = two_averages(one, two)
    model.W_Q[1, 8, 0], model.W_K[1, build.BOS, 0] = 1.0, 50.0  # the second head looks at BOS
    exact, cell = exact_model(model), cells(ONES)[0]
    point = np.array([[1e6, 1e5, 0.0]])
    with np.errstate(all="ignore"):
        bound = BoxQuery(model, exact, cell, None).lower_bounds(point, point)
    assert margin_at(exact, cell.side.at(10**6, 10**5, 0), cell.last, cell.expected)[0] == -1
    assert not bound[0] > 0


def test_logits_too_large_for_a_float_are_decided_exactly():
    one = torch.zeros(8, 8, dtype=torch.float64)
    one[1, build.FOUR], one[2, build.FOUR] = -1e200, 1e200
    model = two_averages(one, torch.zeros_like(one))
    model.W_out.mul_(1e200)
    assert (
        certify(model, ONES, PromptDomain(1, 1)).verdict is Verdict.REFUTED
    )  # after 4 the logits of EOS and 5 are equal
