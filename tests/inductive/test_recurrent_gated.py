"""Mamba-like and RWKV-like cells: against every short string, and two readings with opposite verdicts."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from flint import arb

from bounds.recurrent import decays
from constructions.errors import BadInput
from constructions.recurrent import gated
from tests.command import as_json, run
from tests.planted import planted
from verify.counting.tasks import Task
from verify.frame.decide import certify
from verify.tasks.recurrent import gated as proofs
from verify.tasks.recurrent import held, precise
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

LENGTH, C = 10, 3
STRINGS = torch.tensor(list(product(range(2), repeat=LENGTH)))


def forgetful(kind, w):
    """The construction, with a decay of exp(-e^w) or exp(-softplus(w)) at the tokens of other types."""
    model = gated.counters(kind=kind, types=2, max_count=C)
    table = model.cell.w if kind == "rwkv" else model.cell.delta
    with torch.no_grad():
        table[~torch.eye(2, dtype=torch.bool)] = w
    return model


def first_wrong(model):
    """The shortest string whose last answer is wrong, its count being at most C."""
    said = model(STRINGS).argmax(-1)
    own = STRINGS[:, :, None] == STRINGS[:, None, :]
    counts = (own & torch.ones(LENGTH, LENGTH).tril().bool()).sum(-1)
    is_wrong = ((said != counts) & (counts <= C)).any(0)
    return int(is_wrong.int().argmax()) + 1 if is_wrong.any() else None


def disagreements(kind):
    found = 0
    for w in (-1.0, -2.0, -3.0, -4.0, -6.0):
        model = forgetful(kind, w)
        margin, right_to, wrong = held.decide_real(model, C, None)
        if margin is not None or wrong is None or wrong.others > 10**6:
            found += 1
            continue
        first = first_wrong(model)
        found += first is not None and first <= right_to
        string = [wrong.own] * (wrong.n - 1) + [wrong.other] * wrong.others + [wrong.own]
        found += int(model(torch.tensor([string]))[0, -1].argmax()) == wrong.n or wrong.length <= right_to
        found += first is not None and wrong.length < first
    return found


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_lengths_agree_with_every_string(kind):
    assert disagreements(kind) == 0
    with planted(held.RealBalls, "holds", "length - n)", "0)"):
        assert disagreements(kind) > 0


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_decays_are_proved_to_the_bound_and_not_beyond(capsys, kind):
    asked = ("inductive", "--task", "modular", "--model", kind, "--modulus", "4")
    code, found = as_json(capsys, *asked, "--length", "8")
    assert code == 0 and found["parameters"]["units"] == 3 and found["claim"] == "C-R16"
    code, _, err = run(capsys, *asked, "--d", "3", "--length", "9")
    assert code == 2 and "impossible (C-R2)" in err
    model = gated.decays(kind=kind, m=4, s=3, N=8)
    said = model(torch.zeros(1, 9, dtype=torch.long)).argmax(-1)[0].tolist()
    assert said[:8] == [0, 1, 2, 3] * 2 and said[8] != 0


@pytest.mark.parametrize("m", [3, 6])
def test_the_class_that_wins_is_named(m):
    model = gated.decays(kind="rwkv", m=m, s=1, N=m)
    found = certify(Homogeneous(model, Task.of("modular", modulus=m), 3 * m))
    logits = model(torch.zeros(1, m + 1, dtype=torch.long))[0, -1]
    assert found.counterexample["predicted"] == int(logits.argmax()) + 1
    assert found.margin == pytest.approx(float(logits[0] - logits.max()))


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_an_exact_tie_is_wrong(kind):
    model = gated.decays(kind=kind, m=3, s=1, N=3)
    with torch.no_grad():
        model.readout.weight.zero_()
        model.readout.bias.zero_()
    found = certify(Homogeneous(model, Task.of("modular", modulus=3), 9))
    assert (found.verdict.value, found.margin, found.counterexample["length"]) == ("REFUTED", 0.0, 1)


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_fewer_lengths_than_coefficients_are_refused(kind):
    with pytest.raises(BadInput, match="N=3: must be at least s \\+ 1 = 4"):
        gated.decays(kind=kind, m=4, s=3, N=3)
    fewest = gated.decays(kind=kind, m=4, s=3, N=4)
    assert fewest(torch.zeros(1, 4, dtype=torch.long)).argmax(-1).tolist() == [[0, 1, 2, 3]]


@pytest.mark.deep
def test_every_stored_size_reaches_the_bound():
    for kind, m, s in product(("mamba", "rwkv"), range(2, 11), range(1, 5)):
        N = decays(m, s)
        model = gated.decays(kind=kind, m=m, s=s, N=N)
        assert certify(Homogeneous(model, Task.of("modular", modulus=m), N)).verdict.value == "PROVED", (
            kind,
            m,
            s,
        )


def test_balls_hold_what_torch_computes():
    for kind in ("mamba", "rwkv"):
        model = gated.counters(kind=kind, types=3, max_count=4)
        for balls, table in zip(proofs.in_balls(model), model.cell.tables(), strict=True):
            for x, row in zip(table.flatten().tolist(), (y for line in balls for y in line), strict=True):
                assert abs(float(row.mid()) - x) <= 1e-15 * (1 + abs(x))


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_for_ever_bit_by_bit_and_wrong_in_reals(capsys, kind):
    asked = ("inductive", "--task", "selective", "--model", kind, "--dtype", "float32")
    assert as_json(capsys, *asked, "--method", "exhaustive")[1]["inputs_covered"] == "infinite"
    code, real = as_json(capsys, *asked)
    assert code == 1 and real["counterexample"]["length"] > real["right_to"] > 10**6
    assert as_json(capsys, "inductive", "--task", "vanilla", "--model", kind)[0] == 0


def by_fractions(model, task):
    """The shortest wrong prefix of a line by exact fractions of what torch's tables hold; None where there is none."""
    keep, add, read = ([[Fraction(x) for x in row] for row in table.tolist()] for table in model.cell.tables())
    V, b = ([Fraction(x) for x in part.flatten().tolist()] for part in (model.readout.weight, model.readout.bias))
    wrong = []
    for line in task.lines(None):
        h = Fraction(0)
        for t, x in enumerate(line.tokens):
            h = keep[x][0] * h + add[x][0]
            logits = [v * read[x][0] * h + c for v, c in zip(V, b, strict=True)]
            due = line.tokens[0] + t if line.start is not None else t + 1
            if not all(logits[due] > z for j, z in enumerate(logits) if j != due):
                wrong.append((t + 1 - line.leading, line.tokens[: t + 1]))
                break
    return min(wrong, default=None)


