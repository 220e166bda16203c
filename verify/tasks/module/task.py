"""A user's task file: Python that is imported, and so runs with the user's rights."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.files import naming, read_tensors
from verify.module.problem import ModuleProblem
from verify.module.recurrence import Recurrence
from verify.module.recurrent import RecurrentProblem
from verify.module.task import Task
from verify.report.certificate import Fact
from verify.report.page import Case, LookAt, ModelView

METADATA_KEY = "weightproof.module"


def problem_parts(path: str, weights: str | None) -> tuple[nn.Module, Task | Recurrence]:
    """The module and the task of a task file: it defines `task`, and `model(weights)` or the module itself.

    `weights` is a file with a state dict, read without running code; without one, model(None) is called.
    Raises: BadInput for a file that cannot be imported, or does not define the two.
    """
    found = imported(path)
    task, model = getattr(found, "task", None), getattr(found, "model", None)
    if not isinstance(task, Task | Recurrence):
        raise BadInput(
            f"{path}: defines no `task`. Write: task = Task(inputs=tokens([...]), expected=lambda t: ...), or "
            "task = Recurrence(start=..., expected=Automaton(...)) for a cell"
        )
    if not callable(model):
        raise BadInput(f"{path}: defines no `model`. Write: def model(weights): ... return the module")
    state = None if weights is None else read_tensors(weights, METADATA_KEY)[0]
    with nullcontext() if weights is None else naming(weights):
        module = called(path, partial(loaded, model) if isinstance(model, nn.Module) else model, state)
    if not isinstance(module, nn.Module):
        raise BadInput(f"{path}: model(weights) returned {type(module).__name__}, must be a torch.nn.Module")
    return module, task


def loaded(module: nn.Module, state: dict[str, Tensor] | None) -> nn.Module:
    """The module itself, with a file's numbers where there is one."""
    if state is not None:
        module.load_state_dict(state)
    return module


def about(path: str) -> Iterator[Fact]:
    """What the task file says of itself in the first line of its docstring, where it has one."""
    text = ast.get_docstring(ast.parse(Path(path).read_bytes()))
    if text:
        yield "about", text.splitlines()[0]


class AsItStands(SourceFileLoader):
    """Compiles a file from its text each time: what is kept of a file may be of its text before, within a second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


@contextmanager
def nothing_kept() -> Iterator[None]:
    """While it lasts, no compiled code is written beside what is imported."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def imported(path: str) -> ModuleType:
    """The task file as a module; its own folder is where it imports from first, and nothing is written there."""
    file = Path(path)
    if not path.endswith(".py") or not file.is_file():
        raise BadInput(
            f"task={path!r}: must be a Python file that is there; its name ends in .py. It says model(weights) and "
            "task; weights are named with --weights FILE."
        )
    name = f"weightproof_task_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.resolve(), loader=AsItStands(name, str(file.resolve())))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with nothing_kept():
            spec.loader.exec_module(module)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise BadInput(f"{path}: cannot be imported: {described(error, file)}") from None
    finally:
        sys.path.remove(folder)
    return module


def called(path: str, model: Callable[[object], object], state: dict[str, Tensor] | None) -> object:
    try:
        return model(state)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        hint = " Does it need --weights FILE?" if state is None else ""
        raise BadInput(f"{path}: model(weights) failed: {described(error, Path(path))}.{hint}") from None


@contextmanager
def errors_named(path: str) -> Iterator[None]:
    """Names what the user's code raises while it runs, an exit included; other errors stay what they are.

    Raises: BadInput for an error that came through a line of the task file.
    """
    try:
        yield
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        if not lines_in(error, Path(path)):
            raise
        raise BadInput(f"{path}: {described(error, Path(path))}") from None


def described(error: BaseException, file: Path) -> str:
    """An error with the line of the user's file that it came through."""
    lines = lines_in(error, file)
    place = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"


def lines_in(error: BaseException, file: Path) -> list[int | None]:
    """The lines of a file that an error came through, the innermost one last."""
    return [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file.resolve()]


def as_bytes(module: nn.Module) -> bytes:
    """The module's state dict as a safetensors file; tensors that share memory are written one by one."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()})


def look_at(problem: ModuleProblem | RecurrentProblem) -> LookAt | None:
    """The logits of an input as the module runs it, where one position answers; none of a cell."""
    if isinstance(problem, RecurrentProblem):
        return None

    def look(case: Case) -> ModelView:
        logits, classes = problem.run_one(torch.tensor(case["input"]))
        return ModelView(dict(zip(classes, logits[0].tolist(), strict=True)) if len(logits) == 1 else {})

    return look
