"""A model on valid strings and every prompt, however its proof goes: sizes, drawn and simpler strings, runs."""

from __future__ import annotations

import itertools
import random
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from constructions.contextual_counting_arrays import CLOSE, ONE, OPEN, ZERO
from constructions.model_arrays import module_of
from verify.arithmetic.readings import ConstantBits, Kernel
from verify.frame.decide import Item, Ran, Run, first_in_order, is_wrong_in_its_ball
from verify.tasks.contextual.runs import margins
from verify.tasks.contextual.task import StringDomain, answers

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OnValidStrings(ABC):
    """One model on the strings of a domain: what a `Decidable` says whose inputs are pairs of a string and a prompt.

    `named` are further parameters for the certificate.
    """

    module: Any
    domain: StringDomain
    claim: str | None = None
    named: dict[str, object] = field(default_factory=dict)
    counts_answers = True
    runs_for_ever = False

    def size(self) -> int:
        return self.domain.strings() * int(self.module.R)

    def facts(self) -> dict[str, object]:
        return {"domain": str(self.domain)}

    def draw(self, rng: random.Random) -> Item:
        """A number of regions, a length, places for the delimiters, and digits, each uniform."""
        zeros = self.domain.zeros or 0
        M = rng.randint(self.domain.fewest, self.domain.most)
        length = rng.randint(max(self.domain.shortest, 2 * M + zeros), self.domain.N)
        places = sorted(rng.sample(range(length), 2 * M))
        digits = [ZERO] * zeros + [ONE] * (length - 2 * M - zeros)
        if self.domain.zeros is None:
            digits = [rng.choice((ZERO, ONE)) for _ in digits]
        rng.shuffle(digits)
        delimiters, rest = dict(zip(places, itertools.cycle((OPEN, CLOSE)), strict=False)), iter(digits)
        return tuple(delimiters[i] if i in delimiters else next(rest) for i in range(length))

    def smaller(self, item: Item) -> Iterator[Item]:
        """One region's delimiters go, one digit goes, or a 1 outside becomes a 0."""
        opens = [i for i, token in enumerate(item) if token == OPEN]
        closes = [i for i, token in enumerate(item) if token == CLOSE]
        fewer = [item[:i] + item[i + 1 : j] + item[j + 1 :] for i, j in zip(opens, closes, strict=True)]
        fewer += [item[:i] + item[i + 1 :] for i, token in enumerate(item) if token in (ZERO, ONE)]
        fewer += [(*item[:i], ZERO, *item[i + 1 :]) for i, token in enumerate(item) if token == ONE]
        yield from (shorter for shorter in fewer if self.domain.has(list(shorter)))

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        return lambda batch: Ran.strictly(margins(self.module, batch))

    def first(self, batch: list[Item], is_wrong: np.ndarray) -> tuple[int, Item, int]:
        return first_in_order(batch, is_wrong)

    @property
    def dtype(self) -> torch.dtype | str:
        found: torch.dtype | str = self.module.dtype
        return found

    def length_of(self, item: Item) -> int:
        return len(item)

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        return is_wrong_in_its_ball(module_of(self.module), item, answers(list(item), self.module.R)[answer], answer)
