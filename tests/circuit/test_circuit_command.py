"""`verify circuit` and `verify language` as a user meets them: exit codes, one line, one JSON object."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from models.circuits import path_of
from models.selection import first
from oracles.circuit import DATA

from verify.commands.cli import main


def call(capsys, *arguments):
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err


def test_proved(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = call(capsys, "circuit", path_of("c17"))
    assert (
        code == 0
        and out.splitlines()[-1] == "PROVED on all 32 inputs, margin at least 0.5"
        and "s=2" in out
        and "32 inputs (all)" in out
    )
    assert max(map(len, out.splitlines())) <= 60


def test_refuted_and_unknown(capsys):
    code, out, _ = call(capsys, "circuit", path_of("c17"), "--bits", 1)
    assert code == 1 and "REFUTED" in out and "~G10gat (AND, step 1)" in out and "10100" in out
    code, out, _ = call(capsys, "circuit", path_of("c432"), "--method", "sampled")
    assert code == 3 and "UNKNOWN" in out
    code, out, _ = call(capsys, "circuit", path_of("c17"), "--bits", 3, "--as-printed")
    assert code == 1 and "0/0" in out


@pytest.mark.parametrize("arguments, code", [((), 0), (("--bits", "1"), 1), (("--method", "sampled"), 3)])
def test_one_json_object(capsys, arguments, code):
    got, out, err = call(capsys, "circuit", path_of("c17"), "--json", "--input", "10110", *arguments)
    result = json.loads(out)
    assert got == code and out.count("\n") == 1 and err == ""
    assert len(result["chain"]) == 12 and set(result["outputs"]) == {"G22gat", "G23gat"}
    assert result["reading"] == "bit-exact"


def test_chain_of_thought(capsys):
    _, out, _ = call(capsys, "circuit", path_of("halfadder"), "--input", "11")
    lines = out.splitlines()
    assert lines[0].split() == ["1", "1", "12", "=", "AND", "x", "y"]
    assert "outputs s=0 c=1" in lines


@pytest.mark.parametrize(
    "arguments, bits",
    first(1, [
        (("float32",), 1), (("bfloat16", "--accumulate", "float32"), 2), (("real",), 1), (("bfloat16",), 2),
        (("e4m3",), 3), (("e5m2", "--accumulate", "float32"), 3), (("p5", "--bits", 4), 4), (("tf32",), 1),
    ]),
)  # fmt: skip
def test_proved_in_floating_point(capsys, arguments, bits):
    code, out, _ = call(capsys, "circuit", path_of("c17"), "--precision", *arguments, "--json", "--input", "10110")
    result = json.loads(out)
    assert code == 0 and result["verdict"] == "PROVED" and result["margin"] > 0 and result["inputs_covered"] == "32"
    assert result["reading"] == ("real" if arguments[0] == "real" else "dtype, any order")
    assert result["parameters"]["s"] == bits and result["outputs"] == {"G22gat": 1, "G23gat": 0}
    assert result["forward_runs"]["inputs"] == 32
    if arguments[0] != "real":
        assert result["parameters"]["precision"] == arguments[0].replace("p5", "5-bit significand")


def test_refuted_and_unknown_in_floating_point(capsys):
    code, out, _ = call(capsys, "circuit", path_of("c432"), "--precision", "float32", "--bits", 1)
    assert code == 1 and "REFUTED" in out and "torch float32" in out and re.search("^format +float32$", out, re.M)
    code, out, _ = call(capsys, "circuit", path_of("c432"), "--precision", "real", "--bits", 1)
    assert code == 3 and "g may lie between" in out and "nothing was run" in out


@pytest.mark.deep
@pytest.mark.parametrize("prompt", first(1, ["011", "010111"]))
def test_a_language_in_floating_point(capsys, monkeypatch, prompt):
    monkeypatch.setenv("COLUMNS", "72")
    arguments = ("language", "(0|1)*11", "--length", len(prompt), "--precision", "bfloat16")
    code, out, _ = call(capsys, *arguments)
    assert code == 0 and "bfloat16" in out and "stay" in out and max(map(len, out.splitlines())) <= 72
    code, out, _ = call(capsys, *arguments, "--json", "--input", prompt)
    assert code == 0 and json.loads(out)["outputs"] == {"accept": 1}


def test_saved_weights_are_judged_in_a_format(capsys, tmp_path):
    assert call(capsys, "circuit", path_of("c17"), "--save", tmp_path / "w")[0] == 0  # s = 2
    weights = ("circuit", path_of("c17"), "--weights", tmp_path / "w" / "weights.safetensors", "--precision")
    assert call(capsys, *weights, "float16")[0] == 0
    assert call(capsys, *weights, "e4m3")[0] == 3


BAD = [
    ("circuit", path_of("c17"), "--precision", "float7"), ("circuit", path_of("c17"), "--precision", "p1"),
    ("circuit", path_of("c17"), "--precision", "s3", "--accumulate", "float32"),
    ("circuit", path_of("c17"), "--accumulate", "float32"),
    ("circuit", path_of("c17"), "--precision", "real", "--accumulate", "float32"),
    ("circuit", path_of("c17"), "--precision", "float64", "--accumulate", "float32"),
    ("circuit", path_of("c17"), "--precision", "float32", "--method", "exhaustive"),
    ("circuit", path_of("c17"), "--precision", "s3", "--bits", "4"),
    ("language", "0", "--length", "3", "--precision", "float7"),
    ("circuit", "nothing.aig"), ("circuit", DATA), ("circuit", path_of("toggle")),
    ("circuit", path_of("empty")),
    ("circuit", path_of("c17"), "--bits", "0"), ("circuit", path_of("c17"), "--bits", "99"),
    ("circuit", path_of("c17"), "--bits", "x"), ("circuit", path_of("c17"), "--input", "1"),
    ("circuit", path_of("c17"), "--input", "1011x"), ("circuit", path_of("c17"), "--method", "magic"),
    ("circuit", path_of("c432"), "--method", "exhaustive"), ("circuit", path_of("c17"), "--runs", "-1"),
    ("circuit", path_of("c17"), "--weights", path_of("c17")),
    ("circuit", path_of("c17"), "--weights", "nothing"), ("circuit", path_of("c17"), "--as-printed"),
    ("circuit", path_of("c17"), "--save", "/nonexistent/x"), ("circuit",),
    ("language", "(", "--length", "3"), ("language", "0", "--length", "-1"), ("language", "--length", "3"),
    ("language", "0", "--majority", "--length", "3"), ("language", "0", "--length", "3", "--input", "01"),
    ("language", "--dfa", "nothing", "--length", "3"), ("language", "0"),
    ("circuit", path_of("c17"), "--save", f"{path_of('c17')}/x"), ("circuit", path_of("c17"), "--save", ""),
    ("circuit", path_of("c17"), "--weights", "."),
    ("circuit", path_of("c17"), "--weights", ""), ("circuit", "two\nlines.bench"),
    ("circuit", path_of("c432"), "--runs", str(10**14)), ("circuit", path_of("c17"), "two\nlines"),
    ("language", "0{99999999999}", "--length", "3"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", BAD, ids=lambda a: " ".join(str(x).split("/")[-1] for x in a))
def test_bad_input_is_one_line(capsys, arguments):
    code, out, err = call(capsys, *arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith(("verify ", "verify:"))


def test_saved_weights_are_judged_again(capsys, tmp_path):
    assert call(capsys, "circuit", path_of("c17"), "--save", tmp_path / "w")[0] == 0
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["certificate.json", "weights.safetensors"]
    assert json.loads((tmp_path / "w" / "certificate.json").read_text())["verdict"] == "PROVED"
    assert call(capsys, "circuit", path_of("c17"), "--weights", tmp_path / "w" / "weights.safetensors")[0] == 0
    code, _, err = call(capsys, "circuit", path_of("ctrl"), "--weights", tmp_path / "w" / "weights.safetensors")
    assert code == 2 and "n=5" in err


@pytest.mark.parametrize(("length", "strings"), first(1, [(12, "4096"), (24, "16777216"), (64, "2^64")]))
def test_a_language_by_its_expression(capsys, length, strings):
    code, out, _ = call(capsys, "language", "0*1(0|10*1)*", "--length", length)
    assert code == 0 and strings in out.replace(",", "")


def test_language(capsys):
    code, out, _ = call(capsys, "language", "--majority", "--length", 5, "--input", "11001", "--json")
    result = json.loads(out)
    assert code == 0 and result["outputs"] == {"accept": 1} and result["accepted"] == "16"
    assert result["inputs_covered"] == "32" and result["claim"] == "E-3.5"


@pytest.mark.deep
def test_counts_of_any_length_are_printed_in_full(capsys):
    """Python's str of an integer stops at 4300 digits; 2^15000 has 4516."""
    code, out, _ = call(capsys, "language", "0", "--length", 15000, "--runs", 0, "--json")
    assert code == 0 and len(json.loads(out)["inputs_covered"]) == 4516


def test_no_torch_for_help():
    script = (
        "import sys; from verify.commands.cli import build_parser; build_parser(); "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
