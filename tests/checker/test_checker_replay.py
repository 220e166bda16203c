"""Wrong inputs in a dtype: the checker's evaluations are those of exact arithmetic, rounded, and each fault is seen."""

import json
import math
import random
from fractions import Fraction
from itertools import product
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from models.certificates import HISTOGRAMS, WRONG_IN_DTYPES, honest, in_dtype
from models.random_models import random_model
from models.selection import every, first
from oracles.every_sum import every_sum
from oracles.forged import falsehood
from oracles.rounded import LeftToRight, nearest
from test_checker_real import outcome

from constructions import checkpoint
from constructions.adder.transformer import to_bytes
from constructions.addition import one_head
from tests.planted import planted
from verify.arithmetic.evaluation import ORDERS, Evaluation
from verify.arithmetic.formats import FORMATS, format_named
from verify.checker import adder, replay, reruns, rounded_operations
from verify.checker.formats import NAMED, BinaryFormat, format_of
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, read_weights
from verify.checker.replay import PLAIN, Replay
from verify.checker.roundoff import Roundoff
from verify.frame import decide
from verify.tasks.addition import rounded as rounded_adder
from verify.tasks.count01 import runs
from verify.tasks.histogram.rounded import forward, refutation
from verify.tasks.histogram.rounded.verdict import certify
from verify.tasks.parity import rounded as rounded_parity

NAMES = ("float64", "float32", "bfloat16", "float16", "p3", "p12")


def run_in(name, inner=None, **said):
    return Replay(format_of(name), format_of(inner or name), PLAIN | said)


def numbers(draw, fmt, n):
    """Numbers of the format, some of them 0, alike, subnormal or large."""
    found = [draw.choice([draw.uniform(-2, 2), 1.0, draw.uniform(-1, 1) * 2.0**-9, 0.0]) for _ in range(n)]
    return [float(nearest(Fraction(x), fmt)) for x in found]


# ---- one operation


@pytest.mark.parametrize("name", NAMES)
def test_each_operation_is_the_exact_one_rounded(name):
    """Against fractions and against mpmath, at ends of the format's range, too."""
    draw, fmt, on = random.Random(name), format_named(name), run_in(name)
    scales = [0, 0, 0, fmt.smallest_exponent, fmt.smallest_exponent - fmt.p + 2, 12]
    for _ in range(400):
        x, y, z = (nearest(Fraction(draw.uniform(-2, 2)) * Fraction(2) ** draw.choice(scales), fmt) for _ in range(3))
        exact = {on.add: Fraction(x) + Fraction(y), on.times: Fraction(x) * Fraction(y)}
        exact |= {on.divide: Fraction(x) / Fraction(y)} if y else {}
        for operation, result in exact.items():
            assert operation(x, y) == nearest(result, fmt), (operation, x, y)
        assert on.fused(x, y, z) == nearest(Fraction(x) * Fraction(y) + Fraction(z), fmt)
        x = x if abs(x) < 4 else 4 / x
        with mpmath.workprec(400):
            significand, exponent = mpmath.exp(mpmath.mpf(8 * x)).man_exp
        assert on.exp(8 * x) == nearest(Fraction(int(significand)) * Fraction(2) ** int(exponent), fmt)


def test_what_is_not_finite_stays_so():
    on = run_in("float16")
    assert on.times(300.0, 300.0) == math.inf == on.exp(12.0) == on.exp(1e9) and on.add(-65504.0, -65504.0) == -math.inf
    assert math.isnan(on.add(math.inf, -math.inf)) and on.exp(-math.inf) == 0.0 == on.exp(-3000.0)
    assert on.divide(1.0, math.inf) == 0.0 and on.exp(0.0) == 1.0
    assert on.softmax([0.0, math.nan]) == pytest.approx([math.nan] * 2, nan_ok=True)
    wide = run_in("float64")
    assert wide.fused(1e200, 1e200, -math.inf) == -math.inf and wide.exp(-1.7e308) == 0.0


def test_flushing_takes_subnormal_results():
    small = 2.0**-14
    assert run_in("float16").times(small, 0.5) == small / 2
    assert run_in("float16", flush=True).times(small, 0.5) == 0.0 == run_in("float16", flush=True).tensor(small / 4)


