"""Linear functions of several quotients of sums of tables, bounded over products of sets.

At each place a thing has one of some tokens; head h has weights w_h(t) > 0 there, and atom k of head h values x_k(t).
With Z_h the sum of the weights over the places and N_k that of the values, the atoms are N_k / Z_h. A cell is a product
of sets of tokens, and a table's sum is least on it where each place has its least entry.

Proof of the bounds. Let u be a linear function of the atoms, u_h its part on head h, and mu_h any number. Then
    u_h . N_h / Z_h = mu_h + T_h / Z_h,    T_h = sum over places of u_h . x_h(t) - mu_h w_h(t),
one sum of tables. With 1 / Z_h within delta_h of zeta_h on the cell,
    u . (N / Z) = sum_h mu_h + sum_h zeta_h T_h + e,    |e| <= sum_h delta_h max |T_h|,
and sum_h zeta_h T_h is ONE sum of tables, whatever the number of heads. Where mu_h is the quotient in the middle of the
cell, T_h is small there, so that e is of second order in the cell's width. That mu_h is any number makes its own
rounding no error. What float64 computes of a table's entry is off by what Cauchy's bound on rounding says of its d + 1
products (`gamma`), by the radii of x and w, and by LEAST for each product that underflows; the largest such error at
each place, summed over the places, is linear in |u| and |mu|, so that it costs one product for all functions u.

With one head, the sign of c + u . N / Z is that of the sum of tables u . x(t) + c w(t), exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma

FAINT_SQUARES = 2.0**-500  # an l2 norm is off by less for each number whose square underflows


@dataclass(frozen=True)
class Tables:
    """Weights and values by place and token, each within its radius; an atom's size is at most `largest`.

    Shapes: `weights`, `weight_radii` (heads, places, tokens); `values`, `value_radii` (atoms, places, tokens); `head`,
    in order, and `largest` (atoms,).
    """

    weights: Tensor
    weight_radii: Tensor
    values: Tensor
    value_radii: Tensor
    head: Tensor
    largest: Tensor


def spread_over(sums: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest sum over the last two axes (places, tokens) of one entry of each place."""
    return sums.amin(-1).sum(-1), sums.amax(-1).sum(-1)


def longest(tables: Tensor) -> Tensor:
    """Bounds the l2 norm along the functions of a sum of one entry of each place: (cells, functions, places, tokens).

    The sum is that of any middles and of the differences from them, whose norms add up at most.
    """
    middle = tables.mean(-1, keepdim=True)
    apart = (tables - middle).square().sum(1).sqrt().amax(-1).sum(-1)
    return middle.sum((2, 3)).square().sum(1).sqrt() + apart * ENLARGE


