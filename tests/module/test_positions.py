"""Several positions that answer: counts at each and of whole inputs, by cells and one by one, against brute force."""

import copy
import functools
import itertools

import numpy as np
import pytest
import torch
from models.one_layer import Nano
from models.selection import every
from torch import nn

from constructions.errors import BadInput
from tests.clocks import ENDLESS, looks
from tests.planted import planted
from verify.arithmetic.readings import Real
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort
from verify.module import (
    ModuleProblem,
    Task,
    cells,
    certify,
    count_of_last,
    each_prefix,
    largest,
    layered,
    positions,
    strings,
    sum_modulo,
    task,
    tokens,
)
from verify.module.automaton import Automaton

V, L = 4, 3
EVERY = torch.tensor(list(itertools.product(range(V), repeat=L)))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Cells of a few inputs, a few of them at once."""
    monkeypatch.setattr(cells, "RUN", 2)
    monkeypatch.setattr(cells, "MOST_AT_ONCE", 3)
    monkeypatch.setattr("verify.module.problem.CLIMBING", 0.0)


@pytest.fixture
def by_cells(monkeypatch):
    monkeypatch.setattr("verify.module.problem.FEW", 1)


@functools.cache
def trained(seed, expected, steps=20):
    """nanoGPT's block that answers at every position, trained for a while."""
    torch.manual_seed(seed)
    model = Nano(V, L, at=None)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(EVERY).flatten(0, 1), expected(EVERY).flatten()).backward()
        optimiser.step()
    return model.double().eval()


def counted(model, expected, rows=EVERY, places=None):
    """By torch alone: how many inputs are right at each of the positions, and at all of them."""
    with torch.no_grad():
        is_right = model(rows).argmax(-1) == expected(rows)
    is_right = is_right if places is None else is_right[:, places]
    return is_right.sum(0).tolist(), int(is_right.all(1).sum())


def said(found):
    """The same from a certificate."""
    assert int(found.extra["counts"]["undecided"]) == 0
    assert {counts["undecided"] for counts in found.extra["by_position"]} == {"0"}
    assert all(int(c["right"]) + int(c["wrong"]) == V ** c["length"] for c in found.extra["by_position"])
    return [int(counts["right"]) for counts in found.extra["by_position"]], int(found.extra["counts"]["right"])


PREFIXES = {"largest": largest, "sums": sum_modulo(V), "counts": count_of_last()}


@pytest.mark.deep
@pytest.mark.parametrize("name, seed", [("largest", 0), ("sums", 1), ("counts", 2)])
def test_a_trained_model_has_counts_of_brute_force(by_cells, monkeypatch, name, seed):
    expected = each_prefix(PREFIXES[name])
    model = trained(seed, expected)
    options = {"inputs": tokens([V] * L), "expected": expected, "position": None, "budget": ENDLESS}
    found = certify(model, **options)
    exact = counted(model, expected)
    assert said(found) == exact and 0 < exact[1] < V**L and found.verdict is Verdict.REFUTED
    assert exact[1] < min(exact[0])  # the whole is no position's alone
    assert found.extra["decided_by"]["cells"] == V**L
    assert found.counterexample["expected"] == expected(torch.tensor([found.counterexample["input"]]))[0].tolist()
    as_function = certify(model, **(options | {"expected": lambda t: expected(t)}))  # Python, which has no chart
    assert said(as_function) == exact and as_function.extra["decided_by"]["cells"] == 0
    some = certify(model, **(options | {"position": (2, 1)}))
    assert said(some) == counted(model, expected, places=[2, 1])


@pytest.mark.deep
@pytest.mark.parametrize("reading", ["real", "float32"])
def test_one_by_one_each_position_is_counted(reading):
    def expected(t):
        return t.cummax(1).values

    model = copy.deepcopy(trained(0, expected)).float()
    found = certify(model, inputs=tokens([V] * L), expected=expected, position=None, reading=reading, budget=ENDLESS)
    exact = counted(model, expected)
    assert said(found) == exact and 0 < exact[1] < V**L


@pytest.mark.deep
def test_a_traced_function_answers_at_each_position(by_cells):
    def expected(t):
        return t.cumsum(1) % V

    model = trained(1, expected)
    found = certify(model, inputs=tokens([V] * L), expected=expected, position=None, budget=ENDLESS)
    assert said(found) == counted(model, expected) and found.extra["decided_by"]["cells"] == V**L


@pytest.mark.deep
def test_filters_and_several_lengths(by_cells):
    expected = each_prefix(largest)
    model = trained(0, expected)
    found = certify(model, inputs=strings(V, 2), expected=expected, position=None, budget=ENDLESS)
    each = [counted(model, expected, EVERY[EVERY[:, n:].sum(1) == 0][:, :n]) for n in (1, 2)]
    assert said(found) == ([*each[0][0], *each[1][0]], each[0][1] + each[1][1])
    asked = {"inputs": tokens([V] * L, where=lambda t: t[:, 0] < t[:, 1]), "expected": expected, "position": None}
    kept = EVERY[EVERY[:, 0] < EVERY[:, 1]]
    found = certify(model, **asked, budget=ENDLESS)
    exact = counted(model, expected, kept)
    assert [int(c["right"]) for c in found.extra["by_position"]] == exact[0]
    assert {int(c["right"]) + int(c["wrong"]) for c in found.extra["by_position"]} == {len(kept)}


