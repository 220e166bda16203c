"""Decoders trained as document C trains them: the strings that they see, the recipe, and the best state on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from constructions.decoder import Decoder, initialised
from verify.counting.tasks import STARTED, Task, Tokens
from verify.tasks.inductive.document_c import IN, OUT

if TYPE_CHECKING:
    from constructions.training import Recipe, Training

IGNORED = -100  # class of a position that is not judged
SCORED = 16  # strings of each length, for the best state
STD = 0.1  # of the first weights


@dataclass(frozen=True)
class Course:
    """A task with C's two lengths, that of training and that of its test, and the size of the table of positions."""

    task: Task
    trained: int
    tested: int
    positions: int

    @property
    def ranges(self) -> dict[str, range]:
        """The lengths that are trained, and those beyond."""
        return {IN: range(1, self.trained + 1), OUT: range(self.trained + 1, self.tested + 1)}

    def drawn(self, number: int, length: int, g: torch.Generator) -> Tensor:
        """Strings of a task: `length` tokens after a number word, which is uniform, as types are.

        >>> course = Course(Task.of("shifted", vocabulary=9), 2, 4, 8)
        >>> course.drawn(2, 3, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 4])
        """
        if self.task.K is not None:
            return torch.randint(self.task.K, (number, length), generator=g)
        if self.task.name in STARTED:
            assert self.task.M is not None
            first = {"shifted": 1, "helper": 0, "helper-shifted": 0}[self.task.name]
            last = 0 if self.task.name == "helper" else self.task.M - 1
            start = torch.randint(first, last + 1, (number, 1), generator=g)
            return torch.cat([start, torch.full((number, length), self.main)], 1)
        return torch.full((number, length), self.main)

    @property
    def main(self) -> int:
        """The token that is counted: a, beside number words and helpers."""
        return 0 if self.task.M is None or self.task.name == "vanilla" else self.task.M + 1

    def lesson(self, number: int, g: torch.Generator) -> Tensor:
        """Strings of one length to learn from; a task with two kinds of strings shows each every other time."""
        if (self.task.has_helper or self.task.name == "succession") and bool(torch.randint(2, (1,), generator=g)):
            assert self.task.M is not None
            if self.task.name == "succession":
                return torch.arange(1, self.task.M).expand(number, -1)
            strings = self.drawn(number, self.tested, g)
            return torch.where(strings == self.main, self.main + 1, strings)
        return self.drawn(number, self.trained, g)

    def due(self, strings: Tensor, after: int = 0) -> Tensor:
        """Classes of strings, IGNORED where none is due, and at the first `after` tokens that a length counts."""
        skipped = after + (self.task.name in STARTED) if after else 0
        due = torch.tensor([classes(self.task, tuple(string)) for string in strings.tolist()])
        due[:, :skipped] = IGNORED
        return due

    def room(self, model: Decoder, tokens: int) -> int | None:
        """At how many shifts strings of so many tokens fit, None where a model has no positions in the stream."""
        return None if model.pe == "nope" else model.positions - model.has_bos - tokens + 1

    def shifts(self, model: Decoder, strings: Tensor, g: torch.Generator) -> Tensor:
        """A shift for each string at which it fits, uniform; 0 without positions."""
        return torch.randint(self.room(model, strings.shape[1]) or 1, (len(strings),), generator=g)

    def answered(self, model: Decoder, number: int, g: torch.Generator) -> tuple[int, int]:
        """Right answers, and how many: of strings of each length at random shifts, as C tests, beyond the trained ones
        in the longer."""
        right = of = 0
        for length, after in ((self.trained, 0), (self.tested, self.trained)):
            strings = self.drawn(number, length, g)
            due, shifts = self.due(strings, after), self.shifts(model, strings, g)
            with torch.no_grad():
                said = shifted_run(model, strings, shifts).argmax(-1)
            right += int((said == due).sum())
            of += int((due != IGNORED).sum())
        return right, of


@cache
def classes(task: Task, string: Tokens) -> list[int]:
    """The right class at each place of a string, IGNORED where none is due; few strings are drawn, many times."""
    return [IGNORED if right is None else right for right in task.answers(string)]


def shifted_run(model: Decoder, strings: Tensor, shifts: Tensor) -> Tensor:
    """Logits (n, length, classes) of strings, each at its own shift.

    Rotations turn by differences of positions alone, so that a shift changes no score of RoPE.
    """
    if model.has_bos:
        strings = torch.nn.functional.pad(strings, (1, 0), value=model.W_E.shape[0] - 1)
    x = model.W_E[strings]
    if model.pe in ("ape", "sine", "spe"):
        rows = model.W_pos[shifts[:, None] + torch.arange(strings.shape[1])]
        x = torch.cat([x, rows], -1) if model.pe == "spe" else x + rows
    for block in model.blocks:
        x = block(x, 0, None)
    logits: Tensor = model.norm(x) @ model.W_U
    return logits[:, int(model.has_bos) :]


def trained(model: Decoder, course: Course, recipe: Recipe, seed: int, every: int) -> Training:
    """Trains a decoder in place, and keeps, of every so many steps, the state that answers most of both lengths."""
    from constructions.training import train

    initialised(model, seed=seed, std=STD)

    def loss(g: torch.Generator) -> Tensor:
        strings = course.lesson(recipe.batch, g)
        logits = shifted_run(model, strings, course.shifts(model, strings, g))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), course.due(strings).flatten())

    def score() -> float:
        right, of = course.answered(model, SCORED, torch.Generator().manual_seed(seed + 1))
        return right / of

    found = train(model.train(), loss, recipe, seed, score=score, every=every)
    model.eval().requires_grad_(False)
    return found
