"""Finite domains of inputs: products of token sets, all strings up to a length, or a list."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from constructions.errors import BadInput

Filter = Callable[[Tensor], object]
BATCH = 1 << 16
DRAWS = 100_000


@dataclass(frozen=True)
class Product:
    """All inputs of one length whose token at each position is in that position's set, and that `where` keeps."""

    sets: tuple[tuple[int, ...], ...]
    where: Filter | None = None

    @property
    def length(self) -> int:
        return len(self.sets)

    @property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """The tokens that each position can have."""
        return self.sets

    @property
    def candidates(self) -> int:
        """How many inputs there are before `where`."""
        return math.prod(map(len, self.sets))

    @cached_property
    def size(self) -> int:
        """How many inputs there are."""
        if self.where is None:
            return self.candidates
        return sum(len(batch) for batch in self.batches())

    def at(self, numbers: Tensor) -> Tensor:
        """The candidates of these numbers in lexicographic order: shape (N, length)."""
        columns, rest = [], numbers
        for tokens in reversed(self.sets):
            columns.append(torch.tensor(tokens)[rest % len(tokens)])
            rest = rest // len(tokens)
        return torch.stack(columns[::-1], dim=1)

    def batches(self, length: int = BATCH) -> Iterator[Tensor]:
        """All inputs in lexicographic order, in tensors (N, length); some may be empty."""
        for start in range(0, self.candidates, length):
            yield self.kept(self.at(torch.arange(start, min(start + length, self.candidates))))

    def kept(self, tokens: Tensor) -> Tensor:
        """Those that `where` keeps."""
        if self.where is None or not len(tokens):
            return tokens
        mask = torch.as_tensor(self.where(tokens))
        if mask.shape != tokens.shape[:1] or mask.dtype != torch.bool:
            what = f"where: returned {tuple(mask.shape)} {mask.dtype} for inputs {tuple(tokens.shape)}"
            raise BadInput(f"{what}; must be one truth value for each input")
        return tokens[mask]

    def draw(self, rng: random.Random) -> Tensor:
        """One input at random."""
        for _ in range(DRAWS):
            tokens = self.kept(torch.tensor([[rng.choice(tokens) for tokens in self.sets]]))
            if len(tokens):
                return tokens[0]
        raise BadInput(f"where: keeps none of {DRAWS} inputs drawn at random; list the inputs as a tensor instead")


@dataclass(frozen=True)
class Listed:
    """Inputs one by one, of one length, sorted and without repetition."""

    rows: Tensor
    where = None

    @property
    def length(self) -> int:
        return int(self.rows.shape[1])

    @property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """The tokens that some input has at each position."""
        return tuple(tuple(column.unique().tolist()) for column in self.rows.T)

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def candidates(self) -> int:
        return self.size

    def batches(self, length: int = BATCH) -> Iterator[Tensor]:
        yield from torch.split(self.rows, length)

    def draw(self, rng: random.Random) -> Tensor:
        return self.rows[rng.randrange(len(self.rows))]


@dataclass(frozen=True)
class Domain:
    """Inputs of one or several lengths, the shorter ones first."""

    parts: tuple[Product | Listed, ...]

    @cached_property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(part.length for part in self.parts)


def tokens(sets: Sequence[int | Iterable[int]], where: Filter | None = None) -> Domain:
    """All inputs whose token at position i is in sets[i]: a number k stands for 0..k-1.

    `where` takes tokens (N, length) and keeps those with a true value.
    Raises: BadInput for an empty position, or a token below 0.

    >>> tokens([113, 113, [113]]).size
    12769
    >>> tokens([5, 5], where=lambda t: t[:, 0] < t[:, 1]).size
    10
    """
    found = []
    for i, given in enumerate(sets):
        allowed = sorted({int(t) for t in (range(given) if isinstance(given, int) else given)})
        if not allowed or allowed[0] < 0:
            raise BadInput(f"inputs: position {i} has the tokens {given!r}; give a number k >= 1 or tokens >= 0")
        found.append(tuple(allowed))
    if not found:
        raise BadInput("inputs: tokens([]) has no position; name a set for each")
    return Domain((Product(tuple(found), where),))


def strings(vocabulary: int | Iterable[int], up_to: int, *, at_least: int = 1, where: Filter | None = None) -> Domain:
    """All strings over a vocabulary of the lengths at_least..up_to.

    Raises: BadInput for an empty vocabulary or range of lengths.

    >>> strings(2, 3).size
    14
    """
    if not 1 <= at_least <= up_to:
        raise BadInput(f"inputs: lengths {at_least}..{up_to} must begin at 1 or later and not be empty")
    alphabet = vocabulary if isinstance(vocabulary, int) else tuple(vocabulary)
    return Domain(tuple(tokens([alphabet] * n, where).parts[0] for n in range(at_least, up_to + 1)))


def domain_of(inputs: object) -> Domain:
    """A domain from what a task names: a domain, or a tensor (N, length) of tokens.

    Raises: BadInput for anything else.
    """
    if isinstance(inputs, Domain):
        return inputs
    if isinstance(inputs, list | tuple) and inputs:
        inputs = torch.tensor(inputs)
    if isinstance(inputs, Tensor) and inputs.ndim == 2 and inputs.numel() and not inputs.is_floating_point():
        return Domain((Listed(torch.unique(inputs.long(), dim=0)),))
    raise BadInput(
        f"inputs={type(inputs).__name__}: give tokens([...]), strings(...), or a tensor (N, length) of token ids"
    )