@pytest.mark.deep
def test_a_search_that_is_cut_off_is_a_bracket_and_goes_on(by_cells, tmp_path):
    expected = each_prefix(largest)
    model = trained(0, expected)
    each, whole = counted(model, expected)
    widths = []
    for _ in range(200):
        problem = ModuleProblem(model, Task(tokens([V] * L), expected, None), resume=str(tmp_path))
        found = problem.prove(Real(), Effort(looks(60))).extra
        counts = {name: int(n) for name, n in found["counts"].items()}
        assert sum(counts.values()) == V**L and counts["right"] <= whole <= counts["right"] + counts["undecided"]
        for right, own in zip(each, found["by_position"], strict=True):
            assert int(own["right"]) <= right <= int(own["right"]) + int(own["undecided"])
        widths.append(counts["undecided"])
        if not counts["undecided"]:
            break
    assert len(widths) > 2 and widths[-1] == 0 and sorted(widths, reverse=True) == widths
    assert len(list(tmp_path.iterdir())) == L


@pytest.mark.deep
def test_a_verdict_ends_at_a_wrong_input(by_cells):
    """The counts are those so far: what other positions have not looked at is undecided."""
    expected = each_prefix(largest)
    model = trained(0, expected)
    each, whole = counted(model, expected)
    found = certify(model, inputs=tokens([V] * L), expected=expected, position=None, budget=ENDLESS, aim="verdict")
    counts = {name: int(n) for name, n in found.extra["counts"].items()}
    assert found.verdict is Verdict.REFUTED and counts["right"] <= whole and counts["undecided"] > 0
    assert counts["wrong"] <= V**L - whole and sum(counts.values()) == V**L
    for right, own in zip(each, found.extra["by_position"], strict=True):
        assert int(own["right"]) <= right <= int(own["right"]) + int(own["undecided"])


def wrong_at_first():
    """Largest tokens so far, but at the first position another one: wrong on all inputs."""
    return each_prefix(
        Automaton((0, 0), lambda s, t: (min(s[0] + 1, 2), max(s[1], t)), lambda s: (s[1] + (s[0] == 1)) % V)
    )


@pytest.mark.deep
def test_what_was_not_looked_at_is_undecided_at_its_position(by_cells):
    """Where all inputs are wrong at one position, nothing is left of the whole, but of the others."""
    model, seen = trained(0, each_prefix(largest)), []
    for number in (45, 50, 60):
        problem = ModuleProblem(model, Task(tokens([V] * L), wrong_at_first(), None))
        found = problem.prove(Real(), Effort(looks(number))).extra
        for own in found["by_position"]:
            assert sum(int(own[name]) for name in ("right", "wrong", "undecided")) == V**L
        seen.append((found["counts"]["undecided"], found["by_position"][-1]["undecided"]))
    assert any(whole == "0" != own for whole, own in seen)


def test_all_right_is_proved(by_cells):
    """A head that weighs the largest token so far by far most says it at each position."""

    class Steep(nn.Module):
        def forward(self, t):
            x = nn.functional.one_hot(t, V).double()
            scores = (4.0 * t.double()).unsqueeze(1).expand(-1, t.shape[1], -1)
            later = torch.ones(t.shape[1], t.shape[1], dtype=torch.bool).triu(1)
            return scores.masked_fill(later, -torch.inf).softmax(-1) @ x

    found = certify(
        Steep().eval(), inputs=tokens([V] * L), expected=each_prefix(largest), position=None, budget=ENDLESS
    )
    assert found.verdict is Verdict.PROVED and said(found) == ([V**L] * L, V**L) and found.margin > 0.5


def unions(rng, many):
    """Products of token sets in one, where some positions have fewer tokens; and how many inputs are in one of them."""
    whole = np.zeros((3, 4), dtype=bool)
    for place in range(3):
        whole[place, : rng.integers(1, 5)] = True
    masks = [whole & (rng.random((3, 4)) < rng.choice([0.4, 0.8])) for _ in range(many)]
    rows = itertools.product(*(np.flatnonzero(row) for row in whole))
    return whole, masks, sum(any(all(m[i, r] for i, r in enumerate(row)) for m in masks) for row in rows)


def wrong_unions():
    rng = np.random.default_rng(0)
    drawn = [unions(rng, many) for many in range(1, 7) for _ in range(20)]
    return sum(positions.union_size(masks, whole, -1) != size for whole, masks, size in drawn)


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("math.prod(widths[place:])", "math.prod(widths[place + 1 :])"),
        ("math.prod(sizes[rows[0]][place:])", "math.prod(widths[place:])"),
        ("n * count(", "1 * count("),
        ("if column.any()", "if column.all()"),
        ("place == length or is_all[rows, place].any()", "place == length"),
    ],
)
def test_unions_are_counted(right, wrong):
    assert wrong_unions() == 0
    with planted(positions, "union_size", right, wrong):
        found = wrong_unions()
    assert found > 10 or wrong == "place == length"  # slower, and no other number


