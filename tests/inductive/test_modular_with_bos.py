"""Modular counting with BOS, where C reports 10 to 42 % beyond its training length: right up to 100, and C-I4's end."""

import json

import pytest
import torch
from command import run

from constructions.inductive import load


@pytest.mark.parametrize("pe", ["nope", "rope"])
def test_it_is_proved_at_the_lengths_of_document_c(pe, capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    code, out, _ = run(capsys, "inductive", "--task", "modular", "--bos", "--pe", pe, "--length", "100", "--json",
                       "--save", path)  # fmt: skip
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "PROVED" and found["length"] == 100
    with torch.no_grad():
        answers = load(path)(torch.zeros(100, dtype=torch.long)).argmax(-1)
    assert answers.tolist() == [n % 10 for n in range(100)]


@pytest.mark.deep
def test_no_construction_of_all_lengths_and_the_stored_one_fails_where_c_i4_says(capsys, tmp_path):
    code, said, _ = run(capsys, "inductive", "--task", "modular", "--bos")
    assert code == 3 and "Give --length" in said
    path = str(tmp_path / "m.safetensors")
    assert run(capsys, "inductive", "--task", "modular", "--bos", "--length", "12", "--save", path)[0] == 0
    code, out, _ = run(capsys, "inductive", "--impossible", "C-I4", "--weights", path, "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "IMPOSSIBLE" and found["holds"]
    length = found["witness"]["length"]
    with torch.no_grad():
        answers = load(path)(torch.zeros(length, dtype=torch.long)).argmax(-1)
    assert int(answers[-1]) != (length - 1) % 10 and 12 < length < 10**5


@pytest.mark.parametrize(
    "options, message",
    [
        (("--impossible", "C-I3", "--weights", "x.safetensors"), "only --impossible C-I4"),
        (("--impossible", "C-I4", "--weights", "x.safetensors", "--modulus", "1"), "at least 2"),
        (("--impossible", "C-I4", "--weights", "x.safetensors"), "x.safetensors"),
        (("--impossible", "C-I9"), "invalid choice"),
    ],
)
def test_bad_requests_say_so_in_one_line(options, message, capsys):
    code, out, said = run(capsys, "inductive", *options)
    assert code == 2 and message in said and not out and len(said.strip().splitlines()) <= 2
