"""A search by cells whose parts are decided elsewhere: what one process counts, in whatever order they end."""

import pickle

import pytest
import torch
from models.one_layer import Plain

from constructions.errors import BadInput
from tests.clocks import ENDLESS, looks
from tests.module.test_resumed import decided, module_of, small  # noqa: F401
from tests.planted import planted
from verify.arithmetic.readings import Real
from verify.frame.decide import Effort
from verify.module import ModuleProblem, Task, each_prefix, largest, parts, tokens
from verify.tasks.module import elsewhere
from verify.tasks.module.elsewhere import Files, layer_of


class Elsewhere:
    """Decides parts as another process would: what goes there and comes back is copied."""

    def __init__(self, module, task, budget=ENDLESS, order=reversed):
        self.problem, self.budget, self.order, self.asked = ModuleProblem(module, task), budget, order, 0

    def __call__(self, asked, deadline):
        layers = self.problem.layers(self.problem.given.inputs.parts[0], Real())
        for part in self.order(asked):
            self.asked += 1
            sent = pickle.loads(pickle.dumps(part))
            (layer,) = (layer for layer in layers if parts.identity_of(layer) == sent.identity)
            yield part, pickle.loads(pickle.dumps(parts.decided(layer, sent, self.budget.deadline())))


def by_parts(module, task, resume=None, **of_a_part):
    there = Elsewhere(module, task, **of_a_part)
    found = ModuleProblem(module, task, resume=resume, run_parts=there).prove(Real(), Effort(ENDLESS))
    return found, there.asked


def counts_of(found):
    return {name: int(count) for name, count in found.extra["counts"].items()}


def task_of(expected=largest, **more):
    return Task(tokens([4] * 4), expected, **more)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(parts, "BATCHES", 1)
    monkeypatch.setattr(parts, "PARTS", 6)  # of four choices of the last token, so that cells of one are dealt out


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(8) if seed != 3)])
def test_parts_count_what_one_process_does_in_any_order(seed, tmp_path):
    module = module_of(seed)
    alone, whole = decided(module, None, ENDLESS)
    found, asked = by_parts(module, task_of(), str(tmp_path))
    assert counts_of(found) == whole and found.verdict is alone.verdict and 4 <= asked <= 6
    assert found.extra["wrong_inputs"] == alone.extra["wrong_inputs"]
    assert by_parts(module, task_of(), order=list)[0] == found
    again, asked = by_parts(module, task_of(), str(tmp_path))
    assert (counts_of(again), asked) == (whole, 0)  # all of it is kept


def test_what_a_part_leaves_or_lists_is_not_lost():
    module = module_of(3)
    found, _ = by_parts(module, task_of(), budget=looks(2))
    assert sum(counts_of(found).values()) == 4**4 and found.extra["counts"]["undecided"] != "0"
    for name, fault in (
        ("take", ("own[at] = [cells for _, cells in found.left]", "own[at] = [[] for _ in found.left]")),
        ("dealt", ("cells[j::heaps]", "cells[j :: heaps + 1]")),
    ):
        with planted(parts, name, *fault), pytest.raises(AssertionError):
            found, _ = by_parts(module, task_of(), budget=looks(2) if name == "take" else ENDLESS)
            assert sum(counts_of(found).values()) == 4**4


def test_parts_that_do_not_begin_in_time_are_left_and_the_bracket_holds():
    module = module_of(3)
    _, whole = decided(module, None, ENDLESS)
    cut, asked = by_parts(module, task_of(), order=lambda asked: asked[:2])
    counts = counts_of(cut)
    assert asked == 2 and counts["undecided"] and sum(counts.values()) == 4**4
    assert all(counts[name] <= whole[name] for name in ("right", "wrong"))


@pytest.mark.deep
def test_parts_of_several_answer_positions():
    torch.manual_seed(3)
    module = Plain(4, 4).double().eval()
    task = task_of(each_prefix(largest), position=(2, 3))
    found = ModuleProblem(module, task).prove(Real(), Effort(ENDLESS))
    there = by_parts(module, task)[0]
    assert counts_of(there) == counts_of(found) and there.extra["by_position"] == found.extra["by_position"]


def test_files_that_are_others_elsewhere_are_refused(monkeypatch):
    files = Files.of("task.py", None)
    monkeypatch.setattr(elsewhere, "problem_parts", lambda task, weights: (module_of(4), task_of()))
    with pytest.raises(BadInput, match="they must be the same"):
        layer_of(files, 4, "of another module")


def test_an_interruption_keeps_the_parts_that_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PARTS", 4)
    module = module_of(3)
    _, whole = decided(module, None, ENDLESS)
    there = Elsewhere(module, task_of())

    def interrupted(asked, deadline):
        yield next(there(asked, deadline))
        raise KeyboardInterrupt

    stopped = ModuleProblem(module, task_of(), resume=str(tmp_path), run_parts=interrupted)
    with pytest.raises(KeyboardInterrupt, match="right and [0-9]+ wrong so far, kept in"):
        stopped.prove(Real(), Effort(ENDLESS))
    found, asked = by_parts(module, task_of(), str(tmp_path))
    assert asked == 3 and counts_of(found) == whole
