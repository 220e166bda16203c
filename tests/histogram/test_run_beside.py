"""What every run beside a proof lies between: the runs of an adversary, and for the proof the exact margin."""

from __future__ import annotations

import numpy as np
import torch
from oracles.any_order import Adversary
from planted import planted

from constructions.histogram import HistogramTransformer
from verify.arithmetic import softmax
from verify.arithmetic.formats import FORMATS
from verify.frame.certificate import Verdict
from verify.tasks.histogram import agreement
from verify.tasks.histogram.agreement import margin_range
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.stored import StoredModel


def mixing(far):
    """A neuron that reads 2^20 times the second position's weight, whose score lies so far from the first's."""
    E, W_1, W_2 = np.array([[0.0], [64.0]]), np.array([[2.0**14]]), np.array([[-1.0, 0.0]])
    A, b_1, b_2 = np.array([[0.0, far], [0.0, 0.0]]), np.zeros(1), np.array([1.0, 0.0])
    return StoredModel("lin+sftm", 2, 2, 1, 1, 2, 1, E, None, A, None, None, W_1, b_1, W_2, b_2)


def beyond():
    """Runs of the adversary below what all lie between."""
    fmt, runs = FORMATS["float16"], 0
    for stored in map(mixing, (-9.0, -12.0, -14.0, -16.0)):
        low, high = margin_range(stored, [0, 1], 0, fmt)
        assert -np.inf < low <= high < np.inf
        runs += float(Adversary(stored, fmt).margin(0, [0, 1], 0, 0, 1)) < low
    return runs


def test_the_range_holds_what_an_adversary_computes():
    """An exponential below the smallest normal number is off by units of the last place there."""
    assert not beyond()
    with planted(softmax, "computed_ends", "+ gained", ""):
        assert beyond()


def test_a_run_that_may_overflow_has_no_range():
    """2^20 times a weight of e^-1 is beyond float16."""
    low, high = margin_range(mixing(-1.0), [0, 1], 0, FORMATS["float16"])
    assert low == -np.inf and high == np.inf


def compared(seed):
    """The verdict where one product of the tightest input is rounded, up or down, and nothing else is."""
    scale, weight = np.random.default_rng(seed).uniform(0.5, 0.65, 2)
    module = HistogramTransformer("lin", T=2, L=2, d=2, p=2).float()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.A.copy_(torch.eye(2).flip(0))
        module.E.copy_(torch.eye(2) * scale)
        module.W_1.copy_((2 * torch.eye(2) - 1) * weight)
        module.W_2[:, 1] = 1.0
        module.b_2[0] = 0.4
    return certify(module).verdict


def test_an_exact_margin_is_not_held_against_rounded_ones():
    """In real arithmetic the margin may be above all that float32 computes."""
    assert all(compared(seed) is Verdict.PROVED for seed in range(8))
    with planted(agreement, "margin_range", "keeps=True", "keeps=False"):
        assert any(compared(seed) is Verdict.UNKNOWN for seed in range(8))
