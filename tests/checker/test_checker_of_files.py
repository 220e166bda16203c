"""Certificates of files that a command judges hold as those of what it builds do; lies about them do not."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from test_checker_real import outcome

from tests.benchmarks.checked import CHANGES, changed, with_noise
from verify.checker.reading import FAILS, NOT_CHECKABLE
from verify.commands.cli import main

ROOT = Path(__file__).parents[2]


def judged(words, file, place):
    """The weights and the certificate of a file."""
    main([*words.split(), "--weights", str(file), "--save", str(place), "--quiet"])
    return (place / "weights.safetensors").read_bytes(), json.loads((place / "certificate.json").read_text())


def other(built, tmp_path, change):
    where = tmp_path / "other.safetensors"
    changed(built, where, change)
    return where


def answer(weights, said):
    return outcome(weights, json.dumps(said | {"weights_sha256": sha256(weights).hexdigest()}))


@pytest.mark.parametrize("pe", ["ape", "rope", "alibi"])
def test_files_of_encoders_that_know_positions(pe, tmp_path, capsys):
    built = tmp_path / "built.safetensors"
    main(["contextual", "--pe", pe, "--length", "4", "--regions", "1", "--save", str(built), "--quiet"])
    weights, said = judged("contextual --length 4", other(built, tmp_path, with_noise), tmp_path / "saved")
    assert said["verdict"] == "PROVED" and said["parameters"]["construction"] == "file"
    assert answer(weights, said) == (0, "PROVED")
    assert answer(weights, said | {"margin": 3 * said["margin"]})[0] == FAILS
    assert answer(weights, said | {"parameters": said["parameters"] | {"construction": 7}})[0] == FAILS
    broken = other(built, tmp_path, lambda tensors: tensors["W_out"].mul_(-1))
    assert answer(broken.read_bytes(), said)[0] == FAILS


def test_a_large_margin_of_a_wrong_string_is_compared_in_as_many_bits_as_it_takes(tmp_path, capsys):
    """At 128 bits the ball is wider than the last digit of the margin."""
    built = tmp_path / "built.safetensors"
    main(["bidirectional", "--length", "5", "--regions", "1", "--save", str(built), "--quiet"])
    weights, said = judged("bidirectional --length 5", other(built, tmp_path, with_noise), tmp_path / "saved")
    assert said["verdict"] == "REFUTED" and said["margin"] < -1e9
    assert answer(weights, said) == (0, "REFUTED")
    assert answer(weights, said | {"margin": said["margin"] * (1 + 1e-12)})[0] == FAILS
    assert answer(weights, said | {"margin": 1.0})[0] == FAILS


def test_a_checkpoint_of_the_grokking_layout_holds(tmp_path, capsys):
    weights, said = judged(
        "modular --P 13 --precision float32", ROOT / "tests/data/modular/p13.safetensors", tmp_path / "saved"
    )
    assert answer(weights, said) == (0, "PROVED")
    assert answer(weights, said | {"margin": 3 * said["margin"]})[0] == FAILS


def test_steps_whose_bounds_are_too_wide_are_not_said_to_be_false(tmp_path, capsys):
    """Noise spreads the attention: a margin within the ball of a step is open, and more than is true fails."""
    built = tmp_path / "built.safetensors"
    main(["language", "(01)*", "--length", "4", "--save", str(built), "--quiet"])
    file = other(built, tmp_path, CHANGES["near the built one"])
    weights, said = judged("language (01)* --length 4 --precision real", file, tmp_path / "saved")
    assert said["verdict"] == "PROVED" and answer(weights, said) == (0, "PROVED")
    assert answer(weights, said | {"margin": said["margin"] + 2**-10})[0] == NOT_CHECKABLE
    assert answer(weights, said | {"margin": 0.5})[0] == FAILS