# ---- sums


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_is_that_of_the_prover(order):
    draw = random.Random(order)
    for name, fused, n in product(("float32", "bfloat16", "p3"), (False, True), (1, 2, 3, 6, 13)):
        fmt, seed = format_named(name), draw.randrange(9)
        x, y = numbers(draw, fmt, n), numbers(draw, fmt, n)
        found = run_in(name, seed=seed).dot(x, y, order, fused)
        at = Evaluation(fmt, order=order, fused=fused, seed=seed)
        assert found == at.dot(np.array(x), np.array(y)).item(), (name, fused, x, y)


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_is_one_of_all_orders(order):
    """Of the results of all trees whose additions are rounded or kept."""
    draw, fmt = random.Random(order), format_named("p3")
    for n in (1, 2, 4, 5):
        x = numbers(draw, fmt, n)
        assert run_in("p3", seed=3).dot(x, [1.0] * n, order, False) in every_sum(tuple(x), fmt)


def test_a_direction_takes_the_least_or_the_largest():
    ways = [[order, fused, is_term] for order in ORDERS for fused in (False, True) for is_term in (False, True)]
    x, ones = [1.0, 0.125, 0.125, 0.125], [1.0] * 4
    low, high, plain = (
        run_in("p3", ways=ways, directions=directions).sums("s", x, [ones], [0.125])[0]
        for directions in ([["s", "-"]], [["s", "+"]], [])
    )
    assert (low, plain, high) == (1.0, 1.0, 1.5)
    on = run_in("p3", ways=ways, directions=[["s", "-"]])
    on.sums("s", x, [ones])
    on.ended()
    with pytest.raises(replay.Refusal, match="no . and -"):
        on.sums("s", x, [ones])
    with pytest.raises(replay.Refusal, match="more directions"):
        run_in("p3", ways=ways, directions=[["s", "-"]]).ended()


@pytest.mark.parametrize("seeds", first(1, [range(12), range(12, 120)]), ids=str)
def test_a_histogram_from_left_to_right_is_that_of_fractions(seeds):
    held = 0
    for seed in seeds:
        module, name, fused = random_model(seed), ("float32", "bfloat16", "p12")[seed % 3], seed % 2 == 1
        fmt = BinaryFormat(*(format_of(name).p, -126, 127))
        w = read_weights(checkpoint.as_bytes(module, claim=None, construction=None))
        W = {key: fmt.of_weights(rows) for key, rows in w.matrices.items()}
        draw = random.Random(seed)
        tokens = [draw.randrange(module.T) for _ in range(module.L)]
        rows = LeftToRight(format_named(name), fused).logits(module, tokens)
        for position in range(module.L):
            d = None if module.is_linear else module.d
            found = reruns.of_counts(run_in(name, fused=fused), W, tokens, position, d, module.is_softmax)
            held += found == [float(x) for x in rows[position]]
    assert held == sum(random_model(seed).L for seed in seeds)


# ---- certificates


def told(seed, name, accumulate=None):
    """A drawn model that is wrong in a format, and the certificate."""
    module = random_model(seed)
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    found = certify(module, fmt=format_named(name), accumulate=accumulate, budget=1.0)
    return weights, json.loads(found.about(weights).to_json())


EACH = [Evaluation(FORMATS["float32"], flush=True), None, Evaluation(FORMATS["float32"], reciprocal=True)]
EACH += [Evaluation(FORMATS["float32"], order=order, fused=fused) for order in ORDERS for fused in (False, True)]


@pytest.mark.parametrize("number", every(16, range(len(EACH))))
def test_every_evaluation_that_the_prover_names_is_run_again(number):
    """One at a time; None is each sum in its worst order. Margins are equal to the last bit."""
    only, held, orders = EACH[number], 0, set()

    def evaluations(fmt, accumulate, stored):
        if only is not None:
            yield Evaluation(fmt, accumulate, only.order, only.fused, only.flush, only.reciprocal, only.seed)

    for seed, name in product(range(4), ("p5", "bfloat16", "float64")):
        accumulate = FORMATS["float32"] if name == "bfloat16" and seed % 2 else None
        with mock.patch.object(refutation, "evaluations", evaluations):
            weights, c = told(seed, name, accumulate)
        if c["verdict"] == "REFUTED" and "run_as" in c["counterexample"]:
            code, answer = outcome(weights, json.dumps(c))
            assert code == 0 or (code == NOT_CHECKABLE and name == "float64"), (seed, name, answer)
            held += code == 0
            orders.add(c["counterexample"]["order"])
            if c["margin"] is not None and name != "float64":
                other = math.nextafter(c["margin"], -math.inf)
                assert outcome(weights, json.dumps(c | {"margin": other}))[0] != 0
    assert held >= 6 and len(orders) <= 2


