"""`verify modular`: options, JSON, exit codes."""

from __future__ import annotations

import json

from tests.command import as_json, run


def test_proofs(capsys):
    code, data = as_json(capsys, "modular", "--P", "113")
    assert code == 0 and data["margin"] == 0.5 and data["inputs_covered"] == "12769"
    code, data = as_json(capsys, "modular", "--construction", "pizza", "--neurons-per-frequency", "5")
    assert code == 0 and data["parameters"]["neurons"] == 5 and data["parameters"]["d"] == 2


def test_refuted_with_wrong_inputs(capsys):
    code, data = as_json(capsys, "modular", "--P", "119", "--construction", "pizza", "--neurons-per-frequency", "5")
    assert code == 1 and data["counts"]["wrong"] == "952" and len(data["wrong_inputs"]) == 952
    assert data["counterexample"]["input"] == data["wrong_inputs"][0] == sorted(data["wrong_inputs"])[0]


def test_impossible(capsys):
    for options, claim in (
        (("--P", "112", "--construction", "pizza"), "W-E4.8"),
        (("--no-mlp",), "W-E4.7"),
    ):
        code, out, err = run(capsys, "modular", *options, "--json")
        assert code == 2 and err.count("\n") == 1 and claim in err
        assert json.loads(out).items() >= {"verdict": "IMPOSSIBLE", "claim": claim}.items()
    code, data = as_json(capsys, "modular", "--impossible", "W-E4.7")
    assert code == 0 and data["verdict"] == "IMPOSSIBLE" and data["holds"]


def test_one_neuron(capsys):
    for P in (2, 3):
        code, data = as_json(capsys, "modular", "--P", str(P), "--construction", "one-neuron")
        assert code == 0 and data["parameters"]["p"] == 1 and 2 - 1e-9 < data["margin"] <= 2
    code, out, _ = run(capsys, "modular", "--P", "4", "--construction", "one-neuron")
    assert code == 3 and out.startswith("UNKNOWN")


def test_best(capsys):
    code, data = as_json(capsys, "modular", "--P", "113", "--best", "3")
    assert code == 0 and data["best"][2]["frequencies"] == [1, 6, 43] and data["best"][2]["average"] == "339/112"


def test_frequencies_are_named_by_their_orbit(capsys):
    code, data = as_json(capsys, "modular", "--construction", "clock", "--frequencies", "1,51", "--P", "113")
    assert code == 0 and data["parameters"]["orbit"] == [1, 31] and data["parameters"]["frequencies"] == [1, 51]


def test_bad_input(capsys):
    wrong = (
        "--P 1", "--frequencies 1", "--construction clock --frequencies x", "--K 2", "--neurons-per-frequency 5",
        "--P 5 --best 4", "--P 3 --construction one-neuron --K 1", "--precision s6",
        "--construction pizza --neurons-per-frequency 4",
    )  # fmt: skip
    for options in map(str.split, wrong):
        code, out, err = run(capsys, "modular", *options)
        assert code == 2 and out == "" and err.count("\n") == 1, options


def test_save_and_load(capsys, tmp_path):
    folder = tmp_path / "proof"
    assert run(capsys, "modular", "--P", "7", "--save", str(folder))[0] == 0
    code, data = as_json(capsys, "modular", "--P", "7", "--weights", str(folder / "weights.safetensors"))
    assert code == 0 and data["parameters"]["construction"] == "file"
    code, _, err = run(capsys, "modular", "--P", "8", "--weights", str(folder / "weights.safetensors"))
    assert code == 2 and "--P" in err
