"""What a task file's own code raises while inputs are decided: one line that names it, and never a verdict's code."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from tests.command import run

TASK = """
import sys
import torch
from verify.module import Task, tokens

class Same(torch.nn.Embedding):
    def forward(self, x):
        {forward}
        return super().forward(x)[:, 0]

def expected(x):
    {expected}
    return x[:, 0]

def model(weights):
    return Same(2, 2, _weight=torch.eye(2)).eval()

task = Task(inputs=tokens([2, 2]), expected=expected)
"""


@pytest.mark.parametrize(
    ("place", "method"), [("forward", "exhaustive"), ("expected", "exhaustive"), ("expected", "certified")]
)
@pytest.mark.parametrize(
    ("raises", "code", "said"),
    [
        ("sys.exit(0)", 2, "SystemExit: 0"),
        ("{}[3]", 2, "KeyError: 3"),
        ("raise BaseException", 70, "a bug of ours"),
    ],
)
def test_the_users_code_decides_no_verdict(capsys, tmp_path, raises, code, said, place, method):
    file, lines = tmp_path / "task.py", {"forward": "pass", "expected": "pass"} | {place: raises}
    file.write_text(TASK.replace("{forward}", lines["forward"]).replace("{expected}", lines["expected"]))
    ended, out, err = run(capsys, "module", str(file), "--method", method)
    assert ended == code and err.count("\n") == bool(said) and bool(out) != bool(said)
    assert said in err


def test_a_task_file_may_hold_the_module_itself(capsys, tmp_path):
    file, weights = tmp_path / "task.py", tmp_path / "w.pt"
    lines = TASK.replace("{forward}", "pass").replace("{expected}", "pass")
    file.write_text(lines[: lines.index("def model")] + "model = Same(2, 2).eval()\n" + lines[lines.index("task =") :])
    torch.save({"weight": torch.eye(2)}, weights)
    assert run(capsys, "module", str(file), "--weights", str(weights))[0] == 0
    torch.save({"weight": torch.zeros(2, 2)}, weights)
    assert run(capsys, "module", str(file), "--weights", str(weights))[0] == 1
    torch.save({"W": torch.eye(2)}, weights)
    code, out, err = run(capsys, "module", str(file), "--weights", str(weights))
    assert code == 2 and not out and err.count("\n") == 1 and "weight" in err


def test_nothing_is_kept_beside_a_task_file(capsys, tmp_path, monkeypatch):
    """Neither its compiled code nor that of what it imports; a text as long and as old as one before is read anew."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file, beside = tmp_path / "task.py", tmp_path / "beside_a_task_file.py"
    right = (
        TASK.replace("{forward}", "pass").replace("{expected}", "pass").replace("import sys", f"import {beside.stem}")
    )
    beside.write_text("")
    for text, code in ((right, 0), (right.replace("x[:, 0]\n\ndef model", "1-x[:,0]\n\ndef model"), 1)):
        file.write_text(text.ljust(len(right) + 9))
        os.utime(file, (1, 1))
        assert run(capsys, "module", str(file))[0] == code
        assert sorted(tmp_path.iterdir()) == [beside, file]
    assert not sys.dont_write_bytecode
