"""Radii attacked: models inside the lower bound may not be wrong anywhere, and the one at the upper bound is."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from clocks import ENDLESS, looks
from models.selection import every, first

from constructions import inventory_counting, relation_counting
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from tests.models.fitted import fitted
from tests.oracles.histogram import all_wrong_pairs, forward, weights_of
from tests.planted import planted
from verify import radius, repair
from verify.changes import boxes, hurting
from verify.changes import changeable as changes
from verify.changes.boxes import ModelBox, Within
from verify.changes.radius import RadiusSearch, with_every_rival
from verify.engine import mean_value
from verify.engine.balls import Arithmetic
from verify.engine.capture import capture
from verify.frame.clock import Deadline, TimeIsUp
from verify.frame.decide import Effort
from verify.tasks.histogram.changing import changeable

INSIDE = 1 - 1e-12  # of the radius: room for the attack's own rounding


# Built ones, and fitted ones after a repair.
RIGHT_MODELS = [
    lambda: inventory_counting.lin(T=2, L=2),
    lambda: relation_counting.dot(T=2, L=2),
    lambda: relation_counting.dot(T=3, L=2),
    lambda: repair(fitted(0, T=3, L=2, d=4, p=12)).module,
    lambda: repair(fitted(3, T=3, L=3, d=4, p=8)).module,
]


class Attack:
    """All inputs of a model in numpy, and the least margin of models near it."""

    def __init__(self, module, tensors=None, is_relative=True):
        self.module, self.weights = module, weights_of(module)
        self.sequences = np.array(list(itertools.product(range(module.T), repeat=module.L)))
        equal = (self.sequences[:, :, None] == self.sequences[:, None, :]).sum(-1)
        self.right = (equal - module.first_count)[..., None]
        self.reach = {
            name: np.zeros_like(w) if tensors and name not in tensors else np.abs(w) if is_relative else np.ones_like(w)
            for name, w in self.weights.items()
        }

    def margins(self, weights):
        """(sequences, positions): the right logit over the largest other one."""
        logits = forward(self.module, weights, self.sequences)
        own = np.take_along_axis(logits, self.right, -1)
        np.put_along_axis(logits, self.right, -np.inf, -1)
        return own[..., 0] - logits.max(-1)

    def moved(self, r, direction):
        return {name: w + r * self.reach[name] * direction[name] for name, w in self.weights.items()}

    def at_random(self, rng, r, number):
        """The least margin of models at corners and inside."""
        found = np.inf
        for i in range(number):
            draw = (lambda w: rng.choice([-1.0, 1.0], w.shape)) if i % 2 else (lambda w: rng.uniform(-1, 1, w.shape))
            found = min(found, self.margins(self.moved(r, {n: draw(w) for n, w in self.weights.items()})).min())
        return found

    def by_slopes(self, r, inputs=4):
        """The least margin where each number moves as the tightest inputs' margins say by differences, twice."""
        found = np.inf
        for flat in np.argsort(self.margins(self.weights).ravel())[:inputs]:
            direction = {name: np.zeros_like(w) for name, w in self.weights.items()}
            for _ in range(2):
                at = self.moved(r, direction)
                direction = {name: self._falls(at, name, flat) for name in at}
                found = min(found, self.margins(self.moved(r, direction)).min())
        return found

    def _falls(self, at, name, flat):
        signs, step = np.zeros_like(at[name]), 1e-7
        for place in np.ndindex(signs.shape):
            ends = []
            for sign in (1, -1):
                w = at[name].copy()
                w[place] += sign * step
                ends.append(self.margins(at | {name: w}).ravel()[flat])
            signs[place] = np.sign(ends[1] - ends[0])
        return signs


def what_is_wrong(module, found, *, tensors=None, is_relative=True, draws=60):
    """What of a radius an attack or enumeration contradicts, if anything."""
    attack, rng = Attack(module, tensors, is_relative), np.random.default_rng(0)
    if not 0 < found.at_least < found.at_most:
        return "order"
    if min(attack.at_random(rng, found.at_least * INSIDE, draws), attack.by_slopes(found.at_least * INSIDE)) <= 0:
        return "a wrong model inside"
    if not distance(found.wrong, attack) <= found.at_most or not all_wrong_pairs(found.wrong):
        return "the wrong model"
    return None


