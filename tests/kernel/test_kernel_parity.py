"""Saved proofs of parity models as theorems: what is accepted, and what is refused."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from command import as_json, run
from models.kernel import accepted, mutated, needs_coqc

from constructions.parity import as_bytes, sawtooth
from verify.frame.certificate import Verdict
from verify.frame.decide import certify
from verify.kernel.compiler import ALLOWED_AXIOMS
from verify.kernel.stored import read_saved, read_weights
from verify.kernel.theorem import check_inputs
from verify.tasks.parity.task import Parity


@pytest.fixture
def saved(tmp_path, capsys):
    folder = tmp_path / "proof"
    assert run(capsys, "parity", "--T", "3", "--L", "4", "--save", str(folder))[0] == 0
    return folder


def changed(folder, **fields):
    about = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps(about | fields))


def test_the_theorem_says_every_word_of_the_file(saved, capsys):
    module, stored = sawtooth(T=3, L=4), read_saved(str(saved))
    for name, parameter in module.named_parameters():
        words = parameter.detach().view(torch.int64).reshape(-1).tolist()
        assert [word for row in stored.words[name] for word in row] == [word % 2**64 for word in words]
    text = run(capsys, "kernel", str(saved))[1]
    for part in ("file_kind := Parity", "file_T := 3%nat", "file_L := 4%nat", "file_classes := 2%nat"):
        assert part in text
    margin, shift = int(re.search(r"margin : Z := (\d+)", text)[1]), int(re.search(r"weights margin (\d+)\.", text)[1])
    assert 0 < margin / 2**shift <= json.loads((saved / "certificate.json").read_text())["margin"]


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"task": "histogram"}, "task is"),
        ({"parameters": {"T": 3, "L": 3, "d": 4, "p": 3, "dtype": "float64"}}, "parameters"),
        ({"inputs_covered": "82"}, "inputs_covered"),
        ({"weights_sha256": "0"}, "other weights"),
        ({"margin_per_count": [1.0] * 4, "margin": 1.0}, "margin_per_count"),
        ({"margin": 0.0}, "positive"),
        ({"reading": "dtype, any order"}, "speaks of runs in"),
        ({"verdict": "UNKNOWN"}, "Only what is proved"),
        ({"reason": "the time is up"}, "Only what is proved"),
        ({"schema": "weightproof/2"}, "schema"),
        ({"PROVED in Coq's kernel": 1}, "field"),
    ],
)
def test_a_certificate_of_anything_else_is_refused(saved, capsys, fields, says):
    changed(saved, **fields)
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and says in err and err.count("\n") == 1


def test_an_alphabet_of_one_token_is_refused_as_by_the_checker(tmp_path, capsys):
    assert run(capsys, "parity", "--T", "1", "--L", "3", "--save", str(tmp_path / "one"))[0] == 0
    for command in (("check",), ("kernel",)):
        assert run(capsys, *command, str(tmp_path / "one"))[0] != 0


@pytest.mark.parametrize("L", [0, 5, (1 << 15) + 1, 10**9, 10**30])
def test_another_length_is_refused(L, saved, capsys):
    """No tensor's shape knows L: another one is another theorem, and one beyond all models is not computed with."""
    path = saved / "weights.safetensors"
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + n].replace(b'\\"L\\": 4', rb"\"L\": %d" % L)
    assert header != raw[8 : 8 + n]
    raw = len(header).to_bytes(8, "little") + header + raw[8 + n :]
    path.write_bytes(raw)
    changed(saved, weights_sha256=hashlib.sha256(raw).hexdigest())
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and err.count("\n") == 1 and ("metadata" in err or "parameters" in err)


def stored_of(module, margin):
    return read_weights(as_bytes(module), [margin])


@needs_coqc
@pytest.mark.deep
def test_mutated_models_are_accepted_exactly_where_verify_proves_them():
    models = [mutated(sawtooth(T=4, L=4), seed) for seed in range(36)]
    found = [certify(Parity(module)) for module in models]
    inputs = [
        check_inputs(stored_of(module, x.margin if x.verdict is Verdict.PROVED else 2.0**-30))
        for module, x in zip(models, found, strict=True)
    ]
    is_proved = [x.verdict is Verdict.PROVED for x in found]
    assert 8 < sum(is_proved) < 28
    assert accepted(inputs) == is_proved


@needs_coqc
@pytest.mark.deep
def test_another_file_or_margin_is_refused():
    """A wrong word, shape, size, kind or margin: none is accepted."""
    stored = stored_of(sawtooth(T=3, L=4), 0.999)
    words, sizes = stored.words, stored.sizes
    sign = words["W_2"][0][0] ^ (1 << 63)

    def with_words(name, rows):
        return dataclasses.replace(stored, words={**words, name: rows})

    wrong = [
        with_words("W_2", ((sign, *words["W_2"][0][1:]), *words["W_2"][1:])),
        with_words("W_2", (words["W_2"][0][:1], *words["W_2"][1:])),
        with_words("E", words["E"][:-1]),
        with_words("W_Q", ()),
        with_words("b_2", ((words["b_2"][0][1], words["b_2"][0][0]),)),
        *(
            dataclasses.replace(stored, sizes={**sizes, name: sizes[name] + 1})
            for name in ("T", "L", "d", "p", "classes")
        ),
        dataclasses.replace(stored, margins=(1.001,) * 4),
        dataclasses.replace(stored, margins=(1.0 + 2.0**-30,) * 4),
    ]
    right = check_inputs(stored)
    inputs = [check_inputs(x) for x in wrong]
    of_others = ("file_kind := Dot", "file_kind := Bos", "file_kind := Lin")
    inputs += [dataclasses.replace(right, weights=right.weights.replace("file_kind := Parity", x)) for x in of_others]
    is_soft = right.weights.replace("file_softmax := false", "file_softmax := true")
    inputs += [dataclasses.replace(right, weights=is_soft), dataclasses.replace(right, margins="0")]
    as_counts = dataclasses.replace(right, check="check", margins=f"[{'; '.join([right.margins] * 4)}]")
    assert accepted([right, *inputs, as_counts]) == [True] + [False] * (len(inputs) + 1)


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("T, L, dtype", [(4, 3, "float64"), (32, 10, "float32"), (2, 16, "bfloat16")])
def test_a_saved_proof_becomes_a_theorem(T, L, dtype, tmp_path, capsys):
    folder = str(tmp_path / "proof")
    module = sawtooth(T=T, L=L, dtype=getattr(torch, dtype))
    Path(tmp_path, "model.safetensors").write_bytes(as_bytes(module))
    code, _, err = run(capsys, "parity", "--weights", str(tmp_path / "model.safetensors"), "--save", folder)
    assert code == 0, err
    code, about = as_json(capsys, "kernel", folder, "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["seconds"] < 20
    assert about["statement"].startswith("file_tells_parity weights margin ") and set(about["axioms"]) <= ALLOWED_AXIOMS
