"""Right answers that an automaton gives: which ones occur on a product of token sets is known exactly."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from constructions.errors import BadInput

MOST_STATES = 1 << 16
DENSE = 1 << 12  # codes that are counted rather than sorted, however few inputs there are
Mask = NDArray[np.bool_]
Bits = NDArray[np.uint64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Automaton:
    """The right class of an input, read token by token: start, step(state, token), and answer(state) at the end.

    A function of tokens (N, length), as `expected` of a task is. States may be anything that can be a key. `backwards`
    reads the last token first. Few states make few cells: the largest token needs one for each token, a sum modulo P
    needs P. `cells` lists a product's parts with one answer each, where that is known without a search. A
    `Recurrence` does not judge an answer None.

    >>> import torch
    >>> is_odd = Automaton(0, lambda state, token: (state + token) % 2, lambda state: state)
    >>> is_odd(torch.tensor([[1, 0, 1], [1, 1, 1]]))
    tensor([0, 1])
    """

    start: Hashable
    step: Callable[[Any, int], Hashable]
    answer: Callable[[Any], Any]
    backwards: bool = False
    _known: dict[tuple[Hashable, int], Hashable] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        states: list[Hashable] = [self.start]
        at = np.zeros(len(tokens), dtype=np.int64)
        columns = tokens.cpu().numpy().T
        for column in columns[::-1] if self.backwards else columns:
            width = int(column.max(initial=0)) + 1
            codes, inverse = occurring(at * width + column, len(states) * width)
            reached = [self.after(states[code // width], int(code % width)) for code in codes]
            states = list(dict.fromkeys(reached))
            number = {state: i for i, state in enumerate(states)}
            at = np.array([number[state] for state in reached], dtype=np.int64)[inverse]
        answers = torch.tensor([int(self.answer(state)) for state in states], dtype=torch.long)
        return answers[torch.from_numpy(at)]

    def after(self, state: Hashable, token: int) -> Hashable:
        """The state after one more token."""
        if (state, token) not in self._known:
            self._known[state, token] = self.step(state, token)
        return self._known[state, token]

    def of_prefix(self, read: int, length: int) -> Automaton:
        """The same on the first `read` tokens of an input: the others change nothing."""
        others = range(length - read) if self.backwards else range(read, length)

        def step(state: tuple[int, Hashable], token: int) -> tuple[int, Hashable]:
            return state[0] + 1, state[1] if state[0] in others else self.after(state[1], token)

        return Automaton((0, self.start), step, lambda state: self.answer(state[1]), self.backwards)


@dataclass(frozen=True)
class EachPrefix:
    """An automaton's answer at each position, on the tokens up to there: a function of tokens, (N, length).

    >>> import torch
    >>> EachPrefix(sum_modulo(5))(torch.tensor([[3, 4, 4]]))
    tensor([[3, 2, 1]])
    """

    automaton: Automaton

    def __call__(self, tokens: Tensor) -> Tensor:
        return torch.stack([self.automaton(tokens[:, :read]) for read in range(1, tokens.shape[1] + 1)], 1)


def occurring(codes: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """The codes that occur, all below `most`, and the place of each given one among them."""
    if most > 4 * len(codes) + DENSE:
        found, inverse = np.unique(codes, return_inverse=True)
        return found, inverse
    counts = np.bincount(codes, minlength=most)
    return np.flatnonzero(counts), (np.cumsum(counts > 0) - 1)[codes]


def extreme(sign: int) -> Automaton:
    """The largest token of each input (`sign` 1) or the smallest (-1), as a function of tokens (N, length).

    >>> import torch
    >>> largest(torch.tensor([[3, 1, 2]])), smallest(torch.tensor([[3, 1, 2]]))
    (tensor([3]), tensor([1]))
    """

    def step(state: int | None, token: int) -> int:
        return token if state is None or sign * token > sign * state else state

    return Automaton(None, step, lambda state: state)


largest, smallest = extreme(1), extreme(-1)


def sum_modulo(P: int) -> Automaton:
    """The sum of the tokens modulo P.

    >>> import torch
    >>> sum_modulo(7)(torch.tensor([[3, 5, 6]]))
    tensor([0])
    """
    return Automaton(0, lambda state, token: (state + token) % P, lambda state: state)


def count_of_last(least: int = 1) -> Automaton:
    """How often the last token occurs, the class of one occurrence being 1 less `least`: by default class 0.

    >>> import torch
    >>> count_of_last()(torch.tensor([[3, 5, 3], [1, 2, 3]]))
    tensor([1, 0])
    """

    def step(state: tuple[int, int] | None, token: int) -> tuple[int, int]:
        return (token, 1) if state is None else (state[0], state[1] + (token == state[0]))

    return Automaton(None, step, lambda state: state[1] - least, backwards=True)


def majority(token: int = 1) -> Automaton:
    """1 where more than half of the tokens are `token`, else 0.

    >>> import torch
    >>> majority()(torch.tensor([[1, 0, 1], [1, 0, 0]]))
    tensor([1, 0])
    """
    return Automaton(0, lambda state, t: state + (1 if t == token else -1), lambda state: int(state > 0))


def dyck(kinds: int = 1) -> Automaton:
    """1 where the brackets are balanced, else 0: token 2 i opens one of kind i, 2 i + 1 closes it; others say nothing.

    >>> import torch
    >>> dyck()(torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]]))
    tensor([1, 0])
    """

    def step(state: tuple[int, ...] | None, token: int) -> tuple[int, ...] | None:
        if state is None or token >= 2 * kinds:
            return state
        if token % 2 == 0:
            return (*state, token // 2)
        return state[:-1] if state and state[-1] == token // 2 else None

    return Automaton((), step, lambda state: int(state == ()))


def first_repeated(otherwise: int) -> Automaton:
    """The first token that has occurred before, and `otherwise` where none has.

    >>> import torch
    >>> first_repeated(9)(torch.tensor([[3, 5, 5, 3], [1, 2, 3, 4]]))
    tensor([5, 9])
    """

    def step(state: frozenset[int] | int, token: int) -> frozenset[int] | int:
        if isinstance(state, int):
            return state
        return token if token in state else state | {token}

    return Automaton(frozenset(), step, lambda state: state if isinstance(state, int) else otherwise)


def compose(group: Sequence[Sequence[int]]) -> Automaton:
    """The composition of permutations, each named by its place in the group: the one of the first token acts first.

    >>> import torch
    >>> from itertools import permutations
    >>> S3 = list(permutations(range(3)))
    >>> S3[int(compose(S3)(torch.tensor([[1, 2]])))]
    (1, 2, 0)
    """
    elements = [tuple(element) for element in group]
    number = {element: i for i, element in enumerate(elements)}

    def step(state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return tuple(elements[token][i] for i in state)

    return Automaton(tuple(range(len(elements[0]))), step, lambda state: number[state])


def each_prefix(automaton: Automaton) -> EachPrefix:
    """The right class at each position: an automaton's answer on the tokens up to there.

    >>> import torch
    >>> each_prefix(count_of_last())(torch.tensor([[3, 5, 3]]))
    tensor([[0, 0, 1]])

    Raises: BadInput for what is no automaton.
    """
    if not isinstance(automaton, Automaton):
        raise BadInput(
            "each_prefix: takes an Automaton, such as sum_modulo(7); a function answers at each position itself"
        )
    return EachPrefix(automaton)


def sorted_at(k: int) -> Callable[[Tensor], Tensor]:
    """The k-th smallest token, counted from 0, or from the largest by -1, -2, ...; a function of torch operations.

    >>> import torch
    >>> sorted_at(1)(torch.tensor([[3, 1, 2], [4, 4, 0]]))
    tensor([2, 4])
    """

    def expected(tokens: Tensor) -> Tensor:
        return tokens.sort(1).values[:, k]

    return expected


class Chart:
    """An automaton on the inputs of a product of token sets: states by position, and where each token leads.

    Raises: BadInput for more states at a position than MOST_STATES.
    """

    def __init__(self, automaton: Automaton, sets: Sequence[Sequence[int]]) -> None:
        self.function = self.automaton = automaton
        self.order = range(len(sets))[:: -1 if automaton.backwards else 1]
        self.steps: dict[int, Numbers] = {}
        states: list[Hashable] = [automaton.start]
        for read, place in enumerate(self.order, 1):
            number: dict[Hashable, int] = {}
            table = []
            for state in states:
                table.append([number.setdefault(automaton.after(state, token), len(number)) for token in sets[place]])
                if len(number) > MOST_STATES:
                    raise BadInput(
                        f"expected: the automaton has more than {MOST_STATES} states once {read} tokens are read; "
                        "remember less of them in a state, or give a function of tokens in torch operations"
                    )
            self.steps[place] = np.array(table)
            states = list(number)
        self.labels = list(dict.fromkeys(int(automaton.answer(state)) for state in states))
        number_of = {label: i for i, label in enumerate(self.labels)}
        words = (len(self.labels) + 63) // 64
        self.final: Bits = np.zeros((len(states), words), dtype=np.uint64)
        for i, state in enumerate(states):
            bit = number_of[int(automaton.answer(state))]
            self.final[i, bit // 64] = np.uint64(1) << np.uint64(bit % 64)

    @property
    def identity(self) -> bytes:
        """What answers depend on: other charts have another one."""
        steps = [self.steps[place].astype(np.int64) for place in self.order]
        said = [str((list(self.order), self.labels, [table.shape for table in steps])).encode(), self.final.tobytes()]
        return b"".join(said + [table.tobytes() for table in steps])

    def _backwards(self, cell: Mask) -> list[Bits]:
        """Which answers each state may still lead to, before each token and at the end."""
        found = [self.final]
        for place in reversed(self.order):
            ahead = found[0][self.steps[place][:, cell[place, : self.steps[place].shape[1]]]]
            found.insert(0, np.bitwise_or.reduce(ahead, axis=1))
        return found

    def answers(self, cell: Mask) -> list[int]:
        """The labels that occur on a cell, a mask (positions, ranks in the position's set)."""
        (bits,) = self._backwards(cell)[0]
        return [label for i, label in enumerate(self.labels) if int(bits[i // 64]) >> (i % 64) & 1]

    def split(self, cell: Mask) -> tuple[int, list[Mask]]:
        """A position, and the parts of its tokens after which fewest answers are left: masks over its ranks.

        The position at which the largest share of tokens leaves one answer is split into those, by their answer, and
        the rest. Where no token anywhere leaves one answer, tokens that lead from each state to the same one stay
        together, at the position with the fewest such parts.
        """
        ahead = self._backwards(cell)
        reached = np.ones(1, dtype=np.int64) * 0
        best: tuple[float, int, list[Mask]] | None = None
        other: tuple[int, int, list[Mask]] | None = None
        for place, after in zip(self.order, ahead[1:], strict=True):
            steps = self.steps[place]
            allowed = np.flatnonzero(cell[place, : steps.shape[1]])
            leads = steps[np.ix_(reached, allowed)]
            if len(allowed) > 1:
                signs = np.bitwise_or.reduce(after[leads], axis=0)
                keys = [sign.tobytes() if bits_in(sign) == 1 else b"" for sign in signs]
                share = sum(map(bool, keys)) / len(keys)
                if len(set(keys)) > 1 and (best is None or share > best[0]):
                    best = share, place, parts_by(keys, allowed, cell.shape[1])
                if best is None:
                    classes = [column.tobytes() for column in leads.T]
                    count = len(set(classes))
                    if count > 1 and (other is None or count < other[0]):
                        other = count, place, parts_by(classes, allowed, cell.shape[1])
            reached = np.unique(leads)
        chosen = best or other
        assert chosen is not None, "several answers, and no token makes a difference"
        return chosen[1], chosen[2]


def bits_in(sign: Bits) -> int:
    return sum(int(word).bit_count() for word in sign)


def parts_by(keys: list[bytes], allowed: Numbers, width: int) -> list[Mask]:
    """Masks of the ranks that have the same key."""
    found: dict[bytes, Mask] = {}
    for key, rank in zip(keys, allowed, strict=True):
        found.setdefault(key, np.zeros(width, dtype=bool))[rank] = True
    return list(found.values())
