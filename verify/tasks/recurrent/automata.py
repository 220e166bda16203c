"""The right classes of a task on all strings over its tokens, as an automaton."""

from __future__ import annotations

from verify.counting.tasks import Task
from verify.module.automaton import Automaton


def expected(task: Task) -> Automaton:
    """The right classes of a task on all strings over its tokens: counts of each token, as far as they matter."""
    m, most = task.m, task.C if task.C is not None else task.M

    def step(state: tuple[tuple[int, ...], int], token: int) -> tuple[tuple[int, ...], int]:
        counts = list(state[0])
        n = counts[token] + 1
        counts[token] = n % m if m is not None and most is None else min(n, 2 if most is None else most + 1)
        return tuple(counts), token

    def answer(state: tuple[tuple[int, ...], int]) -> int | None:
        n = state[0][state[1]]
        if most is not None and n > most:  # is not judged
            return None
        if most is None and m is None:  # the first token, and no other
            return int(n == 1)
        return task.class_of(n)

    return Automaton(((0,) * task.vocabulary, 0), step, answer)
