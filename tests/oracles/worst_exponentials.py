"""exp as far off as the reading "dtype, any order" lets it be, for tests."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np

from verify.arithmetic import evaluation
from verify.tasks.histogram.rounded import directed


@contextmanager
def exponentials(sign):
    """Within: every exp is 2 units in the last place of its value too large or too small; exp(0) = 1.

    The exponential itself is float64's, so that this is for formats of fewer bits.
    """

    def off(x, fmt):
        with np.errstate(all="ignore"):
            exact = np.exp(x)
            unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 1, fmt.smallest_exponent) - fmt.p + 1)
            end = exact + sign * 2 * unit * (1 - 2.0**-30)
            step = np.minimum(unit, np.ldexp(1.0, np.frexp(end)[1] - fmt.p))
            return np.where(x == 0, 1.0, (np.floor if sign > 0 else np.ceil)(end / step) * step)

    with mock.patch.object(evaluation, "exponential", off), mock.patch.object(directed, "exponential", off):
        yield