class Quotients:
    """The atoms over a batch of cells; every bound holds for all tables within the radii.

    A cell's tokens at each place are listed, some of them more than once: `ranks` (cells, places, listed).
    """

    def __init__(self, tables: Tables, ranks: Tensor) -> None:
        self.cells, self.places, listed = ranks.shape
        self.n_heads, self.n_atoms = len(tables.weights), len(tables.values)
        self.parts = [(tables.head == h).nonzero().squeeze(1) for h in range(self.n_heads)]
        self.head = tables.head

        def chosen(table: Tensor) -> Tensor:
            """(rows, places, tokens) as (cells, rows, places, listed)."""
            at = ranks.unsqueeze(1).expand(-1, len(table), -1, -1)
            return table.unsqueeze(0).expand(self.cells, *table.shape).gather(-1, at)

        self.w, self.x = chosen(tables.weights), chosen(tables.values)
        w_rad, x_rad = chosen(tables.weight_radii), chosen(tables.value_radii)
        of_sum = gamma(self.places + 4)
        # a weight is not below 0, and a difference is off by U of itself, so that all terms have one sign
        low, _ = spread_over((self.w - w_rad).clamp(min=0))
        _, high = spread_over(self.w + w_rad)
        low, self.high = low * (1 - 2 * of_sum), high * ENLARGE
        self.low = torch.where(low > 0, low, torch.nan)  # Z that may be 0 decides nothing
        least, most = 1 / self.high * (1 - 4 * U), 1 / self.low * (1 + 4 * U)
        self.zeta = least / 2 + most / 2
        self.delta = (most / 2 - least / 2) * ENLARGE + 8 * U * most + LEAST
        self.most = most
        centre = self.x.mean(-1).sum(-1), self.w.mean(-1).sum(-1)
        # any number would do; none is beyond what an atom may be, so that its rounding is as small as theirs
        self.middle = (centre[0] / centre[1][:, self.head]).clamp(-tables.largest, tables.largest)
        self.terms = max((len(part) for part in self.parts), default=0) + 1
        g = gamma(self.terms + self.places + self.n_heads + 12)
        self.x_error = (g * self.x.abs() + x_rad).amax(-1).sum(-1)  # (cells, atoms)
        self.w_error = (g * self.w + w_rad).amax(-1).sum(-1)  # (cells, heads)
        self.faint = (self.terms + 2) * self.places * LEAST * 2

    def middles(self, u: Tensor) -> Tensor:
        """Each head's part at the middle of the cell: (cells, functions, heads)."""
        return torch.stack([u[..., part] @ self.middle[:, part].unsqueeze(-1) for part in self.parts], -1).squeeze(-2)

    def sums(self, u: Tensor, mu: Tensor, h: int) -> tuple[Tensor, Tensor]:
        """T_h of each function, by place and listed token, and how far any sum over the places is off.

        Shapes: `u` (cells, functions, atoms), `mu` (cells, functions, heads); (cells, functions, places, listed).
        """
        part = self.parts[h]
        factors = torch.cat([u[..., part], -mu[..., h : h + 1]], -1)
        table = torch.cat([self.x[:, part], self.w[:, h : h + 1]], 1).flatten(2)
        found = torch.bmm(factors, table).reshape(*factors.shape[:2], *self.x.shape[2:])
        errors = torch.cat([self.x_error[:, part], self.w_error[:, h : h + 1]], -1).unsqueeze(-1)
        return found, (factors.abs() @ errors).squeeze(-1) * ENLARGE + self.faint

    def range(self, u: Tensor, constant: Tensor, error: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds on constant + u . atoms, off by `error` besides, and the combined tables.

        Shapes: `constant`, `error` (cells, functions); tables (cells, functions, places, listed).
        """
        mu = self.middles(u)
        combined, off = None, error
        for h in range(self.n_heads):
            table, wrong = self.sums(u, mu, h)
            zeta, delta = self.zeta[:, h : h + 1], self.delta[:, h : h + 1]
            low, high = spread_over(table)
            largest = torch.maximum(low.abs(), high.abs()) * ENLARGE + wrong
            scaled = table * zeta[..., None, None]
            combined = scaled if combined is None else combined + scaled
            # a product and a sum for each head: U of numbers whose errors `wrong` has the gamma of already
            off = off + (zeta * wrong * 2 + delta * largest + self.places * self.n_heads * LEAST) * ENLARGE
        assert combined is not None, "a layer has a head"
        low, high = spread_over(combined)
        total = mu.sum(-1)
        size = constant.abs() + mu.abs().sum(-1) + low.abs() + high.abs()
        off = (off + gamma(self.n_heads + 8) * size) * ENLARGE
        return constant + total + low - off, constant + total + high + off, combined

    def of_one_head(self, u: Tensor, constant: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """As `range` where there is one head: its sign is the exact one; the least, and the tables."""
        shift = constant - error
        shift = shift - 2 * U * (constant.abs() + error)
        table, wrong = self.sums(u, -shift.unsqueeze(-1), 0)
        least = spread_over(table)[0]
        least = least - wrong * ENLARGE
        divisor = torch.where(least > 0, self.high, self.low)
        found = least / divisor
        return found - 4 * U * found.abs() - LEAST, table

    def spread(self, u: Tensor) -> Tensor:
        """Bounds the l2 norm of u . (atoms - middle) along the functions: (cells,)."""
        mu = self.middles(u)
        combined, off = None, torch.zeros(self.cells, dtype=u.dtype)
        for h in range(self.n_heads):
            table, wrong = self.sums(u, mu, h)
            zeta, delta = self.zeta[:, h], self.delta[:, h]
            scaled = table * zeta[:, None, None, None]
            combined = scaled if combined is None else combined + scaled
            length = longest(table)
            underflow = FAINT_SQUARES * self.places * u.shape[1]
            rounding = wrong.square().sum(1).sqrt() + underflow
            off = off + (delta * (length + rounding + underflow) + 3 * zeta * rounding) * ENLARGE
        assert combined is not None, "a layer has a head"
        # the products, the sums over heads, and that of the middles are off by the gamma that `wrong` has
        found = longest(combined)
        return (found + off + FAINT_SQUARES * self.places * u.shape[1]) * ENLARGE
