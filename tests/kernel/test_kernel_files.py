"""What `verify kernel` writes, what it refuses, and what it reads of coqc's answer; none of it needs coqc."""

import json
import math
import re
import shutil

import pytest
import torch
from command import as_json, run
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save as to_bytes

from constructions import relation_counting
from constructions.checkpoint import as_bytes
from constructions.errors import BadInput
from tests.some import some
from verify.kernel.compiler import SOURCES, required_by, sources
from verify.kernel.stored import WORD_FORMATS, read_saved, read_weights
from verify.kernel.theorem import rounded_margins, state


@pytest.fixture
def saved(tmp_path, capsys):
    folder = str(tmp_path / "proof")
    assert run(capsys, "histogram", "--model", "dot", "--T", "4", "--L", "3", "--save", folder)[0] == 0
    return folder


def test_the_words_are_the_files(saved):
    stored = read_saved(saved)
    module = relation_counting.dot(T=4, L=3)
    for name, parameter in module.named_parameters():
        words = parameter.detach().view(torch.int32).reshape(-1).tolist()
        assert [word for row in stored.words[name] for word in row] == [word % 2**32 for word in words]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_denominator_is_the_least(value):
    word = torch.tensor([value], dtype=torch.float32).view(torch.int32).item() % 2**32
    assert 2 ** WORD_FORMATS["F32"].denominator_bits(word) == value.as_integer_ratio()[1]


@pytest.mark.parametrize("dtype, format", [("float16", "F16"), ("bfloat16", "BF16"), ("float64", "F64")])
def test_the_denominator_in_every_format(dtype, format):
    values = torch.tensor([1.0, 0.1, -3.5, 2.0**-20, 0.0, 100.0], dtype=getattr(torch, dtype))
    width = {"float64": torch.int64}.get(dtype, torch.int16)
    for value, word in zip(values.tolist(), values.view(width).tolist(), strict=True):
        word %= 2 ** WORD_FORMATS[format].width
        assert 2 ** WORD_FORMATS[format].denominator_bits(word) == value.as_integer_ratio()[1]


def test_infinity_has_no_denominator():
    with pytest.raises(BadInput, match="NaN or infinite"):
        WORD_FORMATS["F32"].denominator_bits(0x7F800000)


@given(st.lists(st.floats(1e-12, 1e3), min_size=3, max_size=3))
def test_margins_are_rounded_down_and_not_far(margins):
    stored = read_weights(as_bytes(relation_counting.dot(T=4, L=3), claim=None, construction=None), margins)
    rounded, shift = rounded_margins(stored, stored.denominator_bits)
    for n, margin in zip(rounded, margins, strict=True):
        assert 0 < math.ldexp(n, -shift) <= margin < math.ldexp(n, -shift) * (1 + 2**-38)


def test_the_theorem_states_the_file(saved):
    theorem = state(read_saved(saved))
    assert theorem.name == "dot_T4_L3_d4_p1_counts"
    for part in ("file_T := 4%nat", "file_L := 3%nat", "file_classes := 3%nat", "file_kind := Dot", theorem.statement):
        assert part in theorem.text
    assert "0x3f800000" in theorem.text and "Admitted" not in theorem.text


@pytest.mark.parametrize("claim", ["*) Axiom wish : False. (*", "A-4.2\n", "(*", "x" * 99])
def test_a_claim_in_the_file_cannot_leave_its_comment(claim):
    data = as_bytes(relation_counting.dot(T=4, L=3), claim=claim, construction=None)
    text = state(read_weights(data, [0.4])).text
    assert "claim" not in text
    assert text.count("(*") == text.count("*)") == 4


@pytest.mark.parametrize("shape", [(), (0,), (1, 0), (1, 1, 3)])
def test_tensors_of_other_shapes_are_refused(shape):
    about = {"weightproof": json.dumps({"model": "dot", "T": 4, "L": 3, "d": 4, "p": 1, "first_count": 1})}
    tensors = dict(relation_counting.dot(T=4, L=3).state_dict())
    assert read_weights(to_bytes(tensors, metadata=about), [0.4])
    for name in tensors:
        with pytest.raises(BadInput, match="shape|classes"):
            read_weights(to_bytes({**tensors, name: torch.zeros(shape)}, metadata=about), [0.4])


def test_out_and_json(saved, tmp_path, capsys):
    out = str(tmp_path / "dot.v")
    code, about = as_json(capsys, "kernel", saved, "--out", out)
    assert code == 0 and about["file"] == out and about["verdict"] is None
    text = (tmp_path / "dot.v").read_text()
    assert about["statement"] in text
    assert run(capsys, "kernel", saved)[1] == text


@pytest.mark.parametrize(
    "key, value, says",
    [
        ("verdict", "REFUTED", "Only what is proved"),
        ("task", "addition", "histogram models"),
        ("task", "parity", "task is"),
        ("task", "count01", "knows Count01"),
        ("reading", "dtype, any order", "speaks of runs in"),
        ("reading", "float32", "without --precision"),
        ("weights_sha256", "0", "other weights"),
        ("margin_per_count", [1.0, 0.0, 1.0], "positive"),
        ("margin_per_count", [1.0, 1.0], "their least"),
    ],
)
def test_a_certificate_that_is_no_proof_is_refused(saved, capsys, key, value, says):
    path = f"{saved}/certificate.json"
    with open(path) as file:
        about = json.load(file)
    with open(path, "w") as file:
        json.dump(about | {key: value}, file)
    code, out, err = run(capsys, "kernel", saved)
    assert code == 2 and out == "" and says in err and err.count("\n") == 1


def test_bad_places_are_refused(tmp_path, saved, capsys):
    assert run(capsys, "kernel", str(tmp_path / "nothing"))[0] == 2
    assert run(capsys, "kernel", saved, "--out", str(tmp_path / "no" / "file.v"))[0] == 2
    with open(f"{saved}/weights.safetensors", "wb") as file:
        file.write(b"rubbish")
    assert run(capsys, "kernel", saved)[0] == 2


def test_without_coqc_the_command_says_how_to_install_it(saved, capsys, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, out, err = run(capsys, "kernel", saved, "--run")
    assert code == 2 and "apt-get install coq" in err and out == ""


def test_no_source_admits_anything():
    """No Admitted, no axiom of our own, and nothing that turns off one of the kernel's checks."""
    forbidden = re.compile(
        r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|Declare ML Module|bypass_check"
        r"|Unset (Guard|Positivity|Universe) Checking|native_compute|Abort)\b"
    )
    for path in some(SOURCES.glob("*.v")):
        text = re.sub(r"\(\*.*?\*\)", "", path.read_text(), flags=re.DOTALL)
        assert not forbidden.search(text), path
        inside = 0  # Variable and Hypothesis are assumptions of a section, and axioms outside
        for line in text.splitlines():
            inside += line.startswith("Section ")
            inside -= line.startswith("End ")
            assert inside or not re.match(r"\s*(Variables?|Hypothes[ie]s|Context)\b", line), (path, line)


def test_sources_come_after_what_they_require():
    order = list(sources())
    for name, needs in sources().items():
        assert all(order.index(need) < order.index(name) for need in needs)
    assert "Model" in required_by(["Correct"]) and required_by(["Correct"])[-1] == "Correct"
