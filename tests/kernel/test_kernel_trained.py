"""Theorems about trained histogram models: lines below undecided neurons, and regions split by saved clusters."""

import base64
import dataclasses
import json
import math
import zlib
from pathlib import Path

import pytest
import torch
from command import run
from models.kernel import accepted, needs_coqc

from constructions import checkpoint
from constructions.checkpoint import as_bytes
from verify.frame.certificate import Verdict
from verify.kernel.compiler import SOURCES, compile_theorem, library, run_coqc
from verify.kernel.hints import sets_by_token
from verify.kernel.stored import read_saved, read_weights
from verify.kernel.theorem import MOST_MULTISETS, check_inputs, sets_to_split_by, state
from verify.tasks.histogram.proof import certify

DATA = Path(__file__).parents[1] / "data"
SMALL, MIDDLE, LARGE = (
    DATA / f"trained_{name}.safetensors" for name in ("bos_T4_L3_d4_p8", "bos_T8_L8_d8_p16", "bos_sftm_T32_L10_d64_p64")
)


def saved(path, folder, capsys):
    assert run(capsys, "histogram", "--weights", str(path), "--save", str(folder))[0] == 0
    return read_saved(str(folder))


def mutated(seed):
    """The small trained model with one weight changed: by little, by much, its sign, or to zero."""
    g = torch.Generator().manual_seed(seed)
    module = checkpoint.load(SMALL)
    names = [name for name, _ in module.named_parameters()]
    with torch.no_grad():
        weights = getattr(module, names[int(torch.randint(len(names), (1,), generator=g))]).view(-1)
        i = int(torch.randint(len(weights), (1,), generator=g))
        weights[i] = [weights[i] + 2.0**-6, weights[i] * 1.1, weights[i] + 0.5, -weights[i], 0.0][seed % 5]
    return module


@needs_coqc
@pytest.mark.deep
def test_mutated_trained_models_are_accepted_exactly_where_verify_proves_them():
    modules = [mutated(seed) for seed in range(40)]
    certificates = [certify(module) for module in modules]
    is_proved = [x.verdict is Verdict.PROVED for x in certificates]
    inputs = [
        check_inputs(
            read_weights(as_bytes(module, claim=None, construction=None), x.margin_per_count if proved else [2.0**-30])
        )
        for module, x, proved in zip(modules, certificates, is_proved, strict=True)
    ]
    assert accepted(inputs) == is_proved
    assert 8 < sum(is_proved) < 32


@needs_coqc
@pytest.mark.deep
def test_more_multisets_than_are_gone_through(tmp_path, capsys):
    """6,435 multisets: right by the margins of the certificate and by no larger one, and not without splitting."""
    stored = saved(MIDDLE, tmp_path / "proof", capsys)
    larger = [
        dataclasses.replace(stored, margins=(*stored.margins[:k], x * (1 + 1e-6), *stored.margins[k + 1 :]))
        for k, x in enumerate(stored.margins[:1])
    ]
    without = dataclasses.replace(
        check_inputs(stored), how=check_inputs(stored).how.replace("splits := 200", "splits := 0")
    )
    assert accepted([check_inputs(stored), *map(check_inputs, larger), without]) == [True, False, False]


@needs_coqc
@pytest.mark.deep
def test_a_trained_model_of_all_sequences_of_ten_of_32(tmp_path, capsys):
    """1,121,099,408 multisets, far more than could be gone through: their cells are split by the saved clusters."""
    stored = saved(LARGE, tmp_path / "proof", capsys)
    assert math.comb(41, 10) > 10**9 > MOST_MULTISETS
    outcome = compile_theorem(state(stored).text, library()[0])
    assert outcome.is_proved, outcome.reason


