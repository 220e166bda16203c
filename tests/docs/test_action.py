"""The action that CI copies: its own line judges a folder, fails where a model is wrong, and leaves both files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from constructions import relation_counting

ACTION = (Path(__file__).parents[2] / "docs/howto/action.yml").read_text()


@pytest.mark.deep  # three commands
def test_the_line_of_the_action_judges_a_folder(tmp_path):
    (line,) = re.findall(r"- run: (verify .*)", ACTION)
    assert set(re.findall(r"\$(\w+)", line)) == {"FOLDER", "OPTIONS"}
    model = relation_counting.dot(T=3, L=2)
    (tmp_path / "runs").mkdir()
    torch.save(model.state_dict(), tmp_path / "runs/right.pt")
    assert run(line, tmp_path) == 0
    torch.save({name: -tensor for name, tensor in model.state_dict().items()}, tmp_path / "runs/wrong.pt")
    assert run(line, tmp_path) == 1
    assert (tmp_path / "junit.xml").is_file() and (tmp_path / "verdicts.html").is_file()


def run(line, folder):
    line = line.replace("verify ", f"{sys.executable} -m verify ", 1)
    root = str(Path(__file__).parents[2])
    named = {"FOLDER": "runs", "OPTIONS": "--model dot --L 2", "PYTHONPATH": root}
    return subprocess.run(["bash", "-ec", line], cwd=folder, env=os.environ | named, capture_output=True).returncode
