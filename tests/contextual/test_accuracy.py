"""Accuracies on random strings: the same as every string run, one by one."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
import torch

from constructions.contextual_counting import build
from tests.planted import planted
from verify.tasks.contextual import accuracy
from verify.tasks.contextual.accuracy import RandomStrings, of_cell, share

SETTINGS = [("BOS", 8, 2), ("]", 8, 2), ("]", 8, 1), ("0", 8, 2), ("0", 8, 1), ("0", 6, 2)]


def by_running(module, N, M):
    """Every string of N tokens and M regions in plain Python, and the module's own answers."""
    strings = []
    for tokens in product(range(4), repeat=N):
        delimiters = [t for t in tokens if t > 1]
        if delimiters == [2, 3] * M:
            strings.append(tokens)
    with torch.no_grad():
        said = module(torch.tensor(strings)).argmax(-1).tolist()
    right = 0
    for tokens, answers in zip(strings, said, strict=True):
        regions = "".join("01[]"[t] for t in tokens).split("[")[1:]
        right += sum(answers[r] == regions[r].split("]")[0].count("1") for r in range(M))
    return len(strings), Fraction(right, len(strings) * M)


@pytest.mark.parametrize(("bias", "N", "M"), SETTINGS)
def test_the_share_is_that_of_every_string_run(bias, N, M):
    module = build(8, 2, bias=bias, dtype=torch.float64)
    done = []
    found = share(module, N, M, by_zeros=bias == "0", advance=done.append)
    number, right = by_running(module, N, M)
    assert number == RandomStrings(N, M).number() and (found.right, found.open) == (right, 0)
    assert done[-1] == (1.0 if bias == "0" else 0.0) and done == sorted(done)


def test_the_accuracies_of_the_command_differ_by_bias_and_setting():
    found = {(bias, N, M): share(build(8, 2, bias=bias), N, M, by_zeros=bias == "0", advance=lambda _: None).right
             for bias, N, M in SETTINGS}  # fmt: skip
    assert found["BOS", 8, 2] == found["]", 8, 2] == 1 > found["]", 8, 1] and 1 > found["0", 8, 2] > 0


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("with_ones_and_zeros", "comb(k + own, k)", "comb(k + own, own + 1)"),
        ("with_ones", "(self.digits - inside)", "self.digits"),
        ("_elsewhere", "2 * self.M - 1, 2", "2 * self.M, 2"),
    ],
)
def test_a_planted_miscount_is_found(name, right, wrong):
    module = build(8, 2, bias="0", dtype=torch.float64)
    with planted(RandomStrings, name, right, wrong):
        by_zeros = share(module, 8, 1, by_zeros=True, advance=lambda _: None).right
        one, zeros = (
            RandomStrings(7, 2).with_ones(1),
            sum(RandomStrings(7, 2).with_ones_and_zeros(1, z) for z in range(4)),
        )
        assert one != zeros or by_zeros != by_running(module, 8, 1)[1]


def test_an_open_cell_counts_as_open():
    class Cells:
        r, margin, wrong = 1, [1.0, -1.0, -1.0], [False, True, False]

    assert [of_cell([Cells], 1, k) for k in range(3)] == [True, False, None]
    assert accuracy.PairShare(Fraction(1, 2), Fraction(0)).open == 0
