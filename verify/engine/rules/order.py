"""Numbers in order, and which of them is the largest: values exactly, places as intervals of whole numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from verify.engine.balls import Arithmetic, Ball, Norm, Whole
from verify.engine.dtypes import WHOLES
from verify.engine.rules.registry import rule


def interval_of(may_be: Tensor) -> Whole:
    """The first and the last place along the last axis that may be it; any where none may."""
    n = may_be.shape[-1]
    places = torch.arange(n, device=may_be.device)
    first, last = torch.where(may_be, places, n).amin(-1), torch.where(may_be, places, -1).amax(-1)
    is_none = ~may_be.any(-1)
    return Whole(torch.where(is_none, 0, first), torch.where(is_none, n - 1, last))


def pairs(x: Ball, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The ends of each number and of each other, the axis last: (..., n, 1) twice and (..., 1, n) twice."""
    low, high = (end.movedim(dim, -1) for end in x.ends)
    return low.unsqueeze(-1), high.unsqueeze(-1), low.unsqueeze(-2), high.unsqueeze(-2)


def in_order(x: Ball, dim: int, descending: bool) -> tuple[Ball, Whole]:
    """The k-th smallest number moves no more than the one that moves most, nor all of them further in the l2 norm.

    Number i has a rank of at least as many as are surely below it, and at most as many as are not surely above.
    """
    mid = torch.sort(x.mid, dim, descending=descending).values
    rad = x.radius.amax(dim, keepdim=True)
    rad = torch.where(torch.isnan(x.mid).any(dim, keepdim=True), torch.nan, rad).expand(mid.shape)
    n, is_last = x.mid.shape[dim], dim % x.mid.ndim == x.mid.ndim - 1
    norm = Norm(x.norm.radius) if x.norm is not None and x.norm.axis == -1 and is_last else None
    low, high, other_low, other_high = pairs(x, dim)
    below, above = (other_high < low).sum(-1), (other_low > high).sum(-1)
    if descending:
        below, above = above, below
    ranks = torch.arange(n, device=mid.device)
    may_be = (below.unsqueeze(-2) <= ranks.unsqueeze(-1)) & (ranks.unsqueeze(-1) <= (n - 1 - above).unsqueeze(-2))
    found = interval_of(may_be)
    return Ball(mid, rad, norm, x.infinite), Whole(found.low.movedim(-1, dim), found.high.movedim(-1, dim))


@rule("aten.sort.default")
def sort(at: Arithmetic, x: Ball, dim: int = -1, descending: bool = False) -> list[Ball | Whole]:
    """The numbers in order, exact, and where they stood."""
    return list(in_order(x, dim, descending))


@rule("aten.topk.default")
def topk(
    at: Arithmetic, x: Ball, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Ball | Whole]:
    """The k largest or smallest numbers in order, exact, and where they stood."""
    values, places = in_order(x, dim, largest)
    norm = values.norm
    values = Ball(values.mid.narrow(dim, 0, k), values.radius.narrow(dim, 0, k), norm, x.infinite)
    return [values, Whole(places.low.narrow(dim, 0, k), places.high.narrow(dim, 0, k))]


def place(x: Ball, dim: int | None, keepdim: bool) -> Whole:
    """The first place of the largest number: one that none before surely equals or exceeds, and none after exceeds."""
    flat = x if dim is not None else Ball(x.mid.reshape(-1), x.radius.reshape(-1))
    axis = 0 if dim is None else dim
    _, high, other_low, _ = pairs(flat, axis)
    n = flat.mid.shape[axis]
    places = torch.arange(n, device=x.mid.device)
    is_before = places.unsqueeze(0) < places.unsqueeze(1)  # (n, others)
    is_beaten = torch.where(is_before, high <= other_low, high < other_low).any(-1)
    found = interval_of(~is_beaten)
    if not keepdim:
        return found
    shape = [1] * x.mid.ndim if dim is None else [1 if i == dim % x.mid.ndim else s for i, s in enumerate(x.mid.shape)]
    return Whole(found.low.reshape(shape), found.high.reshape(shape))


@rule("aten.argmax.default", dtypes=WHOLES, aside=(0,))
def argmax(at: Arithmetic, x: Ball, dim: int | None = None, keepdim: bool = False) -> Whole:
    """The first place of the largest number, sure where no other may be larger."""
    return place(x, dim, keepdim)


@rule("aten.argmin.default", dtypes=WHOLES, aside=(0,))
def argmin(at: Arithmetic, x: Ball, dim: int | None = None, keepdim: bool = False) -> Whole:
    """The first place of the smallest number, sure where no other may be smaller."""
    return place(Ball(-x.mid, x.rad), dim, keepdim)
