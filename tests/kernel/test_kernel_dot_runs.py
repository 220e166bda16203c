"""Saved proofs of dot models in a format as theorems: what is accepted, and what is refused."""

import dataclasses
import json
import re
import shutil
import subprocess

import pytest
import torch
from command import as_json, run
from models.kernel import accepted, mutated, needs_coqc

from constructions import inventory_counting, relation_counting
from constructions.checkpoint import as_bytes
from verify.arithmetic.formats import FORMATS
from verify.frame.certificate import Verdict
from verify.kernel.compiler import ALLOWED_AXIOMS, library, run_coqc
from verify.kernel.stored import read_weights
from verify.kernel.theorem import OF_RUNS, PREAMBLE, check_inputs
from verify.tasks.histogram.rounded.verdict import certify


def save(capsys, folder, *options):
    sizes = ("--T", "4", "--L", "3", "--d", "4")
    assert run(capsys, "histogram", "--model", "dot", *sizes, *options, "--save", str(folder))[0] == 0
    return folder


@pytest.mark.parametrize("options", [("float64",), ("float32",), ("bfloat16",), ("float16", "float32")])
def test_the_theorem_names_the_format_and_half_of_the_margins(options, tmp_path, capsys):
    save(capsys, tmp_path / "proof", "--precision", options[0], *(("--accumulate", *options[1:]) * (len(options) - 1)))
    text = run(capsys, "kernel", str(tmp_path / "proof"))[1]
    margins = [int(n) for n in re.search(r"margins : list Z := \[(.*)\]", text)[1].split(";")]
    shift = int(re.search(rf"_counts_in_{options[0]} : file_counts_in {options[0]} weights margins (\d+)\.", text)[1])
    said = json.loads((tmp_path / "proof" / "certificate.json").read_text())["margin_per_count"]
    for n, margin in zip(margins, said, strict=True):
        assert margin / 2 * (1 - 2**-38) <= n / 2**shift <= margin / 2
    assert f"(check_in_correct {options[0]} weights" in text and "RunsCorrect." in text


@pytest.mark.parametrize("model", ["lin", "bos", "dot+sftm"])
def test_runs_of_other_models_are_not_defined(model, tmp_path, capsys):
    folder = str(tmp_path / "proof")
    assert (
        run(capsys, "histogram", "--model", model, "--T", "4", "--L", "3", "--precision", "float32", "--save", folder)[
            0
        ]
        == 0
    )
    code, out, err = run(capsys, "kernel", folder)
    assert code == 2 and out == "" and "real arithmetic alone" in err and err.count("\n") == 1


def stored_of(module, margins, name):
    return dataclasses.replace(read_weights(as_bytes(module, claim=None, construction=None), margins), run_in=name)


