"""Large arrays a part at a time: the same numbers as at once, whatever the parts."""

import numpy as np
import pytest

from constructions import array_parts
from constructions.constant_bits.arithmetic import FixedPoint
from constructions.model_arrays import ModelArrays, rounded_to

DTYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.fixture(params=[1, 3, 1 << 20])
def part(request, monkeypatch):
    monkeypatch.setattr(array_parts, "PART", request.param)


def arrays():
    rng = np.random.default_rng(0)
    yield from (np.zeros(0), np.array(-1.3), rng.normal(size=7) * 4, rng.normal(size=(3, 4)).T, rng.normal(size=(2, 0)))


def test_numbers_are_encoded_as_one_by_one(part):
    for bits in (FixedPoint(s) for s in (1, 2, 5)):
        for x in arrays():
            alone = [int(bits.encode(np.array([number]))[0]) for number in x.flat]
            assert bits.encode(x).shape == x.shape and bits.encode(x).flatten().tolist() == alone


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_rounded_wherever_one_is_no_number_of_the_dtype(part, dtype):
    for place in (None, 0, 5, 10):
        x = np.arange(11.0) - 5
        if place is not None:
            x[place] = 1 / 3
        weights = ModelArrays("nothing:Nothing", dtype, {}, {"x": x}, {}).rounded().weights
        assert np.array_equal(weights["x"], rounded_to(dtype, x))
        assert (weights["x"] is x) == (place is None or dtype == "float64")
