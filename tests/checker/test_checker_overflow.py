"""Weights so large that a run overflows, or floats cannot tell logits apart: what is REFUTED there holds anyway."""

import json

import pytest
import torch
from command import as_json, run
from flint import arb
from safetensors.torch import load_file, save_file

from verify.checker.formats import BinaryFormat
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.checker.rounded_runs import ReplayedRun, check_run

TOP = 2.0**127
BUILT = {
    "parity": ("parity --T 3 --L 3", "parity --L 3"),
    "histogram": ("histogram --model dot --T 4 --L 4 --d 4", "histogram --model dot --L 4"),
    "count01": ("count01 --N 9", "count01"),
    "modular": ("modular --modulus 5",) * 2,
    "addition": ("addition --digits 2",) * 2,
    "lstm": ("inductive --model lstm --task modular --modulus 3",) * 2,
    "selective": ("inductive --task selective --model rnn --types 2 --max-count 2",) * 2,
}
CASES = [
    ("parity", "W_2", 0, TOP, "--precision float32", None),  # the right logit is -inf
    ("parity", "b_1", ..., 3e38, "--precision tf32", None),
    ("histogram", "W_2", 1, TOP, "--precision float32", None),
    ("histogram", "W_2", ..., 3e38, "--precision bfloat16", None),  # two logits are infinite
    ("count01", "W_O", 0, 1e308, "--precision float64", None),
    ("modular", "layers.0.W_2", 0, 3e38, "--precision tf32", None),
    ("addition", "W_out", ..., TOP, "--precision tf32", None),
    ("count01", "W_O", 0, -1e308, "", -1.7976931348623157e308),  # beyond all floats
    ("modular", "layers.0.W_2", 1, 1e308, "", -1.7976931348623157e308),
    ("addition", "layers.0.W_1", 2, 1e308, "", -1.7976931348623157e308),
    ("count01", "b_out", ..., -4.149515568880993e180, "", -8.655292893150024),  # floats see a tie of all classes
    ("lstm", "readout.weight", 14, 2.0**64, "", -1.4048932475870181e19),
    ("selective", "readout.weight", 10, 2.0**64, "", -1.844674407370955e19),
    ("lstm", "cell.weight_hh_l0", ..., 2.0**64, "--precision bfloat16", 0.0),  # a sigmoid is below all numbers
]


def changed(capsys, tmp_path, name, tensor, place, value):
    """The folder of a built model with one number, or a whole tensor, set to a value."""
    assert run(capsys, *BUILT[name][0].split(), "--save", str(tmp_path / "built"))[0] in (0, 1)
    weights = load_file(tmp_path / "built" / "weights.safetensors")
    weights[tensor].view(-1)[place] = torch.tensor(value, dtype=torch.float64).to(weights[tensor].dtype)
    save_file(weights, tmp_path / "changed.safetensors")
    return tmp_path / "changed.safetensors"


@pytest.mark.parametrize(("name", "tensor", "place", "value", "options", "margin"), CASES)
def test_a_run_that_overflows_is_checked(capsys, tmp_path, name, tensor, place, value, options, margin):
    file, out = changed(capsys, tmp_path, name, tensor, place, value), tmp_path / "out"
    argv = [*BUILT[name][1].split(), *options.split(), "--weights", str(file), "--save", str(out), "--json"]
    code, said, _ = run(capsys, *argv)
    assert code == 1
    found = json.loads(said)["margin"]
    assert found is None if margin is None else found == pytest.approx(margin, rel=1e-9)
    assert run(capsys, "check", str(out))[0] == 0
    certificate = json.loads((out / "certificate.json").read_text())
    lower = 2 * found if name in ("lstm", "selective") and found else found / 2 if found else -1.5
    for other in (lower, -1e307 if found is None else None):
        (out / "certificate.json").write_text(json.dumps(certificate | {"margin": other}))
        assert run(capsys, "check", str(out))[0] != 0


def test_weights_that_no_float_holds_are_no_bug_of_ours(capsys, tmp_path):
    """A value of 1e346 in exact arithmetic, in a format where it overflows."""
    file = changed(capsys, tmp_path, "count01", "W_V", ..., -1e308)
    weights = load_file(file)
    weights["W_K"].view(-1)[0], weights["W_O"].view(-1)[0] = 3e38, 1e308
    save_file(weights, file)
    code, found = as_json(capsys, "count01", "--weights", str(file), "--precision", "float64")
    assert code == 1 and found["margin"] is None


@pytest.mark.parametrize("size", [2.0**-130, 2.0**-127, 2.0**-126, 2.0**-120, 1.0])
def test_a_last_place_is_at_least_that_of_subnormal_numbers(size):
    """In bfloat16 it is 2^-133 below 2^-126: one result within 2 of them, or flushed, and none that is farther."""
    run = object.__new__(ReplayedRun)
    run.fmt = BinaryFormat(8, -126, 127)
    run.tiny, place, exact = arb(2) ** -126, max(size * 2.0**-7, 2.0**-133), arb(size) * 1.25
    for places in (-1.9, -1.0, 0.0, 1.9):
        run.are_near([exact], [1.25 * size + places * place])
    for y in (1.25 * size + 2.2 * place, 1.25 * size - 2.2 * place):
        with pytest.raises(Refusal):
            run.are_near([exact], [y])
    if 1.25 * size < 2.0**-126:
        run.are_near([exact], [0.0])
    else:
        with pytest.raises(Refusal):
            run.are_near([exact], [0.0])


def test_a_margin_of_a_saved_run_that_overflows_is_not_checked():
    """Its logits are finite, and their difference is not."""
    c = {"run": {"numbers": [[0.0]], "logits": [-1.7e308, 1.7e308]}, "margin": -1.7976931348623157e308}
    with pytest.raises(Refusal) as told:
        check_run(c, 0, 1, 1)
    assert told.value.exit_code == NOT_CHECKABLE
    c["run"]["logits"] = [-1.0, 1.0]
    with pytest.raises(Refusal) as told:
        check_run(c, 0, 1, 1)
    assert told.value.exit_code == FAILS
