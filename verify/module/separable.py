"""The separable reduction: one attention layer without MLP and final LayerNorm, in real arithmetic.

For a fixed last token the logits are D + sum_h N_h / Z_h, where N_h and Z_h are sums over the positions of tables that
depend on one token each. So every input is only a sum of table rows: enumeration costs an addition per logit and head,
and `verify.module.heads` decides whole products of token sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from constructions.decoder import Decoder
from constructions.decoder.model import Block
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import FAINT, LEAST, U, gamma
from verify.engine.balls import Arithmetic, Ball
from verify.engine.rules.linear import plus, product, times
from verify.engine.rules.normalisation import layer_norm
from verify.engine.rules.pointwise import bounded_exp, div
from verify.frame.judged import is_judged
from verify.module.automaton import Sets
from verify.module.inputs import BATCH, Product
from verify.module.task import Task

AT_ONCE = 1 << 19  # logits
MOST_ORDERS = 1 << 24  # inputs for one last token whose multisets are kept in memory
MOST = 10**8  # inputs that are enumerated
AT = Arithmetic()


def applies(module: nn.Module, task: Task) -> bool:
    """Whether module and task are what the reduction speaks of, and more than a batch of inputs."""
    if not is_judged(module, Decoder):
        return False
    assert isinstance(module, Decoder)
    if len(module.blocks) != 1 or module.pe not in ("nope", "ape", "sine"):
        return False
    block = module.blocks[0]
    assert isinstance(block, Block)
    if block.mlp is not None or not isinstance(module.norm, nn.Identity) or len(task.inputs.parts) != 1:
        return False
    part = task.inputs.parts[0]
    if not isinstance(part, Product) or part.where is not None or part.length < 2:
        return False
    is_last = task.positions(part.length) == (part.length - 1,)
    splits = getattr(task.expected, "cells", None) is not None and (
        block.attention.n_heads == 1 or part.candidates > MOST
    )
    return is_last and module.W_U.shape[1] > 1 and (splits or 1 << 16 < part.candidates <= MOST)


@dataclass(frozen=True)
class Tables:
    """For one last token: at each position and token the weight and weighted values of each head.

    `fixed_weights` and `fixed_values` are those of the last token itself and of BOS. `are_alike` says that all
    positions have the same tables, so that the order of the free tokens does not matter: they are then one position's.
    Shapes: `weights` (heads, positions, vocabulary), `values` (the same, classes), `base` (classes,).
    """

    weights: Ball
    values: Ball
    base: Ball
    fixed_weights: Ball
    fixed_values: Ball
    are_alike: bool


class Layer:
    """The layer's tables for every last token, as balls."""

    def __init__(self, module: Decoder, length: int, classes: tuple[int, ...] | None) -> None:
        block, bos = module.blocks[0], int(module.has_bos)
        assert isinstance(block, Block)
        attention = block.attention
        self.n_heads, d_head = attention.n_heads, attention.d_head
        self.row, embedded = self._embedded(module, length + bos)
        normal = self._normal(block.norm_1, embedded)
        own = int(self.row[-1])
        last = Ball(normal.mid[own], normal.radius[own])
        q, k, v = (
            self._heads(linear(x, getattr(attention, f"W_{c}"), getattr(attention, f"b_{c}")), d_head)
            for x, c in ((last, "Q"), (normal, "K"), (normal, "V"))
        )
        W_U = stored(module.W_U)
        if classes is not None:
            W_U = Ball(W_U.mid[:, list(classes)])
        W_O = stored(attention.W_O).mid.reshape(self.n_heads, d_head, -1)
        flat = (self.n_heads, -1, d_head)
        keys = Ball(k.mid.reshape(flat).transpose(1, 2), k.radius.reshape(flat).transpose(1, 2))
        self.scores = div(AT, product(AT, q, keys), math.sqrt(d_head))
        out = product(AT, product(AT, Ball(v.mid.reshape(flat), v.radius.reshape(flat)), Ball(W_O)), W_U)
        self.length, self.tokens = length, normal.mid.shape[1]
        shape = (self.n_heads, len(normal.mid), self.tokens, -1)
        self.contributions = Ball(out.mid.reshape(shape)[:, self.row], out.radius.reshape(shape)[:, self.row])
        stream = Ball(embedded.mid[own], embedded.radius[own])
        if attention.b_O is not None:
            stream = plus(AT, stream, stored(attention.b_O))
        self.residual = product(AT, stream, W_U)
        if module.b_U is not None:
            b_U = stored(module.b_U)
            self.residual = plus(AT, self.residual, b_U if classes is None else Ball(b_U.mid[list(classes)]))
        self.bos = bos
        self.are_alike = bool((self.row[bos:-1] == self.row[bos]).all())  # by what is stored, not by what is computed

    def _embedded(self, module: Decoder, places: int) -> tuple[Tensor, Ball]:
        """The stream (rows, tokens, d) before the layer, and the row of each place.

        Places with the same position embedding share a row.
        """
        x = stored(module.W_E)
        if module.pe == "nope":
            return torch.zeros(places, dtype=torch.long), Ball(x.mid.unsqueeze(0))
        rows, row = torch.unique(stored(module.W_pos).mid[:places], dim=0, return_inverse=True)
        return row, plus(AT, x, Ball(rows.unsqueeze(1)))

    def _normal(self, norm: nn.Module, x: Ball) -> Ball:
        if isinstance(norm, nn.Identity):
            return x
        assert isinstance(norm, nn.LayerNorm) and norm.bias is not None
        size = [x.mid.shape[-1]]
        return layer_norm(AT, x, size, stored(norm.weight), stored(norm.bias), norm.eps)[0]

    def _heads(self, x: Ball, d_head: int) -> Ball:
        """(..., heads d_head) as (heads, ..., d_head)."""
        shape = (*x.mid.shape[:-1], self.n_heads, d_head)
        return Ball(x.mid.reshape(shape).movedim(-2, 0), x.radius.reshape(shape).movedim(-2, 0))

    def tables(self, token: int) -> Tables:
        """The tables where the last token is this one."""
        shape = (self.n_heads, -1, self.tokens)
        mid, rad = (x[:, token].reshape(shape)[:, self.row] for x in (self.scores.mid, self.scores.radius))
        top = mid.amax((1, 2), keepdim=True)  # every head's weights may be divided by one number
        weights = Ball(*bounded_exp(AT, plus(AT, Ball(mid, rad), Ball(-top))))
        wide = Ball(weights.mid.unsqueeze(-1), weights.radius.unsqueeze(-1))
        values = times(AT, wide, self.contributions)
        base = Ball(self.residual.mid[token], self.residual.radius[token])
        fixed_weights, fixed_values = one(weights, -1, token), one(values, -1, token)
        if self.bos:
            fixed_weights = plus(AT, fixed_weights, one(weights, 0, self.tokens - 1))
            fixed_values = plus(AT, fixed_values, one(values, 0, self.tokens - 1))
        return Tables(self._free(weights), self._free(values), base, fixed_weights, fixed_values, self.are_alike)

    def _free(self, x: Ball) -> Ball:
        """What the positions of the free tokens have; where they are alike, what the first one has.

        Tables of alike positions are one function of the same stored numbers, so that one's ball holds them all. Their
        midpoints may differ in the last bit by their place in an array, as a kernel may treat its end in another way.
        """
        if not self.are_alike:
            return Ball(x.mid[:, self.bos : -1], x.radius[:, self.bos : -1])
        first = slice(self.bos, self.bos + 1)
        free = x.mid[:, self.bos : -1]
        return Ball(x.mid[:, first].expand_as(free), x.radius[:, first].expand_as(free))


