"""Answers whose inputs split into products of token sets: the largest or smallest token of an input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

Sets = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Extreme:
    """The largest token of each input (`sign` 1) or the smallest (-1), as a function of tokens (N, length).

    >>> import torch
    >>> largest(torch.tensor([[3, 1, 2]])), smallest(torch.tensor([[3, 1, 2]]))
    (tensor([3]), tensor([1]))
    """

    sign: int

    def __call__(self, tokens: Tensor) -> Tensor:
        return tokens.amax(1) if self.sign > 0 else tokens.amin(1)

    def cells(self, sets: Sequence[Sequence[int]]) -> Iterator[tuple[int, Sets]]:
        """Answers with products of token sets that have it: every input of the given product in exactly one of them.

        The answer first occurs at position i: all tokens before are beyond it, none after is.

        >>> [(answer, cell) for answer, cell in largest.cells([(0, 1), (0, 1)])]
        [(0, ((0,), (0,))), (1, ((1,), (0, 1))), (1, ((0,), (1,)))]
        """
        for answer in sorted({t for allowed in sets for t in allowed}, key=lambda t: self.sign * t):
            below = tuple(tuple(t for t in allowed if self.sign * t < self.sign * answer) for allowed in sets)
            upto = tuple(tuple(t for t in allowed if self.sign * t <= self.sign * answer) for allowed in sets)
            for i, allowed in enumerate(sets):
                cell = (*below[:i], (answer,), *upto[i + 1 :])
                if answer in allowed and all(cell):
                    yield answer, cell


largest, smallest = Extreme(1), Extreme(-1)
