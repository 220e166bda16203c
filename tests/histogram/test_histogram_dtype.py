"""Certificates of the reading "dtype, any order": against every sequence in every simulated order; planted faults."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from command import run
from models.random_models import random_model
from models.selection import every, first

from constructions import inventory_counting, relation_counting
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.arithmetic.any_order import RoundedArithmetic, unit_exponent
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import add, multiply, rounded
from verify.frame.certificate import READING_DTYPE, Verdict
from verify.frame.clock import Budget, Deadline
from verify.tasks.histogram.precision.search import Construction, frontier, judge
from verify.tasks.histogram.proof import certify as certify_real
from verify.tasks.histogram.rounded import forward
from verify.tasks.histogram.rounded.directed import Directed
from verify.tasks.histogram.rounded.forward import margins, rounded_model
from verify.tasks.histogram.rounded.refutation import PRODUCTS, Paced, directed_failure, evaluations
from verify.tasks.histogram.rounded.verdict import certify, rounded_module
from verify.tasks.histogram.stored import StoredModel

NAMES = ("p3", "p5", "p8", "bfloat16", "float16", "e4m3", "e5m2", "tf32")


def every_sequence(T, L):
    return np.stack(np.meshgrid(*[np.arange(T)] * L, indexing="ij"), -1).reshape(-1, L)


def worst_margin(stored, tokens, found, evaluation):
    """The margin of a found input where every sum is taken in its worst order."""
    position, rival = np.array([found["position"]]), np.array([found["predicted"] - stored.first_count])
    return Directed(evaluation, "step by step" in found["order"], "not rounded" not in found["order"]).margins(
        rounded_model(stored, evaluation), tokens, position, rival
    )[0]


@pytest.mark.parametrize("kind", range(6))
def test_a_token_that_comes_twice_is_computed_once(kind, monkeypatch):
    """The same bits as with every place by itself, in every order."""
    stored = StoredModel.of(random_model(kind))
    fmt = FORMATS["bfloat16"]
    stored, tokens = rounded_model(stored, Evaluation(fmt)), every_sequence(stored.T, stored.L)[::7]
    orders = list(evaluations(fmt, None, stored))[::3]
    found = [forward.logits(stored, tokens, order) for order in orders]
    places = forward._first_places
    monkeypatch.setattr(forward, "_first_places", lambda tokens, is_every: places(tokens, is_every=True))
    assert found and all(
        logits.tobytes() == forward.logits(stored, tokens, order).tobytes()
        for logits, order in zip(found, orders, strict=True)
    )


@pytest.mark.parametrize("models", first(1, [72, 150]))
@pytest.mark.parametrize("kind", first(2, range(6)))
def test_a_verdict_is_what_every_order_on_every_sequence_says(kind, models):
    """Whole models, T, L <= 4: PROVED and no evaluation fails anywhere; REFUTED and the named input does."""
    verdicts = set()
    for seed in range(kind, kind + models, 6):
        module = random_model(seed)
        if module.L > 4:
            continue
        fmt = format_named(NAMES[seed // 6 % len(NAMES)])
        accumulate = FORMATS["float32"] if seed % 4 == 0 and fmt.name != "tf32" else None
        certificate = certify(module, fmt=fmt, accumulate=accumulate, budget=1.0)
        verdicts.add(certificate.verdict)
        stored = StoredModel.of(module)
        if certificate.verdict is Verdict.PROVED:
            assert certificate.inputs_covered == module.T**module.L
            for evaluation in list(evaluations(fmt, accumulate, stored))[:: 1 + seed % 3]:
                found = margins(stored, every_sequence(module.T, module.L), evaluation)
                assert found.min() >= certificate.margin > 0
        if certificate.verdict is Verdict.REFUTED:
            found = certificate.counterexample
            tokens = np.array([found["tokens"]])
            failing = [margins(stored, tokens, e)[0, found["position"]] for e in evaluations(fmt, accumulate, stored)]
            if "worst" in found["order"]:
                failing.append(worst_margin(stored, tokens, found, Evaluation(fmt, accumulate)))
            assert any(not margin > 0 for margin in failing)
            if found["fails_in"] == "every order":
                assert all(not margin > 0 for margin in failing)
                verdicts.add("every order")
            assert found["expected"] == found["tokens"].count(found["tokens"][found["position"]])
    assert {Verdict.REFUTED, "every order"} <= verdicts


@pytest.mark.parametrize("name", every(2, ["float32", "tf32", "bfloat16", "float16", "p13"]))
def test_one_changed_weight_is_refuted(name):
    """bos counts in all these formats; a neighbouring slope, a bias, or one embedding wrong, and it does not."""
    fmt = format_named(name)
    for weight, index, change in (("W_2", (0, 2), 1.0), ("b_1", (0,), 0.75), ("E", (3, 3), -0.5), ("b_2", (1,), 1.0)):
        module = relation_counting.bos(T=6, L=5, d=16, dtype=torch.float64)
        assert certify(module, fmt=fmt).verdict is Verdict.PROVED
        with torch.no_grad():
            getattr(module, weight)[index] += change
        certificate = certify(module, fmt=fmt)
        assert certificate.verdict is Verdict.REFUTED, weight
        found = certificate.counterexample
        copy = rounded_module(module, rounded_model(StoredModel.of(module), Evaluation(fmt)), fmt)
        if found["module_predicts"] is not None:
            assert found["module_predicts"] == int(copy.predict(torch.tensor([found["tokens"]]))[0, found["position"]])


def test_more_bits_leave_no_less_margin():
    """Where nothing is exact, the certified margin grows with the bits, and with the accumulation's."""
    module = inventory_counting.dot_sftm(T=8, L=4, dtype=torch.float32, basis="random")
    found = [certify(module, fmt=format_named(f"p{bits}"), budget=0).margin or 0.0 for bits in (9, 12, 16, 20, 24)]
    assert found == sorted(found) and found[-1] > 0
    real = certify_real(module)
    assert found[-1] <= real.margin <= found[-1] + 1e-4
    in_format, in_float32 = (certify(module, fmt=FORMATS["float16"], accumulate=a) for a in (None, FORMATS["float32"]))
    assert in_float32.margin >= in_format.margin


