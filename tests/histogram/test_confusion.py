"""Exact confusion matrices against plain enumeration of all sequences, under both laws."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from math import factorial, prod

import pytest
import torch
from command import as_json, run
from models.selection import every

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from constructions.partition_sampler import sample
from constructions.relation_counting import dot
from verify.frame.decide import Effort
from verify.tasks.histogram.confusion import confusion
from verify.tasks.histogram.impossible import random_model
from verify.tasks.histogram.stored import StoredModel


def probability(x, T, law):
    """Of one sequence; by the sampler's own steps: sizes uniform on what is left, fresh tokens, a shuffle."""
    if law == "uniform":
        return Fraction(1, T ** len(x))
    counts = [x.count(t) for t in sorted(set(x))]
    total = Fraction(0)
    for order in permutations(counts):
        left, share = len(x), Fraction(1)
        for i, size in enumerate(order):
            share *= Fraction(1, left * (T - i))  # the size, then the token
            left -= size
        total += share
    return total * Fraction(prod(map(factorial, counts)), factorial(len(x)))


def by_enumeration(module, law):
    """Run in float64 on all sequences; no margin is near 0."""
    T, L = module.T, module.L
    table = [[Fraction(0)] * L for _ in range(L)]
    for x in product(range(T), repeat=L):
        with torch.no_grad():
            logits = module(torch.tensor([x]))[0]
        first, second = logits.topk(2).values.T
        assert float((first - second).min()) > 1e-12
        for position, answer in enumerate(logits.argmax(-1).tolist()):
            table[x.count(x[position]) - 1][answer] += probability(x, T, law) / L
    return table


@pytest.mark.parametrize(
    ("model", "T", "L", "law"),
    every(2, [("dot", 4, 3, "partitions"), ("dot+sftm", 3, 4, "uniform"), ("bos+sftm", 4, 4, "partitions"),
     ("bos", 3, 3, "uniform"), ("lin", 3, 3, "uniform"), ("lin+sftm", 3, 3, "uniform")]),
)  # fmt: skip
def test_shares_are_those_of_enumeration(model, T, L, law):
    for seed in (0, 2):
        module = random_model(model, seed, T=T, L=L, d=3, p=4)
        found = confusion(StoredModel.of(module, None), law)
        assert found.answered == by_enumeration(module, law)
        assert not any(found.tied) and not any(found.undecided)


def test_ties_are_no_answers():
    module = HistogramTransformer("dot", T=3, L=3, d=2, p=1, dtype=torch.float64)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    found = confusion(StoredModel.of(module, None), "partitions")
    assert found.tied == [Fraction(1, 3)] * 3 and found.accuracy == (0, 0)


def test_equal_tokens_are_counted_together():
    """Two tokens that act alike: a region that is never divided holds them all."""
    module = random_model("bos+sftm", 6, T=5, L=4, d=3, p=3)
    with torch.no_grad():
        module.E[3] = module.E[1]
        module.E[4] = module.E[1]
    assert confusion(StoredModel.of(module, None), "partitions").answered == by_enumeration(module, "partitions")


def test_counts_are_uniform_under_partitions():
    """Each true count has probability 1/L exactly, and the sampler draws them so."""
    for T, L in ((4, 3), (6, 5)):
        found = confusion(StoredModel.of(random_model("dot", 0, T=T, L=L, d=3, p=3), None), "partitions")
        rows = zip(found.answered, found.tied, strict=True)
        assert [sum(row) + tie for row, tie in rows] == [Fraction(1, L)] * L
    drawn = sample(6, 5, 4000, torch.Generator().manual_seed(0))
    counts = (drawn[:, :, None] == drawn[:, None, :]).sum(-1).flatten().bincount(minlength=6)[1:]
    assert float((counts / counts.sum() - 0.2).abs().max()) < 0.02


def test_what_the_budget_leaves_open_is_said():
    found = confusion(StoredModel.of(random_model("bos+sftm", 1, T=6, L=5, d=3, p=4), None), "uniform", Effort(0.0))
    low, high = found.accuracy
    assert any(found.undecided) and low < high
    total = sum(map(sum, found.answered)) + sum(found.tied) + sum(found.undecided)
    assert total == 1 and "undecided" in found.to_dict()


def test_laws_that_have_no_closed_form_are_refused():
    with pytest.raises(BadInput, match="alphabet may run out"):
        confusion(StoredModel.of(dot(T=3, L=4), None), "partitions")
    with pytest.raises(BadInput, match="unequal mixing"):
        confusion(StoredModel.of(random_model("lin", 0, T=4, L=3, d=3, p=3), None), "partitions")


def test_the_command_tells_accuracy(capsys):
    printed = ("--model", "bos", "--T", "4", "--L", "3", "--as-printed")
    code, out = as_json(capsys, "histogram", *printed, "--law", "partitions")
    assert code == 1 and out["law"] == "partitions" and out["accuracy"] == ["1/3", "1/3"]
    code, text, _ = run(capsys, "histogram", *printed, "--law", "partitions")
    assert code == 1 and text.count("exactly 1/3 under the law partitions") == 1
    code, text, _ = run(capsys, "histogram", "--model", "dot", "--T", "4", "--L", "3", "--law", "uniform")
    assert code == 0 and "accuracy" in text and "exactly 1" in text
