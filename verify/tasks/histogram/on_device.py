"""The innermost loop over multisets in torch, on a cuda device where one is at hand; it is never asked for.

What it says is what the other loops say: sums of f of the wrong, and what is near a tie. Products are of float32, in
any order, fused or not, as the radius of narrow.py allows; where a setting may have them rounded to fewer bits there is
no device. torch is not imported for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic.formats import FORMATS
from verify.arithmetic.torch_settings import lowered
from verify.tasks.histogram.loops import NEAR, WRONG, LoopAsked, enter, those_with_room

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from verify.tasks.histogram.narrow import Narrow

WORK = 1 << 27  # numbers in a working array
WORTH = 1 << 20  # multisets of a cell, from which on a device is asked
A_LOOK = 1 << 24  # multisets between two looks at the clock
SECONDS_EACH = 3e-9  # a multiset
EMULATED = "CUBLAS_EMUL"  # variables under which products of float32 are made from narrower ones


def device_at_hand() -> torch.device | None:
    """A cuda device that multiplies in float32, where torch is loaded and sees one."""
    if (
        "torch" not in sys.modules
        or lowered(FORMATS["float32"])
        or any(name.startswith(EMULATED) for name in os.environ)
    ):
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.device("cuda")
    return device if keeps_all_bits(device) else None


def keeps_all_bits(device: torch.device) -> bool:
    """Whether products there keep the last bit of float32, for what shows a format of fewer."""
    import torch

    last = 1 + 2.0**-23
    found = last * torch.eye(9, 33, device=device) @ torch.ones(33, 1 << 12, device=device)
    return bool((found.double() == last).all())


@dataclass
class DeviceLoop:
    """The loop on a device, which holds the tables of the cell that it was asked about last.

    It looks at nothing closer: all that is near a tie stays so.
    """

    device: torch.device
    tables: tuple[Tensor, ...] = ()
    narrow: Narrow | None = None

    def __call__(self, asked: LoopAsked) -> tuple[int, int]:
        """The prefix at which it ended, and how many entries there are."""
        import torch

        number, chosen = 0, those_with_room(asked)
        self._load(asked.narrow)
        for at, n in self._parts(asked, chosen):
            wrong, near, low, ways = self._judge(asked, at, n)
            asked.wrong[at] = torch.where(wrong, ways, 0).sum(1).cpu().numpy()
            if asked.closer is not None:
                asked.closer.near[at] = torch.where(near, ways, 0).sum(1).cpu().numpy()
                continue
            for kind, found in ((NEAR, near), (WRONG, low)):
                rows = found.any(1).nonzero()[:, 0]
                if len(rows):
                    number = enter(asked.entries, number, at[rows.cpu().numpy()], found[rows].cpu().numpy(), kind)
        return int(chosen[-1]) + 1, number

    def _load(self, narrow: Narrow) -> None:
        """Copies the tables of a cell, unless they are there."""
        import torch

        if narrow is not self.narrow:
            low, f = narrow.prefixes.padded
            arrays = (narrow.larger, narrow.smaller, narrow.leaves, narrow.W.T.copy(), narrow.error, f, low)
            self.tables, self.narrow = tuple(torch.from_numpy(array).to(self.device) for array in arrays), narrow

    def _parts(self, asked: LoopAsked, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Prefixes with the same leaves, as many together as there is room for, and how many leaves those are."""
        leaves = asked.narrow.prefixes.leaves[chosen]
        for n in np.unique(leaves).tolist():
            same, together = chosen[leaves == n], max(1, WORK // (n * len(asked.narrow.leaves)))
            yield from ((same[begin : begin + together], n) for begin in range(0, len(same), together))

    def _judge(self, asked: LoopAsked, at: np.ndarray, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Which leaves of some prefixes are wrong, near, and wrong with few tokens, and f: (prefixes, leaves) each."""
        import torch

        larger, smaller, leaves, W, error, f, low = self.tables
        prefixes = asked.narrow.prefixes
        i, j, f_from, limit = (
            torch.from_numpy(x[at]).to(self.device, torch.int64)
            for x in (prefixes.larger, prefixes.smaller, prefixes.f_from, asked.limit)
        )
        u = (larger[i] + smaller[j]).T.contiguous()
        z = u[:, :, None] + leaves[:, None, :n]
        neurons, D = len(z) - (1 if asked.closer is None else len(W)), z[-1]
        z[:neurons].clamp_(min=0)
        differences = (W @ z.view(len(z), -1)[: W.shape[1]]).view(len(W), len(at), n)
        threshold = float(asked.slope) * D + float(asked.rest)
        if asked.closer is not None:
            differences, threshold = differences + z[neurons:], torch.zeros_like(D)
        is_right = torch.ones_like(D, dtype=torch.bool)
        is_wrong = torch.zeros_like(is_right)
        if len(W):
            is_right = (differences - error[:, None, None]).amin(0) > threshold
            is_wrong = (differences + error[:, None, None]).amin(0) < 0
        ways = f[f_from[:, None] + torch.arange(n, device=self.device)]
        return is_wrong, ~(is_right | is_wrong), is_wrong & (low[:n] <= limit[:, None]), ways