@pytest.mark.parametrize("task", ["shifted", "helper", "helper-shifted", "vanilla"])
@pytest.mark.parametrize("kind", ["s4", "mamba", "rwkv"])
def test_one_state_counts_on_from_every_word(kind, task):
    """Built, and with each number changed in turn: the verdict is that of every line in fractions."""
    size = Task.of(task, vocabulary=5)
    model, rng, said = gated.starting(kind=kind, task=task, M=5), random.Random(f"{kind} {task}"), []
    for change in (None, *(rng.choice([1e-3, -0.1, 0.5, 60.0, -60.0]) for _ in range(8)), 1e4):
        changed = copy.deepcopy(model)
        if change is not None:
            with torch.no_grad():
                parts = [*changed.cell.parameters(), changed.readout.weight, changed.readout.bias]
                part = (parts[-1] if change == 1e4 else rng.choice(parts)).view(-1)
                part[-1 if change == 1e4 else rng.randrange(len(part))] += change
        found = certify(Homogeneous(changed, size, None))
        wrong = by_fractions(changed, size)
        assert found.verdict.value == ("PROVED" if wrong is None else "REFUTED"), (kind, task, change)
        said.append(found.verdict.value)
    assert said[0] == "PROVED" and "REFUTED" in said


def test_counting_on_by_commands(capsys, tmp_path):
    asked = ("inductive", "--task", "helper-shifted", "--vocabulary", "20")
    for kind in ("s4", "mamba", "rwkv"):
        assert run(capsys, *asked, "--model", kind, "--save", str(tmp_path / kind))[0] == 0
        code, found = as_json(capsys, *asked, "--model", kind)
        assert code == 0 and found["claim"] == "C-R21" and found["parameters"]["units"] == 1
        assert found["inputs_covered"] == str(21 * 21 + 20)
        code, out, err = run(capsys, "check", str(tmp_path / kind))
        assert code == 0 and out.startswith("HOLDS"), (kind, out, err)
        assert as_json(capsys, *asked, "--model", kind, "--method", "exhaustive", "--dtype", "float32")[0] == 0
    with pytest.raises(BadInput, match="task=modular"):
        gated.starting(kind="s4", task="modular", M=5)
    with pytest.raises(BadInput, match="vocabulary=0"):
        gated.starting(kind="s4", task="shifted", M=0)


