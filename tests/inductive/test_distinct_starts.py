"""Strings whose first two tokens differ: every proof and run that is asked for them answers, and none is a bug."""

import itertools

import pytest
from oracles import decoder as oracle
from oracles.inductive import right

from constructions.errors import BadInput
from constructions.inductive import selective as with_bos
from constructions.recurrent import selective as recurrent
from tests.command import run
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.inductive.task import Counting
from verify.tasks.recurrent.selective import Selective


@pytest.mark.parametrize("m", [None, 2])
@pytest.mark.parametrize("length", [1, 3, None])
def test_cells_of_one_token_many_times_are_judged(m, length):
    """No string of the task is a^k, but a may be there for the k-th time in others: its answer is due."""
    name = "selective" if m is None else "selective-modular"
    task = Task.of(name, types=2, max_count=2, modulus=m, distinct_start=True)
    model = with_bos(K=2, C=2, m=m)
    found = certify(Counting(model, task, length), effort=Effort(budget=3.0))
    assert found.verdict is Verdict.PROVED
    stored = oracle.stored(model)
    for n in range(1, 4 if length is None else length + 1):
        for string in itertools.product(range(2), repeat=n):
            if string[1:2] != string[:1]:
                due = right(name, string, m=m, C=2)
                assert found.margin is None or min(oracle.least_margin(stored, string, 0, due)) >= found.margin


def test_recurrent_networks_refuse_them():
    """They were judged on all strings, and counted all: an assertion failed where the two tasks part."""
    task = Task.of("selective", types=2, max_count=2, distinct_start=True)
    with pytest.raises(BadInput, match="distinct_start"):
        Selective(recurrent.adders(types=2, max_count=2, length=5), task, None)


@pytest.mark.parametrize("options", ["--bos", "--bos --no-layernorm --length 3", "--bos --pe sine --positions 5"])
def test_the_command_is_no_crash(options, capsys):
    given = "inductive --task selective --types 2 --max-count 2 --distinct-start --budget 3"
    assert run(capsys, *given.split(), *options.split())[0] in (0, 1, 2, 3)