def test_exact_intermediates_leave_the_real_margin():
    """Whole numbers below 2^p: no order loses anything, so the certified margin is that of real arithmetic."""
    module = relation_counting.bos(T=8, L=5, d=16, dtype=torch.bfloat16)
    assert certify(module, fmt=FORMATS["bfloat16"]).margin == pytest.approx(certify_real(module).margin, abs=1e-10)
    beyond = certify(module, fmt=format_named("p3"))
    assert beyond.verdict is Verdict.REFUTED  # T + k + 1 = 14 needs four bits


def test_float8_weights_are_judged():
    module = relation_counting.bos(T=3, L=2, d=4, dtype=torch.float32)
    for dtype, name in ((torch.float8_e4m3fn, "e4m3"), (torch.float8_e5m2, "e5m2")):
        stored = HistogramTransformer("bos", T=3, L=2, d=4, p=1, dtype=dtype)
        with torch.no_grad():
            for parameter, source in zip(stored.parameters(), module.parameters(), strict=True):
                parameter.copy_(source.to(dtype))
        assert certify(stored, fmt=FORMATS[name]).verdict is certify(module, fmt=FORMATS[name]).verdict
        assert certify(stored, fmt=FORMATS[name]).parameters["dtype"] == str(dtype).removeprefix("torch.")


def test_weights_that_are_no_numbers_are_refused_and_overflow_is_never_proved():
    module = relation_counting.bos(T=4, L=3, dtype=torch.float32)
    with torch.no_grad():
        module.b_2[0] = float("nan")
    with pytest.raises(BadInput, match="b_2"):
        certify(module, fmt=FORMATS["float16"])
    big = relation_counting.bos(T=4, L=3, dtype=torch.float32)
    with torch.no_grad():  # the same argmax, with logits and then weights beyond float16
        big.W_2 *= 2.0**15
        big.b_2 *= 2.0**15
    assert certify(big, fmt=FORMATS["bfloat16"]).verdict is Verdict.PROVED
    assert certify(big, fmt=FORMATS["float16"], budget=2).verdict is not Verdict.PROVED
    with torch.no_grad():
        big.W_2 *= 2.0
        big.b_2 *= 2.0
    overflown = certify(big, fmt=FORMATS["float16"], budget=2)
    assert overflown.verdict is Verdict.REFUTED and overflown.counterexample["predicted"] is None


