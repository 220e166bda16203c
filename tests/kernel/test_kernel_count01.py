"""Saved proofs of Count01 models with one head as theorems: what is accepted, and what is refused."""

import dataclasses
import json
import re
import shutil

import pytest
import torch
from command import as_json, run
from models.kernel import answered, needs_coqc

from constructions.count01 import Count01Transformer, as_bytes, documents, uniform
from verify.commands.cli import main
from verify.kernel.compiler import ALLOWED_AXIOMS, library
from verify.kernel.prompts import PREAMBLE, check_of, read_prompts
from verify.kernel.stored import read_folder

BOUNDED = ("--N", "6", "--max-digits", "40", "--max-noise", "10")


def saved_by(capsys, folder, *options):
    assert run(capsys, "count01", *options, "--save", str(folder))[0] == 0
    return folder


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel") / "proof"
    assert main(["count01", *BOUNDED, "--save", str(folder)]) == 0
    return folder


@pytest.fixture
def saved(proof, tmp_path):
    """A copy for each test, which may write into it."""
    return shutil.copytree(proof, tmp_path / "proof")


def read(folder):
    return read_prompts(str(folder), *read_folder(str(folder)))


def accepted(checks):
    """For each check whether it says true, from one run of coqc."""
    return answered([check.call for check in checks], PREAMBLE, library(("PromptsCorrect",))[0])


def test_the_theorem_says_every_word_and_the_region(saved, capsys):
    stored, module = read(saved), documents(6)
    for name, words in stored.words.items():
        tensor = getattr(module, name).detach().view(torch.int64).reshape(-1).tolist()
        assert [word for row in words for word in row] == [word % 2**64 for word in tensor]
    text = run(capsys, "kernel", str(saved))[1]
    margin, shift = map(int, re.search(r"weights \(Some 40\) \(Some 10\) false false (\d+) (\d+)\.", text).groups())
    said = json.loads((saved / "certificate.json").read_text())["margin"]
    assert said * (1 - 2**-30) <= margin / 2**shift <= said


def set_parameter(**fields):
    return lambda about: about["parameters"].update(fields)


@pytest.mark.parametrize(
    "forge",
    [
        set_parameter(max_digits=41),
        set_parameter(max_noise=None),
        set_parameter(max_digits=True),
        set_parameter(max_length=20),
        set_parameter(min_digits=1),
        set_parameter(semantic_only=True),
        set_parameter(heads=2),
        set_parameter(d=2),
        set_parameter(skip=False),
        set_parameter(dtype="float32"),
        set_parameter(labels="majority"),
        lambda about: about.update(inputs_covered="infinite"),
        lambda about: about.update(region="all n0, n1, all n2"),
        lambda about: about.update(margin=-1.0),
        lambda about: about.update(margin_scaled=1.0),
        lambda about: about.update(margin=None),
        lambda about: about.update(reading="dtype, any order"),
        lambda about: about.update(verdict="REFUTED"),
        lambda about: about.update(weights_sha256="0"),
        lambda about: about.update(assumptions=["none"]),
        lambda about: about.update(inputs_are="strings"),
        lambda about: about.update(task="parity"),
        lambda about: about.update(parameters=[]),
        lambda about: about.update(schema=1),
        lambda about: about.update({"x\n": 1}),
    ],
)
def test_a_certificate_of_anything_else_is_refused(saved, capsys, forge):
    about = json.loads((saved / "certificate.json").read_text())
    forge(about)
    (saved / "certificate.json").write_text(json.dumps(about))
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and err.count("\n") == 1


@pytest.mark.parametrize(
    "module",
    [
        Count01Transformer(heads=2),
        Count01Transformer(norm=True),
        Count01Transformer(scale=4),
    ],
)
def test_other_models_are_refused(saved, capsys, module):
    (saved / "weights.safetensors").write_bytes(as_bytes(module))
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and "Count01" in err and err.count("\n") == 1


def widened(narrow):
    """The same function with d = 3 and d_h = 2: tensors times rows and columns, no two entries of which are equal."""
    tokens, into = torch.tensor([[1.0, 2.0, -1.0]]).double(), torch.tensor([[-1.0], [1.0], [0.0]]).double()
    wide = Count01Transformer(d=3, d_h=2, skip=narrow.has_skip)
    queries, keys, values = (torch.tensor([row]).double() for row in ([1.0, -2.0], [3.0, 1.0], [0.5, 2.0]))
    with torch.no_grad():
        wide.E.copy_(narrow.E @ tokens)
        for name, of_head in (("W_Q", queries), ("W_K", keys), ("W_V", values)):
            getattr(wide, name).copy_(into @ getattr(narrow, name)[0] @ of_head)
        wide.W_O.copy_(torch.tensor([[-2.0], [1.0]]).double() @ narrow.W_O[0] @ tokens)
        wide.W_out.copy_(into @ narrow.W_out)
        wide.b_out.copy_(narrow.b_out)
    return wide


def test_widening_changes_no_logit():
    tokens = torch.tensor([[0, 1, 2, 2, 3, 4]])
    for narrow in (uniform(), documents(5)):
        assert torch.allclose(narrow(tokens), widened(narrow)(tokens), rtol=1e-12, atol=1e-12)


