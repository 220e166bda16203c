"""Parts of a search by cells that other processes decide, which read the task file and the weights themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from constructions.errors import BadInput
from constructions.threads import one_thread
from verify.arithmetic.readings import Real
from verify.commands.workers import Workers, results
from verify.frame.clock import Deadline
from verify.module.layered import Layered
from verify.module.parts import CellsPart, Run, decided, identity_of
from verify.module.problem import ModuleProblem
from verify.module.task import Task
from verify.tasks.module.task import errors_named, problem_parts

LOADS = (__name__, "torch.export._trace")


@dataclass(frozen=True)
class Files:
    """The task file and the weights, by their whole names."""

    task: str
    weights: str | None

    @classmethod
    def of(cls, task: str, weights: str | None) -> Files:
        return cls(str(Path(task).resolve()), None if weights is None else str(Path(weights).resolve()))


@dataclass(frozen=True)
class PartThere:
    """A part, the files that say what it is of, and when it ends: seconds of the epoch, which machines share."""

    part: CellsPart
    files: Files
    until: float

    def run(self) -> bytes:
        """Decides it.

        Raises: BadInput for files that are others here.
        """
        with errors_named(self.files.task), one_thread():
            layer = layer_of(self.files, self.part.length, self.part.identity)
            return decided(layer, self.part, Deadline(self.until, time.time))


@lru_cache(4)
def layer_of(files: Files, length: int, identity: str) -> Layered:
    """What decides the inputs that are asked for, loaded once in a process.

    Raises: BadInput where the files say others here.
    """
    module, task = problem_parts(files.task, files.weights)
    if isinstance(task, Task):
        problem = ModuleProblem(module, task)
        for part in (part for part in task.inputs.parts if part.length == length):
            for layer in problem.layers(part, Real()):
                if identity_of(layer) == identity:
                    return layer
    raise BadInput("workers: the task file, the weights or the program are others there; they must be the same")


def runs(files: Files, workers: Workers) -> Run:
    """What runs parts by these workers."""

    def run(parts: list[CellsPart], deadline: Deadline) -> Iterator[tuple[CellsPart, bytes]]:
        until = time.time() + deadline.left()
        jobs = [PartThere(part, files, until) for part in parts]
        for job, found in results(PartThere.run, jobs, replace(workers, loads=LOADS), says_left=False, until=deadline):
            yield job.part, found

    return run
