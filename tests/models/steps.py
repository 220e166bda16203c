"""Recurrent cells and stacks whose step is traced, with the program that `verify check` follows."""

import dataclasses

import torch
from models.whole_blocks import drawn
from torch import nn

from constructions.recurrent.stacked import StackedModel
from constructions.recurrent.stacked import as_bytes as stacked_bytes
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify
from verify.module import Automaton, Recurrence
from verify.module.program import of_cell
from verify.module.recurrent import RecurrentProblem
from verify.tasks.module.task import as_bytes
from verify.tasks.recurrent import traced
from verify.tasks.recurrent.models import as_a_cell, bytes_of
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

ODD = Automaton(0, lambda state, token: (state + token) % 2, lambda state: state)
LATE = Automaton(0, lambda n, token: n + 1, lambda n: int(n % 3 == 2) if n != 2 else None)


class Parity(nn.Module):
    """The sign of the state is turned by the token 1, and kept by the token 0."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, state, token):
        state = torch.tanh(self.w * state * (1 - 2 * token))
        return state, torch.cat([state, -state], dim=1)


class Mixed(nn.Module):
    """Two parts of a state, of which one is a count, a product of computed numbers, and a norm."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.E, self.norm, self.out = nn.Embedding(2, 3), nn.LayerNorm(3), nn.Linear(3, 2)

    def forward(self, state, token):
        h, n = state
        x = self.norm(torch.sigmoid(h) * self.E(token) + n)
        return (x, n / 2 + 0.25), self.out(torch.relu(x)) - n.sum() / 8


CELLS = {  # a module, its first state, what is right, the vocabulary, the length, and the precision
    "cell": (lambda: Parity(4.0), lambda: torch.ones(1, 1), ODD, 2, 3, "real"),
    "cell, float32": (lambda: Parity(4.0), lambda: torch.ones(1, 1), ODD, 2, 3, "float32"),
    "cell, wrong": (lambda: Parity(-0.5), lambda: torch.ones(1, 1), ODD, [1], 4, "real"),
    "cell, wrong, bfloat16": (lambda: Parity(0.25), lambda: torch.ones(1, 1), LATE, [0], 6, "bfloat16"),
    "cell, two parts, wrong": (lambda: Mixed(0), lambda: (torch.zeros(1, 3), torch.ones(1, 3)), ODD, 2, 4, "real"),
    "cell, two parts, wrong, float32": (
        lambda: Mixed(1), lambda: (torch.zeros(1, 3), torch.ones(1, 3)), ODD, 2, 4, "float32",
    ),
}  # fmt: skip
MODULAR, WORDS = Task.of("modular", modulus=3), Task.of("helper", vocabulary=3)
SELECTIVE = Task.of("selective", types=2, max_count=1)
DUE = {"modular": [0, 1], "selective": [1]}
EFFORT = Effort(Budget.counting(200))


def of_module(module, start, expected, vocabulary, length, precision):
    """The weights and the certificate of a cell as `verify module --save` writes them."""
    problem = RecurrentProblem(module.eval(), Recurrence(start, expected, vocabulary), length)
    weights = as_bytes(problem.module)
    reading = Real() if precision == "real" else reading_of(precision)
    found = certify(problem, reading, EFFORT).about(weights)
    return weights, dataclasses.replace(found, extra={**found.extra, "program": of_cell(problem, found)}).to_json()


def cell(name):
    """A cell by its name."""
    module, start, *rest = CELLS[name]
    return of_module(module(), start(), *rest)


def of_network(problem, weights, precision):
    """The weights and the certificate of a network as `verify inductive --save` writes them."""
    reading = Real() if precision == "real" else reading_of(precision)
    found = certify(problem, reading, EFFORT).about(weights)
    return weights, dataclasses.replace(found, extra=found.extra | traced.program(problem, found)).to_json()


def stack(kind, task, seed, length, precision):
    """Layers round a cell, whose step is traced."""
    torch.manual_seed(seed)
    inputs = {"inputs": 1 if task is MODULAR else 2}
    model = StackedModel(kind, hidden=3, norm=True, head=(4,), classes=task.classes, dtype=torch.float64, **inputs)
    for value in model.parameters():
        nn.init.normal_(value)
    return of_network(as_a_cell(model, task, length), stacked_bytes(model), precision)


def right_at_first(model, due):
    """The same with the readout's rows in another order: the classes `due` win after 0, 0 0, ... where they can."""
    said = model(torch.zeros(1, len(due), dtype=torch.long))[0].argmax(1).tolist()
    rows = dict(zip(due, said, strict=True)) if len({*said}) == len(said) else {due[0]: said[0]}
    left = [row for row in range(model.classes) if row not in rows.values()]
    order = [rows[k] if k in rows else left.pop() for k in range(model.classes)]
    with torch.no_grad():
        for value in model.head.parameters():
            value.copy_(value[order].clone())
    return model


def words(kind, seed, length, precision):
    """A stack of whole blocks that reads number words."""
    model = drawn(kind, seed, types=WORDS.vocabulary, classes=WORDS.classes, layers=1)
    return of_network(Homogeneous(model, WORDS, length), bytes_of(model), precision)


def blocks(kind, task, seed, length, precision, layers=1):
    """A stack of whole blocks, of whose answers the first ones are mostly right."""
    model = right_at_first(
        drawn(kind, seed, types=task.vocabulary, classes=task.classes, layers=layers), DUE[task.name]
    )
    problem = (Selective if task is SELECTIVE else Homogeneous)(model, task, length)
    return of_network(problem, bytes_of(model), precision)