def stored(x: Tensor) -> Ball:
    return Ball(x.detach().double())


def linear(x: Ball, W: Tensor, b: Tensor | None) -> Ball:
    out = product(AT, x, stored(W))
    return out if b is None else plus(AT, out, stored(b))


def one(x: Ball, place: int, token: int) -> Ball:
    """The numbers of each head at one place and token."""
    return Ball(x.mid[:, place, token], x.radius[:, place, token])


def relative_error(weights: Ball) -> float:
    """The largest error of a weight relative to itself; infinite where one may be zero, or is no number."""
    share = (weights.radius / weights.mid).nan_to_num(math.inf)
    return float(torch.where(weights.mid > 0, share, torch.full_like(share, math.inf)).amax()) * ENLARGE + LEAST


def lost_to_underflow(tables: Tables) -> float:
    """Bounds what underflow takes from one head's quotient, and from N - l Z divided by Z, on any input.

    Proof. Up to n + 2 products go into N, or into N - l Z, each off by LEAST / 2 besides its relative error, and sums
    do not underflow: all of it is below (n + 2) LEAST, as is what becomes of it in later roundings. Z is at least the
    sum of the least weights, itself off by less than a half. The quotient underflows once more, as does this bound.
    """
    n = tables.weights.mid.shape[1]
    least = float((tables.weights.mid.amin(-1).sum(-1) + tables.fixed_weights.mid).amin())
    return 4 * (n + 2) * LEAST / least + FAINT if least > 0 else math.inf


