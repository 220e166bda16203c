"""Unit vectors for T tokens that only have to differ: what softmax can tell apart at a high enough temperature."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from constructions.code_search import one_thread
from constructions.errors import BadInput


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
    g = torch.Generator().manual_seed(seed)
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
