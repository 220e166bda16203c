"""How the numbers of a recurrent network that counts modulo m are changed: its readout, after every token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace

import torch

from constructions.errors import BadInput
from constructions.recurrent import model as recurrent
from constructions.recurrent.model import RecurrentModel
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, Sampling, TooMany, of_kind
from verify.counting.tasks import Task
from verify.frame.judged import check_whole_number
from verify.tasks.recurrent.task import Homogeneous

TRACED = 16  # tokens of the trace that shows which tensors the readout is, and how long a longer one takes
LOOKED_AT = 128  # tokens, where all lengths are decided
MODULUS, LONGEST = 10, 4096


def load(path: str) -> RecurrentModel:
    """The network of a file."""
    return recurrent.load(path)


def changeable(module: RecurrentModel, *, modulus: int | None = None, length: int | None = None) -> Changeable:
    """The network after 1, 2, ... tokens; at all lengths those after the first ones are looked at.

    Right at all lengths means infinitely many inequalities. What is met of them is enough where the state comes close
    to a cycle, and the verdict on the repaired network is on all lengths.
    """
    check_whole_number("modulus", MODULUS if modulus is None else modulus)
    if length is not None:
        check_whole_number("length", length)
        if not 1 <= length <= LONGEST:
            raise BadInput(f"length={length}: must be from 1 to {LONGEST}. Leave it out for all lengths.")
    task, steps = Task.of("modular", modulus=modulus), LOOKED_AT if length is None else length
    assert task.m is not None
    tokens = torch.zeros(steps, steps, dtype=torch.long)
    every = Questions(tokens, torch.arange(steps), torch.arange(steps) % task.m)

    def questions() -> Iterator[Questions]:
        raise TooMany(
            "recurrent: answers are looked at and not listed, and a radius needs the list. Use verify repair."
        )

    def of(counterexample: Mapping[str, object]) -> Questions:
        length = counterexample["length"]
        assert isinstance(length, int)
        place = min(length, steps) - 1
        return every[slice(place, place + 1)]

    judged = of_kind(RecurrentModel, lambda changed, _: Homogeneous(changed, task, length), recurrent.as_bytes)
    found = captured.changeable(deepcopy(module).eval(), steps, questions, *judged, min(steps, TRACED))
    return replace(found, sampling=Sampling(lambda seed, number: every, lambda questions: questions, of))
