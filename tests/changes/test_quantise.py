"""Fewer bits against a rounding of their own and enumeration."""

from unittest import mock

import numpy as np
import pytest
import torch

from constructions import relation_counting
from constructions.errors import BadInput
from tests.models.fitted import fitted
from tests.oracles.histogram import all_wrong_pairs
from tests.planted import planted
from verify import quantise, repair
from verify.changes.quantise import BITS, NumberGrid, Roundable, fewest_bits
from verify.frame.certificate import Verdict
from verify.frame.clock import Budget
from verify.frame.decide import Effort


def on_grid(w, bits, by_column):
    """Whole numbers times scales, in float32 as the model's own numbers are."""
    most = np.float32(2 ** (bits - 1) - 1)
    top = np.abs(w).max(0) if by_column and w.ndim > 1 else np.abs(w).max()
    scale = np.where(top > 0, top / most, np.float32(1)).astype(np.float32)
    return np.clip(np.rint(w / scale), -most, most) * scale


def models():
    yield relation_counting.dot(T=3, L=2)
    yield relation_counting.bos_sftm(T=3, L=2)
    yield repair(fitted(3, T=3, L=3, d=4, p=8)).module


def what_is_wrong(module, scheme):
    """What of the fewest bits brute force contradicts, if anything."""
    found = quantise(module, scheme=scheme)
    for bits, tried in zip(BITS, found.tried, strict=False):
        for name, w in module.named_parameters():
            due = on_grid(w.detach().numpy(), bits, scheme == "per-channel")
            if not np.array_equal(tried.module.get_parameter(name).detach().numpy(), due):
                return f"{name} at {bits} bits"
        if bool(tried) == bool(all_wrong_pairs(tried.module)):
            return f"verdict at {bits} bits"
    is_last = all(not tried for tried in found.tried[:-1])
    return None if is_last and (found.found is found.tried[-1] or len(found.tried) == len(BITS)) else "fewest"


@pytest.mark.parametrize("scheme", ["per-tensor", "per-channel"])
def test_the_fewest_bits_are_those_of_brute_force(scheme):
    for module in models():
        assert what_is_wrong(module, scheme) is None


@pytest.mark.deep
def test_the_fewest_bits_of_more_models():
    done = 0
    for seed in range(40):
        module = repair(fitted(seed, T=3, L=3, d=4, p=12)).module
        if module is not None:
            assert what_is_wrong(module, "per-tensor") is None and what_is_wrong(module, "per-channel") is None, seed
            done += 1
    assert done >= 10


def test_a_planted_fault_is_seen():
    with planted(NumberGrid, "rounded", "2 ** (self.bits - 1) - 1", "2 ** self.bits - 1"):
        assert what_is_wrong(fitted(3, T=3, L=3, d=4, p=8), "per-tensor")


def test_formats_and_single_tensors():
    module = relation_counting.dot(T=3, L=2)
    found = quantise(module, scheme="bf16", tensors=["E"])
    assert (
        np.array_equal(found.module.E.detach().numpy(), module.E.detach().bfloat16().float().numpy())
        and not found.scales
    )
    assert all(found.module.get_parameter(n) is not p for n, p in module.named_parameters())
    assert quantise(module, bits=8).certificate.verdict == "PROVED"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scheme": "int8"}, "must be one of per-tensor"),
        ({"bits": 1}, "must be from 2 to 16"),
        ({"bits": 8, "scheme": "fp8"}, "has its own number of bits"),
        ({"bits": 8, "tensors": ["W"]}, "the model has E, W_Q"),
    ],
)
def test_bad_calls(options, says):
    with pytest.raises(BadInput, match=says):
        quantise(relation_counting.dot(T=3, L=2), **options)


def test_fewest_bits_keep_one_budget():
    """Fifteen decisions, each of which takes all that it is given, take the budget once."""
    now, open_one = [0.0], mock.Mock(verdict=Verdict.UNKNOWN)

    def decided(rounded, effort):
        now[0] += effort.seconds
        return None, open_one

    model = Roundable({"w": torch.ones(3)}, decided)
    found = fewest_bits(model, "per-tensor", Effort(Budget(6.0, lambda: now[0])))
    assert len(found.tried) == 15 and found.verdict == "UNKNOWN" and now[0] == pytest.approx(6)
