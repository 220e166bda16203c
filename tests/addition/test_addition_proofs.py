"""Digit addition: verdicts against enumeration, exact counts, planted faults, and an adversary for rounding."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import fmpq
from models.selection import every, first

from bounds.addition import wrong_answers
from constructions import addition
from constructions.adder.digits import Digits
from constructions.adder.transformer import AdderTransformer, from_state_dict
from constructions.errors import BadInput, NotKnown
from tests.oracles import addition as oracle
from tests.planted import planted
from verify.arithmetic.outward import float_at_most as below
from verify.arithmetic.readings import reading_of
from verify.frame.decide import certify, exhaustive, sampled
from verify.tasks.addition import columns, proof, readout, shares
from verify.tasks.addition.task import DigitAddition

SMALL = [(1, 2), (2, 2), (3, 2), (4, 2), (1, 3), (2, 3), (1, 10), (2, 4)]
BUILDERS = {"one_head": addition.one_head, "two_heads": addition.two_heads, "lookahead": addition.lookahead}


def verdict(model, n, B, precision=None):
    return certify(DigitAddition(model, Digits(n, B)), reading_of(precision))


def enumerated(model, n, B):
    """How many pairs are wrong, and the least margin, by torch on all pairs, in float64."""
    problem = DigitAddition(model, Digits(n, B))
    margins = problem.run(list(problem.inputs()))
    return int((~(margins > 0)).any(1).sum()), float(margins.min())


@pytest.mark.parametrize("n, B", every(2, SMALL))
@pytest.mark.parametrize("name", BUILDERS)
def test_verdicts_agree_with_enumeration(name, n, B):
    for k in (0, 1, 2) if name == "lookahead" else (None,):
        model = BUILDERS[name](n=n, B=B) if k is None else addition.lookahead(k, n=n, B=B)
        found = verdict(model, n, B)
        wrong, least = enumerated(model, n, B)
        if k is not None and k < n:
            assert found.verdict == "REFUTED"
            expected = oracle.wrong_pairs(n, B, k)
            assert int(found.extra["counts"]["wrong"]) == wrong == len(expected) == wrong_answers(n, B, k)
            assert found.counterexample["input"] == DigitAddition(model, Digits(n, B)).name(expected[0])
        else:
            assert found.verdict == "PROVED" and wrong == 0 and found.margin <= least + 1e-9


def test_the_module_agrees_with_plain_python():
    rng = random.Random(1)
    for model, n, B in ((addition.two_heads(n=2), 2, 10), (addition.two_layers(n=3, B=3), 3, 3)):
        sums = Digits(n, B)
        for _ in range(5):
            a, b = rng.randrange(B**n), rng.randrange(B**n)
            tokens = sums.prompt(a, b) + sums.answer(a, b)[:-1]
            torch.testing.assert_close(
                model(torch.tensor([tokens]))[0], torch.tensor(oracle.logits(model, tokens), dtype=torch.float64)
            )


@pytest.mark.parametrize("seed", [*range(14), *(pytest.param(i, marks=pytest.mark.deep) for i in range(14, 40))])
def test_mutated_models_are_never_proved_wrongly_nor_refuted_without_reason(seed):
    rng = random.Random(seed)
    n, B = rng.choice([(2, 2), (3, 2), (1, 3), (2, 3), (1, 5)])
    name = rng.choice(sorted(BUILDERS))
    model = BUILDERS[name](n=n, B=B)
    with torch.no_grad():
        for _ in range(rng.choice([1, 1, 3])):
            W = rng.choice([W for W in model.parameters() if W.numel()])
            index = tuple(rng.randrange(s) for s in W.shape)
            W[index] += rng.choice([0.01, -0.03, 0.3, -1.0, 2.0])
    found = verdict(model, n, B)
    wrong, least = enumerated(model, n, B)
    if found.verdict == "PROVED":
        assert wrong == 0 and found.margin <= least + 1e-9
    elif found.verdict == "REFUTED":
        assert wrong > 0 or abs(least) < 1e-9
        if "counts" in found.extra:
            assert int(found.extra["counts"]["wrong"]) == wrong


@pytest.mark.parametrize("n, B", [(1, 2), (3, 2), (2, 3), (1, 10), (4, 2)])
def test_two_layers_agree_with_enumeration(n, B):
    model = addition.two_layers(n=n, B=B)
    found = verdict(model, n, B)
    wrong, least = enumerated(model, n, B)
    assert found.verdict == "PROVED" and wrong == 0 and 0.49 < found.margin <= least + 1e-9


@pytest.mark.parametrize("seed", [*range(14), *(pytest.param(i, marks=pytest.mark.deep) for i in range(14, 40))])
def test_mutated_models_of_two_layers(seed):
    rng = random.Random(seed)
    n, B = rng.choice([(2, 2), (3, 2), (1, 3), (2, 3)])
    model = addition.two_layers(n=n, B=B)
    with torch.no_grad():
        for _ in range(rng.choice([1, 1, 3])):
            W = rng.choice([W for W in model.parameters() if W.numel()])
            index = tuple(rng.randrange(s) for s in W.shape)
            W[index] += rng.choice([0.01, -0.03, 0.3, -1.0, 2.0])
    found = verdict(model, n, B)
    wrong, least = enumerated(model, n, B)
    if found.verdict == "PROVED":
        assert wrong == 0 and found.margin <= least + 1e-9
    elif found.verdict == "REFUTED":
        assert wrong > 0 or abs(least) < 1e-9


@pytest.mark.deep
def test_two_layers_add_long_numbers_with_a_margin_that_does_not_fall():
    margins = [verdict(addition.two_layers(n=n), n, 10).margin for n in (4, 30)]
    assert min(margins) > 0.499 and abs(margins[0] - margins[1]) < 1e-3


def test_the_numbers_of_the_page():
    ten_to_the_ten = verdict(addition.one_head(n=5), 5, 10)
    assert ten_to_the_ten.verdict == "PROVED" and ten_to_the_ten.inputs_covered == 10**10
    assert 4.99e-6 <= ten_to_the_ten.margin <= 5e-6
    assert verdict(addition.one_head(n=12), 12, 10).verdict == "PROVED"
    assert verdict(addition.one_head(n=48, B=2), 48, 2).verdict == "PROVED"
    found = verdict(addition.lookahead(2, n=5), 5, 10)
    assert found.extra["counts"] == {"right": "9865000000", "wrong": "135000000"}
    assert found.counterexample["input"] == "00001+00999=" and found.counterexample["predicted"] == "000000"


def test_float32_in_any_order():
    assert verdict(addition.two_heads(n=5, dtype=torch.float32), 5, 10, "float32").verdict == "PROVED"
    refuted = verdict(addition.one_head(n=5, dtype=torch.float32), 5, 10, "float32")
    assert refuted.verdict == "REFUTED" and refuted.margin <= 0


@pytest.mark.parametrize("n, B, precision", first(2, [(2, 2, "p9"), (1, 8, "p11"), (3, 2, "p12"), (2, 3, "float32")]))
def test_no_order_goes_below_a_margin_proved_for_any_order(n, B, precision):
    from verify.arithmetic.evaluation import Evaluation
    from verify.tasks.addition.rounded import ORDERS

    reading = reading_of(precision)
    model = addition.two_heads(n=n, B=B)
    found = verdict(model, n, B, precision)
    problem = DigitAddition(model, Digits(n, B))
    pairs = list(problem.inputs())
    least = min(
        float(problem.rounded_margins(pairs, Evaluation(reading.format, None, order, fused=fused)).min())
        for order in ORDERS
        for fused in (False, True)
    )
    if found.verdict == "PROVED":
        assert found.margin <= least
    elif found.verdict == "REFUTED":
        assert least <= 0


def test_some_low_precision_is_proved():
    assert verdict(addition.two_heads(n=2, B=2), 2, 2, "p16").verdict == "PROVED"


@pytest.mark.parametrize(
    "owner, name, right, wrong",
    [
        (columns.DigitQuery, "_through", '"G": 1', '"G": 0'),
        (columns.DigitQuery, "_ways", "int(s + k >= B)", "int(s >= B)"),
        (proof.ColumnCells, "right", "cell.s + cell.carry", "cell.s"),
        (readout.Readout, "logits", "if reading > 0", "if reading > 1"),
    ],
)
def test_planted_faults_are_caught(owner, name, right, wrong):
    """A fault in the reduction changes a verdict or a count on small models."""
    cases = [(addition.one_head(n=2, B=3), 2, 3), (addition.lookahead(1, n=3, B=2), 3, 2)]

    def answers():
        out = []
        for model, n, B in cases:
            try:
                found = verdict(model, n, B)
                out.append((found.verdict, found.margin, str(found.extra.get("counts"))))
            except Exception as error:  # a fault may also crash
                out.append(type(error).__name__)
        return out

    before = answers()
    with planted(owner, name, right, wrong):
        assert answers() != before


def test_leaks_are_counted():
    """A score that leaks to higher columns is seen: the answer's own digits are part of the sum."""
    model = addition.one_head(n=3, B=2)
    with torch.no_grad():
        model.blocks[0].W_Q[0, 2, 1:3] = 0.0  # column 0 also attends to columns 1 and 2
    wrong, _ = enumerated(model, 3, 2)
    assert wrong > 0 and verdict(model, 3, 2).verdict == "REFUTED"


