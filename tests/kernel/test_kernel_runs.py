"""Saved proofs of parity models in a format as theorems: what is accepted, and what is refused, of dot models too."""

import dataclasses
import json
import re

import pytest
import torch
from command import as_json, run
from models.kernel import accepted, mutated, needs_coqc

from constructions.parity import as_bytes, sawtooth
from verify.arithmetic.readings import reading_of
from verify.frame.certificate import Verdict
from verify.frame.decide import certify
from verify.kernel.compiler import ALLOWED_AXIOMS
from verify.kernel.stored import read_saved, read_weights
from verify.kernel.theorem import check_inputs
from verify.tasks.parity.task import Parity

MODELS = {
    "parity": ("parity", "--T", "3", "--L", "4"),
    "dot": ("histogram", "--model", "dot", "--T", "4", "--L", "3", "--d", "4"),
}


def save(capsys, folder, *options, model="parity"):
    assert run(capsys, *MODELS[model], *options, "--save", str(folder))[0] == 0
    return folder


@pytest.fixture
def saved(tmp_path, capsys):
    return save(capsys, tmp_path / "proof", "--precision", "float32")


@pytest.mark.parametrize(
    "options",
    [("float64",), ("float32",), ("float16",), ("bfloat16",), ("bfloat16", "float32"), ("float16", "float32")],
)
def test_the_theorem_names_the_format_and_half_of_the_margin(options, tmp_path, capsys):
    save(capsys, tmp_path / "proof", "--precision", options[0], *(("--accumulate", *options[1:]) * (len(options) - 1)))
    text = run(capsys, "kernel", str(tmp_path / "proof"))[1]
    margin = int(re.search(r"margin : Z := (\d+)", text)[1])
    shift = int(re.search(rf": file_tells_parity_in {options[0]} weights margin (\d+)\.", text)[1])
    said = json.loads((tmp_path / "proof" / "certificate.json").read_text())["margin"]
    assert said / 2 * (1 - 2**-38) <= margin / 2**shift <= said / 2
    assert f"(check_parity_in_correct {options[0]} weights" in text and "RunsCorrect." in text


@pytest.mark.parametrize("options", [("tf32",), ("p12",), ("p24",)])
def test_a_format_that_no_file_has_is_refused(options, tmp_path, capsys):
    folder = save(capsys, tmp_path / "proof", "--precision", *options)
    code, out, err = run(capsys, "kernel", str(folder))
    assert code == 2 and out == "" and "speaks of runs in" in err and err.count("\n") == 1


OTHER_FORMATS = [{"precision": "tf32"}, {"precision": None}, {"precision": ["float32"]}, {"accumulate": "bfloat16"},
                 {"accumulate": "float16"}, {"accumulate": None}]  # fmt: skip
OTHER_SIZES = [({"rounding": "once"}, {"dtype": "float32"}, {"T": 4}),
               ({"rounding": "once"}, {"dtype": "float64"}, {"model": "parity"}, {"d": 5})]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "fields", "says"),
    [(model, fields, "speaks of runs in") for model in MODELS for fields in OTHER_FORMATS]
    + [(model, x, "parameters") for model, fields in zip(MODELS, OTHER_SIZES, strict=True) for x in fields],
)
def test_other_formats_than_the_runs_are_refused(model, fields, says, tmp_path, capsys):
    saved = save(capsys, tmp_path / "proof", "--precision", "float32", model=model)
    about = json.loads((saved / "certificate.json").read_text())
    about["parameters"] |= fields
    (saved / "certificate.json").write_text(json.dumps(about))
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and says in err and err.count("\n") == 1


@pytest.mark.parametrize("parameters", [None, [], {}])
def test_a_run_without_its_format_is_refused(saved, capsys, parameters):
    about = json.loads((saved / "certificate.json").read_text())
    (saved / "certificate.json").write_text(json.dumps(about | {"parameters": parameters}))
    assert run(capsys, "kernel", str(saved))[0] == 2