def distance(module, attack):
    """How far a model is, exactly, in units in which the reach is 1; infinite where a number moves that has none."""
    far = Fraction(0)
    for name, new in weights_of(module).items():
        triples = (x.ravel().tolist() for x in (new, attack.weights[name], attack.reach[name]))
        for a, b, reach in zip(*triples, strict=True):
            if a != b:
                far = max(far, abs(Fraction(a) - Fraction(b)) / Fraction(reach)) if reach else float("inf")
    return far


@pytest.mark.parametrize("build", first(1, RIGHT_MODELS))
def test_no_model_inside_is_wrong(build):
    module = build()
    found = radius(module)
    assert what_is_wrong(module, found) is None and found.gap < 1.5


@pytest.mark.deep
def test_built_models_have_a_gap_of_a_tenth_at_most():
    for build in (relation_counting.dot, relation_counting.bos, relation_counting.bos_sftm, inventory_counting.lin):
        module = build(T=3, L=2)
        assert radius(module).gap < 1.1


class Square(torch.nn.Module):
    """Logits w^2 and 0."""

    def __init__(self, at):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([at], dtype=torch.float64))

    def forward(self, tokens):
        return torch.cat([self.w * self.w, 0 * self.w]).expand(len(tokens), 2)


def least_of_squares(at, far):
    """A lower bound on w^2 over all w so far from `at`."""
    graph = capture(Square(at).eval(), 1)
    graph = replace(graph, around={name: torch.tensor([far]) for name in graph.stored})
    one = torch.tensor([0])
    return float(mean_value.least_gaps(graph, Arithmetic(has_norms=True))(one[:, None], one, one + 1)[0])


@pytest.mark.deep
def test_the_least_gap_is_at_an_end_only_where_its_slope_has_one_sign():
    assert 0.2499 < least_of_squares(1.0, 0.5) <= 0.25 and 0.2499 < least_of_squares(-1.0, 0.5) <= 0.25
    assert least_of_squares(0.1, 0.5) <= 0 and least_of_squares(-0.1, 0.5) <= 0
    for wrong in ("ball.mid + sign", "ball.mid - 2 * sign"):
        with planted(mean_value, "_at_ends", "ball.mid - sign", wrong):
            assert not 0.2499 < least_of_squares(1.0, 0.5) <= 0.25
    with planted(mean_value, "_at_ends", "(g.mid > g.radius).double()", "(g.mid > 0).double()"):
        assert least_of_squares(0.1, 0.5) > 0


class Parabola(torch.nn.Module):
    """Logits w^2 + c and w: the gap is least at w = 1/2, and rises on one side of it alone."""

    def __init__(self, c):
        super().__init__()
        self.w, self.c = torch.nn.Parameter(torch.tensor([0.4, 0.0]).double()), c

    def forward(self, tokens):
        w = self.w[:1]
        return torch.cat([w * w + self.c, w]).expand(len(tokens), 2)


def is_positive(c, far=0.5, is_over=lambda: False):
    """Whether w^2 + c > w is shown for all w so far from 0.4."""
    graph = capture(Parabola(c).eval(), 1)
    graph = replace(graph, around={name: torch.tensor([far, 0.0]).double() for name in graph.stored})
    one = torch.tensor(0)
    return mean_value.positive_gap(graph, Arithmetic(has_norms=True))(one[None], one, one + 1, is_over)


@pytest.mark.deep
def test_boxes_are_halved_until_the_gap_is_positive():
    """The discriminant says that c > 1/4 is needed; over the whole box at once 0.26 is not enough."""
    assert is_positive(0.26) and is_positive(0.251) and not is_positive(0.26, is_over=lambda: True)
    assert not is_positive(0.25) and not is_positive(0.249)
    with planted(mean_value, "_halved", "half * ENLARGE + 2 * U", "0.4 * half * ENLARGE + 2 * U"):
        assert is_positive(0.249)
    with planted(mean_value, "_halved", "middle - half, middle + half", "middle - half, middle - half"):
        assert is_positive(0.249)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "is_relative"), first(1, [("W_2", True), ("E", False)]))
