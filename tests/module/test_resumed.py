"""Searches by cells that are cut off and go on: each input counts once, nothing is of another model."""

import re
import sys

import numpy as np
import pytest
import torch
from models.every_size import traced_once
from models.one_layer import Plain

from constructions.errors import BadInput
from tests.clocks import ENDLESS, looks
from tests.module.test_cells import fitted
from tests.planted import planted
from verify.arithmetic.readings import Real
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort
from verify.module import ModuleProblem, Task, cells, certify, largest, problem, resumed, tokens
from verify.module.decision import Tally
from verify.module.layered import Layered

captured = traced_once(problem.capture)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Cells of a few inputs, a few of them at once."""
    monkeypatch.setattr(problem, "capture", captured)
    monkeypatch.setattr(problem, "FEW", 1)
    monkeypatch.setattr(problem, "CLIMBING", 0.0)
    monkeypatch.setattr(cells, "RUN", 2)
    monkeypatch.setattr(cells, "MOST_AT_ONCE", 3)


def module_of(seed):
    torch.manual_seed(seed)
    return fitted(Plain(4, 4), 4, 4, largest, 40).double()


def decided(module, folder, budget):
    asked = ModuleProblem(module, Task(tokens([4] * 4), largest), resume=None if folder is None else str(folder))
    found = asked.prove(Real(), Effort(budget))
    return found, {name: int(count) for name, count in found.extra["counts"].items()}


def test_a_search_that_was_cut_off_goes_on(tmp_path):
    module = module_of(3)
    whole, counts = decided(module, None, ENDLESS)
    seen = []
    for _ in range(200):
        found, some = decided(module, tmp_path, looks(30))
        assert sum(some.values()) == 4**4
        seen.append(some["undecided"])
        if not some["undecided"]:
            break
    assert len(seen) > 2 and sorted(seen, reverse=True) == seen and seen[0] > seen[-1] == 0
    assert some == counts and found.verdict is whole.verdict
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def test_ctrl_c_keeps_what_was_found(tmp_path, monkeypatch):
    """An interrupt in the middle of a batch: its cells are as they were."""
    module, right, calls = module_of(3), cells.OneToken._run, []
    _, counts = decided(module, None, ENDLESS)

    def interrupted(*given):
        calls.append(given)
        if len(calls) in (2, 3):
            raise KeyboardInterrupt
        return right(*given)

    monkeypatch.setattr(cells.OneToken, "_run", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt, match=r"right and \d+ wrong so far, kept in"):
            decided(module, tmp_path, ENDLESS)
        assert list(tmp_path.iterdir())
    assert decided(module, tmp_path, ENDLESS)[1] == counts


class Interrupting:
    """Raises KeyboardInterrupt before one of the lines that some functions run, counted from 0."""

    def __init__(self, functions, at=-1):
        self.codes, self.at, self.lines = {function.__code__ for function in functions}, at, 0

    def __call__(self, frame, event, argument):
        if frame.f_code not in self.codes:
            return None
        if event == "line":
            self.lines += 1
            if self.lines - 1 == self.at:
                raise KeyboardInterrupt
        return self

    def decided(self, *given):
        sys.settrace(self)
        try:
            return decided(*given)
        finally:
            sys.settrace(None)


MOVING = [
    cells.Search.run, cells.OneToken.run, cells.OneToken._batch, cells.OneToken._gather_alike, Layered.by_cells,
    Layered.in_steps, Layered._count, Tally.add, Tally.add_cells,
]  # fmt: skip


@pytest.mark.parametrize("many", [3, pytest.param(60, marks=pytest.mark.deep)])
def test_ctrl_c_while_cells_are_moved_loses_none(many, tmp_path):
    """Whatever line it comes at: no input is in two cells, or in none, of the file."""
    torch.manual_seed(3)
    module = fitted(Plain(4, 4, positions="none"), 4, 4, largest, 20).double()
    whole = Interrupting(MOVING)
    _, counts = whole.decided(module, tmp_path / "whole", ENDLESS)
    for i in range(many):
        folder = tmp_path / str(i)
        with pytest.raises(KeyboardInterrupt, match="kept in") as said:
            Interrupting(MOVING, whole.lines * (2 * i + 1) // (2 * many)).decided(module, folder, ENDLESS)
        if re.search(r"^0 inputs right and 0 wrong|\b0 of them kept", str(said.value)) is None:
            assert list(folder.iterdir())
        assert decided(module, folder, ENDLESS)[1] == counts


@pytest.mark.deep
def test_another_model_or_task_starts_again(tmp_path):
    found, first = decided(module_of(3), tmp_path, looks(20))
    other, counts = decided(module_of(4), tmp_path, ENDLESS)
    assert found.verdict is not Verdict.PROVED and first["undecided"] and sum(counts.values()) == 4**4
    assert len(list(tmp_path.iterdir())) == 2 and counts == decided(module_of(4), None, ENDLESS)[1]
    with planted(
        resumed, "identity", " + bytes_of(value)", ""
    ):  # by the shapes alone, one model would have another's counts
        blind = [decided(module_of(seed), tmp_path / "blind", ENDLESS)[1] for seed in (3, 4)]
    assert blind[0] == blind[1]


def test_a_damaged_file_is_refused(tmp_path):
    module = module_of(3)
    decided(module, tmp_path, looks(20))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for broken in (whole[:-50], b"", b"nothing"):
        path.write_bytes(broken)
        with pytest.raises(BadInput, match="delete it to start again"):
            decided(module, tmp_path, ENDLESS)
    path.write_bytes(whole)
    with np.load(path) as found:
        less = {name: found[name] if name == "said" else found[name][1:] for name in found.files}
    np.savez(path, **less)
    with pytest.raises(BadInput, match="do not add up"):
        decided(module, tmp_path, ENDLESS)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="no folder can be made"):
        decided(module, tmp_path / "file", ENDLESS)


def test_a_specification_is_known_by_what_it_answers():
    """A search for another right answer is another file, whatever says what is right."""
    from verify.module import largest, smallest, sum_modulo
    from verify.module.specification import chart_of

    sets, table = [range(3)] * 4, torch.tensor([2, 0, 1])
    said = [largest, smallest, sum_modulo(2), sum_modulo(3), lambda t: t.amax(1), lambda t: t.amin(1)]
    said += [
        lambda t: t.amax(1) % 2,
        lambda t: t.amax(1) % 3,
        lambda t: table[t.amax(1)],
        lambda t: table.flip(0)[t.amax(1)],
    ]
    found = [chart_of(one, sets).identity for one in said]
    assert len(set(found)) == len(found) and found == [chart_of(one, sets).identity for one in said]


@pytest.mark.deep
def test_a_traced_specification_goes_on(tmp_path):
    module = module_of(3)
    task = {"inputs": tokens([4] * 4), "expected": lambda t: t.amax(1)}
    whole = certify(module, **task, budget=ENDLESS)
    certify(module, **task, budget=looks(20), resume=tmp_path)
    found = certify(module, **task, budget=ENDLESS, resume=tmp_path)
    assert found.extra["counts"] == whole.extra["counts"] and len(list(tmp_path.iterdir())) == 1
