"""An effort ends every command's search at the same place, on a machine of any speed, by any number of workers."""

import json
import time
from pathlib import Path

import pytest
from command import run

from verify.commands.cli import build_parser, kinds_of

DATA = Path(__file__).parents[1] / "data"
XOR = "INPUT(x)\nINPUT(y)\nOUTPUT(z)\nz = XOR(x, y)\n"
TASK = """
import torch
from torch import nn

from verify.module import Task, tokens

task = Task(tokens([5] * 4), lambda t: t.amax(1), -1, range(5))


class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        drawn = torch.Generator().manual_seed(0)
        self.E = nn.Parameter(torch.randn((5, 4), generator=drawn, dtype=torch.float64))

    def forward(self, tokens):
        x = self.E[tokens]
        return ((x @ x.mT).softmax(-1) @ x) @ self.E.T


def model(weights=None):
    return Drawn().eval()
"""
LIN = f"{DATA}/trained_lin_T8_L5_d16_p16.safetensors --model lin --L 5"
BOS = f"{DATA}/trained_bos_T4_L3_d4_p8.safetensors --model bos --L 3"
COUNT01 = f"{DATA}/count01/a4_s0.safetensors"
# of each command: small jobs, most of which this effort ends
JOBS = {
    "histogram": [f"--weights {LIN} --effort 2", f"--weights {LIN} --precision float32 --effort 2"],
    "addition": ["--digits 3 --precision float32 --effort 1"],
    "modular": ["--P 13 --construction clock --K 3 --effort 1"],
    "circuit": ["xor.bench --precision float32 --effort 1"],
    "language": ["(0|1)*11 --length 6 --precision float32 --effort 1"],
    "contextual": ["--length 6 --regions 2 --precision float32 --effort 1"],
    "bidirectional": ["--length 6 --effort 1"],
    "count01": [
        f"--weights {COUNT01} --max-digits 60 --max-noise 9 --effort 1",
        f"--weights {COUNT01} --precision float32 --max-digits 9 --max-noise 3 --effort 1",
    ],
    "precision": [
        "histogram --model dot --T 9 --L 6 --effort 2",
        "histogram --T 4 --L 3 --table --effort 1",
    ],
    "inductive": [
        f"--task modular --model gru --weights {DATA}/recurrent/gru_seed2_stop0.5.safetensors --effort 3",
        f"--task vanilla --weights {DATA}/inductive/vanilla_nope_l4.safetensors --effort 1",
    ],
    "module": ["task.py --effort 3"],
    "parity": ["--T 4 --L 4 --precision float32 --effort 1"],
    "repair": [f"{BOS} --layers all --effort 3", f"{COUNT01} --task count01 --max-digits 4 --max-noise 1 --effort 1"],
    "radius": [f"{BOS} --effort 3"],
    "quantise": [f"{BOS} --fewest --effort 3", f"{BOS} --bits 6 --effort 2"],
}
LONG = ("--table", "vanilla")  # what they have in them is of the deep part


def is_long(line):
    return any(word in line for word in LONG)


LINES = [
    pytest.param(line, marks=pytest.mark.deep if number or is_long(line) else (), id=f"{name} {number}")
    for name, jobs in JOBS.items()
    for number, line in enumerate(f"{name} {job}" for job in jobs)
]
SPREAD = "precision histogram --model dot --T 6 --L 4 --sweep d=6:8 --bits 4,8,24 --effort 2"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    (tmp_path / "xor.bench").write_text(XOR)
    (tmp_path / "task.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)


def without_time(found):
    if isinstance(found, dict):
        return {key: without_time(value) for key, value in found.items() if key != "seconds"}
    return [without_time(value) for value in found] if isinstance(found, list) else found


def answer(capsys, line, *more):
    code, out, err = run(capsys, *line.split(), "--json", *more)
    assert code in (0, 1, 3), err
    return code, without_time(json.loads(out))


def test_every_command_with_an_effort_has_a_job():
    (commands,) = [action for action in build_parser()._actions if action.dest == "command"]
    with_effort = {
        name
        for name, parser in commands.choices.items()
        if any("--effort" in each._option_string_actions for each in (parser, *kinds_of(parser)))
    }
    assert with_effort == set(JOBS)


@pytest.mark.parametrize("line", LINES)
def test_the_same_on_a_machine_a_thousand_times_slower(line, capsys, monkeypatch):
    first, honest = answer(capsys, line), time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: 1000 * honest())
    assert answer(capsys, line) == first


@pytest.mark.deep
def test_the_same_by_one_two_and_eight_workers(capsys):
    one, two, eight = (answer(capsys, SPREAD, "--workers", number) for number in ("1", "2", "8"))
    assert one == two == eight