def test_runs_by_torch():
    problem = DigitAddition(addition.two_layers(n=2, B=3), Digits(2, 3))
    assert exhaustive(problem).verdict == "PROVED"
    assert sampled(problem).verdict == "UNKNOWN"
    wrong = DigitAddition(addition.lookahead(1, n=3, B=3), Digits(3, 3))
    found = exhaustive(wrong)
    assert found.verdict == "REFUTED"
    assert int(found.extra["counts"]["wrong"]) == wrong_answers(3, 3, 1)


def test_generation_keeps_keys():
    model, sums = addition.two_layers(n=3), Digits(3)
    pairs = [(995, 5), (999, 999), (1, 98), (123, 456)]
    prompts = torch.tensor([sums.prompt(*pair) for pair in pairs])
    assert model.generate(prompts, 4).tolist() == [sums.answer(*pair) for pair in pairs]


def test_refusals():
    with pytest.raises(NotKnown, match="layers 2"):
        addition.one_head(n=16)
    with pytest.raises(BadInput, match="lookahead=-1"):
        addition.lookahead(-1, n=3)
    with pytest.raises(BadInput, match="--digits"):
        DigitAddition(addition.one_head(n=3), Digits(4))
    state = addition.one_head(n=2).state_dict()
    assert isinstance(from_state_dict(state), AdderTransformer)
    state["E"][0, 0] = float("nan")
    with pytest.raises(BadInput, match="NaN"):
        from_state_dict(state)


