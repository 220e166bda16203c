"""Random numbers by a seed, the same on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructions.errors import BadInput, shown

if TYPE_CHECKING:
    import torch

LARGEST_SEED = 2**63 - 1  # of torch; numpy takes none below 0


def check_seed(seed: int) -> None:
    """Raises BadInput unless the seed is an integer that both torch and numpy take.

    >>> check_seed(-1)
    Traceback (most recent call last):
    constructions.errors.BadInput: seed=-1: must be an integer from 0 to 2^63 - 1
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"seed={shown(seed)}: must be an integer from 0 to 2^63 - 1")


def generator(seed: int) -> torch.Generator:
    """A generator of its own, so that torch's global one stays as it is.

    Raises: BadInput for a seed out of range.

    >>> import torch
    >>> torch.rand(1, generator=generator(7)).equal(torch.rand(1, generator=generator(7)))
    True
    """
    import torch

    check_seed(seed)
    return torch.Generator().manual_seed(seed)
