"""Many heads at once: shares by enumeration in fractions, separability by the exact cone and a linear programme."""

from fractions import Fraction
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from oracles.heads import Oracle, box
from scipy.optimize import linprog, minimize

from constructions.count01 import load
from constructions.errors import BadInput
from tests.planted import planted
from verify.arithmetic.exact_reals import Undecided
from verify.tasks.count01.heads import fitted as classifier
from verify.tasks.count01.heads import many
from verify.tasks.count01.heads.checkpoints import Checkpoint
from verify.tasks.count01.heads.fitted import drawn_triples, fitted
from verify.tasks.count01.heads.many import HeadForms, exact_heads, right_between, right_triples, separating
from verify.tasks.count01.heads.random_heads import Initialisation, RandomHeads
from verify.tasks.count01.heads.separability import separability
from verify.tasks.count01.layer_norm.laws import law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers

DATA = Path(__file__).parents[1] / "data" / "count01"
LAW = law_named("box:2:6:5")


def by_enumeration(values, separator, law):
    """The right triples of heads that attend uniformly, in fractions; None where one is a tie."""
    *w, b = map(Fraction, separator)
    score = [sum((x * Fraction(v) for x, v in zip(w, value, strict=True)), b) for value in values]
    right = 0
    for n0, n1, n2 in product(range(law.low, law.high + 1), range(law.low, law.high + 1), range(law.noise + 1)):
        form = score[0] + n0 * score[1] + n1 * score[2] + n2 * score[3] + score[4]
        if form == 0:
            return None
        right += (form > 0) == (n1 > n0)
    return right


def uniform_heads(count, seed):
    """Heads without scores whose values and separators are small dyadic numbers, so that near ties are met."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-4, 5, size=(count, 5, 2)) / 4.0
    separators = rng.integers(-4, 5, size=(count, 3)) / 4.0 + rng.integers(-1, 2, size=(count, 3)) * 2.0**-51
    return np.zeros((count, 5)), values, separators


def differing():
    """On how many heads the count is other than the enumeration's."""
    scores, values, separators = uniform_heads(90, 3)
    off = 0
    for head, value, separator in zip(exact_heads(scores, values), values, separators, strict=True):
        due = by_enumeration(value, separator, LAW)
        try:
            off += right_triples(HeadForms.of([head]), separator[None], LAW) != [due]
        except Undecided:
            off += due is not None and bool(np.abs(separator).max() > 0) and not flat(value, separator)
    return off


def flat(value, separator):
    """Whether 2s add nothing, where no sign of the slope shows."""
    *w, b = map(Fraction, separator)
    return sum((x * Fraction(v) for x, v in zip(w, value[3], strict=True)), b) == 0


def test_right_triples_are_those_of_an_enumeration_in_fractions():
    assert differing() == 0
    with planted(many, "right_between", "np.where(rises, beyond, before)", "np.where(rises, before, beyond)"):
        assert differing() > 0
    with planted(many, "_counted", "n1 > n0", "n1 >= n0"):
        assert differing() > 0


def test_near_ties_are_left_open_by_floats_and_decided_by_digits():
    scores, values, separators = uniform_heads(90, 3)
    forms = HeadForms.of(exact_heads(scores, values))
    low, high = right_between(forms, separators, LAW)
    due = [by_enumeration(v, s, LAW) for v, s in zip(values, separators, strict=True)]
    assert all(a <= x <= b for a, x, b in zip(low, due, high, strict=True) if x is not None)
    assert sum(a < b for a, x, b in zip(low, due, high, strict=True) if x is not None) > 3
    assert sum(a == b for a, b in zip(low, high, strict=True)) > 50


@pytest.mark.parametrize("has_norm", [False, True])
def test_random_heads_separate_where_the_exact_cone_and_a_linear_programme_say_so(has_norm):
    scores, values = Initialisation("torch", has_norm=has_norm).draw(60, 1)
    heads = exact_heads(scores, values)
    forms = HeadForms.of(heads)
    found = separating(forms, LAW)
    assert found == [separability(head, LAW).is_separable for head in heads] and 5 < sum(found) < 55
    more = LAW.has_more_ones
    for h in range(0, 60, 4):
        w = np.exp(scores[h]) * LAW.counts
        r = (w / w.sum(axis=1, keepdims=True)) @ values[h]
        rows = np.concatenate([r, np.ones((len(r), 1))], axis=1) * np.where(more, -1.0, 1.0)[:, None]
        solved = linprog([0, 0, 0], A_ub=rows, b_ub=np.full(len(rows), -1.0), bounds=[(None, None)] * 3)
        assert (solved.status == 0) is found[h]
    assert contradicted(forms, found) == 0
    with planted(many._Rows, "ruled_out", "== 4", ">= 2"):
        assert contradicted(forms, found) > 0
    with mock.patch.object(many, "_middle", lambda Z: np.ones((len(Z), 3))):
        assert contradicted(forms, found, 0.0) == 0
        with planted(many._Rows, "met", ".all(axis=(1, 2))", ".any(axis=(1, 2))"):
            assert contradicted(forms, found) > 0


