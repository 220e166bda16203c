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

A lower bound alone needs less (`least`). With z- <= 1 / Z_h <= z+ on the cell, T / Z is at least z- T where T >= 0 and
at least z+ T elsewhere: the smaller of the two, which is concave in T, so that it is above its chord a T + b on an
interval, and sum_h (a_h T_h + b_h) is ONE sum of tables again. The least quotient of head h by itself on the cell is
chosen for mu_h: with it T_h >= 0, b_h is 0, and the bound is at least the sum of the heads' least quotients, which for
one head is exact. On narrow cells, z+ <= 8 z-, the quotient in the middle is tried as well; the better bound stands.

A head may see one token by 1e17 times the weight of another, and z+ be as many times z-. So what float64 computes of
T is no number that is multiplied by z+: each entry is off by at most a share s of its weight, so that T is off by s Z
and T / Z by s (`errors`); and mu_h is a number with which T_h is nowhere below 0, not one that is merely near the least
quotient. Where z+ T is much above the line a T + b at the tokens where the sum is least, a cell is split by the
weights of that head, so that tokens which outweigh all others are in one half alone (`_separating`).

What is said of all inputs of a cell is said of those with token t at place p as well, where the one sum of tables is
larger than its least by what t's entry at p is above the least one there (`by_token`).

The least quotient is where the least N - l Z is zero (Dinkelbach). Whatever l is found, it is only a number mu_h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from verify.arithmetic.machine_code import is_compiled
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma
from verify.reduction.chords import Bounding, Chords, chords