@pytest.mark.parametrize("build", [relation_counting.bos, inventory_counting.dot])
def test_overflow_inside_is_never_proved(build):
    """The mixed token is beyond float16, and a small W_1 would bring it back: in float32 right, in float16 not."""
    module = build(T=4, L=3, d=4, dtype=torch.float32)
    with torch.no_grad():
        module.E *= 2.0**14
        module.W_1 *= 2.0**-14
        module.W_Q *= 2.0**-14
        module.W_K *= 2.0**-14
        if module.has_bos:
            module.e_BOS *= 2.0**14
    at_most = certify(module, fmt=FORMATS["float16"], budget=1)
    assert at_most.verdict is not Verdict.PROVED
    assert certify(module, fmt=FORMATS["float32"], budget=1).verdict is Verdict.PROVED


def test_what_only_subnormals_tell_apart_is_not_proved():
    """Logits whose differences are subnormal: right with gradual underflow, tied where it is flushed."""
    module = relation_counting.bos(T=4, L=3, dtype=torch.float32)
    with torch.no_grad():
        module.W_2 *= 2.0**-18
        module.b_2 *= 2.0**-18
    assert certify_real(module).verdict is Verdict.PROVED
    certificate = certify(module, fmt=FORMATS["float16"])
    assert certificate.verdict is Verdict.REFUTED
    assert certify(module, fmt=FORMATS["bfloat16"]).verdict is Verdict.PROVED


def test_units():
    values = [1.0, 3.0, 0.5, 6.5, 2.0**-1074, 2.0**1000]
    for value, e in zip(values, unit_exponent(np.array(values)).tolist(), strict=True):
        multiple = Fraction(value) / Fraction(2) ** e
        assert multiple.denominator == 1 and multiple.numerator % 2 == 1


def test_an_accumulation_must_hold_the_format():
    with pytest.raises(BadInput, match="accumulate"):
        RoundedArithmetic.of(FORMATS["float64"], FORMATS["float32"])


@pytest.mark.deep
def test_frontier_of_bits():
    construction = Construction("bos", "relation", 4, 3, 4)
    found = frontier(construction, None, lambda: 2.0)
    assert found.enough is not None and found.too_small is not None and found.too_small < found.enough
    for bits in range(found.enough, 12):
        assert judge(construction, format_named(f"p{bits}"), None, 2.0).verdict is Verdict.PROVED
    failing = found.by_bits[found.too_small].counterexample
    assert failing["fails_in"] in ("every order", "some order")


def test_rows_multiplied_once_are_as_bad_as_rows_multiplied_one_by_one():
    rng = np.random.default_rng(0)
    at = Directed(Evaluation(format_named("p5"), None))
    x = at.evaluations[0].tensor(rng.standard_normal((4, 3))[rng.integers(0, 4, (5, 6))])
    y, effect = at.evaluations[0].tensor(rng.standard_normal((3, 8))), rng.standard_normal((5, 6, 8))
    expected = at.worst(x[:, :, None, :], y.T[None, None], effect)
    assert np.array_equal(at.worst_of_rows(x, y, effect), expected)
    assert not np.array_equal(at.worst_of_rows(x, y, -effect), expected)


