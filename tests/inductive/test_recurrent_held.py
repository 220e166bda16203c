"""LSTMs that add and hold: against every short string, planted faults, and two readings with opposite verdicts."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from models.selection import first

from constructions.recurrent import holding
from constructions.recurrent.gated import GatedModel, RwkvCell
from tests.command import as_json
from tests.planted import planted
from verify.arithmetic.readings import reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import certify, exhaustive
from verify.tasks.recurrent import held
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

LENGTH = 11


def forgetful(B, C=3, K=2):
    """The construction with a forget gate of sigma(B), so that short strings are misread."""
    model = holding.counters(types=K, max_count=C)
    with torch.no_grad():
        model.cell.bias_ih_l0[K : 2 * K] = B
    return model


def first_wrong(model, C):
    """The shortest string over two types whose last answer is wrong, its count being at most C."""
    strings = torch.tensor(list(product(range(2), repeat=LENGTH)))
    said = model(strings).argmax(-1)
    own = strings[:, :, None] == strings[:, None, :]
    counts = (own & torch.ones(LENGTH, LENGTH).tril().bool()).sum(-1)
    is_wrong = (said != counts) & (counts <= C)
    return int(is_wrong.any(0).int().argmax()) + 1 if is_wrong.any() else None


def disagreements():
    """How often the proof and the runs of all strings contradict each other."""
    found = 0
    for B in (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0):
        model = forgetful(B)
        margin, right_to, wrong = held.decide_real(model, 3, None)
        first = first_wrong(model, 3)
        if margin is not None or wrong is None or wrong.others > 10**6:
            found += 1
            continue
        found += first is not None and first <= right_to
        string = [wrong.own] * (wrong.n - 1) + [wrong.other] * wrong.others + [wrong.own]
        found += int(model(torch.tensor([string]))[0, -1].argmax()) == wrong.n or wrong.length <= right_to
    return found


def test_lengths_agree_with_every_string():
    assert disagreements() == 0
    lengths = [held.decide_real(forgetful(B), 3, None)[1] for B in (1.5, 2.5, 3.5)]
    assert lengths == sorted(lengths) and lengths[0] < LENGTH


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong"),
    [
        (held.RealBalls, "holds", "length - n)", "0)"),  # nothing is forgotten
        (held.RealBalls, "state", "** others * c + add", "** (others // 2) * c + add"),
        (held.RealBalls, "_at", "else None", "else WrongString(i, n, other, others, worst[1], top)"),
    ],
)
def test_planted_faults_are_caught(owner, name, right, wrong):
    with planted(owner, name, right, wrong):
        assert disagreements() > 0


def forgetting_at_two(B):
    """Three types, the unit of the first of which forgets at the third: by a gate of sigma(B)."""
    model = forgetful(40.0, C=2, K=3)
    with torch.no_grad():
        model.cell.weight_ih_l0[3, 2] = B
    return model


def test_a_gate_that_is_no_number_is_one_that_forgets():
    assert forgetting_at_two(-(2.0**600))(torch.tensor([[0, 2, 0]]))[0, -1].argmax() == 1  # for the count 2
    known = [held.decide_real(forgetting_at_two(B), 2, 6) for B in (0.0, -(2.0**600))]
    assert known[0][0] > 0 and known[1] == (None, 1, None)
    with planted(held.RealBalls, "fading", 'x.lower() if x.is_finite() else arb("-inf")', "x.lower()"):
        assert held.decide_real(forgetting_at_two(-(2.0**600)), 2, 6)[0] > 0


def test_one_file_is_right_for_ever_in_float32_and_wrong_in_reals(capsys):
    asked = ("inductive", "--task", "selective", "--model", "lstm", "--dtype", "float32")
    code, bits = as_json(capsys, *asked, "--method", "exhaustive")
    assert code == 0 and bits["verdict"] == "PROVED" and bits["inputs_covered"] == "infinite"
    code, real = as_json(capsys, *asked)
    assert code == 1 and real["verdict"] == "REFUTED"
    assert real["counterexample"]["length"] == 26983209 and real["right_to"] == 26983205
    code, finite = as_json(capsys, *asked, "--length", "200")
    assert code == 0 and finite["verdict"] == "PROVED"


def test_what_is_not_held_is_open_bit_by_bit():
    for B in (4.0, 12.0):
        model = forgetful(B).float()
        assert held.BitByBit(model, 3).prove()[0] is None
    assert held.BitByBit(forgetful(40.0).float(), 3).prove()[0] > 0


def leaking_lstm():
    """Right on all strings of a few thousand tokens: at token 1 the count of token 0 shows itself as tanh(c / 10^4)."""
    model = holding.counters(types=2, max_count=1)
    cell = dict(model.cell.named_parameters())
    with torch.no_grad():
        cell["weight_ih_l0"][:2], cell["bias_ih_l0"][:2] = 0, 40
        cell["weight_ih_l0"][2, 1] = -40 - 9.21
        cell["weight_ih_l0"][4:6] = 40 * torch.eye(2, dtype=torch.float64)
        cell["weight_ih_l0"][6, 0], cell["weight_ih_l0"][6, 1] = -60, 80
        model.readout.weight[:] = torch.tensor([[0.0, 0.0], [-1.0, 1.0]])
        model.readout.bias[:] = torch.tensor([0.0, 0.1])
    return model


def leaking_rwkv():
    """The same with a state that is read at the other token as 10^-5 times the count."""
    each, own = torch.ones(2, 2).double(), torch.eye(2).double()
    read = torch.tensor([[-1.0, 0.0], [1e-5, 1.0]]).double()
    cell = RwkvCell(-100 * each, own, each, read)
    return GatedModel(cell, torch.tensor([[0.0, 0.0], [-1.0, 1.0]]).double(), torch.zeros(2).double())


@pytest.mark.parametrize("build", [leaking_lstm, leaking_rwkv])
def test_counts_beyond_the_judged_ones_are_not_forgotten(build):
    model = build()
    h, parts = torch.tensor([[150_000.0, 0.0]]).double(), held.BitByBit(model, 1)
    for string in ([0], [1], [0, 0, 0, 1], [1, 0]):
        assert model(torch.tensor([string]))[0, -1].argmax() == 1, string
    _, shown = parts._step(h[0], 1)  # after 150,000 tokens of type 0
    assert model.readout(shown)[0] > model.readout(shown)[1]
    assert parts.prove()[0] is None


def test_logits_that_overflow_are_not_separated_bit_by_bit():
    model = holding.counters(types=2, max_count=1)
    with torch.no_grad():
        model.readout.weight[:] = torch.tensor([[1e308, 1e308], [-1e308, -1e308]], dtype=torch.float64)
        model.readout.bias[:] = 0
    assert model(torch.tensor([[0]]))[0, -1].argmax() == 0
    found = exhaustive(Selective(model, Task.of("selective", types=2, max_count=1), None))
    assert found.verdict is Verdict.UNKNOWN


def test_adding_units(capsys):
    for options in (
        "vanilla --model lstm --vocabulary 30",
        "vanilla --model rnn",
        "shifted --model rnn --vocabulary 9",
        "helper-shifted --model rnn --vocabulary 9",
        "shifted --model lstm --vocabulary 9",
        "helper-shifted --model lstm --vocabulary 5",
        "selective-modular --model lstm --types 2 --modulus 2",
    ):
        code, found = as_json(capsys, "inductive", "--task", *options.split())
        assert code == 0 and found["verdict"] == "PROVED" and found["claim"] in ("C-R11", "C-R12", "C-R19", "C-R20"), (
            options
        )


def test_lstm_rings_are_read_as_counted():
    strings = torch.tensor(list(product(range(2), repeat=LENGTH)))
    own = torch.nn.functional.one_hot(strings, 2)
    counts = (own.cumsum(1) * own).sum(-1)
    for m in (2, 3, 4):
        assert torch.equal(holding.rings(types=2, m=m)(strings).argmax(-1), (counts - 1) % m)


@pytest.mark.parametrize(
    ("m", "reading"), first(1, [(2, "real"), (3, "float32"), (10, "real"), (10, "float32"), (7, "real")])
)
def test_one_type_is_modular_counting_at_every_length(m, reading):
    model = holding.rings(types=1, m=m)
    task = Task.of("modular", modulus=m)
    assert model(torch.zeros(1, 3 * m, dtype=torch.long)).argmax(-1)[0].tolist() == [*range(m)] * 3
    assert certify(Homogeneous(model, task, None), reading_of(reading)).verdict is Verdict.PROVED
    with torch.no_grad():
        model.readout.weight[1] *= -1
    found = certify(Homogeneous(model, task, None), reading_of(reading))
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == 1
    if reading == "float32":  # the class that is less by 2e-11 in real arithmetic ties with the right one
        first, second, _ = model.float()(torch.zeros(1, 1, dtype=torch.long))[0, 0].sort(descending=True).values
        assert found.margin <= 0.0 and first == second and "evaluation" in found.counterexample


def test_modular_counting_by_an_lstm_is_built(capsys):
    code, found = as_json(capsys, "inductive", "--task", "modular", "--model", "lstm", "--modulus", "4")
    assert code == 0 and found["claim"] == "C-R20" and found["parameters"]["units"] == 9
