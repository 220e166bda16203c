"""Separation in closed form, against the linear programme and against enumeration; and by d_h on all of N^3."""

import json
import random
from fractions import Fraction
from unittest.mock import ANY

import pytest
from command import run
from models.selection import first

from bounds.count01_heads import separates, separates_everything
from constructions.count01_heads import uniform_head
from constructions.errors import BadInput
from verify.tasks.count01.heads.phase import decided
from verify.tasks.count01.heads.separability import kappa, separability
from verify.tasks.count01.layer_norm.laws import law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers

N3 = law_named("unbounded")


def some(rng, low=-6, high=6, largest=4):
    return Fraction(rng.randint(low, high), rng.randint(1, largest))


def by_enumeration(w01, w02, values, box):
    """Whether some threshold x works, over all triples: each triple bounds x linearly, from one side."""
    lo, hi, M = box
    weights = (w01, Fraction(1), w01 / w02)
    for sign in (1, -1):  # positive above the threshold, or below it
        strict_low, weak_low, strict_high, weak_high = [], [], [], []
        for n0 in range(lo, hi + 1):
            for n1 in range(lo, hi + 1):
                for n2 in range(M + 1):
                    D = sum(n * w for n, w in zip((n0, n1, n2), weights, strict=True))
                    if D == 0:
                        continue
                    r = sign * sum(n * w * v for n, w, v in zip((n0, n1, n2), weights, values, strict=True)) / D
                    (strict_high if n1 > n0 else weak_low).append(r)
        del strict_low, weak_high
        if not weak_low or max(weak_low) < min(strict_high):
            return True
    return False


@pytest.mark.parametrize("cases", first(1, [150, 2500]))
def test_the_formula_equals_enumeration_in_random_cases(cases):
    rng, seen = random.Random(0), [0, 0]
    for _ in range(cases):
        lo = rng.randint(0, 3)
        box = (lo, lo + rng.randint(1, 4), rng.randint(0, 4))
        w01, w02 = some(rng, 1, 12), some(rng, 1, 60)
        values = (some(rng), some(rng), some(rng))
        if rng.random() < 0.15:  # on the balance point
            values = (values[0], values[1], (w01 * values[0] + values[1]) / (1 + w01))
        found = separates((w01, w02), values, box)
        seen[found] += 1
        assert found == by_enumeration(w01, w02, values, box), (w01, w02, values, box)
    assert min(seen) > cases / 8


def test_the_formula_equals_the_linear_programme():
    rng = random.Random(1)
    for _ in range(150):
        lo = rng.randint(0, 30)
        lo, hi, M = lo, lo + rng.randint(1, 40), rng.randint(0, 50)
        w01, w02, values = some(rng, 1, 12), some(rng, 1, 300), [some(rng), some(rng), some(rng)]
        found = decided(w01, w02, values, law_named(f"box:{lo}:{hi}:{M}"))
        assert found == separates((w01, w02), tuple(values), (lo, hi, M)), (w01, w02, values, lo, hi, M)


def test_without_attention_to_2_any_ratio_works_iff_the_values_differ():
    rng = random.Random(2)
    for _ in range(40):
        w01 = Fraction(10) ** rng.randint(-9, 9)
        values = [some(rng), some(rng), some(rng)]
        assert decided(w01, None, values, law_named("box:0:200:200")) == (values[0] != values[1])


@pytest.mark.parametrize(("offset", "expected"), [(-1.5, False), (-1, False), (-0.5, True), (0, True), (0.25, False)])
def test_two_dimensions_on_all_counts_are_decided_by_kappa(offset, expected):
    model = uniform_head({"BOS": [0, offset], "0": [-1, 0], "1": [1, 0], "2": [0, 0], "=": [0, 0]}, [1, 1])
    head = model_numbers(model).heads[0]
    found = separability(head, N3)
    assert found.is_separable  # the values are on one line: b and the second coordinate are free
    bent = uniform_head({"BOS": [0, offset], "0": [-1, 0], "1": [1, 0], "2": [0, 1], "=": [0, 1]}, [1, 1])
    head = model_numbers(bent).heads[0]
    # s_2 = 0 fixes b = -w_2: kappa = w_2 (offset + 1) + 2 b with s_1 = 1, s_0 = -1, so b = 0 = w_2
    assert float(kappa(head).mid()) == 0
    tilted = uniform_head({"BOS": [offset, 0], "0": [-1, 0], "1": [1, 0], "2": [0, 1], "=": [0, 0]}, [1, 1])
    head = model_numbers(tilted).heads[0]
    assert float(kappa(head).mid()) == offset
    assert separability(head, N3).is_separable is expected


