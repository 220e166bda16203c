"""Small groups of orthogonal matrices drawn at random: good line packings are often orbits of one."""

from __future__ import annotations

from math import pi

import torch
from torch import Generator, Tensor

KINDS = ("cyclic", "signs", "paulis")


def random_group(kind: str, n: int, d: int, generator: Generator) -> Tensor:
    """n orthogonal matrices acting on lines of R^d, the identity first; n is a power of two unless cyclic.

    The matrices form a group up to signs, which lines do not see. They need not be distinct.
    Shapes: (n, d, d), float64.

    >>> random_group("signs", 4, 3, Generator().manual_seed(0)).shape
    torch.Size([4, 3, 3])
    """
    if kind == "cyclic":
        return _cyclic(n, d, generator)
    commuting_up_to_sign = _sign_flip if kind == "signs" else _pauli
    group = torch.eye(d, dtype=torch.float64)[None]
    while len(group) < n:
        group = torch.cat([group, group @ commuting_up_to_sign(d, generator)])
    return group


def _cyclic(n: int, d: int, generator: Generator) -> Tensor:
    """The powers of R, a rotation in d // 2 planes with R^n = 1 or R^n = -1 (the odd dimension is left alone)."""
    is_projective = int(torch.randint(0, 2, (1,), generator=generator)) if d % 2 == 0 else 0
    turns = torch.randint(0, n, (d // 2,), generator=generator) + 0.5 * is_projective
    angles = torch.arange(n, dtype=torch.float64)[:, None] * turns * 2 * pi / n
    powers = torch.eye(d, dtype=torch.float64).repeat(n, 1, 1)
    first = torch.arange(d // 2) * 2
    powers[:, first, first] = powers[:, first + 1, first + 1] = angles.cos()
    powers[:, first + 1, first] = angles.sin()
    powers[:, first, first + 1] = -angles.sin()
    return powers


def _sign_flip(d: int, generator: Generator) -> Tensor:
    return torch.diag(1.0 - 2.0 * torch.randint(0, 2, (d,), generator=generator).double())


def _pauli(d: int, generator: Generator) -> Tensor:
    """A tensor product of 1, X, Z, XZ on the power of two in d, and of a sign flip on the odd rest."""
    one, X, Z = torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.diag(torch.tensor([1.0, -1.0]))
    matrix, odd = torch.eye(1, dtype=torch.float64), d
    while odd % 2 == 0:
        factor = (one, X, Z, X @ Z)[int(torch.randint(0, 4, (1,), generator=generator))]
        matrix, odd = torch.kron(matrix, factor.double()), odd // 2
    return torch.kron(matrix, _sign_flip(odd, generator))
