"""Upper bounds on the l2 norms of vectors and matrices in balls."""

from __future__ import annotations

import numpy as np

from verify.arithmetic.balls import Ball, point
from verify.arithmetic.slack import ENLARGE, OF_MANY, Array, U, gamma, underflow

LOST = 2.0**-200  # far more than underflow can take away from the numbers here
LARGEST = np.finfo(np.float64).max


def length(x: Ball) -> Array:
    """An upper bound on the l2 norm along the last axis."""
    n = x.mid.shape[-1]
    norm: Array = np.sqrt((x.magnitude**2).sum(-1)) * (1 + gamma(n + 8)) + LOST
    return norm


def frobenius(x: Ball) -> Array:
    """An upper bound on the Frobenius norm of the last two axes."""
    n = x.mid.shape[-1] * x.mid.shape[-2]
    norm: Array = np.sqrt((x.magnitude**2).sum((-1, -2))) * (1 + gamma(n + 8)) + LOST
    return norm


def spectral_norm(G: Ball) -> Array:
    """An upper bound on the l2 norm of matrices (T, M, N).

    nu bounds the norm of the midpoints where nu^2 I - G^T G is positive definite (by `is_positive_definite`);
    elsewhere their Frobenius norm does. Radii add their Frobenius norm.
    """
    N = G.mid.shape[-1]
    whole = frobenius(point(G.mid))
    radii = frobenius(point(G.rad))
    scale = np.where((whole > 0) & np.isfinite(whole), whole, 1.0)
    mid = point(G.mid) / Ball.exact(scale)[:, None, None]
    gram = Ball(np.swapaxes(mid.mid, -1, -2), np.swapaxes(mid.rad, -1, -2)) @ mid
    gram = Ball(np.where(np.isfinite(gram.mid), gram.mid, 0.0), gram.rad)
    nu = np.sqrt(np.maximum(np.linalg.eigvalsh(gram.mid)[:, -1], 0.0)) * (1 + 2.0**-24) + OF_MANY
    square = (Ball.exact(nu) * Ball.exact(nu))[:, None, None]
    target = Ball.exact(np.broadcast_to(np.eye(N), gram.mid.shape)) * square
    is_bound = is_positive_definite(target - gram)
    norm = np.where(is_bound, nu * scale * ENLARGE, whole)
    return np.where(np.isfinite(whole) & np.isfinite(radii), norm + radii, np.inf) * ENLARGE


def is_positive_definite(A: Ball) -> np.ndarray:
    """Whether all symmetric matrices within the balls (T, N, N) are shown to be positive definite.

    Cholesky's factorisation of B in floats, in any order of its sums, is exact for B + D with |D| <= gamma(N+1) /
    (1 - gamma(N+1)) trace(B) (Demmel; Rump, BIT 46, 2006). So if it runs for A - c I, c beyond that bound and the norm
    of the radii, then A is positive definite.
    """
    N = A.mid.shape[-1]
    trace = np.abs(A.mid).sum((-1, -2))
    c = 8 * gamma(N + 8) * trace + frobenius(point(A.rad)) * ENLARGE + LOST
    shifted = A.mid - c[:, None, None] * np.eye(N)
    shifted = (shifted + np.swapaxes(shifted, -1, -2)) / 2  # rounded; within gamma(8) of the trace
    found = np.zeros(len(A.mid), dtype=bool)
    for t, B in enumerate(shifted):
        if np.isfinite(B).all():
            try:
                found[t] = bool(np.isfinite(np.linalg.cholesky(B)).all())
            except np.linalg.LinAlgError:
                found[t] = False
    return found


def total(*x: np.ndarray) -> np.ndarray:
    """The sum of numbers, or of products of two, along the last axis, kept as an axis of size one: in any order."""
    return np.asarray(np.einsum(",".join(["...i"] * len(x)) + "->...", *x))[..., None]


@np.errstate(all="ignore")
def root_mean_square(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on sqrt(mean of x_i^2) along the last axis, kept as an axis of size one.

    Rows are scaled by a power of two first, so that their largest number is between 2^-80 and 2^80, unless all sums of
    squares are between 2^-160 and 2^160 without: what products and squares then lose to underflow is less than 2^-900
    of their mean, and gamma counts it. Scaling back loses LEAST / 2.
    """
    d, squares, scale = x.shape[-1], total(x, x), np.array(1.0)
    if not bool(((squares >= 2.0**-160) & (squares <= 2.0**160)).all()) and bool(x.any()):
        scale = np.ldexp(1.0, -np.clip(np.frexp(np.abs(x).max(-1, keepdims=True))[1], -1000, 1000))
        squares = total(x * scale, x * scale)
    found = np.sqrt(squares / d) / scale
    lost = underflow(squares > 0, 1)
    low = np.maximum(np.minimum(found, LARGEST) * (1 - gamma(d + 16)) - lost, 0)
    return np.where(np.isfinite(squares), low, 0.0), found * (1 + gamma(d + 16)) + lost


@np.errstate(all="ignore")
def hypotenuse(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on sqrt(x^2 + y^2), scaled as `root_mean_square`."""
    low, high = root_mean_square(np.concatenate([x + np.zeros_like(y), y + np.zeros_like(x)], -1))
    return np.minimum(low * (2**0.5 * (1 - 4 * U)), LARGEST), high * (2**0.5 * (1 + 4 * U))
