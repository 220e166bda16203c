"""The largest or smallest token of an input: automata whose inputs split into products of token sets at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from verify.module.automaton import Automaton, Sets


def cells(sign: int, sets: Sets) -> Iterator[tuple[int, Sets]]:
    """Answers with products of token sets that have it: every input of the given product in exactly one of them.

    The answer, the largest token for `sign` 1 and the smallest for -1, first occurs at position i: all tokens before
    are beyond it, none after is.

    >>> [(answer, cell) for answer, cell in cells(1, ((0, 1), (0, 1)))]
    [(0, ((0,), (0,))), (1, ((1,), (0, 1))), (1, ((0,), (1,)))]
    """
    for answer in sorted({t for allowed in sets for t in allowed}, key=lambda t: sign * t):
        below = tuple(tuple(t for t in allowed if sign * t < sign * answer) for allowed in sets)
        upto = tuple(tuple(t for t in allowed if sign * t <= sign * answer) for allowed in sets)
        for i, allowed in enumerate(sets):
            cell = (*below[:i], (answer,), *upto[i + 1 :])
            if answer in allowed and all(cell):
                yield answer, cell


def extreme(sign: int) -> Automaton:
    """The largest token of each input (`sign` 1) or the smallest (-1), as a function of tokens (N, length).

    >>> import torch
    >>> largest(torch.tensor([[3, 1, 2]])), smallest(torch.tensor([[3, 1, 2]]))
    (tensor([3]), tensor([1]))
    """

    def step(state: int | None, token: int) -> int:
        return token if state is None or sign * token > sign * state else state

    return Automaton(None, step, lambda state: state, cells=partial(cells, sign))


largest, smallest = extreme(1), extreme(-1)
