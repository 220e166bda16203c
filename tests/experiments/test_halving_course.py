"""Document E's Figure 10: what is noted at a halving is what an oracle says of the model's heads then."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from oracles.heads import FIVE, FOUR, Oracle

from constructions.count01 import EQUALS, as_bytes, with_heads
from verify.frame.certificate import Verdict
from verify.frame.experiment import GridSize, Result
from verify.tasks.count01 import halving, halving_course, noisy_majority


def test_only_some_heads_act_in_a_copy():
    module, _ = noisy_majority.prepared(8, 4, torch.Generator().manual_seed(0))
    before = module.W_O.detach().clone()
    found, due = halving_course.only(module, (1, 3)), with_heads(module, [1, 3])
    counts = noisy_majority.counts_of(noisy_majority.drawn(1, 20, 50, torch.Generator().manual_seed(1)), EQUALS)
    assert torch.allclose(found.logits_at_counts(counts, EQUALS), due.logits_at_counts(counts, EQUALS), atol=1e-5)
    assert torch.equal(module.W_O, before) and not torch.equal(found.W_O, before)


def test_masks_tell_of_each_validation_and_of_each_halving_before_it(monkeypatch):
    monkeypatch.setattr(halving, "LEARNT", -1.0)
    monkeypatch.setattr(halving, "separations", lambda module, heads, strings: {h: float(h % 3) for h in heads})
    module, sets = noisy_majority.prepared(8, 4, torch.Generator().manual_seed(0))
    seen = []
    masks = halving.Masks(module, sets[1][:50], halving.SVC, lambda each: seen.append((each, list(masks.kept))))
    for _ in range(4):
        masks.score()
    assert [heads for _, heads in masks.course] == [4, 2, 1, 1] and masks.kept == [2]
    assert seen == [
        (halving.Halving(1, (0, 1, 2, 3), (1, 2)), [0, 1, 2, 3]),
        (halving.Halving(2, (1, 2), (2,)), [1, 2]),
    ]
    assert all(0 <= share <= 1 for share, _ in masks.course)


def test_the_course_in_words_and_drawn():
    shown = {"course": [[25, 40, 2], [50, 30, 1]], "of": 50, "heads left": 1,
             "halvings": [{"step": 25, "heads": [2, 1], "before": "9/10", "after": None}]}  # fmt: skip
    ends = (Fraction(1, 2), Fraction(1, 2))
    found = Result(
        {"d": 32, "heads": 2, "seed": 0}, (9, 10), Verdict.REFUTED, {noisy_majority.LAW: ends}, {}, shown=shown
    )
    first, last = halving_course.described([found])
    assert first.startswith("seed 0, step 25: with 2 heads the model is right on 90 % of all strings of the test's law")
    assert first.endswith("and with 1 of them on an unknown share")
    assert last == "seed 0, the model that is kept: 1 of its heads act, and it is right on 50 % of these strings"
    (axes,) = halving_course.drawing([found]).axes
    assert list(axes.lines[0].get_ydata()) == [80, 60] and list(axes.lines[1].get_xdata()) == [25, 25]
    assert list(axes.lines[2].get_ydata()) == [90] and Result.from_dict(found.to_dict()) == found


@pytest.mark.deep
def test_the_exact_share_at_a_halving_is_that_of_all_counts(tmp_path, monkeypatch):
    """A model that is halved at its first two validations; each share is counted anew by an oracle in float64."""
    from math import factorial

    usual = noisy_majority.recipe
    monkeypatch.setattr(noisy_majority, "recipe", lambda *of: replace(usual(*of), steps=60))
    monkeypatch.setattr(halving, "LEARNT", 0.3)
    monkeypatch.setattr(halving_course, "SIZE", (8, 4))
    models, exact = [], halving_course.exact

    def noted(module):
        models.append(as_bytes(module))
        return exact(module)

    monkeypatch.setattr(halving_course, "exact", noted)
    result = halving_course.CourseTrial(GridSize.LAPTOP, 0).run().result
    halvings = result.shown["halvings"]
    assert [each["heads"] for each in halvings] == [[4, 2], [2, 1]] and len(models) == 4
    assert [step for step, _, _ in result.shown["course"]] == [25, 50, 60]
    assert {each["step"] for each in halvings} <= {25, 50, 60} and result.shown["of"] == 1500
    ways = [factorial(k) for k in range(201)]
    noted_order = [each[side] for each in halvings for side in ("after", "before")]
    found = {}
    for number, data in enumerate(models):
        place = tmp_path / f"{number}.safetensors"
        place.write_bytes(data)
        given, missed = Oracle(str(place)), Fraction(0)
        for length in range(151, 201):
            n = np.array([(a, b, length - a - b) for a in range(length + 1) for b in range(length + 1 - a)])
            due = np.where(n[:, 1] > n[:, 0], FIVE, FOUR)
            wrong = n[given.logits(n, range(given.heads)).argmax(1) != due].tolist()
            strings = sum(ways[length] // (ways[a] * ways[b] * ways[c]) for a, b, c in wrong)
            missed += Fraction(strings, 3**length) / 50
        found[number] = str(1 - missed)
    assert sorted(found.values()) == sorted(map(str, noted_order))