def test_tensors_alone_and_absolute_distance(name, is_relative):
    module = relation_counting.dot(T=3, L=2)
    found = radius(module, tensors=[name], is_relative=is_relative)
    assert what_is_wrong(module, found, tensors=[name], is_relative=is_relative) is None
    assert found.gap < (1.001 if name == "W_2" else 2)
    for (moved, new), old in zip(found.wrong.named_parameters(), module.parameters(), strict=True):
        assert torch.equal(new, old.double()) == (moved != name)


FAULTS = [
    (boxes, "forward", "+ reach @ R", "", "W_2"),
    (boxes, "forward", "rad @ size +", "", "E"),
    (ModelBox, "_around", "(r * self.reach[name] + loose)", "(0.3 * r * self.reach[name] + loose)", "E"),
    (ModelBox, "within", "(r * self.X_reach)", "(0.0 * self.X_reach)", "W_2"),
    (mean_value, "_at_ends", "ball.mid - sign * ball.rad", "ball.mid", "E"),
]


@pytest.mark.parametrize(
    "fault", every(12, [(fault,) for fault in FAULTS]), ids=lambda fault: f"{fault[1]}: {fault[2][:30]}"
)
@pytest.mark.deep
def test_planted_faults_are_seen(fault):
    module, (*what, name) = relation_counting.dot(T=3, L=2), fault
    with planted(*what):
        assert what_is_wrong(module, radius(module, tensors=[name]), tensors=[name])


def left_by_running_is_what_low_says():
    """Both run forward: with slopes that say nothing, the pairs that one leaves are those that the other does."""
    given = changeable(relation_counting.dot(T=3, L=2))
    questions = given.questions()
    box = ModelBox.of(given, ("E", "W_2"), True, Deadline.never())
    nothing = {
        name: lambda *pair: (torch.full((len(pair[0]),), torch.nan), None) for name in ("mean_values", "at_ends")
    }
    within = replace(box.within(0.2), **nothing)
    pairs = with_every_rival(questions, box.classes)
    row, rival, low = within.left_by_running(questions)
    every = dict(zip(named(pairs.questions, pairs.rival), within.low(pairs).tolist(), strict=True))
    found = dict(zip(named(questions[row], rival), low.tolist(), strict=True))
    assert found == pytest.approx({pair: value for pair, value in every.items() if not value > 0}) and found


def named(questions, rival):
    """A name for each pair of a question and a rival."""
    return [str(pair) for pair in zip(questions.tokens.tolist(), questions.position, rival, strict=True)]


@pytest.mark.deep
def test_one_pass_over_all_questions_leaves_what_it_must():
    left_by_running_is_what_low_says()
    fault = (Within, "left_by_running", "self.X_off[:, [right]] + self.X_off", "0 * self.X_off")
    with planted(*fault), pytest.raises(AssertionError):
        left_by_running_is_what_low_says()


def search_of(budget=ENDLESS):
    """A search on the 9 questions of a small model, before its bounds."""
    given, effort = changeable(relation_counting.dot(T=3, L=2)), Effort(budget)
    box = ModelBox.of(given, ("E", "W_2"), True, effort.deadline())
    return RadiusSearch.of(given, given.questions(), box, effort, effort.deadline())


