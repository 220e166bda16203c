"""Unit vectors for T tokens that only have to differ: what softmax can tell apart at a high enough temperature."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from constructions.errors import BadInput, NotKnown
from constructions.frames.finite_fields import hadamard_matrix
from constructions.seeds import generator
from constructions.threads import one_thread


def binary(T: int) -> Tensor:
    """The binary digits of 1..T, normalised: overlaps at most sqrt(1 - 1/d'), with d' = ceil(log2(T+1)) digits.

    Claim: A-4.5 (App. C.3.1, eq. 70). Unit norm needs the power -1/2 of <bin, bin> where -1 is printed, and
        bin(0), which has no direction, belongs to no token.
    Shapes: (T, d').

    >>> binary(3)
    tensor([[1.0000, 0.0000],
            [0.0000, 1.0000],
            [0.7071, 0.7071]], dtype=torch.float64)
    """
    digits = (torch.arange(1, T + 1)[:, None] >> torch.arange(T.bit_length())) & 1
    return torch.nn.functional.normalize(digits.double(), dim=1)


def signs(T: int) -> Tensor:
    """Vectors of d' = ceil(log2(T+1)) signs, of which any two differ: as whole numbers, of square norm d'.

    Claim: A-4.5 needs no more of its code. Where T <= 2^(d'-1) the last sign is the product of the others, so that
        any two vectors differ in two signs or more.
    Shapes: (T, d').

    >>> signs(2)
    tensor([[-1., -1.],
            [ 1.,  1.]], dtype=torch.float64)
    """
    m = T.bit_length()
    digit = (torch.arange(T)[:, None] >> torch.arange(m)) & 1
    if 2 ** (m - 1) >= T:
        digit[:, m - 1] = digit.sum(1) % 2
    return 2.0 * digit.double() - 1


def hadamard(T: int) -> Tensor | None:
    """T orthogonal vectors of signs, the first of them 1; None where no Hadamard matrix of order T is known here.

    Claim: W-4 and A-4.4 at d = T - 1 and T: without one column they are a simplex, in whole numbers.
    Shapes: (T, T).

    >>> hadamard(4).sum(0).tolist(), hadamard(6)
    ([4.0, 0.0, 0.0, 0.0], None)
    """
    try:
        H = torch.from_numpy(hadamard_matrix(T)).double()
    except (BadInput, NotKnown):
        return None
    return H * H[:, :1]


def quarter_circle(T: int) -> Tensor:
    """T points (sqrt(t/T), sqrt((T-t)/T)), t = 1..T.

    Claim: A-rem (App. C.3.1, remark, eq. 88).
    Shapes: (T, 2).

    >>> quarter_circle(2)
    tensor([[0.7071, 0.7071],
            [1.0000, 0.0000]], dtype=torch.float64)
    """
    t = torch.arange(1, T + 1, dtype=torch.float64)
    return torch.stack([(t / T).sqrt(), ((T - t) / T).sqrt()], dim=1)


def circle(T: int) -> Tensor:
    """T equal angles on the circle: overlaps at most cos(2 pi / T).

    Claim: W-3.
    Shapes: (T, 2).

    >>> bool((circle(4) @ circle(4).T - torch.eye(4) < 1e-9).all())
    True
    """
    angle = 2 * math.pi * torch.arange(T, dtype=torch.float64) / T
    return torch.stack([angle.cos(), angle.sin()], dim=1)


# 1105 * 1885 = 5^2 13^2 17 29 is a sum of two squares in 144 ways. Factors and summands have 11 bits, as float16 has.
LATTICE_NORM = (1105 / 1024, 1885 / 1024)
LATTICE_TOKENS = 64


def lattice_circle(T: int) -> Tensor:
    """T multiples of 1/1024 near equal angles, all of exactly the same norm: equal angles, rounded, differ in theirs.

    Claim: W-3. The square norm is the product of LATTICE_NORM.
    Shapes: (T, 2).
    Raises: BadInput for T > 64: there are 144 such points.

    >>> v = 1024 * lattice_circle(32)
    >>> bool((v == v.round()).all()), (v * v).sum(1).unique().tolist() == [1105 * 1885]
    (True, True)
    """
    if T > LATTICE_TOKENS:
        raise BadInput(f"T={T}: the 144 points keep at most {LATTICE_TOKENS} tokens well apart. Use circle(T).")
    n = round(LATTICE_NORM[0] * LATTICE_NORM[1] * 2**20)
    roots = [(x, math.isqrt(n - x * x)) for x in range(math.isqrt(n) + 1)]
    quarter = torch.tensor([[x, y] for x, y in roots if x * x + y * y == n and y > 0], dtype=torch.float64)
    points = torch.cat([quarter @ turn for turn in QUARTER_TURNS])
    chosen = [points[(points @ turned.T).argmax(0)] for turned in _turned_circles(T)]
    return min(chosen, key=_largest_overlap) / 1024


QUARTER_TURNS = [
    torch.tensor(turn, dtype=torch.float64)
    for turn in ([[1, 0], [0, 1]], [[0, 1], [-1, 0]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]])
]


def _turned_circles(T: int) -> list[Tensor]:
    """T equal angles, turned by parts of the angle between two."""
    turns = 2 * math.pi / T * torch.arange(100, dtype=torch.float64) / 100
    return [circle(T) @ torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]], dtype=torch.float64) for a in turns]


def _largest_overlap(v: Tensor) -> float:
    return float((v @ v.T).fill_diagonal_(-math.inf).max())


def digits(T: int, base: int) -> Tensor:
    """The digits of 0..T-1 in a base, each an equal angle (or a sign in base 2), over the root of their number.

    Claim: A-rem (App. C.3.1, end of the remark), between the circle (base T) and the binary code (base 2).
    Shapes: (T, m) for base 2, (T, 2 m) otherwise, with m the number of digits of T - 1.
    Raises: BadInput for a base below 2.

    >>> digits(9, 3).shape
    torch.Size([9, 4])
    """
    if base < 2:
        raise BadInput(f"base={base}: must be at least 2 (a digit has to take two values)")
    m = 1
    while base**m < T:
        m += 1
    digit = torch.arange(T)[:, None] // base ** torch.arange(m) % base
    points = torch.tensor([[-1.0], [1.0]], dtype=torch.float64) if base == 2 else circle(base)
    return points[digit].flatten(1) / math.sqrt(m)


def spread_out(T: int, m: int, *, seed: int = 0, steps: int = 2000) -> Tensor:
    """T points on the sphere S^(m-1) whose largest overlap is small, by descent from four starts.

    Claim: W-3: any spherical code serves; a better one needs a lower temperature.
    Shapes: (T, m).
    Raises: BadInput when m < 2 < T.

    >>> v = spread_out(4, 3, steps=300)  # close to a tetrahedron, whose overlaps are -1/3
    >>> bool((v @ v.T - 2 * torch.eye(4) < -0.3).all())
    True
    """
    if m < 2 < T:
        raise BadInput(f"m={m}: the unit sphere of R^1 has two points, got T={T}. Use one dimension more.")
    if m == 2 or T == 2:
        return torch.nn.functional.pad(circle(T), (0, m - 2))
    with one_thread():
        return _spread_out(T, m, seed, steps)


def _spread_out(T: int, m: int, seed: int, steps: int) -> Tensor:
    g = generator(seed)
    v = torch.randn(4, T, m, generator=g, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([v], lr=0.05)
    diagonal = 9 * torch.eye(T, dtype=torch.float64)
    for step in range(steps):
        sharpness = 5.0 * 400.0 ** (step / steps)
        unit = torch.nn.functional.normalize(v, dim=-1)
        overlaps = (unit @ unit.transpose(1, 2) - diagonal).flatten(1)
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / steps) + 1e-4
        optimizer.zero_grad()
        (torch.logsumexp(sharpness * overlaps, 1) / sharpness).sum().backward()
        optimizer.step()
    unit = torch.nn.functional.normalize(v.detach(), dim=-1)
    largest = (unit @ unit.transpose(1, 2) - diagonal).flatten(1).amax(1)
    return unit[int(largest.argmin())]