@dataclass(frozen=True)
class Orders:
    """All inputs but for their last token, and the multiset that each is.

    Shapes: `rows` (N, positions), `multiset` (N,), `multisets` (multisets, positions), each in one of its orders.
    """

    rows: Tensor
    multiset: Tensor
    multisets: Tensor

    @classmethod
    def of(cls, free: Sets) -> Orders:
        """The orders of tokens from one set."""
        k, n = len(free[0]), len(free)
        powers, tokens = k ** torch.arange(n), torch.tensor(free[0])
        places = Product((tuple(range(k)),) * n).at(torch.arange(k**n))
        codes, multiset = torch.unique((places.sort(1).values * powers).sum(1), return_inverse=True)
        return cls(tokens[places], multiset, tokens[codes.unsqueeze(1) // powers % k])


Answers = Callable[[Tensor], Tensor]


def enumerated(layer: Layer, part: Product, answers: Answers) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Every input with bounds on its margin: tokens (N, length), lower and upper ends (N,)."""
    free = part.sets[:-1]
    is_one_set = len(set(free)) == 1 < len(free) and len(free[0]) ** len(free) <= MOST_ORDERS
    orders = Orders.of(free) if is_one_set else None
    for token in part.sets[-1]:
        tables = layer.tables(token)
        logits = Sums(tables, layer)
        found = logits.by_prefix(free) if orders is None or not tables.are_alike else logits.by_multiset(orders)
        for rows, margins in found:
            tokens = torch.cat([rows, torch.full((len(rows), 1), token)], 1)
            gap = margins(answers(tokens))
            error = 2 * logits.error + 2 * U * gap.abs()
            yield tokens, gap - error, gap + error


class Sums:
    """Logits from sums of table rows, every one of them off by at most `error`.

    N / Z is a mean of contributions with positive weights: weights that are off by a share e of themselves move it by
    at most 2 e / (1 - e) times the largest contribution, and rounding a sum is a share of the same positive sum. What
    products and quotients lose to underflow is no share of anything, and is added.
    """

    def __init__(self, tables: Tables, layer: Layer) -> None:
        self.tables, self.n_heads = tables, layer.n_heads
        n = tables.weights.mid.shape[1]
        relative = max(relative_error(tables.weights), relative_error(tables.fixed_weights)) + gamma(4 * n + 32)
        mean = float(layer.contributions.size.amax())
        of_mean = float(layer.contributions.radius.amax()) + (4 * relative * mean if relative < 0.5 else math.inf)
        of_mean += lost_to_underflow(tables)
        size = float(tables.base.size.amax()) + self.n_heads * mean
        error = float(tables.base.radius.amax()) + self.n_heads * of_mean + gamma(2 * self.n_heads + 8) * size
        self.error = error * ENLARGE + FAINT

    def by_prefix(self, free: Sets) -> Iterator[tuple[Tensor, Answers]]:
        """Inputs but for their last token, (N, positions), and a function of their answers (N, 1): margins (N,)."""
        tail = torch.tensor(free[-1])
        at_once = max(1, AT_ONCE // (len(tail) * self.tables.base.mid.shape[0]))
        starts = Product(free[:-1]).batches(at_once) if len(free) > 1 else iter([torch.zeros(1, 0, dtype=torch.long)])
        for start in starts:
            found = self(start, tail.unsqueeze(0)).flatten(0, 1)

            def margins(right: Tensor, found: Tensor = found) -> Tensor:
                own = found.gather(1, right).squeeze(1)
                return own - found.scatter_(1, right, -torch.inf).amax(1)

            yield torch.cat([start.repeat_interleave(len(tail), 0), tail.repeat(len(start)).unsqueeze(1)], 1), margins

    def by_multiset(self, orders: Orders) -> Iterator[tuple[Tensor, Answers]]:
        """As `by_prefix`, each multiset's logits computed once."""
        at_once = max(1, AT_ONCE // self.tables.base.mid.shape[0])
        parts = torch.split(orders.multisets, at_once)
        found = torch.cat([self(part[:, :-1], part[:, -1:]).squeeze(1) for part in parts])
        best, top = found.max(1)
        rest = found.scatter(1, top.unsqueeze(1), -torch.inf).amax(1)
        for rows, multiset in zip(torch.split(orders.rows, BATCH), torch.split(orders.multiset, BATCH), strict=True):

            def margins(right: Tensor, multiset: Tensor = multiset) -> Tensor:
                own = right.squeeze(1)
                rival = torch.where(top[multiset] == own, rest[multiset], best[multiset])
                return found[multiset, own] - rival

            yield rows, margins

    def __call__(self, start: Tensor, tail: Tensor) -> Tensor:
        """Logits (len(start), tails, classes) of prefixes, each with its own row of last free tokens or all with one.

        Shapes: `start` (N, positions - 1); `tail` (N, tails) or (1, tails).
        """
        out: Tensor | None = None
        n = start.shape[1]
        for h in range(self.n_heads):
            values = self.tables.fixed_values.mid[h].repeat(len(start), 1)
            weights = self.tables.fixed_weights.mid[h].repeat(len(start))
            for i in range(n):
                values += self.tables.values.mid[h, i, start[:, i]]
                weights += self.tables.weights.mid[h, i, start[:, i]]
            sums = values[:, None] + self.tables.values.mid[h, n, tail]
            sums /= (weights[:, None] + self.tables.weights.mid[h, n, tail]).unsqueeze(-1)
            out = sums if out is None else out.add_(sums)
        assert out is not None, "a layer has a head"
        return out.add_(self.tables.base.mid)
