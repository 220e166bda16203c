"""Several heads beyond enumeration: margins over products of token sets, bounded head by head, and branching.

For a fixed last token the margin of an answer over a rival is D + sum_h N_h / Z_h, each N_h and Z_h a sum over the
positions of tables that depend on one token each. A number l is at most N_h / Z_h on a whole product of token sets iff
the sum of the least N - l Z, position by position, is not negative; if it is, the tokens that make it so give a smaller
quotient (Dinkelbach). So numbers l_h that pass, with D + sum l_h positive, prove a product; where no such numbers are
left, a position at which two heads want different tokens is split between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import FAINT, gamma
from verify.frame.clock import Deadline
from verify.module.automaton import Sets
from verify.module.separable import Layer, Sums, Tables, lost_to_underflow

AT_ONCE = 1 << 21  # entries of a batch's tables
TURNS = 40


@dataclass(frozen=True)
class Products:
    """Products of token sets, each with the columns of its answer and of a rival.

    Shapes: `allowed` (products, positions, vocabulary), `own` and `rival` (products,).
    """

    allowed: Tensor
    own: Tensor
    rival: Tensor

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, rows: Tensor | slice) -> Products:
        return Products(self.allowed[rows], self.own[rows], self.rival[rows])

    @classmethod
    def of(cls, cells: list[tuple[int, Sets]], columns: int, vocabulary: int) -> Products:
        """Each cell, an answer's column and its token sets, with every rival."""
        allowed = torch.zeros(len(cells), len(cells[0][1]), vocabulary, dtype=torch.bool)
        for row, (_, sets) in enumerate(cells):
            for i, tokens in enumerate(sets):
                allowed[row, i, list(tokens)] = True
        pairs = [(row, own, rival) for row, (own, _) in enumerate(cells) for rival in range(columns) if rival != own]
        rows, own, rival = torch.tensor(pairs).T
        return cls(allowed[rows], own, rival)

    def split(self, rows: Tensor, place: Tensor, last: Tensor) -> Products:
        """These products, each in two: the tokens up to `last` at one place, and those after it."""
        part, each = self[rows], torch.arange(len(rows))
        upto = torch.arange(part.allowed.shape[-1]) <= last.unsqueeze(1)
        halves = []
        for side in (upto, ~upto):
            allowed = part.allowed.clone()
            allowed[each, place] &= side
            halves.append(Products(allowed, part.own, part.rival))
        return joined(halves)


def joined(parts: list[Products]) -> Products:
    """Several lists of products as one."""
    return Products(*(torch.cat([getattr(p, name) for p in parts]) for name in ("allowed", "own", "rival")))


class Gaps:
    """The tables of one last token, as margins of pairs of columns; exact in float64 up to `error` on each margin."""

    def __init__(self, tables: Tables, layer: Layer) -> None:
        self.weights, self.fixed_weights = tables.weights.mid, tables.fixed_weights.mid
        self.values, self.fixed_values = tables.values.mid.movedim(-1, 0), tables.fixed_values.mid.T
        self.base, n = tables.base.mid, tables.weights.mid.shape[1]
        # each l_h is off by the rounding of sums of |N| + |l| Z, at most 4 contributions of Z
        self.most = 2 * float(layer.contributions.size.amax()) * ENLARGE  # of any |N_h / Z_h|
        of_head = gamma(4 * n + 32) * 4 * self.most + lost_to_underflow(tables)
        self.error = (2 * Sums(tables, layer).error + layer.n_heads * of_head) * ENLARGE + FAINT

    def __call__(self, products: Products) -> Bounds:
        own, rival = products.own, products.rival
        return Bounds(
            products,
            self.values[own] - self.values[rival],
            self.weights,
            self.fixed_values[own] - self.fixed_values[rival],
            self.fixed_weights,
            self.base[own] - self.base[rival],
        )


@dataclass(frozen=True)
class Bounds:
    """The tables of some products: `values` (products, heads, positions, vocabulary), `weights` without the first axis,
    and the parts that do not depend on the free tokens.
    """

    products: Products
    values: Tensor
    weights: Tensor
    fixed_values: Tensor
    fixed_weights: Tensor
    base: Tensor

    def __getitem__(self, rows: Tensor) -> Bounds:
        return Bounds(
            self.products[rows], self.values[rows], self.weights, self.fixed_values[rows], self.fixed_weights,
            self.base[rows],
        )  # fmt: skip

    def least(self, l: Tensor) -> tuple[Tensor, Tensor]:
        """The least N_h - l_h Z_h of each head, (products, heads), and the tokens there, one more axis."""
        rest = self.values - l[..., None, None] * self.weights
        rest.masked_fill_(~self.products.allowed.unsqueeze(1), torch.inf)
        least, tokens = rest.min(-1)
        return self.fixed_values - l * self.fixed_weights + least.sum(-1), tokens

    def quotients(self, tokens: Tensor) -> Tensor:
        """N_h / Z_h of every head h at tokens (products, inputs, positions): (products, inputs, heads)."""
        chosen = tokens.unsqueeze(2).unsqueeze(-1)  # products, inputs, 1, positions, 1
        shape = (*tokens.shape[:2], *self.values.shape[1:3], 1)
        values = self.values.unsqueeze(1).expand(-1, tokens.shape[1], -1, -1, -1).gather(-1, chosen.expand(shape))
        weights = self.weights.expand(*tokens.shape[:2], -1, -1, -1).gather(-1, chosen.expand(shape))
        above = self.fixed_values.unsqueeze(1) + values.sum((-2, -1))
        return above / (self.fixed_weights + weights.sum((-2, -1)))

    def own_quotients(self, tokens: Tensor) -> Tensor:
        """N_h / Z_h of each head at its own tokens (products, heads, positions): (products, heads)."""
        values = self.values.gather(-1, tokens.unsqueeze(-1)).sum((-2, -1))
        weights = self.weights.expand_as(self.values).gather(-1, tokens.unsqueeze(-1)).sum((-2, -1))
        return (self.fixed_values + values) / (self.fixed_weights + weights)


