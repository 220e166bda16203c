"""`verify addition`: options, JSON, exit codes."""

from __future__ import annotations

from tests.command import as_json, run


def test_a_proof(capsys):
    code, data = as_json(capsys, "addition", "--digits", "3")
    assert code == 0 and data["verdict"] == "PROVED" and data["inputs_covered"] == "1000000"
    assert data["parameters"]["construction"] == "one-head" and data["margin"] > 4.9e-4


def test_the_documents_scheme(capsys):
    code, data = as_json(capsys, "addition", "--as-printed")
    assert code == 1 and data["counts"] == {"right": "9865000000", "wrong": "135000000"}
    assert data["counterexample"]["input"] == "00001+00999=" and data["counterexample"]["expected"] == "001000"


def test_say(capsys):
    code, out, _ = run(capsys, "addition", "--input", "00995+00005=")
    assert code == 0 and out == "00995+00005=001000\n"
    code, data = as_json(capsys, "addition", "--lookahead", "1", "--input", "00995+00005=")
    assert code == 1 and data["said"] == "000900" and data["expected"] == "001000"
    code, _, err = run(capsys, "addition", "--input", "995+5=")
    assert code == 2 and "5 digits" in err and err.count("\n") == 1


def test_not_known_is_unknown(capsys):
    code, data = as_json(capsys, "addition", "--digits", "30")
    assert code == 3 and data["verdict"] == "UNKNOWN" and "--layers 2" in data["reason"]


def test_bad_input(capsys):
    wrong = "--digits 0", "--base 1", "--lookahead 2 --heads 2", "--layers 2 --heads 2", "--precision s6"
    for options in map(str.split, wrong):
        code, out, err = run(capsys, "addition", *options)
        assert code == 2 and out == "" and err.count("\n") == 1, options


def test_save_and_load(capsys, tmp_path):
    file = tmp_path / "m.safetensors"
    assert run(capsys, "addition", "--digits", "2", "--save", str(file))[0] == 0
    code, data = as_json(capsys, "addition", "--digits", "2", "--weights", str(file))
    assert code == 0 and data["parameters"]["construction"] == "file" and data["claim"] is None
    code, _, err = run(capsys, "addition", "--digits", "3", "--weights", str(file))
    assert code == 2 and "--digits" in err