def test_a_unit_that_may_overflow_is_open():
    model = gated.counters(kind="rwkv", types=2, max_count=2)
    with torch.no_grad():
        model.cell.k *= 1e300
    assert held.BitByBit(model, 2).prove()[1] == "a unit may overflow"
    model.register_forward_hook(lambda module, given, said: -said)
    with pytest.raises(ValueError, match="hook"):
        certify(Selective(model, Task.of("selective", types=2, max_count=2), None))


def readouts(seed):
    """A readout of random rows, some of them equal or of extreme sizes, and balls that it reads, some of them wide."""
    rng = np.random.default_rng(seed)
    V, b = rng.normal(size=(9, 3)) * 10.0 ** rng.choice([-320, -9, 0, 0, 0, 40], (9, 1)), rng.normal(size=9)
    V[5], b[5] = V[6], b[6]
    known = proofs.GatedBalls(([], [], []), V, b, None, [])
    rads = rng.choice([0.0, 1e-12, 0.3], (4, 1)) * rng.random((4, 3))
    mids = rng.normal(size=(4, 3))
    reads = [
        [arb(mid, rad) for mid, rad in zip(*row, strict=True)] for row in zip(mids.tolist(), rads.tolist(), strict=True)
    ]
    return known, reads


def leaves_out():
    """How many classes are left out after all, and whether one is with which the least difference would be less."""
    number = 0
    for seed in range(30):
        known, reads = readouts(seed)
        right = [seed % 9] * len(reads)
        for y, rivals in zip(reads, known.rivals(reads, right), strict=True):
            others = [j for j in range(9) if j != right[0]]
            some, every = (precise.bounds(known.gaps(y, right[0], few)) for few in (rivals, others))
            number += len(others) - len(rivals)
            if some[:2] != every[:2]:
                return number, True
    return number, False


def test_classes_that_float64_leaves_out_never_have_the_least_difference():
    number, is_less = leaves_out()
    assert number > 300 and not is_less
    known, reads = readouts(0)
    unknown = replace(known, b=known.b * np.inf)
    assert unknown.rivals(reads, [2] * 4) == [[j for j in range(9) if j != 2]] * 4


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("~(upper <", "~(lower <"),
        ("lower.max(1", "upper.max(1"),
        ("lower[steps, right] = -np.inf", "pass"),
        ("for end in (float_below, float_above)", "for end in (float_above, float_above)"),
        ("+ Ball.exact(self.b)", "+ Ball.exact(0 * self.b)"),
    ],
)
def test_a_class_that_is_wrongly_left_out_is_found(right, wrong):
    with planted(proofs.GatedBalls, "rivals", right, wrong):
        assert leaves_out()[1]
