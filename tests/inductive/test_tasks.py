"""The tasks against an oracle of their own, and against the rows of C's Fig. 1."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.inductive import right

from constructions.errors import BadInput
from verify.counting.tasks import TASKS, Task
from verify.python.strategies import counting_inputs


@pytest.mark.parametrize("name", ["selective", "selective-modular", "first-heterogeneous"])
def test_every_string_of_three_types(name):
    sizes = {"types": 3} | ({} if name.startswith("first") else {"max_count": 3})
    task = Task.of(name, **sizes, **({"modulus": 2} if name == "selective-modular" else {}))
    for n in range(1, 7):
        for string in itertools.product(range(3), repeat=n):
            assert task.answers(string) == right(name, string, m=task.m, C=task.C)


@pytest.mark.parametrize("name", [name for name in TASKS if Task.of(name).is_homogeneous])
def test_lines_are_the_inputs(name):
    """Every line's prefixes have the oracle's answers, all are judged, and no longer input is judged to its end."""
    task = Task.of(name, **({"vocabulary": 7} if Task.of(name).M else {}))
    lines = list(task.lines(None if task.M else 9))
    assert lines and len({line.tokens for line in lines}) == len(lines)
    for line in lines:
        answers = task.answers(line.tokens)
        assert answers == right(name, line.tokens, M=task.M, m=task.m) and None not in answers
        assert all(0 <= answer < task.classes for answer in answers)
        assert all(0 <= token < task.vocabulary for token in line.tokens)
        if task.M:
            longer = task.M if name == "succession" and line.tokens[0] == 1 else line.tokens[-1]
            assert None in task.answers((*line.tokens, longer))
    starts = {line.start for line in lines}
    expected = {"shifted": set(range(1, 8)), "helper": {0}, "helper-shifted": set(range(8))}.get(name, {None})
    assert starts == expected


def test_rows_of_figure_1():
    assert Task.of("shifted").answers((45, *[101] * 2)) == (45, 46, 47)
    assert Task.of("helper-shifted").answers((93, *[102] * 7)) == tuple(range(93, 101))
    modular = Task.of("modular")
    assert [modular.said(x) for x in modular.answers((0,) * 12)] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2]
    string = [int(x) - 1 for x in "12211131211213111323"]
    assert Task.of("selective").answers(tuple(string)) == (
        1, 1, 2, 2, 3, 4, 1, 5, 3, 6, 7, 4, 8, 2, 9, 10, None, 3, 5, 4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("count", {}),
        ("modular", {"vocabulary": 5}),
        ("modular", {"modulus": 1}),
        ("selective", {"types": 0}),
        ("selective", {"max_count": 10**9}),
        ("vanilla", {"vocabulary": True}),
    ],
)
def test_sizes_that_no_task_has(name, sizes):
    with pytest.raises(BadInput):
        Task.of(name, **sizes)


@pytest.mark.parametrize("name", TASKS)
def test_strategies_draw_inputs_that_are_judged_everywhere(name):
    sizes = {"M": {"vocabulary": 7}, "K": {"types": 3}}
    task = Task.of(
        name,
        **{k: v for size, given in sizes.items() if getattr(Task.of(name), size) for k, v in given.items()},
    )

    @settings(max_examples=10, deadline=None, database=None)
    @given(st.data(), st.integers(1, 9), st.one_of(st.none(), st.integers(2, 9)))
    def check(data, length, positions):
        shift, tokens = data.draw(counting_inputs(task, length=length, positions=positions))
        answers = right(name, tokens, M=task.M, m=task.m, C=task.C)
        assert task.answers(tokens) == answers and None not in answers
        leading = int(name in ("shifted", "helper", "helper-shifted"))
        assert 1 <= len(tokens) <= length + leading and 0 <= shift <= (positions or len(tokens)) - len(tokens)

    check()


def test_strategies_of_no_input():
    for sizes in ({"length": 0}, {"length": 3, "positions": 1}):
        with pytest.raises(BadInput, match="no input of shifted fits"):
            counting_inputs(Task.of("shifted"), **sizes)