def contradicted(forms, known, decided=0.9):
    """How often floats alone say otherwise; they decide nearly all heads."""
    rows = many._Rows.of(forms, LAW, slice(None))
    assert (rows.met | rows.ruled_out).mean() >= decided
    return int((rows.met & ~np.array(known)).sum() + (rows.ruled_out & np.array(known)).sum())


def test_other_dimensions_are_decided_by_the_exact_cone():
    for d_h in (1, 3):
        scores, values = Initialisation("thesis", d=4 * d_h, heads=4).draw(8, 2)
        heads = exact_heads(scores, values)
        assert separating(HeadForms.of(heads), LAW) == [separability(head, LAW).is_separable for head in heads]


def test_the_classifier_minimises_its_loss():
    scores, values = Initialisation("torch").draw(6, 0)
    forms, sample = HeadForms.of(exact_heads(scores, values)), drawn_triples(law_named("d-train"), 0, 300)
    y = np.where(sample[:, 1] > sample[:, 0], 1.0, -1.0)
    counts = np.concatenate([np.ones((300, 1)), sample, np.ones((300, 1))], axis=1)
    for h, separator in enumerate(fitted(forms, sample)):
        w = np.exp(scores[h]) * counts
        r = (w / w.sum(axis=1, keepdims=True)) @ values[h]

        def loss(x, r=r):
            short = np.maximum(0, 1 - y * (r @ x[:2] + x[2]))
            return x[:2] @ x[:2] + 1000 * np.mean(short**2)

        other = min(minimize(loss, start, method="Powell").fun for start in (np.zeros(3), separator))
        assert loss(separator) <= other * (1 + 1e-6)


def test_random_heads_are_drawn_as_the_weights_say():
    scores, values = Initialisation("thesis", d=8, heads=4, has_norm=True).draw(6, 5)
    rng = np.random.default_rng(5)
    x, W = rng.normal(0, 8**-0.5, (5, 8)), rng.normal(0, (2 / 24) ** 0.5, (3, 4, 8, 2))
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    for h in range(4):
        q, k, v = (x @ W[i, h] for i in range(3))
        assert np.allclose(scores[h], k @ q[4]) and np.allclose(values[h], v)
    with_more, _ = Initialisation("thesis", d=8, heads=4, has_norm=True).draw(9, 5)
    assert np.array_equal(with_more[:6], scores)


def test_shares_of_random_heads_are_those_of_their_outputs():
    scores, values = Initialisation().draw(12, 0)
    found = RandomHeads.of(scores, values, LAW, 0)
    separators = fitted(HeadForms.of(exact_heads(scores, values)), drawn_triples(law_named("d-train"), 0))
    for h, share in enumerate(found.accuracies):
        w = np.exp(scores[h]) * LAW.counts
        said = (w / w.sum(axis=1, keepdims=True)) @ values[h] @ separators[h, :2] + separators[h, 2]
        assert np.abs(said).min() > 1e-12 and share == Fraction(int(((said > 0) == LAW.has_more_ones).sum()), LAW.size)
    assert found.share_of(found.both) <= found.share_of(found.separable) and found.perfect <= 1


@pytest.mark.parametrize("name", ["a4_s1", "norm_s0"])
def test_a_checkpoint_is_what_the_stored_tensors_say(name):
    path, law, sample = DATA / f"{name}.safetensors", law_named("box:3:9:6"), drawn_triples(law_named("d-train"), 0)
    oracle, triples, model = Oracle(path), box(3, 9, 6), load(str(path))
    found = Checkpoint.of(model, law, "majority-ones", sample)
    separators = fitted(HeadForms.of(model_numbers(model).heads), sample)
    more = triples[:, 1] > triples[:, 0]
    for h, share in enumerate(found.separation):
        said = oracle.outputs(h, triples) @ separators[h, :2] + separators[h, 2]
        assert share == Fraction(int(((said > 0) == more).sum()), len(triples))
    assert found.accuracy == Fraction(oracle_right(oracle, triples), len(triples))
    lengths = [np.linalg.norm(W @ (oracle.W["W_out"][:, 6] - oracle.W["W_out"][:, 5])) for W in oracle.W["W_O"]]
    assert np.allclose(found.weights, np.array(lengths) / sum(lengths))
    assert found.weighted == pytest.approx(float(np.dot(found.weights, [float(s) for s in found.separation])))


def oracle_right(oracle, triples):
    """How many triples are answered with the largest of all logits, in float64 far from ties."""
    logits = oracle.logits(triples, range(oracle.heads))
    top = np.sort(logits, axis=1)
    assert (top[:, -1] - top[:, -2]).min() > 1e-7
    return int((logits.argmax(axis=1) == np.where(triples[:, 1] > triples[:, 0], 5, 6)).sum())


def test_a_separator_that_says_nothing_is_bad_input():
    scores, values = Initialisation().draw(2, 0)
    with (
        mock.patch.object(classifier, "fitted", lambda forms, sample, strength: np.zeros((2, 3))),
        pytest.raises(BadInput, match="do not tell a triple from a tie"),
    ):
        classifier.separation_accuracies(HeadForms.of(exact_heads(scores, values)), np.zeros((1, 3)), LAW)
