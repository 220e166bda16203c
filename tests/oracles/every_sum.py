"""Every result of a short sum: all orders and groupings, each addition rounded or kept."""

from __future__ import annotations

import numpy as np

from verify.arithmetic.rounding import rounded


def every_sum(terms, fmt):
    """All results of adding these numbers in any order and grouping, each addition rounded or kept."""
    if len(terms) == 1:
        return {terms[0]}
    found = set()
    for chosen in range(1, 2 ** (len(terms) - 1)):
        parts = [tuple(x for i, x in enumerate(terms) if (chosen >> i & 1) == side) for side in (0, 1)]
        sums = [x + y for x in every_sum(parts[0], fmt) for y in every_sum(parts[1], fmt)]
        found |= {*sums, *rounded(np.array(sums), fmt).tolist()}
    return found