def a_few_at_a_time(whole, monkeypatch):
    """Two questions between looks leave what all at once do, and the clock ends the pass over them."""
    ran = []
    every = whole.box.within(0.2).left_by_running(whole.questions)
    run = Within.left_by_running
    monkeypatch.setattr(
        Within, "left_by_running", lambda *given: ran.append((len(given[1]), run(*given))) or ran[-1][1]
    )
    monkeypatch.setattr(changes, "SCORES", 2 * whole.changeable.length**2)
    left = whole._left(0.2, False)
    sizes, found = zip(*ran, strict=True)
    assert max(sizes) == 2 and sum(sizes) == len(whole.questions) and len(left) == 2
    assert sum(len(row) for row, _, _ in found) == len(every[0])
    closest = sorted(torch.cat([low for _, _, low in found]).tolist())
    assert closest == pytest.approx(sorted(every[2].tolist()))
    pairs = zip(named(whole.questions[every[0]], every[1]), every[2].tolist(), strict=True)
    assert set(named(left.questions, left.rival)) <= {pair for pair, low in pairs if low <= closest[1] + 1e-9}
    del ran[:]
    assert replace(whole, deadline=looks(3).deadline())._left(0.2, False) is None and len(ran) == 3


@pytest.mark.deep
def test_questions_are_run_a_few_at_a_time(monkeypatch):
    whole = search_of()
    with monkeypatch.context() as patched:
        a_few_at_a_time(whole, patched)
    fault = (RadiusSearch, "_left", "slice(start, start + step)", "slice(start, None)")
    with monkeypatch.context() as patched, planted(*fault), pytest.raises(AssertionError):
        a_few_at_a_time(whole, patched)


def test_slopes_are_taken_of_so_many_pairs_as_their_numbers_allow(monkeypatch):
    """Few pairs of a model of many numbers between two looks give what all at once do, until the time is up."""
    given = changeable(relation_counting.dot(T=3, L=2))
    box = ModelBox.of(given, ("E", "W_2"), True, Deadline.never())
    pairs = with_every_rival(given.questions(), box.classes)
    whole, ran = hurting.slopes(box, pairs, Deadline.never()), []
    monkeypatch.setattr(hurting, "MOST_SLOPES", 2 * sum(w.numel() for w in box.module.parameters()) + 1)
    columns = hurting._columns
    monkeypatch.setattr(hurting, "_columns", lambda some: ran.append(len(some)) or columns(some))
    for found, due in zip(hurting.slopes(box, pairs, Deadline.never()), whole, strict=True):
        assert torch.allclose(found, due, rtol=1e-12, atol=0)
    assert max(ran) == 2 and sum(ran) == len(pairs) > 6
    del ran[:]
    with pytest.raises(TimeIsUp):
        hurting.slopes(box, pairs, looks(3).deadline())
    assert len(ran) == 2


@pytest.mark.deep
def test_halves_of_boxes_are_bounded_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(mean_value, "ENTRIES_AT_ONCE", 1)
    assert is_positive(0.26) and not is_positive(0.25)


def test_a_wrong_model_has_no_radius_and_names_are_checked():
    wrong = relation_counting.bos(T=3, L=2, as_printed=True)
    found = radius(wrong)
    assert not found and found.at_least is None and found.certificate.counterexample and found.verdict == "REFUTED"
    with pytest.raises(BadInput, match="the model has E, e_BOS, W_Q"):
        radius(wrong, tensors=["W_3"])
    zero = HistogramTransformer("lin", T=2, L=1, d=1, p=1).requires_grad_(False)
    assert "stay so" in (radius(zero, tensors=["E"]).reason or "")


PARTS, IN_EACH, DRAWS = 10, 30, 334  # 300 models, and 100,200 changed ones beside those by slopes


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_many_changed_models(part):
    """Right models of all six kinds, some by absolute distance, some with one tensor that moves."""
    done, seed, gaps = 0, part, []
    while done < IN_EACH:
        module = fitted(seed, T=3, L=2 + seed % 2, d=4, p=16)
        module, seed = repair(module).module, seed + PARTS
        if module is None:
            continue
        names = [name for name, _ in module.named_parameters()]
        options = {"is_relative": done % 5 != 4, "tensors": None if done % 3 else [names[done // 3 % len(names)]]}
        found = radius(module, **options)
        assert what_is_wrong(module, found, draws=DRAWS, **options) is None, (seed - PARTS, options)
        gaps.append(found.gap)
        done += 1
    assert np.median(gaps) < 1.1 and max(gaps) < 9
    print(f"part {part}: {done} models, gap {np.median(gaps):.4f} in the middle, {max(gaps):.3f} at most")
