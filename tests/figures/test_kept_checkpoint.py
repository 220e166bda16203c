"""D's Figures 4, 8 and 9 of the kept model of 16 heads and a layer norm: what is drawn is what an oracle says."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from command import run
from oracles.heads import FIVE, FOUR, Oracle

from constructions.count01 import load
from verify.tasks.count01.heads.distributions import subsets
from verify.tasks.count01.heads.ratios import ratios
from verify.tasks.count01.layer_norm.laws import law_named

KEPT = str(Path(__file__).parents[1] / "data" / "count01" / "d_fig2_s0.safetensors")
BOX = "box:1:4:3"
TRIPLES = np.array(list(product(range(1, 5), range(1, 5), range(4))))


@pytest.mark.deep
def test_all_groups_of_the_kept_models_heads():
    """The group of all heads, that of none, and by size the least and the largest single head."""
    given = Oracle(KEPT)
    assert given.heads == 16 and "norm_weight" in given.W
    more = TRIPLES[:, 1] > TRIPLES[:, 0]

    def accuracy(heads):
        """The learned accuracy compares the logits of 4 and 5 alone."""
        logits = given.logits(TRIPLES, heads)
        return float(((logits[:, FOUR] > logits[:, FIVE]) == more).mean())

    figure = subsets(load(KEPT), law_named(BOX), "majority-ones")
    learned, auc, separable = figure.axes
    (middle,) = learned.lines
    sizes, shares = (list(of) for of in middle.get_data())
    assert sizes == list(range(17)) and shares[16] == pytest.approx(accuracy(range(16)))
    assert shares[0] == pytest.approx(accuracy([]))
    single = sorted(accuracy([h]) for h in range(16))
    drawn = np.asarray(learned.collections[0].get_paths()[0].vertices)
    at_one = drawn[drawn[:, 0] == 1][:, 1]
    assert at_one.min() == pytest.approx(single[0]) and at_one.max() == pytest.approx(single[-1])
    assert single[7] <= shares[1] <= single[8]
    assert all(0 <= y <= 1 for line in auc.lines for y in line.get_ydata()) and len(auc.lines) >= 16
    of_size = list(separable.lines[0].get_ydata())
    assert of_size[0] == 0 and of_size == sorted(of_size), "a group that separates does so with more heads"


def test_ratios_of_a_kept_heads_values():
    """The values of one number of a kept head's output: where the drawn share is 1, all triples are separated."""
    given, law = Oracle(KEPT), law_named(BOX)
    outputs = given.seen[1:4] @ given.W["W_V"][0]
    values = [Fraction(round(100 * x), 100) for x in outputs[:, 0]]
    _, left, right = ratios(values, law).axes
    for axes, weights in ((left, lambda ratio: (1 / ratio, 0)), (right, lambda ratio: (1, 1 / ratio))):
        at, shares = axes.lines[0].get_data()
        for ratio, share in list(zip(at, shares, strict=True))[:: len(at) // 8]:
            w1, w2 = weights(Fraction(ratio).limit_denominator(10**6))
            assert share == pytest.approx(best_threshold(values, w1, w2)), (axes.get_xlabel(), ratio)


def best_threshold(values, w1, w2):
    """The best accuracy of a threshold, either way round, on the mean of the values; 0 weighs 1, and 1 and 2 these."""
    scores = {}
    for n0, n1, n2 in TRIPLES.tolist():
        parts = (n0, n1 * w1, n2 * w2)
        score = sum(part * v for part, v in zip(parts, values, strict=True)) / sum(parts)
        more, rest = scores.get(score, (0, 0))
        scores[score] = (more + (n1 > n0), rest + (n1 <= n0))
    ones, others = (sum(found) for found in zip(*scores.values(), strict=True))
    below, best = 0, max(ones, others)
    for score in sorted(scores):  # so many are right where those up to this score are said to have more zeros
        below += scores[score][1] - scores[score][0]
        best = max(best, ones + below, others - below)
    return best / len(TRIPLES)


@pytest.mark.deep
def test_the_commands_that_the_page_names(capsys, tmp_path):
    for kind in ("subsets", "contributions"):
        argv = ("figure", kind, KEPT, "--law", "box:1:3:2", "--out", str(tmp_path / f"{kind}.svg"))
        assert run(capsys, *argv)[0] == 0 and (tmp_path / f"{kind}.svg").stat().st_size > 1000
