"""Files of cells of Table A1 with several layers or whole blocks: verdicts, a hundred digits, and what is checked."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from models.rechecked import outcome
from models.selection import every
from mpmath import mp, mpf
from oracles import recurrent_digits, residual_blocks

from constructions.recurrent import model as cells
from constructions.recurrent import residual
from verify.arithmetic.readings import Real
from verify.counting.asked import Asked, judge_of
from verify.counting.tasks import STARTED, Task
from verify.frame.decide import Effort, decide
from verify.tasks.inductive.table import said_of_a_file, trained_files

FOLDER = Path(__file__).parents[1] / "data" / "table_a1"
FAILING = {
    "helper-lstm-2": 11, "helper-lstm-4": 13, "helper-mamba-1": 5, "helper-mamba-2": 8, "helper-mamba-4": 4,
    "helper-rnn-2": 8, "helper-rnn-4": 9, "helper-rwkv-1": 8, "helper-rwkv-2": 4, "helper-rwkv-4": 3, "helper-s4-1":
    51, "helper-s4-2": 7, "helper-s4-4": 1, "helper-shifted-lstm-2": 0, "helper-shifted-lstm-4": 0,
    "helper-shifted-mamba-1": 0, "helper-shifted-mamba-2": 0, "helper-shifted-mamba-4": 0, "helper-shifted-rnn-1":
    0, "helper-shifted-rnn-2": 0, "helper-shifted-rnn-4": 0, "helper-shifted-rwkv-1": 0, "helper-shifted-rwkv-2": 0,
    "helper-shifted-rwkv-4": 0, "helper-shifted-s4-1": 0, "helper-shifted-s4-2": 0, "helper-shifted-s4-4": 0,
    "modular-mamba-2": 15, "modular-mamba-4": 10, "modular-rwkv-2": 12, "modular-rwkv-4": 9, "modular-s4-2": 54,
    "modular-s4-4": 1, "selective-mamba-2": 2, "selective-mamba-4": 2, "selective-modular-mamba-2": 2,
    "selective-modular-mamba-4": 2, "selective-modular-rwkv-2": 3, "selective-modular-rwkv-4": 2,
    "selective-modular-s4-2": 2, "selective-modular-s4-4": 2, "selective-rwkv-2": 2, "selective-rwkv-4": 2,
    "selective-s4-2": 2, "selective-s4-4": 2, "shifted-lstm-2": 0, "shifted-lstm-4": 0, "shifted-mamba-1": 0,
    "shifted-mamba-2": 0, "shifted-mamba-4": 0, "shifted-rnn-2": 0, "shifted-rnn-4": 0, "shifted-rwkv-2": 0,
    "shifted-rwkv-4": 0, "shifted-s4-1": 0, "shifted-s4-2": 0, "shifted-s4-4": 0,
}  # fmt: skip


def logits_of_cells(network, string):
    """The logits of layers of one-hot cells after each token, in mpmath."""
    stored = {name: residual_blocks.numbers(value.double().tolist()) for name, value in network.state_dict().items()}
    states = [[[mpf(0)] * network.hidden for _ in range(1 + (network.kind == "lstm"))] for _ in range(network.layers)]
    found = []
    for token in string:
        x = [mpf(int(i == token)) for i in range(network.inputs)]
        for k in range(network.layers):
            W_x, W_h, b_x, b_h = (stored[f"cell.{n}_l{k}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            given = [[y] for y in residual_blocks.times(W_x, x)]
            weights = (given, W_h, b_x, b_h)
            states[k] = recurrent_digits.step(network.kind, weights, states[k], network.activation)
            x = states[k][0]
        found.append(residual_blocks.times(stored["readout.weight"], x, stored["readout.bias"]))
    return found


def wrong_inputs(file, tokens):
    """The wrong inputs of so many tokens, of the task's lines and strings, with a hundred digits."""
    task = Task.of(file.task)
    if task.is_homogeneous:
        strings = {line.tokens[:tokens] for line in task.lines(tokens)}
    else:
        strings = set(product(range(task.K), repeat=tokens))
    if file.model in cells.KINDS:
        network, said = cells.load(file.path), logits_of_cells
    else:
        network, said = residual.load(file.path, kind=file.model), residual_blocks.logits
    found = set()
    for string in strings:
        with mp.workdps(residual_blocks.DIGITS):
            rows = said(network, string)
        for t, (row, right) in enumerate(zip(rows, task.answers(string), strict=True), 1):
            if right is not None and not all(row[right] > x for j, x in enumerate(row) if j != right):
                found.add(string[:t])
    return found


def test_every_cell_has_a_file():
    files = {Path(file.path).stem for file in trained_files(str(FOLDER))}
    assert FAILING.keys() <= files and len(files) == 90


@pytest.mark.parametrize(("name", "length"), every(60, sorted(FAILING.items())))
def test_a_file_is_first_wrong_where_a_hundred_digits_are(name, length):
    (file,) = [x for x in trained_files(str(FOLDER)) if Path(x.path).stem == name]
    asked = judge_of(file.model)(Asked(Task.of(file.task), file.model, weights=file.path, seed=0))
    found = decide(asked.problem, Real(), "certified", Effort(30.0, 0))
    assert said_of_a_file(found) == f"wrong first at length {length}"
    string = tuple(found.counterexample["input"])
    wrong = wrong_inputs(file, length + (file.task in STARTED))
    assert string in wrong and min(map(len, wrong)) == len(string)
    assert outcome(asked.weights, json.loads(found.about(asked.weights).to_json())) == "REFUTED"