SIDES = "(if (0 <=? z)%Z then slope - line else - line)"
FAULTS = {  # in a definition of Forms.v, each of which makes some bound too large
    "zero is left out": ("then Z.min 0 ends else ends", "then ends else ends"),
    "the larger end": ("let ends := Z.min (excess_at", "let ends := Z.max (excess_at"),
    "one end": ("(excess_at (slope n) line (high n)) in", "(excess_at (slope n) line (low n)) in"),
    "off neurons add their line": (SIDES, "(slope - line)"),
    "on neurons lose nothing": (SIDES, "(if (0 <=? z)%Z then slope else - line)"),
    "excess is forgotten": ("least f + add_all (map (fun '(n, a) => least_excess n a) lines)", "least f"),
    "lines of slope zero are kept out with their excess": (
        "fold_right (fun '(n, a) f => if (a =? 0)%Z then f", "fold_right (fun '(n, a) f => if (a <=? 0)%Z then f"
    ),
}  # fmt: skip


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_check_has_no_proof(fault):
    right, wrong = FAULTS[fault]
    text, built = (SOURCES / "Forms.v").read_text(), library()[0]  # where the text itself is compiled
    assert text.count(right) == 1
    faulty = text.replace(right, wrong)
    definitions = faulty[: faulty.index("Lemma least_excess_is_least")] + "End Values.\n"
    assert [run_coqc(said, built).returncode == 0 for said in (definitions, faulty)] == [True, False]


# ---- The clusters of a certificate ----------------------------------------------------------------------------------


def tree_of(cells):
    data = base64.b64encode(zlib.compress(json.dumps({"rows": [], "cells": cells}).encode())).decode()
    return {"parts": 1, "data": data, "reason": None}


def with_tree(tmp_path, capsys, tree):
    folder = tmp_path / "proof"
    saved(SMALL, folder, capsys)
    path = folder / "certificate.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tree": tree}))
    return folder


def test_sets_are_the_first_halves_of_the_saved_clusters(tmp_path, capsys):
    cells = [[0, 1, [[0, 2], [1, 3]], [[1, [0]]]], [0, 3, [], []]]
    stored = read_saved(str(with_tree(tmp_path, capsys, tree_of(cells))))
    ours = sets_to_split_by(stored)
    assert [sorted(found) for found in ours[1]] == [[2], [0]]
    assert [sorted(found) for found in ours[0]] == [[0, 1], [0], [2]]  # where nothing is saved, halves of the alphabet


def test_a_theorem_of_a_large_alphabet_names_no_sets(tmp_path, capsys):
    """They would be T^3 words: of 300 tokens longer than all weights, by hundreds of megabytes."""
    stored = saved(SMALL, tmp_path / "proof", capsys)
    of_size = {T: dataclasses.replace(stored, sizes={**stored.sizes, "T": T, "L": 2}, sets={}) for T in (100, 300)}
    assert math.comb(301, 2) < MOST_MULTISETS
    assert [len(sets_to_split_by(x)) for x in of_size.values()] == [100, 0]


def test_saved_clusters_of_a_large_alphabet_are_left_out():
    """A hundred kilobytes of a tree may otherwise name sets of 10^9 tokens."""
    chain = [[0, 1], *([k + 1, 9998 + k] for k in range(1, 9998))]
    tree = tree_of([[0, t, chain, []] for t in range(20)])
    assert sets_by_token("proof", tree, 10_000) == {}
    assert len(sets_by_token("proof", tree_of([[0, 1, chain[:90], []]]), 10_000)[1]) == 90


@pytest.mark.parametrize(
    "tree",
    [
        {"data": "no base64"},
        {"data": 3},
        {"data": base64.b64encode(b"no stream").decode()},
        {"data": base64.b64encode(zlib.compress(b"{}")).decode()},
        tree_of(3),
        tree_of([[0, 0]]),
        tree_of([[0, 0, [[0, 1, 2]], []]]),
        tree_of([[0, 0, [[0, 9]], []]]),
        tree_of([[0, 0, [[0, 0.5]], []]]),
        tree_of([[0, [0], [[0, 1]], []]]),
        tree_of([[0, 0, [[0, 0]] * 3, []]]),
    ],
)
def test_trees_that_cannot_be_read_are_refused_in_one_line(tree, tmp_path, capsys):
    code, out, err = run(capsys, "kernel", str(with_tree(tmp_path, capsys, tree)))
    assert code == 2 and out == "" and "tree cannot be read" in err and err.count("\n") == 1


def test_a_saved_tree_changes_how_the_check_goes_about_it_and_nothing_else(tmp_path, capsys):
    plain = saved(SMALL, tmp_path / "plain", capsys)
    cells = [[0, t, [[2, 1], [0, 3]], []] for t in range(4)]
    other = read_saved(str(with_tree(tmp_path, capsys, tree_of(cells))))
    ours, theirs = check_inputs(plain), check_inputs(other)
    assert ours.how != theirs.how and dataclasses.replace(ours, how=theirs.how) == theirs
    assert state(plain).statement == state(other).statement