@pytest.mark.deep
def test_an_order_that_is_not_wrong_is_refused():
    """A model that one order of its sums gets wrong, with the other orders named."""
    weights, text = honest("parity, wrong by its order, p2")
    said, right = json.loads(text)["counterexample"]["run_as"], 0
    for ways in [[way] for way in said["ways"][::3]]:
        c = json.loads(text)
        c["counterexample"]["run_as"]["ways"] = ways
        code, answer = outcome(weights, json.dumps(c))
        right += code == FAILS and "right" in answer
        assert code in (0, FAILS)
    assert right


PROVER_FAULTS = [
    ("bos, wrong, float32", forward, "_forward", "np.maximum(at.tensor(", "np.minimum(at.tensor("),
    ("random, wrong, float64", forward, "_forward", "at(add, x, at.product(mixing, context))",
     "at(add, 2 * x, at.product(mixing, context))"),
    ("parity, wrong, p30", rounded_parity, "_hidden", "np.maximum(at.tensor(", "np.minimum(at.tensor("),
    ("clock, wrong, float32", rounded_adder, "logits", "np.maximum(at.tensor(", "np.minimum(at.tensor("),
    ("addition, wrong, float64", rounded_adder, "logits", "np.maximum(at.tensor(", "np.minimum(at.tensor("),
    ("count01, heads, wrong, float32", runs, "rounded_logits", "at.tensor(at(add, last, stream))",
     "at.tensor(at(add, last, 2 * stream))"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PROVER_FAULTS)))
def test_a_fault_in_the_evaluation_of_the_prover_is_found(number):
    """It answers with other numbers, which the run again does not have: refused, unless the fault shows nowhere."""
    name, owner, function, right, wrong = PROVER_FAULTS[number]
    users = {"logits": ["verify.tasks.addition.task", "verify.tasks.addition.modular.task"]}.get(function, [])
    with planted(owner, function, right, wrong), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        patches = [mock.patch(f"{user}.{function}", getattr(owner, function)) for user in users]
        for patch in patches:
            patch.start()
        try:
            weights, text = in_dtype(*WRONG_IN_DTYPES[name])
        finally:
            for patch in patches:
                patch.stop()
    assert json.loads(text)["verdict"] == "REFUTED" and text != honest(name)[1]
    assert outcome(weights, text)[0] in (FAILS, NOT_CHECKABLE)


CHECKER_FAULTS = [
    (rounded_operations.RoundedOperations, "fused", "most = max(i + j, k)", "most, c = max(i + j, k), c + 1"),
    (BinaryFormat, "closest", "steps % 2 == 1", "True"),
    (BinaryFormat, "closest", "self.least", "-5000"),
    (rounded_operations, "quotient", "2 * q + (rest > 0)", "2 * q"),
    (rounded_operations, "power", "2 * int(below) + 1", "2 * int(below) + 2**60"),
]


@pytest.mark.parametrize("number", range(len(CHECKER_FAULTS)))
def test_a_fault_of_the_rounding_is_found(number):
    with planted(*CHECKER_FAULTS[number]), pytest.raises(AssertionError):
        for name in NAMES:
            test_each_operation_is_the_exact_one_rounded(name)


def test_a_wrong_input_without_a_named_evaluation_is_not_run():
    weights, text = honest("bos, wrong, float32")
    c = json.loads(text)
    del c["counterexample"]["run_as"]
    assert outcome(weights, json.dumps(c))[0] == NOT_CHECKABLE


