"""Blocks that see one type each: an LSTM's rings at C's ten types, small ones against every string, and faults."""

from __future__ import annotations

import copy
import random
from itertools import product

import numpy as np
import pytest
import torch
from models.selection import every

from constructions.recurrent import holding, selective
from tests.command import as_json, run
from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.tasks.recurrent import separate, sets
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.sets import Trained

ENDLESS = Budget.of(1e9).deadline()
LENGTH = 7
EVERY = torch.tensor(list(product(range(2), repeat=LENGTH)))
RING = Task.of("selective-modular", types=2, modulus=2, max_count=LENGTH)
UP_TO = Task.of("selective", types=2, max_count=2)


def proof(model, task, fmt=None):
    at = None if fmt is None else RoundedArithmetic.of(FORMATS[fmt])
    return separate.prove(Network.of(model), task, at, ENDLESS)


def least(model, task):
    """The least margin of all judged answers, as torch computes it; the counts are plain Python."""
    with torch.no_grad():
        logits, found = model(EVERY).double().numpy(), []
    for string, rows in zip(EVERY.tolist(), logits, strict=True):
        for t, row in enumerate(rows):
            n = string[: t + 1].count(string[t])
            if task.m is not None or n <= task.C:
                right = n if task.m is None else (n - 1) % task.m
                found.append(row[right] - np.delete(row, right).max())
    return min(found)


def changed(model, rng):
    found = copy.deepcopy(model)
    parts = [p for p in found.parameters() if p.any()]
    with torch.no_grad():
        part = rng.choice(parts).view(-1)
        part[rng.randrange(len(part))] += rng.choice([0.2, -4.0, 9.0, -25.0, 40.0])
    return found


def contradictions(number=12):
    """How often a proof is of a network that is wrong on a short string, or wins by less there than is proved."""
    rng, found, proved = random.Random(4), 0, 0
    for model, task in ((holding.rings(types=2, m=2), RING), (selective.thermometer(types=2, max_count=2), UP_TO)):
        for k in range(number):
            asked = changed(model, rng) if k else model
            said = proof(asked, task)
            proved += said.reason is None
            found += said.reason is None and not said.margin <= least(asked, task) + 1e-9
            assert k or said.reason is None
    assert found or proved < 2 * number
    return found


def test_verdicts_agree_with_every_short_string():
    assert contradictions() == 0


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong"),
    every(3, [
        (separate, "_block", "[[1.0], [0.0]]", "[[1.0], [1.0]]"),
        (separate, "_state", "= block.low[rows].min(0)", "= block.high[rows].max(0)"),
        (separate, "_state", "counts in (None, c)", "c in (counts, (0,))"),
        (separate, "seen_types", "if (more == seen).all():", "if True:"),
        (separate, "_units", "!= i", "== i"),
        (Trained, "counted", "if token >= len(counts):", "if token >= 0:"),
        (Trained, "due", "(n - 1) % m", "n % m"),
    ]),
)  # fmt: skip
def test_planted_faults_are_caught(owner, name, right, wrong):
    """Each proves what is wrong, or no longer proves what is built."""
    with planted(owner, name, right, wrong):
        try:
            assert contradictions() > 0
        except AssertionError:
            assert proof(holding.rings(types=2, m=2), RING).reason is not None or not_refused()


def not_refused():
    """Whether a unit of one type that sees another through a third is taken for one that does not."""
    model = holding.rings(types=2, m=2)
    with torch.no_grad():
        weight = dict(model.cell.named_parameters())["weight_hh_l0"]
        weight[2 * model.hidden, 5] = 1e-9  # of p_0 of type 0, and q_1 of type 1
    return proof(model, RING).reason is None


def test_units_that_see_two_types_are_refused():
    assert not not_refused()
    net = Network.of(holding.rings(types=3, m=2))
    assert separate.seen_types(net).sum(1).tolist() == [1] * 12 + [0]


def test_margins_are_reached_and_formats_widen():
    for model, task in ((holding.rings(types=2, m=2), RING), (selective.thermometer(types=2, max_count=2), UP_TO)):
        exact, rounded = proof(model, task), proof(model, task, "float32")
        assert 0 < rounded.margin < exact.margin <= least(model, task) + 1e-9
        assert rounded.margin <= least(copy.deepcopy(model).float(), task)
        assert (
            proof(model, task, "bfloat16").reason is not None or proof(model, task, "bfloat16").margin < rounded.margin
        )


@pytest.mark.deep
def test_ten_types_at_every_length(capsys, tmp_path):
    asked = ("inductive", "--task", "selective-modular", "--model", "lstm")
    code, found = as_json(capsys, *asked)
    assert code == 0 and found["length"] == "all" and found["claim"] == "C-R20" and found["parameters"]["types"] == 10
    code, rounded = as_json(capsys, *asked, "--precision", "float32")
    assert code == 0 and 0 < rounded["margin"] < found["margin"]
    assert run(capsys, *asked, "--save", str(tmp_path / "m"))[0] == 0
    code, out, err = run(capsys, "check", str(tmp_path / "m"))
    assert code == 0 and out.startswith("HOLDS") and not err
    rng = random.Random(2)
    model = holding.rings(types=10, m=4)
    strings = torch.tensor([[rng.choice((3, 7, 9)) for _ in range(60)] for _ in range(20)])
    with torch.no_grad():
        said = model(strings).argmax(-1).tolist()
    for string, row in zip(strings.tolist(), said, strict=True):
        assert row == [(string[: t + 1].count(x) - 1) % 4 for t, x in enumerate(string)]


def test_counts_of_the_first_types_alone():
    trained = Trained(Network.of(holding.rings(types=2, m=2)), RING, None, True, types=1)
    assert trained.counted((1,), 0) == (0,) and trained.counted((1,), 1) == (1,)
    some = Trained(trained.net, UP_TO, None, False, types=1)
    assert some.counted((3,), 0) == (3,) and not some.is_over((3,))
    assert {w for _, w in sets._keys(trained, 1)} == {(), (0,), (1,)}
