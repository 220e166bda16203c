"""Selective counting by built recurrent networks: block invariants, against every short string and planted faults."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from models.selection import every, first

from constructions.errors import BadInput
from constructions.recurrent import selective
from tests.command import as_json
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify, exhaustive, sampled
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous


def counted(string, m=None, C=None):
    """What is right at each place, None where the count is not judged."""
    seen, right = Counter(), []
    for token in string:
        seen[token] += 1
        n = seen[token]
        right.append(None if n > C else (n - 1) % m if m else n)
    return right


def problem(K, m=None, C=3, length=None, dtype=torch.float64):
    if m:
        model = selective.rings(types=K, m=m, dtype=dtype)
        return Selective(model, Task.of("selective-modular", modulus=m, types=K, max_count=C), length)
    model = selective.thermometer(types=K, max_count=C, dtype=dtype)
    return Selective(model, Task.of("selective", types=K, max_count=C), length)


@pytest.mark.parametrize(("K", "m"), [(2, None), (3, None), (2, 3), (3, 2), (3, 4)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_every_string_of_seven_tokens_is_read_as_the_oracle_counts(K, m, dtype):
    decided = problem(K, m, dtype=dtype)
    assert certify(decided).verdict.value == "PROVED"
    strings = list(product(range(K), repeat=7))  # their prefixes are all shorter strings
    said = decided.model(torch.tensor(strings)).argmax(-1).tolist()
    for string, row in zip(strings, said, strict=True):
        assert all(b is None or a == b for a, b in zip(row, counted(string, m, 3), strict=True)), string


@pytest.mark.parametrize("precision", every(3, [None, "p8", "float32"]))
def test_both_are_proved_at_every_length(capsys, precision):
    for task in ("selective", "selective-modular"):
        asked = ["inductive", "--model", "rnn", "--task", task, *(["--precision", precision] if precision else [])]
        code, found = as_json(capsys, *asked)
        assert code == 0 and found["verdict"] == "PROVED" and found["length"] == "all"
        assert found["inputs_covered"] == "infinite" and 0 < found["margin"] <= (2 if task == "selective" else 1)


def test_too_few_bits_stay_open():
    certificate = certify(problem(10, C=10), reading_of("p5"))
    assert certificate.verdict.value == "UNKNOWN" and certificate.reason


def test_margins_are_reached_up_to_rounding_and_never_beaten():
    for m in (None, 3):
        decided = problem(2, m)
        proved = certify(decided).margin
        margins = decided.runner(Real())(list(product(range(2), repeat=9))).margins
        assert proved <= margins.min() + 1e-12 and margins.min() - proved < 1e-3


FAULTS = [
    (None, "weight_hh_l0", (2, 1), 0.0),  # u_3 no longer waits for u_2
    (None, "weight_hh_l0", (0, 0), 8.0),  # u_1 forgets
    (None, "weight_ih_l0", (6, 0), 16.0),  # type 1 counts type 0 too
    (None, "bias_hh_l0", (12,), 0.0),  # it is never said that there was a token
    (3, "weight_hh_l0", (0, 2), 0.0),  # p_1 does not hold what q_1 brought
    (3, "weight_ih_l0", (2, 0), 0.0),
    (3, "bias_hh_l0", (3,), 0.0),
    (3, "weight_hh_l0", (0, 5), 1.0),  # type 0 sees type 1
]


@pytest.mark.parametrize("fault", every(4, ((fault,) for fault in FAULTS)), ids=str)
def test_a_planted_fault_is_never_proved(fault):
    m, name, place, value = fault
    decided = problem(2, m, C=3)
    with torch.no_grad():
        dict(decided.model.cell.named_parameters())[name][place] = value
    for reading in (Real(), reading_of("float32")):
        verdict = certify(decided, reading, Effort(budget=0.5))
        assert verdict.verdict.value == ("UNKNOWN" if verdict.counterexample is None else "REFUTED")
        if verdict.counterexample is not None:
            right = counted(verdict.counterexample["input"], m, 3)[-1]
            assert verdict.counterexample["expected"] == right + bool(m) != verdict.counterexample["predicted"]
    found = sampled(decided, effort=Effort(samples=300))
    if found.verdict.value == "REFUTED":
        string = found.counterexample["input"]
        right = counted(string, m, 3)[-1]
        assert found.counterexample["expected"] == right + bool(m) and found.margin <= 0


@pytest.mark.parametrize("rings", first(1, [40, 150]))
def test_random_integer_rings_are_proved_only_where_every_short_string_is_right(rings):
    torch.manual_seed(0)
    verdicts = Counter()
    strings = list(product(range(2), repeat=7))
    for _ in range(rings):
        decided = problem(2, 2, C=7)
        with torch.no_grad():
            for p in decided.model.parameters():
                where = torch.randint(p.numel(), (1,))
                if torch.rand(()) < 0.3:
                    p.view(-1)[where] += torch.randint(-1, 2, (1,)).double()
        verdict = certify(decided, effort=Effort(budget=0.05)).verdict.value
        verdicts[verdict] += 1
        if verdict == "PROVED":
            assert not decided.runner(Real())(strings).is_wrong.any()
    assert len(verdicts) >= 2


def test_the_signs_are_checked_by_the_readout():
    decided = problem(2, C=2)
    decided.model.readout.weight[1, 2] = -2
    assert certify(decided).counterexample["expected"] == 1
    refuted = exhaustive(problem_of(decided, 4))
    assert refuted.verdict.value == "REFUTED" and refuted.counterexample["expected"] == 1


def problem_of(decided, length):
    return Selective(decided.model, decided.which, length)


def test_what_cannot_be_built_is_said():
    with pytest.raises(BadInput, match="at least 2"):
        selective.thermometer(types=1, max_count=3)
    with pytest.raises(BadInput, match="at most 4096"):
        selective.rings(types=1000, m=10)
    with pytest.raises(BadInput, match="infinitely many"):
        exhaustive(problem(2))


def test_a_network_that_does_not_run_as_it_stands_is_refused():
    model = selective.thermometer(types=2, max_count=2)
    model.register_forward_hook(lambda module, given, said: -said)
    with pytest.raises(BadInput, match="hook"):
        Selective(model, Task.of("selective", types=2, max_count=2), None)
    with pytest.raises(BadInput, match="hook"):
        Homogeneous(model, Task.of("modular", modulus=3), None)


@pytest.mark.parametrize(("K", "N"), [(2, 5), (3, 4)])
def test_adding_units_are_right_up_to_the_length_that_they_store(K, N):
    for length in (N, N + 1):
        which = Task.of("selective", types=K, max_count=9)
        adding = Selective(selective.adders(types=K, max_count=9, length=N), which, length)
        found, ran = certify(adding), exhaustive(adding)
        assert found.verdict == ran.verdict and (found.verdict.value == "PROVED") == (length == N)
        assert abs(found.margin - ran.margin) < 1e-9
    assert found.counterexample["length"] == N + 1
