"""Unit vectors for T tokens that only have to differ: what softmax can tell apart at a high enough temperature."""

from __future__ import annotations

import math

import numpy as np

from constructions.errors import BadInput, NotKnown
from constructions.frames.finite_fields import hadamard_matrix
from constructions.frames.line_systems import normalized
from constructions.model_arrays import Array
from constructions.progress import Progress


def binary(T: int) -> Array:
    """The binary digits of 1..T, normalised: overlaps at most sqrt(1 - 1/d'), with d' = ceil(log2(T+1)) digits.

    Claim: A-4.5 (App. C.3.1, eq. 70). Unit norm needs the power -1/2 of <bin, bin> where -1 is printed, and
        bin(0), which has no direction, belongs to no token.
    Shapes: (T, d').

    >>> binary(3).round(4).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.7071, 0.7071]]
    """
    digits = ((np.arange(1, T + 1)[:, None] >> np.arange(T.bit_length())) & 1).astype(np.float64)
    return normalized(digits)


def signs(T: int) -> Array:
    """Vectors of d' = ceil(log2(T+1)) signs, of which any two differ: as whole numbers, of square norm d'.

    Claim: A-4.5 needs no more of its code. Where T <= 2^(d'-1) the last sign is the product of the others, so that
        any two vectors differ in two signs or more.
    Shapes: (T, d').

    >>> signs(2).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """
    m = T.bit_length()
    digit = (np.arange(T)[:, None] >> np.arange(m)) & 1
    if 2 ** (m - 1) >= T:
        digit[:, m - 1] = digit.sum(1) % 2
    return (2 * digit - 1).astype(np.float64)


def hadamard(T: int) -> Array | None:
    """T orthogonal vectors of signs, the first of them 1; None where no Hadamard matrix of order T is known here.

    Claim: W-4 and A-4.4 at d = T - 1 and T: without one column they are a simplex, in whole numbers.
    Shapes: (T, T).

    >>> hadamard(4).sum(0).tolist(), hadamard(6)
    ([4.0, 0.0, 0.0, 0.0], None)
    """
    try:
        H = hadamard_matrix(T).astype(np.float64)
    except (BadInput, NotKnown):
        return None
    return H * H[:, :1]


def quarter_circle(T: int) -> Array:
    """T points (sqrt(t/T), sqrt((T-t)/T)), t = 1..T.

    Claim: A-rem (App. C.3.1, remark, eq. 88).
    Shapes: (T, 2).

    >>> quarter_circle(2).round(4).tolist()
    [[0.7071, 0.7071], [1.0, 0.0]]
    """
    t = np.arange(1, T + 1)
    return np.sqrt(np.stack([t / T, (T - t) / T], axis=1))


def circle(T: int) -> Array:
    """T equal angles on the circle: overlaps at most cos(2 pi / T).

    Claim: W-3.
    Shapes: (T, 2).

    >>> bool((circle(4) @ circle(4).T - np.eye(4) < 1e-9).all())
    True
    """
    angle = 2 * math.pi * np.arange(T) / T
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


# 1105 * 1885 = 5^2 13^2 17 29 is a sum of two squares in 144 ways. Factors and summands have 11 bits, as float16 has.
LATTICE_NORM = (1105 / 1024, 1885 / 1024)
LATTICE_TOKENS = 64


def lattice_circle(T: int) -> Array:
    """T multiples of 1/1024 near equal angles, all of exactly the same norm: equal angles, rounded, differ in theirs.

    Claim: W-3. The square norm is the product of LATTICE_NORM.
    Shapes: (T, 2).
    Raises: BadInput for T > 64: there are 144 such points.

    >>> v = 1024 * lattice_circle(32)
    >>> bool((v == v.round()).all()), set((v * v).sum(1).tolist()) == {1105 * 1885}
    (True, True)
    """
    if T > LATTICE_TOKENS:
        raise BadInput(f"T={T}: the 144 points keep at most {LATTICE_TOKENS} tokens well apart. Use circle(T).")
    n = round(LATTICE_NORM[0] * LATTICE_NORM[1] * 2**20)
    roots = [(x, math.isqrt(n - x * x)) for x in range(math.isqrt(n) + 1)]
    quarter = np.array([[x, y] for x, y in roots if x * x + y * y == n and y > 0], np.float64)
    points = np.concatenate([quarter @ turn for turn in QUARTER_TURNS])
    chosen = [points[(points @ turned.T).argmax(0)] for turned in _turned_circles(T)]
    result: Array = min(chosen, key=_largest_overlap) / 1024
    return result


QUARTER_TURNS = [
    np.array(turn, np.float64) for turn in ([[1, 0], [0, 1]], [[0, 1], [-1, 0]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]])
]


def _turned_circles(T: int) -> list[Array]:
    """T equal angles, turned by parts of the angle between two."""
    turns = 2 * math.pi / T * np.arange(100) / 100
    return [circle(T) @ np.array([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in turns]


def _largest_overlap(v: Array) -> float:
    overlaps = v @ v.T
    np.fill_diagonal(overlaps, -math.inf)
    return float(overlaps.max())


def digits(T: int, base: int) -> Array:
    """The digits of 0..T-1 in a base, each an equal angle (or a sign in base 2), over the root of their number.

    Claim: A-rem (App. C.3.1, end of the remark), between the circle (base T) and the binary code (base 2).
    Shapes: (T, m) for base 2, (T, 2 m) otherwise, with m the number of digits of T - 1.
    Raises: BadInput for a base below 2.

    >>> digits(9, 3).shape
    (9, 4)
    """
    if base < 2:
        raise BadInput(f"base={base}: must be at least 2 (a digit has to take two values)")
    m = 1
    while base**m < T:
        m += 1
    digit = np.arange(T)[:, None] // base ** np.arange(m) % base
    points = np.array([[-1.0], [1.0]]) if base == 2 else circle(base)
    result: Array = points[digit].reshape(T, -1) / math.sqrt(m)
    return result


def spread_out(T: int, m: int, *, seed: int = 0, steps: int = 2000, progress: Progress | None = None) -> Array:
    """T points on the sphere S^(m-1) whose largest overlap is small, by descent from four starts.

    Claim: W-3: any spherical code serves; a better one needs a lower temperature.
    Shapes: (T, m).
    Raises: BadInput when m < 2 < T.

    >>> v = spread_out(4, 3, steps=300)  # close to a tetrahedron, whose overlaps are -1/3
    >>> bool((v @ v.T - 2 * np.eye(4) < -0.3).all())
    True
    """
    if m < 2 < T:
        raise BadInput(f"m={m}: the unit sphere of R^1 has two points, got T={T}. Use one dimension more.")
    if m == 1:
        return np.array([[1.0], [-1.0]])[:T]
    if m == 2 or T == 2:
        return np.pad(circle(T), ((0, 0), (0, m - 2)))
    from constructions.codes.descent import descended

    return descended(T, m, seed, steps, progress)
