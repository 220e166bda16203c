"""verify repair, radius and quantise: what they print and write, and their exit codes."""

import json

import pytest
from safetensors.torch import load_file, save_file

from constructions import checkpoint, contextual_positions, relation_counting
from constructions.errors import BadInput
from tests.command import as_json, run
from tests.models.fitted import fitted
from tests.oracles.histogram import all_wrong_pairs
from verify import repair
from verify.frame.certificate import Certificate


@pytest.fixture
def files(tmp_path, monkeypatch):
    """wrong.safetensors can be repaired, twins.safetensors cannot, and right.safetensors is right."""
    monkeypatch.chdir(tmp_path)
    twins = relation_counting.dot(T=3, L=3).requires_grad_(False)
    twins.E[1] = twins.E[0]
    named = {"wrong": fitted(3, T=3, L=3, d=4, p=8), "twins": twins, "right": relation_counting.dot(T=3, L=2)}
    for name, module in named.items():
        checkpoint.save(module, f"{name}.safetensors", claim=None, construction=None)
    return tmp_path


def test_repair_writes_what_is_proved(files, capsys):
    code, out, err = run(capsys, "repair", "wrong.safetensors", "--save", "mended")
    assert code == 0 and out.splitlines()[-1].startswith("PROVED histogram: all inputs (27)") and "wrote" in err
    assert sorted(p.name for p in (files / "mended").iterdir()) == [
        "certificate.json", "repair.json", "weights.safetensors",
    ]  # fmt: skip
    module = checkpoint.load("mended/weights.safetensors")
    assert not all_wrong_pairs(module)
    record = json.loads((files / "mended" / "repair.json").read_text())
    assert 0 < record["at_least"] <= record["change"] <= 1.01 * record["at_least"] and record["verdict"] == "PROVED"
    assert Certificate.from_json((files / "mended" / "certificate.json").read_text())
    code, out, _ = run(capsys, "check", "mended")
    assert code == 0 and out.startswith("HOLDS")
    assert run(capsys, "repair", "wrong.safetensors", "--save", "mended")[0] == 0  # again, into its own folder


def test_repair_says_impossible(files, capsys):
    code, out, err = run(capsys, "repair", "twins.safetensors", "--json", "--save", "why")
    said = json.loads(out)
    assert code == 2 and said["verdict"] == "IMPOSSIBLE" and "impossible" in err
    assert json.loads((files / "why" / "repair.json").read_text()) == said and len(said["combination"]["inputs"]) == 2
    code, out, err = run(capsys, "repair", "twins.safetensors", "--save", "weights.safetensors")
    assert code == 2 and "IMPOSSIBLE" in out and "wrote nothing" in err and not (files / "weights.safetensors").exists()


@pytest.mark.deep
def test_radius_prints_both_bounds(files, capsys):
    code, out, _ = run(capsys, "radius", "right.safetensors", "--tensors", "W_2", "--save", "edge")
    assert code == 0 and "0.249978" in out and "0.25" in out and "REFUTED" in out
    assert all_wrong_pairs(checkpoint.load("edge/weights.safetensors"))
    code, said = as_json(capsys, "radius", "wrong.safetensors")
    assert code == 1 and said["at_least"] is None and said["certificate"]["counterexample"]


def test_quantise_rounds_and_decides(files, capsys):
    code, said = as_json(capsys, "quantise", "right.safetensors", "--bits", "8")
    assert code == 0 and said["verdict"] == "PROVED" and set(said["scales"]) == {
        "E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2",
    }  # fmt: skip
    code, out, _ = run(capsys, "quantise", "right.safetensors", "--fewest", "--by-tensor", "--save", "few.safetensors")
    assert code == 0 and not all_wrong_pairs(checkpoint.load("few.safetensors")) and out.count("PROVED") >= 8
    assert run(capsys, "quantise", "wrong.safetensors")[0] == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("repair nothing.safetensors", "no such file"),
        ("repair right.safetensors --budget -1", "must be a number of seconds"),
        ("repair right.safetensors --save nowhere/x", "there is no folder"),
        ("radius right.safetensors --tensors W_9", "the model has E"),
        ("radius right.safetensors --tensors E --by-tensor", "Leave --tensors out"),
        ("quantise right.safetensors --bits 17", "must be from 2 to 16"),
        ("quantise right.safetensors --scheme fp8 --bits 4", "has its own number of bits"),
        ("quantise right.safetensors --scheme fp8 --fewest", "has its own number of bits"),
        ("quantise right.safetensors --bits 4 --fewest", "drop one of the two"),
        ("quantise right.safetensors --by-tensor", "needs --fewest"),
    ],
)
def test_bad_calls_are_one_line(files, capsys, line, says):
    code, out, err = run(capsys, *line.split())
    assert code == 2 and out == "" and err.count("\n") == 1 and says in err


def test_models_of_tasks_that_say_nothing_are_refused():
    with pytest.raises(BadInput, match="Say what is right by inputs="):
        repair(contextual_positions.build(4, 1))


@pytest.mark.parametrize(
    ("line", "code", "verdict"),
    [
        ("repair wrong.safetensors", 0, "PROVED histogram: all inputs (27)"),
        ("repair twins.safetensors", 2, "IMPOSSIBLE: "),
        pytest.param(
            "radius right.safetensors --tensors W_2",
            0,
            "PROVED for every model with |w' - w| <= r |w|",
            marks=pytest.mark.deep,
        ),
        ("quantise right.safetensors", 0, "PROVED histogram: all inputs (9)"),
        ("quantise right.safetensors --fewest", 0, "2 bits per-tensor: PROVED histogram"),
        pytest.param(
            "train histogram --model dot --T 2 --L 2", 0, "PROVED histogram: all inputs (4)", marks=pytest.mark.deep
        ),
    ],
)
def test_quiet_prints_the_verdict_alone(files, capsys, monkeypatch, line, code, verdict):
    monkeypatch.setenv("COLUMNS", "1000")
    found, out, err = run(capsys, *line.split(), "--quiet")
    assert found == code and out.startswith(verdict) and out.count("\n") == 1
    assert err.count("\n") == (code == 2)  # why it is impossible, and what else could change
    found, out, err = run(capsys, *line.split(), "--quiet", "--json")
    assert found == 2 and not out and err.count("\n") == 1 and "--json and --quiet" in err


def test_hidden_numbers_beyond_all_floats_end_unknown(tmp_path, capsys):
    """Their products are no numbers, of which no linear program is asked."""
    assert run(capsys, "parity", "--T", "3", "--L", "3", "--save", str(tmp_path))[0] == 0
    weights = load_file(tmp_path / "weights.safetensors")
    weights["E"].view(-1)[1] = 2.0**600
    save_file(weights, tmp_path / "large.safetensors")
    argv = ("repair", str(tmp_path / "large.safetensors"), "--task", "parity", "--L", "3")
    assert as_json(capsys, *argv)[1]["verdict"] == "UNKNOWN"
