"""Repairs against one linear programme over all inputs, and impossibilities against fractions."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from flint import arb, fmpq
from models.selection import every

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from tests.clocks import endless, looks
from tests.models import trained
from tests.models.fitted import fitted
from tests.oracles import readouts
from tests.oracles.histogram import all_wrong_pairs
from tests.planted import planted
from verify import certify, repair
from verify.arithmetic.readings import Real
from verify.changes import changeable as changeable_of
from verify.changes import farkas, programs
from verify.changes import repair as mending
from verify.changes.repair import RepairSearch
from verify.frame.clock import Budget
from verify.frame.decide import Effort
from verify.tasks.histogram.changing import changeable

SIZES = {"T": 3, "L": 3, "d": 4, "p": 8}
SEEDS = range(12)


def what_is_wrong(module, found):
    """What of a repair is not what the oracle finds, if anything."""
    if found.outcome == "PROVED":
        least = readouts.least_change(module)
        old, new = readouts.readout(module), readouts.readout(found.module)
        change = max(abs(Fraction(a) - Fraction(b)) for a, b in zip(old.flat, new.flat, strict=True))
        if all_wrong_pairs(found.module) or found.certificate.verdict != "PROVED":
            return "a wrong repair"
        if found.change != change:
            return "change"
        if not found.at_least <= least * (1 + 1e-6) + 1e-9 <= float(change) * (1 + 2e-6) + 2e-9:
            return "bound"
        return None if found.wrong == 0 or change <= 1.01 * found.at_least else "gap"
    if found.outcome == "IMPOSSIBLE":
        combination = json.loads(json.dumps(found.to_dict()))["combination"]
        is_shown = readouts.adds_up_to_nothing(module, combination) and readouts.best_margin(module) < 1e-8
        return None if is_shown else "an impossibility"
    return None if found.reason else "no reason"


def test_repairs_are_least_and_impossibilities_true():
    outcomes = {"PROVED": 0, "IMPOSSIBLE": 0, "UNKNOWN": 0}
    for seed in SEEDS:
        module = fitted(seed, **SIZES)
        found = repair(module)
        assert what_is_wrong(module, found) is None, (seed, found)
        outcomes[found.outcome] += 1
    assert outcomes["PROVED"] >= 3 and outcomes["IMPOSSIBLE"] >= 6


@pytest.mark.deep
def test_a_repair_is_asked_for_with_less_room_for_rounding():
    """The room that rounding takes at most makes the change 2 % larger than the bound; a quarter of it is enough."""
    module = fitted(112, T=3, L=4, d=4, p=16)
    found = repair(module)
    assert found and what_is_wrong(module, found) is None


@pytest.mark.deep
@pytest.mark.parametrize("p", [4, 6, 12, 16])
def test_many_repairs(p):
    for seed in range(100, 160):
        module = fitted(seed, T=3, L=4, d=4, p=p)
        found = repair(module)
        assert what_is_wrong(module, found) is None, (seed, found)


@pytest.mark.deep
def test_trained_models_are_repaired_or_impossible():
    """PROVED, IMPOSSIBLE with a combination, or UNKNOWN, which no model with a small share of wrong answers is."""
    outcomes = []
    for name, module, share in trained.refuted():
        found = repair(module, budget=120)
        outcomes.append(found.outcome.value)
        print(f"{name}: {share:.4%} wrong, {found.outcome}, gap {found.gap}, delta {found.delta}, {found.reason}")
        if found.outcome == "PROVED":
            assert (trained.margins(found.module) > 0).all() and found.gap < 1.01
        elif found.outcome == "IMPOSSIBLE":
            assert readouts.adds_up_to_nothing(module, json.loads(json.dumps(found.to_dict()))["combination"])
        assert found.outcome != "UNKNOWN" or share > 0.0025, name
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    assert len(outcomes) >= 40 and outcomes.count("PROVED") >= 20


FAULTS = [
    (programs, "bound_on_every_change", "gain / size", "2 * gain / size"),
    (programs, "bound_on_every_change", "columns[c][j] -= term", "pass"),
    (programs, "least_change", "a @ x - slack", "0.5 * (a @ x) - slack"),
    (
        RepairSearch,
        "_proved",
        "abs(Fraction(float(a)) - Fraction(float(b)))",
        "abs(Fraction(float(a)) + Fraction(float(b)))",
    ),
    (RepairSearch, "at_least", "self.cuts.rival[used]", "self.cuts.rival[used[::-1]]"),
]
REPAIRED = (3, 4)


@pytest.mark.parametrize(
    "fault", every(2, ((fault,) for fault in FAULTS)), ids=lambda fault: f"{fault[1]}: {fault[2][:30]}"
)
def test_planted_faults_are_seen(fault):
    with planted(*fault):
        assert any(outcome_or_wrong(seed) for seed in REPAIRED)


def outcome_or_wrong(seed):
    module = fitted(seed, **SIZES)
    try:
        return what_is_wrong(module, repair(module))
    except (AssertionError, ArithmeticError) as error:
        return repr(error)


ROOTS = [("dot", seed) for seed in (1, 3)] + [("bos", seed) for seed in (2, 4)]


def outcomes_with_roots():
    """How repairs of models that divide by sqrt(3) end, with what the oracle says of them."""
    for model, seed in ROOTS:
        module = fitted(seed, T=3, L=3, d=3, p=6, model=model)
        found = repair(module)
        yield found.combination and found.combination.checked, what_is_wrong(module, found)


def test_impossibilities_hold_in_rationals_and_roots():
    found = list(outcomes_with_roots())
    assert not any(wrong for _, wrong in found) and found.count(("in rationals and roots", None)) >= 3


FAULTS_OF_ROOTS = [
    ("_interleaved", "d * row[j][1])", "row[j][1])"),
    ("_with_roots", "terms.get(SQRT, zero) * sign", "terms.get(SQRT, zero)"),
    ("solved_with_roots", "(-reduced[2 * i, k], -reduced", "(reduced[2 * i, k], -reduced"),
]


@pytest.mark.parametrize("fault", FAULTS_OF_ROOTS, ids=lambda fault: fault[0])
def test_planted_faults_of_roots_are_seen(fault):
    """A wrong solution is not shown, as each is multiplied out; wrong vectors the oracle sees."""
    with planted(farkas, *fault):
        found = list(outcomes_with_roots())
    assert any(wrong for _, wrong in found) or found.count(("in rationals and roots", None)) < 3


def no_combination_of_these():
    """Vectors on one side of a hyperplane, for which nothing may be returned; and weights that are no combination."""
    one, two = fmpq(1), fmpq(2)
    assert farkas.solved_exactly([[one, one], [two, two]]) is None
    assert farkas.solved_exactly([[one, one], [-two, one]]) is None
    assert not farkas.is_nothing([[one], [-two]], [one, one]) and not farkas.is_nothing([[one]], [fmpq(0)])
    assert farkas.solved_in_balls([[arb(1)], [arb(2)]]) is None
    assert farkas.solved_in_balls([[arb(1, 2)], [arb(-2)]]) is None  # a ball that holds 0
    assert farkas.solved_in_balls([[arb(1)], [arb(-2)]]) is not None


FAULTS_OF_SIGNS = [
    (farkas, "is_nothing", "min(w) >= 0 and", ""),
    (farkas, "is_nothing", "and not any(sums)", ""),
    (farkas, "is_nothing", "max(w) > 0", "True"),
    (farkas, "solved_exactly", "if rank != m - 1:", "if False:"),
    (farkas, "solved_in_balls", "if not all(w > 0 for w in weights)", "if False"),
]


def test_signs_are_looked_at():
    no_combination_of_these()


@pytest.mark.parametrize("fault", FAULTS_OF_SIGNS, ids=lambda fault: fault[2])
def test_planted_faults_of_signs_are_seen(fault):
    with planted(*fault), pytest.raises((AssertionError, ValueError)):
        no_combination_of_these()


def test_a_repair_in_a_dtype_is_proved_in_it():
    """The change still bounds every other one, as real arithmetic does not ask for more."""
    for seed in (2, 3):
        module = fitted(seed, T=3, L=3, d=4, p=12)
        found = repair(module, reading="float32")
        assert found.certificate.parameters["precision"] == "float32" and certify(found.module, reading="float32")
        assert what_is_wrong(module, found) is None
    beyond = next(m for m in (fitted(seed, **SIZES) for seed in SEEDS) if repair(m).outcome == "IMPOSSIBLE")
    found = repair(beyond, reading="float32")
    assert found.outcome == "UNKNOWN" and found.combination is not None and "in real arithmetic" in found.reason


def test_what_is_proved_stays():
    module = next(m for m in (fitted(seed, T=3, L=2, d=4, p=16) for seed in range(40)) if certify(m))
    found = repair(module)
    assert found and found.change == 0 and found.module is module


def test_a_domain_that_is_too_large_is_drawn_from(monkeypatch):
    """What is repaired is proved on all inputs, and the bound holds, though few questions are looked at."""
    large = changeable(HistogramTransformer("lin", T=16, L=8, d=4, p=4).requires_grad_(False))
    with pytest.raises(BadInput, match="too many to be listed"):
        large.questions()
    monkeypatch.setattr(changeable_of, "MOST_NUMBERS", 100)
    monkeypatch.setattr(mending, "DRAWN", 6)
    monkeypatch.setattr(mending, "CLOSEST", 2)
    met = []
    for seed in (3, 4, 8, 9):  # dot+sftm, bos, dot, dot+sftm
        module = fitted(seed, **SIZES)
        found = repair(module)
        assert not found.is_listed and what_is_wrong(module, found) is None, (seed, found)
        met.append((found.outcome.value, found.questions > 6))
    assert ("PROVED", True) in met


def test_near_questions_differ_in_one_token():
    module = fitted(0, T=4, L=3, d=4, p=8)
    sampling = changeable(module).sampling
    drawn = sampling.drawn(0, 50)
    for part in (drawn, sampling.near(drawn)):
        counts = [row.count(row[i]) for row, i in zip(part.tokens.tolist(), part.position.tolist(), strict=True)]
        assert part.right.tolist() == [n - module.first_count for n in counts] and part.tokens.max() < 4
    near = sampling.near(drawn[slice(0, 1)])
    apart = (near.tokens != drawn.tokens[:1]).sum(1)
    assert len({tuple(row) for row in near.tokens.tolist()}) == 9 and set(apart.tolist()) == {1}


def test_a_budget_of_nothing_is_unknown_with_a_reason():
    wrong = next(m for m in (fitted(seed, **SIZES) for seed in SEEDS) if not certify(m))
    found = repair(wrong, budget=0)
    assert found.outcome == "UNKNOWN" and "budget" in found.reason


def test_questions_are_not_looked_at_again_when_the_time_is_up(monkeypatch):
    """No pass over all questions, which takes long where they are many, comes after the look that ends a search."""
    given, needed, passes = changeable(fitted(0, T=3, L=2, d=4, p=12)), programs.needed, []
    monkeypatch.setattr(programs, "needed", lambda *about: passes.append(1) or needed(*about))
    search = RepairSearch.of(given, Real(), Effort(endless()))
    assert search.inseparable_classes() is None and not isinstance(search._relaxed(2.0**-50), str) and passes
    del passes[:]
    search.deadline = looks(1).deadline()
    found = search.repaired()
    assert found.outcome == "UNKNOWN" and found.reason.startswith("the budget ended;") and not passes


def test_a_verdict_that_cannot_look_at_its_clock_in_time_is_not_begun():
    """Of seconds: by steps, which do not depend on how long a trace takes, the same is found as without."""
    given, decided = changeable(fitted(3, **SIZES)), []
    late = replace(given, decision_takes=9.0, decide=lambda *about: decided.append(1) or given.decide(*about))
    found = mending.repair(late, None, Effort(endless(8.0)))
    assert found.outcome == "UNKNOWN" and found.reason.startswith("the budget ended") and decided == [1]  # as it is
    assert mending.repair(late, None, Effort(endless(10.0))).change > 0
    steps = [mending.repair(each, None, Effort(Budget.counting(1000, 3.0))).change for each in (late, given)]
    assert steps[0] == steps[1] > 0


@pytest.mark.parametrize("seeds", [SEEDS[:2], pytest.param(SEEDS, marks=pytest.mark.deep)])
def test_time_that_is_up_at_any_look_says_nothing_wrong(seeds):
    """A repair is one, and its bound is a bound, however many cuts there was time for."""
    for seed in seeds:
        module, bounds = fitted(seed, **SIZES), set()
        for number in (1, 2, 3, 5, 8, 13, 21, 34):
            found = repair(module, budget=looks(number))
            assert what_is_wrong(module, found) in (None, "gap"), (seed, number, found)
            bounds.add(found.at_least)
        assert None in bounds


def test_two_runs_of_one_effort_are_the_same():
    first, second = (repair(fitted(1, **SIZES), budget=Budget.counting(9)).to_dict() for _ in range(2))
    for found in (first, second):
        (found["certificate"] or {}).pop("seconds", None)
    assert first == second
