"""How the numbers of any module are changed: its last linear layer, on every input of its task."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from constructions.errors import BadInput
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, of_kind
from verify.module.problem import ModuleProblem
from verify.module.task import Task
from verify.tasks.module.task import as_bytes, problem_parts


def load(path: str, *, weights: str | None = None) -> tuple[nn.Module, Task]:
    """The module and the task of a task file.

    Raises: BadInput for a recurrent cell.
    """
    module, task = problem_parts(path, weights)
    if not isinstance(task, Task):
        raise BadInput(
            f"{path}: its task is of a recurrent cell, whose numbers are not changed; give a Task of inputs."
        )
    return module, task


def changeable(module: nn.Module, task: Task) -> Changeable:
    """The module on the inputs of its task.

    Raises: BadInput for inputs of several lengths, a task of some of the columns only, or a module whose last operation
        is no linear layer of its own.
    """
    lengths = sorted(set(task.inputs.lengths))
    if len(lengths) > 1:
        raise BadInput(f"inputs: have the lengths {lengths[0]} to {lengths[-1]}; a module is changed at one length.")
    if task.classes is not None:
        raise BadInput("classes: some of the columns only; a module is changed where all of them take part.")
    problem = ModuleProblem(module, task)
    if problem.module is not module:
        raise BadInput(
            f"module: a {type(module).__name__} returns more than logits. Wrap it in a module that does not."
        )
    columns, rows = problem.columns(lengths[0]), len(problem.graphs[lengths[0]].output.shape) == 3

    def questions() -> Iterator[Questions]:
        places = task.positions(lengths[0])
        for part in task.inputs.parts:
            for tokens in part.batches(1 << 14):
                right = task.answers(tokens, columns)
                for i, place in enumerate(places):
                    yield Questions(tokens, right[:, i] * 0 + (place if rows else 0), right[:, i])

    judged = of_kind(nn.Module, lambda changed, _: ModuleProblem(changed, task), as_bytes)
    return captured.changeable(module, lengths[0], questions, *judged)