@pytest.mark.parametrize("seeds", first(1, [range(20), range(20, 400)]), ids=str)
def test_what_holds_of_a_right_model_is_that_an_order_is_wrong(seeds):
    """A forged evaluation of a proved input never holds: the model is proved for all orders."""
    tried = 0
    for seed in seeds:
        module, name = random_model(seed), ("p8", "float32")[seed % 2]
        weights = checkpoint.as_bytes(module, claim=None, construction=None)
        proof = certify(module, fmt=format_named(name), budget=1.0).about(weights)
        if proof.verdict.value != "PROVED" or module.W_2.shape[1] == 1:
            continue
        draw, said = random.Random(seed), json.loads(honest("bos, wrong, float32")[1])
        c = json.loads(proof.to_json())
        tokens = [draw.randrange(module.T) for _ in range(module.L)]
        k, first_count = tokens.count(tokens[0]), module.first_count
        answers = [n + first_count for n in range(module.W_2.shape[1]) if n + first_count != k]
        c["counterexample"] = said["counterexample"] | {
            "tokens": tokens, "input": tokens, "position": 0, "expected": k, "predicted": draw.choice(answers),
            "run_as": Evaluation(FORMATS["float32"], order=draw.choice(ORDERS), fused=draw.random() < 0.5).named(),
        }  # fmt: skip
        c |= {"verdict": "REFUTED", "inputs_covered": "1", "margin": draw.choice([0.0, -0.5])}
        c |= {"tightest": None, "margin_per_count": None, "argument": "a run in the dtype"}
        assert outcome(weights, json.dumps(c))[0] == FAILS
        tried += 1
    assert tried


def test_the_oracle_knows_a_lie():
    """Another prediction and another margin of a wrong input."""
    weights, text = honest("random, wrong, float64")
    c = json.loads(text)
    assert falsehood(weights, json.dumps(c | {"margin": c["margin"] / 2}))


def test_a_weight_below_the_normal_numbers_is_kept_in_the_run_that_is_named():
    """It is a number of the format, if of few bits; in all evaluations at once it may be flushed or kept."""
    fmt, (tiny, least) = format_of("float16"), (2.0**-20, 2.0**-24)
    assert fmt.of_one_run.of_weights([[tiny, 1.4 * least, -0.4 * least]]) == [[tiny, least, 0.0]]
    with pytest.raises(Refusal) as refusal:
        fmt.of_weights([[tiny]])
    assert refusal.value.exit_code == NOT_CHECKABLE
    for name, verdict in (("bos, wrong", "REFUTED"), ("dot", "PROVED")):
        module = HISTOGRAMS[name]().half()
        with torch.no_grad():
            zeros = next(x.view(-1) for x in module.parameters() if (x == 0).any())
            zeros[(zeros == 0).nonzero()[0]] = tiny
        weights = checkpoint.as_bytes(module, claim=None, construction=None)
        text = certify(module, fmt=FORMATS["float16"]).about(weights).to_json()
        assert json.loads(text)["verdict"] == verdict
        assert outcome(weights, text)[0] == (0 if verdict == "REFUTED" else NOT_CHECKABLE)
        assert verdict == "PROVED" or falsehood(weights, text) is None


def test_a_small_weight_that_is_flushed_gives_another_margin():
    weights, text = small_and_wrong()
    assert outcome(weights, text) == (0, "REFUTED") and falsehood(weights, text) is None
    with planted(BinaryFormat, "of_weights", "self.nearest(x) for x in row", "round(self.nearest(x), 3) for x in row"):
        assert outcome(weights, text)[0] == FAILS


def small_and_wrong():
    """A model with no neurons that are on, so that its logits are b_2: of few bits, below the normal numbers."""
    module = HISTOGRAMS["dot"]().half()
    with torch.no_grad():
        for x in module.parameters():
            x *= 0
        module.b_2 += torch.arange(len(module.b_2)) * 2.0**-20
    weights = checkpoint.as_bytes(module, claim=None, construction=None)
    return weights, certify(module, fmt=FORMATS["float16"]).about(weights).to_json()


def test_a_run_with_a_weight_that_overflows_is_not_called_false():
    """It is wrong for that, which no run in finite numbers shows; a proof about it is false."""
    file = to_bytes(one_head(n=6, B=10), {"task": "addition"})
    float16 = BinaryFormat(*NAMED["float16"])
    for fmt, code in ((float16.of_one_run, NOT_CHECKABLE), (float16, FAILS)):
        with pytest.raises(Refusal, match="a weight of 1000000.0 overflows") as refusal:
            adder.rounded(adder.read_adder(file), Roundoff(fmt))
        assert refusal.value.exit_code == code
