"""The ten tasks of document C: their tokens, what is right at each position, and the inputs of each length.

Tokens are numbers. Where a task has number words, the words 0..M are the tokens 0..M, followed by a, and by b where
there is a helper; elsewhere a is token 0, and the types a_1..a_K are 0..K-1. A BOS is no token of a task: models put it
in front themselves. Every task is causal: what is right at a position is decided by the tokens up to it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from constructions.errors import BadInput, shown

Tokens = tuple[int, ...]
Answers = tuple[int | None, ...]  # the right class at each position, None where the position is not judged

NUMBER_WORDS = ("vanilla", "succession", "shifted", "helper", "helper-shifted")  # their answers are numbers up to M
STARTED = ("shifted", "helper", "helper-shifted")  # their inputs begin with a number word
MODULAR = ("modular", "selective-modular")
SELECTIVE = ("selective", "selective-modular")
FIRST = ("first-homogeneous", "first-heterogeneous")
TASKS = (*NUMBER_WORDS, "modular", *SELECTIVE, *FIRST)
HETEROGENEOUS = (*SELECTIVE, "first-heterogeneous")  # their inputs are all strings over K types
DEFAULT_M, DEFAULT_TYPES, DEFAULT_COUNT = 100, 10, 10
LARGEST = 1_000_000


@dataclass(frozen=True)
class Line:
    """A longest input of a homogeneous task: all its prefixes from `leading` tokens on are inputs too.

    `start` is the number word that it begins with, None where there is none.
    """

    start: int | None
    tokens: Tokens

    @property
    def leading(self) -> int:
        """How many tokens `length` does not count."""
        return int(self.start is not None)


@dataclass(frozen=True)
class Task:
    """One of TASKS with its sizes: M is the largest number word, m the modulus, K the number of types, C the largest
    count that is judged; None where the task has no such size.

    Class j is the number j; in modular tasks class j stands for the answer j + 1; of the first-token tasks class 1 is
    "this is the first token", class 0 that it is not. With `has_distinct_start` the inputs are the strings whose first
    two tokens differ, and those of one token.
    Raises: BadInput for an unknown name, a size that the task has not, or one below its least.

    >>> Task.of("shifted", vocabulary=9).answers((3, 10, 10))
    (3, 4, 5)
    >>> Task.of("modular", modulus=2).answers((0, 0, 0))
    (0, 1, 0)
    >>> Task.of("selective", types=2, max_count=2).answers((0, 1, 0, 0))
    (1, 1, 2, None)
    """

    name: str
    M: int | None
    m: int | None
    K: int | None
    C: int | None
    has_distinct_start: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        *,
        vocabulary: int | None = None,
        modulus: int | None = None,
        types: int | None = None,
        max_count: int | None = None,
        distinct_start: bool = False,
    ) -> Task:
        """The task with these sizes; those that are left out are C's own."""
        if name not in TASKS:
            raise BadInput(f"task={shown(name)}: must be one of {', '.join(TASKS)}")
        sizes = (
            ("vocabulary", vocabulary, name in NUMBER_WORDS, DEFAULT_M, 1),
            ("modulus", modulus, name in MODULAR, 4 if name == "selective-modular" else 10, 2),
            ("types", types, name in HETEROGENEOUS, DEFAULT_TYPES, 1),
            ("max_count", max_count, name in SELECTIVE, DEFAULT_COUNT, 1),
        )
        M, m, K, C = (_size(name, *size) for size in sizes)
        if distinct_start and (name not in HETEROGENEOUS or K == 1):
            why = f"{name} has one type of token" if K == 1 else f"{name} is no task on strings over types"
            raise BadInput(f"distinct_start=True: {why}, so that no first two tokens differ; leave it out")
        return cls(name, M, m, K, C, distinct_start)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all inputs of one length, shift and start are lines, so that one run decides all lengths of each."""
        return self.name not in HETEROGENEOUS

    @property
    def vocabulary(self) -> int:
        """How many tokens there are, BOS not counted."""
        if self.K is not None:
            return self.K
        if self.name in ("vanilla", "modular", "first-homogeneous"):
            return 1
        assert self.M is not None
        return self.M + 2 + self.has_helper

    @property
    def has_helper(self) -> bool:
        return self.name.startswith("helper")

    @property
    def classes(self) -> int:
        """How many answers a model chooses from."""
        if self.m is not None:
            return self.m
        if self.name in FIRST:
            return 2
        largest = self.M if self.M is not None else self.C
        assert largest is not None
        return largest + 1

    def answers(self, tokens: Tokens) -> Answers:
        """The right class at each position of an input; None where its count is beyond C, and where no input of the
        task begins like this."""
        if self.has_distinct_start and tokens[1:2] == tokens[:1]:
            return (*self.answers(tokens[:1]), *(None for _ in tokens[1:]))
        if self.name in FIRST:
            return tuple(int(i == 0) for i in range(len(tokens)))
        if self.name in STARTED:
            assert self.M is not None
            return tuple(tokens[0] + i if tokens[0] + i <= self.M else None for i in range(len(tokens)))
        if self.name == "succession" and tokens[:1] == (1,):
            return tuple(token + 1 if token < (self.M or 0) else None for token in tokens)
        return self._counts(tokens)

    def _counts(self, tokens: Tokens) -> Answers:
        """The class of each token's count so far."""
        seen: Counter[int] = Counter()
        return tuple(self._class_of(seen, token) for token in tokens)

    def _class_of(self, seen: Counter[int], token: int) -> int | None:
        """The class of the count of a token that is seen once more, None beyond the largest."""
        seen[token] += 1
        most = self.C if self.C is not None else self.M
        return None if most is not None and seen[token] > most else self.class_of(seen[token])

    def class_of(self, count: int) -> int:
        """The class of a count.

        >>> Task.of("modular").class_of(10), Task.of("vanilla").class_of(10)
        (9, 10)
        """
        return (count - 1) % self.m if self.m is not None else count

    def said(self, place: int) -> int:
        """The answer that a class stands for.

        >>> Task.of("modular").said(9), Task.of("vanilla").said(9)
        (10, 9)
        """
        return place + 1 if self.m is not None else place

    def longest(self, length: int | None = None) -> int | None:
        """The largest n that the task has, and no more than `length`; None where it has inputs of every length."""
        if self.name not in NUMBER_WORDS:
            return length
        assert self.M is not None
        most = self.M - 1 if self.name == "shifted" else self.M
        return most if length is None else min(most, length)

    def strings(self, n: int) -> Iterator[Tokens]:
        """Every input of n tokens of a task whose inputs are strings over types.

        >>> list(Task.of("selective", types=2, distinct_start=True).strings(2))
        [(0, 1), (1, 0)]
        """
        assert self.K is not None
        every = itertools.product(range(self.K), repeat=n)
        return (string for string in every if not self.has_distinct_start or string[1:2] != string[:1])

    def number(self, n: int) -> int:
        """How many inputs of n tokens there are.

        >>> Task.of("selective", types=3, distinct_start=True).number(4)
        54
        """
        assert self.K is not None
        shared = 1 if self.has_distinct_start and n > 1 else 0  # of the choices that the second token has
        number: int = self.K ** (n - shared) * (self.K - 1) ** shared
        return number

    def number_up_to(self, n: int) -> int:
        """How many inputs of 1..n tokens there are.

        >>> Task.of("selective", types=3).number_up_to(2)
        12
        >>> Task.of("selective", types=3, distinct_start=True).number_up_to(2)
        9
        """
        assert self.K is not None
        if self.K == 1:
            return n
        number: int = self.K**n if self.has_distinct_start else (self.K ** (n + 1) - self.K) // (self.K - 1)
        return number

    def number_judged(self, n: int) -> int:
        """How many inputs of n tokens have a last answer that is judged, of a task whose inputs are all strings.

        Those with at most C - 1 more of the last token before it, where counts are judged up to C.

        >>> task = Task.of("selective", types=2, max_count=2)
        >>> task.number_judged(4) == sum(task.answers(string)[-1] is not None for string in task.strings(4)) == 8
        True
        """
        assert self.K is not None and not self.has_distinct_start
        most = n if self.C is None else min(n, self.C)
        number: int = self.K * sum(math.comb(n - 1, i) * (self.K - 1) ** (n - 1 - i) for i in range(most))
        return number

    def number_at_shifts(self, n: int, room: int) -> int:
        """How many inputs of 1..n tokens there are, each at every shift at which it ends within `room` places.

        One of i tokens has `room` - n shifts, and one more for each of the lengths i..n.

        >>> Task.of("selective", types=3).number_at_shifts(2, 2) == 3 + 3 + 9
        True
        """
        assert self.K is not None
        upto = self.number_up_to(n)
        if self.K == 1:
            return (room - n) * upto + n * (n + 1) // 2
        shorter = self.K * (self.K**n - 1) if self.has_distinct_start else self.K * (upto - n)
        return (room - n) * upto + shorter // (self.K - 1)

    def lines(self, length: int | None, *, room: int | None = None) -> Iterator[Line]:
        """The longest inputs of a homogeneous task, `length` tokens and at most `room` with the leading one.

        Raises: BadInput for a task whose inputs are all strings, or no end of the length.

        >>> [line.tokens for line in Task.of("helper", vocabulary=2).lines(None)]
        [(0, 3, 3), (0, 4, 4)]
        """
        longest = self.longest(length)
        if not self.is_homogeneous:
            raise BadInput(f"task={self.name}: has no lines, its inputs are all strings over {self.K} types")
        if longest is None and room is None:
            raise BadInput(f"task={self.name}: has inputs of every length. Give a length.")
        for line in self._lines(longest, room):
            yield line if room is None else Line(line.start, line.tokens[:room])

    def _lines(self, longest: int | None, room: int | None) -> Iterator[Line]:
        if self.name in ("modular", "first-homogeneous"):
            n = longest if longest is not None else room
            assert n is not None
            yield Line(None, (0,) * n)
            return
        assert self.M is not None and longest is not None
        if self.name == "vanilla":
            yield Line(None, (0,) * longest)
        elif self.name == "succession":
            yield Line(None, (self.M + 1,) * longest)
            if self.M > 1:  # else there is no word that another one follows
                yield Line(None, tuple(range(1, min(longest, self.M - 1) + 1)))
        else:
            first = {"shifted": range(1, self.M + 1), "helper": range(1), "helper-shifted": range(self.M + 1)}
            for k in first[self.name]:
                for filler in range(self.M + 1, self.vocabulary if k < self.M else self.M + 2):
                    yield Line(k, (k, *(filler,) * min(longest, self.M - k)))

    def parameters(self) -> dict[str, int]:
        """The sizes that the task has, under their options' names."""
        names = {"vocabulary": self.M, "modulus": self.m, "types": self.K, "max_count": self.C}
        sizes = {name: value for name, value in names.items() if value is not None}
        return sizes | ({"distinct_start": True} if self.has_distinct_start else {})


def _size(task: str, name: str, value: int | None, has_it: bool, default: int, least: int) -> int | None:
    if not has_it:
        if value is not None:
            raise BadInput(f"{name}={shown(value)}: {task} has no such size; leave it out")
        return None
    size = default if value is None else value
    if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= LARGEST:
        raise BadInput(f"{name}={shown(size)}: must be a whole number from {least} to {LARGEST}")
    return size
