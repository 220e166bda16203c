"""Rounding to a format against torch's casts, gfloat, numpy's own arithmetic and fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch
from models.selection import every
from oracles.rounded import nearest

from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import add, divide, multiply, multiply_add, rounded

TORCH = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
GFLOAT = {
    "float32": gfloat.formats.format_info_binary32,
    "bfloat16": gfloat.formats.format_info_bfloat16,
    "float16": gfloat.formats.format_info_binary16,
    "e4m3": gfloat.formats.format_info_ocp_e4m3,
    "e5m2": gfloat.formats.format_info_ocp_e5m2,
}


def every_value(name):
    """The numbers that the format's codes decode to, by torch."""
    dtype = TORCH[name]
    bits = torch.arange(1 << 8 * dtype.itemsize).to(torch.uint8 if dtype.itemsize == 1 else torch.int32)
    codes = bits if dtype.itemsize == 1 else bits.to(torch.int16)
    return codes.view(dtype).double().numpy()


def same(a, b):
    """The same numbers, signs of zero included."""
    is_number = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[is_number]), np.signbit(b[is_number]))


def around_midpoints(name, neighbours):
    """Each value, each midpoint of two neighbours, and what lies next to them in a wider format."""
    values = np.unique(every_value(name))
    values = values[np.isfinite(values)]
    beyond = FORMATS[name].largest * (1 + FORMATS[name].u * np.array([1.0, 2.0]))
    values = np.concatenate([-beyond[::-1], values, beyond])
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    with np.errstate(over="ignore"):
        points = points.astype(neighbours)
    around = [np.nextafter(points, neighbours(np.inf)), np.nextafter(points, neighbours(-np.inf))]
    return np.concatenate([points, *around])


@pytest.mark.parametrize("name", TORCH)
def test_every_value_of_a_format_is_its_own_rounding(name):
    values = every_value(name)
    assert len(values) == (1 << 16 if name in ("bfloat16", "float16") else 1 << 8)
    got = rounded(values, FORMATS[name])
    expected = np.where(np.isinf(values) & FORMATS[name].saturates, np.sign(values) * FORMATS[name].largest, values)
    assert same(got, expected)
    finite = np.unique(values[np.isfinite(values)])
    assert finite[-1] == FORMATS[name].largest
    assert FORMATS[name].eta == finite[finite > 0][0]


@pytest.mark.parametrize("name", TORCH)
def test_around_every_midpoint_torch_casts_alike_from_float32(name):
    points = around_midpoints(name, np.float32)
    points = np.concatenate([points, np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0])])
    cast = torch.from_numpy(points).to(TORCH[name]).double().numpy()
    assert same(rounded(points.astype(np.float64), FORMATS[name]), cast)


@pytest.mark.parametrize("name", TORCH)
def test_torch_rounds_twice_from_float64_and_we_do_not(name):
    points = around_midpoints(name, np.float64)
    got = rounded(points, FORMATS[name])
    cast = torch.from_numpy(points).to(TORCH[name]).double().numpy()
    assert not np.array_equal(got, cast)  # torch goes through float32, where these points become midpoints
    by_float32 = rounded(rounded(points, FORMATS["float32"]), FORMATS[name])
    assert same(by_float32, cast)


def gfloat_cast(points, name):
    info = GFLOAT[name]
    if name == "e4m3":
        return gfloat.round_ndarray(info, points, gfloat.RoundMode.TiesToEven, sat=True)
    return gfloat.round_ndarray(info, points, gfloat.RoundMode.TiesToEven)


@pytest.mark.parametrize("name", TORCH)
def test_gfloat_agrees_from_float64(name):
    points = around_midpoints(name, np.float64)
    assert same(rounded(points, FORMATS[name]), gfloat_cast(points, name))


def test_float32_against_numpy_gfloat_and_torch():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values)].astype(np.float64)
    ulp = np.spacing(values.astype(np.float32)).astype(np.float64)
    points = np.concatenate([values, values + ulp / 2, np.nextafter(values + ulp / 2, np.inf), values + ulp / 4])
    points = np.concatenate([points, rng.integers(0, 1 << 64, 20000, dtype=np.uint64).view(np.float64)])
    got = rounded(points, FORMATS["float32"])
    with np.errstate(all="ignore"):
        assert same(got, points.astype(np.float32).astype(np.float64))
    assert same(got, torch.from_numpy(points).float().double().numpy())
    assert same(got, gfloat_cast(points, "float32"))