def mutated(seed):
    """A construction, one in four of them widened, with one weight changed, by a little, by much, or in sign."""
    g = torch.Generator().manual_seed(seed)
    module = uniform() if seed % 3 == 0 else documents(5 + seed % 2)
    module = widened(module) if seed % 4 == 3 else module
    with torch.no_grad():
        names = ("E", "W_Q", "W_K", "W_V", "W_O", "W_out", "b_out")
        weights = getattr(module, names[seed % 7]).view(-1)
        i = int(torch.randint(len(weights), (1,), generator=g))
        weights[i] = [weights[i] + 2.0**-8, weights[i] * 1.02 - 0.01, weights[i] + 1, -weights[i], 0.3][seed % 5]
    return module


@needs_coqc
@pytest.mark.deep
def test_mutated_models_are_accepted_exactly_where_verify_proves_them(tmp_path, capsys):
    """A refuted one is put in place of a proved one, with the margin of that as small as floats go."""
    claimed = read(saved_by(capsys, tmp_path / "first", *BOUNDED[2:], "--N", "6"))
    checks, is_proved = [], []
    for seed in range(34):
        path, folder = tmp_path / f"{seed}.safetensors", tmp_path / f"proof{seed}"
        path.write_bytes(as_bytes(mutated(seed)))
        options = BOUNDED[2:] if seed % 2 else ("--max-digits", "3", "--max-noise", "2")
        code, *_ = run(capsys, "count01", "--weights", str(path), *options, "--save", str(folder))
        is_proved.append(code == 0)
        if code:  # its words with a claim as weak as any: the same region, a margin of 2^-60
            about = json.loads((folder / "certificate.json").read_text())
            p = about["parameters"]
            about |= {"verdict": "PROVED", "counterexample": None, "margin": 2.0**-60, "reason": None}
            about |= {"inputs_covered": str((p["max_digits"] + 1) ** 2 * (p["max_noise"] + 1) * 3)}
            (folder / "certificate.json").write_text(json.dumps(about))
        checks.append(check_of(read(folder))[0])
    assert claimed.digits == 40 and 8 < sum(is_proved) < 30
    assert accepted(checks) == is_proved


@needs_coqc
@pytest.mark.deep
def test_more_than_the_certificate_says_is_refused(saved, tmp_path, capsys):
    stored = read(saved)
    sign = stored.words["W_out"][0][5] ^ (1 << 63)

    def with_words(name, rows):
        return dataclasses.replace(stored, words={**stored.words, name: rows})

    wrong = [
        dataclasses.replace(stored, margin=stored.margin * 1.001),
        dataclasses.replace(stored, noise=10**6),
        dataclasses.replace(stored, noise=None),
        dataclasses.replace(stored, is_thesis=True),
        dataclasses.replace(stored, is_skipped=False),
        with_words("W_out", ((*stored.words["W_out"][0][:5], sign, *stored.words["W_out"][0][6:]),)),
        with_words("b_out", (stored.words["b_out"][0][:-1],)),
        with_words("E", stored.words["E"][:-1]),
        *(dataclasses.replace(stored, sizes={**stored.sizes, name: 2}) for name in ("d", "d_h")),
        dataclasses.replace(stored, sizes={**stored.sizes, "classes": 9}),
    ]
    unbounded = read(saved_by(capsys, tmp_path / "uniform", "--construction", "uniform"))
    wrong.append(dataclasses.replace(unbounded, is_over_sum=False))
    wrong.append(dataclasses.replace(unbounded, margin=0.5000001))
    checks = [check_of(x)[0] for x in (stored, unbounded, *wrong)]
    checks.append(dataclasses.replace(checks[0], scale=checks[0].scale - 1))
    checks.append(dataclasses.replace(checks[0], claim=re.sub(r"false \d+", "false 0", checks[0].claim)))
    assert accepted(checks) == [True, True] + [False] * (len(checks) - 2)


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize(
    "options",
    [
        ("--N", "10"),
        ("--construction", "uniform"),
        ("--construction", "uniform", "--dtype", "bfloat16", "--labels", "thesis"),
    ],
)
def test_a_saved_proof_becomes_a_theorem(options, tmp_path, capsys):
    saved_by(capsys, tmp_path / "proof", *options)
    code, about = as_json(capsys, "kernel", str(tmp_path / "proof"), "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["seconds"] < 30
    assert about["statement"].startswith("file_answers weights ") and set(about["axioms"]) <= ALLOWED_AXIOMS


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_least_subnormal_and_minus_zero_are_numbers_of_the_theorem(dtype, tmp_path, capsys):
    module, path = uniform(dtype=dtype), tmp_path / "model.safetensors"
    with torch.no_grad():
        module.W_out[0, :3] = torch.nextafter(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))
        module.b_out[:3] = -0.0
    path.write_bytes(as_bytes(module))
    folder = saved_by(capsys, tmp_path / "proof", "--weights", str(path), "--max-digits", "9", "--max-noise", "4")
    stored = read(folder)
    assert stored.words["W_out"][0][:3] == (1,) * 3
    assert stored.words["b_out"][0][:3] == (1 << (stored.format.width - 1),) * 3
    check = check_of(stored)[0]
    assert accepted([check, dataclasses.replace(check, scale=check.scale - 1)]) == [True, False]