def built(seed, name):
    """One of two constructions in a format, at d = 4, 5 or 8."""
    build = [relation_counting.dot, inventory_counting.dot][seed % 2]
    return build(T=4, L=4, d=[4, 5, 8, 4][seed // 2 % 4], dtype=getattr(torch, name))


@needs_coqc
@pytest.mark.deep
def test_mutated_models_are_accepted_exactly_where_verify_proves_them():
    """In 32 and 64 bits; in 16 bits the check bounds more roundings than there are, and accepts no other ones."""
    names = ["float32"] * 28 + ["float64"] * 14 + ["float16"] * 8 + ["bfloat16"] * 16
    models = [mutated(built(seed, name), seed) for seed, name in enumerate(names)]
    found = [certify(x, fmt=FORMATS[name]) for x, name in zip(models, names, strict=True)]
    is_proved = [x.verdict is Verdict.PROVED for x in found]
    margins = [x.margin_per_count if x.verdict is Verdict.PROVED else [2.0**-30] for x in found]
    is_accepted = accepted(map(check_inputs, map(stored_of, models, margins, names)), in_a_format=True)
    assert 15 < sum(is_proved[:42]) < 35 and is_accepted[:42] == is_proved[:42]
    assert all(proved or not kernel for proved, kernel in zip(is_proved[42:], is_accepted[42:], strict=True))
    assert any(is_accepted[42:])


@needs_coqc
@pytest.mark.deep
def test_another_file_format_or_margin_is_refused():
    """More than a margin, a sum that may overflow, a word that the format has not or may flush, a wrong shape."""
    stored = stored_of(relation_counting.dot(T=4, L=3, d=4, dtype=torch.float64), [0.49] * 3, "float32")
    words = stored.words
    sizes, right = stored.sizes, check_inputs(stored)

    def with_word(name, row, column, value):
        rows = [list(x) for x in words[name]]
        rows[row][column] = torch.tensor([value], dtype=torch.float64).view(torch.int64).item() % 2**64
        return dataclasses.replace(stored, words={**words, name: tuple(map(tuple, rows))})

    wrong = [
        *(dataclasses.replace(stored, margins=tuple(1.001 if k == j else 0.4 for k in range(3))) for j in range(3)),
        dataclasses.replace(stored, margins=stored.margins[:2]),
        with_word("W_2", 0, 0, 1.0),
        with_word("b_1", 0, 0, 2.0**-140),  # subnormal in float32
        with_word("b_1", 0, 0, 2.0**128),
        with_word("E", 0, 0, 1 + 2.0**-30),  # no number of float32
        with_word("W_Q", 0, 1, 2.0**126),  # a score may overflow
        dataclasses.replace(stored, words={**words, "W_Q": words["W_Q"][:-1]}),
        *(
            dataclasses.replace(stored, sizes={**sizes, name: sizes[name] + 1})
            for name in ("T", "L", "d", "p", "classes")
        ),
    ]
    inputs = [check_inputs(x) for x in wrong]
    record = [
        ("file_kind := Dot", "file_kind := Bos"),
        ("file_kind := Dot", "file_kind := Parity"),
        ("file_softmax := false", "file_softmax := true"),
        ("first_count := 1", "first_count := 0"),
    ]
    for old, new in record:
        assert old in right.weights
        inputs.append(dataclasses.replace(right, weights=right.weights.replace(old, new)))
    inputs += [dataclasses.replace(right, margins=margins) for margins in ("[]", "[0; 0; 0]", "[1; -1; 1]")]
    harmless = check_inputs(with_word("b_1", 0, 0, -1.0 - 2.0**-22))  # in float32, but with too many bits for bfloat16
    in_16_bits = [dataclasses.replace(x, check="check_in bfloat16") for x in (right, harmless)]
    found = accepted([right, *in_16_bits, *inputs], in_a_format=True)
    assert found == [True, True, False] + [False] * len(inputs)


BEYOND = """From Coq Require Import Reals Lra.
From Flocq Require Import Core.
Goal forall margins shift, ~ file_counts_in float16 weights margins shift.
Proof.
  intros margins shift (_ & _ & _ & _ & _ & H & _). specialize (H 2%nat 0%nat).
  apply Forall_inv_tail, Forall_inv in H.
  change (W_Q (stored_model weights)) with (matrix_of float32 (W_Q_words weights)) in H.
  rewrite <- get2_numbers in H. change (get2 _ _ _) with (Float radix2 1 17) in H.
  revert H. unfold F2R, largest_number. cbn -[Rabs]. rewrite Rabs_pos_eq; lra.
Qed.
"""


@needs_coqc
@pytest.mark.deep
def test_no_theorem_is_about_a_weight_that_is_infinite_in_the_format():
    """2^17 in float16, in a row of W_Q that every token multiplies by 0: NaN there, and 0 in real arithmetic."""
    module = relation_counting.dot(T=2, L=2, d=3, dtype=torch.float32)
    assert not module.E[:, 2].any()
    with torch.no_grad():
        module.W_Q[2, 0] = 2.0**17
    weights = check_inputs(stored_of(module, [0.25], "float16")).weights
    text = "\n".join([*PREAMBLE, OF_RUNS, f"Definition weights : file := {weights}.", BEYOND])
    done = run_coqc(text, library(("RunsCorrect",))[0])
    assert done.returncode == 0, done.stderr


@needs_coqc
@pytest.mark.deep
def test_what_a_theorem_in_a_format_needs_is_built_on_the_other_ones():
    base, more = library()[0], library(("RunsCorrect",))[0]
    shared = {compiled.name for compiled in base.glob("*.vo")}
    assert {compiled.name for compiled in more.glob("*.vo")} - shared >= {"Runs.vo", "RunsCorrect.vo"}
    assert all((more / name).read_bytes() == (base / name).read_bytes() for name in shared)


FAULTS = {
    "a root that is not rounded": ("around_inverse : binary := power (8 - precision f)", "around_inverse := nothing"),
    "a root rounded once": ("power (8 - precision f)", "power (- precision f)"),
    "the root rounded up": ("(Z.sqrt (4 ^ precision f / Z.of_nat d))", "(1 + Z.sqrt (4 ^ precision f / Z.of_nat d))"),
    "every root as exact": ("Z.of_nat d =? 4 ^ precision f)", "Z.of_nat d <=? 4 ^ precision f)"),
    "an inverse of another format": ("is_of_format inverse_root &&", "true &&"),
    "exact quotients of rounded products": ("layer_of (is_exact S && root_is_exact)", "layer_of root_is_exact"),
    "errors of products left out": ("Fplus (Fmult (get2 (errors S) t s) inverse_root)", "Fplus nothing"),
    "a product that overflows": ("all_stay K && all_stay P && all_stay S", "all_stay K && all_stay S"),
    "a root that overflows": ("if all_of_format && root_stays\n", "if all_of_format\n"),
    "a weight that overflows": ("(Fabs y) && is_below (Fabs y) most)", "(Fabs y))"),
    "one logit's error": ("Fmult (Float radix2 2 0) (fmost", "Fmult (Float radix2 1 0) (fmost"),
    "two of the classes": ("T (file_classes x) p of_neurons", "T 2 p of_neurons"),
    "a margin without errors": ("(map (fun margin => (margin + more)%Z) margins)", "margins"),
    "neurons of the table's scores": ("(Fmult (get2 (errors S) t s) (Fabs (get2 reads s n)))", "nothing"),
}


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS)
def test_no_proof_goes_through_with_a_fault_in_the_check(fault, tmp_path):
    """The check that is at fault compiles, and the proof that it suffices does not."""
    shutil.copytree(library(("RunsCorrect",))[0], tmp_path / "library")
    check = tmp_path / "library" / "RunChecks.v"
    old, new = FAULTS[fault]
    assert check.read_text().count(old) == 1
    check.write_text(check.read_text().replace(old, new))
    found = [
        subprocess.run(["coqc", "-q", "-R", ".", "Weightproof", f"{name}.v"], cwd=check.parent, capture_output=True)
        for name in ("RunChecks", "RunsCorrect")
    ]
    assert [x.returncode == 0 for x in found] == [True, False]


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("options", [("float32",), ("bfloat16", "--accumulate", "float32")])
def test_a_saved_proof_becomes_a_theorem(options, tmp_path, capsys):
    folder = save(capsys, tmp_path / "proof", "--precision", *options)
    code, about = as_json(capsys, "kernel", str(folder), "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["seconds"] < 20
    assert about["statement"].startswith(f"file_counts_in {options[0]} weights margins ")
    assert set(about["axioms"]) <= ALLOWED_AXIOMS