def test_one_dimension_needs_the_balance_point_and_three_need_nothing():
    line = {"BOS": [-0.5], "0": [-1], "1": [1], "2": [0], "=": [0]}
    assert separability(model_numbers(uniform_head(line, [1])).heads[0], N3).is_separable
    off = line | {"2": [0.125]}
    assert separability(model_numbers(uniform_head(off, [1])).heads[0], N3).is_separable is False
    free = {"BOS": [3, 1, 4], "0": [1, 5, 9], "1": [2, 6, 5], "2": [3, 5, 8], "=": [9, 7, 9]}
    assert separability(model_numbers(uniform_head(free, [0, 0, 0])).heads[0], N3).is_separable


def test_the_builder_says_what_it_needs():
    with pytest.raises(BadInput, match="no token"):
        uniform_head({"6": [1]}, [1])
    with pytest.raises(BadInput, match="length"):
        uniform_head({"0": [1, 2]}, [1])


def heads_of_small_values(number):
    """Value vectors of 0, 1, 2, BOS and "=", some of which are dependent, or nearly balanced."""
    rng = random.Random(1)
    for _ in range(number):
        d_h = rng.randint(1, 3)
        values = [[Fraction(rng.randint(-2, 2), 2) for _ in range(d_h)] for _ in range(5)]
        if rng.random() < 0.5:  # on the balance point
            values[2] = [(a + b) / 2 for a, b in zip(values[0], values[1], strict=True)]
        yield values


def condition_errors():
    """How often H-1's condition and the linear programme differ, and which answers came up by d_h."""
    wrong, seen = 0, set()
    for values in heads_of_small_values(150):
        stored = dict(zip(("0", "1", "2", "BOS", "="), ([float(x) for x in v] for v in values), strict=True))
        model = uniform_head(stored, [0.0] * len(values[0]))
        found = separability(model_numbers(model).heads[0], N3).is_separable
        wrong += found != separates_everything(values)
        seen.add((len(values[0]), found))
    return wrong, seen


@pytest.mark.deep
def test_the_condition_on_all_counts_is_the_linear_programmes():
    wrong, seen = condition_errors()
    assert wrong == 0 and seen == {(d_h, answer) for d_h in (1, 2, 3) for answer in (True, False)}


@pytest.mark.deep
def test_a_wrong_constant_is_found(monkeypatch):
    """Planted: the constant is BOS's alone, without that of "="."""
    monkeypatch.setattr("bounds.count01_heads.sp.Matrix.__add__", lambda left, right: left)
    assert condition_errors()[0]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--values=-1:1:0:-1/2:0 --law unbounded", 0, "(H-1)"),
        ("--values=-1:1:1:0:0 --law unbounded", 1, "(H-1)"),
        ("--values=-1:1:1:0:0 --law box:0:9:9", 1, "3 conditions"),
        ("--values=-1,0:1,0:0,1:-1,0:0,0 --law box:0:9:9", 0, "(H-5)"),
        ("--values=-1:1:0:0:0 --law e-lengths", 0, "from the rest\n"),
    ],
)
def test_a_head_by_its_value_vectors(capsys, options, code, said):
    assert (
        run(capsys, "heads", *options.split())[:2] == (code, ANY) and said in run(capsys, "heads", *options.split())[1]
    )
    answered = json.loads(run(capsys, "heads", *options.split(), "--json")[1])
    assert answered["verdict"] == ("PROVED", "REFUTED")[code] and answered["certificate"]


WRONG_VALUES = ("-1:1:0", "-1:1:0:0:1/3", "-1:1:0:0:1,2", "-1:1:0:0:1e99", "-1:1:0:0:0 --construction uniform")


@pytest.mark.parametrize("options", [f"--values={wrong}" for wrong in WRONG_VALUES])
def test_vectors_that_make_no_head(capsys, options):
    code, out, err = run(capsys, "heads", *options.split(), "--law", "unbounded")
    assert code == 2 and out == "" and err.count("\n") == 1 and "--values" in err