class Search:
    """Proves products of token sets to have margins of at least half the least margin that was met."""

    def __init__(self, gaps: Gaps, met: float) -> None:
        self.gaps, self.met = gaps, met
        self.worst: list[int] | None = None

    @property
    def goal(self) -> float:
        return max(self.met, 0.0) / 2

    def run(self, products: Products, deadline: Deadline) -> bool:
        """Whether all are proved; false also where an input's margin is within the tables' error, or time is over."""
        stack, width = [products], self.gaps.weights.numel()
        at_once = max(1, AT_ONCE // width)
        if not math.isfinite(self.gaps.error):
            return False
        while stack:
            top = stack.pop()
            if len(top) > at_once:
                stack.append(top[at_once:])
            left = self.step(top[:at_once])
            if self.met <= 4 * self.gaps.error or deadline.is_up():
                return False
            if len(left):
                stack.append(left)
        return True

    def step(self, products: Products) -> Products:
        """What is left of some products: those that could not be proved, split."""
        bounds = self.gaps(products)
        open_rows = torch.arange(len(products))
        _, tokens = bounds.least(torch.zeros_like(bounds.fixed_values))
        quotients = bounds.own_quotients(tokens)  # of single inputs: upper bounds on each head's least
        if self.met == float("inf"):
            self.meet(bounds, tokens)
        hopeless = []
        for _ in range(TURNS):
            spare = bounds.base + quotients.sum(1) - self.goal - self.gaps.error
            is_lost = ~(spare > 0)
            if bool(is_lost.any()):
                rows = is_lost.nonzero().squeeze(1)
                hopeless.append((open_rows[rows], tokens[rows]))
                self.meet(bounds[rows], tokens[rows])
            low = (quotients - (spare / quotients.shape[1]).unsqueeze(1)).clamp(min=-self.gaps.most)
            least, at_low = bounds.least(low)
            keep = (~is_lost & ~(least >= 0).all(1)).nonzero().squeeze(1)
            if not len(keep):
                break
            bounds, open_rows, quotients, tokens = bounds[keep], open_rows[keep], quotients[keep], tokens[keep]
            at_low = at_low[keep]
            found = bounds.own_quotients(at_low)
            tokens = torch.where((found < quotients).unsqueeze(-1), at_low, tokens)
            quotients = torch.minimum(found, quotients)
        else:
            hopeless.append((open_rows, tokens))
            self.meet(bounds, tokens)
        if not hopeless:
            return products[:0]
        rows, tokens = (torch.cat(column) for column in zip(*hopeless, strict=True))
        return self.divided(products, rows, tokens)

    def meet(self, bounds: Bounds, tokens: Tensor) -> None:
        """Takes note of the least margin among the inputs that single heads want."""
        margins = bounds.base.unsqueeze(1) + bounds.quotients(tokens).sum(2)
        least = float(margins.amin())
        if least < self.met:
            row, head = divmod(int(margins.argmin()), margins.shape[1])
            self.met, self.worst = least, tokens[row, head].tolist()

    def divided(self, products: Products, rows: Tensor, tokens: Tensor) -> Products:
        """Split at the place where heads are furthest apart; what they agree on is tried again at the new goal."""
        first, last = tokens.amin(1), tokens.amax(1)
        apart, place = (last - first).max(1)
        agree = apart == 0
        each = torch.arange(len(rows))
        middle = (first[each, place] + last[each, place]) // 2
        cut = ~agree
        return joined([products[rows[agree]], products.split(rows[cut], place[cut], middle[cut])])


def essential(cells: list[tuple[int, Sets]], tables: Tables) -> list[tuple[int, Sets]]:
    """Without the cells that lie in others after exchanging positions, where all positions have the same tables."""
    if not tables.are_alike:
        return cells
    kept: list[tuple[int, list[frozenset[int]]]] = []
    found = []
    for answer, cell in sorted(cells, key=lambda c: -sum(map(len, c[1]))):
        sets = sorted(map(frozenset, cell), key=lambda s: (len(s), sorted(s)))
        if not any(answer == a and all(s <= o for s, o in zip(sets, others, strict=True)) for a, others in kept):
            kept.append((answer, sets))
            found.append((answer, cell))
    return found


Cells = Callable[[Sets], list[tuple[int, Sets]]]


def by_tokens(
    layer: Layer, sets: Sets, cells: Cells, columns: int, deadline: Deadline
) -> Iterator[tuple[bool, float, list[int] | None]]:
    """For each last token in turn: whether its inputs are proved, what bounds all margins so far, and the worst met."""
    met, worst = float("inf"), None
    for token in sets[-1]:
        tables = layer.tables(token)
        found = [(answer, cell[:-1]) for answer, cell in cells((*sets[:-1], (token,)))]
        search = Search(Gaps(tables, layer), met)
        is_proved = search.run(Products.of(essential(found, tables), columns, layer.tokens), deadline)
        if search.worst is not None:
            met, worst = search.met, [*search.worst, token]
        yield is_proved, max(met / 2, 0.0), worst
        if not is_proved:
            return