NEARLY = 2.0**-19  # of a function's largest entry: by how much a least quotient is taken too low, for float32's sake
NARROW = 8.0  # 1 / Z's upper end by its lower one, beyond which quotients in the middle hardly ever bound better
FAR = 2.0**80  # the same, beyond which float32 does not hold what the faintest tokens add
TURNS = 64  # in which a head's least quotient is looked for, unless it is found before
CACHED = 1 << 18  # numbers
STRONG = 2.0**-600
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

    @cached_property
    def parts(self) -> list[Tensor]:
        """The atoms of each head."""
        assert bool((self.head.diff() >= 0).all()), "atoms in the order of their heads"
        return [(self.head == h).nonzero().squeeze(1) for h in range(len(self.weights))]

    @cached_property
    def terms(self) -> int:
        """How many products an entry of a function's table is the sum of: one for each atom, and one for Z."""
        return max(map(len, self.parts)) + 1

    @cached_property
    def rows(self) -> Tensor:
        """All numbers of a place and token side by side: (places tokens, numbers), in the order of `widths`."""
        # a weight is not below 0, and a difference is off by U of itself, so that all terms have one sign
        ends = (self.weights - self.weight_radii).clamp(min=0), self.weights + self.weight_radii
        return torch.cat([self.values, self.weights, *ends]).flatten(1).T.contiguous()

    @cached_property
    def widths(self) -> list[int]:
        return [len(self.values), *[len(self.weights)] * 3]

    @cached_property
    def rounding(self) -> float:
        """Bounds what sums over places and heads of sums of `terms` products are off, relative to absolute values."""
        return gamma(self.terms + self.weights.shape[1] + len(self.weights) + 12)

    @cached_property
    def value_errors(self) -> tuple[Tensor, Tensor]:
        """Numbers s, a of each atom: an entry's rounding and radius are at most s times its weight, or a."""
        return self._shares(self.rounding * self.values.abs() + self.value_radii, self.head)

    @cached_property
    def value_errors_by_head(self) -> Tensor:
        """The same as one matrix, 0 where an atom is another head's: (atoms, 2 heads), first s, then a."""
        is_own = self.head.unsqueeze(1) == torch.arange(len(self.weights))
        return torch.cat([torch.where(is_own, x.unsqueeze(1), 0.0) for x in self.value_errors], 1)

    @cached_property
    def weight_errors(self) -> tuple[Tensor, Tensor]:
        """The same of each head's weights."""
        errors = self.rounding * self.weights + self.weight_radii
        return self._shares(errors, torch.arange(len(self.weights)))

    def _shares(self, errors: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
        """The largest quotient of errors and the lower ends of weights; of those at most STRONG the largest error.

        An error is a product, which may have underflowed, and is multiplied by |u| or |mu|, however large: so LEAST is
        added here, where that multiplies it too.
        """
        errors, least = errors + LEAST, (self.weights - self.weight_radii)[head]
        is_strong = least > STRONG
        shares = torch.where(is_strong, errors / torch.where(is_strong, least, 1.0), 0.0)
        rest = torch.where(is_strong, 0.0, errors)
        return shares.flatten(1).amax(1) * ENLARGE + LEAST, rest.flatten(1).amax(1)


@dataclass(frozen=True)
class Entries:
    """The tokens of the places of each cell, those of one place after the other, some of them more than once.

    A cell's places come in the order of the sizes of their sets, whichever they are, so that few tokens are repeated
    where cells of alike sizes are side by side. `at` (cells, entries) is place times `tokens` plus token; `slots` are
    the entries of the first place of each cell, the second one, and so on.
    """

    at: Tensor
    slots: list[slice]
    places: int
    tokens: int

    @classmethod
    def of(cls, masks: npt.NDArray[np.bool_]) -> Entries:
        """The tokens that masks (cells, places, tokens) have, at least one at each place."""
        cells, places, tokens = masks.shape
        sizes, every = masks.sum(-1), np.arange(cells)[:, None]
        listed, order = np.argsort(~masks, axis=-1, kind="stable"), np.argsort(-sizes, axis=1, kind="stable")
        at, slots, first = [], [], 0
        for place in order.T[..., None]:
            size = sizes[every, place]
            found = listed[every, place, np.arange(size.max()) % size]
            at.append(place * tokens + found)
            slots.append(slice(first, first := first + found.shape[1]))
        return cls(torch.from_numpy(np.concatenate(at, 1)), slots, places, tokens)

    def only(self, rows: Tensor) -> Entries:
        """Those of some of the cells."""
        return replace(self, at=self.at[rows])

    def rows(self, tokens: int) -> Tensor:
        """Place times so many tokens plus token."""
        return self.at // self.tokens * tokens + self.at % self.tokens

    def by_place(self, x: Tensor, otherwise: float) -> Tensor:
        """Numbers (cells, entries) as (cells, places, tokens), of tokens that are not listed another one."""
        found = torch.full((len(x), self.places * self.tokens), otherwise, dtype=x.dtype)
        return found.scatter_(1, self.at, x).reshape(-1, self.places, self.tokens)


def by_head(x: Tensor) -> Tensor:
    """Numbers (cells, heads) as (heads, cells, 1)."""
    return x.T.unsqueeze(-1)


class LowerBounds(NamedTuple):
    """Lower bounds on functions, two tables, and lower bounds where a place has one of its listed tokens.

    The table's least sum is that of the least function of each cell; a cell is best split where `spread` spreads most.
    Shapes: `low` (cells, functions), `table`, `spread` (cells, entries), `by_token` (cells, functions, entries), if it
    was asked for.
    """

    low: Tensor
    table: Tensor
    spread: Tensor
    by_token: Tensor | None = None

    def each(self, bound: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]) -> LowerBounds:
        """Other functions, bounded by these; numbers of a cell and a function are shaped by what `bound` is given."""
        by_token = None if self.by_token is None else bound(self.by_token, lambda x: x.unsqueeze(-1))
        return LowerBounds(bound(self.low, lambda x: x), self.table, self.spread, by_token)

    def raised(self, rows: Tensor, other: LowerBounds) -> LowerBounds:
        """The better of these and other bounds on the same functions of some cells."""
        low, wide = self.low[rows], self.by_token
        is_better = (other.low.amin(1) > low.amin(1)) | torch.isnan(low.amin(1))
        table, spread = (
            old.index_copy(0, rows, torch.where(is_better[:, None], new, old[rows]))
            for old, new in ((self.table, other.table), (self.spread, other.spread))
        )
        if wide is not None and other.by_token is not None:
            wide = wide.index_copy(0, rows, torch.fmax(wide[rows], other.by_token))
        low = self.low.index_copy(0, rows, torch.fmax(low, other.low))
        return LowerBounds(low, table, spread, wide)


