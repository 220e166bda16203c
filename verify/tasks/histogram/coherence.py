"""The coherence of stored vectors, exactly: no float is ever compared with a bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from constructions.errors import BadInput
from verify.arithmetic.balls import HUGE, TINY, Ball
from verify.arithmetic.formats import EXACT_IN_FLOAT64
from verify.arithmetic.slack import Array
from verify.tasks.histogram.exact_forward import DyadicMatrix


@dataclass(frozen=True)
class CertifiedCoherence:
    """The coherence of the stored numbers and what follows from it, as exact rationals.

    `overlap` is max |<v_i, v_j>| over i != j, attained by `pair`; stored vectors are not exactly unit, so
    `norm_squared` gives the least and the largest <v_i, v_i>. `coherence_squared` is the coherence of the lines:
    max <v_i, v_j>^2 / (<v_i, v_i> <v_j, v_j>), to which the bounds of bounds.coherence apply.
    """

    overlap: Fraction
    pair: tuple[int, int]
    norm_squared: tuple[Fraction, Fraction]
    coherence_squared: Fraction


def certify_coherence(vectors: Tensor) -> CertifiedCoherence:
    """Exact overlaps and norms of the rows of a stored matrix, in whatever dtype it was rounded to.

    Claim: A-4.4 asks for unit vectors of coherence M; this says what the rounded ones have. Float64 with a proved
    radius picks the pairs that can be largest, exact integers decide among them.
    Shapes: (T, d), T >= 2.
    Raises: BadInput for another shape or dtype, numbers that are not finite, or a row of zeros.

    >>> certify_coherence(torch.tensor([[1.0, 0.0], [0.6, 0.8]])).overlap == Fraction(float(torch.tensor(0.6)))
    True
    """
    stored = _stored(vectors)
    exact = DyadicMatrix.of(stored)
    gram = exact @ exact.T
    T = stored.shape[0]

    def entry(i: int, j: int) -> Fraction:
        value = gram.entry(i, j)
        return Fraction(int(value.p), int(value.q))

    norms = [entry(t, t) for t in range(T)]
    if not all(norms):
        raise BadInput(f"vectors: row {norms.index(Fraction(0))} is zero, and no line")
    overlap, pair = max((abs(entry(i, j)), (-i, -j)) for i, j in _candidates(stored, by_norm=False))
    coherence_squared = max(entry(i, j) ** 2 / (norms[i] * norms[j]) for i, j in _candidates(stored, by_norm=True))
    return CertifiedCoherence(overlap, (-pair[0], -pair[1]), (min(norms), max(norms)), coherence_squared)


def _stored(vectors: Tensor) -> Array:
    if vectors.dtype not in EXACT_IN_FLOAT64:
        raise BadInput(f"vectors: dtype {vectors.dtype} is not supported. Use float64, float32, bfloat16 or float16.")
    if vectors.ndim != 2 or vectors.shape[0] < 2:
        raise BadInput(f"vectors: shape {tuple(vectors.shape)} must be (T, d) with T >= 2 (one row per token)")
    stored: Array = vectors.detach().cpu().to(torch.float64).numpy()
    if not np.isfinite(stored).all():
        raise BadInput("vectors: holds NaN or infinity, and such rows are no lines")
    return stored


def _candidates(stored: Array, by_norm: bool) -> list[tuple[int, int]]:
    """Pairs i < j that can have the largest overlap (over the product of the norms, if asked); all if in doubt."""
    i, j = np.triu_indices(stored.shape[0], 1)
    gram = Ball.exact(stored) @ Ball.exact(stored).T
    lower = np.maximum(np.abs(gram.mid) - gram.rad, 0.0)
    upper = gram.magnitude
    if by_norm:
        least, most = np.diag(gram.lower), np.diag(gram.upper)
        with np.errstate(divide="ignore", invalid="ignore"):
            lower, upper = (x / np.sqrt(np.outer(n, n)) for x, n in ((lower, most), (upper, least)))
        if not (least > TINY).all() or not (most < HUGE).all():
            return list(zip(i.tolist(), j.tolist(), strict=True))
    # a relative 1e-12 is far more than the few roundings since the balls
    can_be_largest = ~(upper[i, j] * (1 + 1e-12) < lower[i, j].max() * (1 - 1e-12))
    return list(zip(i[can_be_largest].tolist(), j[can_be_largest].tolist(), strict=True))