def test_a_real_proof_is_not_one_in_a_format(saved, capsys):
    about = json.loads((saved / "certificate.json").read_text())
    (saved / "certificate.json").write_text(json.dumps(about | {"reading": "real"}))
    code, _, err = run(capsys, "kernel", str(saved))
    assert code == 2 and "parameters" in err


def stored_of(module, margin, name):
    return dataclasses.replace(read_weights(as_bytes(module), [margin]), run_in=name)


@needs_coqc
@pytest.mark.deep
def test_mutated_models_are_accepted_exactly_where_verify_proves_them():
    """In 32 and 64 bits; in 16 bits the check knows less of what is exact, and accepts no other ones."""
    names = ["float32"] * 28 + ["float64"] * 14 + ["float16"] * 7 + ["bfloat16"] * 7
    models = [mutated(sawtooth(T=4, L=4, dtype=getattr(torch, name)), seed) for seed, name in enumerate(names)]
    found = [certify(Parity(x), reading=reading_of(name)) for x, name in zip(models, names, strict=True)]
    is_proved = [x.verdict is Verdict.PROVED for x in found]
    margins = [x.margin if x.verdict is Verdict.PROVED else 2.0**-30 for x in found]
    stored = map(stored_of, models, margins, names)
    is_accepted = accepted(map(check_inputs, stored), in_a_format=True)
    assert 15 < sum(is_proved[:42]) < 35 and is_accepted[:42] == is_proved[:42]
    assert all(proved or not kernel for proved, kernel in zip(is_proved[42:], is_accepted[42:], strict=True))
    assert any(is_accepted[42:])


@needs_coqc
@pytest.mark.deep
def test_another_file_format_or_margin_is_refused(saved):
    """More than the margin, a sum that may overflow, a word that the format has not or may flush, a wrong shape."""
    stored = read_saved(str(saved))
    words, sizes = stored.words, stored.sizes
    right = check_inputs(stored)

    def with_word(name, row, column, value):
        rows = [list(x) for x in words[name]]
        rows[row][column] = torch.tensor([value], dtype=torch.float64).view(torch.int64).item() % 2**64
        return dataclasses.replace(stored, words={**words, name: tuple(map(tuple, rows))})

    wrong = [
        dataclasses.replace(stored, margins=(2.001,) * 4),
        with_word("W_2", 0, 0, -1.0),
        with_word("b_1", 0, 0, 2.0**-140),  # subnormal in float32
        with_word("b_1", 0, 0, 2.0**128),
        with_word("E", 0, 0, 1 + 2.0**-30),  # no number of float32
        with_word("W_Q", 0, 1, 2.0**126),  # a score may overflow
        dataclasses.replace(stored, words={**words, "W_Q": words["W_Q"][:-1]}),
        *(dataclasses.replace(stored, sizes={**sizes, name: sizes[name] + 1}) for name in ("T", "L", "d", "p")),
    ]
    inputs = [check_inputs(x) for x in wrong]
    inputs += [dataclasses.replace(right, weights=right.weights.replace("file_kind := Parity", "file_kind := Dot"))]
    inputs += [dataclasses.replace(right, margins="0")]
    harmless = check_inputs(with_word("b_1", 0, 0, -2.0 - 2.0**-22))  # in float32, but with too many bits for bfloat16
    longer = stored_of(sawtooth(T=2, L=18), 0.9, "bfloat16")  # whose logits have more bits than bfloat16
    in_16_bits = dataclasses.replace(harmless, check="check_parity_in bfloat16")
    found = accepted([right, harmless, in_16_bits, check_inputs(longer), *inputs], in_a_format=True)
    assert found == [True, True, False, False] + [False] * len(inputs)


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("options", [("float32",), ("bfloat16", "--accumulate", "float32")])
def test_a_saved_proof_becomes_a_theorem(options, tmp_path, capsys):
    folder = save(capsys, tmp_path / "proof", "--precision", *options)
    code, about = as_json(capsys, "kernel", str(folder), "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["seconds"] < 20
    assert about["statement"].startswith(f"file_tells_parity_in {options[0]} weights margin ")
    assert set(about["axioms"]) <= ALLOWED_AXIOMS
