"""Trained modular adders in the grokking layout: counts, failing pairs and margins by a - b against plain runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from models.selection import first
from safetensors.torch import load_file

from constructions.decoder import from_progress_measures
from verify.tasks.addition.modular.rotation import by_difference, spectrum

FILES = Path(__file__).parents[1] / "data" / "modular"
P = 13


def margins(name):
    """The margin of every pair in float64, and the pairs, by the decoder that torch runs."""
    model = from_progress_measures({k: v.double() for k, v in load_file(FILES / f"{name}.safetensors").items()})
    pairs = [(a, b) for a in range(P) for b in range(P)]
    with torch.no_grad():
        logits = model(torch.tensor([[a, b, P] for a, b in pairs]))[:, -1].numpy()
    right = np.array([(a + b) % P for a, b in pairs])
    own = logits[np.arange(len(pairs)), right]
    logits[np.arange(len(pairs)), right] = -np.inf
    return own - logits.max(axis=1), pairs


@pytest.mark.parametrize(("name", "code"), first(1, [("p13_some_pairs", 1), ("p13", 0)]))
def test_counts_pairs_and_margins_are_those_of_every_run(name, code, capsys):
    least, pairs = margins(name)
    wrong = [list(pair) for pair, margin in zip(pairs, least, strict=True) if margin <= 0]
    got, out, _ = run(capsys, "modular", "--P", "13", "--weights", str(FILES / f"{name}.safetensors"), "--json")
    data = json.loads(out)
    assert got == code and data["task"] == "modular" and data["parameters"]["P"] == P
    assert data["counts"] == {"right": str(P * P - len(wrong)), "wrong": str(len(wrong)), "undecided": "0"}
    assert data["wrong_inputs"] == wrong and len(wrong) == (0 if code == 0 else 6)
    expected = [min(m for m, (a, b) in zip(least, pairs, strict=True) if (a - b) % P == d) for d in range(P)]
    found = np.array(data["margin_per_difference"])
    assert (found <= np.array(expected) + 1e-9).all() and np.allclose(found, expected, atol=1e-6)
    if code:
        a, b = data["counterexample"]["input"]
        assert [a, b] in wrong and data["counterexample"]["expected"] == (a + b) % P


def test_frequencies_are_those_of_a_fourier_transform(capsys):
    W_E = load_file(FILES / "p13.safetensors")["embed.W_E"].double().numpy().T[:P]
    shares = spectrum(W_E).shares
    centred = W_E - W_E.mean(axis=0)
    for w in range(1, P // 2 + 1):
        angle = 2 * np.pi * w * np.arange(P) / P
        energy = sum(((wave @ centred) ** 2).sum() for wave in (np.cos(angle), np.sin(angle))) * 2 / P
        assert np.isclose(shares[w - 1], energy / (centred**2).sum())
    assert np.isclose(sum(shares), 1)
    even = np.cos(np.pi * np.arange(6))[:, None]
    assert spectrum(even).found == (3,) and spectrum(np.zeros((5, 2))).found == ()


@pytest.mark.parametrize(("size", "shift"), [(2.0**-600, 0), (2.0**600, 0), (1, 1e9 / 3)])
def test_shares_of_tiny_huge_and_shifted_embeddings(size, shift):
    """Squares that leave the range, and a mean beside which the waves are small, once gave other shares."""
    drawn = np.random.default_rng(0).integers(-9, 10, size=(13, 4)).astype(float)
    shifted = drawn * size + shift
    due = shifted - shift if shift else drawn
    assert np.abs(np.subtract(spectrum(shifted).shares, spectrum(due).shares)).max() < 1e-12


def test_differences_without_a_pair_have_no_margin():
    assert by_difference(3, [(0, 1)], np.array([0.5])).tolist() == [np.inf, np.inf, 0.5]


@pytest.mark.deep
def test_a_saved_checkpoint_is_read_again_and_another_modulus_refused(capsys, tmp_path):
    file = str(FILES / "p13.safetensors")
    argv = ("modular", "--P", "13", "--weights", file, "--precision", "float32", "--save", str(tmp_path / "kept"))
    assert run(capsys, *argv)[0] == 0
    assert run(capsys, "modular", "--P", "13", "--weights", str(tmp_path / "kept" / "weights.safetensors"))[0] == 0
    code, out, err = run(capsys, "modular", "--weights", file)
    assert code == 2 and out == "" and err.count("\n") == 1 and "--P 13" in err