def test_shares_are_those_of_softmax():
    model, sums = addition.one_head(n=3), Digits(3)
    stream = shares.stream_of(model, sums)
    tokens = sums.prompt(123, 989) + sums.answer(123, 989)[:-1]
    x = oracle.logits  # the oracle runs the whole model; here only the attended sum is compared
    assert callable(x)
    for i in range(4):
        query = stream.directions[i][0].attended
        low = sum(t[0] for t in (query.constant,)) + sum(
            query.first[j][123 // 10**j % 10][0] + query.second[j][989 // 10**j % 10][0] for j in range(3)
        )
        low += sum(query.answer[j][(123 + 989) // 10**j % 10][0] for j in range(i + 1, 4))
        U = sum((123 // 10**j % 10 + 989 // 10**j % 10) * 10.0 ** (j - i) for j in range(min(i, 2) + 1))
        assert np.isclose(low / 2**stream.bits, U, rtol=1e-9) and tokens


def test_scores_beyond_float64_leave_two_layers_undecided():
    """Scores times 2^1200 changed no answer, and a box with NaN ended the proof as a crash."""
    model = addition.two_layers(n=1, B=3)
    with torch.no_grad():
        for layer in model.blocks:
            layer.W_Q.mul_(2.0**600)
            layer.W_K.mul_(2.0**600)
    assert certify(DigitAddition(model, Digits(1, 3))).verdict.value != "REFUTED"
    assert below(fmpq(10**400)) < np.inf and below(fmpq(-(10**400))) == -np.inf


@pytest.mark.parametrize("precision", [None, "float64"])
def test_beside_a_proof_in_a_large_base_the_tightest_pair_is_run(precision, monkeypatch):
    ran, B = [], 40
    written = DigitAddition._written
    monkeypatch.setattr(DigitAddition, "_written", lambda self, pairs: ran.append(list(pairs)) or written(self, pairs))
    found = verdict(addition.one_head(n=1, B=B), 1, B, precision)
    assert found.verdict == "PROVED"
    a, b = (int(part) for part in found.tightest["input"].rstrip("=").split("+"))
    assert (a, b) != (0, 0) and [(a, b)] in ran


@pytest.mark.parametrize("power", [-1060, -1000, 700, 1000])
def test_scaled_readouts_are_right_with_a_margin_that_is_none_too_large(power):
    """Margins beyond float64's range are printed below what they are, and are no crash."""
    model = addition.one_head(n=1, B=3)
    problem = DigitAddition(model, Digits(1, 3))
    exact = certify(problem, reading_of(None)).margin
    with torch.no_grad():
        model.W_out.mul_(2.0**power)
        model.b_out.mul_(2.0**power)
    found = verdict(model, 1, 3)
    assert found.verdict in ("PROVED", "UNKNOWN")
    if found.verdict == "PROVED":
        assert 0 <= Fraction(found.margin) <= Fraction(exact) * Fraction(2) ** power * (1 + Fraction(1, 10**9))


SIZES = [(1, 10**400), (10**400, 1), (-1, 10**400), (-(10**400), 1), (1, 3), (0, 1)]


@pytest.mark.parametrize(("p", "q"), SIZES, ids=["faint", "huge", "below 0", "far below 0", "third", "zero"])
def test_margins_are_rounded_down_at_any_size(p, q):
    found = below(fmpq(p, q))
    assert found == -math.inf or Fraction(found) <= Fraction(p, q)
    assert p < 0 or found >= 0


def widened(model, embedded, at_place, read):
    """The model with one more direction: what tokens and places have there, and what class 1 reads of it."""
    E, places, classes = model.E, model.positions, model.classes
    new = AdderTransformer(
        tokens=len(E), length=len(places), classes=classes, d=E.shape[1] + 1, d_h=3, d_v=1, p=(2,), dtype=torch.float64
    )
    weights = {name: torch.zeros_like(value) for name, value in new.state_dict().items()}
    for name, value in model.state_dict().items():
        weights[name][tuple(map(slice, value.shape))] = value
    weights["E"][:, -1], weights["positions"][:, -1], weights["W_out"][-1, 1] = embedded, at_place, read
    weights["b_out"][1] -= (embedded + at_place) * read
    new.load_state_dict(weights)
    return new


@pytest.mark.parametrize(("power", "verdict_due"), [(15, "UNKNOWN"), (13, "PROVED")])
def test_a_sum_of_embedding_and_position_that_is_subnormal_may_be_flushed(power, verdict_due):
    """All of it is exact, and without the sum, which is 2^-power, the answer 1 loses 1: more than the margin."""
    model = widened(addition.one_head(n=1, B=2), 1.5 * 2.0 ** (1 - power), -(2.0 ** (1 - power)), 2.0**power)
    assert verdict(addition.one_head(n=1, B=2), 1, 2, "float16").margin < 1
    assert verdict(model, 1, 2).verdict == "PROVED"
    assert verdict(model, 1, 2, "float16").verdict == verdict_due


@pytest.mark.parametrize(("name", "power", "precision"), [
    ("W_O", 600, "float32"),  # overflows
    ("W_O", -600, "float32"),  # is 0, so that nothing is written
    ("W_K", 100, "tf32"),  # no exponential is known
])  # fmt: skip
def test_weights_that_a_format_does_not_hold_are_wrong_in_a_run(name, power, precision):
    model = addition.one_head(n=2, B=3)
    with torch.no_grad():
        getattr(model.blocks[0], name).mul_(2.0**power)
    assert verdict(model, 2, 3, precision).verdict == "REFUTED"


def far_from_zero():
    """Head 0 writes 2 (1023 + digits' mean), which the positions take away again: tf32 rounds 1024.5 to a factor."""
    model = addition.two_heads(n=1, B=3)
    with torch.no_grad():
        model.blocks[0].W_V[0, 5:7] = 1023.0  # every position is 1 in one of these lanes
        model.positions[3:, 1] -= 2046.0
    return model


def test_a_heads_output_is_a_factor_that_tf32_rounds():
    found = verdict(far_from_zero(), 1, 3, "tf32")
    assert found.verdict == "REFUTED" and found.margin <= -2
    shared = planted(shares, "_shares", "growth_of_products(k + 1)", "growth(k + 1)")
    with shared, planted(shares, "_direction", "if roundings or arithmetic.rounds_factors:", "if roundings:"):
        assert verdict(far_from_zero(), 1, 3, "tf32").verdict == "PROVED"  # the test is one
