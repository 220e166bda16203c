"""Constant-bit arithmetic: the vectorised version, the reference, and plain integers agree."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from models.selection import every
from oracles.circuit import rounded, stored

from constructions.circuits import machine
from constructions.constant_bits.arithmetic import Affine, FixedPoint, exp_to_bits, largest_value, round_to_bits
from constructions.errors import BadInput


@pytest.mark.parametrize("s", every(3, [1, 2, 3]))
def test_every_pair_of_values(s):
    bits = FixedPoint(s)
    all_values = np.arange(-bits.largest, bits.largest + 1).astype(bits.dtype)
    x, y = (a.ravel() for a in np.meshgrid(all_values, all_values))
    added, multiplied = bits.add(x, y), bits.multiply(x, y)
    for j in range(len(x)):
        a, b = Fraction(int(x[j]), 2**s), Fraction(int(y[j]), 2**s)
        assert Fraction(int(added[j]), 2**s) == round_to_bits(a + b, s)
        assert Fraction(int(multiplied[j]), 2**s) == round_to_bits(a * b, s)
        assert multiplied[j] == rounded(int(x[j]) * int(y[j]), 2**s, s)
    positive = y > 0
    divided = bits.divide(x[positive], y[positive])
    for a, b, q in zip(x[positive], y[positive], divided, strict=True):
        assert Fraction(int(q), 2**s) == round_to_bits(Fraction(int(a), int(b)), s)


@pytest.mark.parametrize("s", range(1, 13))
def test_exponential_against_mpmath(s):
    bits = FixedPoint(s)
    rng = random.Random(s)
    values = [rng.randrange(-bits.largest, bits.largest + 1) for _ in range(100)]
    values += [0, bits.largest, -bits.largest, bits.vanishing, bits.vanishing + 1]
    for j, e in zip(values, bits.exp(np.array(values)), strict=True):
        with mpmath.workdps(60):
            exact = mpmath.exp(mpmath.mpf(j) / 2**s) * 2**s
            assert e == min(int(mpmath.nint(exact)), 4**s - 1)
    assert bits.exp(np.array([bits.vanishing]))[0] == 0 < bits.exp(np.array([bits.vanishing + 1]))[0]
    assert exp_to_bits(-largest_value(s), s) == 0


@pytest.mark.parametrize("s", [1, 2, 5, 12])
def test_rounding_of_floats(s):
    bits = FixedPoint(s)
    rng = random.Random(s)
    half = [(j + 0.5) * 2.0**-s for j in range(-40, 40)]
    floats = half + [np.nextafter(x, 9) for x in half] + [np.nextafter(x, -9) for x in half]
    floats += [rng.gauss(0, 10.0 ** rng.randrange(-9, 9)) for _ in range(500)] + [
        0.0,
        -0.0,
        1e308,
        -1e308,
        5e-324,
    ]
    for x, j in zip(floats, bits.encode(np.array(floats)), strict=True):
        assert j == stored(x, s)
        assert Fraction(int(j), 2**s) == round_to_bits(Fraction(x), s)


def test_the_largest_values_do_not_overflow():
    for s in range(1, 13):
        bits = FixedPoint(s)
        top = np.array([bits.largest, -bits.largest], bits.dtype)
        assert (bits.multiply(top, top) == bits.largest).all()
        assert (bits.add(top, top) == top).all()


def test_affine_sums_left_to_right_and_the_bias_last():
    bits = FixedPoint(1)
    W = bits.encode(np.array([[1.0], [1.0], [-1.0]]))
    one = bits.encode(np.array([[1.0, 1.0, 1.0]]))
    assert bits.decode(Affine(bits, W)(one)).item() == 0.5  # 1 + 1 saturates at 1.5, then - 1
    assert bits.decode(Affine(bits, W[[0, 2, 1]])(one)).item() == 1.0
    assert bits.decode(Affine(bits, W[:2], bits.encode(np.array([-1.5])))(one[:, :2])).item() == 0.0


def test_affine_against_plain_integers():
    rng = np.random.default_rng(0)
    for s in (1, 2, 4, 8):
        bits = FixedPoint(s)
        for _ in range(20):
            W = rng.integers(-bits.largest, bits.largest + 1, (5, 4)) * rng.integers(0, 2, (5, 4))
            b, x = (
                rng.integers(-bits.largest, bits.largest + 1, 4),
                rng.integers(-bits.largest, bits.largest + 1, 5),
            )
            got = Affine(bits, W.astype(bits.dtype), b.astype(bits.dtype))(x.astype(bits.dtype))
            for j in range(4):
                total = 0
                for i in range(5):
                    total = rounded(total + rounded(int(x[i]) * int(W[i, j]), 2**s, s), 1, s)
                assert got[j] == rounded(total + int(b[j]), 1, s)


@pytest.mark.parametrize("s", [0, 13, -1, True, 2.0])
def test_impossible_numbers_of_bits(s):
    with pytest.raises(BadInput, match="s="):
        FixedPoint(s)


def test_as_many_survivors_are_followed_as_there_are_positions(monkeypatch):
    """One for each position is no reason to look at all pairs, however many positions there are."""
    bits = FixedPoint(2)
    monkeypatch.setattr(machine, "PASS_SURVIVORS", 4)
    monkeypatch.setattr(machine, "alive_by_blocks", None)
    signs = np.arange(40)[:, None] >> np.arange(6) & 1
    lanes = [bits.encode(np.repeat(2.0 * signs - 1, 2, axis=1) * scale) for scale in (1.0, 3.75)]
    lanes[0][:, 1::2], lanes[1][:, 1::2] = bits.one, bits.encode(np.array(-3.75))
    found = machine.survivors(bits, *lanes)
    assert found is not None and found.query.tolist() == found.key.tolist() == list(range(40))
