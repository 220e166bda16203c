"""What a user says about a module: the inputs, the right answers, and where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from constructions.errors import BadInput
from verify.engine.margins import Question
from verify.module.automaton import Automaton, EachPrefix
from verify.module.inputs import Domain, domain_of


@dataclass(frozen=True, init=False)
class Task:
    """Inputs, and the class that is right at each answer position: strictly the largest logit.

    `expected` takes tokens (N, length) and returns labels (N,), or (N, positions) where several positions answer.
    `position` is one position or several, None for all; `classes` are the columns of the logits that take part, all of
    them where it is None.
    Raises: BadInput for what is none of these.

    >>> from verify.module import tokens
    >>> Task(inputs=tokens([5, 5]), expected=lambda t: t.sum(1) % 5).answers(torch.tensor([[3, 4]]), 5)
    tensor([[2]])
    """

    inputs: Domain
    expected: Callable[[Tensor], object]
    position: tuple[int, ...] | None
    classes: tuple[int, ...] | None

    def __init__(
        self,
        inputs: object,
        expected: Callable[[Tensor], object],
        position: int | Sequence[int] | None = -1,
        classes: Iterable[int] | None = None,
    ) -> None:
        if not callable(expected):
            raise BadInput("expected: must be a function of tokens (N, length) that returns the right classes (N,)")
        columns = None if classes is None else tuple(int(c) for c in classes)
        if columns is not None and (len(columns) < 2 or len(set(columns)) < len(columns) or min(columns) < 0):
            raise BadInput(f"classes={classes!r}: name at least two columns of the logits, each once")
        for name, value in (("inputs", domain_of(inputs)), ("expected", expected), ("position", places_of(position))):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "classes", columns)

    def positions(self, length: int) -> tuple[int, ...]:
        """The answer positions of an input of some length, counted from 0.

        Raises: BadInput for a position beyond the input.
        """
        if self.position is None:
            return tuple(range(length))
        for p in self.position:
            if not -length <= p < length:
                raise BadInput(f"position={p}: the inputs have {length} tokens; it must be {-length}..{length - 1}")
        found = tuple(p % length for p in self.position)
        if len(set(found)) < len(found):
            raise BadInput(f"position={list(self.position)}: names a position twice where inputs have {length} tokens")
        return found

    def question(self, length: int) -> Question:
        return Question(self.positions(length), self.classes)

    def at(self, place: int, length: int) -> Task:
        """The task at one of the answer positions of inputs of a length, by its place among them."""
        position, each = self.positions(length)[place], self.expected

        def column(tokens: Tensor) -> Tensor:
            return torch.as_tensor(each(tokens))[:, place]

        own = each.automaton.of_prefix(position + 1, length) if isinstance(each, EachPrefix) else column
        return Task(self.inputs, own, position, self.classes)

    def answers(self, tokens: Tensor, columns: int) -> Tensor:
        """The right columns among `classes`, shape (N, positions), for logits with so many columns.

        Raises: BadInput for a label that is no class, or a result of another shape.
        """
        positions = self.positions(tokens.shape[1])
        labels = torch.as_tensor(self.expected(tokens))
        labels = labels[:, list(positions)] if isinstance(self.expected, EachPrefix) else labels
        if labels.is_floating_point() or labels.dtype == torch.bool and self.classes is not None:
            raise BadInput(f"expected: returned {labels.dtype}; must be whole numbers, one class for each input")
        returned, labels = tuple(labels.shape), labels.long()
        labels = labels.unsqueeze(1) if labels.ndim == 1 else labels
        if labels.shape != (len(tokens), len(positions)):
            raise BadInput(
                f"expected: returned {returned} for {len(tokens)} inputs with {len(positions)} answer positions each"
                + ("; each_prefix(automaton) answers at each" if isinstance(self.expected, Automaton) else "")
            )
        index = torch.full((columns,), -1)
        classes = range(columns) if self.classes is None else self.classes
        if max(classes) >= columns:
            raise BadInput(f"classes: {max(classes)} is beyond the module's {columns} logits")
        index[torch.tensor(list(classes))] = torch.arange(len(classes))
        inside = (labels >= 0) & (labels < columns)
        found = torch.where(inside, index[labels.clamp(0, columns - 1)], -1)
        if bool((found < 0).any()):
            row = int((found < 0).any(1).nonzero()[0, 0])
            raise BadInput(
                f"expected: {labels[row].tolist()} on the input {tokens[row].tolist()} "
                f"is none of the {len(classes)} classes; check classes= and expected="
            )
        return found


def places_of(position: object) -> tuple[int, ...] | None:
    """The positions that one number, several or None name.

    >>> places_of(-1), places_of([0, 2]), places_of(None)
    ((-1,), (0, 2), None)
    """
    if position is None:
        return None
    listed = tuple(position) if isinstance(position, Sequence) else (position,)
    if not listed or not all(isinstance(p, Integral) and not isinstance(p, bool) for p in listed):
        raise BadInput(f"position={position!r}: name a position, several, or None for all, as whole numbers")
    return tuple(map(int, listed))