def test_an_effort_ends_a_search_at_the_same_place(capsys):
    """No clock is read: the number of looks is that of the products, of both searches below."""
    looks = []
    deadline = Deadline(1.0, lambda: looks.append(None) or 0.0)
    paced = Paced(deadline, PRODUCTS // 8)
    assert not any(paced.is_up(positions) for positions in (1, 3, 4, 24))
    assert len(looks) == 1 + 4  # at once, then whenever so many products are due
    assert Paced(Deadline(0.0, lambda: 0.0), 1).is_up(1)
    sizes = ("--model", "dot", "--T", "9", "--L", "6", "--json")
    answers = [run(capsys, "precision", "histogram", *sizes, "--effort", "3")[1] for _ in range(2)]
    assert answers[0] == answers[1] and "REFUTED" in answers[0]


def test_commands(capsys, tmp_path):
    sizes = ("--T", "4", "--L", "3")
    code, out, _ = run(capsys, "histogram", "--model", "bos", *sizes, "--precision", "bfloat16", "--json")
    certificate = json.loads(out)
    assert code == 0 and certificate["reading"] == READING_DTYPE and certificate["verdict"] == "PROVED"
    code, out, _ = run(capsys, "histogram", "--model", "dot", "--T", "9", "--L", "8", "--precision", "e5m2")
    assert code == 1 and "REFUTED" in out and "order" in out
    code, out, _ = run(capsys, "precision", "histogram", "--model", "bos", *sizes, "--effort", "1", "--json")
    rows = json.loads(out)
    assert [row["precision"] for row in rows[:7]] == list(FORMATS)
    assert code == 3 and "UNKNOWN" in [row["verdict"] for row in rows], "a cell is open"
    figure = tmp_path / "phases.svg"
    sweep = ("--sweep", "d=4:5", "--bits", "8:9", "--effort", "1", "--out", str(figure), "--json")
    code, out, _ = run(capsys, "precision", "histogram", "--model", "bos", *sizes, *sweep)
    assert code == 0 and [row["d"] for row in json.loads(out)] == [4, 5]
    assert figure.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    "options",
    [
        ("histogram", "--model", "dot", "--precision", "p1"),
        ("histogram", "--model", "dot", "--accumulate", "float32"),
        ("histogram", "--model", "dot", "--precision", "float64", "--accumulate", "float32"),
        ("histogram", "--model", "dot", "--precision", "float32", "--method", "exhaustive"),
        ("precision", "histogram"),
        ("precision", "histogram", "--table", "--model", "dot"),
        ("precision", "histogram", "--model", "dot", "--out", "a.svg"),
        ("precision", "histogram", "--model", "dot", "--sweep", "T=3:5"),
        ("precision", "histogram", "--model", "dot", "--bits", "1:5"),
        ("precision", "histogram", "--model", "dot", "--bits", "3:5"),
        ("precision", "histogram", "--model", "dot", "--sweep", "d=6", "--bits", "1:5"),
        ("precision", "histogram", "--model", "dot", "--sweep", "d=1:99999999999"),
        ("precision", "histogram", "--model", "dot", "--sweep", "d=6", "--out", "/"),
        ("precision", "histogram", "--model", "dot", "--budget", "nan"),
        ("precision", "histogram", "--model", "dot", "--effort", "0"),
        ("precision", "histogram", "--model", "dot", "--effort", "5", "--budget", "1"),
        ("precision", "histogram", "--model", "dot+sftm", "--p", "1"),
    ],
)
def test_bad_options_are_one_line(capsys, options):
    code, out, err = run(capsys, *options, "--T", "6", "--L", "3")
    assert code == 2 and not out and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "sizes", [("1", "2"), ("4", "0"), ("1000000000", "2"), ("4", "30000"), ("4", "99999999"), ("4", "-1")]
)
def test_a_table_of_sizes_that_no_model_has(capsys, sizes):
    """Such a table held nothing but dashes, or ended in a traceback."""
    code, out, err = run(capsys, "precision", "histogram", "--table", "--T", sizes[0], "--L", sizes[1])
    assert code == 2 and not out and len(err.splitlines()) == 1


@pytest.mark.deep
def test_the_table_of_sequences_of_one_token(capsys, monkeypatch):
    """Codes and the plane tell counts apart, and there is only one: a dash. In letters, it fits a narrow terminal."""
    sizes = ("--T", "2", "--L", "1", "--effort", "1")
    code, out, _ = run(capsys, "precision", "histogram", "--table", *sizes, "--json")
    rows = {(row["model"], row["construction"]): row for row in json.loads(out)}
    assert code == 0 and rows["dot", "relation"]["float32"] == "PROVED"
    assert rows["dot+sftm", "code"]["float32"] is rows["bos+sftm", "plane"]["e5m2"] is None
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = run(capsys, "precision", "histogram", "--table", *sizes)
    assert code == 0 and max(map(len, out.splitlines())) <= 60
    assert "inventory" in out and "quarter-circle" in out and "PPPPPPP" in out and "-------" in out


@pytest.mark.parametrize("name", ["p1", "p60", "P8", "float 16", "", "p8 ", "p-3", "bf16"])
def test_a_precision_that_is_none_names_all_kinds(capsys, name):
    code, out, err = run(capsys, "histogram", "--model", "dot", "--T", "4", "--L", "3", "--precision", name)
    assert code == 2 and not out and len(err.splitlines()) == 1
    assert repr(name) in err and "float16" in err and "pN" in err and "sN" in err


def every_sum(terms, fmt):
    """All results of adding these numbers in any order and grouping, each addition rounded."""
    if len(terms) == 1:
        return {terms[0]}
    found = set()
    for chosen in range(1, 2 ** (len(terms) - 1)):
        parts = [[x for i, x in enumerate(terms) if (chosen >> i & 1) == side] for side in (0, 1)]
        for x in every_sum(parts[0], fmt):
            found |= {float(add(np.array(x), np.array(y), fmt)) for y in every_sum(parts[1], fmt)}
    return found


