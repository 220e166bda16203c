"""How well a linear readout of sinusoidal positions follows (cos, sin) of 2 pi p / m: brackets by linear programs.

A readout whose entries are at most W in size has a least largest error E over the positions 1..P. Any readout bounds E
from above; any weights mu of the positions bound it from below, since sum |mu_p| = 1 gives
E >= sum mu_p f_p - W sum_k |sum_p mu_p x_pk|. A linear program finds both, balls evaluate them, so that a slip of the
program could only make the bracket wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx

BASE = 10_000  # of the wavelengths
BITS = 128
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Bracket:
    """The least largest error of a readout with entries up to W: `low` cannot be beaten, `high` is reached."""

    low: float
    high: float


def is_exact(d: int, P: int) -> bool:
    """Whether some readout follows any function of the positions 1..P exactly, however large its entries are.

    Claim: C-T6 (ours). The d/2 frequencies lie in (0, 1], so that e^(i omega), e^(-i omega) are d different numbers:
    their Vandermonde matrix, hence the table of any d positions in a row, is invertible.

    >>> is_exact(64, 64), is_exact(64, 65)
    (True, False)
    """
    return d - d % 2 >= P


def waves(d: int, P: int, bits: int = BITS) -> arb_mat:
    """sin and cos of p BASE^(-2i/d), p = 1..P and i < d/2, in balls: the documents' sinusoidal table, (P, d)."""
    with ctx.workprec(bits):
        frequencies = [(arb(BASE).log() * arb(-2 * i) / arb(d)).exp() for i in range(d // 2)]
        rows = [[wave for w in frequencies for wave in (p * w).sin_cos()] for p in range(1, P + 1)]
        return arb_mat(rows)


def target(m: int, P: int, bits: int = BITS) -> arb_mat:
    """cos 2 pi p / m for p = 1..P, in balls: (P, 1)."""
    with ctx.workprec(bits):
        return arb_mat([[(arb(2 * p) / m).cos_pi()] for p in range(1, P + 1)])


def _check(d: int, P: int, m: int, W: float) -> None:
    """Raises ValueError for sizes without a meaning."""
    if d < 2 or d % 2:
        raise ValueError(f"d={d}: must be even and at least 2")
    if P < 1 or m < 2:
        raise ValueError(f"P={P}, m={m}: must be at least 1 and 2")
    if not 0 < W < float("inf"):
        raise ValueError(f"W={W}: must be positive and finite")


@lru_cache(maxsize=256)
def bracket(d: int, P: int, W: float, m: int = 10) -> Bracket:
    """The least largest |A x_p - cos 2 pi p / m| over p = 1..P, over all A whose d entries are at most W in size.

    Claim: C-T6 (ours).
    Raises: ValueError for an odd d, or a size that is not positive.

    >>> found = bracket(16, 8, 10.0)
    >>> found.high < 0.01, bracket(16, 32, 10.0).low > 0.9
    (True, True)
    """
    _check(d, P, m, W)
    readout, weights = _program(d, P, W, m)
    x, f = waves(d, P), target(m, P)
    with ctx.workprec(BITS):
        errors = x * arb_mat([[float(a)] for a in readout]) - f
        high = max(float(abs(errors[p, 0]).abs_upper()) for p in range(P))
        row = arb_mat([[float(value) for value in weights]])
        missed = row * x
        gained = (row * f)[0, 0] - W * sum((abs(missed[0, k]) for k in range(d)), arb(0))
        total = sum((abs(arb(float(value))) for value in weights), arb(0))
        low = float((gained / total).abs_lower()) if total > 0 and gained > 0 else 0.0
    return Bracket(low * (1 - 2.0**-40), high * (1 + 2.0**-40))


def _program(d: int, P: int, W: float, m: int) -> tuple[Array, Array]:
    """A readout that is nearly best, and weights of the positions that nearly show it: only hints, in float64."""
    from scipy.optimize import linprog

    x = np.array([[float(v.mid()) for v in row] for row in waves(d, P, 64).tolist()])
    f = np.array([float(v.mid()) for v in target(m, P, 64).entries()])
    ones = np.ones((P, 1))
    found = linprog(
        np.r_[np.zeros(d), 1.0],
        A_ub=np.block([[x, -ones], [-x, -ones]]),
        b_ub=np.r_[f, -f],
        bounds=[(-W, W)] * d + [(0, None)],
        method="highs",
    )
    if found.x is None:
        return np.zeros(d), np.zeros(P)
    dual = found.ineqlin.marginals
    return np.clip(found.x[:d], -W, W), dual[:P] - dual[P:]


def limit(d: int, W: float, error: float, m: int = 10) -> tuple[int, int]:
    """The longest P that a readout with entries up to W is proved to follow within `error`, and the first it cannot.

    The least error grows with P, so that the two are next to each other unless the programs left a gap.
    Claim: C-T6 (ours).
    """
    reached, beyond = 1, 4 * d
    while beyond - reached > 1:
        P = (reached + beyond) // 2
        found = bracket(d, P, W, m)
        if found.high <= error:
            reached = P
        elif found.low > error:
            beyond = P
        else:
            break
    return reached, beyond
