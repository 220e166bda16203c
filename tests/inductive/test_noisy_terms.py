"""Whether a sum of products has a term that is not 0, where products underflow and numbers are infinite or none."""

import numpy as np
import pytest
from planted import planted

from verify.tasks.inductive import noisy

SIZES = (0.0, 0.0, 0.0, 5e-324, 1e-300, 1e-200, 2.0**-500, 1.0, 1e200, np.inf)


def check(seed):
    rng = np.random.default_rng(seed)
    few = SIZES[: rng.integers(4, len(SIZES) + 1)] if seed % 2 else (0.0, 0.0, 1e-100, 1.0)
    size, W = (rng.choice(few, shape) for shape in ((5, 3), (3, 4)))
    with np.errstate(all="ignore"):
        reach = size @ W
        found = noisy.has_terms(size, W, reach)
    due = [[any(a > 0 and b > 0 for a, b in zip(row, column, strict=True)) for column in W.T] for row in size]
    assert (found | np.isnan(reach)).tolist() == (np.array(due) | np.isnan(reach)).tolist(), seed


def test_terms_are_counted_where_products_underflow():
    for seed in range(200):
        check(seed)


@pytest.mark.parametrize(
    ("says", "wrongly"), [("least_positive(size) * ", ""), (" * least_positive(W)", ""), (">= SMALLEST", ">= 0")]
)
def test_planted_faults_are_caught(says, wrongly):
    with planted(noisy, "has_terms", says, wrongly), pytest.raises(AssertionError):
        for seed in range(200):
            check(seed)


def test_where_a_size_is_no_number_the_sum_is_unbounded():
    x = noisy.Noisy(np.array([[np.nan, 1.0]]), np.zeros((1, 2)))
    assert np.isnan(noisy.product(noisy.Allowed(), x, noisy.Noisy.exact(np.eye(2))).own).all()