@pytest.mark.parametrize("sums", first(1, [12, 40]))
def test_the_worst_orders_are_orders(sums):
    """Every directed sum is one of the sums of the rounded products in some order, no worse than from left to right."""
    fmt, rng = format_named("p4"), np.random.default_rng(0)
    for _ in range(sums):
        x, y = rng.integers(-9, 10, size=(2, 1, 5)).astype(float)
        x, y = rounded(x, fmt), rounded(y, fmt)
        products = [float(v) for v in multiply(x, y, fmt)[0]]
        plain = Evaluation(fmt).dot(x, y)[0]
        directed = Directed(Evaluation(fmt))
        low, high = (directed.worst(x, y, np.array([sign]))[0] for sign in (1.0, -1.0))
        assert low <= plain <= high
        unfused = [Directed(Evaluation(fmt)).evaluations[i] for i in range(0, 14, 2)]
        assert {float(e.dot(x, y)[0]) for e in unfused} <= every_sum(products, fmt)


@pytest.mark.parametrize("models", [range(15), pytest.param(range(15, 60), marks=pytest.mark.deep)])
def test_directed_evaluations_keep_to_the_certificate(models):
    """No directed run of a proved model is wrong, and one of a model that plain orders leave standing is."""
    for seed in models:
        module = random_model(seed)
        fmt = format_named(NAMES[seed % len(NAMES)])
        accumulate = FORMATS["float32"] if seed % 3 == 0 and fmt.name != "tf32" else None
        certificate = certify(module, fmt=fmt, accumulate=accumulate, budget=0.0)
        if certificate.verdict is not Verdict.PROVED:
            continue
        stored = rounded_model(StoredModel.of(module), Evaluation(fmt))
        tokens = every_sequence(stored.T, stored.L)
        for choices in itertools.product((False, True), (True, False)):
            directed = Directed(Evaluation(fmt, accumulate), *choices)
            assert directed_failure(stored, tokens, list(range(stored.L)), directed) is None
    module = inventory_counting.dot_sftm(T=8, L=10, dtype=torch.bfloat16, as_printed=True)
    certificate = certify(module, fmt=FORMATS["bfloat16"], budget=20.0)
    assert certificate.verdict is Verdict.REFUTED


def test_a_few_open_cells_are_decided_jointly():
    """d = 6: intervals leave one token with count 1 open, though its neurons are never on together."""
    module = Construction("dot+sftm", "code", 32, 10, 6).weights(FORMATS["float32"]).module()
    certificate = certify(module, fmt=FORMATS["float32"])
    assert certificate.verdict is Verdict.PROVED
    assert certificate.margin < certify_real(module).margin
    with torch.no_grad():  # a bias that makes one count wrong is not proved
        module.b_2[0] += 1.0
    assert certify(module, fmt=FORMATS["float32"], budget=Budget.counting(100)).verdict is not Verdict.PROVED


def test_the_failure_in_float16_that_takes_longest_to_find():
    """docs/precision.md: lin+sftm on a code of 29 dimensions fails by one unit in the last place."""
    fmt = FORMATS["float16"]
    stored = StoredModel.of_arrays(Construction("lin+sftm", "code", 32, 10, 29).weights(fmt))
    found = {"position": 0, "predicted": 1, "order": ""}
    margin = worst_margin(stored, np.array([[28, 28] + [1] * 8]), found, Evaluation(fmt))
    assert margin == -(2.0**-10)


def test_the_sweep_fits_a_narrow_terminal(capsys, monkeypatch):
    """Twenty-three columns of verdicts would be squeezed to nothing: one letter each instead."""
    monkeypatch.setenv("COLUMNS", "60")
    sweep = ("--sweep", "d=4:5", "--bits", "2:24", "--effort", "1")
    code, out, _ = run(capsys, "precision", "histogram", "--model", "lin", "--T", "4", "--L", "3", *sweep)
    assert code == 0 and "P" * 10 in out and "R" in out
    assert max(map(len, out.splitlines())) <= 60
    code, out, _ = run(capsys, "precision", "histogram", "--model", "lin", "--T", "4", "--L", "3", "--sweep", "d=4,4",
                       "--bits", "9,5,9", "--effort", "1")  # fmt: skip
    assert code == 0 and "bits 5, 9:" in " ".join(out.split()) and out.count("│ 4 │ PP") == 1
