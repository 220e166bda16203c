"""Weights of positions whose scores are all 0, against quotients computed as the contract allows."""

import numpy as np
import pytest
from planted import planted

from verify.arithmetic.formats import format_named
from verify.arithmetic.rounding import rounded
from verify.tasks.inductive import uniform
from verify.tasks.inductive.noisy import Allowed


def equal_weights_beyond():
    """Computed quotients of 1 by sums of up to 40 ones, that may be stored, further from 1/N than is said."""
    beyond, N = 0, np.array([*range(1, 41), 200, 500, 2000, 30000, 70000], dtype=float)
    for name, wider in (("p3", None), ("e4m3", None), ("p6", None), ("p3", "p6"), ("p4", "p5"), ("e4m3", "float32"),
                        ("float16", "float32")):  # fmt: skip
        fmt, inner = format_named(name), None if wider is None else format_named(wider)
        off, known = uniform.weight(Allowed(fmt, inner), N), (inner or fmt).p
        for total in (N, rounded(N, fmt)):
            for quotient in (1 / total, rounded(1 / total, inner or fmt)):
                for share in (quotient, rounded(quotient, fmt)):
                    flushed = np.where(share < fmt.tiny, 0.0, share)
                    beyond += int((np.abs(flushed * N - 1) > off)[2.0**known >= N].sum())
    return beyond


def test_equal_weights_are_off_by_no_more_than_is_said():
    assert not equal_weights_beyond()
    assert np.isinf(uniform.weight(Allowed(format_named("p3")), np.array([9.0])))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.where(2.0**at.stored.p >= N, 0.0, at.u)", "0.0"),
        ("at.u + 4 * U", "0.5 * at.u"),
        ("at.stored.tiny * N <= 1", "N > 0"),
    ],
)
def test_a_planted_fault_of_equal_weights_is_seen(right, wrong):
    with planted(uniform, "weight", right, wrong):
        assert equal_weights_beyond()
