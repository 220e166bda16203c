"""Every input of a homogeneous task: the lines that hold them, at every shift, and what is known of their margins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from constructions.decoder_arrays import DecoderArrays, has_bos
from constructions.model_arrays import ModelArrays
from verify.counting.tasks import Line, Task

if TYPE_CHECKING:
    from constructions.decoder import Decoder

UNBOUNDED = "nothing"  # decided it: the time was up


class MarginBounds(NamedTuple):
    """Bounds on the margins of some lines at some shifts: (lines, positions), infinite where no answer is judged.

    Lines are those of the first shift; at a later one each ends where the positions do.
    """

    shifts: range
    lines: list[Line]
    low: np.ndarray
    high: np.ndarray
    decided_by: str


@dataclass(frozen=True)
class Runs:
    """A decoder on the lines of a task, with shift + positions at most `room` and BOS counted."""

    model: Decoder | ModelArrays
    task: Task
    length: int | None
    room: int | None

    @property
    def decoder(self) -> DecoderArrays:
        """The decoder's numbers, as they are now."""
        return DecoderArrays.of(self.model)

    @property
    def bos(self) -> bool:
        """Whether a token of the model's own comes first."""
        return has_bos(self.model)

    @property
    def shifts(self) -> range:
        """Every shift at which an input fits; without positions there is one."""
        return range(1 if self.room is None else self.room - self.bos)

    def lines(self, shift: int) -> list[Line]:
        """The longest inputs at a shift; a line without room for a token is none."""
        room = None if self.room is None else self.room - self.bos - shift
        return list(self.task.lines(self.length, room=room))

    def inputs(self) -> int:
        """How many different inputs there are: prefixes of lines, at all shifts.

        Lines at a shift are those of the first, cut where the positions end, and so is what neighbours share.
        """
        lines = self.lines(0)
        pairs = zip([(), *(line.tokens for line in lines)], (line.tokens for line in lines), strict=False)
        ends = np.array([(len(tokens), _shared(before, tokens)) for before, tokens in pairs])
        times = self.times(self.shifts, int(ends.max())).cumsum(0)
        length, shared = (np.append(0, times)[part] for part in ends.T)
        return int((length - shared).sum())

    def times(self, shifts: range, length: int) -> np.ndarray:
        """At how many of the shifts each of the first `length` places of a line is within the positions: (length,)."""
        if self.room is None:
            return np.full(length, len(shifts))
        last = self.room - self.bos - 1 - np.arange(length)  # shift at which a place is the last position
        return np.clip(last - shifts.start + 1, 0, len(shifts))

    def prefixes(self, shift: int) -> Iterator[tuple[int, ...]]:
        """Every input at a shift once, line by line."""
        before: tuple[int, ...] = ()
        for line in self.lines(shift):
            yield from (line.tokens[:n] for n in range(_shared(before, line.tokens) + 1, len(line.tokens) + 1))
            before = line.tokens

    def unbounded(self, shifts: range) -> MarginBounds:
        """What is known of the lines at some shifts, up to the last one, before any is run: nothing."""
        lines = self.lines(shifts.start)
        _, answers = padded(self.task, (line.tokens for line in lines), max(len(line.tokens) for line in lines))
        low = np.where(answers >= 0, -np.inf, np.inf)
        return MarginBounds(shifts, lines, low, np.full_like(low, np.inf), UNBOUNDED)


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many tokens two strings have in common at their starts."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def padded(task: Task, strings: Iterable[tuple[int, ...]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Strings as rows of one length, and their right classes, -1 where none is judged or the string has ended."""
    tokens, answers = [], []
    for string in strings:
        rest = length - len(string)
        tokens.append([*string, *[string[-1]] * rest])
        answers.append([-1 if a is None else a for a in task.answers(string)] + [-1] * rest)
    return np.array(tokens), np.array(answers)
