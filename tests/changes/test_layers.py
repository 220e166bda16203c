"""Repairs that change more than the readout: proved, within the tensors that were named, by the change that is said."""

from fractions import Fraction

import pytest
import torch

from constructions import inventory_counting, relation_counting
from constructions.errors import BadInput
from tests.models import trained
from tests.models.fitted import fitted
from tests.oracles.histogram import all_wrong_pairs
from tests.planted import planted
from verify import repair
from verify.changes import layers
from verify.changes.layers import LayersSearch, Practice, SoftReLU
from verify.frame.decide import Budget
from verify.tasks.histogram.changing import changeable

READOUT = ("W_2", "b_2")
EFFORT = 40


def beyond(kind):
    """A built model that no readout mends, and the tensor that was spoiled."""
    if kind == "lin":
        module, name = inventory_counting.lin(T=3, L=3), "b_1"
    else:
        module, name = relation_counting.dot(T=3, L=3), kind
    module.requires_grad_(False)
    if name == "E":
        module.E[1] = module.E[0]
    else:
        module.b_1.sub_(1.0 if kind == "lin" else 2.0)
    return module, name


def what_is_wrong(module, found, moved):
    """What of a repair by these tensors is not true, if anything."""
    if not found:
        return None if found.outcome == "UNKNOWN" and found.reason and found.combination is None else "no reason"
    far = Fraction(0)
    for (name, new), old in zip(found.module.named_parameters(), module.parameters(), strict=True):
        for a, b in zip(new.flatten().tolist(), old.flatten().tolist(), strict=True):
            far = max(far, abs(Fraction(a) - Fraction(b)))
        if name not in moved and not torch.equal(new, old):
            return "a tensor that was not to move"
    if all_wrong_pairs(found.module) or found.certificate.verdict != "PROVED":
        return "a wrong repair"
    return None if found.change == far and found.at_least is None and set(found.tensors) == set(moved) else "change"


def wrong_of(kind, effort=EFFORT):
    """What is wrong of a repair that takes more than the readout, with its outcome."""
    module, name = beyond(kind)
    found = repair(module, layers=(name,), budget=Budget.counting(effort))
    return found.outcome.value, what_is_wrong(module, found, (name, *READOUT))


def test_what_no_readout_mends_more_does():
    assert repair(beyond("b_1")[0]).outcome == "IMPOSSIBLE"
    assert wrong_of("b_1") == ("PROVED", None)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["lin", "E"])
def test_tokens_that_are_stored_alike_are_told_apart_and_a_bias_is_found(kind):
    assert wrong_of(kind, 400) == ("PROVED", None)


FAULTS = [
    (LayersSearch, "_change", "abs(Fraction(a) - Fraction(b))", "abs(Fraction(a) + Fraction(b))"),
    (LayersSearch, "_proved", "numbers.items() if n not in readout", "numbers.items() if n != 'b_1'"),
    (layers, "repair_layers", '"at_least": None, ', ""),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[1])
def test_planted_faults_are_seen(fault):
    with planted(*fault):
        assert wrong_of("b_1") != ("PROVED", None)


def test_a_change_of_the_readout_alone_is_not_made_larger():
    module = relation_counting.dot(T=3, L=3).requires_grad_(False)
    module.b_1.sub_(1.0)
    alone, found = repair(module), repair(module, layers=("b_1",), budget=Budget.counting(40))
    assert alone and found and found.change <= alone.change and found.tensors == ("b_1", "W_2", "b_2")
    same = repair(module, layers=("W_2",))
    assert same.change == alone.change and same.at_least == alone.at_least


def test_names_are_checked_and_a_budget_of_nothing_is_unknown():
    module, _ = beyond("b_1")
    with pytest.raises(BadInput, match="the model has E"):
        repair(module, layers=("W_3",))
    found = repair(module, layers=None, budget=0)
    assert found.outcome == "UNKNOWN" and "budget" in found.reason and len(found.tensors) == 7


def test_gaps_of_practice_are_the_margins():
    module = fitted(1, T=3, L=3, d=4, p=8)
    questions = changeable(module).questions()
    practice = Practice.of(questions, 1.0)
    logits = module.double()(questions.tokens)[torch.arange(len(questions)), questions.position]
    due = [row[y] - max(row[c] for c in range(len(row)) if c != y)
           for row, y in zip(logits.tolist(), questions.right.tolist(), strict=True)]  # fmt: skip
    assert practice.gaps(module.double()).tolist() == pytest.approx(due)
    some = torch.tensor([5, 2, 40])
    assert practice.gaps(module.double(), some).tolist() == pytest.approx([due[i] for i in some])


def test_a_soft_relu_has_slopes_where_it_is_off():
    for relu in (torch.relu, torch.nn.functional.relu, torch.nn.ReLU(), torch.Tensor.relu):
        x = torch.tensor([-0.1], requires_grad=True)
        with SoftReLU(0.1):
            relu(x).backward()
        assert 0 < float(x.grad) < 0.5
        with SoftReLU(0.0):
            assert relu(x) == 0


@pytest.mark.deep
def test_trained_models_that_no_readout_mends():
    """lin at 8, 5 with p = 16: every one with a small share of wrong answers is proved, by the readout or by more."""
    proved = []
    for name, module, share in trained.refuted(models=("lin",), p=16):
        if share < 0.0025:
            alone = repair(module)
            found = alone or repair(module, layers=("W_1", "b_1"), budget=300)
            changed = f"{float(found.change or 0):.4g} of {found.largest_number:.4g}"
            print(f"{name}: {share:.4%} wrong, readout {alone.outcome}, then {found.outcome}, change {changed}")
            assert found and (trained.margins(found.module) > 0).all()
            proved.append(alone.outcome.value)
    assert len(proved) >= 3 and proved.count("IMPOSSIBLE") >= 2