def test_ml_dtypes_agrees_from_float32():
    for name, dtype in (("bfloat16", ml_dtypes.bfloat16), ("e5m2", ml_dtypes.float8_e5m2)):
        points = around_midpoints(name, np.float32)
        assert same(rounded(points.astype(np.float64), FORMATS[name]), points.astype(dtype).astype(np.float64))


def awkward(rng, fmt, size):
    """Numbers of the format: long and short significands, near and far exponents, the smallest and the largest."""
    out = [0.0, fmt.eta, -fmt.eta, fmt.tiny, fmt.largest, -fmt.largest]
    low, high = fmt.smallest_exponent - fmt.p + 2, int(np.frexp(fmt.largest)[1])
    while len(out) < size:
        significand = rng.choice((rng.getrandbits(fmt.p), 1, (1 << fmt.p) - 1, (1 << fmt.p - 1) + 1))
        exponent = rng.choice((rng.randint(-4, 4), rng.randint(-fmt.p - 3, fmt.p + 3), rng.randint(low, high)))
        x = Fraction(rng.choice((1, -1)) * significand, 1 << fmt.p) * Fraction(2) ** exponent
        out.append(nearest(x, fmt))
    return np.array(out)


WIDTHS = (
    "float32",
    "bfloat16",
    "float16",
    "e4m3",
    "e5m2",
    "float64",
    "p2",
    "p24",
    "p26",
    "p27",
    "p40",
    "p51",
    "p52",
    "p53",
)


@pytest.mark.parametrize("name", every(6, WIDTHS))
def test_operations_round_once(name):
    fmt, rng = format_named(name), random.Random(name)
    x, y, z = (awkward(rng, fmt, 600) for _ in range(3))
    y[6:300] = nearest_many([Fraction(1) / Fraction(a) if a else Fraction(1) for a in x[6:300]], fmt)
    x, y = (np.where(np.isfinite(a), a, 1.0) for a in (x, y))
    z[6:300] = nearest_many([-Fraction(a) * Fraction(b) for a, b in zip(x[6:300], y[6:300], strict=True)], fmt)
    z = np.where(np.isfinite(z), z, 1.0)
    with np.errstate(all="ignore"):
        got = add(x, y, fmt), multiply(x, y, fmt), divide(x, y, fmt), multiply_add(x, y, z, fmt)
    for i, (a, b, c) in enumerate(zip(*(map(Fraction, v) for v in (x, y, z)), strict=True)):
        assert got[0][i] == nearest(a + b, fmt), (x[i], y[i])
        assert got[1][i] == nearest(a * b, fmt), (x[i], y[i])
        assert not b or got[2][i] == nearest(a / b, fmt), (x[i], y[i])
        assert got[3][i] == nearest(a * b + c, fmt), (x[i], y[i], z[i])


def nearest_many(values, fmt):
    return np.array([nearest(v, fmt) for v in values])


def test_rounding_a_float64_result_would_round_twice():
    """The reason for error-free transformations: a sum of two 40-bit numbers, and a float32 fused product."""
    fmt = format_named("p40")
    x, y = np.array([1.0]), np.array([2.0**-40 * (1 + 2.0**-39)])
    assert rounded(x + y, fmt) == 1 < add(x, y, fmt) == 1 + 2.0**-39
    fmt = FORMATS["float32"]
    x, y, z = np.array([2.0**-24 * (1 + 2.0**-23)]), np.array([1 - 2.0**-23]), np.array([1 + 2.0**-23])
    assert rounded(x * y + z, fmt) == 1 + 2.0**-22 > multiply_add(x, y, z, fmt) == 1 + 2.0**-23


def test_what_is_not_finite_stays_so():
    inf, nan = np.array([np.inf]), np.array([np.nan])
    for name in ("float64", "float32", "p40", "e5m2"):
        fmt = format_named(name)
        with np.errstate(all="ignore"):
            assert np.isnan(add(inf, -inf, fmt)) and np.isnan(multiply(inf, 0 * inf, fmt))
            assert np.isnan(multiply_add(inf, np.ones(1), -inf, fmt)) and np.isnan(rounded(nan, fmt))
            assert add(inf, np.ones(1), fmt) == np.inf and divide(np.ones(1), inf, fmt) == 0
            assert divide(np.ones(1), np.zeros(1), fmt) == np.inf