class Quotients:
    """The atoms over a batch of cells; every bound holds for all tables within the radii."""

    def __init__(self, tables: Tables, entries: Entries) -> None:
        self.cells, self.entries = entries.at.shape
        self.slots, self.places = entries.slots, entries.places
        self.n_heads, self.n_atoms = len(tables.weights), len(tables.values)
        self.parts, self.head, self.terms = tables.parts, tables.head, tables.terms
        rows = entries.rows(tables.weights.shape[2])
        self.rows = tables.rows[rows.flatten()].reshape(*rows.shape, -1)
        _, self.w, at_least, at_most = torch.split(self.rows.mT, tables.widths, 1)
        of_sum = gamma(self.places + 4)
        low, high = self.least_sum(at_least) * (1 - 2 * of_sum), self.greatest_sum(at_most) * ENLARGE
        low = torch.where(low > 0, low, torch.nan)  # Z that may be 0 decides nothing
        self.few, self.many = 1 / high * (1 - 4 * U), 1 / low * (1 + 4 * U)  # z- and z+
        self.zeta = self.few / 2 + self.many / 2
        self.delta = (self.many / 2 - self.few / 2) * ENLARGE + 8 * U * self.many + LEAST
        centre = torch.stack([self.rows[:, slot].mean(1) for slot in self.slots]).sum(0)
        # any number would do; none is beyond what an atom may be, so that its rounding is as small as theirs
        middle = centre[:, : self.n_atoms] / centre[:, self.n_atoms + self.head]
        self.middle = middle.clamp(-tables.largest, tables.largest)
        self.most = high
        self.value_errors, self.weight_errors = tables.value_errors_by_head, tables.weight_errors
        self.faint = (self.terms + 2) * self.places * LEAST * 2

    @property
    def x(self) -> Tensor:
        """The values of the atoms: (cells, atoms, entries)."""
        return self.rows[..., : self.n_atoms].mT

    def least_sum(self, x: Tensor) -> Tensor:
        """The least sum of one entry of each place: (..., entries) to (...)."""
        return torch.stack([x[..., slot].amin(-1) for slot in self.slots]).sum(0)

    def greatest_sum(self, x: Tensor) -> Tensor:
        return torch.stack([x[..., slot].amax(-1) for slot in self.slots]).sum(0)

    def ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest entries of each place: (..., entries) to (places, ...)."""
        found = [(x[..., slot].amin(-1), x[..., slot].amax(-1)) for slot in self.slots]
        return torch.stack([low for low, _ in found]), torch.stack([high for _, high in found])

    def longest(self, tables: Tensor) -> Tensor:
        """Bounds the l2 norm along the functions of a sum of one entry of each place: (..., functions, entries).

        The sum is that of any middles and of the differences from them, whose norms add up at most.
        """
        middle, apart = [], []
        for slot in self.slots:
            middle.append(tables[..., slot].mean(-1))
            apart.append((tables[..., slot] - middle[-1].unsqueeze(-1)).square().sum(-2).sqrt().amax(-1))
        return torch.stack(middle).sum(0).square().sum(-1).sqrt() + torch.stack(apart).sum(0) * ENLARGE

    def middles(self, u: Tensor) -> Tensor:
        """Each head's part at the middle of the cell: (heads, cells, functions)."""
        return torch.stack([u[..., part] @ self.middle[:, part].unsqueeze(-1) for part in self.parts]).squeeze(-1)

    def products(self, u: Tensor) -> Tensor:
        """u_h . x of each head and function, by listed token: (heads, cells, functions, entries)."""
        found = u.new_empty(self.n_heads, self.cells, u.shape[1], self.entries)
        for h, part in enumerate(self.parts):
            torch.bmm(u[..., part], self.x[:, int(part[0]) : int(part[-1]) + 1], out=found[h])
        return found

    def less(self, products: Tensor, mu: Tensor) -> Tensor:
        """T_h of each function: `products` (heads, cells, functions, entries), `mu` (heads, cells, functions)."""
        scaled: Tensor = self.w.transpose(0, 1).unsqueeze(2) * mu.unsqueeze(-1)
        return torch.sub(products, scaled, out=scaled)

    def errors(self, u: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers s, a: any sum of T_h over the places is off by at most s Z_h + a; (heads, cells, functions) each."""
        w_share, w_rest = self.weight_errors
        share, rest = torch.split((u.abs() @ self.value_errors).permute(2, 0, 1), self.n_heads)
        share = (share + mu.abs() * w_share[:, None, None]) * ENLARGE + (self.terms + 2) * LEAST
        rest = (rest + mu.abs() * w_rest[:, None, None]) * (self.places * ENLARGE) + self.faint
        return share, rest

    def wrong(self, u: Tensor, mu: Tensor) -> Tensor:
        """How far any sum of T_h over the places is off: (heads, cells, functions)."""
        share, rest = self.errors(u, mu)
        return (share * by_head(self.most) + rest) * ENLARGE

    def sums(self, u: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
        """T_h of each function, by listed token, and how far any sum over the places is off.

        Shapes: `u` (cells, functions, atoms), `mu` (heads, cells, functions); (heads, cells, functions, entries).
        """
        return self.less(self.products(u), mu), self.wrong(u, mu)

    def _parts(self, functions: int) -> Iterator[tuple[slice, Quotients]]:
        """The cells, as many at a time as leaves a table of these functions in a core's cache."""
        at_once = max(1, CACHED // (self.entries * max(functions, 1)))
        for first in range(0, self.cells, at_once):
            rows = slice(first, first + at_once)
            yield rows, self.only(rows)

    def only(self, rows: slice | Tensor) -> Quotients:
        """Some of the cells."""
        part = copy(self)
        for name in ("rows", "w", "few", "many", "zeta", "delta", "middle", "most"):
            setattr(part, name, getattr(self, name)[rows])
        part.cells = len(part.rows)
        return part

    def range(self, u: Tensor, constant: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds on constant + u . atoms, off by `error` besides: (cells, functions) each."""
        parts = self._parts(u.shape[1])
        low, high = zip(*(part._range(u[rows], constant[rows], error[rows]) for rows, part in parts), strict=True)
        return torch.cat(low), torch.cat(high)

    def _range(self, u: Tensor, constant: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        mu = self.middles(u)
        table, wrong = self.sums(u, mu)
        zeta, delta = by_head(self.zeta), by_head(self.delta)
        low, high = self.least_sum(table), self.greatest_sum(table)
        largest = torch.maximum(low.abs(), high.abs()) * ENLARGE + wrong
        combined = table.mul_(zeta.unsqueeze(-1)).sum(0)
        # a product and a sum for each head: U of numbers whose errors `wrong` has the gamma of already
        off = error + ((zeta * wrong * 2 + delta * largest + self.places * self.n_heads * LEAST) * ENLARGE).sum(0)
        low, high = self.least_sum(combined), self.greatest_sum(combined)
        size = constant.abs() + mu.abs().sum(0) + low.abs() + high.abs()
        off = (off + gamma(self.n_heads + 8) * size) * ENLARGE
        total = constant + mu.sum(0)
        return total + low - off, total + high + off

    def least(
        self, u: Tensor, constant: Tensor, error: Tensor, *, by_least_quotients: bool = True, by_token: bool = False
    ) -> LowerBounds:
        """Lower bounds on constant - error + u . atoms.

        Without `by_least_quotients` the quotients in the middle alone are tried, which takes half of the time.
        """
        parts = [
            part._least(u[rows], constant[rows], error[rows], by_least_quotients, by_token)
            for rows, part in self._parts(u.shape[1])
        ]
        low, table, spread = (torch.cat(found) for found in zip(*(part[:3] for part in parts), strict=True))
        wide = [part.by_token for part in parts if part.by_token is not None]
        return LowerBounds(low, table, spread, torch.cat(wide) if by_token else None)

    def _least(
        self, u: Tensor, constant: Tensor, error: Tensor, by_least_quotients: bool, by_token: bool
    ) -> LowerBounds:
        """The bounds with each head's own least quotient; those in the middle if better, where a cell is narrow.

        Bounds that are all above zero are not bettered.
        """
        middle = self.middles(u)
        if not by_least_quotients:
            return self._above_chords(u, self._chords(u, middle, 0), constant, error, by_token)
        found = self._above_chords(u, self._chords(u, middle, TURNS), constant, error, by_token)
        is_narrow, is_above_zero = (self.many <= NARROW * self.few).all(1), (found.low > 0).all(1)
        rows = (is_narrow & ~is_above_zero).nonzero().squeeze(1)
        if self.n_heads == 1 or not len(rows):
            return found
        some, u = self.only(rows), u[rows]
        of_middle = some._chords(u, middle[:, rows], 0)
        return found.raised(rows, some._above_chords(u, of_middle, constant[rows], error[rows], by_token))

    def _chords(self, u: Tensor, mu: Tensor, turns: int) -> Chords:
        """The tables with mu near each head's least quotient, looked for in so many turns, or with the given mu."""
        if is_compiled():
            slots = [slot.start for slot in self.slots] + [self.entries]
            parts = [int(part[0]) for part in self.parts] + [self.n_atoms]
            return chords(Bounding(self.rows, self.few, self.many, u, mu, slots, parts), turns)
        return self._chords_in_torch(u, mu, turns)

    def _chords_in_torch(self, u: Tensor, mu: Tensor, turns: int) -> Chords:
        products = self.products(u)
        if turns:
            mu = self._least_quotients(products, mu, turns)
        table = self.less(products, mu)
        ends = self.ends(table)
        (least, least_size), (most, most_size) = ((x.sum(0), x.abs().sum(0)) for x in ends)
        few, many = by_head(self.few), by_head(self.many)
        low, high = least.clamp(max=0.0), most.clamp(min=0.0)
        width = high - low
        a = torch.where(width > 0, (few * high - many * low) / width, few)
        a = torch.minimum(torch.maximum(a, few), many)
        combined = table.mul_(a.unsqueeze(-1)).sum(0)
        return Chords(mu, a, least, least_size, most, most_size, combined, self.least_sum(combined))

    def _least_quotients(self, products: Tensor, middle: Tensor, turns: int) -> Tensor:
        """Nearly the least u_h . N_h / Z_h: float numbers that no bound relies on.

        Dinkelbach: the tokens at which N - l Z is least have a quotient l' < l, or l is the least one. l becomes a
        little less than l', until N - l Z is above 0 everywhere: where it is not, it is multiplied by z+, which may be
        a billion times z-, so that it would not do to end where l hardly changes.
        """
        few = by_head(self.few)
        kind = torch.float32 if bool((self.many <= FAR * self.few).all()) else torch.float64
        size = torch.maximum(products.amax(-1), -products.amin(-1)) * few
        w = (self.w.transpose(0, 1) * few).to(kind).unsqueeze(2).expand_as(products).reshape(-1, self.entries)
        products = (products * (few / size).unsqueeze(-1)).to(kind).reshape(-1, self.entries)
        found, room = (middle / size).to(kind).flatten(), torch.empty_like(products)
        l, falling, first = found, torch.arange(len(found)), torch.tensor([slot.start for slot in self.slots])
        for _ in range(turns):
            above = torch.mul(w, l.unsqueeze(1), out=room[: len(l)])
            torch.sub(products, above, out=above)
            least, at = zip(*(above[:, slot].min(1) for slot in self.slots), strict=True)
            z = w.gather(1, torch.stack(at, 1) + first).sum(1)
            sums = torch.stack(least).sum(0)
            lower = l + sums / z
            is_lower = sums < 0
            l = torch.where(is_lower, lower - NEARLY * (1 + lower.abs()), l)
            found[falling] = l
            still = is_lower.nonzero().squeeze(1)
            if not len(still):
                break
            if 2 * len(still) < len(l):
                l, falling, products, w = l[still], falling[still], products[still], w[still]
        return torch.where(size > 0, found.reshape(size.shape) * size, middle)

    def _above_chords(self, u: Tensor, at: Chords, constant: Tensor, error: Tensor, by_token: bool) -> LowerBounds:
        """The bounds with these numbers mu and a.

        Rounding: T is the sum of the float entries, from which the real one is off by a share s of Z and a rest r, so
        that its quotient is off by s + r z+ at most, however far apart z- and z+ are. a is a float number between z-
        and z+ whatever it was computed from, and the chord from T- to T+ is replaced by the line of slope a below both
        of its ends, z+ T- at T- and z- T+ at T+, which are moved outwards by gamma of the terms of the sums that they
        are. Entries times a, and their sums over heads and places, are off by gamma of all that goes in. For one
        token at a place a difference, a product and a sum are rounded besides, by U of each: of the bound b and the
        difference d at most U (|b| + 3 d) and what is of second order, for which 8 U |b| and 4 U d are taken away.
        """
        mu, a, combined = at.mu, at.a, at.combined
        share, rest = self.errors(u, mu)
        few, many = by_head(self.few), by_head(self.many)
        g = gamma(self.places + 4)
        low = (at.least - g * at.least_size).clamp(max=0.0)
        high = (at.most + g * at.most_size).clamp(min=0.0)
        b = torch.minimum((many - a) * low, (few - a) * high)
        total = constant + (mu + b).sum(0)
        size = constant.abs() + (mu.abs() + b.abs()).sum(0)
        each = share + rest * many + a * (share * by_head(self.most) + rest) + 4 * U * b.abs()
        off = error + ((each + self.places * self.n_heads * LEAST) * ENLARGE).sum(0)
        low = at.total
        off = (off + gamma(3 * self.n_heads + 8) * (size + low.abs())) * ENLARGE
        low = total + low - off
        worst = torch.arange(len(low)), low.nan_to_num(nan=-torch.inf).argmin(1)
        table = combined[worst]
        products = self.products(u[worst].unsqueeze(1)).squeeze(2)
        spread = self._separating(table, products, *(x[:, *worst].unsqueeze(-1) for x in (mu, a, b)))
        if not by_token:
            return LowerBounds(low, table, spread)
        for slot in self.slots:
            combined[..., slot] -= combined[..., slot].amin(-1, keepdim=True)
        below = (low - 8 * U * low.abs() - 4 * LEAST).unsqueeze(-1)
        return LowerBounds(low, table, spread, torch.add(below, combined, alpha=1 - 4 * U))

    def _separating(self, table: Tensor, products: Tensor, mu: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The table itself, or the weights of the head by which a cell's bound loses most.

        At the tokens at which the table is least, head h loses T / Z - (a T + b), as its Z is not the one that the line
        is made for. Where that is more than the table spreads at any place, tokens of large and of small weights are
        to be separated. Shapes: table (cells, entries), `products` (heads, cells, entries), others (heads, cells, 1).
        """
        at = torch.stack([table[:, slot].argmin(1) + slot.start for slot in self.slots], 1)
        w = self.w.transpose(0, 1)
        at_least = at.expand(len(w), *at.shape)
        T, Z = (x.gather(2, at_least).sum(2, keepdim=True) for x in (products - mu * w, w))
        lost, head = (T / Z - (a * T + b)).squeeze(2).max(0)
        least, most = self.ends(table)
        is_lost = lost > (most - least).amax(0)
        return torch.where(is_lost.unsqueeze(1), w[head, torch.arange(len(table))], table)

    def spread(self, u: Tensor) -> Tensor:
        """Bounds the l2 norm of u . (atoms - middle) along the functions: (cells,)."""
        mu = self.middles(u)
        table, wrong = self.sums(u, mu)
        zeta, delta = self.zeta.T, self.delta.T
        underflow = FAINT_SQUARES * self.places * u.shape[1]
        rounding = wrong.square().sum(-1).sqrt() + underflow
        length = self.longest(table)
        off = ((delta * (length + rounding + underflow) + 3 * zeta * rounding) * ENLARGE).sum(0)
        combined = table.mul_(zeta[..., None, None]).sum(0)
        # the products, the sums over heads, and that of the middles are off by the gamma that `wrong` has
        found = self.longest(combined)
        return (found + off + FAINT_SQUARES * self.places * u.shape[1]) * ENLARGE
