"""How the numbers of a decoder that counts inductively are changed: its readout, at every judged place."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain

import torch

from constructions import files
from constructions.decoder import Decoder
from constructions.decoder_arrays import KEY, DecoderArrays
from constructions.errors import BadInput
from constructions.inductive.files import as_bytes
from constructions.inductive.files import load as load_decoder
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, Sampling, TooMany, check_listed, of_kind
from verify.counting.tasks import Task
from verify.frame import clock
from verify.frame.judged import check_whole_number
from verify.tasks.inductive import sharp, uniform
from verify.tasks.inductive.task import Counting

LOOKED_AT = 128  # tokens of an input at most, where no length is named
SIZES = ("vocabulary", "modulus", "types", "max_count", "distinct_start")


def load(path: str) -> tuple[Decoder, Task]:
    """The decoder of a file and the task that the file says it was made for.

    Raises: BadInput for a file that does not say it.
    """
    model, header = load_decoder(path), files.read_tensors(path, KEY)[1]
    if not isinstance(header.get("task"), str):
        raise BadInput(f"{path}: does not say what is counted. Save it by verify inductive --task TASK --weights FILE.")
    return model, Task.of(header["task"], **{name: header[name] for name in SIZES if header.get(name) is not None})


def changeable(module: Decoder, task: Task, *, length: int | None = None) -> Changeable:
    """The decoder on the inputs of its task up to a length, with their first token at the first position.

    Where no length is named, or positions may begin later, what is looked at are not all inputs; the verdict on the
    changed decoder is on all.
    Raises: BadInput for a model of other tokens or classes than the task's, or a length below 1.
    """
    if length is not None:
        check_whole_number("length", length)
        if length < 1:
            raise BadInput(f"length={length}: must be at least 1. Leave it out for all lengths.")
    problem = Counting(module, task, length)
    longest = min(LOOKED_AT, problem.longest or LOOKED_AT)
    steps = longest + int(bool(task.is_homogeneous and next(task.lines(longest)).leading))

    def asked(inputs: Iterable[tuple[int, ...]]) -> Questions:
        """Every judged place of these inputs."""
        tokens, position, right = [], [], []
        for string in inputs:
            due = [(place, answer) for place, answer in enumerate(task.answers(string)) if answer is not None]
            tokens += [[*string, *[0] * (steps - len(string))]] * len(due)
            position += [place for place, _ in due]
            right += [answer for _, answer in due]
        return Questions(torch.tensor(tokens).reshape(-1, steps), torch.tensor(position), torch.tensor(right))

    def lines() -> Questions:
        return asked(line.tokens for line in task.lines(longest))

    def questions() -> Iterator[Questions]:
        if problem.longest != longest or problem.room is not None:
            raise TooMany("inductive: inputs of all lengths, or at all positions, are looked at and not listed.")
        columns = module.W_U.shape[0] + (module.b_U is not None)
        if task.is_homogeneous:
            yield lines()
            return
        check_listed(task.number(longest) * longest, columns, longest, f"length={longest}")
        yield asked(task.strings(longest))

    def drawn(seed: int, number: int) -> Questions:
        if task.is_homogeneous:
            return lines()
        chosen, K = random.Random(seed), task.vocabulary
        strings = (tuple(chosen.choices(range(K), k=longest)) for _ in range(-(-number // longest)))
        return asked(strings)[slice(0, number)]

    def near(questions: Questions) -> Questions:
        """One token of the strings is another one."""
        if task.is_homogeneous:
            return questions
        strings = torch.unique(questions.tokens, dim=0).tolist()
        return asked(chain.from_iterable(neighbours(string, task.vocabulary) for string in strings[:LOOKED_AT]))

    def of(counterexample: Mapping[str, object]) -> Questions:
        """The wrong place, as far as it is among those that are looked at."""
        string, position = counterexample["input"], counterexample["position"]
        assert isinstance(string, list) and isinstance(position, int)
        every = asked([tuple(string[:steps])])
        place = int((every.position <= position).sum()) - 1
        return every[slice(place, place + 1)]

    about = {"task": task.name, **task.parameters()}
    judged = of_kind(
        Decoder, lambda changed, _: Counting(changed, task, length), lambda changed: as_bytes(changed, about)
    )
    began = clock.wall()
    found = captured.changeable(deepcopy(module).eval(), steps, questions, *judged)
    arrays = DecoderArrays.of(module)
    is_traced = not (uniform.applies(arrays) or sharp.applies(arrays))  # else the engine decides what it captures
    takes = clock.wall() - began if is_traced else 0.0
    return replace(found, sampling=Sampling(drawn, near, of), decision_takes=takes)


def neighbours(string: list[int], tokens: int) -> Iterator[tuple[int, ...]]:
    """The strings that differ in one token."""
    for i, token in enumerate(string):
        for other in range(tokens):
            if other != token:
                yield (*string[:i], other, *string[i + 1 :])