def test_unions_that_take_too_long_are_left(monkeypatch):
    whole, masks, size = unions(np.random.default_rng(1), 6)
    assert positions.union_size(masks, whole, -1) == size > 0 == positions.union_size([], whole, -1)
    monkeypatch.setattr(positions, "MOST_WORK", 1)
    assert positions.union_size(masks, whole, -1) == -1
    monkeypatch.setattr(positions, "MOST_PLACES", 2)
    assert positions.union_size(masks[:1], whole, -1) == -1
    monkeypatch.setattr(positions, "MOST_PLACES", 3)
    monkeypatch.setattr(positions, "MOST_REMEMBERED", 5)
    assert positions.union_size(masks, whole, -1) == -1


@pytest.mark.deep
def test_without_the_union_the_counts_are_a_bracket(by_cells, monkeypatch):
    expected = each_prefix(largest)
    model = trained(0, expected)
    _, whole = counted(model, expected)
    monkeypatch.setattr(positions, "MOST_WORK", 1)
    found = certify(model, inputs=tokens([V] * L), expected=expected, position=None, budget=ENDLESS)
    counts = {name: int(n) for name, n in found.extra["counts"].items()}
    assert counts["right"] <= whole <= counts["right"] + counts["undecided"] and counts["undecided"] > 0
    assert found.verdict is Verdict.REFUTED and sum(counts.values()) == V**L
    assert {own["undecided"] for own in found.extra["by_position"]} == {"0"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "owner, name, right, wrong",
    [
        (task.Task, "at", "position + 1, length", "position, length"),
        (task.Task, "at", "[:, place]", "[:, 0]"),
        (Automaton, "of_prefix", "range(read, length)", "range(read + 1, length)"),
        (Automaton, "of_prefix", "range(length - read)", "range(length - read - 1)"),
        (positions, "remember", "kept.add(found.masks)", "pass"),
        (positions, "masks_of", "tokens[:, place]", "tokens[:, 0]"),
        (positions, "together", "size - most", "size - least - 1"),
        (layered.Layered, "_count", "return bounds.low, bounds.high", "return bounds.low, -bounds.low"),
        (ModuleProblem, "_count_positions", "len(tokens) - len(rest)", "len(tokens)"),
        (ModuleProblem, "_count_positions", "place : place + 1", "0:1"),
        (ModuleProblem, "_count_positions", "judge.at(place)", "judge.at(0)"),
    ],
)
def test_planted_faults_are_caught(monkeypatch, owner, name, right, wrong):
    """Each fault changes a count of one of three tasks, or the module that is run beside contradicts it."""

    def differences():
        found = 0
        for expected, few in ((each_prefix(largest), 1), (each_prefix(count_of_last()), 1), (traced, 1), (traced, 999)):
            monkeypatch.setattr("verify.module.problem.FEW", few)
            model = trained(0, expected)
            options = {"inputs": tokens([V] * L), "expected": expected, "position": None, "budget": ENDLESS}
            found += counts_of(certify(model, **options)) != (*counted(model, expected), 0)
        return found

    def traced(t):
        return t.cumsum(1) % V

    def counts_of(found):
        right = [int(counts["right"]) for counts in found.extra.get("by_position", ())]
        return right, int(found.extra["counts"]["right"]), int(found.extra["counts"]["undecided"])

    with planted(owner, name, right, wrong):
        try:
            found = differences()
        except (BadInput, AssertionError, KeyError, TypeError):
            found = 1
    assert found > 0


@pytest.mark.parametrize(
    "options, message",
    every(
        3,
        [
            ({"expected": largest}, r"returned \(64,\) for 64 inputs with 3 answer positions each; each_prefix"),
            ({"expected": lambda t: t[:, :2]}, r"returned \(64, 2\) for 64 inputs with 3 answer positions each"),
            ({"expected": each_prefix(Automaton(0, lambda s, t: s + 1, lambda s: s + 1))}, "is none of the 4 classes"),
        ],
    ),
)
def test_answers_of_another_shape_are_refused(options, message):
    model = trained(0, each_prefix(largest), 1)
    with pytest.raises(BadInput, match=message) as error:
        certify(model, inputs=tokens([V] * L), position=None, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("position", ["a", 1.5, [], [0, True], [1, 1], [-1, 2]], ids=str)
def test_positions_that_are_none_are_refused(position):
    with pytest.raises(BadInput, match=r"position=.*(as whole numbers|names a position twice)"):
        certify(trained(0, each_prefix(largest), 1), inputs=tokens([V] * L), expected=largest, position=position)


def test_other_arguments_are_refused():
    with pytest.raises(BadInput, match="takes an Automaton"):
        each_prefix(lambda t: t)
    last = Nano(V, L).eval()
    with pytest.raises(BadInput, match=r"returns \(1, 4\) .* must be logits \(1, 3, classes\)"):
        certify(last, inputs=tokens([V] * L), expected=each_prefix(largest), position=None)
